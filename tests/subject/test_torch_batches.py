"""Evaluating torch subjects in batches, and when they are evaluated one by one."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.evaluation import displaced_rows
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.metering.meter import BudgetExhausted, Meter
from gradlab.subject.tensors.batching.loops import same_values
from gradlab.subject.tensors.batching.stacks import Plan
from gradlab.subject.tensors.subjects import torch_subject
from tests.specimens.functions import with_output
from tests.specimens.torch_sides import (
    DOUBLE,
    assert_analytic_equals_differences,
    randn,
)

torch = pytest.importorskip("torch")


def always_batched(subject):
    """Skip the trial: which side wins it is a matter of the machine's mood."""
    for which in range(len(subject.inputs)):
        subject._batches._plans[which] = Plan(batched=True)
        assert subject.batches(which, 2)


def test_batches_and_single_evaluations_agree():
    """`rows` gives what moving one coordinate at a time gives."""
    subject = torch_subject(
        lambda x, w: torch.tanh(x @ w), (randn(4, 30), randn(30, 3))
    )
    always_batched(subject)
    positions = np.arange(0, 120, 7)
    steps = np.linspace(1e-3, 2e-3, len(positions))
    values, taken = subject.rows(0, positions, steps)

    coordinates = subject.coordinates(0)
    for row, position in enumerate(positions):
        old = coordinates[position]
        coordinates[position] = old + steps[row]
        assert taken[row] == coordinates[position] - old
        assert values[row] == pytest.approx(subject.row(), abs=1e-14)
        coordinates[position] = old


def test_batches_are_cut_into_chunks():
    """A chunk of a few copies gives the same as one large batch."""
    subject = torch_subject(torch.sigmoid, (randn(20, 10),))
    always_batched(subject)
    positions, steps = np.arange(200), np.full(200, 1e-3)
    whole, _ = subject.rows(0, positions, steps)
    subject.chunk_bytes = 7 * 200 * 8

    chunked, _ = subject.rows(0, positions, steps)
    assert chunked == pytest.approx(whole, abs=1e-15)


# Cannot be batched: its forward goes through NumPy.
numpy_exp = with_output(
    lambda x: torch.from_numpy(np.exp(x.detach().numpy())),
    lambda y, upstream: upstream * y,
)


def branching(x):
    """Looks at values to decide, which batches cannot."""
    return x * 2 if x.sum() > 0 else x * 3


def in_place(x):
    """Writes into a tensor that is not in the batch."""
    y = torch.zeros(6, dtype=DOUBLE)
    y[:] = x.reshape(-1)
    return y


@pytest.mark.parametrize("fn", [numpy_exp, branching, in_place])
def test_functions_that_cannot_be_batched_are_looped(fn):
    """The fall-back is silent and right."""
    subject = torch_subject(fn, (randn(2, 3),))

    assert not subject.batches(0, 6)
    assert_analytic_equals_differences(subject)


def test_small_smooth_functions_pass_the_trial():
    """Two hundred sigmoids at once take less time than two hundred times one."""
    subjects = [torch_subject(torch.sigmoid, (randn(20, 10),)) for _ in range(9)]

    assert any(subject.batches(0, 400) for subject in subjects)


def test_rows_outside_the_domain_are_nan():
    """One matrix that cannot be factorised does not spoil its batch."""
    x = torch.eye(3, dtype=DOUBLE)
    subject = torch_subject(torch.linalg.cholesky, (x,))
    always_batched(subject)
    values, _ = subject.rows(0, np.array([0, 4]), np.array([-2.0, 1.0]))

    assert np.isnan(values[0]).all()
    assert values[1, 4] == pytest.approx(np.sqrt(2))
    assert np.array_equal(subject.row(), np.eye(3).reshape(-1))


def test_functions_that_compute_otherwise_in_batches_are_looped():
    """A batched value that is off by more than round-off disqualifies batches."""

    def f(x):
        inside = torch._C._functorch.is_batchedtensor(x)
        return torch.sin(x) * (1 + 1e-14 if inside else 1)

    subject = torch_subject(f, (randn(40, 10),))

    assert not subject.batches(0, 800)


def test_sums_in_another_order_are_the_same_values(rng):
    """A batch of matrix products adds 32 terms otherwise than a single one does."""
    subject = torch_subject(torch.sigmoid, (randn(2),))
    terms = rng.normal(size=(2, 512, 32))
    ahead = np.add.accumulate(terms, axis=-1)[..., -1]
    behind = np.add.accumulate(terms[..., ::-1], axis=-1)[..., -1]

    assert not np.array_equal(ahead, behind)
    assert same_values(subject, ahead, behind)
    assert not same_values(subject, ahead, behind * (1 + 1e-14))


def test_the_first_rows_that_are_wanted_are_the_trial_of_batches(monkeypatch):
    """No displacement goes through two batches, and all come to what single ones do."""
    from gradlab.subject.tensors.batching import batches as torch_batches

    monkeypatch.setattr(torch_batches, "CLEARLY", np.inf)  # however long they take
    sizes, mapped = [], torch_batches.mapped

    def counted(subject, stacks, plan):
        sizes.extend(len(stack) for stack in stacks.values())
        return mapped(subject, stacks, plan)

    monkeypatch.setattr(torch_batches, "mapped", counted)
    monkeypatch.setattr(torch_batches, "suitable", lambda _: False)  # copies only
    x = randn(30, 10)
    subject, meter = torch_subject(torch.sigmoid, (x,)), Meter()
    subject.row()
    steps = np.full(300, 1e-3)

    values, taken = displaced_rows(subject, 0, np.arange(300), steps, meter)

    assert sum(sizes) == meter.evaluations == 300
    moved = x.numpy().ravel() + np.diag(taken)
    assert values == pytest.approx(1 / (1 + np.exp(-moved)), abs=1e-14)


def test_rows_that_a_budget_does_not_pay_for_are_no_trial():
    """Of a budget that is too small no row is evaluated before that is told."""
    subject, asked = torch_subject(torch.sigmoid, (randn(30, 10),)), []
    subject.row()
    subject.first_rows = lambda *moves: asked.append(moves)
    meter, steps = Meter(Budget(evaluations=10)), np.full(300, 1e-3)

    with pytest.raises(BudgetExhausted):
        displaced_rows(subject, 0, np.arange(300), steps, meter)

    assert not asked


def test_operators_without_a_rule_for_batches_are_not_announced(capfd):
    """Torch writes a line to stderr for each call of a custom operator under vmap."""

    @torch.library.custom_op("gradlab_tests::cubed", mutates_args=())
    def cubed(x: torch.Tensor) -> torch.Tensor:
        return x**3

    cubed.register_autograd(
        lambda ctx, up: 3 * ctx.x**2 * up,
        setup_context=lambda ctx, inputs, output: setattr(ctx, "x", inputs[0]),
    )
    report = gl.check(cubed, torch.ones(3, 2, dtype=torch.float64))
    assert report.verdict == gl.Verdict.AGREES
    assert not capfd.readouterr().err

    torch.func.vmap(cubed)(torch.ones(2))  # as loud as before
    assert "performance drop" in capfd.readouterr().err
