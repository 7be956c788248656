// The window of the bug hunt. Appended to gradlab.js, whose elements, style and host it
// uses; the two rules stated there (names through text nodes, no focus without
// data-lm-suppress-shortcuts) hold here as well.

const HUNT_CSS = `
.gl.hunt{max-width:860px}.gl.hunt header{align-items:flex-start}.gl.hunt header>div{flex:1 1 auto;min-width:0}
.gl.hunt .seal{font-size:15px}.gl.hunt .score{flex:none;text-align:right;line-height:1.3;white-space:nowrap;color:var(--mute);font-size:12px}
.gl.hunt .score b{display:block;font:600 20px/1.2 var(--sans);color:var(--fg);font-variant-numeric:tabular-nums}
.gl.hunt .steps{display:flex;gap:4px;margin:0 0 10px!important;padding:0!important;list-style:none}
.gl.hunt .steps li{flex:1 1 0;margin:0;list-style:none}.gl.hunt .steps li::marker{content:""}
.gl.hunt .steps button{display:block;width:100%;height:22px;padding:0;font-size:11px;border:0;border-bottom:3px solid var(--line);border-radius:3px 3px 0 0;background:none;color:var(--mute)}
.gl.hunt .steps button:hover{background:var(--soft)}.gl.hunt .steps .done button{border-color:var(--ok);color:var(--ok);font-weight:600}
.gl.hunt .steps [aria-current=step]{border-color:var(--accent)!important;color:var(--fg)!important;font-weight:700;background:var(--soft)}
.gl.hunt .story{margin:0 0 8px!important;font-size:14px;line-height:1.5;max-width:74ch}
.gl.hunt pre{margin:0!important;padding:9px 12px!important;border:1px solid var(--line);border-radius:8px;background:var(--soft)!important;color:var(--fg)!important;font:12px/1.5 var(--mono)!important;max-height:400px;overflow:auto;white-space:pre;tab-size:4}
.gl.hunt .code{position:relative}.gl.hunt .code button{position:absolute;right:14px;top:7px}
.gl.hunt .bar{margin:10px 0}.gl.hunt .bar button{height:30px;padding:0 14px;font-size:13px}
.gl.hunt button.main{background:var(--accent);border-color:var(--accent);color:var(--paper);font-weight:600}.gl.hunt button.main:hover:enabled{filter:brightness(1.1)}
.gl.hunt .hrow{display:grid;grid-template-columns:16px 84px 1fr minmax(90px,.42fr) 60px;gap:10px;align-items:center;padding:5px 10px 5px 8px;border-left:3px solid var(--tone,transparent)}
.gl.hunt .hrow+.hrow{border-top:1px solid color-mix(in srgb,var(--line) 55%,transparent)}.gl.hunt .hrow.bad{background:var(--badsoft)}
.gl.hunt .hrow .g{color:var(--tone);font-weight:700;text-align:center}.gl.hunt .hrow .name{font-family:var(--mono);font-size:12px;font-weight:600;overflow-wrap:anywhere}
.gl.hunt .hrow .why{font-size:12px;overflow-wrap:anywhere}.gl.hunt .hrow.ok .why{color:var(--mute)}.gl.hunt .hrow .num{text-align:right}
.gl.hunt .hrow .track i{background:var(--tone)}.gl.hunt .hrow.whole .why{grid-column:3/-1}
.gl.hunt .said{font-weight:600;color:var(--tone,var(--fg))}.gl.hunt .hints{margin:0!important;padding:0!important}.gl.hunt .finding b{color:var(--tone)}
.gl.hunt.narrow .hrow{grid-template-columns:16px 60px 1fr 58px}.gl.hunt.narrow .hrow .track{display:none}.gl.hunt.narrow .score span{display:none}
`;

// Worst relative error on the axis of the report: 1e-16 at the left, 1e2 at the right.
function errorBar(row) {
  const error = number(row.error);
  const share = Number.isFinite(error)
    ? clamp((Math.log10(Math.max(error, 1e-16)) + 16) / 18, 0, 1) : 1;
  const fill = h("i", {});
  fill.style.width = `${100 * share}%`;
  const line = h("u", {}); // where right ends: the tolerance of the game
  line.style.left = `${(100 * 10) / 18}%`;
  return h("span", { class: "track", "aria-hidden": "true" }, fill, line);
}
function huntRow(row) {
  const numbers = row.error !== null;
  return h("div", { class: `hrow ${row.right ? "ok" : "bad"}${numbers ? "" : " whole"}`, role: "listitem" },
    h("span", { class: "g", "aria-hidden": "true" }, row.right ? "✓" : "✗"),
    h("span", { class: "name" }, row.name),
    h("span", { class: "why" }, h("span", { class: "hide" }, row.right ? "right: " : "wrong: "), withCode(row.words)),
    numbers && errorBar(row),
    numbers && h("span", { class: "num", title: "worst relative error" }, format(number(row.error), 2)));
}

