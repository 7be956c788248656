"""gradcheck and gradgradcheck: torch's exceptions, a report behind, old defects gone.

The truth of a verdict is torch beside; of the differences, the algebra of the case.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

import gradlab as gl
from gradlab.compat.torch import gradcheck, gradgradcheck
from tests.compat.functions import (
    random,
    restless,
    tripled,
    unconjugated,
    wrong_second,
    wrong_sigmoid,
)
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
# torch.autograd.gradcheck is the function of that name
_module = importlib.import_module("torch.autograd.gradcheck")
original = _module.gradcheck
GradcheckError = _module.GradcheckError
# torch itself warns when forward mode is first used
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
FAST, FORWARD = {"fast_mode": True}, {"check_forward_ad": True}


@pytest.mark.parametrize(
    ("inputs", "options"),
    [
        (torch.ones(3).double(), {}),
        (torch.ones(1).double().requires_grad_().expand(3), {}),
        (random(3), {"check_backward_ad": False}),
        (
            random(3),
            {"check_backward_ad": False, "check_batched_grad": True} | FORWARD,
        ),
        (random(3), {"check_batched_forward_grad": True}),
    ],
)
def test_bad_calls_raise_what_torch_raises(inputs, options):
    """Same type, same words, and raise_exception=False does not swallow them."""
    with pytest.raises(Exception) as expected:
        original(torch.sin, inputs, raise_exception=False, **options)

    with pytest.raises(expected.type, match=re.escape(str(expected.value))):
        gradcheck(torch.sin, inputs, raise_exception=False, **options)


def test_single_precision_is_warned_of():
    """As torch does."""
    with pytest.warns(UserWarning, match="double precision"):
        gradcheck(lambda x: x * 2, torch.ones(2, requires_grad=True), atol=1.0)


# ------------------------------------------------------------------ the exception
@pytest.fixture
def failure():
    with pytest.raises(GradcheckError) as caught:
        gradcheck(wrong_sigmoid, random(5), eps=1e-6, atol=1e-4)
    return caught.value


def test_exception_is_torchs_own(failure):
    """Existing except clauses keep working, gradlab's do too."""
    from gradlab.compat.torch import GradcheckError as ours

    assert isinstance(failure, ours)
    assert isinstance(failure, RuntimeError | gl.GradlabError)
    assert issubclass(ours, GradcheckError)


def test_message_names_place_values_and_cause_then_the_familiar_line(failure):
    """Output, input, worst index, both values, likely cause, torch's first line."""
    lines = str(failure).splitlines()
    x = random(5).detach()
    analytic = x.sigmoid() * (1 + x.sigmoid())
    numeric = x.sigmoid() * (1 - x.sigmoid())
    worst = int(((analytic - numeric) / (1e-4 + 1e-3 * numeric)).argmax())

    assert "output 0 (out)" in lines[0]
    assert "input 0 (x)" in lines[0]
    assert f"out[{worst}] / x[{worst}]" in lines[1]
    assert float(lines[2].split()[1]) == pytest.approx(float(analytic[worst]), 1e-5)
    assert float(lines[3].split()[1]) == pytest.approx(float(numeric[worst]), 1e-4)
    assert any("likely cause  wrong_derivative in x" in line for line in lines)
    assert "Jacobian mismatch for output 0 with respect to input 0," in lines


def test_the_code_that_is_wrong_is_the_users():
    """A Function at work in a function of one's own, which the message names."""
    twice = with_backward(lambda x: x**2, lambda x, g: g * x)

    def energy(x):
        return twice(x).sum() + x.sum()

    with pytest.raises(GradcheckError, match="in `energy` is wrong"):
        gradcheck(energy, random(5))


def test_report_holds_the_same_jacobians(failure):
    """Analytic and numeric as torch would have printed them, and the verdicts."""
    x = random(5).detach()
    block = failure.report["x"]

    assert failure.report.verdict == gl.Verdict.DISAGREES
    assert failure.report.culprit == "x"
    exact = torch.diag(x.sigmoid() * (1 + x.sigmoid())).numpy()
    assert block.analytic == pytest.approx(exact)
    assert block.numeric == pytest.approx(
        torch.diag(x.sigmoid() * (1 - x.sigmoid())).numpy(), abs=1e-8
    )
    assert (block.verdicts > 0).sum() == 5
    assert len(failure.report.table) == 1


def test_a_bad_step_is_told_from_a_bad_gradient():
    """exp with eps = 0.5: the gradient is right, the difference is not."""
    with pytest.raises(GradcheckError, match="likely cause  step_size") as caught:
        gradcheck(torch.exp, random(3), eps=0.5)

    assert caught.value.report.ok  # no finding accuses the gradient
    assert caught.value.report.verdict == gl.Verdict.DISAGREES


