"""One browser and one server for all browser tests; a fresh page for each."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import shutil
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE.parent / "presentation" / "page"):
    sys.path.insert(0, str(folder))  # driver.py and builders.py

import builders  # noqa: E402
import driver  # noqa: E402
import tabs as shelf  # noqa: E402

from gradlab.presentation import html  # noqa: E402
from gradlab.presentation.packing import Packed  # noqa: E402
from tests import kernels  # noqa: E402


@pytest.fixture(scope="session")
def chromium():
    """Give a headless Chromium; its absence is a failure, not a skip."""
    with driver.browser() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def tabs(chromium):
    """Give tabs that are lent, with the network blocked; see `tabs.Tabs`."""
    tabs = shelf.Tabs(chromium)
    yield tabs
    tabs.close()


@pytest.fixture(scope="session")
def surroundings():
    """Give the environment of a server whose kernels start at once."""
    with kernels.prepared(driver.kernel_environment()) as environment:
        yield environment


@pytest.fixture(scope="session")
def served(tmp_path_factory, surroundings):
    """Start JupyterLab once."""
    with driver.jupyter(tmp_path_factory.mktemp("lab"), surroundings) as server:
        yield server


@pytest.fixture(scope="session")
def served_notebook(tmp_path_factory, surroundings):
    """Start Notebook 7 once."""
    root = tmp_path_factory.mktemp("notebook")
    with driver.jupyter(root, surroundings, "notebook") as server:
        yield server


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """Write the page of a hand-made report, each once: its picture takes a while."""
    folder = tmp_path_factory.mktemp("pages")

    @functools.cache
    def _written(name):
        path = folder / f"{name}.html"
        html.page(getattr(builders, name)(np.random.default_rng(7)), path)
        return path

    return _written


@pytest.fixture
def show(tabs, tmp_path, written):
    """Open a report as a file, with the network blocked; check the console after."""
    pages = []

    def _show(report, **options):
        if isinstance(report, str):
            path = written(report)
        elif isinstance(report, Packed):  # a packed result, without a picture
            path = tmp_path / "packed.html"
            text = html.document(html.island(report, ""), "packed")
            path.write_text(text, encoding="utf-8")
        else:
            path = tmp_path / "page.html"
            html.page(report, path)
        page = lent.enter_context(tabs.lend(**options))
        pages.append(page)
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.wait_for_selector(".gl")
            driver.settle(page, 100)
        return page

    with contextlib.ExitStack() as lent:
        yield _show
        problems = [problem for page in pages for problem in page.problems]
    assert problems == []


def _notebook(page, server, request):
    """Run cells in a fresh notebook; no error in a cell or in the console."""

    def go(*cells, run=True):
        name = f"{request.node.name.replace('[', '-').replace(']', '')}.ipynb"
        driver.write_notebook(server["root"] / name, cells)
        driver.open_notebook(page, server, name)
        if run:
            assert driver.run_all(page) == []
        return page

    yield go
    # Notebook 7.6 itself trips over a plug-in without settings when it starts, and
    # JupyterLab over its own question for a subshell when the kernel restarts before
    # it has answered, as on a slow machine
    foreign = ("favicon", "reading 'schema'", "create_subshell_request")
    assert [p for p in page.problems if not any(f in p for f in foreign)] == []


@pytest.fixture(scope="session")
def desk(chromium, served):
    """Open one JupyterLab for many notebooks, one after another: it loads slowly."""
    with driver.tab(chromium) as page:
        yield page


@pytest.fixture
def lab(desk, served, request):
    """Run cells in JupyterLab."""
    desk.problems.clear()
    try:
        yield from _notebook(desk, served, request)
    finally:
        desk.evaluate(driver.CLOSE)


@pytest.fixture
def opened(desk, served):
    """Open a notebook that exists in JupyterLab; no error in the console."""
    desk.problems.clear()

    def go(path):
        shutil.copy(path, served["root"] / path.name)
        driver.open_notebook(desk, served, path.name)
        return desk

    try:
        yield go
        assert desk.problems == []
    finally:
        desk.evaluate(driver.CLOSE)


@pytest.fixture
def fresh_lab(desk, served, request):
    """Run cells in a JupyterLab of its own, which may be loaded again."""
    with contextlib.closing(driver.new_page(desk.context)) as page:
        yield from _notebook(page, served, request)


@pytest.fixture(scope="session")
def first_notebook7(chromium):
    """Open what the pages of Notebook 7 share: what has been loaded once."""
    with driver.tab(chromium) as page:
        yield page


@pytest.fixture
def notebook7(first_notebook7, served_notebook, request):
    """Run cells in Notebook 7."""
    with contextlib.closing(driver.new_page(first_notebook7.context)) as page:
        yield from _notebook(page, served_notebook, request)
