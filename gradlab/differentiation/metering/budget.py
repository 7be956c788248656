"""What a check may take: evaluations, seconds, bytes."""

from __future__ import annotations

import dataclasses

from gradlab.errors import BudgetError, InputError

__all__ = ["Budget", "parse_budget", "parse_memory"]

_BYTES = {
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "b": 1,
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """What a check may cost; None is unbounded."""

    evaluations: int | None = None
    seconds: float | None = None


def parse_budget(budget: float | str | Budget | None) -> Budget:
    """Read ``budget=``: a number of evaluations, or seconds as in ``"30s"``.

    Raises
    ------
    BudgetError
        If it is zero, negative, or cannot be read.

    Examples
    --------
    >>> parse_budget(5000)
    Budget(evaluations=5000, seconds=None)
    >>> parse_budget("2min").seconds
    120.0
    """
    if budget is None or isinstance(budget, Budget):
        return budget or Budget()
    how = (
        f"budget must be a positive number of evaluations (5000) or a duration "
        f'("30s", "2min"), got {budget!r}'
    )
    if isinstance(budget, bool):
        raise BudgetError(how)
    if isinstance(budget, str):
        text = budget.strip().lower()
        units = {"ms": 1e-3, "min": 60.0, "s": 1.0, "h": 3600.0}
        unit = next((u for u in units if text.endswith(u)), None)
        try:
            seconds = float(text.removesuffix(unit or "")) * units[unit or ""]
        except (KeyError, ValueError):
            raise BudgetError(how) from None
        if not 0 < seconds < float("inf"):
            raise BudgetError(how)
        return Budget(seconds=seconds)
    try:
        count = float(budget)
    except (TypeError, ValueError):
        raise BudgetError(how) from None
    if not 1 <= count < float("inf") or count != int(count):
        raise BudgetError(how)
    return Budget(evaluations=int(count))


def parse_memory(
    memory: float | str, option: str = "memory", least: int = 2**20
) -> int:
    """Read ``memory=``: a number of bytes, or a text with a unit.

    Parameters
    ----------
    memory
        What was given.
    option
        What the option is called.
    least
        How many bytes it takes to work with; default 1 MiB.

    Raises
    ------
    InputError
        If it is too little to work with, or cannot be read.

    Examples
    --------
    >>> parse_memory("1GiB"), parse_memory("200 MB"), parse_memory(2**24)
    (1073741824, 200000000, 16777216)
    """
    how = (
        f'{option} must be a number of bytes or a text such as "512MiB", and '
        f"{'1 MiB' if least == 2**20 else least} or more, got {memory!r}"
    )
    number, factor = memory, 1
    if isinstance(memory, str):
        text = memory.strip().lower()
        unit = next((u for u in _BYTES if text.endswith(u)), "")
        number, factor = text.removesuffix(unit), _BYTES.get(unit, 1)
    try:
        size = float("nan") if isinstance(memory, bool) else float(number) * factor
    except (TypeError, ValueError):
        raise InputError(how) from None
    if not least <= size < float("inf"):
        raise InputError(how)
    return int(size)
