"""Casts to half precision inside a model accuse nobody, and hide no mistake."""

from __future__ import annotations

import functools

import pytest

import gradlab as gl
from gradlab.differentiation.metering.meter import BudgetExhausted
from tests.specimens.functions import bent, with_backward

torch = pytest.importorskip("torch")
nn = torch.nn


class Bend(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return bent(x, self.factor)


class Block(nn.Module):
    """Attention and a residual, which round what they hand on."""

    def __init__(self, factor):
        super().__init__()
        self.all, self.out = nn.Linear(4, 12), nn.Linear(4, 4)
        self.norm, self.bend = nn.LayerNorm(4), Bend(factor)

    def forward(self, x):
        q, k, v = self.all(self.norm(x)).split(4, dim=-1)
        weights = (q @ k.mT / 2).softmax(dim=-1)
        mixed = x + self.out(self.bend(weights @ v))
        return mixed.bfloat16().to(x.dtype)


def model(seed, dtype, factor=1.0):
    """A small model, what it is called with, and a loss."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 4), Block(factor), nn.LayerNorm(4))
    x, target = torch.randn(3, 2, dtype=dtype), torch.randn(3, 4, dtype=dtype)
    return net.to(dtype), x, lambda out: ((out - target) ** 2).mean()


@functools.cache
def checked(seed, dtype):
    """Return what a whole check says of a right model."""
    net, x, loss = model(seed, dtype)
    return gl.check(net, x, loss=loss)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(3))
def test_model_that_rounds_is_right(seed, dtype):
    """Neither a check nor an audit accuses a model for its casts; both tell of them."""
    net, x, loss = model(seed, dtype)

    report, audit = checked(seed, dtype), gl.blame(net, x, loss=loss)

    assert report.ok
    assert "low_precision" in {str(f.kind) for f in report.findings}
    assert audit.culprits == ()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("factor", "kind"), [(-1.0, "sign"), (1.5, "scale"), (0.0, "detached")]
)
def test_mistake_in_a_model_that_rounds(factor, kind, dtype):
    """A wrong layer between the casts is the one that is named, with its kind."""
    net, x, loss = model(0, dtype, factor)

    report, audit = gl.check(net, x, loss=loss), gl.blame(net, x, loss=loss)

    first = report.findings[0]
    assert (first.where, first.kind, first.severity) == ("1.bend", kind, "error")
    assert audit.culprits == ("1.bend",)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_casts_are_left_out_before_anything_is_compared(dtype):
    """No entry is worth hundreds of steps over the stairs of a cast: 3,000 before."""
    report = checked(0, dtype)

    assert report.evaluations < 4 * sum(c.input.size for c in report.comparisons)


@pytest.mark.parametrize("budget", [6, 14, 30])
def test_what_a_small_budget_came_to_is_handed_on(budget):
    """Nothing is left for a second look, with the casts: the first one stands."""
    call = lambda x: torch.softmax(torch.tanh(x).half(), -1).float()

    report = gl.check(call, torch.randn(3, 4), coverage="full", budget=budget)

    assert report.partial == (budget < 24)
    assert report.verdict == (
        gl.Verdict.UNDECIDED if report.partial else gl.Verdict.AGREES
    )


def test_a_constant_that_is_cast_leaves_no_stairs():
    """What does not move with the inputs does not stand still either."""
    table = torch.randn(3, 3)

    report = gl.check(lambda x: x @ table.half().float(), torch.randn(2, 3))

    assert report.ok
    assert {finding.severity for finding in report.findings} <= {"note"}


def test_backward_that_rounds_has_no_excuse():
    """Casts are left out for the sake of forward: a backward may not cast by itself."""
    own_short = with_backward(
        lambda x: x.exp(), lambda x, up: (up * x.exp()).bfloat16().double()
    )

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)

    assert not gl.check(own_short, x).ok


def test_gradient_that_is_wrong_in_half_precision_alone():
    """What a backward does with short numbers only is still held against it."""
    fickle = with_backward(
        lambda x: 1.0 * x, lambda _x, up: -up if up.dtype == torch.bfloat16 else up
    )

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    call = lambda x: (fickle(x.bfloat16()).double() * x).sum()

    assert not gl.check(call, x).ok


@pytest.mark.parametrize("stop", [KeyboardInterrupt, BudgetExhausted])
def test_second_check_that_is_cut_short_accuses_nobody(stop, monkeypatch):
    """Whether the casts explain what disagrees was not found out, and that is said."""
    hidden = with_backward(  # of what comes, and not of an input: it is found last
        lambda x: ((1 * x).half() ** 3).float(), lambda x, up: 3 * x**2 * up
    )
    torch.manual_seed(5)
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    whole = gl.check(hidden, x).remarks
    assert any("casts to half precision left out" in remark for remark in whole)

    def ends(*_, **__):
        raise stop

    monkeypatch.setattr("gradlab.pipeline.unrounded.examine", ends)
    report = gl.check(hidden, x)

    assert report.partial
    assert report.verdict == gl.Verdict.UNDECIDED
    assert not report.culprits
    assert any("casts to half" in remark for remark in report.remarks)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_what_a_cast_leaves_open_is_settled_without_it(factor, dtype):
    """A cube in half precision, widened by float(), is told from one 5 % wrong."""
    cube = with_backward(
        lambda x: (x.half() ** 3).float(), lambda x, up: factor * 3 * x**2 * up
    )

    torch.manual_seed(5)
    x = torch.randn(5, 4, dtype=dtype, requires_grad=True)

    report = gl.check(cube, x)

    expected = gl.Verdict.AGREES if factor == 1 else gl.Verdict.DISAGREES
    assert report.verdict == expected
    kinds = {(str(f.kind), f.severity) for f in report.findings}
    assert ("low_precision", "warning") in kinds
    assert (("scale", "error") in kinds) == (factor != 1)


class Cast(nn.Module):
    """Hands on what half precision leaves of it."""

    def forward(self, x):
        return x.half().to(x.dtype)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_a_bias_that_a_batch_norm_takes_away_is_no_other_gradient(factor, seed):
    """Its gradient is zero without the cast, and with it a billionth of the others."""
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), Bend(factor), Cast()
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 3))

    report = gl.check(net, torch.randn(4, 1, 4, 4), loss=lambda out: (out**2).mean())

    right = factor == 1.0
    wanted = gl.Verdict.AGREES if right else gl.Verdict.DISAGREES
    assert report.verdict == wanted, report


class Noise(nn.Module):
    """Adds numbers that are others in float64 from the same seed."""

    def forward(self, x):
        return x + 0.3 * torch.rand_like(x)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("random", [nn.Dropout(0.3), Noise()], ids=["mask", "noise"])
@pytest.mark.parametrize("factor", [1.0, 1.1])
@pytest.mark.parametrize("seed", [11, 12])
def test_random_numbers_are_the_same_without_the_casts(seed, factor, random):
    """Another mask has another gradient: right models in training were accused."""
    torch.manual_seed(seed)
    layers = nn.Linear(5, 6), random, nn.Linear(6, 6), Bend(factor), nn.Linear(6, 3)
    net = nn.Sequential(*layers, Cast())

    report = gl.check(net, torch.randn(7, 5), loss=lambda out: (out**2).mean())

    right = factor == 1.0
    wanted = gl.Verdict.AGREES if right else gl.Verdict.DISAGREES
    assert report.verdict == wanted, report
    assert right or report.culprit == "3"


class _Rounded(nn.Module):
    """Activations in bfloat16, and a gradient behind them that may be scaled."""

    def __init__(self, seed, share=1.0):
        super().__init__()
        torch.manual_seed(seed)
        self.a, self.b, self.share = nn.Linear(4, 6), nn.Linear(6, 2), share

    def forward(self, x):
        h = torch.tanh(self.a(x))
        h = self.share * h + (1 - self.share) * h.detach()
        return self.b(h.to(torch.bfloat16).float())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", [0, 1, 77])
@pytest.mark.parametrize("share", [1.0, 0.9])
def test_a_cast_along_directions(seed, share):
    """By directions first, entry by entry then: what is apart is seen all the same."""
    model = _Rounded(seed, share)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))

    report = gl.check(model, x.requires_grad_(), coverage="probe")

    right = share == 1
    assert report.verdict == (gl.Verdict.AGREES if right else gl.Verdict.DISAGREES)


# Softmax in single precision of what is float64, with one slope times a factor.
def softmax_backward(x, factor, _back, up):
    p, up = (torch.softmax(x.float(), -1), up.float())
    found = (p * (up - (up * p).sum(-1, keepdim=True))).double()
    found.view(-1)[found.abs().argmax()] *= factor
    return (found, None, None)


softmax = with_backward(
    lambda x, factor, back: torch.softmax(x.float(), -1).to(back), softmax_backward
)


def single(factor, back, coverage="auto"):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, generator=generator).double().requires_grad_()
    return gl.check(lambda x: softmax(x, factor, back), x, coverage=coverage)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("coverage", ["auto", "probe"])
@pytest.mark.parametrize("back", [torch.float64, torch.float32])
def test_casts_to_single_precision_hide_no_mistake(back, coverage):
    """One slope of one in ten thousand too much is told, a right gradient is right.

    With the casts error bars are as wide as that.
    """
    wrong, right = single(1.0001, back, coverage), single(1.0, back, coverage)

    assert wrong.verdict == gl.Verdict.DISAGREES
    assert right.verdict == gl.Verdict.AGREES
    assert all((c.numeric_error < 1e-9).all() for c in right.comparisons)


def test_single_precision_is_not_called_half():
    """The note names what was left out."""
    (note,) = [
        f for f in single(1.0, torch.float64).findings if f.kind == "low_precision"
    ]

    assert note.severity == "note"
    assert "casts to single precision" in note.evidence
    assert "half" not in note.evidence


def test_another_function_without_its_casts_settles_nothing():
    """Where gradients change with the casts, the function is judged as it is."""

    def f(x):
        short = x.float()
        return (2.0 if short.dtype == torch.float32 else 3.0) * short.sin().double()

    x = torch.linspace(0.1, 1.0, 4).double().requires_grad_()
    report = gl.check(f, x)

    assert report.verdict != gl.Verdict.DISAGREES
    assert "left out" not in str(report)


# Computes the sine in full, and keeps for its backward what three digits say of x.
short_memory = with_backward(
    torch.sin, lambda x, up: up * x.bfloat16().to(x.dtype).cos()
)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_cast_of_the_backward_alone_is_no_excuse(dtype):
    """What is computed is as smooth as ever; its gradient is off by half a percent."""
    x = torch.tensor([0.3, -1.2, 0.9, 2.1, 0.77], dtype=dtype, requires_grad=True)

    report = gl.check(short_memory, x)

    assert report.verdict == gl.Verdict.DISAGREES
    assert report.culprits == ("x",)


class Slow(nn.Module):
    """One tensor moves the output by a millionth, and the output has seven digits."""

    def __init__(self, factor):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.slow, self.last = (nn.Linear(5, 5).double() for _ in range(3))
        self.bend = Bend(factor)
        with torch.no_grad():
            self.slow.weight.mul_(1e-4)

    def forward(self, x):
        hidden = self.first(x)
        rate = self.bend(self.slow(hidden)).exp().float().double()
        return (self.last(hidden) + 1e-2 * rate).float().double()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_directions_of_both_checks_need_not_be_the_same(seed, factor):
    """Gradients along other directions are other numbers, and no other gradient."""
    torch.manual_seed(seed + 1)
    x = torch.randn(4, 5, dtype=torch.float64)

    report = gl.check(
        Slow(factor),
        x,
        loss=lambda out: (out**2).sum(),
        coverage="probe",
        seed=seed,
    )

    assert "casts to single precision left out" in str(report)
    right = gl.Verdict.AGREES if factor == 1.0 else gl.Verdict.DISAGREES
    assert report.verdict == right


def test_a_share_of_nothing_is_told_as_nothing():
    """Where casts change no gradient, no per cent of it is named."""
    x = torch.linspace(0.1, 1.0, 4).double().requires_grad_()
    report = gl.check(lambda x: x.float().double() + x.sin(), x)

    assert "With them the gradient is the same" in str(report)
