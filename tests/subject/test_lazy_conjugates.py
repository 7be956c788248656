"""Tensors that torch conjugates when somebody reads them: inputs, and inside models."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")


def _lazy(rows=4, columns=3):
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(rows, columns, generator=generator, dtype=torch.complex128)
    lazy = z.conj().detach()
    assert lazy.is_conj()
    return lazy.requires_grad_()


def _size(z):
    return (z * z).abs()


@pytest.mark.parametrize("coverage", ["full", "probe"])
def test_an_input_is_checked(coverage):
    report = gl.check(_size, _lazy(), coverage=coverage)
    assert report.verdict == gl.Verdict.AGREES


def test_a_search_finds_nothing_wrong_in_one():
    assert gl.locate(_size, _lazy()).table.empty


SQUARES = {
    "right": with_backward(lambda z: z * z, lambda z, g: g * 2 * z.conj()),
    "wrong": with_backward(lambda z: z * z, lambda z, g: g * 2 * z),
}


class Square(torch.nn.Module):
    """A custom square."""

    def __init__(self, side):
        super().__init__()
        self.side = side

    def forward(self, z):
        return SQUARES[self.side](z)


class Model(torch.nn.Module):
    """Squares between two layers; what comes out is conjugated on the way."""

    def __init__(self, side):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(3, 3, dtype=torch.complex128)
        self.square = Square(side)
        self.last = torch.nn.Linear(3, 2, dtype=torch.complex128)

    def forward(self, z):
        return (self.last(self.square(self.first(z)).conj()).abs() ** 2).sum()


@pytest.mark.parametrize(("side", "culprits"), [("right", ()), ("wrong", ("square",))])
def test_a_layer_that_hands_one_on_is_audited(side, culprits):
    audit = gl.blame(Model(side), _lazy().detach().resolve_conj())
    assert audit.culprits == culprits
    assert audit.verdict != gl.Verdict.UNDECIDED
