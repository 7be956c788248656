"""A live view whose kernel is the test: it answers when it is told to, or never."""

from __future__ import annotations

import base64

from gradlab.presentation.widgets.hunt import BugHunt

# What anywidget hands to a view, and a list of what the view has asked for.
MOUNT = """async ([source, state]) => {
  const address = URL.createObjectURL(new Blob([source], {type: 'text/javascript'}));
  const script = (await import(address)).default;
  const listeners = {};
  const tell = (name, ...values) => {
    for (const call of [...listeners[name] ?? []]) call(...values);
  };
  const model = window.model = {
    asked: [],
    get: key => state[key],
    set: (key, value) => { state[key] = value; },
    save_changes: () => {},
    on: (name, call) => { (listeners[name] ??= new Set()).add(call); },
    off: (name, call) => { listeners[name]?.delete(call); },
    send: message => { model.asked.push(message); },
    change: changes => {
      Object.assign(state, changes);
      for (const key of Object.keys(changes)) tell(`change:${key}`);
    },
    answer: (type, words, planes) => {
      const { id } = model.asked.findLast(message => message.type === type);
      const buffers = Object.values(planes).map(text =>
        new DataView(Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer));
      tell('msg:custom', { ...words, id, names: Object.keys(planes) }, buffers);
    },
  };
  script.render({ model, el: document.body });
}"""
TRAITS = (
    *("kind", "page", "param", "tol", "metric", "selected", "can_recompute"),
    *("h", "method", "dtype", "picked"),
)


def mount(page, widget):
    """Show the page of a widget; what it asks waits for `answer`."""
    traits = widget.get_state()
    state = {name: traits[name] for name in TRAITS if name in traits}
    page.evaluate(MOUNT, [BugHunt._esm, state])  # which is the script of all views


def answer(page, kind, words=None, planes=None):
    """Answer the last question of this kind, which must have been asked."""
    texts = {k: base64.b64encode(v).decode() for k, v in (planes or {}).items()}
    page.evaluate("answer => model.answer(...answer)", [kind, words or {}, texts])


def asked(page, kind):
    """Wait until the view has asked such a question, and return the last one."""
    page.wait_for_function("kind => model.asked.some(m => m.type === kind)", arg=kind)
    return page.evaluate("kind => model.asked.findLast(m => m.type === kind)", kind)


def change(page, traits):
    """Set traits as Python does."""
    page.evaluate("traits => model.change(traits)", traits)


def send_block(page, name, meta, planes):
    """Set the trait that holds the numbers of a block, as the explorer does."""
    texts = {k: base64.b64encode(v).decode() for k, v in planes.items()}
    page.evaluate(
        """([key, meta, texts]) => {
          const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0));
          const planes = Object.entries(texts)
            .map(([name, text]) => [name, new DataView(bytes(text).buffer)]);
          model.change({ block: { key, meta, planes: Object.fromEntries(planes) } });
        }""",
        [name, meta, texts],
    )


def focused(page):
    """Return the words of what holds the focus, or none."""
    return page.evaluate("document.activeElement?.closest('.gl *')?.innerText ?? ''")
