"""Wrong entries are found, right ones are not accused, in few evaluations."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from gradlab.locating import locate
from tests.localisation import dense_networks as nets
from tests.sizes import drawn


def located(params, loss_and_grads, grads, **options):
    return locate(
        lambda: loss_and_grads(params)[0], params=params, grad=grads, **options
    )


def places(found):
    return {(entry.input, entry.index) for entry in found.entries}


@pytest.mark.untraced
class TestLargeNetwork:
    """Float64, tanh; eight networks and positions per slip, and twenty at night.

    The first of them have 657,409 parameters, the others 164,865: many times faster.
    """

    SEEDS, LARGEST = drawn(8, 20), drawn(1, 3)

    def run(self, slip, count=1):
        found, costs = [], []
        for seed in range(self.SEEDS):
            rng = np.random.default_rng([seed, 77])
            sizes = nets.LARGE if seed < self.LARGEST else nets.MEDIUM
            params, loss_and_grads = nets.network(rng, sizes, batch=4)
            grads = loss_and_grads(params)[1]
            spoilt = nets.spoil(rng, grads, slip, count) if slip else set()
            loss = functools.partial(loss_and_grads, params, gradients=False)
            result = locate(loss, params=params, grad=grads, seed=seed)
            found.append((spoilt, places(result), result))
            costs.append(result.evaluations)
        print(
            f"{slip or 'right'} x {count}: median {np.median(costs)}, max {max(costs)}"
        )
        return found, costs

    @pytest.mark.slow
    @pytest.mark.parametrize("slip", nets.SLIPS)
    def test_one_wrong_entry_is_always_found(self, slip):
        """Found in every one, nothing else accused, median within 220.

        A score of them ask whether rounding explains it, before it is named.
        """
        found, costs = self.run(slip)

        assert all(got == spoilt for spoilt, got, _ in found)
        assert np.median(costs) <= 220
        assert all(result.complete for *_, result in found)

    @pytest.mark.slow
    def test_three_wrong_entries_are_always_found(self):
        """Three sign flips at once: all found, within 500 evaluations."""
        found, costs = self.run("flipped", 3)

        assert all(got == spoilt for spoilt, got, _ in found)
        assert max(costs) <= 500

    @pytest.mark.slow
    def test_right_gradients_are_not_accused(self):
        """Nothing is named on right networks, at the price of two dozen calls."""
        found, costs = self.run(None)

        assert all(result.ok and result.complete for *_, result in found)
        assert max(costs) <= 40


class TestSmallNetwork:
    @pytest.fixture
    def case(self, rng):
        return nets.network(rng, nets.SMALL)

    @pytest.mark.parametrize("relu", [False, True])
    @pytest.mark.parametrize("slip", nets.SLIPS)
    def test_one_wrong_entry(self, slip, relu):
        """With kinks or without, one wrong entry is named and no other."""
        for seed in range(drawn(3, 5)):
            rng = np.random.default_rng([seed, 5])
            params, loss_and_grads = nets.network(rng, nets.SMALL, relu=relu)
            grads = loss_and_grads(params)[1]
            spoilt = nets.spoil(rng, grads, slip)

            assert places(located(params, loss_and_grads, grads)) == spoilt

    @pytest.mark.parametrize("relu", [False, True])
    def test_right_gradient_has_an_empty_table(self, relu):
        """Nothing wrong: no rows, the five columns all the same."""
        for seed in range(drawn(5, 10)):
            rng = np.random.default_rng([seed, 6])
            params, loss_and_grads = nets.network(rng, nets.SMALL, relu=relu)
            found = located(params, loss_and_grads, loss_and_grads(params)[1])

            assert found.ok
            assert found.table.columns.tolist() == [
                "input",
                "index",
                "analytic",
                "numeric",
                "numeric_error",
            ]
            assert len(found.table) == 0

    def test_values_are_those_of_both_sides(self, case):
        """The row holds the wrong value, the right one, and a bar that covers it."""
        params, loss_and_grads = case
        grads = loss_and_grads(params)[1]
        right = float(grads["W1"][3, 4])
        grads["W1"][3, 4] *= 1.5
        entry = located(params, loss_and_grads, grads).entries[0]

        assert entry.analytic == 1.5 * right
        assert abs(entry.numeric - right) <= 5 * entry.numeric_error
        assert entry.label == "W1[3, 4]"

    def test_swapped_entries_do_not_hide_each_other(self):
        """Two errors of equal size and opposite sign are both found, every time."""
        for seed in range(drawn(8, 20)):
            rng = np.random.default_rng([seed, 8])
            params, loss_and_grads = nets.network(rng, nets.SMALL)
            grads = loss_and_grads(params)[1]
            w = grads["W1"]
            w[2, 3], w[20, 5] = w[20, 5], w[2, 3]
            found = located(params, loss_and_grads, grads, seed=seed)

            assert places(found) == {("W1", (2, 3)), ("W1", (20, 5))}

    def test_a_dozen_wrong_entries(self, case, rng):
        """Cost grows with the number of wrong entries, not with that of all."""
        params, loss_and_grads = case
        grads = loss_and_grads(params)[1]
        spoilt = nets.spoil(rng, grads, "10 %", 12)
        found = located(params, loss_and_grads, grads)

        assert places(found) == spoilt
        assert found.evaluations <= 12 * 80

    def test_nan_is_wrong_where_the_function_has_a_slope(self, case):
        """A nan among the gradients is named without any search."""
        params, loss_and_grads = case
        grads = loss_and_grads(params)[1]
        grads["W0"][1, 2] = np.nan
        found = located(params, loss_and_grads, grads)

        assert places(found) == {("W0", (1, 2))}
        assert found.complete

    def test_tolerance_is_respected(self, case):
        """An error within rtol is nobody's business."""
        params, loss_and_grads = case
        grads = loss_and_grads(params)[1]
        grads["W0"][1, 2] *= 1.001

        assert located(params, loss_and_grads, grads, rtol=1e-2).ok
        assert not located(params, loss_and_grads, grads, rtol=1e-4).ok

    def test_power_is_what_it_says(self, case):
        """An error of twice the stated power is found."""
        params, loss_and_grads = case
        grads = loss_and_grads(params)[1]
        power = located(params, loss_and_grads, grads).power["W1"]
        grads["W1"][7, 7] += 2 * power
        found = located(params, loss_and_grads, grads, rtol=0.0, atol=0.0)

        assert ("W1", (7, 7)) in places(found)

    def test_same_seed_same_answer(self, case):
        """Everything random comes from the seed."""
        params, loss_and_grads = case
        grads = loss_and_grads(params)[1]
        grads["b1"][2] *= 2
        one, two = (located(params, loss_and_grads, grads, seed=4) for _ in range(2))

        assert one.evaluations == two.evaluations
        assert one.entries == two.entries


