"""Where f itself is no number, one finding says so, and which data are to blame."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
nn = torch.nn


def net():
    """Two layers, with four parameters."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))


def rows(bad=True):
    """Data, with a hole in its second row."""
    x = torch.arange(12.0).reshape(3, 4) / 7
    if bad:
        x[1, 2] = float("nan")
    return x


def square(out):
    """A loss of whatever a model returns."""
    return out.pow(2).sum()


def told(report):
    """Every finding of what is no number."""
    return [f for f in report.findings if f.kind == "nonfinite"]


def module():
    """The data are an argument of a module."""
    return gl.check(net(), rows(), loss=square), "input[1, 2]"


def buffer():
    """A buffer of the module is nan."""
    model = nn.Sequential(net(), nn.BatchNorm1d(2)).eval()
    model[1].running_mean[1] = float("nan")
    return gl.check(model, rows(bad=False), loss=square), "1.running_mean[1]"


def closure():
    """The function holds the data."""
    data, w = rows().double(), torch.ones(4, dtype=torch.float64)
    return gl.check(lambda w: square(data @ w), w), "data[1, 2]"


def numpy():
    """A NumPy loss holds them, with all its gradients at once."""
    data = rows().double().numpy()

    def loss(p):
        r = data @ p["w"] + p["b"]
        return (r**2).sum(), {"w": 2 * data.T @ r, "b": 2 * r.sum()}

    return gl.check(loss, {"w": np.ones(4), "b": np.array(0.5)}), "data[1, 2]"


@pytest.mark.parametrize("call", [module, buffer, closure, numpy])
def test_nan_in_the_data_is_one_finding_that_names_it(call):
    """All gradients follow from it: there were as many findings as parameters."""
    report, place = call()

    (finding,) = told(report)
    assert report.verdict == gl.Verdict.UNDECIDED
    assert place in finding.advice
    for comparison in report.comparisons[:4]:
        assert comparison.input.name in finding.evidence


def test_gradient_that_is_nan_by_itself_keeps_its_finding():
    """One output is nan; where the other has no gradient is another matter."""
    broken = with_backward(
        lambda x: x.exp(),
        lambda x, up: up * x.exp() * torch.tensor([1.0, float("nan")]),
    )

    hole = torch.full((1,), float("nan"), dtype=torch.float64)
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)

    report = gl.check(lambda x: (x.sum() * hole, broken(x)), x)

    assert {f.where for f in told(report)} == {"x", ""}
    assert "hole" in " ".join(f.advice for f in told(report))


def test_infinite_mask_is_no_nan():
    """A mask of minus infinity is as it should be: f divides by zero itself."""
    mask = torch.zeros(3, dtype=torch.float64)
    mask[0] = -torch.inf
    x = torch.ones(3, dtype=torch.float64)

    report = gl.check(lambda x: ((x + mask).softmax(0) * 0 / 0).sum(), x)

    (finding,) = told(report)
    assert "mask" not in finding.advice
    assert "forward pass" in finding.advice
