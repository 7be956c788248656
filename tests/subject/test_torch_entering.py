"""Products by which inputs enter: found where nothing else becomes of an input."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.subject.tensors.entering import products_of
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.torch_sides import randn

torch = pytest.importorskip("torch")

F = torch.nn.functional

BATCH, INNER, OUTER = 3, 40, 20


def _subject(fn, *shapes):
    torch.manual_seed(0)
    names = [f"i{k}" for k in range(len(shapes))]
    subject = torch_subject(fn, tuple(randn(*shape) for shape in shapes), names=names)
    subject.row()
    return subject


def _found(fn, *shapes, asked):
    """Factors of each product, of the inputs that are asked for."""
    subject = _subject(fn, *shapes)
    found = products_of(subject, asked)
    return [sorted(product.factors) for product in found]


WEIGHT, TURNED, BIAS = (OUTER, INNER), (INNER, OUTER), (OUTER,)
INPUT = BATCH, INNER

FOUND = {
    "linear": lambda w, x: F.linear(x, w).sin(),
    "product from the right": lambda w, x: (x @ w.T).sin(),
    "transposed three times": lambda w, x: torch.mm(x, w.t().T.mT).sin(),
    "from the left": lambda w, x: torch.matmul(w, x.T).sin(),
    "three axes": lambda w, x: F.linear(x.reshape(1, 3, 1, -1), w).sin(),
    "one row": lambda w, x: (w @ x.T[:, :1]).sin() + (x[0] * 2).sum(),
    "rows of a table": lambda w, x: w[torch.tensor([[3, -1], [3, 0]])].sin(),
    "an embedding": lambda w, x: F.embedding(torch.tensor([1, 1, 2]), w).sin(),
    "rows selected": lambda w, x: torch.index_select(w, 0, torch.tensor([1, 2])).sin(),
    "written to afterwards": lambda w, x: F.linear(x, w).sin_().mul_(2),
}


@pytest.mark.parametrize("fn", FOUND.values(), ids=FOUND)
def test_a_weight_that_enters_by_one_product(fn):
    """Found in whatever way the product is written."""
    assert _found(fn, WEIGHT, INPUT, asked=[0]) == [[0]]


def test_all_factors_of_one_product_are_found_together():
    """Input, weight and bias of a linear map."""

    def fn(w, b, x):
        return F.linear(x, w, b).sin()

    assert _found(fn, WEIGHT, BIAS, INPUT, asked=range(3)) == [[0, 1, 2]]


def test_each_layer_has_a_product_of_its_own():
    """Of two layers the numbers of products tell them apart."""

    def fn(w, v, x):
        return F.linear(torch.tanh(F.linear(x, w)), v)

    assert _found(fn, WEIGHT, (30, OUTER), INPUT, asked=[0, 1]) == [[0], [1]]


OTHER = {
    "a penalty": lambda w, x: F.linear(x, w).sum() + (w**2).sum(),
    "two products": lambda w, x: F.linear(x, w).sum() * F.linear(x.sin(), w).sum(),
    "with itself": lambda w, x: (w @ w.T).sum() * x.sum(),
    "returned": lambda w, x: (F.linear(x, w), w),
    "as a view": lambda w, x: x @ w.reshape(OUTER, INNER).T,
    "as numbers": lambda w, x: F.linear(x, w) * float(w.detach().numpy()[0, 0]),
    "a row of it": lambda w, x: F.linear(x, w) * w[0, 0],
    "one row of a table": lambda w, x: w[3].sin(),
    "entries of a table": lambda w, x: w[torch.tensor([1]), torch.tensor([2])].sin(),
    "rows by a mask": lambda w, x: w[torch.arange(OUTER) > 3].sin(),
    "columns selected": lambda w, x: w.index_select(1, torch.tensor([1, 2])).sin(),
    "an embedding with its norm": lambda w, x: F.embedding(
        torch.tensor([1, 1, 2]), w, max_norm=99.0
    ),
    "columns weighed by a vector": lambda w, x: (w @ x[0]).sin(),
    "for every row of x": lambda w, x: torch.vmap(
        lambda row: (w @ torch.diag(row)).sin()
    )(x),
    "in a gradient": lambda w, x: torch.func.grad(lambda z: (z @ w.T).sin().sum())(x),
    "a product of three axes": lambda w, x: (w @ x.reshape(BATCH, INNER, 1)).sin(),
}


@pytest.mark.parametrize("fn", OTHER.values(), ids=OTHER)
def test_whatever_else_becomes_of_a_weight_ends_it(fn):
    """Not guessed: seen."""
    assert _found(fn, WEIGHT, INPUT, asked=[0]) == []


def test_one_input_that_is_used_otherwise_leaves_the_others():
    """A residual connection adds x once more; the weight stays a factor."""

    def fn(w, x):
        return F.linear(x, w) + x

    assert _found(fn, (INNER, INNER), INPUT, asked=[0, 1]) == [[0]]


def test_a_vector_of_weights_is_no_factor():
    """What is weighed is summed at once: there is no axis of units."""

    def fn(v, x):
        return (x @ v).sin() + F.linear(x, v)

    assert _found(fn, (INNER,), INPUT, asked=[0]) == []


def test_a_function_that_writes_to_its_input_is_left_alone():
    """What it computes from is not what it was given."""

    def fn(w, x):
        w.mul_(2)
        return F.linear(x, w)

    assert _found(fn, WEIGHT, INPUT, asked=[0]) == []


@pytest.mark.parametrize(
    ("fn", "shapes"),
    [
        (lambda w, b, x: F.linear(x, w, b), (WEIGHT, BIAS, INPUT)),
        (lambda w, b, x: (x @ w).sin() + b, (TURNED, BIAS, INPUT)),
        (lambda w, x: (w @ x.T).sin(), (WEIGHT, INPUT)),
        (lambda w: w[torch.tensor([[3, -1], [3, 0]])].sin(), (WEIGHT,)),
        (lambda v, w: (v @ w).sin(), ((INNER,), TURNED)),
        (lambda v, w, b: F.linear(v, w, b).sin(), ((INNER,), WEIGHT, BIAS)),
        (lambda w, x: (x.reshape(1, BATCH, INNER) @ w.T).sin(), (WEIGHT, INPUT)),
        (lambda w: F.embedding(torch.tensor([1, 1, 2]), w, 2).sin(), (WEIGHT,)),
    ],
)
def test_slopes_are_carried_as_the_chain_rule_says(fn, shapes):
    """Push is the derivative of the product, and pull its transpose."""
    subject = _subject(fn, *shapes)
    (product,) = products_of(subject, range(len(shapes)))
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(2, len(product.point)))
    for which in product.factors:
        point = subject.point(which)
        direction = rng.normal(size=point.shape)
        moved = product.push(which, direction)

        pulled = product.pull(which, slopes)

        assert pulled @ direction == pytest.approx(slopes @ moved)
        subject.place(which, point + direction)
        (there,) = products_of(subject, range(len(shapes)))
        subject.place(which, None)
        assert there.point - product.point == pytest.approx(moved)
        bound = product.pull(which, np.abs(slopes), np.abs)
        assert (np.abs(pulled) <= bound * (1 + 1e-12)).all()


def test_a_displaced_entry_is_evaluated_as_torch_would():
    """The same numbers as with the product written out and moved."""
    subject = _subject(lambda w, x: F.linear(x, w).sin() ** 2, WEIGHT, INPUT)
    (product,) = products_of(subject, [0])
    w, x = (torch.from_numpy(subject.point(k)) for k in (0, 1))
    plain = F.linear(x.reshape(INPUT), w.reshape(WEIGHT)).reshape(-1)
    positions = np.arange(len(plain))

    values, taken = product.rows(positions, np.full(len(plain), 0.25))

    expected = (plain + 0.25 * torch.eye(len(plain))).sin() ** 2
    assert taken == pytest.approx(np.full(len(plain), 0.25))
    assert values == pytest.approx(expected.numpy(), abs=1e-14)