class TestDenseErrors:
    @pytest.fixture
    def case(self, rng):
        return nets.network(rng, (64, 128, 96, 10))

    def test_scaled_tensor_is_read_off_as_a_factor(self, case):
        """A whole tensor scaled: the factor is named, and two entries as examples."""
        params, loss_and_grads = case
        grads = loss_and_grads(params)[1]
        grads["W1"] *= 1.001
        found = located(params, loss_and_grads, grads)

        assert found.factors["W1"] == pytest.approx(1.001, abs=1e-7)
        assert found.wrong_share == {"W1": 1.0}
        assert {name for name, _ in places(found)} == {"W1"}
        assert found.evaluations <= 300  # a slight slip is heard with care

    def test_everything_scaled(self, case):
        """One factor over all tensors is one measurement for all of them."""
        params, loss_and_grads = case
        grads = {name: 16 * g for name, g in loss_and_grads(params)[1].items()}
        found = located(params, loss_and_grads, grads)

        assert found.factors == pytest.approx(dict.fromkeys(params, 16.0))
        assert found.evaluations <= 300

    @pytest.mark.parametrize("change", [np.zeros_like, lambda w: w[::-1].copy()])
    def test_dropped_or_shuffled_tensor_is_noticed_early(self, case, change):
        """A tensor wrong all over: a few examples, and that most of it is wrong."""
        params, loss_and_grads = case
        grads = loss_and_grads(params)[1]
        grads["W1"] = change(grads["W1"])
        found = located(params, loss_and_grads, grads)

        assert set(found.wrong_share) == {"W1"}
        assert found.wrong_share["W1"] > 0.6
        assert 1 <= len(found.entries) <= 12
        assert found.evaluations <= 400

    def test_wrong_row_is_told_by_its_share(self, case):
        """96 of 12288 entries: about one percent, near that row."""
        params, loss_and_grads = case
        grads = loss_and_grads(params)[1]
        grads["W1"][3] *= -1
        found = located(params, loss_and_grads, grads)

        assert not found.ok
        assert 0.001 < found.wrong_share["W1"] < 0.05
        assert {(name, index[0]) for name, index in places(found)} == {("W1", 3)}
        assert all(r.first[0] <= 3 <= r.last[0] for r in found.crowded)


