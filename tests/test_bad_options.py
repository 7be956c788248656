"""Options that cannot be used: a sentence with the value, before any work."""

from __future__ import annotations

import pathlib
import traceback

import numpy as np
import pytest

import gradlab as gl
from gradlab.compat import cs231n
from gradlab.errors import GradlabError, InputError

X = np.array([1.0, 2.0])


def f(x):
    """A sum of squares."""
    return (x**2).sum()


def grad(x):
    """Its gradient."""
    return 2 * x


def product(x, v):
    """Its Hessian times a direction."""
    return 2 * v


CASES = {
    "an option that is misspelt": (
        lambda: gl.check(f, X, grd=grad),
        r"check\(\) has no option 'grd'; did you mean grad=\?",
    ),
    "an option of gradcheck": (
        lambda: gl.check(f, X, grad=grad, eps=1e-3),
        r"'eps'; did you mean method=gl.Central\(step=...\)\?",
    ),
    "an option of allclose": (
        lambda: gl.locate(f, X, grad=grad, tol=1e-3),
        r"locate\(\) has no option 'tol'; did you mean rtol= or atol=\?",
    ),
    "one step of a sweep": (
        lambda: gl.sweep(f, X, grad=grad, step=[1e-3]),
        r"sweep\(\) has no option 'step'; did you mean steps=\[...\]\?",
    ),
    "an option that is like no other": (
        lambda: gl.numeric_jacobian(f, X, colour="red"),
        r"'colour'; it has method=, wrt=, .*executor=",
    ),
    "an input by name": (
        lambda: gl.check(f, x=X, grad=grad),
        r"check\(\) takes inputs by position: write check\(fn, ..., x\) for x=",
    ),
    "an input that is called like an option elsewhere": (
        lambda: gl.locate(lambda x, h: h * x, X, h=2.0, grad=grad),
        r"takes inputs by position: write locate\(fn, ..., h\)",
    ),
    "an argument that goes by name alone": (
        lambda: gl.check(lambda x, *, colour: x, X, colour=2.0, grad=grad),
        r"has no option 'colour'; it has",
    ),
    "a misspelt option of a Taylor test": (
        lambda: gl.taylor_test(f, X, grd=grad),
        r"taylor_test\(\) has no option 'grd'; did you mean grad=\?",
    ),
    "an option of an analytic Jacobian": (
        lambda: gl.analytic_jacobian(f, X, Mode="forward"),
        "did you mean mode=",
    ),
    "a budget that is a list": (
        lambda: gl.check(f, X, grad=grad, budget=[]),
        r"budget must be a positive number .* got \[\]",
    ),
    "an infinite budget": (
        lambda: gl.check(f, X, grad=grad, budget=np.inf),
        "budget must be a positive number .* got inf",
    ),
    "a class where settings are wanted": (
        lambda: gl.check(f, X, grad=grad, method=gl.ComplexStep),
        r"is the class gl.ComplexStep; pass an object of it, gl.ComplexStep\(\)",
    ),
    "settings where a sweep wants names": (
        lambda: gl.sweep(f, X, grad=grad, methods=gl.Central(step=0.1)),
        r"must be some of 'central'.* got Central\(step=0.1\)",
    ),
    "a number where a sweep wants names": (
        lambda: gl.sweep(f, X, grad=grad, methods=3),
        "must be some of 'central'.* got 3",
    ),
    "a direction that leads nowhere": (
        lambda: gl.taylor_test(f, X, grad=grad, direction=np.zeros(2)),
        "direction is zero everywhere",
    ),
    "a direction with nan": (
        lambda: gl.taylor_test(f, X, grad=grad, direction=[np.nan, 1.0]),
        "direction must be finite, got .*nan",
    ),
    "a product with too few arguments": (
        lambda: gl.check_hessian(f, X, grad=grad, hvp=lambda x: 2 * x),
        "hvp= raised TypeError: .* called with 2 arguments",
    ),
    "a Hessian of another shape": (
        lambda: gl.check_hessian(f, X, grad=grad, hess=lambda x: np.eye(3)),
        r"shape \(3, 3\), expected \(2, 2\), and real numbers$",
    ),
    "a Hessian that is no array": (
        lambda: gl.check_hessian(f, X, grad=grad, hess=lambda x: "none"),
        "hess= returned",
    ),
    "a tangent map that is no function": (
        lambda: gl.compare_modes(f, X, grad=grad, jvp=3),
        "jvp= must be a function, got int",
    ),
    "a tangent map that raises": (
        lambda: gl.compare_modes(f, X, grad=grad, jvp=lambda x: x),
        "jvp= raised TypeError",
    ),
    "a buffer that cannot be written to": (
        lambda: gl.check_accumulation(lambda: None, {"w": np.broadcast_to(X, (2, 2))}),
        "w is read-only",
    ),
    "a pattern of words": (
        lambda: gl.check_sparsity(f, X, pattern="dense"),
        "pattern for out and x must be numbers.* got 'dense'",
    ),
    "a pattern of unequal indices": (
        lambda: gl.check_sparsity(f, X, pattern=([0, 0], [1])),
        r"of one length, got \(\[0, 0\], \[1\]\)",
    ),
    "a Jacobian of another shape": (
        lambda: gl.analytic_jacobian(f, X, jac=lambda x: np.eye(5)),
        r"has shape \(5, 5\), expected",
    ),
    "a Jacobian that raises": (
        lambda: gl.analytic_jacobian(f, X, grad=lambda x: 1 / 0),
        "grad raised ZeroDivisionError",
    ),
    "parameters in place, and a function that wants them": (
        lambda: gl.check(f, params={"x": X}),
        r"given no inputs, but it needs x; write gl.check\(lambda: ",
    ),
    "a number where a file is meant": (lambda: gl.load(3), "got int 3"),
    "a step that is a word": (
        lambda: cs231n.eval_numerical_gradient(f, X.copy(), False, h="tiny"),
        "h must be a positive number, got 'tiny'",
    ),
    "an infinite step": (
        lambda: cs231n.eval_numerical_gradient(f, X.copy(), False, h=np.inf),
        "h must be a positive number, got inf",
    ),
    "an array that cannot be perturbed": (
        lambda: cs231n.eval_numerical_gradient(f, np.broadcast_to(X, (2, 2)), False),
        "x is read-only",
    ),
    "a function that returns nothing": (
        lambda: cs231n.eval_numerical_gradient(lambda x: None, X.copy(), False),
        "f must return numbers, got NoneType None",
    ),
    "no function": (
        lambda: cs231n.eval_numerical_gradient_array(3, X.copy(), X),
        "f must be a function of x, got int",
    ),
    "an upstream gradient of words": (
        lambda: cs231n.eval_numerical_gradient_array(np.sin, X.copy(), "ones"),
        "df must be an array of numbers, got str",
    ),
    "arrays of two shapes": (
        lambda: cs231n.rel_error(np.ones(3), np.ones(2)),
        r"one shape, got \(3,\) and \(2,\)",
    ),
    "a criterion that wants a target": (
        lambda: gl.check(np.sin, X, loss=lambda out, y: ((out - y) ** 2).sum()),
        r"output alone, and <lambda> needs out, y; pass loss=lambda out: criterion\(",
    ),
    "fewer checks than none": (
        lambda: cs231n.grad_check_sparse(f, X.copy(), 2 * X, -1),
        "num_checks must be an integer >= 0, got -1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_the_value_and_what_was_expected(name):
    """Every one is a sentence of gradlab's own, none a stumble inside."""
    call, words = CASES[name]

    with pytest.raises(GradlabError, match=words):
        call()


def test_an_option_of_an_audit_that_the_model_does_not_know_either():
    """What `blame` hands on, and the model refuses, may have been meant for `blame`."""
    torch = pytest.importorskip("torch")
    layer, x = torch.nn.Linear(2, 2), torch.ones(1, 2)

    with pytest.raises(TypeError, match=r"no option 'los'; did you mean loss=\?"):
        gl.blame(layer, x, los=torch.sum)
    with pytest.raises(GradlabError, match="unexpected keyword argument 'mask'"):
        gl.blame(layer, x, mask=None)
    with pytest.raises(GradlabError, match=r"no option 'budget'; it has loss=, seed="):
        gl.blame(layer, x, budget="10s")


def test_what_raised_in_a_model_is_shown_without_lines_of_gradlab():
    """The user's own lines stay, those of a forward that calls other layers too."""
    torch = pytest.importorskip("torch")

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.inner(x)

    for door in (gl.check, gl.blame):
        with pytest.raises(GradlabError) as caught:
            door(Outer(), torch.ones(1, 3))

        own = pathlib.Path(gl.__file__).parent.as_posix()
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert sum(frame.filename.startswith(own) for frame in frames) == 1
        cause = traceback.extract_tb(caught.value.__cause__.__traceback__)
        assert [f.filename for f in cause if f.filename.startswith(own)] == []
        assert [f.name for f in cause if f.filename == __file__] == ["forward"]


def test_gradients_of_parameters_are_told_where_these_go():
    """Who passes the data, as to the function itself, learns of params=."""
    W = np.ones((2, 2))

    def loss(x):
        return float((x @ W).sum()), {"W": np.outer(x, np.ones(2))}

    with pytest.raises(GradlabError, match=r"no entry for 'x'.* go to params="):
        gl.check(loss, X)


def test_a_file_of_another_kind_is_no_report(tmp_path):
    """And nobody is advised to unpickle it."""
    path = tmp_path / "other.npz"
    path.write_bytes(b"hello")

    with pytest.raises(GradlabError, match="not a report saved by gradlab") as caught:
        gl.load(path)

    assert "pickle" not in str(caught.value)


def test_a_number_of_steps_is_no_step():
    """A float is one step; a whole number was read so, and is asked about."""
    f, x, grad = (lambda x: (x**2).sum()), np.ones(2), (lambda x: 2 * x)

    with pytest.raises(InputError, match=r"logspace\(-12, 0, 40\), or 40.0 for that"):
        gl.sweep(f, x, grad=grad, steps=40)
    assert gl.sweep(f, x, grad=grad, steps=40.0).steps.tolist() == [40]


def test_sweep_of_inputs_at_the_end_of_the_range_has_steps():
    """No step of the ladder is zero for an input of 5e-310."""
    sweep = gl.sweep(
        lambda x: (1e307 * x).sum(), np.array([5e-310]), grad=lambda x: 1e307 + 0 * x
    )

    assert (sweep.steps > 0).all()
    assert sweep.verdicts["x"] < gl.Verdict.DISAGREES


Z = X + 1j


@pytest.mark.parametrize(
    "asked",
    [
        lambda: gl.check_sparsity(lambda x, z: x * z.real, X, Z, pattern=np.eye(2)),
        lambda: gl.check_hessian(f, Z, hvp=product, grad=grad),
        lambda: gl.compare_modes(
            lambda z: z * 2, Z, jvp=lambda z, v: 2 * v, vjp=lambda g, z: (2 * g,)
        ),
    ],
)
def test_complex_inputs_are_refused_by_name(asked):
    """What is for real ones says which is not, and what to do."""
    with pytest.raises(InputError, match=r"real inputs, (x|z) is complex: pass real"):
        asked()


def test_what_is_refused_is_raised_at_the_door():
    """The traceback is the caller's line and one of gradlab's, not a dozen of them.

    What the user's own function raised stays below it, as the cause.
    """
    refused = {
        "the pair": lambda: gl.check(lambda: f(X), params={"x": X}),
        "ZeroDivisionError": lambda: gl.sweep(lambda x: 1 / 0, X, grad=grad),
    }
    for words, ask in refused.items():
        with pytest.raises(gl.GradlabError, match=words) as caught:
            ask()

        depth = [each.name for each in traceback.extract_tb(caught.value.__traceback__)]
        assert depth[-2:] == ["<lambda>", "call"]
        assert len(depth) == 3
    cause = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert cause[-1].filename == __file__


def test_a_torch_function_of_arrays_is_told_to_take_tensors():
    """The message names the mix, and not a pair that nobody meant to return."""
    torch = pytest.importorskip("torch")

    with pytest.raises(GradlabError, match="arrays and the function returned a tensor"):
        gl.check(lambda x: (torch.from_numpy(x) ** 2).sum(), np.ones(3))


def test_tensors_with_a_gradient_by_hand_are_no_numpy_function():
    """The head of the report calls the function by what it takes."""
    torch = pytest.importorskip("torch")

    report = gl.check(lambda x: (x**2).sum(), torch.ones(3), grad=lambda x: 2 * x)

    assert report.subject == "torch function"


@pytest.mark.parametrize("make", [lambda torch: torch.nn.Linear(3, 2), lambda t: t.sin])
def test_arrays_for_what_takes_tensors(make):
    """torch says which argument it is, and the message what to pass."""
    fn = make(pytest.importorskip("torch"))

    for door in (gl.check, gl.sweep, *([gl.blame] if hasattr(fn, "weight") else [])):
        with pytest.raises(
            GradlabError, match=r"pass a tensor, torch\.tensor\(x, dtyp"
        ):
            door(fn, np.ones(3))


@pytest.mark.parametrize(
    ("inputs", "params", "words"),
    [
        ((), [], "nothing to differentiate: got no inputs, and params= holds none"),
        (([1, 2, 3],), None, r"pass np\.array\(x, dtype=float\), or an array of float"),
        (
            (np.array([1.0, 2.0], object),),
            None,
            r"pass x\.astype\(float\), or an array",
        ),
        ((3,), None, r"pass float\(x\), or an array of floating-point numbers"),
        (("word",), None, r"got x: str\); pass at least one array of floating-point"),
    ],
)
def test_where_nothing_can_be_differentiated_the_remedy_fits(inputs, params, words):
    """A list of whole numbers, an array of objects, a setting, and none at all."""
    with pytest.raises(GradlabError, match=words):
        gl.check(lambda x=0: x, *inputs, params=params, grad=lambda x: x)
