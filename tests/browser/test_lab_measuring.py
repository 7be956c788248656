"""Live views that measure on demand, in JupyterLab with a real kernel."""

from __future__ import annotations

import driver
import pytest
from driver import PREAMBLE
from playwright.sync_api import expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ERROR = ".gl canvas[role=application]"
# A residual network: what the stem hands on is read by the block and by the sum.
RESIDUAL = f"""{PREAMBLE}
import torch
from tests.specimens.squares import HalfSquare
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.act = torch.nn.Linear(4, 5), HalfSquare()
        self.side, self.head = torch.nn.Linear(5, 2), torch.nn.Linear(5, 2)
    def forward(self, x):
        x = self.stem(x)
        return self.head(self.act(x)) + self.side(x)
torch.manual_seed(0)
net = Net().double()
x = torch.randn(1, 4, dtype=torch.float64)
w = gl.blame(net, x, loss=lambda y: y.sum()).explore(); w
"""
SWEPT = f"""{PREAMBLE}
x, y = np.linspace(0.5, 2, 12).reshape(3, 4), np.array([1.0, 2.0])
report = gl.check(lambda x, y: (x**3).sum() + (y**2).sum(), x, y,
                  grad=lambda x, y: (3 * x**2, y))
w = report.sweep().explore(); w
"""


def test_a_click_on_a_layer_opens_its_jacobian(lab):
    """The wrong activation: its own 5 x 5 Jacobian is drawn, and half of it is gone."""
    page = lab(RESIDUAL)
    page.wait_for_selector(".gl .lrow")
    driver.settle(page)
    assert page.locator(ERROR).count() == 0  # nothing is measured unasked

    page.locator(".gl .lrow", has_text="act").first.click()

    driver.shows(page, ".gl.nested .status", "5 of 25 entries disagree")
    driver.shows(page, ".gl.nested .entry", "analytic / numeric\n0.5")


def test_another_layer_takes_its_place(lab):
    """Three blocks of a right layer, one of them chosen, in place of the wrong one."""
    page = lab(RESIDUAL)
    page.locator(".gl .look").click()  # the root is opened; its button measures
    page.wait_for_selector(".gl.nested .status")

    page.locator(".gl .lrow", has_text="stem").click()
    page.wait_for_selector(".gl.nested .brow[data-key=bias]")
    page.locator(".gl.nested .brow[data-key=bias]").click()

    expect(page.locator(".gl.nested")).to_have_count(1)
    driver.shows(page, ".gl.nested .status", "bias", "agree")


def test_a_branch_has_a_lane_of_its_own(lab):
    """What the stem hands on runs past the activation to the layer beside it."""
    page = lab(RESIDUAL)
    page.wait_for_selector(".gl .lrow")
    driver.settle(page)
    lanes = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.gl .lrow[role]')]
          .map(row => [row.querySelector('.name').textContent,
            +row.querySelector('circle').getAttribute('cx')]))"""
    )
    through = page.locator(".gl .lrow", has_text="head").locator("path[d*='V87']")

    # act and head stand beside the lane of stem, which ends at side
    assert lanes["act"] > lanes["stem"]
    assert lanes["side"] == lanes["stem"]
    assert through.count() >= 2  # of the network itself, and of stem
    # the wrong gradient comes up from act: the lane is coloured there, not below
    for name, coloured in {
        "stem": True,
        "act": True,
        "head": False,
        "side": False,
    }.items():
        row = page.locator(f".gl .lrow[title={name}]")
        assert (row.locator(".spoiled").count() > 0) == coloured


def test_methods_and_precision_by_buttons(lab):
    """Adaptive draws levels; float32 lifts the valley of the right input."""
    page = lab(SWEPT)
    path = ".gl .curve[data-name=x] path >> nth=0"
    page.wait_for_selector(path, state="attached")
    driver.settle(page)
    before = page.get_attribute(path, "d")

    page.get_by_role("button", name="adaptive").click()
    page.wait_for_selector(".gl button[aria-pressed=true]:text-is('adaptive')")
    driver.shows(page, ".gl .finding", "adaptive chose steps")
    driver.shows(page, ".gl .finding", "— central: ")  # whose curve the sentence reads
    driver.settle(page)
    heights = {
        point.split(" ")[1]
        for point in page.get_attribute(path, "d").replace("M", "L").split("L")[1:]
    }
    assert len(heights) == 1

    page.get_by_role("button", name="float32").click()
    page.wait_for_selector(".gl button[aria-pressed=true]:text-is('float32')")
    expect(page.locator(path)).not_to_have_attribute("d", before)
    driver.wait_for_kernel(page, "w.dtype, w.method", "('float32', 'central')")
    assert driver.ask_kernel(page, "bool(w.page['floor']['central'][0] > 1e-7)")

    page.get_by_role("button", name="float64").click()
    page.wait_for_selector(".gl button[aria-pressed=true]:text-is('float64')")
    page.get_by_role("button", name="central").click()
    expect(page.locator(path)).to_have_attribute("d", before)


def test_a_jacobian_of_the_other_precision_does_not_stay(lab):
    """What a name opened in float64 would stand below the curves of float32."""
    page = lab(SWEPT)
    page.locator(".gl .chip", has_text="x").click()
    driver.shows(page, ".gl.nested .status", "x")

    page.get_by_role("button", name="float32").click()
    page.wait_for_selector(".gl button[aria-pressed=true]:text-is('float32')")

    driver.settle(page)
    assert page.locator(".gl.nested").count() == 0


def test_the_heat_map_is_read_under_the_pointer(lab):
    """Place and error of an entry of the swept matrix, by its name."""
    page = lab(SWEPT)
    page.locator(".gl .chip", has_text="x").click()
    driver.shows(page, ".gl.nested .status", "x")
    page.wait_for_selector(".gl figure[aria-busy=false]")

    canvas = driver.bring(page, ".gl figure canvas[role=img]")
    at = driver.cell_centre(page, ".gl figure canvas[role=img] >> nth=0", 1, 2, 3, 4)
    canvas.hover(position=at)

    page.wait_for_function(
        "[...document.querySelectorAll('.gl .keys')]"
        ".some(note => note.textContent.startsWith('x[1, 2]: '))"
    )


def test_what_fails_is_told_and_the_buttons_come_back(lab):
    """A method that the function refuses: a sentence, and nothing is left grey."""
    page = lab(
        PREAMBLE + "report = gl.check(lambda x: float(np.abs(x).sum()), np.ones(3),"
        " grad=np.sign)\nw = report.sweep().explore(); w"
    )

    page.get_by_role("button", name="complex step").click()

    page.wait_for_function(
        "document.querySelector('.gl .message')?.innerText.includes('imaginary part')"
    )
    expect(page.locator(".gl .bar button:disabled")).to_have_count(0)