class TestOtherSubjects:
    def test_wrong_row_of_a_jacobian(self, rng):
        """Several outputs: the wrong entry is found with its output."""
        a = rng.normal(size=(300, 40))

        def jac(x):
            j = a * (1 - np.tanh(a @ x) ** 2)[:, None]
            j[7, 3] *= 1.01
            j[200, 30] = 0.0
            return j

        found = locate(lambda x: np.tanh(a @ x), 0.02 * rng.normal(size=40), jac=jac)

        assert {(e.output_index, e.index) for e in found.entries} == {
            ((7,), (3,)),
            ((200,), (30,)),
        }
        assert found.table.columns.tolist()[:2] == ["output", "output_index"]

    def test_complex_entry_has_one_row(self, rng):
        """A conjugated entry of a complex gradient is one complex row.

        f = sum |z|^2 has the gradient 2 z in the convention of torch.
        """
        z = rng.normal(size=(6, 7)) + 1j * rng.normal(size=(6, 7))

        def grad(z):
            g = 2 * z
            g[2, 5] = g[2, 5].conj()
            return g

        found = locate(lambda z: (z * z.conj()).real.sum(), z, grad=grad)

        assert places(found) == {("z", (2, 5))}
        assert found.entries[0].numeric == pytest.approx(2 * z[2, 5])
        assert found.entries[0].analytic == 2 * z[2, 5].conj()

    def test_float32_gets_a_float64_reference(self, rng):
        """Round-off of float32 is no error, ten percent in one entry is one."""
        x = rng.normal(size=(50, 100)).astype(np.float32)

        def grad(x):
            g = np.cos(x)
            g[17, 42] = 1.1 * g[17, 42] + 0.1
            return g

        right = locate(lambda x: np.sin(x).sum(), x, grad=np.cos)
        wrong = locate(lambda x: np.sin(x).sum(), x, grad=grad)

        assert right.ok
        assert places(wrong) == {("x", (17, 42))}

    def test_infinite_inputs_are_left_alone(self):
        """A masked score of -inf cannot be moved, and is nobody's error."""
        x = np.linspace(0.0, 1.0, 50)
        x[10] = -np.inf

        def grad(x):
            e = np.exp(x)
            return e / e.sum()

        assert locate(lambda x: np.log(np.exp(x).sum()), x, grad=grad).ok

    def test_noise_accuses_nobody(self, rng):
        """A loss with noise of 1e-6: right gradients stay unaccused."""
        x = rng.normal(size=500)
        for seed in range(5):
            draws = np.random.default_rng(seed)
            found = locate(
                lambda x, draws=draws: np.sin(x).sum() + 1e-6 * draws.normal(),
                x,
                grad=np.cos,
                seed=seed,
            )

            assert found.ok

    def test_piecewise_linear_accuses_nobody(self):
        """Twenty thousand kinks, none at the point: |x| has the gradient sign(x)."""
        for seed in range(5):
            x = np.random.default_rng(seed).normal(size=20_000)
            found = locate(lambda x: np.abs(x).sum(), x, grad=np.sign, seed=seed)

            assert found.ok

    def test_torch_module(self):
        """The same search serves modules, by the qualified names of parameters."""
        torch = pytest.importorskip("torch")
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(30, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1)
        ).double()
        x = torch.randn(8, 30, dtype=torch.float64)
        model(x).sum().backward()
        grads = {n: p.grad.clone() for n, p in model.named_parameters()}
        grads["0.weight"][17, 23] *= 1.01
        found = locate(model, x, loss=lambda out: out.sum(), grad=grads)

        assert places(found) == {("0.weight", (17, 23))}
