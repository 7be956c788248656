"""One look at a student's code: a row for each gradient, whatever the code does.

Nothing that the code does is a crash here: a wrong shape, a missing gradient, an
exception and a loop that never ends are answers, and each is a row with a sentence.
"""

from __future__ import annotations

import dataclasses
import traceback
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.checks import check
from gradlab.comparison.verdict import Verdict
from gradlab.labels import plural
from gradlab.teaching.time_limit import call_within
from gradlab.tracebacks import in_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gradlab.comparison.comparison import Comparison
    from gradlab.teaching.level import Level, Size, Trial

__all__ = ["Row", "judge", "real_numbers"]

# Of differences at entries of order one, by bytes of the number that was returned:
# far above error bars and round-off, far below what a wrong formula makes.
_RTOL = {2: 1e-2, 4: 1e-4, 8: 1e-6}


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What is said about one gradient.

    Attributes
    ----------
    name
        Of the gradient; "forward" for the output, the name of the code if it failed.
    right
        Whether it is as it should be.
    words
        One sentence that says why not.
    error
        Worst relative error; None where there are no numbers to compare.
    shape
        Shape of what was expected; empty where there is none.
    """

    name: str
    right: bool
    words: str
    error: float | None = None
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        glyph = "✓" if self.right else "✗"
        error = "" if self.error is None else f"{self.error:.1e}"
        return f"{glyph} {self.name:<8} {error:>8}  {self.words}"


def judge(
    level: Level,
    student: Any,
    *,
    seed: int = 0,
    size: Size = "shown",
    seconds: float = 5.0,
) -> tuple[Row, ...]:
    """Compare a student's gradients with differences of the true function.

    Parameters
    ----------
    level
        What the student works on.
    student
        The class or function that the student wrote.
    seed
        Of the inputs. The same seed gives the same inputs.
    size
        "shown" or "hidden": two shapes, and two streams of random numbers.
    seconds
        How long the student's code may run; see `call_within` for what that can end.

    Returns
    -------
    tuple of Row
        A row for each gradient; before them "forward", if that was changed. One row
        only if the code raised, or ran too long.

    Examples
    --------
    >>> from gradlab.teaching.level import load
    >>> from gradlab.teaching.levels import LEVELS
    >>> lazy = LEVELS[1]
    >>> for row in judge(lazy, load(lazy.source, lazy.edit)):
    ...     print(row.name, row.right, row.words)
    dx True matches
    dW True matches
    db False has shape (5, 3), expected (3,) like b
    """
    key = zlib.crc32(level.edit.encode())  # each level has numbers of its own
    rng = np.random.default_rng([seed, key, size == "hidden"])
    trial = level.deal(rng, size)
    ours = trial.copy()
    try:
        with np.errstate(all="ignore"):  # what is not finite gets a row of its own
            out, found = call_within(seconds, lambda: level.run(student, ours))
            found = dict(found)
    except TimeoutError as error:
        return (Row(level.edit, right=False, words=str(error)),)
    except Exception as error:  # noqa: BLE001 - whatever a student's code raises
        return (Row(level.edit, right=False, words=_raised(error)),)
    rows = [_gradient(level, trial, shown, found) for shown in level.gradients]
    if out is not None:
        rows = [*_forward(level, trial, out), *rows]
    return tuple(rows)


def _raised(error: Exception) -> str:
    """Say what was raised, and in which line of the student's code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename.startswith("<") or "ipykernel" in f.filename]
    where = f", in line {own[-1].lineno}" if own else ""
    if own and own[-1].line:
        where += f": {own[-1].line}"
    return f"raised {in_one_line(error)}{where}"


def real_numbers(value: Any) -> np.ndarray[Any, Any] | None:
    """Return what somebody returned as an array of real numbers, or None."""
    try:
        # a tensor that still asks for gradients is an array of numbers all the same
        array = np.asarray(value.detach() if hasattr(value, "detach") else value)
    except Exception:  # noqa: BLE001 - ragged lists, objects, tensors on a device
        return None
    return array if array.dtype.kind in "fiub" else None


def _forward(level: Level, trial: Trial, out: Any) -> list[Row]:
    """Return a row if the output is not what the level's function gives."""
    expected = np.asarray(level.forward(trial.inputs, trial.given))
    array = real_numbers(out)
    if array is not None and array.shape == expected.shape:
        single = array.dtype.kind == "f" and array.dtype.itemsize < 8
        scale = (1e-4 if single else 1e-9) * max(1.0, float(np.abs(expected).max()))
        if bool(np.all(np.abs(array - expected) <= scale)):
            return []
    words = "the forward pass was right, and is no longer: only the backward is wrong"
    return [Row("forward", right=False, words=words, shape=expected.shape)]


def _gradient(level: Level, trial: Trial, shown: str, found: Mapping[str, Any]) -> Row:
    """Judge one gradient."""
    name = level.gradients[shown]
    point = trial.inputs[name]
    shape = point.shape
    if found.get(shown) is None:
        return Row(shown, right=False, words="is missing", shape=shape)
    gradient = real_numbers(found[shown])
    if gradient is None:
        kind = type(found[shown]).__name__
        words = f"is not an array of real numbers but a {kind}"
        return Row(shown, right=False, words=words, shape=shape)
    if gradient.shape != shape:
        words = f"has shape {gradient.shape}, expected {shape} like {name}"
        return Row(shown, right=False, words=words, shape=shape)

    def scalar(value: np.ndarray[Any, Any]) -> Any:
        inputs = {**trial.inputs, name: value}
        return (trial.dout * level.forward(inputs, trial.given)).sum()

    rtol = _RTOL.get(gradient.dtype.itemsize if gradient.dtype.kind == "f" else 8, 1e-6)
    gradient = gradient.astype(np.float64)
    # whoever computes in single precision is off by its round-off of the largest term
    scale = float(np.abs(gradient).max(initial=0.0)) if rtol > _RTOL[8] else 0.0
    atol = rtol * scale if 0.0 < scale < np.inf else None
    report = check(
        scalar,
        point,
        grad=gradient,
        names=[shown],
        rtol=rtol,
        atol=atol,
        diagnose=False,
    )
    (comparison,) = report.comparisons
    right = report.verdict is Verdict.AGREES
    words = "matches" if right else _difference(comparison)
    error = float(comparison.max_rel_error)
    return Row(shown, right=right, words=words, error=error, shape=shape)


def _difference(comparison: Comparison) -> str:
    """Say how many entries are wrong, and show the worst."""
    wrong = comparison.counts[Verdict.DISAGREES]
    if not wrong:
        return "cannot be told from its differences here"
    row, column = comparison.ranking(1)[0]
    yours, ours = comparison.analytic[row, column], comparison.numeric[row, column]
    total = comparison.verdicts.size
    disagree = f"{plural(total, 'entry')} disagree{'s' * (wrong == 1)}"
    return (
        f"{wrong} of {disagree}, worst {comparison.label(row, column)}: "
        f"yours {yours:.4g}, differences {ours:.4g}"
    )
