"""What a backward pass does with a gradient that is already there."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gradlab.building import valid_seed
from gradlab.comparison.tolerance import Tolerance
from gradlab.comparison.verdict import Verdict
from gradlab.errors import GradlabError, InputError, InputTypeError, SubjectError
from gradlab.keywords import spelt
from gradlab.properties.results import PropertyResult
from gradlab.subject.guarding.random_state import RandomFreeze
from gradlab.subject.numpy_values import as_numpy
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.tensors.values import is_torch, looks_like_module

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

__all__ = ["AccumulationCheck", "AccumulationRow", "check_accumulation"]

_MODES = ("write", "add", "null")
Mode = Literal["write", "add", "null", "other", "no gradient"]


@dataclasses.dataclass(frozen=True, slots=True)
class AccumulationRow:
    """What happens to one gradient buffer.

    Parameters
    ----------
    name
        Of the gradient.
    expected
        "write", "add" or "null".
    found
        The same, "other" if it is none of them, or "no gradient": it is zero, so that
        adding it cannot be told from leaving the buffer alone.
    error
        Largest difference from what was expected.
    """

    name: str
    expected: str
    found: Mode
    error: float

    @property
    def verdict(self) -> Verdict:
        """Whether the buffer was treated as expected."""
        if self.found == "no gradient":
            wrong = self.expected == "write"
            return Verdict.DISAGREES if wrong else Verdict.UNDECIDED
        return Verdict.AGREES if self.found == self.expected else Verdict.DISAGREES


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class AccumulationCheck(PropertyResult):
    """Result of `gradlab.check_accumulation`.

    Parameters
    ----------
    rows
        One for each gradient buffer.

    Examples
    --------
    >>> grads = {"w": np.zeros(3)}
    >>> def step():
    ...     grads["w"] += np.arange(1.0, 4.0)
    >>> print(gl.check_accumulation(step, grads, expect="write"))
    ✗ disagrees: w adds where "write" was expected.
    """

    rows: tuple[AccumulationRow, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of all buffers."""
        return max((row.verdict for row in self.rows), default=Verdict.UNDECIDED)

    @property
    def reading(self) -> str:
        """What was found, in sentences."""
        words = {
            "write": "is overwritten",
            "add": "adds",
            "null": "is left alone",
            "other": "is neither overwritten, nor added to, nor left alone,",
            "no gradient": "gets no gradient",
        }
        told = [
            f'{row.name} {words[row.found]} where "{row.expected}" was expected.'
            for row in self.rows
            if row.verdict != Verdict.AGREES
        ]
        every = {1: "The gradient does", 2: "Both gradients do"}
        all_ = every.get(len(self.rows), f"All {len(self.rows)} gradients do")
        return " ".join(told) or f"{all_} as expected."

    @property
    def table(self) -> pd.DataFrame:
        """One row per gradient: ``name, expected, found, error, verdict``."""
        from gradlab.presentation.tables import fields_table

        columns = ["name", "expected", "found", "error", "verdict"]
        return fields_table(self.rows, columns)


@spelt
def check_accumulation(
    step: Any,
    grads: Any,
    *,
    expect: str | Mapping[str, str] = "add",
    rtol: float | None = None,
    seed: int = 0,
) -> AccumulationCheck:
    """Check what a backward pass does with gradients that are already there.

    MXNet calls it ``grad_req``: "write" overwrites, "add" accumulates (as ``.grad`` in
    torch must, also for a parameter that is used twice), "null" leaves the buffer
    alone. `step` runs twice, on buffers of zeros and on buffers of random numbers.

    Parameters
    ----------
    step
        Runs forward and backward, without arguments; the same at every call.
    grads
        Where the gradients end up: a dict or sequence of arrays that `step` fills (or
        replaces, in a dict), a function returning such a dict, torch tensors or a
        module, of which the ``.grad`` are looked at.
    expect
        "write", "add" or "null"; or by name, where others are "add".
    rtol
        Relative difference forgiven. Default 5000 units of round-off.
    seed
        Of the random numbers; the user's random state is never touched, and both runs
        see the same draw.

    Returns
    -------
    AccumulationCheck
        ``verdict``, ``reading``, ``rows``, ``table``. Buffers, parameters and random
        state are afterwards what they were.

    Raises
    ------
    InputError, InputTypeError
        If there is no gradient buffer, or a name or mode does not exist.
    SubjectError
        If `step` raises.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(3, 2)
    >>> x = torch.ones(4, 3)
    >>> gl.check_accumulation(lambda: layer(x).sum().backward(), layer).verdict.name
    'AGREES'
    """
    if not callable(step):
        msg = f"step must be a function of no arguments, got {type(step).__name__}"
        raise InputTypeError(msg)
    rng = np.random.default_rng([valid_seed(seed), 23])
    tolerance = Tolerance(rtol)
    with StateGuard(grads, step):
        freeze = RandomFreeze(grads, step)
        before = _buffers(grads)
        wanted = _expected(expect, list(before))
        allowed = {
            name: tolerance.rounding(_epsilon(value))
            for name, value in _items(grads).items()
        }
        _fill(grads, {name: np.zeros_like(array) for name, array in before.items()})
        plain = _stepped(step, grads, freeze)
        _fill(grads, {name: _like(array, rng) for name, array in plain.items()})
        junk = _buffers(grads)
        after = _stepped(step, grads, freeze)
        freeze.restore()
        rows = tuple(
            _row(name, wanted[name], (plain[name], junk[name], after[name]), rtol)
            for name, rtol in allowed.items()
        )
    return AccumulationCheck(rows)


