"""Budgets of gl.locate, what it leaves untouched, and what it says."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.building import Sides, build_subject
from gradlab.errors import BudgetError, InputError
from gradlab.locating import locate
from tests.localisation import dense_networks as nets
from tests.localisation.test_entries import located, places


class TestBudget:
    def subject(self, rng):
        x = rng.normal(size=(50, 100))
        wrong = np.cos(x)
        wrong[17, 42] *= 1.01
        return x, wrong

    @pytest.mark.parametrize("budget", [1, 3, 10, 30])
    def test_budget_is_kept_and_what_is_open_is_said(self, budget, rng):
        """The search stops in time, is not complete, and names where it was."""
        x, wrong = self.subject(rng)
        found = locate(lambda x: np.sin(x).sum(), x, grad=wrong, budget=budget)

        assert found.evaluations <= budget
        assert found.budget_left == budget - found.evaluations
        assert not found.complete
        assert found.suspects or found.entries

    def test_budget_that_suffices_leaves_the_rest(self, rng):
        """What was not needed is handed back."""
        x, wrong = self.subject(rng)
        found = locate(lambda x: np.sin(x).sum(), x, grad=wrong, budget=5000)

        assert found.complete
        assert found.budget_left == 5000 - found.evaluations

    @pytest.mark.parametrize("budget", [0, -1, "soon"])
    def test_impossible_budgets_are_refused(self, budget):
        """Before any work, with a sentence."""
        with pytest.raises(BudgetError, match="budget must be"):
            locate(lambda x: x.sum(), np.ones(3), grad=np.ones_like, budget=budget)

    @pytest.mark.parametrize("limit", [0, -3, 1.5, True])
    def test_impossible_limits_are_refused(self, limit):
        """Before any work, with a sentence."""
        with pytest.raises(InputError, match="limit must be"):
            locate(lambda x: x.sum(), np.ones(3), grad=np.ones_like, limit=limit)

    def test_limit_bounds_what_is_named(self, rng):
        """More wrong entries than the limit: that many, and not complete."""
        params, loss_and_grads = nets.network(rng, nets.SMALL)
        grads = loss_and_grads(params)[1]
        spoilt = nets.spoil(rng, grads, "10 %", 6)
        found = located(params, loss_and_grads, grads, limit=2)

        assert len(places(found)) == 2
        assert places(found) < spoilt
        assert not found.complete


class TestNoSideEffects:
    @pytest.mark.parametrize("stop", [1, 2, 6, 20, 40])
    def test_interrupt_leaves_parameters_bitwise_the_same(self, stop, rng):
        """Ctrl-C at any evaluation: parameters in place are put back."""
        params, loss_and_grads = nets.network(rng, nets.SMALL)
        grads = loss_and_grads(params)[1]
        grads["W1"][3, 4] *= 1.5
        before = {name: p.tobytes() for name, p in params.items()}
        calls = []

        def loss():
            calls.append(1)
            if len(calls) == stop:
                raise KeyboardInterrupt
            return loss_and_grads(params)[0]

        try:
            found = locate(loss, params=params, grad=grads)
        except KeyboardInterrupt:
            found = None

        assert found is None or not found.complete
        assert {name: p.tobytes() for name, p in params.items()} == before

    def test_gradients_given_are_not_written_to(self, rng):
        """Corrections during the search happen on copies."""
        params, loss_and_grads = nets.network(rng, nets.SMALL)
        grads = loss_and_grads(params)[1]
        grads["W1"][3, 4] *= 1.5
        before = {name: g.tobytes() for name, g in grads.items()}
        located(params, loss_and_grads, grads)

        assert {name: g.tobytes() for name, g in grads.items()} == before


def test_repr_says_what_was_found(rng):
    """One line for each entry, with both values."""
    x = rng.normal(size=30)
    wrong = np.cos(x)
    wrong[7] = 2.5
    text = repr(locate(lambda x: np.sin(x).sum(), x, grad=wrong))

    assert text.startswith("Located: 1 wrong entry, ")
    assert "x[7]: analytic 2.5, numeric " in text


def test_repr_names_the_output_where_there_are_several(rng):
    """`x[7]` alone is no entry of a Jacobian with 30 rows."""
    x = rng.normal(size=30)
    wrong = np.diag(np.cos(x))
    wrong[7, 7] = 2.5
    text = repr(locate(lambda x: np.sin(x), x, jac=lambda x: wrong))  # noqa: PLW0108 - a name

    assert "  out[7] / x[7]: analytic 2.5, numeric " in text


def test_repr_says_that_more_are_wrong_than_are_named(rng):
    """Where one input has a slip and another is wrong everywhere, one is counted."""
    a, b = rng.normal(size=30), rng.normal(size=3000)

    def wrong(a, b):
        da = np.cos(a)
        da[7] = 2.5
        return da, np.cos(b) * rng.uniform(1, 3, b.size)

    found = locate(
        lambda a, b: np.sin(a).sum() + np.sin(b).sum(),
        *(a, b),
        vjp=lambda g, a, b: [g * each for each in wrong(a, b)],
    )

    assert list(found.wrong_share) == ["b"]
    assert " wrong entries named, " in repr(found) or " wrong entry named, " in repr(
        found
    )


def test_subject_without_analytic_side_is_refused():
    """Nothing to locate without a gradient."""
    from gradlab.localisation.entries import locate_entries

    subject = build_subject(np.sin, [np.ones(3)], Sides(need_analytic=False))
    with pytest.raises(InputError, match="nothing to check against"):
        locate_entries(subject)


@pytest.mark.parametrize("seed", [0, 1])
def test_noise_that_leaves_several_candidates_is_met_by_further_directions(seed):
    """One more rules many out at once; halving goes on for twice the evaluations."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=3000).astype(np.float32)
    (wrong,) = rng.choice(3000, 1)

    def shaken(x):
        total = float(np.sin(x).sum())
        return total + 1e-7 * np.sin(1e9 * total)

    def grad(x):
        return np.cos(x) + 0.1 * (np.arange(3000) == wrong)

    found = locate(shaken, x, grad=grad, seed=seed)

    assert places(found) == {("x", (int(wrong),))}
    assert found.evaluations < 200


