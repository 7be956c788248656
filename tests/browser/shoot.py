"""Take pictures of real results and of the worst cases, to be looked at.

Usage: ``python tests/browser/shoot.py [FOLDER]`` (default ``pictures``). Every
picture is a page or a widget as a reader sees it, in both themes; nothing is drawn by
hand. With ``--check`` the hand-made worst cases of the tests are taken as well, at 700
and 1400 pixels of width, to be looked at before a release.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "presentation" / "page")]

import builders  # noqa: E402
import driver  # noqa: E402

import gradlab as gl  # noqa: E402
from gradlab.presentation import html  # noqa: E402
from gradlab.presentation.packing_results import pack_sweep  # noqa: E402


def network(seed=0):
    """Return a two-layer network whose gradient of W1 is doubled, and its point."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((5, 4)), rng.integers(0, 3, 5)
    params = {
        "W1": rng.standard_normal((4, 10)),
        "b1": 0.1 * rng.standard_normal(10),
        "W2": rng.standard_normal((10, 3)),
        "b2": 0.1 * rng.standard_normal(3),
    }

    def loss_and_grads(params):
        hidden = np.maximum(0, X @ params["W1"] + params["b1"])
        scores = hidden @ params["W2"] + params["b2"]
        q = np.exp(scores - scores.max(axis=1, keepdims=True))
        q /= q.sum(axis=1, keepdims=True)
        loss = -np.log(q[np.arange(5), y]).mean()
        d = q.copy()
        d[np.arange(5), y] -= 1
        d /= 5
        dh = d @ params["W2"].T
        dh[hidden <= 0] = 0
        grads = {"W1": 2 * X.T @ dh, "b1": dh.sum(0)}
        return loss, grads | {"W2": hidden.T @ d, "b2": d.sum(0)}

    return loss_and_grads, params


def real():
    """Results of real checks, by the name of the picture."""
    report = gl.check(*network())
    yield "report", html.page(report)
    yield "sweep", html.page(report.sweep(methods=("central", "forward")))


def bare(sweep):
    """Show a hand-made sweep, which cannot draw itself."""
    return html.document(html.island(pack_sweep(sweep), ""), "sweep")


def worst_cases():
    """Hand-made results: long names, one block and a hundred, all right, all wrong."""
    rng = np.random.default_rng(7)
    for name in ("tutorial", "zoo", "large", "right", "hostile"):
        yield name, html.page(getattr(builders, name)(rng))
    yield "one", html.page(builders.right(rng, 1))
    layers = dataclasses.replace(builders.zoo(rng), layers=builders.audit(5))
    yield "layers", html.page(layers)
    yield "layers-200", builders.audit(100).to_html()
    yield "sweep-few", bare(builders.sweep(rng))
    yield "sweep-many", bare(builders.sweep(rng, 50))


def shoot(chromium, folder, name, text, widths):
    """Save one page as PNG, light and dark, at some widths."""
    with tempfile.TemporaryDirectory() as temporary:
        path = pathlib.Path(temporary) / "page.html"
        path.write_text(text, encoding="utf-8")
        for dark in (False, True):
            for width in widths:
                options = {"dark": dark, "width": width, "height": 400}
                with driver.tab(chromium, offline=True, **options) as page:
                    page.goto(path.as_uri())
                    page.wait_for_selector(".gl")
                    page.wait_for_timeout(250)
                    theme = "dark" if dark else "light"
                    size = f"-{width}" if len(widths) > 1 else ""
                    target = folder / f"{name}-{theme}{size}.png"
                    page.screenshot(path=target, full_page=True)
                    if page.problems:
                        raise RuntimeError(f"{name}: {page.problems}")
                    print(target)


def main():
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="pictures", type=pathlib.Path)
    parser.add_argument("--check", action="store_true", help="the worst cases as well")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with driver.browser() as chromium:
        for name, text in real():
            shoot(chromium, arguments.folder, name, text, [1080])
        for name, text in worst_cases() if arguments.check else ():
            shoot(chromium, arguments.folder, name, text, [700, 1400])


if __name__ == "__main__":
    main()