def _like(array: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Draw numbers of the size of these, or of one if these are smaller."""
    drawn = rng.uniform(0.5, 1.5, array.shape)
    if array.dtype.kind == "c":
        drawn = drawn + 1j * rng.uniform(0.5, 1.5, array.shape)
    return np.asarray(drawn * max(1.0, float(np.abs(array).max(initial=0))))


def _expected(expect: Any, names: list[str]) -> dict[str, str]:
    if not names:
        raise InputError(
            "there is no gradient buffer in grads; pass the arrays that backward fills"
        )
    table = expect if isinstance(expect, Mapping) else dict.fromkeys(names, expect)
    for name, mode in table.items():
        if name not in names:
            known = ", ".join(map(repr, names))
            raise InputError(f"expect names {name!r}; the gradients are {known}")
        if mode not in _MODES:
            raise InputError(f'expect must be "write", "add" or "null", got {mode!r}')
    return {name: table.get(name, "add") for name in names}


def _items(grads: Any) -> dict[str, Any]:
    """Name the places where gradients are."""
    if looks_like_module(grads):
        return dict(grads.named_parameters())
    if callable(grads):
        grads = grads()
    if isinstance(grads, Mapping):
        return {str(name): value for name, value in grads.items()}
    if isinstance(grads, tuple | list):
        return {f"grads[{i}]": value for i, value in enumerate(grads)}
    return {"grad": grads}


def _buffers(grads: Any) -> dict[str, NDArray[Any]]:
    """Copy the gradients that are there; zeros where a tensor has none yet."""
    found = {}
    for name, value in _items(grads).items():
        if is_torch(value):
            none = value.grad is None
            grad = value.detach().new_zeros(value.shape) if none else value.grad
            found[name] = as_numpy(grad, name).copy()
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fc":
            if not value.flags.writeable:
                msg = f"{name} is read-only; a gradient buffer has to be written to"
                raise InputError(msg)
            found[name] = value.copy()
        else:
            kind = f"{type(value).__name__} {getattr(value, 'dtype', '')}".strip()
            msg = (
                f"{name} is a {kind}; gradients must be floating NumPy arrays, or "
                f"tensors whose .grad is looked at"
            )
            raise InputTypeError(msg)
    return found


def _epsilon(value: Any) -> float:
    """Round-off of a buffer's own arithmetic; NumPy does not know that of bfloat16."""
    finfo: Any = sys.modules["torch"].finfo if is_torch(value) else np.finfo
    return float(finfo(value.dtype).eps)


def _fill(grads: Any, contents: Mapping[str, NDArray[Any]]) -> None:
    for name, value in _items(grads).items():
        if is_torch(value):
            filled = value.detach().clone()
            filled.copy_(filled.new_tensor(contents[name]))
            value.grad = filled
        else:
            value[...] = contents[name]


def _stepped(
    step: Callable[[], Any], grads: Any, freeze: RandomFreeze
) -> dict[str, NDArray[Any]]:
    """Run the step on the same random draw, and read the buffers."""
    freeze.restore()
    try:
        step()
    except GradlabError:
        raise
    except Exception as cause:
        msg = f"step raised {type(cause).__name__}: {cause}"
        raise SubjectError(msg) from cause
    return _buffers(grads)


def _row(
    name: str,
    expected: str,
    contents: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    rtol: float,
) -> AccumulationRow:
    """Judge a buffer by what a step leaves in zeros, by junk, and by junk after it."""
    plain, junk, after = contents
    targets = {"write": plain, "add": junk + plain, "null": junk}
    allowed = rtol * (np.abs(plain) + np.abs(junk))

    def error(mode: str) -> float:
        if after.shape != targets[mode].shape:
            return float("inf")
        with np.errstate(all="ignore"):
            gap = np.nan_to_num(np.abs(after - targets[mode]), nan=np.inf)
            return float(np.where(gap <= allowed, 0.0, gap).max(initial=0.0))

    found: Mode = "other"
    for mode in _MODES:
        if not error(mode) > 0:
            found = mode  # type: ignore[assignment] # one of the three
            break
    if found in {"add", "null"} and not (np.abs(plain) > 2 * allowed).any():
        found = "null" if expected == "null" else "no gradient"
    return AccumulationRow(name, expected, found, error(expected))
