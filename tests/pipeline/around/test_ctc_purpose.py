"""What a CTC loss does on purpose is left out; a mistake behind it is told."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.comparison.verdict import Verdict

torch = pytest.importorskip("torch")
F = torch.nn.functional

TARGETS = torch.tensor([[1, 2, 2], [3, 1, 0]])
TIMES, LENGTHS = torch.tensor([7, 6]), torch.tensor([3, 2])
REDUCTIONS = ["none", "mean", "sum"]


def scores(seed, dtype=torch.float64):
    """Scores of four letters at seven times, twice, in no way normalised."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(7, 2, 4, generator=generator, dtype=torch.float64)
    return values.to(dtype).requires_grad_()


def lost(logs, reduction="sum", **options):
    """The loss as torch computes it."""
    return F.ctc_loss(logs, TARGETS, TIMES, LENGTHS, reduction=reduction, **options)


def by_hand(logs):
    """Sum over all alignments of each, by the forward recursion, on the graph."""
    losses = []
    for k in range(2):
        goal = [0]
        for letter in TARGETS[k, : LENGTHS[k]].tolist():
            goal += [letter, 0]
        known = [logs[0, k, goal[0]], logs[0, k, goal[1]]]
        known += [torch.tensor(-1e30, dtype=logs.dtype)] * (len(goal) - 2)
        for t in range(1, int(TIMES[k])):
            ways = [
                known[max(s - 2, 0) : s + 1]
                if s > 1 and goal[s] not in (0, goal[s - 2])
                else known[max(s - 1, 0) : s + 1]
                for s in range(len(goal))
            ]
            known = [
                torch.stack(way).logsumexp(0) + logs[t, k, letter]
                for way, letter in zip(ways, goal, strict=True)
            ]
        losses.append(-torch.logaddexp(known[-1], known[-2]))
    return torch.stack(losses)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("infinity", [False, True])
def test_derivative_is_that_of_the_recursion(reduction, infinity):
    """The sum over alignments, differentiated by autograd, is another method."""
    from gradlab.subject.tensors.gradients.deliberate import with_its_derivative

    logs, weights = scores(1), torch.tensor([1.0, -2.0], dtype=torch.float64)
    wanted = by_hand(logs)
    if reduction == "mean":
        wanted = (wanted / LENGTHS).mean()
    wanted = (wanted * weights).sum() if reduction == "none" else wanted.sum()
    with with_its_derivative():
        found = lost(logs, reduction, zero_infinity=infinity)
        found = (found * weights).sum() if reduction == "none" else found
    assert torch.allclose(found, wanted)
    pair = [torch.autograd.grad(each, logs)[0] for each in (found, wanted)]
    assert torch.allclose(*pair, atol=1e-12)


def test_impossible_alignments_have_no_slope():
    """Too short a time for all letters is infinite, and with zero_infinity nothing."""
    from gradlab.subject.tensors.gradients.deliberate import with_its_derivative

    logs = scores(1)
    with with_its_derivative():
        short = torch.tensor([2, 6])
        args = logs, TARGETS, short, LENGTHS
        loss = F.ctc_loss(*args, reduction="sum", zero_infinity=True)
    (slopes,) = torch.autograd.grad(loss, logs)
    assert not slopes[:, 0].any()
    assert slopes[:, 1].any()


PLAIN = {
    "scores": lambda x: x,
    "smoothed": lambda x: 0.9 * x.log_softmax(-1) - 0.1,
    "squashed": lambda x: x.sigmoid().log(),
}


@pytest.mark.parametrize("how", PLAIN)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_not_normalised_is_undecided(how, reduction, dtype, seed):
    """Torch's gradient is what it says it is; no mistake of the user's."""
    report = gl.check(lambda x: lost(PLAIN[how](x), reduction), scores(seed, dtype))

    assert report.verdict == Verdict.UNDECIDED
    assert report.ok
    assert "log_softmax before it" in str(report).replace("\n    ", " ")


WRONG = {
    "cut": lambda x: x.log_softmax(-1).detach() + 0 * x,
    "half cut": lambda x: x.log_softmax(-1).detach() / 2 + x.log_softmax(-1) / 2,
    "scores, half cut": lambda x: 0.5 * x + 0.5 * x.detach(),
}


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_cut_behind_the_log_softmax_is_told(how, reduction, dtype):
    """It is no purpose of torch's, and was undecided as well."""
    report = gl.check(lambda x: lost(WRONG[how](x), reduction), scores(3, dtype))

    assert report.verdict == Verdict.DISAGREES
    # scores are no probabilities either: two causes have no one name
    assert report.diagnosis == ("unknown" if how.startswith("scores") else "detached")


def test_one_sequence_alone():
    """Without a batch, by torch's own name for the function too."""
    x = scores(2).detach()[:, 0].requires_grad_()
    lengths = torch.tensor([7]), torch.tensor([3])

    def plain(x):
        return torch.ctc_loss(x, TARGETS[0], *lengths, 0, 2, False)

    def cut(x):
        return plain(0.5 * x + 0.5 * x.detach())

    assert gl.check(plain, x).verdict == Verdict.UNDECIDED
    assert gl.check(cut, x).verdict == Verdict.DISAGREES