@pytest.mark.parametrize(
    ("func", "kind", "line"),
    [
        (tripled, None, "Jacobian mismatch|not multiplied by grad_output"),
        (restless, "nondeterministic", "Backward is not reentrant"),
        (lambda x: x.detach() * 2, "detached", "expected to be zero"),
    ],
)
def test_other_failures_have_a_cause_and_the_familiar_words(func, kind, line):
    """Each sub-check of its own: a finding in the report, torch's sentence."""
    with pytest.raises(GradcheckError, match=line) as caught:
        gradcheck(func, random(3))

    assert not caught.value.report.ok
    assert kind in (None, caught.value.report.diagnosis)


def test_part_of_a_complex_output_is_named():
    """With torch's words, and in the name of the block."""
    z = random(2, dtype=torch.complex128)
    with pytest.raises(GradcheckError, match="While considering the imaginary") as e:
        gradcheck(unconjugated, z)

    assert [c.output.name for c in e.value.report.comparisons] == ["out.imag"]


def test_position_of_an_input_is_the_users():
    """Torch counts differentiable inputs; the first line counts arguments."""
    with pytest.raises(GradcheckError, match=r"input 1 \(x\)") as caught:
        gradcheck(lambda n, x: wrong_sigmoid(x) * n, (2.0, random(2)))

    assert "Jacobian mismatch for output 0 with respect to input 0," in str(
        caught.value
    )


def test_second_order_failure_names_the_gradient():
    """The report is about the gradient of the function."""
    with pytest.raises(GradcheckError, match="the gradient of Function") as caught:
        gradgradcheck(wrong_second, random(3))

    assert caught.value.report.culprit == "x"


# ------------------------------------------------------------------ not inherited
@pytest.mark.parametrize(
    "func",
    [
        lambda x: (x.argmax(), x * x),
        lambda x: (None, x * x),
        lambda x: (x * x, 3, 2.5, True, None),
        lambda x: (x.detach(), x.argmax(), x * x),
    ],
)
@pytest.mark.parametrize("options", [{}, FAST, FORWARD, FORWARD | FAST])
def test_outputs_without_gradient_may_stand_anywhere(func, options):
    """Torch raises IndexError or AttributeError, or compares different outputs."""
    assert gradcheck(func, random(3), **options)


def test_a_function_of_no_tensor_is_refused():
    """A dict of tensors must not pass because nothing of it was looked at."""
    with pytest.raises(gl.GradlabError, match="dict"):
        gradcheck(lambda x: {"y": x}, random(3))


def test_overlap_behind_as_strided_is_noticed():
    """Two entries at one address: torch blames the gradient."""
    x = torch.randn(4).double().as_strided((3, 2), (1, 1)).requires_grad_()

    with pytest.raises(RuntimeError, match="share memory"):
        gradcheck(torch.sin, x)


def test_interleaved_strides_are_no_overlap():
    """Offsets 0, 2, 4, 3, 5, 7: odd, but all different."""
    x = torch.randn(8).double().as_strided((2, 3), (3, 2)).requires_grad_()

    assert gradcheck(torch.sin, x)


# Sum of squares; one entry of the gradient is 10,000 times too large.
def one_wrong_entry_backward(x, grad):
    slope = 0.0002 * x
    slope[123456] *= 10000.0
    return grad * slope


one_wrong_entry = with_backward(
    lambda x: 0.0001 * (x * x).sum(), one_wrong_entry_backward
)


def test_fast_mode_sees_one_wrong_entry_of_657409():
    """A 10,000-fold error; the all-positive directions of torch let it pass."""
    x = random(657_409)

    assert original(one_wrong_entry, x, fast_mode=True, check_undefined_grad=False)
    with pytest.raises(GradcheckError, match="along random directions") as caught:
        gradcheck(one_wrong_entry, x, fast_mode=True)

    assert "x[123456]" in str(caught.value)  # found again by group testing


def test_fast_mode_does_not_accuse_a_large_right_function():
    """The tolerance does not grow with the number of entries, and need not."""
    assert gradcheck(lambda x: x.exp().sum().log(), random(300_000), fast_mode=True)


def test_slow_mode_decides_where_fast_mode_doubts():
    """A loose atol forgives every entry by itself, as it does in slow mode."""
    assert gradcheck(wrong_sigmoid, random(5), fast_mode=True, atol=10.0)


# ------------------------------------------------------------------ no side effects
def test_inputs_are_put_back_if_the_function_raises():
    """Torch leaves the perturbed entry behind."""
    x = random(3)
    before, calls = x.detach().clone(), []

    def fails(x):
        calls.append(0)
        if len(calls) == 3:
            raise KeyError("here")
        return x * 2

    with pytest.raises(KeyError):
        gradcheck(fails, x)

    assert torch.equal(x.detach(), before)


def test_random_state_is_untouched():
    """Batched checks, and generated cotangents, draw from the global generator."""
    before = torch.get_rng_state()
    gradcheck(torch.sin, random(3), check_batched_grad=True)
    gradgradcheck(torch.sin, random(3))

    assert torch.equal(torch.get_rng_state(), before)


def test_import_of_the_package_leaves_torch_alone():
    """Only a call, or asking for the exception, loads it."""
    code = "import sys, gradlab.compat.torch; print('torch' in sys.modules)"
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, check=True, text=True)

    assert done.stdout.strip() == "False"
