"""Products by which inputs enter: found where nothing else becomes of an input."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.differentiation.products.product_groups import ProductGroup, worthwhile
from gradlab.subject.tensors.incremental.input_products import products_of
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
    """Inputs that are better measured by their products, in groups."""
    subject = _subject(fn, *shapes)
    sizes = {which: subject.inputs[which].coordinates for which in asked}
    groups = worthwhile(products_of(subject, asked), sizes)
    return sorted(list(group.factors) for group in groups)


WEIGHT, TURNED, BIAS = (OUTER, INNER), (INNER, OUTER), (OUTER,)
INPUT = BATCH, INNER

INDEX = torch.tensor([[3, -1], [3, 0]])
FOUND = {
    "linear": lambda w, x: F.linear(x, w).sin(),
    "product from the right": lambda w, x: (x @ w.T).sin(),
    "transposed three times": lambda w, x: torch.mm(x, w.t().T.mT).sin(),
    "from the left": lambda w, x: torch.matmul(w, x.T).sin(),
    "three axes": lambda w, x: F.linear(x.reshape(1, 3, 1, -1), w).sin(),
    "one row": lambda w, x: (w @ x.T[:, :1]).sin() + (x[0] * 2).sum(),
    "rows of a table": lambda w, x: w[INDEX].sin(),
    "an embedding": lambda w, x: F.embedding(INDEX + 1, w).sin(),
    "rows selected": lambda w, x: torch.index_select(w, 0, INDEX[1]).sin(),
    "written to afterwards": lambda w, x: F.linear(x, w).sin_().mul_(2),
    "two products": lambda w, x: F.linear(x, w).sum() * F.linear(x.sin(), w).sum(),
    "returned by parts": lambda w, x: (F.linear(x, w), w[0]),
    "as a view": lambda w, x: x @ w.reshape(OUTER, INNER).T,
    "a row of it": lambda w, x: F.linear(x, w) * w[0, 0],
    "entries of a table": lambda w, x: w[INDEX[0], INDEX[1]].sin(),
    "columns selected": lambda w, x: w.index_select(1, INDEX[1]).sin(),
    "columns weighed by a vector": lambda w, x: (w @ x[0]).sin(),
    "with a bias": lambda w, x: torch.addmm(x[:, :1], x, w.T).sin(),
    "by indices": lambda w, x: torch.einsum("oi,bi->bo", w, x).sin(),
    "in parts": lambda w, x: sum((x[:, :10] @ p.T).sin() for p in w.chunk(4, 1)).sum(),
    "weighed before": lambda w, x: F.linear(x, 0.1 * w).sin(),
    "in a recurrence": lambda w, x: (
        torch.tanh(F.linear(torch.tanh(x), w)[:, :3]).sum()
        + F.linear(x, w).tanh().sum()
    ),
    "written out as a sum": lambda w, x: (w * x[:1]).sum().sin(),
    "in the user's vmap": lambda w, x: torch.vmap(torch.sin)(F.linear(x, w)),
    "as numbers of its product": lambda w, x: F.linear(x, w).numpy().sum() * x,
}


@pytest.mark.parametrize("fn", FOUND.values(), ids=FOUND)
def test_a_weight_that_enters_by_products(fn):
    """Found in whatever way they are written."""
    assert _found(fn, WEIGHT, INPUT, asked=[0]) == [[0]]


def test_all_factors_of_one_product_are_found_together():
    """Input, weight and bias of a linear map."""

    def fn(w, b, x):
        return F.linear(x, w, b).sin()

    assert _found(fn, WEIGHT, BIAS, INPUT, asked=range(3)) == [[0, 1, 2]]


def test_what_is_added_is_part_of_the_product():
    """Gates of a recurrent cell: two products and a bias, and no entry more."""
    subject = _subject(
        lambda w, u, b, x: (x @ w.T + x.cos() @ u.T + b).sin(),
        *(WEIGHT, WEIGHT, BIAS, INPUT),
    )

    (product,) = products_of(subject, [0, 1, 2])

    assert product.factors == {0, 1, 2}
    assert len(product.point) == BATCH * OUTER


def test_each_layer_has_a_product_of_its_own():
    """Of two layers the products have nothing in common."""

    def fn(w, v, x):
        return F.linear(torch.tanh(F.linear(x, w)), v)

    assert _found(fn, WEIGHT, (30, OUTER), INPUT, asked=[0, 1]) == [[0], [1]]


OTHER = {
    "a penalty": lambda w, x: F.linear(x, w).sum() + (w**2).sum(),
    "with itself": lambda w, x: (w @ w.T).sum() * x.sum(),
    "returned": lambda w, x: (F.linear(x, w), w),
    "as numbers": lambda w, x: F.linear(x, w) * float(w.numpy()[0, 0]),
    "rows by a mask": lambda w, x: w[torch.arange(OUTER) > 3].sin(),
    "an embedding with its norm": lambda w, x: F.embedding(INDEX + 1, w, max_norm=99.0),
    "for every row of x": lambda w, x: torch.vmap(
        lambda row: (w @ torch.diag(row)).sin()
    )(x),
    "in a gradient": lambda w, x: torch.func.grad(lambda z: (z @ w.T).sin().sum())(x),
    "several times": lambda w, x: torch.einsum(
        "oi,bij->bo", w, x[..., None] + x[:2, 0]
    ),
    "rounded": lambda w, x: w.div(0.1, rounding_mode="floor")[0] * x,
    "more often than it has entries": lambda w, x: (
        x[:1] + w.expand(9, *w.shape)
    ).sin(),
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


def test_a_vector_of_weights_has_an_entry_for_each_sample():
    """Logistic regression."""

    def fn(v, b, x):
        return F.softplus(x @ v + b)

    assert _found(fn, (INNER,), (), INPUT, asked=[0, 1]) == [[0, 1]]


def test_a_function_that_writes_to_its_input_is_left_alone():
    """What it computes from is not what it was given."""

    def fn(w, x):
        w.mul_(2)
        return F.linear(x, w)

    assert _found(fn, WEIGHT, INPUT, asked=[0]) == []


CARRIED = [
    (lambda w, b, x: F.linear(x, w, b), (WEIGHT, BIAS, INPUT)),
    (lambda w, b, x: x @ w + b, (TURNED, BIAS, INPUT)),
    (lambda w, b, x: b - x @ w, (TURNED, BIAS, INPUT)),
    (lambda w, x: w @ x.T, (WEIGHT, INPUT)),
    (lambda w: w[INDEX], (WEIGHT,)),
    (lambda v, w: v @ w, ((INNER,), TURNED)),
    (torch.dot, ((INNER,), (INNER,))),
    (F.linear, ((INNER,), WEIGHT, BIAS)),
    (lambda w, x: x.reshape(1, BATCH, INNER) @ w.T, (WEIGHT, INPUT)),
    (lambda w: F.embedding(INDEX + 1, w, 2), (WEIGHT,)),
    (torch.addmm, (BIAS, INPUT, TURNED)),
    (torch.bmm, ((2, 3, 4), (2, 4, 5))),
    (lambda x, w: torch.einsum("bti,hio->bhto", x, w), ((2, 3, 4), (2, 4, 5))),
    (lambda w: w.chunk(2)[1] @ torch.arange(40.0).double(), (WEIGHT,)),
    (lambda x, w, b: F.conv1d(x, w, b, padding=1), ((2, 3, 8), (5, 3, 3), (5,))),
    (lambda x, w, b: F.conv2d(x, w, b, 2), ((2, 3, 8, 8), (5, 3, 3, 3), (5,))),
    (F.conv_transpose1d, ((2, 3, 8), (3, 5, 3))),
    (
        lambda w, b: F.bilinear(X[:, :4], X[:, :5].sin(), w, b),
        ((2, 4, 5), (2,)),
    ),
    (lambda w, u: X @ w - X.sin() @ (2 * u), (TURNED, TURNED)),
    (lambda w, u: -(X @ w.neg()).sub(X.sin() @ u), (TURNED, TURNED)),
]
X = torch.linspace(-1, 1, BATCH * INNER, dtype=torch.float64).reshape(INPUT)


@pytest.mark.parametrize(("fn", "shapes"), CARRIED)
def test_slopes_are_carried_as_the_chain_rule_says(fn, shapes):
    """Push is the derivative of the product, and pull its transpose."""
    subject = _subject(lambda *given: fn(*given).sin(), *shapes)
    product = products_of(subject, range(len(shapes)))[-1]
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(2, len(product.point)))
    inputs = sorted(product.factors)
    pulls = [
        product.transposed(inputs, weigh) for weigh in (None, abs, lambda t: t * t)
    ]
    assert inputs
    for which, *pulled in zip(inputs, *(pull(slopes) for pull in pulls), strict=True):
        point = subject.point(which)
        direction = rng.normal(size=point.shape)

        moved = product.push(which, direction)

        assert pulled[0] @ direction == pytest.approx(slopes @ moved)
        subject.place(which, point + direction)
        there = products_of(subject, range(len(shapes)))[-1]
        subject.place(which, None)
        assert there.point - product.point == pytest.approx(moved)


@pytest.mark.parametrize(("fn", "shapes"), CARRIED)
def test_bars_are_carried_with_the_sizes_of_factors(fn, shapes):
    """By those of the Jacobian of the product itself, and by their squares."""
    subject = _subject(lambda *given: fn(*given).sin(), *shapes)
    product = products_of(subject, range(len(shapes)))[-1]
    rng = np.random.default_rng(0)
    bars = rng.uniform(size=(2, len(product.point)))
    for which in product.factors:
        columns = np.eye(len(subject.point(which)))
        jacobian = np.stack([product.push(which, each) for each in columns], axis=1)

        (sizes,) = product.transposed([which], abs)(bars)
        (squares,) = product.transposed([which], lambda t: t * t)(bars)

        assert sizes == pytest.approx(bars @ np.abs(jacobian))
        assert squares == pytest.approx(bars @ jacobian**2)


def test_bars_of_several_uses_add_up_whatever_their_signs():
    """A weight that is added in one product and subtracted in another one."""
    subject = _subject(lambda w: (X @ w).sin() + (1 - X.cos() @ w).exp(), TURNED)
    products = products_of(subject, [0])
    group = ProductGroup(products, [0])
    bars = np.random.default_rng(0).uniform(size=(2, len(group.point)))
    columns = np.eye(len(subject.point(0)))
    jacobian = np.stack([group.push(0, each) for each in columns], axis=1)

    sizes = group.transposed(abs)(bars)[0]

    assert len(products) == 2
    assert sizes == pytest.approx(bars @ np.abs(jacobian))


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