@pytest.mark.parametrize("size", [1e-200, 1e-6, 1.0, 1e6, 1e200])
def test_power_is_in_the_units_of_the_outputs(size):
    """Of outputs of any size an error of twice the stated power is found."""
    x = np.linspace(-1, 2, 40)

    def vjp(off):
        slip = np.where(np.arange(40) == 7, off, 0.0)
        return lambda up, x: up * (size * np.cos(x) + slip)

    def f(x):
        return size * np.sin(x)

    power = locate(f, x, vjp=vjp(0.0)).power["x"]
    found = locate(f, x, vjp=vjp(2 * power), rtol=0.0, atol=0.0)

    assert power < 1e-6 * size
    assert [entry.index for entry in found.entries] == [(7,)]


def test_power_is_no_boast_where_outputs_differ_in_size():
    """An output of 1e-8 beside one of 1e8 is below it, and may be wrong unseen."""
    sizes = 10.0 ** np.arange(-8, 9, 4)
    x = np.linspace(0.1, 0.9, 5)

    found = locate(
        lambda x: sizes * np.sin(x), x, vjp=lambda up, x: up * sizes * np.cos(x)
    )

    assert found.power["x"] > sizes[0]


def test_entries_that_are_equally_wrong_stand_in_the_order_of_the_array():
    """Every hundredth slope of a cube is doubled, all of them from 3 to 6."""
    doubled = 1 + (np.arange(500) % 100 == 3)
    found = locate(
        lambda x: (x**3).sum(), np.ones(500), grad=lambda x: 3 * x**2 * doubled
    )

    assert [entry.index for entry in found.entries] == [
        (3 + 100 * k,) for k in range(5)
    ]