export function mountHunt(element, host) {
  const root = shell(element, "Bug hunt");
  root.classList.add("hunt");
  const style = h("style");
  style.textContent = HUNT_CSS;
  root.append(style);
  const head = h("header", { role: "none" }), steps = h("ol", { class: "steps", "aria-label": "Levels" });
  const story = h("p", { class: "story" });
  const pre = h("pre", { ...FOCUS, role: "region", "aria-label": "The broken code" });
  const copy = h("button", { ...FOCUS, type: "button", onclick: copyCode }, "copy");
  const code = h("details", {}, h("summary", FOCUS, "the broken code"), h("div", { class: "code" }, pre, copy));
  const button = (words, act, kind) => h("button", { ...FOCUS, type: "button", class: kind, onclick: act }, words);
  const check = button("check", () => ask("check"), "main");
  const hint = button("", () => ask("hint")), next = button("next bug", () => ask("next"));
  const said = h("span", { class: "said grow", role: "status", "aria-live": "polite" });
  const rows = h("div", { class: "blocks", role: "list", "aria-label": "Gradients" });
  const moral = h("div", { class: "finding ok" }), hints = h("ul", { class: "hints", "aria-label": "Hints" });
  root.append(head, steps, story, code, h("div", { class: "bar" }, check, hint, next, said), rows, moral, hints);
  let shown = 0; // the level whose code is in the page

  function ask(type, more = {}) {
    said.textContent = type === "check" ? "checking…" : "";
    root.classList.toggle("busy", type === "check");
    host.ask({ type, ...more }, (answer) => {
      root.classList.remove("busy");
      if (answer.error) said.textContent = answer.error;
      else load(); // an answer as before is no change of the page
    });
  }
  async function copyCode() {
    try {
      await navigator.clipboard.writeText(pre.textContent);
      copy.textContent = "copied";
    } catch { // not allowed here: select it, so that Ctrl+C does it
      getSelection().selectAllChildren(pre);
      copy.textContent = "press Ctrl+C";
    }
    setTimeout(() => { copy.textContent = "copy"; }, 2000);
  }
  function step(number, page) {
    const done = page.done.includes(number), here = number === page.number;
    return h("li", { class: done ? "done" : null }, h("button", {
      ...FOCUS, type: "button", title: page.titles[number - 1], "aria-current": here ? "step" : null,
      "aria-label": `bug ${number}: ${page.titles[number - 1]}${done ? ", solved" : ""}`,
      onclick: () => ask("go", { level: number }),
    }, `${done ? "✓ " : ""}${number}`));
  }
  function load() {
    const page = host.get("page"), held = root.getRootNode().activeElement;
    const [tone, glyph] = page.solved ? ["ok", "✓"] : page.rows.some((row) => !row.right) ? ["bad", "✗"] : ["warn", "?"];
    head.className = tone;
    head.replaceChildren(
      h("span", { class: "seal", "aria-hidden": "true" }, glyph),
      h("div", {}, h("h3", {}, `Bug ${page.number}: ${page.title}`),
        h("p", {}, page.student && `${page.student} · `, "edit ", h("code", {}, page.edit), " in a cell of your own, run that cell, press check")),
      h("div", { class: "score" }, h("b", {}, count(page.score)), `points`, h("span", {}, ` · ${page.done.length} of ${page.titles.length} solved`)));
    const focused = steps.contains(document.activeElement);
    steps.replaceChildren(...page.titles.map((_, i) => step(i + 1, page)));
    if (focused) steps.querySelector("[aria-current]").focus();
    story.replaceChildren(...withCode(page.story));
    if (shown !== page.number) {
      pre.textContent = page.source;
      code.open = !page.solved;
      shown = page.number;
    }
    hint.textContent = page.solved ? "hint" : !page.left ? "no more hints" : `hint (${MINUS}20 points, ${page.left} left)`;
    hint.disabled = page.solved || !page.left;
    next.disabled = !page.solved || page.number === page.titles.length;
    next.classList.toggle("main", !next.disabled);
    check.classList.toggle("main", next.disabled);
    if ((held === hint || held === next) && held.disabled) check.focus(); // it would be nowhere
    said.textContent = page.words;
    said.className = `said grow ${page.rows.length ? tone : ""}`;
    rows.hidden = !page.rows.length;
    rows.replaceChildren(...page.rows.map(huntRow));
    moral.hidden = !page.solved;
    moral.replaceChildren(h("b", {}, "To remember. "), ...withCode(page.moral));
    hints.replaceChildren(...page.hints.map((text, i) =>
      h("li", { class: "finding warn" }, h("b", {}, `Hint ${i + 1}. `), withCode(text))));
  }
  const stops = [host.on("page", load),
    onTheme(root, (dark) => root.classList.toggle("dark", dark)),
    onWidth(root, (width) => root.classList.toggle("narrow", width < 560))];
  load();
  return () => stops.forEach((stop) => stop());
}

MOUNTS.hunt = mountHunt;
