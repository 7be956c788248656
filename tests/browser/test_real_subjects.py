"""Real checks of every kind of subject, shown in a real browser."""

from __future__ import annotations

import driver
import numpy as np
import pytest

import gradlab as gl
from tests.specimens import squares

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.browser


def _module():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(4, 6), squares.HalfSquare(), torch.nn.Linear(6, 2))
    net = torch.nn.Sequential(*layers).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    return gl.check(net, x, loss=lambda y: y.sum())


def _complex():
    z = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128, requires_grad=True)
    return gl.check(lambda z: (z * z.conj()).real.sum(), z)


def _several_outputs():
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    return gl.check(lambda x: (x**2, x.sum(), torch.sin(x)), x)


def _forward_backward():
    rng = np.random.default_rng(0)

    def forward(x, w):
        return x @ w, (x, w)

    def backward(dout, cache):
        x, w = cache
        return dout @ w.T, x.T @ dout.mean(axis=0, keepdims=True).repeat(5, 0)

    x, w = rng.standard_normal((5, 3)), rng.standard_normal((3, 2))
    return gl.check(forward, x, w, backward=backward)


def _float32():
    x = torch.randn(3, 4, requires_grad=True)
    return gl.check(lambda x: squares.half(x).sum(), x)


def _probed():
    x = np.random.default_rng(0).standard_normal(300)
    return gl.check(
        lambda x: (x**3).sum(), x, grad=lambda x: 3 * x**2 * (x > 0), coverage="probe"
    )


def _sampled():
    x = np.random.default_rng(0).standard_normal((40, 30))
    right = lambda x: 3 * x**2
    return gl.check(lambda x: (x**3).sum(), x, grad=right, coverage="sample")


def _nothing():
    return gl.check(lambda x: x.sum(), np.zeros((0, 3)), grad=np.ones_like)


CASES = {
    "module": (_module, "1"),
    "complex": (_complex, "z"),
    "several outputs": (_several_outputs, "x"),
    "forward and backward": (_forward_backward, "w"),
    "float32": (_float32, "x"),
    "probed": (_probed, "probe"),
    "sampled": (_sampled, "x"),
    "no entries": (_nothing, "x"),
}


@pytest.mark.parametrize("name", CASES)
def test_real_report_is_shown_without_a_complaint(tabs, tmp_path, name):
    """The page opens, says what the report says, and every block can be chosen."""
    make, word = CASES[name]
    report = make()
    path = tmp_path / "page.html"
    report.to_html(path)
    with tabs.lend() as page:
        page.goto(path.as_uri())
        page.wait_for_selector(".gl :is(.status, p)")
        driver.settle(page)
        text = page.text_content(".gl")  # what is folded is there as well
        for row in page.locator(".gl .brow[role=option]").all():
            row.click()
            page.locator(".gl canvas[role=application]").focus()
            for key in ("n", "ArrowRight", "ArrowDown", "p", "w", "+", "0"):
                page.keyboard.press(key)
        driver.settle(page)
        assert page.problems == []

    assert word in text
    assert report.verdict.words in text.lower()
    plain = text.replace(driver.MINUS, "-").replace("×", "x")
    for finding in report.findings:
        # marks of code are set as code, numbers get a minus and products their sign
        told = finding.evidence
        if told.startswith(f"`{finding.where}` ("):  # the card says "in" it before that
            told = told.partition(" is wrong: ")[2]
        assert told.replace("`", "").split("\n")[0][:60] in plain


@pytest.mark.parametrize("name", ["module", "forward and backward", "complex"])
def test_real_sweep_is_shown_without_a_complaint(tabs, tmp_path, name):
    """The same for sweeps of the same subjects."""
    sweep = CASES[name][0]().sweep()
    path = tmp_path / "page.html"
    sweep.to_html(path)
    with tabs.lend() as page:
        page.goto(path.as_uri())
        page.wait_for_selector(".gl .cursor")
        driver.settle(page)
        for chip in page.locator(".gl .chip").all():
            chip.click()
        page.locator(".gl .cursor").focus()
        for key in ("ArrowLeft", "Home", "End"):
            page.keyboard.press(key)
        driver.settle(page)
        assert page.problems == []
        for name in sweep.inputs:
            assert name in driver.read(page, ".gl")
