"""One hand-written piece in networks of every shape: right, and wrong in many ways."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gradlab.blaming import blame  # noqa: E402
from gradlab.localisation.layers.audited import LayerState  # noqa: E402
from tests.localisation import networks as nets  # noqa: E402

pytestmark = pytest.mark.untraced

nets.load()
WRONG = [slip for slip in nets.SLIPS if slip != "right"]


def _audit(name, slip, *, double=True):
    torch.manual_seed(3)
    case = nets.NETWORKS[name](slip)
    if double:
        case.double()
    audit = blame(case.module, *case.args, loss=case.loss, **case.kwargs)
    return case, audit


@pytest.mark.parametrize("name", nets.NETWORKS)
def test_correct_network_accuses_nobody(name):
    """A network whose backward is right has no wrong row and no error."""
    _, audit = _audit(name, "right")

    assert [row for row in audit.rows if row.state is LayerState.WRONG] == []
    assert (audit.culprits, audit.contaminated, audit.ok) == ((), (), True)


@pytest.mark.parametrize("name", nets.NETWORKS)
def test_correct_network_in_single_precision_accuses_nobody(name):
    """Rounding of float32 is never taken for a mistake."""
    _, audit = _audit(name, "right", double=False)

    assert [row for row in audit.rows if row.state is LayerState.WRONG] == []
    assert audit.ok


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", nets.NETWORKS)
@pytest.mark.parametrize("slip", ["slip of 0.1 %", "sign", "nothing"])
def test_wrong_piece_is_the_only_culprit(name, slip):
    """The piece with the slip is named, and nothing else is."""
    case, audit = _audit(name, slip)

    assert audit.culprits == (case.culprit,)
    assert not audit.ok


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", nets.NETWORKS)
def test_wrong_piece_is_found_in_single_precision(name):
    """A slip of 0.1 % is far below what float32 differences show, and is found."""
    case, audit = _audit(name, "slip of 0.1 %", double=False)

    assert audit.culprits == (case.culprit,)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("slip", WRONG)
@pytest.mark.parametrize("name", ["series", "residual", "recurrent_by_hand"])
def test_every_slip_is_found(name, slip):
    """Whatever the backward gets wrong, the piece is named."""
    case, audit = _audit(name, slip)

    assert audit.culprits == (case.culprit,)


@pytest.mark.parametrize(("slip", "kind"), nets.KINDS.items())
def test_simple_kinds_are_measured(slip, kind):
    """A constant factor, a sign, a missing gradient or chain rule is told as such."""
    _, audit = _audit("series", slip)

    assert str(audit.findings[0].kind) == kind
