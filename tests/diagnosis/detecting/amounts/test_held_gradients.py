"""Gradients that a training loop left: of another batch, other values, other digits."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture
def trained():
    """Make a small classifier, a batch of five, and its loss."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    x, labels = torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])

    def loss(out):
        return nn.functional.cross_entropy(out, labels)

    return model, x, loss


def checked(model, x, loss):
    grad = {name: parameter.grad for name, parameter in model.named_parameters()}
    return gl.check(model, x, loss=loss, grad=grad)


def test_what_an_earlier_batch_left(trained):
    """Never zeroed: autograd at this point has nothing wrong.

    No factor, but that of a bias of three may look like one.
    """
    model, x, loss = trained
    loss(model(torch.randn(5, 4))).backward()
    loss(model(x)).backward()

    errors = [f for f in checked(model, x, loss).findings if f.severity == "error"]
    *alike, error = errors

    assert "Autograd, asked now, gives the right gradient of each" in error.evidence
    assert gl.BugKind.ACCUMULATED_GRAD in error.doubts
    assert all(other.kind == gl.BugKind.ACCUMULATED_GRAD for other in alike)
    assert sum(len(finding.places) for finding in errors) == 4


def test_what_was_taken_before_the_step(trained):
    """The values moved on, the gradients did not."""
    model, x, loss = trained
    loss(model(x)).backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()

    (error,) = [f for f in checked(model, x, loss).findings if f.severity == "error"]

    assert "at other values" in error.evidence
    assert gl.BugKind.STALE_CACHE in error.doubts


def test_what_autocast_computed(trained):
    """Numbers of bfloat16, off by what its layers round: no term is missing."""
    model, x, loss = trained
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(model(x))
    value.backward()

    (error,) = [f for f in checked(model, x, loss).findings if f.severity == "error"]

    assert error.kind == "dtype"
    assert "bfloat16" in error.evidence
    assert len(error.places) == 4


def test_what_is_right_is_right(trained):
    """One backward of this batch."""
    model, x, loss = trained
    loss(model(x)).backward()

    assert checked(model, x, loss).verdict == gl.Verdict.AGREES


def test_whole_numbers_are_not_of_half_precision(rng):
    """A wrong factor of whole numbers is one, though they have few digits."""
    x = rng.integers(1, 30, 12) * 1.0

    report = gl.check(lambda x: (x**2).sum(), x, grad=lambda x: 2 * x + 1)

    assert report.diagnosis != "dtype"
