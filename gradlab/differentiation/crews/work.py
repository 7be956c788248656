"""The part of a crew that runs elsewhere: in a worker's process, or in its thread.

A worker is handed the pickled subject once and keeps it; every later piece of work
names it by a token. Before a worker is believed it evaluates at the point and at one
point beside it: a copy that lost its ties to the function (parameters read from a
module's globals, two arrays on one memory) computes something else there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gradlab.differentiation.evaluation import evaluate_rows, evaluate_sets
from gradlab.differentiation.metering.meter import Meter
from gradlab.differentiation.metering.timeouts import Timeouts
from gradlab.errors import InputError
from gradlab.subject.subject import EPSILON, output_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.differentiation.crews.pieces import Piece
    from gradlab.differentiation.failures import Failure
    from gradlab.subject.subject import Subject

__all__ = [
    "Done",
    "Parcel",
    "beside",
    "evaluated",
    "forget",
    "pickled_subject",
    "same_arithmetic",
    "torch_threads",
    "work",
]

_KEPT = 4  # subjects that one worker remembers; a check has two, itself and in float64
_LAST_DIGITS = 64.0  # units of round-off that another processor may compute otherwise
# with the seconds that one of their evaluations takes here
_subjects: OrderedDict[tuple[str, int], tuple[Any, float]] = OrderedDict()
_turns = threading.Lock()  # for work that changes what a whole process shares
_shelf = threading.Lock()
_forked: list[int] = []
if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork either
    os.register_at_fork(after_in_child=lambda: _forked.append(os.getpid()))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """A subject on its way to a worker, and what it must compute there."""

    pickled: bytes
    expected: NDArray[np.float64]  # f at the point and beside it, (2, rows)
    epsilon: float  # unit round-off of its arithmetic
    threads: int | None = None  # torch's: sums in other orders are other numbers


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Done:
    """What a worker hands back."""

    answer: Literal["values", "who is that?", "other numbers", "cannot load"]
    worker: str = ""
    values: NDArray[np.float64] | None = None  # (count, rows)
    taken: NDArray[np.float64] | None = None  # (count,)
    raised: int = 0
    cause: Exception | None = None  # of the first evaluation that raised
    nearest: Failure | None = None  # of those that raised
    extra: int = 0  # evaluations that were spent on proving the copy
    rounded: bool = False  # equal, but for the last digits
    words: str = ""
    given_up: tuple[float, ...] = ()  # seconds after which evaluations were ended


def work(token: str, parcel: Parcel | None, piece: Piece) -> Done:
    """Evaluate one piece; called by an executor.

    Parameters
    ----------
    token
        Name of the subject.
    parcel
        The subject itself; None where the worker should know it already.
    piece
        What to evaluate.
    """
    key = (token, threading.get_ident())
    me = f"{os.getpid()}.{key[1]}"
    subject, usual = _subjects.get(key, (None, 0.0))
    timeouts, extra, rounded = Timeouts(usual), 0, False
    if subject is None:
        if parcel is None:
            return Done("who is that?", me)
        try:
            subject, fewer = _loaded(parcel)
        except Exception as cause:  # noqa: BLE001 - whatever unpickling runs
            return Done("cannot load", me, words=f"{type(cause).__name__}: {cause}")
        with _turn(alone=piece.alone), timeouts.watching(_for_ever):
            found = beside(subject, timeouts)
        extra, equal = (
            len(found),
            same_arithmetic(found, parcel.expected, parcel.epsilon),
        )
        if equal is None:
            return Done("other numbers", me, extra=extra)
        rounded = fewer or not equal
        _keep(key, subject, timeouts.usual)
    with _turn(alone=piece.alone), timeouts.watching(_for_ever):
        done = evaluated(subject, piece)
    told, given_up = _portable(done.cause), tuple(timeouts.ended)
    return dataclasses.replace(
        done, worker=me, cause=told, extra=extra, rounded=rounded, given_up=given_up
    )


def _for_ever() -> float:
    """Seconds that are left: whoever waits for this knows of his budget."""
    return float("inf")


def forget(token: str) -> None:
    """Drop a subject that threads of this very process were given."""
    with _shelf:
        for key in [key for key in _subjects if key[0] == token]:
            del _subjects[key]


def pickled_subject(subject: Subject) -> bytes:
    """Pickle a subject without its analytic side, which only its own process asks."""
    try:
        import cloudpickle
    except ImportError as cause:
        msg = (
            "executor= needs cloudpickle, which is not installed: "
            "pip install gradlab[distributed]"
        )
        raise InputError(msg) from cause
    kept = {
        name: getattr(subject, name)
        for name in ("analytic", "side")
        if getattr(subject, name, None) is not None
    }
    try:
        for name in kept:
            setattr(subject, name, None)
        return bytes(cloudpickle.dumps(subject))
    finally:
        for name, value in kept.items():
            setattr(subject, name, value)


def torch_threads() -> int | None:
    """Return how many threads torch has; None where torch is not loaded."""
    torch: Any = sys.modules.get("torch")
    return None if torch is None else int(torch.get_num_threads())


def _keep(key: tuple[str, int], subject: Any, usual: float) -> None:
    with _shelf:
        _subjects[key] = subject, usual
        own = [other for other in _subjects if other[1] == key[1]]
        for old in own[:-_KEPT]:
            del _subjects[old]


def _loaded(parcel: Parcel) -> tuple[Any, bool]:
    """Unpickle, and say whether fewer threads than its own will compute it."""
    import cloudpickle

    subject, wanted = cloudpickle.loads(parcel.pickled), parcel.threads
    torch: Any = sys.modules.get("torch")
    if torch is not None and parcel.threads is not None:
        # OpenMP's threads do not survive a fork, and waiting for them takes for ever
        wanted = 1 if os.getpid() in _forked else parcel.threads
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)
    return subject, wanted != parcel.threads


def _turn(*, alone: bool) -> contextlib.AbstractContextManager[Any]:
    """Hold the process for oneself, where that is asked for."""
    return _turns if alone else contextlib.nullcontext()


def evaluated(subject: Subject, piece: Piece) -> Done:
    """Evaluate a piece in this process."""
    meter = Meter()
    if piece.kind == "sets":
        values = evaluate_sets(subject, piece.inputs, piece.displacements, meter)
        taken = np.empty(0)
    else:
        values = np.empty((piece.count, output_rows(subject.outputs)))
        taken = np.empty(piece.count)
        evaluate_rows(
            subject,
            piece.inputs[0],
            (piece.positions, piece.displacements),
            (values, taken),
            meter,
            batched=piece.batched,
        )
    raised, cause = meter.raised, meter.first_exception
    return Done("values", "", values, taken, raised, cause, meter.nearest)


def beside(subject: Subject, timeouts: Timeouts) -> NDArray[np.float64]:
    """Evaluate at the point, and with all inputs a thousandth of their size beside it.

    Parameters
    ----------
    timeouts
        Told how long it takes at the point.

    Returns
    -------
    ndarray
        Shape (2, rows); nan in the second row if the function raises there.
    """
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        began = time.monotonic()
        here = subject.row()
        timeouts.usual = max(timeouts.usual, time.monotonic() - began)
        try:
            for which, variable in enumerate(subject.inputs):
                point = subject.point(which)
                size = np.where(np.isfinite(point) & (point != 0), np.abs(point), 1.0)
                move = 1e-3 * size * rng.choice([-1.0, 1.0], variable.coordinates)
                subject.place(which, point + move)
            there = subject.row()
        except Exception:  # noqa: BLE001 - no value there, in no process
            there = np.full(len(here), np.nan)
        finally:
            for which in range(len(subject.inputs)):
                subject.place(which, None)
    return np.stack([here, there])


def same_arithmetic(
    found: NDArray[np.float64], expected: NDArray[np.float64], epsilon: float = EPSILON
) -> bool | None:
    """Whether two processes compute the same: True to the bit, False nearly, else None.

    Other processors, and other numbers of threads, round sums in another order.

    Examples
    --------
    >>> one = np.array([[1.0, 2.0], [1.0, 2.0]])
    >>> same_arithmetic(one, one), same_arithmetic(one * (1 + 1e-15), one)
    (True, False)
    >>> same_arithmetic(one[::-1] + 1, one) is None
    True
    """
    if found.shape != expected.shape:
        return None
    if np.array_equal(found, expected, equal_nan=True):
        return True
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)):
        return None
    size = np.where(finite, np.abs(expected), 0.0).max(axis=1, keepdims=True)
    allowed = _LAST_DIGITS * epsilon * size
    apart = np.abs(np.where(finite, found, 0.0) - np.where(finite, expected, 0.0))
    return False if (apart <= allowed).all() else None


def _portable(cause: Exception | None) -> Exception | None:
    """Return the user's exception, or its words where it cannot travel."""
    if cause is None:
        return None
    import cloudpickle

    try:
        cloudpickle.loads(cloudpickle.dumps(cause))
    except Exception:  # noqa: BLE001 - an exception that cannot be pickled
        return RuntimeError(f"{type(cause).__name__}: {cause}")
    return cause.with_traceback(None)
