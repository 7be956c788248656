"""PyTorch's operator database: the drop-in says what torch says, gl.check no more.

Torch's own slow mode is the truth for both: whatever it passes is right, because its
developers check every release by it.
"""

from __future__ import annotations

import warnings

import pytest

import gradlab as gl
from gradlab.compat.torch import gradcheck
from tests.compat.operators import samples
from tests.sizes import drawn

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="torch.testing._internal needs expecttest")

pytestmark = [pytest.mark.slow, pytest.mark.untraced]
_SHARES = 8  # so that several workers can divide the work
_SPACING = drawn(3, 1)  # every operator at night


def _verdict(check, sample):
    """Whether it passes; the type of anything else that is raised."""
    try:
        return check(
            sample.fn,
            sample.tensors,
            raise_exception=False,
            nondet_tol=sample.nondet_tol,
        )
    except Exception as error:
        return type(error).__name__


@pytest.fixture
def quick_seeds(monkeypatch):
    """Seed the CPU alone: samples are seeded at each evaluation.

    `torch.manual_seed` writes down the stack of calls for each kind of device that is
    not there, which takes longer than all that is tested here.
    """
    monkeypatch.setattr(torch, "manual_seed", torch.default_generator.manual_seed)


@pytest.mark.parametrize("share", range(_SHARES))
def test_operators_of_torch(share, quick_seeds):
    """Same verdict as torch on every sample; gl.check flags none that torch passes."""
    original = torch.autograd.gradcheck
    differ, flagged = {}, {}
    shelf = samples(share * _SPACING, _SHARES * _SPACING)
    assert len(shelf) * _SPACING > 50  # of 496; with fewer this would say little
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own young operators
        for sample in shelf:
            expected = _verdict(original, sample)
            found = _verdict(gradcheck, sample)
            if found != expected:
                differ[sample.name] = (expected, found)
            if expected is True:
                report = gl.check(sample.fn, *sample.tensors, diagnose=False)
                if report.verdict == gl.Verdict.DISAGREES:
                    flagged[sample.name] = str(report)

    assert differ == {}
    assert flagged == {}
