"""gradcheck and gradgradcheck reach torch's verdict in every mode and layout.

The truth is torch's own slow mode (or the mode in question), run beside.
"""

from __future__ import annotations

import importlib
import warnings

import pytest

from gradlab.compat.torch import gradcheck, gradgradcheck
from gradlab.compat.torch_troubles import trouble
from gradlab.diagnosis.finding import BugKind
from tests.compat.functions import (
    NoneHater,
    Presuming,
    WrongTangent,
    random,
    restless,
    sparse,
    tripled,
    unconjugated,
    wrong_second,
    wrong_sigmoid,
)

torch = pytest.importorskip("torch")
# torch.autograd.gradcheck is the function of that name
_module = importlib.import_module("torch.autograd.gradcheck")
original, original_second = _module.gradcheck, _module.gradgradcheck


LAYOUTS = (
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)
FAST, FORWARD = {"fast_mode": True}, {"check_forward_ad": True}
ONLY_FORWARD = {"check_forward_ad": True, "check_backward_ad": False}
BATCHED = {"check_batched_grad": True}
BATCHED_FORWARD = {"check_batched_forward_grad": True, "check_forward_ad": True}
# name -> function, inputs, options; torch is asked for the verdict
CASES = {
    "sine": (torch.sin, random(3), {}),
    "a list of inputs": (torch.matmul, [random(2, 3), random(3, 2)], {}),
    "two outputs": (lambda x, y: (x * y, x + y), (random(3), random(3)), {}),
    "an argument that is no tensor": (torch.pow, (random(3).abs() + 1, 3), {}),
    "an input without grad": (torch.mul, (random(3), torch.ones(3).double()), {}),
    "no entries": (torch.sin, random(0), {}),
    "wrong sigmoid": (wrong_sigmoid, random(5), {}),
    "wrong sigmoid, loose": (wrong_sigmoid, random(5), {"atol": 10.0}),
    "wrong sigmoid, fast": (wrong_sigmoid, random(5), FAST),
    "upstream ignored": (tripled, random(3), {}),
    "restless": (restless, random(3), {}),
    "restless, allowed": (restless, random(3), {"nondet_tol": 1e-6}),
    "undefined": (NoneHater.apply, random(3), {}),
    "undefined, not asked": (
        NoneHater.apply,
        random(3),
        {"check_undefined_grad": False},
    ),
    "undefined, presumed": (Presuming.apply, random(3), {}),
    "undefined, presumed, not asked": (
        Presuming.apply,
        random(3),
        {"check_undefined_grad": False},
    ),
    "complex": (
        lambda z: (z * z.conj(), z.exp()),
        random(3, dtype=torch.complex128),
        {},
    ),
    "complex to real": (torch.abs, random(3, dtype=torch.complex128), {}),
    "real to complex": (lambda x: torch.polar(x.exp(), x), random(3), {}),
    "complex, forward": (torch.exp, random(3, dtype=torch.complex128), FORWARD),
    "complex, fast": (torch.exp, random(3, dtype=torch.complex128), FAST),
    "conjugate": (unconjugated, random(3, dtype=torch.complex128), {}),
    "conjugate, fast": (unconjugated, random(3, dtype=torch.complex128), FAST),
    "forward": (torch.sin, random(3), FORWARD),
    "forward, fast": (torch.sin, random(3), FORWARD | FAST),
    "only forward": (torch.sin, random(3), ONLY_FORWARD),
    "wrong tangent": (WrongTangent.apply, random(3), FORWARD),
    "wrong tangent, fast": (WrongTangent.apply, random(3), FORWARD | FAST),
    "wrong tangent, not asked": (WrongTangent.apply, random(3), {}),
    "wrong backward, not asked": (
        lambda x: x.detach() * 2 if not torch.is_grad_enabled() else x * 2,
        random(3),
        ONLY_FORWARD,
    ),
    "batched": (torch.sin, random(3), BATCHED),
    "batched forward": (torch.sin, random(3), BATCHED_FORWARD),
    "not batchable": (WrongTangent.apply, random(3), BATCHED),
    "dtypes": (torch.sin, random(3), {"check_grad_dtypes": True}),
    "detached": (lambda x: x.detach() * 2, random(3), {}),
    "constant": (lambda x: torch.ones(2).double(), random(3), {}),
    "constant, fast": (lambda x: torch.ones(2).double(), random(3), FAST),
    "integers after": (lambda x: (x * x, x.argmax()), random(3), {}),
    "a coarse eps": (lambda x: x.exp(), random(3), {"eps": 0.5}),
}
for _layout in LAYOUTS:
    _word = str(_layout).removeprefix("torch.")
    CASES[f"{_word}, masked"] = (
        lambda x: x.to_dense(masked_grad=True).sin(),
        sparse(_layout),
        {"masked": True},
    )
    CASES[f"{_word}, unmasked"] = (
        lambda x: x.to_dense(masked_grad=False).sin(),
        sparse(_layout),
        {},
    )
    CASES[f"{_word}, fast"] = (
        lambda x: x.to_dense(masked_grad=False).sin(),
        sparse(_layout),
        FAST,
    )
    CASES[f"{_word}, masked gradient"] = (
        lambda x: x.to_dense(masked_grad=True).sin(),
        sparse(_layout),
        {},
    )


def _verdict(check, *arguments, **options):
    """Whether it passes; the type of anything else that is raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's advice on undefined gradients
        try:
            return check(*arguments, raise_exception=False, **options)
        except Exception as error:
            return type(error)


@pytest.mark.parametrize("name", CASES)
def test_verdict_is_that_of_torch(name):
    """On each sub-check, with right and with wrong functions."""
    func, inputs, options = CASES[name]

    expected = _verdict(original, func, inputs, **options)

    assert _verdict(gradcheck, func, inputs, **options) == expected


SECOND = {
    "sine": (torch.sin, random(3), {}),
    "two inputs": (torch.mul, (random(3), random(3)), {}),
    "given": (torch.sin, random(3), {"grad_outputs": random(3, seed=1)}),
    "non-contiguous": (torch.sin, random(3), {"gen_non_contig_grad_outputs": True}),
    "forward over reverse": (torch.sin, random(3), {"check_fwd_over_rev": True}),
    "only forward over reverse": (
        torch.sin,
        random(3),
        {
            "check_fwd_over_rev": True,
            "check_rev_over_rev": False,
            "check_undefined_grad": False,
        },
    ),
    "complex": (torch.exp, random(2, dtype=torch.complex128), {}),
    "fast": (torch.exp, random(3), FAST),
    "wrong": (wrong_second, random(3), {}),
    "wrong, fast": (wrong_second, random(3), FAST),
    "batched": (torch.sin, random(3), BATCHED),
    "flags": (torch.sin, random(3), {"check_rev_over_rev": False}),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_order_verdict_is_that_of_torch(name):
    """With generated and with given cotangents, in both modes."""
    func, inputs, options = SECOND[name]

    expected = _verdict(original_second, func, inputs, **options)

    assert _verdict(gradgradcheck, func, inputs, **options) == expected


def test_cases_tell_whether_undefined_gradients_are_tried():
    """One that is right but for them passes where they are not asked for."""
    name = "undefined, presumed"
    found = [
        _verdict(original, *CASES[n][:2], **CASES[n][2]) for n in CASES if name in n
    ]

    assert found == [False, True]


def test_a_failure_without_a_name_is_unknown():
    """What torch says in words that nobody has read yet is handed on as it is."""
    found = trouble("Something else went wrong")

    assert found.kind == BugKind.UNKNOWN
    assert found.severity == "error"
    assert found.confidence < 0.5
