"""gradcheck and gradgradcheck beside torch's own, on random options.

Same verdict, same class of exception, same words in it, same warnings; where torch is
known to be at fault (the notes of `gradcheck`) the case is left out.
"""

from __future__ import annotations

import importlib
import random
import warnings

import pytest

from gradlab.compat.torch import gradcheck, gradgradcheck
from tests.compat.shelf import SHELF

torch = pytest.importorskip("torch")
_module = importlib.import_module("torch.autograd.gradcheck")

FIRST = {
    "eps": [1e-6, 1e-5, 1e-4],
    "atol": [1e-5, 1e-3, 1e-8],
    "rtol": [1e-3, 1e-1, 1e-6],
    "raise_exception": [True, False],
    "nondet_tol": [0.0, 1e-5],
    "check_undefined_grad": [True, False],
    "check_grad_dtypes": [False, True],
    "check_batched_grad": [False, True],
    "check_batched_forward_grad": [False, True],
    "check_forward_ad": [False, True],
    "check_backward_ad": [True, False],
    "fast_mode": [False, True],
    "masked": [None, True, False],
}
SECOND = {
    "eps": [1e-6, 1e-5],
    "atol": [1e-5, 1e-3],
    "gen_non_contig_grad_outputs": [False, True],
    "raise_exception": [True, False],
    "check_undefined_grad": [True, False],
    "check_batched_grad": [False, True],
    "check_fwd_over_rev": [False, True],
    "check_rev_over_rev": [True, False],
    "fast_mode": [False, True],
    "masked": [False, True],
}
# of gradcheck itself; torch announces other things once in a process
ABOUT = ("double precision", "undefined")


def _options(rng, table):
    return {name: rng.choice(v) for name, v in table.items() if rng.random() < 0.35}


def _knowingly_different(name, options, *, second):
    fast = options.get("fast_mode", False)
    sparse = name.split()[0] in {"coo", "csr", "csc", "bsr", "bsc"}
    return (
        # entries that are not stored count in fast mode as they do in slow mode
        (fast and sparse and not options.get("masked"))
        # torch: a TypeError about arguments that are not there
        or (second and name in {"detached", "constant"})
    )


def _outcome(check, func, inputs, options):
    """Run; return what came of it, and the warnings."""
    torch.manual_seed(5)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = (check(func, inputs, **options), None)
        except Exception as error:
            result = ("raised", error)
    told = [str(w.message) for w in seen]
    return result, {m[:60] for m in told if any(words in m for words in ABOUT)}


@pytest.mark.thinned(2)
@pytest.mark.filterwarnings("ignore")  # beta states, announced once in a process
@pytest.mark.parametrize("name", SHELF)
def test_same_verdict_exception_words_and_warnings(name):
    """Two random sets of options for each function, and one of second order."""
    func, make = SHELF[name]
    rng = random.Random(name)
    for trial in range(3):
        second = trial == 2
        options = _options(rng, SECOND if second else FIRST)
        if _knowingly_different(name, options, second=second):
            continue
        pair = (
            (gradgradcheck, _module.gradgradcheck)
            if second
            else (
                gradcheck,
                _module.gradcheck,
            )
        )
        torch.manual_seed(1)
        mine = make()
        kept = [x.detach().clone() for x in mine if isinstance(x, torch.Tensor)]
        (ours, our_error), our_warnings = _outcome(pair[0], func, mine, options)
        torch.manual_seed(1)
        (theirs, error), their_warnings = _outcome(pair[1], func, make(), options)

        assert ours == theirs, (options, error, our_error)
        assert our_warnings == their_warnings, options
        if error is not None:
            _assert_same_error(our_error, error, options)
        if name != "in place":
            tensors = [x for x in mine if isinstance(x, torch.Tensor)]
            _assert_untouched(tensors, kept)


def _assert_same_error(ours, theirs, options):
    if isinstance(theirs, _module.GradcheckError):
        assert isinstance(ours, _module.GradcheckError), options
        told = " ".join(map(str, theirs.args)).strip().splitlines()[0]
        assert told[:50] in str(ours), options
    else:
        assert isinstance(ours, type(theirs)), options
        assert str(ours) == str(theirs), options


def _assert_untouched(tensors, kept):
    for tensor, before in zip(tensors, kept, strict=True):
        here, there = tensor.detach(), before
        if tensor.layout != torch.strided:
            here, there = here.to_dense(), there.to_dense()
        assert torch.equal(here, there)
        assert not tensor.is_leaf or tensor.grad is None
