"""Reports in saved and exported notebooks: no kernel, no network, no trust."""

from __future__ import annotations

import subprocess
import sys

import driver
import nbformat
import pytest
from driver import PREAMBLE
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Run a notebook with nbconvert and keep its outputs."""
    folder = tmp_path_factory.mktemp("saved")
    path = driver.write_notebook(
        folder / "book.ipynb", [PREAMBLE + "builders.zoo(rng)", "report = 1"]
    )
    command = [
        *(sys.executable, "-m", "jupyter", "nbconvert", "--execute", "--inplace"),
        *("--to", "notebook", str(path)),
    ]
    subprocess.run(command, env=driver.kernel_environment(), check=True)
    return path


def test_exported_html_is_interactive_without_network(executed, tabs):
    """nbconvert's HTML, opened as a file with the network blocked, can be clicked."""
    command = [sys.executable, "-m", "jupyter", "nbconvert", "--to", "html"]
    subprocess.run([*command, str(executed)], check=True)
    with tabs.lend() as page:
        page.goto(executed.with_suffix(".html").as_uri())
        page.locator(".gl .brow[data-key='norm.gamma']").click()

        driver.shows(page, ".gl .status", "norm.gamma")
        assert [p for p in page.problems if "net::" not in p and "CORS" not in p] == []


def test_saved_notebook_holds_no_widget(executed):
    """The saved output is HTML, PNG and text: nothing that asks for a kernel."""
    book = nbformat.read(executed, 4)
    data = book.cells[0].outputs[-1].data

    assert set(data) == {"text/html", "image/png", "text/plain"}
    assert executed.stat().st_size < 2e6


def test_untrusted_notebook_shows_picture_and_text(executed, opened, tmp_path):
    """Somebody else's copy: JupyterLab drops the script, the picture remains."""
    path = tmp_path / "untrusted.ipynb"
    nbformat.write(nbformat.read(executed, 4), path)
    page = opened(path)
    page.wait_for_selector(".jp-OutputArea-output img")
    driver.settle(page)

    assert page.locator(".gl").count() == 0
    expect(page.locator(".jp-OutputArea-output img").first).to_be_visible()
