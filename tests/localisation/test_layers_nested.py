"""Nested tensors, of which torch has no sums: told or seen around, never raised."""

from __future__ import annotations

import pytest
import torch

import gradlab as gl
from gradlab.errors import InputTypeError, SubjectError
from gradlab.localisation.layers.audited import LayerState
from tests.localisation.planted import times

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

LAYOUTS = {"strided": torch.strided, "jagged": torch.jagged}


@pytest.fixture(params=LAYOUTS)
def layout(request):
    """Either of torch's kinds of nested tensors."""
    return LAYOUTS[request.param]


class Ragged(torch.nn.Module):
    """Sequences of their own lengths through one layer, padded in the end."""

    def __init__(self, layout, factor=1.0, *, pads=True):
        super().__init__()
        self.first, self.within = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.last = torch.nn.Linear(3, 2)
        self.layout, self.factor, self.pads = layout, factor, pads

    def forward(self, *sequences):
        parts = [times(self.first(part), self.factor) for part in sequences]
        ragged = torch.nested.as_nested_tensor(parts, layout=self.layout)
        through = self.within(ragged)
        return self.last(through.to_padded_tensor(0.0)) if self.pads else through


def sequences():
    """Two sequences of different lengths."""
    return torch.randn(2, 3), torch.randn(4, 3)


def padded_square(ragged):
    """Mean of the squares of what is there."""
    return ragged.to_padded_tensor(0.0).square().mean()


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_model_that_packs_its_sequences_is_audited(layout, factor):
    """What takes and returns dense tensors is checked; the layer inside is told."""
    audit = gl.blame(Ragged(layout, factor), *sequences())
    states = {row.name: (row.state, row.reason) for row in audit.rows}
    assert states["within"] == (
        LayerState.UNCHECKED,
        "takes or returns nested tensors (torch.nested)",
    )
    assert states["last"][0] is LayerState.RIGHT
    assert bool(audit.culprits) == (factor != 1.0)


def test_an_audit_without_a_loss_says_what_a_nested_output_lacks(layout):
    """There is no shape of which to draw weights; with a loss there is no need."""
    model = Ragged(layout, pads=False)
    with pytest.raises(InputTypeError, match=r"nested tensor.*give a loss"):
        gl.blame(model, *sequences())
    audit = gl.blame(model, *sequences(), loss=padded_square)
    assert not audit.culprits
    assert audit.seconds > 0


def test_an_audit_of_which_nothing_could_be_run_names_no_multiple_of_a_step(layout):
    """There was no step to measure: it came out as some millions."""
    ragged = torch.nested.nested_tensor(list(sequences()), layout=layout)
    audit = gl.blame(torch.nn.Linear(3, 3), ragged, loss=padded_square)
    assert " times a forward" not in str(audit)


def test_a_check_without_a_loss_says_what_a_nested_output_lacks(layout):
    """Its entries are in no one place; padded, or behind a loss, they are checked."""
    model = Ragged(layout, pads=False)
    with pytest.raises(SubjectError, match=r"nested tensor.*to_padded_tensor"):
        gl.check(model, *sequences())
    assert gl.check(model, *sequences(), loss=padded_square).ok


def test_a_nested_tensor_may_be_a_constant(layout):
    """It is compared by its parts, to see whether the function wrote to it."""
    ragged = torch.nested.nested_tensor(list(sequences()), layout=layout)
    assert gl.check(torch.nn.Linear(3, 3), ragged, loss=padded_square).ok
