"""One verdict per tensor, from directions that move all of them."""

from __future__ import annotations

import numpy as np
import pytest

from gradlab.building import Sides, build_subject
from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.differentiation.metering.budget import Budget
from gradlab.differentiation.metering.meter import Meter
from gradlab.localisation.tensors import probe_tensors
from tests.localisation import dense_networks as nets

SIZES = (12, *(16,) * 19, 3)  # 20 layers, 40 tensors


def subject_of(params, loss_and_grads, grads):
    return build_subject(
        lambda: loss_and_grads(params)[0], [], Sides(params=params, grad=grads)
    )


@pytest.fixture
def case(rng):
    return nets.network(rng, SIZES)


def test_forty_right_tensors_cost_less_than_thirty_evaluations(case):
    """Where all agree, the number of tensors does not matter."""
    params, loss_and_grads = case
    probes = probe_tensors(
        subject_of(params, loss_and_grads, loss_and_grads(params)[1])
    )

    assert len(probes.tensors) == 40
    assert probes.verdict == Verdict.AGREES
    assert probes.evaluations <= 30


@pytest.mark.thinned(2)
@pytest.mark.untraced
@pytest.mark.parametrize("name", ["W0", "W7", "b7", "W19", "b19"])
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.0001, 2.0])
def test_the_wrong_tensor_is_named_and_no_other(case, name, factor):
    """A dropped, flipped, doubled or barely scaled tensor among forty."""
    params, loss_and_grads = case
    grads = loss_and_grads(params)[1]
    grads[name] = factor * grads[name]
    probes = probe_tensors(subject_of(params, loss_and_grads, grads))

    wrong = [t.input for t in probes.tensors if t.verdict == Verdict.DISAGREES]
    assert wrong == [name]


def test_one_wrong_entry_makes_its_tensor_wrong(case):
    """A single entry among thousands is a disagreement of its tensor."""
    params, loss_and_grads = case
    grads = loss_and_grads(params)[1]
    grads["W5"][3, 4] *= 1.01
    probes = probe_tensors(subject_of(params, loss_and_grads, grads))

    assert probes["W5"].verdict == Verdict.DISAGREES
    assert [e.index for e in probes.located.entries] == [(3, 4)]
    assert sum(t.verdict == Verdict.DISAGREES for t in probes.tensors) == 1


def test_every_contaminated_tensor_is_named(case):
    """A slip in one activation spoils all tensors before it, and none behind."""
    params, loss_and_grads = case
    grads = loss_and_grads(params)[1]
    before = {f"{kind}{i}" for i in range(8) for kind in "Wb"}
    rng = np.random.default_rng(0)
    for name in sorted(before):  # not one factor: every entry off by its own
        grads[name] = grads[name] * rng.uniform(0.5, 0.999, grads[name].shape)
    probes = probe_tensors(subject_of(params, loss_and_grads, grads))

    wrong = {t.input for t in probes.tensors if t.verdict == Verdict.DISAGREES}
    assert wrong == before
    assert not {t.input for t in probes.tensors if t.verdict == Verdict.UNDECIDED}


def test_faint_tensor_is_probed_apart(rng):
    """A tensor a hundred million times fainter than another is checked all the same.

    f = sum(sin x) + 1e-9 sum(cos y).
    """
    x, y = rng.normal(size=300), rng.normal(size=300)

    def run(wrong):
        return probe_tensors(
            build_subject(
                lambda x, y: np.sin(x).sum() + 1e-9 * np.cos(y).sum(),
                [x, y],
                Sides(grad=lambda x, y: (np.cos(x), wrong * -1e-9 * np.sin(y))),
            )
        )

    assert run(0.5)["y"].verdict == Verdict.DISAGREES
    assert run(1.0)["y"].verdict != Verdict.DISAGREES
    assert run(0.5)["x"].verdict == Verdict.AGREES


def test_approximate_gradient_within_the_tolerance_agrees(case):
    """Every entry off by 1e-5 with rtol=1e-4: nothing anybody asked about."""
    params, loss_and_grads = case
    grads = {
        name: g * (1 + 1e-5 * np.sign(np.random.default_rng(1).normal(size=g.shape)))
        for name, g in loss_and_grads(params)[1].items()
    }
    subject = subject_of(params, loss_and_grads, grads)
    probes = probe_tensors(
        subject, tolerance=Tolerance(rtol=1e-4), meter=Meter(Budget(evaluations=5000))
    )

    assert not [t for t in probes.tensors if t.verdict == Verdict.DISAGREES]


def test_noise_is_undecided(rng):
    """Where noise is as large as what moves, nothing is claimed either way."""
    x, draws = rng.normal(size=50), np.random.default_rng(0)
    subject = build_subject(
        lambda x: np.sin(x).sum() + 10 * draws.normal(), [x], Sides(grad=np.cos)
    )

    assert probe_tensors(subject).verdict == Verdict.UNDECIDED


@pytest.mark.parametrize("budget", [1, 5, 12, 40])
def test_budget_leaves_the_rest_undecided(case, budget):
    """What could not be looked at is not called right."""
    params, loss_and_grads = case
    grads = loss_and_grads(params)[1]
    grads["W3"] *= 2
    meter = Meter(Budget(evaluations=budget))
    probes = probe_tensors(subject_of(params, loss_and_grads, grads), meter=meter)

    assert meter.evaluations <= budget
    assert probes["W3"].verdict != Verdict.AGREES


def test_known_base_saves_an_evaluation(case):
    """Whoever has evaluated at the point does not pay for it again."""
    params, loss_and_grads = case
    grads = loss_and_grads(params)[1]
    subject = subject_of(params, loss_and_grads, grads)
    without = probe_tensors(subject).evaluations

    assert probe_tensors(subject, base=subject.row()).evaluations == without - 1


def test_numbers_of_a_wrong_tensor_are_of_it_alone(case):
    """The directions shown for a wrong tensor move nothing else."""
    params, loss_and_grads = case
    grads = loss_and_grads(params)[1]
    grads["W3"] = 2 * grads["W3"]
    shown = probe_tensors(subject_of(params, loss_and_grads, grads))["W3"]

    assert shown.analytic == pytest.approx(2 * shown.numeric)
