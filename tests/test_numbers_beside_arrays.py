"""Plain numbers among arrays: settings, or parameters if a gradient comes back."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputTypeError

W = np.array([0.4, -1.3])


def loss_and_grads(p, factor=1.0):
    """A product of an array and of a number that is a parameter too."""
    total = (p["w"] ** 2).sum()
    return total * p["b"], {"w": 2 * p["w"] * p["b"], "b": factor * total}


def test_a_number_that_has_a_gradient_is_judged():
    """A dict of parameters may hold plain numbers; theirs is a gradient like others."""
    params = {"w": W, "b": 0.7}

    right = gl.check(loss_and_grads, params)
    wrong = gl.check(lambda p: loss_and_grads(p, 1.05), params)

    assert right.verdict is gl.Verdict.AGREES
    assert set(right.table["input"]) == {"w", "b"}
    assert wrong.culprits == ("b",)


@pytest.mark.parametrize("side", ["vjp", "backward", "grad", "jac"])
def test_every_analytic_side_may_have_one(side):
    """A gradient in the place of a positional number makes it a parameter."""

    def forward(x, scale):
        return (scale * np.sin(x)).sum()

    def gradients(x, scale, factor):
        return scale * np.cos(x), factor * np.sin(x).sum()

    def check(factor):
        if side == "vjp":
            options = {"vjp": lambda d, *a: [d * g for g in gradients(*a, factor)]}
        elif side == "backward":
            options = {"backward": lambda d, a: [d * g for g in gradients(*a, factor)]}
            return gl.check(
                lambda x, scale: (forward(x, scale), (x, scale)), W, 0.7, **options
            )
        else:
            options = {side: lambda *a: gradients(*a, factor)}
        return gl.check(forward, W, 0.7, **options)

    assert check(1.0).verdict is gl.Verdict.AGREES
    assert check(1.05).culprits == ("scale",)


@pytest.mark.parametrize("returned", ["none of it", "None"])
def test_a_number_without_a_gradient_is_a_setting(returned):
    """No gradient, and None, say that nobody differentiates by it."""

    def grad(x, rate):
        return 2 * x * rate if returned == "none of it" else (2 * x * rate, None)

    report = gl.check(lambda x, rate: rate * (x**2).sum(), W, 0.7, grad=grad)

    assert report.verdict is gl.Verdict.AGREES
    assert list(report.table["input"]) == ["x"]


def test_wrt_may_ask_for_a_number():
    """Then it is differentiated, and the arrays are not."""
    right = gl.check(loss_and_grads, {"w": W, "b": 0.7}, wrt="b")
    jacobian = gl.numeric_jacobian(lambda x, s: s * x, W, 0.7, wrt="s")

    assert list(right.table["input"]) == ["b"]
    assert np.allclose(jacobian.value, W)


def test_asking_once_more_draws_nothing():
    """The random state of a function that draws is as it was."""

    def noisy(p):
        return loss_and_grads({**p, "w": p["w"] + 0 * np.random.rand()})

    before = np.random.get_state()[1].copy()

    report = gl.check(noisy, {"w": W, "b": 0.7})

    assert set(report.table["input"]) == {"w", "b"}
    assert (np.random.get_state()[1] == before).all()


def test_a_number_that_is_read_in_place_is_refused():
    """Nobody can perturb it where it is; that its gradient is not judged must show."""
    params = {"w": W.copy(), "b": 0.7}

    with pytest.raises(InputTypeError, match=r"params\['b'\] is a float.* shape \(\)"):
        gl.check(lambda: loss_and_grads(params), params=params)

    assert gl.check(lambda: loss_and_grads(params), params=params, wrt="w").ok


@pytest.mark.parametrize("option", ["wrt", "names"])
def test_what_holds_no_names_is_refused_in_a_sentence(option):
    """A number where a name is expected is shown with its value."""
    with pytest.raises(InputTypeError, match=f"{option}= must be a name .* int 3"):
        gl.check(lambda x: (x**2).sum(), W, grad=lambda x: 2 * x, **{option: 3})


CONTAINERS = {
    "a list of one": ([W], lambda p, c: [2 * c * p[0]]),
    "a whole number between": ([W, 3, -W], lambda p, c: [2 * p[0], None, 2 * c * p[2]]),
    "a number behind": ([W, 0.7], lambda p, c: [2 * p[0], 1.4 * c]),
    "a tuple in a tuple": ((W, (0.7, 2)), lambda p, c: (2 * p[0], (1.4 * c, None))),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_gradients_of_one_container_stand_where_its_parts_stand(name):
    """Whatever else the container holds, with None for it."""
    params, gradients = CONTAINERS[name]

    def f(p):
        return sum((np.asarray(part) ** 2).sum() for part in flat(p))

    right = gl.check(f, params, grad=lambda p: gradients(p, 1.0))
    wrong = gl.check(f, params, grad=lambda p: gradients(p, 1.05))

    assert right.verdict is gl.Verdict.AGREES
    assert right.findings == ()
    assert wrong.verdict is gl.Verdict.DISAGREES
    assert wrong.diagnosis != "wrong_shape"


def flat(parts):
    """Leaves of a nested tuple."""
    for part in parts:
        yield from flat(part) if isinstance(part, tuple | list) else [part]


@pytest.mark.parametrize(("dtype", "said"), [(np.float32, False), (np.float64, True)])
def test_a_number_has_the_precision_of_the_arrays_it_meets(dtype, said):
    """A float32 gradient of a number has lost digits only beside float64 arrays."""
    x = W.astype(dtype)

    def scaled(x, factor):
        loss = (np.float32(factor) * x).sum()
        return loss, (np.full_like(x, factor), np.float32(x.sum()))

    report = gl.check(scaled, x, 3.0)

    assert {c.input.name for c in report.comparisons} == {"x", "factor"}
    assert ("dtype" in {str(f.kind) for f in report.findings}) is said


@pytest.mark.parametrize("back", [np.asarray, np.ndarray.tolist])
def test_a_matrix_written_as_lists_is_one_input(back):
    """Its gradient may be an array or lists; it was four numbers with one array."""

    def loss(W):
        return float((np.asarray(W) ** 2).sum())

    def grad(W):
        return back(2 * np.asarray(W))

    report = gl.check(loss, [[1.0, 2.0], [3.0, 4.0]], grad=grad)

    assert report.verdict is gl.Verdict.AGREES
    assert report["W"].analytic.tolist() == [[2.0, 4.0, 6.0, 8.0]]
