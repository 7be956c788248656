"""Right gradients at ties, zeros, dead zones, and beside numbers far larger."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl

DISAGREES = gl.Verdict.DISAGREES


def shrunk(x):
    """Nothing within a half of zero, and nearer to zero by a half elsewhere."""
    return np.sign(x) * np.maximum(np.abs(x) - 0.5, 0.0)


@pytest.mark.parametrize("dead", [-0.18, 0.05, 0.4])
@pytest.mark.parametrize("large", [3e7, 1.3e8])
def test_a_dead_zone_beside_large_entries(dead, large):
    """Over steps that suit 1e8 its slope is 1; within it, 0 is right and 1 wrong."""
    x = np.array([dead, large, -0.3 * large, 1.7])

    def f(x):
        return shrunk(x).sum()

    def grad(x):
        return 1.0 * (np.abs(x) > 0.5)

    assert gl.check(f, x, grad=grad).verdict < DISAGREES
    assert gl.check(f, x, grad=np.ones_like).verdict == DISAGREES


def test_a_kink_that_longer_steps_pass_over():
    """The largest so far of four times 1e-8: behind the pole f is another function."""
    x = np.array([1e-8, 1e-8, 1e-8, 1e-8, 1.0, 1e-8, 0.5, 0.9])

    def f(x):
        return 1 / np.minimum.accumulate(1 / x)

    def jac(x, place=0):
        largest = np.array([4 if k > 3 else max(k - place, 0) for k in range(8)])
        return np.eye(8)[largest]

    assert gl.check(f, x, jac=jac).verdict < DISAGREES
    assert gl.check(f, x, jac=lambda x: 2 * jac(x)).verdict == DISAGREES


def valley(x):
    """From -0.5 down with a slope of -0.5, and up again to the same height at 0.5."""
    apart = np.abs(shrunk(x) - x)
    return np.where(apart < 1, apart**2 / 2, apart - 0.5) - 1.0


@pytest.mark.parametrize("largest", [3.0, 6.0, 40.0])
def test_a_side_that_long_steps_pass_over(largest):
    """At -0.5 the slopes are 0 and -0.5, however flat the two ends of a long step."""
    x = np.array([-3.0, 0.0, largest, -0.5, 3.0])
    found = gl.numeric_jacobian(valley, x)
    column = np.diag(found.value)[3], np.diag(found.error)[3]
    assert abs(column[0] + 0.25) < 1e-6
    assert abs(column[1] - 0.25) < 1e-6


@pytest.mark.parametrize("large", [3e7, 1.8e8])
def test_what_no_last_digit_of_f_shows_is_left_open(large):
    """Of 3e16 nothing tells the slope at 0.7 from that of a square further away."""
    x = np.array([0.68, 1.7, -large, 0.22])

    def f(x):
        return (x**2 / (1 + np.exp(-(x**2)))).sum()

    def grad(x):
        s = 1 / (1 + np.exp(-(x**2)))
        return 2 * x * (s + x**2 * s * (1 - s))

    assert gl.check(f, x, grad=grad).verdict < DISAGREES
    assert gl.check(f, x, grad=lambda x: 1.01 * grad(x)).verdict == DISAGREES
    x[2] = 30.0  # now it is seen
    assert gl.check(f, x, grad=grad).verdict == gl.Verdict.AGREES
    assert gl.check(f, x, grad=lambda x: 2 * x).verdict == DISAGREES


@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_a_tie_beside_a_kink_of_another_input(factor):
    """The gradient of a quantile is that of a point beside, whatever z does there."""

    def f(x, z):
        low, middle, _ = np.sort(x)
        return (0.2 * low + 0.8 * middle) * 3.0 + np.abs(z).sum()

    def vjp(up, x, z):
        first, second, _ = np.argsort(x, kind="stable")
        dx = np.zeros(3)
        dx[first], dx[second] = 0.6, 2.4 * factor
        return up * dx, up * np.sign(z)

    found = gl.check(f, np.ones(3), np.array([0.0, 2.0, -1.0]), vjp=vjp)
    assert (found.verdict < DISAGREES) is (factor == 1.0)


def test_rounding_of_a_slope_that_is_zero():
    """softmin beside 1e8: what is left of p - p is 1e-17, and moves nothing."""
    torch = pytest.importorskip("torch")
    from tests.specimens.functions import with_backward

    def both(x, z):
        least = torch.nn.functional.softmin(torch.sort(x).values, -1)
        return (x @ x - x @ x).abs() * x[-1] + least.sum() + z @ z

    def backward(x, z, up):
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_(), z.detach().requires_grad_()]
            return torch.autograd.grad(both(*inputs), inputs, up)

    x = torch.tensor(
        [
            0.030574592978163704,
            0.08215534859035256,
            0.9178193698112793,
            0.42916983989506746,
            100000000.0,
            0.5672635592774679,
            0.04102794085559459,
        ],
        dtype=torch.float64,
    )
    z = torch.tensor([0.22979840102102014, 0.5697705537196508], dtype=torch.float64)
    written = with_backward(both, backward)
    found = gl.check(written, x.requires_grad_(), z.requires_grad_())
    assert found.verdict < DISAGREES


def test_a_gradient_of_nothing_but_rounding_is_no_misread_memory():
    """That of softmax(x).sum() is zero by cancellation, in each memory another one."""
    torch = pytest.importorskip("torch")

    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, z):
            ctx.save_for_backward(torch.softmax(x, -1))
            return z + torch.softmax(x, -1).sum()

        @staticmethod
        def backward(ctx, up):
            (p,) = ctx.saved_tensors
            from_sum = up.sum().expand(p.shape)
            return p * (from_sum - (p * from_sum).sum()), up.clone()

    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        x, z = (
            torch.randn(n, generator=generator, dtype=torch.float64).requires_grad_()
            for n in (5, 6)
        )
        assert gl.check(Shifted.apply, x, z).ok


def test_conventions_of_torch_that_do_not_add_up_are_nobodys_mistake():
    """Where all are equal, the gradient of a deviation is that of their rounding."""
    torch = pytest.importorskip("torch")
    x = torch.full((3,), 1e-8, dtype=torch.float64, requires_grad=True)
    found = gl.check(lambda x: 5 * x.std(), x)
    assert found.verdict == gl.Verdict.UNDECIDED
    assert found.ok
