"""What torch does on purpose is no wrong gradient at the smaller doors either."""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")

F = torch.nn.functional
IDS = torch.tensor([0, 1, 1, 3, 0])


def table():
    """Rows of an embedding, none of them zero."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(5, 3, generator=generator, dtype=torch.float64).requires_grad_()


def logits():
    """Scores of four letters at six times, as a CTC loss takes them."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(6, 1, 4, generator=generator, dtype=torch.float64)
    return values.requires_grad_()


class Spectral(torch.nn.Module):
    """One layer with a spectral norm, in training mode, and one without."""

    def __init__(self):
        super().__init__()
        double = {"dtype": torch.float64}
        plain = torch.nn.Linear(4, 5, **double)
        self.normed = torch.nn.utils.parametrizations.spectral_norm(plain)
        self.plain = torch.nn.Linear(5, 2, **double)

    def forward(self, x):
        """Both, and a loss."""
        return self.plain(self.normed(x).tanh()).pow(2).sum()


def spectral():
    """Make the model and its input."""
    torch.manual_seed(0)
    return Spectral(), torch.randn(6, 4, dtype=torch.float64)


def padded(w):
    """Look up rows of which the first does not learn."""
    return F.embedding(IDS, w, padding_idx=0).sin()


def by_frequency(w):
    """Look up rows that learn the less the oftener they are used."""
    return F.embedding(IDS, w, scale_grad_by_freq=True).sin()


def aligned(x):
    """Apply a CTC loss to what is not normalised."""
    return F.ctc_loss(x, torch.tensor([[1, 2]]), (6,), (2,))


def drawn(a):
    """Draw what is not normal, and go on."""
    return torch.distributions.Gamma(a, 2.0).rsample().sin()


def shared(a):
    """The same of shares that add up to one."""
    return torch.distributions.Dirichlet(a).rsample().sin()


def shapes():
    """Shapes of such distributions."""
    return torch.tensor([0.7, 1.5, 3.0], dtype=torch.float64, requires_grad=True)


CALLS = {
    "padding_idx": (lambda: (padded, table()), "keeps row 0 from learning"),
    "scale_grad_by_freq": (lambda: (by_frequency, table()), "divides the gradient"),
    "ctc_loss": (lambda: (aligned, logits()), "log_softmax before it"),
    "draw of gamma": (lambda: (drawn, shapes()), "implicit reparametrisation"),
    "draw of Dirichlet": (lambda: (shared, shapes()), "implicit reparametrisation"),
    "spectral norm": (spectral, "singular vectors for constants"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_search_accuses_nothing_that_is_meant(name):
    """It says instead what was not compared, and why."""
    call, words = CALLS[name]

    found = gl.locate(*call())

    assert found.ok, found
    assert words in found.remarks[-1]


@pytest.mark.parametrize("name", CALLS)
def test_a_taylor_test_leaves_out_what_is_meant(name):
    """Along the rest the gradient is right; without a rest it is undecided."""
    call, words = CALLS[name]

    test = gl.taylor_test(*call())

    everything = name not in ("padding_idx", "spectral norm")
    wanted = gl.Verdict.UNDECIDED if everything else gl.Verdict.AGREES
    assert test.verdict == wanted
    assert words in test.remarks[-1]


def test_second_derivatives_are_those_along_the_rest():
    """A padding row is left out of both sides of the Hessian, too."""
    test = gl.taylor_test(padded, table(), order=2)

    assert test.verdict == gl.Verdict.AGREES
    assert test.rate[2] > 2.9


# The sine, with twice its gradient.
twice = with_backward(lambda x: x.sin(), lambda x, up: 2 * up * x.cos())


def wrong(w):
    """Look up rows of which the first does not learn, and pull back twice."""
    return twice(F.embedding(IDS, w, padding_idx=0))


def test_a_search_finds_what_is_wrong_besides():
    """The row that does not learn is left out, the rows that learn wrongly are not."""
    found = gl.locate(wrong, table())

    assert not found.ok
    assert {entry.index[0] for entry in found.entries} <= {1, 3}
    assert gl.taylor_test(wrong, table()).verdict == gl.Verdict.DISAGREES
