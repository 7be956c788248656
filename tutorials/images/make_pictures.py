"""Make the pictures of README.md from the notebooks, by running them.

``make pictures`` executes the notebooks, opens them as pages in headless Chromium, and
photographs what a reader of the notebook sees. Nothing is drawn by hand.
"""

# ruff: noqa: INP001 - a script, not a package
from __future__ import annotations

import os
import pathlib
import sys
import tempfile

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from playwright.sync_api import sync_playwright

HERE = pathlib.Path(__file__).resolve().parent
NOTEBOOKS = HERE.parents[1] / "notebooks"
# notebook -> (picture, number of the gradlab view on the page)
PICTURES = {
    "bug_hunt.ipynb": [("report.png", 0), ("sweep.png", 1)],
    "which_layer.ipynb": [("layers.png", 1)],
}


def main() -> None:
    """Run the notebooks and photograph their views."""
    browser_path = os.environ.get("GRADLAB_CHROMIUM", "/usr/bin/chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--no-sandbox"]
        )
        for name, pictures in PICTURES.items():
            notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
            NotebookClient(
                notebook, timeout=300, resources={"metadata": {"path": NOTEBOOKS}}
            ).execute()
            body, _ = HTMLExporter().from_notebook_node(notebook)
            page_path = pathlib.Path(folder, name).with_suffix(".html")
            page_path.write_text(body, encoding="utf-8")
            page = browser.new_page(
                viewport={"width": 1040, "height": 900}, device_scale_factor=1.5
            )
            page.goto(page_path.as_uri())
            page.wait_for_timeout(1500)
            for picture, number in pictures:
                view = page.locator("[data-gl]").nth(number)
                view.screenshot(path=HERE / picture)
                sys.stdout.write(f"{HERE / picture}\n")
        browser.close()


if __name__ == "__main__":
    main()
