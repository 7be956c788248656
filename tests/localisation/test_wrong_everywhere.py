"""A layer that spoils every parameter costs a little more than a right one."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import gradlab as gl  # noqa: E402
from tests.localisation.networks import Swish  # noqa: E402

pytestmark = pytest.mark.untraced


@pytest.mark.parametrize("slip", ["twice", "extra term", "flipped", "slip of 0.1 %"])
def test_wrong_everywhere_is_not_measured_twice_over(slip):
    """The first pass, a few closer looks for each tensor, and the audit's own calls."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 40), nn.Linear(40, 10), Swish(slip)).double()
    x = torch.randn(5, 10, dtype=torch.float64)
    count = sum(p.numel() for p in model.parameters())
    report = gl.check(model, x, loss=lambda out: out.pow(2).mean())

    assert report.culprit == "2"
    assert all(c.verdict == gl.Verdict.DISAGREES for c in report.comparisons)
    assert report.evaluations <= 2 * (2 * count + 1)


def test_a_search_goes_through_all_that_one_layer_spoils():
    """Two wrong entries of each input are enough, where all of another was wrong."""
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (nn.Linear(10, 10), nn.Tanh())]
    model = nn.Sequential(*layers, Swish("extra term")).double()
    x = torch.randn(5, 10, dtype=torch.float64)

    found = gl.locate(model, x, loss=lambda out: out.pow(2).mean())

    spoiled = {name for name, _ in model.named_parameters()}
    assert {entry.input for entry in found.entries} == spoiled
    assert set(found.wrong_share.values()) == {1.0}
    assert found.suspects == ()


def _many(wrong):
    """Sixty tensors, some of which have a gradient that is off by a factor."""
    factors = {f"w{k}": 1.5 + 0.01 * k if k in wrong else 1.0 for k in range(60)}
    params = {name: np.full(50, 0.1 + 0.01 * k) for k, name in enumerate(factors)}

    def loss(params):
        grads = {name: factors[name] * np.cos(w) for name, w in params.items()}
        return sum(np.sin(w).sum() for w in params.values()), grads

    return gl.check(loss, params, coverage="probe", diagnose=False)


def test_of_many_in_a_row_the_next_are_taken_to_be_wrong():
    """Each is measured by itself in any case, so hardly any group of them is halved."""
    report = _many(range(60))

    assert len(report.culprits) == 60
    assert report.evaluations < 60 * 15  # 1,107 with all of them halved


def test_right_ones_between_wrong_ones_are_cleared():
    """Those that were taken to be wrong with their neighbours show no defect alone."""
    wrong = {*range(30), *range(31, 60, 3)}

    report = _many(wrong)

    assert set(report.culprits) == {f"w{k}" for k in wrong}
    assert report.evaluations < 60 * 15  # 975
    verdicts = report.table.set_index("input")["verdict"]
    assert all(verdicts[f"w{k}"] == "AGREES" for k in set(range(60)) - wrong)
