"""Drive a real browser: plain pages, and notebooks under JupyterLab or Notebook 7."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import nbformat
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import expect, sync_playwright

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREAMBLE = """
import builders, numpy as np, gradlab as gl
rng = np.random.default_rng(7)
"""
# Of the game: all that takes the focus.
FOCUSABLE = ".gl.hunt :is(button:enabled, summary, [tabindex])"
# Of a page: what takes the focus, one of each kind.
PARTS = (
    "canvas[role=application]",
    "input[type=range]",
    "button:visible >> nth=0",
    ".brow >> nth=2",
)
MINUS = "\N{MINUS SIGN}"
# Seconds to wait for what comes at once, but on a busy machine: a test ends as soon as
# it has come, and none fails because something was slow.
PATIENCE = 300
expect.set_options(timeout=1000 * PATIENCE)
# GRADLAB_SLOWER=8 makes pages so many times slower, to look for tests that mind.
SLOWER = float(os.environ.get("GRADLAB_SLOWER", "1"))
_SHARED = 2**30  # bytes, for all tabs of two browsers
NAMES = ("chromium", "chromium-browser", "google-chrome")

IDLE = """() => {
  const widget = window.jupyterapp?.shell.currentWidget;
  return widget?.sessionContext?.session?.kernel?.status === 'idle';
}"""
ALL_RAN = """() => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')]
  .every(prompt => /\\[\\d+\\]/.test(prompt.textContent))"""
# Of the cells themselves, not of the page: JupyterLab draws only those in sight.
TROUBLE = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter(cell => cell.model.type === 'code')
  .flatMap(cell => cell.model.outputs.toJSON())
  .filter(out => out.output_type === 'error' || out.name === 'stderr')"""
OPEN = """name => {
  window.jupyterapp.commands.execute('docmanager:open', {path: name});
}"""
OPENED = "name => window.jupyterapp.shell.currentWidget?.context?.path === name"
# Disposed of, not closed: closing asks whether to save.
CLOSE = """async () => {
  for (const widget of [...(window.jupyterapp?.shell.widgets('main') ?? [])]) {
    await widget.sessionContext?.shutdown();
    widget.dispose();
  }
}"""
# Timers fire in the order in which they are due: after one that is set now, all shorter
# ones that were set before have fired. Two frames later all they asked for is drawn.
SETTLED = """wait => new Promise(done => {
  setTimeout(done, wait + 20000);  // a page that is not shown has no frames
  setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), wait);
})"""
IN_VIEW = """element => {
  const box = element.getBoundingClientRect();
  return element.isConnected && box.bottom > 0 && box.top < innerHeight;
}"""
EVALUATE = """async code => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute(
    {code: '', silent: true, user_expressions: {value: code}});
  const answer = (await future.done).content.user_expressions.value;
  return answer.data ? answer.data['text/plain'] : answer.evalue;
}"""


def executable():
    """Return the browser to use; None lets playwright take its own."""
    named = os.environ.get("GRADLAB_CHROMIUM")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


def _arguments():
    """Let Chromium share memory where there is room: containers have little of it."""
    shared = pathlib.Path("/dev/shm")
    roomy = shared.is_dir() and shutil.disk_usage(shared).free > _SHARED
    return ["--no-sandbox", *([] if roomy else ["--disable-dev-shm-usage"])]


@contextlib.contextmanager
def browser():
    """Start a headless Chromium; an error, not a skip, where there is none."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=executable(),
            args=_arguments(),
        )
        try:
            yield chromium
        finally:
            chromium.close()


@contextlib.contextmanager
def tab(chromium, *, width=1300, height=1000, dark=False, offline=False, **options):
    """Open a tab that remembers the errors of its console."""
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        **options,
    )
    context.set_default_timeout(1000 * PATIENCE)
    if offline:
        local = ("file:", "data:", "about:", "blob:")
        context.route(
            lambda url: not url.startswith(local), lambda route: route.abort()
        )
    try:
        yield new_page(context)
    finally:
        context.close()


def new_page(context):
    """Open one more page of a tab's context, which has loaded much of it before."""
    page = context.new_page()
    if SLOWER > 1:
        throttle = context.new_cdp_session(page)
        throttle.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    page.problems = []
    page.requests_made = []
    page.on("console", lambda m: m.type == "error" and page.problems.append(m.text))
    page.on("pageerror", lambda error: page.problems.append(f"uncaught: {error}"))
    page.on("request", lambda request: page.requests_made.append(request.url))
    return page


def _free_port():
    """Find a port below those that the system gives to whoever asks meanwhile."""
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def _settings(home):
    """No news pop-up, and cells that are scrolled away stay in the page."""
    folder = home / "settings" / "@jupyterlab"
    for name, content in {
        "apputils-extension/notification": {
            "fetchNews": "false",
            "checkForUpdates": False,
        },
        "notebook-extension/tracker": {"windowingMode": "none"},
    }.items():
        path = folder / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")


