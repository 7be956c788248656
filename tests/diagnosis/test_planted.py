"""Diagnosis measured on planted bugs: the shares that issue 4 asks for.

The networks and slips are in `planted`, `networks` and `tensors`; what was tuned was
tuned on seeds 0 to 10, so the second set of seeds says what to expect.
"""

from __future__ import annotations

import pytest

from tests.diagnosis.measure import FRESH, SHELVES, score
from tests.sizes import drawn


def _satisfies(result, capsys):
    """Demand the shares that are promised, and show those that were reached."""
    with capsys.disabled():
        print(f"\n{result}")
    assert result.alarms == []
    assert result.detected >= 0.97 * result.total
    assert result.share(result.first) >= 0.80
    assert result.share(result.third) >= 0.92
    assert result.share(result.named) >= 0.97


@pytest.mark.slow
@pytest.mark.thinned(2)
@pytest.mark.parametrize(("seed", "first"), [(0, 0), (500, 1)])
def test_shares(seed, first, capsys):
    """Kind first in 80 %, among three in 92 %, right tensor in 97 %, no false error.

    Of every fourth slip and every fourth other one; of all of them at night.
    """
    pytest.importorskip("torch")

    part = slice(first, None, drawn(4, 2))
    _satisfies(score([seed], part=part, controls=1), capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shelves", "spacing"),
    [(FRESH[:3], 2), pytest.param(FRESH[3:], 5, marks=pytest.mark.untraced)],
)
def test_fresh_shares(shelves, spacing, capsys):
    """The same of programs as users write them, in every form a check takes.

    Of every second or fifth slip; of all of them at night.
    """
    pytest.importorskip("torch")

    part = slice(None, None, drawn(spacing, 1))
    _satisfies(score([1], part=part, controls=1, shelves=shelves), capsys)


def test_variety():
    """At least twenty kinds of mistake are planted, on twenty shapes of program."""
    kinds = {kind for shelf in SHELVES for kind, _, _ in shelf.SLIPS.values()}
    programs = {build for shelf in SHELVES for build, _ in shelf.SLIPS}
    told = {kind for kind in kinds if kind not in {"none", "unknown"}}

    assert len(told) >= 20
    assert len(programs) >= 20
