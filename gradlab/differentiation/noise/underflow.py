"""What half precision loses of small gradients, and a scaled loss would keep.

Below 6e-5 float16 has fewer and fewer digits, and below 3e-8 it has zero. A power of
two on the incoming gradient changes no other digit of a backward pass, which is why
losses are scaled where models are trained in it: what then comes out right, divided by
the same power, was lost to underflow and to nothing else.

References
----------
Micikevicius et al., *Mixed Precision Training*, ICLR 2018, section 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.subject import DOUBLE, is_torch_subject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject

__all__ = ["note_underflow", "scaled_gradients", "underflowed"]

# The first is where scalers begin; float16 overflows at some that others bear.
_SCALES = tuple(2.0**power for power in (16, 12, 8, 4))


def scaled_gradients(
    subject: Subject,
    cotangents: NDArray[np.float64],
    own: Sequence[NDArray[np.float64]],
) -> tuple[NDArray[np.float64], ...] | None:
    """Pull back cotangents that are scaled up, and scale down what comes of them.

    Nan where what came of them as they are does not come again: that is no underflow.

    Parameters
    ----------
    subject
        Of torch, that computes in less than float64.
    cotangents
        Shape (rows asked for, output rows).
    own
        What came of them: for each input, (rows asked for, coordinates).

    Returns
    -------
    tuple of ndarray or None
        For each input, (rows asked for, coordinates), of the largest scale of 2**16 and
        less that leaves all of them finite; None where there is none, or nothing short.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> x = torch.ones(2)
    >>> subject = torch_subject(lambda x: (1e-9 * x.half()).float().sum(), (x,))
    >>> own = subject.analytic.pull(np.ones((1, 1))).values
    >>> own[0]
    array([[0., 0.]])
    >>> scaled_gradients(subject, np.ones((1, 1)), own)[0].round(11)
    array([[1.e-09, 1.e-09]])
    """
    analytic = subject.analytic
    short = is_torch_subject(subject) and subject.epsilon > DOUBLE
    if analytic is None or not analytic.takes_cotangents or not short:
        return None
    try:
        for scale in _SCALES:
            scaled = analytic.pull(scale * cotangents).values
            if all(np.isfinite(each).all() for each in scaled):
                again = analytic.pull(cotangents).values
                triples = zip(own, again, scaled, strict=True)
                return tuple(np.where(a == b, c / scale, np.nan) for a, b, c in triples)
    except Exception:  # noqa: BLE001 - the user's code may refuse such cotangents
        return None
    return None


def note_underflow(
    subject: Any,  # a TorchSubject
    own: Sequence[NDArray[np.float64]],
    wide: Sequence[NDArray[np.float64]],
    lost: Sequence[NDArray[np.bool_]],
) -> None:
    """Let a subject know which share of each gradient it loses.

    Parameters
    ----------
    own, wide
        Gradients as they are, and in float64.
    lost
        Entries of which the scaled ones are right, and these are not.
    """
    for which, (short, long, where) in enumerate(zip(own, wide, lost, strict=True)):
        gone = float(np.linalg.norm(np.where(where, short - long, 0.0)))
        size = float(np.linalg.norm(long))
        if gone and size:
            share = gone / size
            known = subject.underflow.get(which, 0.0)
            subject.underflow[which] = max(known, min(share, 1.0))


def underflowed(
    subject: Subject,
    own: Sequence[NDArray[np.float64]],
    wide: Sequence[NDArray[np.float64]],
    inexact: float,
) -> list[NDArray[np.float64]] | None:
    """Say how far entries of a Jacobian are off that a scaled loss has right.

    Parameters
    ----------
    own, wide
        All rows as they are, and in float64.
    inexact
        Of an input's largest entry: so much the scaled ones may be off.

    Returns
    -------
    list of ndarray or None
        For each input, (rows, coordinates), 0 of all others; None if none was lost.
    """
    scaled = scaled_gradients(subject, np.eye(len(wide[0])), own)
    if scaled is None:
        return None
    lost = []
    with np.errstate(all="ignore"):
        for short, long, right in zip(own, wide, scaled, strict=True):
            allowed = inexact * np.abs(long).max(initial=0.0)
            near = np.abs(right - long) <= allowed
            lost.append(near & (np.abs(short - long) > allowed))
        note_underflow(subject, own, wide, lost)
        return [
            np.where(where, np.abs(short - long), 0.0)
            for where, short, long in zip(lost, own, wide, strict=True)
        ]