def kernel_environment():
    """Return one where kernels import this checkout and the hand-made reports."""
    paths = [str(ROOT), str(ROOT / "tests" / "presentation" / "page")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


@contextlib.contextmanager
def jupyter(root, environment, app="lab"):
    """Serve notebooks from `root`, apart from the user's own settings."""
    port, token = _free_port(), secrets.token_hex(8)
    home = pathlib.Path(tempfile.mkdtemp(prefix="gradlab-jupyter-"))
    _settings(home)
    environment = environment | {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "IPYTHONDIR": str(home / "ipython"),
    }
    command = [
        *(sys.executable, "-m", "jupyter", app),
        *("--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"),
        f"--ServerApp.root_dir={root}",
        f"--IdentityProvider.token={token}",
        "--ServerApp.port_retries=0",
        "--LabApp.expose_app_in_browser=True",
        "--JupyterNotebookApp.expose_app_in_browser=True",
        f"--LabApp.user_settings_dir={home}/settings",
        f"--LabApp.workspaces_dir={home}/workspaces",
    ]
    if sys.platform == "linux":
        # Sockets that are files: the servers of two workers may give two kernels one
        # port, since who picks a port and who opens it are two processes.
        command.append("--KernelManager.transport=ipc")
    log = home / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=root,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        base = f"http://127.0.0.1:{port}"
        try:
            _wait_for_server(f"{base}/api?token={token}", process, log)
            yield {"base": base, "token": token, "root": pathlib.Path(root), "app": app}
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # our own process group only
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            shutil.rmtree(home, ignore_errors=True)


def _wait_for_server(url, process, log):
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                answer.read()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                text = log.read_text(encoding="utf-8")[-3000:]
                raise RuntimeError(f"the server did not start:\n{text}") from None
            time.sleep(0.1)


def write_notebook(path, cells):
    """Write code cells as a notebook, each preceded by the usual imports."""
    book = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(book, path)
    return path


def open_notebook(page, server, name):
    """Show a notebook and wait for its kernel; a Lab that is open stays open."""
    if server["app"] == "lab" and page.url.startswith(f"{server['base']}/lab"):
        page.evaluate(OPEN, name)
        page.wait_for_function(OPENED, arg=name)
    else:
        place = "lab/tree" if server["app"] == "lab" else "notebooks"
        query = f"token={server['token']}"
        query += "&reset" if server["app"] == "lab" else ""
        address = f"{server['base']}/{place}/{name}?{query}"
        page.goto(address, wait_until="domcontentloaded")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.wait_for_function(IDLE)


def run_all(page):
    """Run every cell and return what went wrong in them.

    That is read from the notebook itself: its page may not have been drawn yet.
    """
    # not awaited: a command that opens a dialogue would never come back
    page.evaluate(
        "() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }"
    )
    page.wait_for_function(ALL_RAN)
    page.wait_for_function(IDLE)
    return page.evaluate(TROUBLE)


def save(page):
    """Save the notebook, and wait until its file is written."""
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function(
        "() => !window.jupyterapp.shell.currentWidget.context.model.dirty"
    )


def ask_kernel(page, expression):
    """Evaluate an expression in the notebook's kernel; returns its repr."""
    return page.evaluate(EVALUATE, expression)


def settle(page, milliseconds=350):
    """Wait until the page has drawn all that it knows of, delayed work included."""
    page.evaluate(SETTLED, milliseconds)


def bring(page, selector):
    """Scroll the first such element into view, and wait until the page is at rest.

    Again where a page that was being drawn has replaced it meanwhile: what is gone is
    not scrolled to. (Playwright's own way raises an error then.)
    """
    element = page.locator(selector).first
    deadline = time.monotonic() + PATIENCE
    while True:
        settle(page)
        element.evaluate("e => e.scrollIntoView({block: 'center'})")
        settle(page)
        if element.evaluate(IN_VIEW):
            return element
        if time.monotonic() > deadline:
            raise AssertionError(f"{selector} cannot be brought into view")


def read(page, selector):
    """Read an element once the page has drawn what it was told just before."""
    settle(page, 0)
    return page.inner_text(selector)


def shows(page, selector, *words):
    """Wait until the first such element says all of these words."""
    for each in words:
        element = page.locator(selector).first
        expect(element).to_contain_text(each, use_inner_text=True)


def wait_for_kernel(page, expression, expected, seconds=PATIENCE):
    """Wait until an expression in the kernel has the expected repr."""
    deadline = time.monotonic() + seconds
    while True:
        value = ask_kernel(page, expression)
        if value == expected:
            return
        if time.monotonic() > deadline:
            raise AssertionError(f"{expression} is {value}, expected {expected}")
        page.wait_for_timeout(80)


def type_on(page, elements, orders=("dd", "b", "x")):
    """Type what orders a notebook to delete, add or cut a cell on each element.

    None may reach it. One order at a time: a cell that is deleted and another one that
    is added would look like none.
    """
    settle(page)
    cells = page.locator(".jp-Notebook .jp-Cell")
    before = cells.count()
    for keys in orders:
        for element in elements:
            element.focus()
            for key in keys:
                page.keyboard.press(key)
            assert cells.count() == before, keys  # or the next one is waited for
        settle(page)
        assert cells.count() == before, keys


def cell_centre(page, panel, row, column, rows, columns):
    """Where to click for one cell of a heat map, in pixels of its canvas."""
    box = page.locator(panel).bounding_box()
    return {
        "x": box["width"] * (column + 0.5) / columns,
        "y": box["height"] * (row + 0.5) / rows,
    }
