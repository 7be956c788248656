"""Both doors to vmap come to the same: torch's own parts of it, and the public one."""

from __future__ import annotations

import pytest

from gradlab.subject.tensors.batching import levels

torch = pytest.importorskip("torch")


@pytest.fixture(params=["parts", "public"], autouse=True)
def _doors(request, monkeypatch):
    """Take one door or the other."""
    if request.param == "public":
        monkeypatch.setattr(levels, "_forward_doors", lambda: None)


def test_a_function_of_two_tensors_is_mapped_over_their_first_axis():
    """Products of matrices with vectors, and an output that is the same for all."""
    matrices, vectors = torch.randn(5, 3, 4), torch.randn(5, 4)

    products, same = levels.map_forward(
        lambda a, x: [a @ x, torch.ones(2)], [matrices, vectors], randomness="error"
    )

    expected = torch.einsum("kij,kj->ki", matrices, vectors)
    assert torch.allclose(products, expected, atol=1e-6)
    assert torch.equal(same, torch.ones(5, 2))


def test_a_draw_is_refused_or_the_same_for_all():
    """As `torch.func.vmap` has it."""
    draw = lambda x: [x + torch.rand(())]

    with pytest.raises(RuntimeError, match="random"):
        levels.map_forward(draw, [torch.zeros(3)], randomness="error")
    (drawn,) = levels.map_forward(draw, [torch.zeros(3)], randomness="same")

    assert drawn.shape == (3,)
    assert (drawn == drawn[0]).all()


def test_an_error_inside_leaves_no_level_open():
    """The next map starts from the level that the first one started from."""
    with pytest.raises(ZeroDivisionError):
        levels.map_forward(lambda _: [1 / 0], [torch.zeros(3)], randomness="error")

    (found,) = levels.map_forward(
        lambda x: [x.sum()], [torch.ones(3, 2)], randomness="error"
    )
    assert torch.equal(found, torch.full((3,), 2.0))


def test_what_is_none_is_passed_on():
    """As the gradient of an input that no path leads to is."""
    found = levels.map_forward(
        lambda x: [None, 2 * x, None], [torch.ones(3, 2)], randomness="error"
    )

    assert found[0] is found[2] is None
    assert torch.equal(found[1], torch.full((3, 2), 2.0))
