"""The same torch subject in float64, as a reference for lower precision."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gradlab.subject.subject import DOUBLE, SINGLE
from gradlab.subject.tensors.in_double.lossless_casts import (
    AnalyticWithin,
    Casts,
    Within,
    loss_within,
)
from gradlab.subject.tensors.in_double.narrowing import narrowing_watched
from gradlab.subject.tensors.in_double.returning import (
    displaced,
    returning_watched,
    rounded_on_return,
)
from gradlab.subject.tensors.in_double.same_draws import SameDraws
from gradlab.subject.tensors.in_double.transient_parameters import (
    Lending,
    Rooms,
    may_be_lent,
)
from gradlab.subject.tensors.in_double.widening import double_default
from gradlab.subject.tensors.values import (
    Cell,
    dtype_name,
    make_cell,
    private_copy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gradlab.subject.tensors.calling.programs import Program
    from gradlab.subject.tensors.in_double.lossless_casts import Around
    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = [
    "in_double",
    "rounded_twin",
    "within",
    "without_casts",
]

# Bytes of parameters from which on they are lent to a module, and how often each may
# be made in one evaluation: a loop over time steps had better find them all there.
_LARGE = 1 << 24
_READ_AGAIN = 2
_ROUNDED = 16.0  # times the round-off of f: two orders of summing are no further apart


def in_double(subject: TorchSubject) -> TorchSubject | None:
    """Return `subject` on float64 copies, or None; see `TorchSubject.in_double`.

    Tried in this order: on cast copies of all tensors; with float64 as the default
    dtype as well, for functions that create their own buffers; on a deep copy of the
    module, for tensors kept as plain attributes; with tensors that the function holds
    itself widened as they are used. Each attempt is evaluated once while every torch
    function is watched. One that casts float64 to less disqualifies it, unless the type
    cast to holds all inputs as they were, or is that of the output, in single
    precision: such casts are left out, see
    `gradlab.subject.tensors.in_double.lossless_casts`.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> subject = torch_subject(torch.sin, (torch.zeros(2),))
    >>> subject.epsilon > 1e-8, in_double(subject).epsilon < 1e-15
    (True, True)
    >>> in_double(torch_subject(lambda x: x.half().sin(), (torch.zeros(2),))) is None
    True
    """
    import torch

    if not subject.outputs:  # which evaluates once, if nothing has been
        return None
    if subject.epsilon <= torch.finfo(torch.float64).eps:
        return None
    found = _widened_by(subject, _harmless(subject))
    if found is None and subject.epsilon <= torch.finfo(torch.float32).eps:
        found = _widened_by(subject, Casts.singles())
    return found


def _harmless(subject: TorchSubject) -> Casts:
    return Casts.harmless(cell.values.dtype for cell in subject.cells)


def _drawing_the_same(subject: TorchSubject, double: TorchSubject) -> TorchSubject:
    """Choose between draws in float64 and in the dtype of `subject`, by what it is."""
    import torch

    cells = [cell.values.dtype for cell in subject.cells]
    real = [dtype for dtype in cells if not dtype.is_complex]
    if not real:
        return double
    short = max(real, key=lambda dtype: float(torch.finfo(dtype).eps))
    same = within(double, SameDraws(short).left_out)
    try:
        same.at_point = same.row()
    except Exception:  # noqa: BLE001 - some function may refuse other dtypes
        return double
    row = subject.row()
    here, there = (
        np.abs(np.nan_to_num(np.asarray(each.at_point) - row)).max(initial=0.0)
        for each in (double, same)
    )
    return same if there < here else double


def without_casts(
    subject: TorchSubject, *, halves: bool = True
) -> tuple[TorchSubject, Literal["half", "single"]] | None:
    """Return `subject` in float64 without casts to less on the way, if it has any.

    Those to half precision go first: what rounds to three digits has no slope that
    differences could show. Without these casts it has; how exact autograd is in between
    is another question. One evaluation tells which there are; like those that find out
    what runs in float64 (`in_double`), it is not one of a numeric side.

    Parameters
    ----------
    subject
        At its point.
    halves
        Whether to ask for casts to half precision; those to single precision and back
        are left out where there are none, of what computes in float64.

    Returns
    -------
    twin
        At the same point.
    precision
        That of the casts.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> x = torch.zeros(2, dtype=torch.float64)
    >>> without_casts(torch_subject(lambda x: x.half().double().sin(), (x,)))[1]
    'half'
    >>> without_casts(torch_subject(lambda x: x.float().sin().double(), (x,)))[1]
    'single'
    >>> without_casts(torch_subject(torch.sin, (x,))) is None
    True
    """
    if not subject.outputs:
        return None
    if subject.epsilon <= DOUBLE and not (subject.narrowed or subject.returns):
        return None  # its first evaluation has shown that
    with (
        narrowing_watched(SINGLE) as to_half,
        narrowing_watched() as to_single,
        returning_watched() as back,
    ):
        subject.row()
    to_single += rounded_on_return(subject, back)
    # float() of what was half only widened; without the half it would narrow
    wide = _harmless(subject).wide
    ways: list[tuple[Casts, Literal["half", "single"]]] = []
    if to_half and halves:
        coarse = (Casts.halves(), Casts.shorter())
        ways += [(Casts({**wide, **c.wide}, same=False), "half") for c in coarse]
    if to_single and subject.epsilon <= DOUBLE:
        ways.append((Casts.singles(), "single"))
    for casts, precision in ways:
        found = _widened_by(subject, casts)
        if found is not None and _differ(subject, found):
            found.dependent = subject.dependent
            return found, precision
    return None


def _differ(subject: TorchSubject, twin: TorchSubject) -> bool:
    """Whether casts that are left out are those of f, and not of its backward alone.

    What a backward saves in fewer digits than f computes in is no excuse for it.
    """
    if subject.epsilon > SINGLE:
        return True  # there are none to speak of
    try:
        with displaced(subject, twin):
            own, other = subject.row(), twin.row()
        return bool(
            (np.abs(own - other) > _ROUNDED * subject.epsilon * np.abs(own)).any()
        )
    except Exception:  # noqa: BLE001 - the user's code may not take this point
        return True


def rounded_twin(subject: TorchSubject) -> TorchSubject | None:
    """Return `subject` as one of the precision in which something comes back to it.

    None where nothing does that depends on its inputs. What a function rounds itself,
    outside torch, cannot be left out; but differences over many of its stairs see it.

    Examples
    --------
    >>> import torch
    >>> from gradlab.subject.tensors.subjects import torch_subject
    >>> def scaled(x):
    ...     return x * torch.from_numpy(x.detach().numpy().astype("float32"))
    >>> x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    >>> twin = rounded_twin(torch_subject(scaled, (x,)))
    >>> f"{twin.epsilon:.1g}"
    '1e-07'
    """
    if not (subject.outputs and subject.returns):
        return None
    with returning_watched() as back:
        subject.row()
    if not rounded_on_return(subject, back):
        return None
    twin = _like(subject, subject.program, subject.cells, subject.loss)
    twin.mutated, twin.dependent = subject.mutated, subject.dependent
    twin.least_epsilon = back.epsilon
    return twin


def _widened_by(subject: TorchSubject, casts: Casts) -> TorchSubject | None:
    """Return it in float64, with some casts left out and the same random numbers."""
    double = _first_to_run(subject, casts)
    if double is None or not double.draws:
        return double
    return _drawing_the_same(subject, double)


def _first_to_run(subject: TorchSubject, casts: Casts) -> TorchSubject | None:
    """Try one way after the other to run in float64, with some casts left out."""
    if _lends(subject):
        rooms = Rooms()
        lent = [
            _widened(cell, Lending(rooms) if may_be_lent(cell) else None)
            for cell in subject.cells
        ]
        double = _attempted(subject, lent, casts, copied=False)
        if double is not None and _reads_few(double):
            return double
    cells = [_widened(cell) for cell in subject.cells]
    return (
        _attempted(subject, cells, casts, copied=False)
        or _attempted(subject, cells, casts, copied=True)
        or _attempted(subject, cells, casts, copied=False, beside=True)
    )


def _attempted(
    subject: TorchSubject,
    cells: Sequence[Cell],
    casts: Casts,
    *,
    copied: bool,
    beside: bool = False,
) -> TorchSubject | None:
    """Evaluate on float64 cells; None where that cannot be, or says less.

    Parameters
    ----------
    copied
        Whether on a deep copy of the module, all of which is in float64.
    beside
        Whether to widen what the function holds itself where it meets float64.
    """
    program = subject.program.widened(cells, copied=copied)
    if program is None:
        return None
    for default in (False, True):
        tried, loss = program, subject.loss
        if default:
            tried = Within(program, double_default, changes_defaults=True)
            loss = loss_within(loss, double_default)
        double = _like(subject, tried, cells, loss)
        narrowed = _narrowed(double)
        if casts.wide and (narrowed or (beside and narrowed is None)):
            double = within(double, casts.left_out)
            narrowed = _narrowed(double)
        if not (narrowed is None or narrowed):
            return double
    return None


def _lends(subject: TorchSubject) -> bool:
    """Whether its parameters need not be there in float64 all at once."""
    swap = getattr(subject.program, "swap", None)
    written = subject.mutated or subject.needs_grad is not False
    size = sum(cell.source.nbytes for cell in subject.cells)
    return swap is not None and swap.lends and not written and size > _LARGE


def _reads_few(double: TorchSubject) -> bool:
    """Whether the evaluation just made asked for most parameters but once."""
    program: Any = double.program
    swap = getattr(program, "swap", None)
    return swap is None or swap.made <= _READ_AGAIN * len(double.cells)


def _like(
    subject: TorchSubject,
    program: Program,
    cells: Sequence[Cell],
    loss: Callable[..., Any] | None,
) -> TorchSubject:
    """Return a subject with another program, of which all else is known already."""
    twin = type(subject)(program, cells, loss=loss, root=subject.root)
    twin.reset, twin.kept = subject.reset, subject.kept
    twin.beside, twin.whole = subject.beside, subject.whole
    twin.needs_grad, twin.draws = subject.needs_grad, subject.draws
    twin.chunk_bytes, twin.asserts = subject.chunk_bytes, subject.asserts
    twin.analytic = None if subject.analytic is None else subject.analytic.on(twin)
    return twin


def within(
    double: TorchSubject, around: Around, *, backward: bool = True
) -> TorchSubject:
    """Return the same subject, run within a context: with some casts left out, say.

    With `backward`, that is entered once more around all of the analytic side.
    """
    program, loss = Within(double.program, around), loss_within(double.loss, around)
    kept = _like(double, program, double.cells, loss)
    if backward and kept.analytic is not None:
        kept.analytic = AnalyticWithin(kept.analytic, around)
    return kept


def _widened(cell: Cell, lending: Lending | None = None) -> Cell:
    import torch

    dtype = torch.complex128 if cell.values.dtype.is_complex else torch.float64
    if cell.pattern is None:
        # the point stays where it is, in fewer bytes: it holds the same numbers
        variable = dataclasses.replace(cell.variable, dtype=dtype_name(dtype))
        if lending is not None:
            values = cell.source.new_zeros((), dtype=dtype)
            wide = Cell(variable, cell.source, values, parameter=True, lending=lending)
            wide.park()
            wide.hooks = cell.hooks
            return wide
        values = private_copy(cell.source, dtype)
        wide = Cell(variable, cell.source, values, aliased=cell.aliased)
    else:
        source = cell.source.to(dtype)
        tensor = cell.pattern.build(source)
        wide = make_cell(cell.variable.name, tensor)
        wide.values = private_copy(source)
    wide.hooks, wide.parameter = cell.hooks, cell.parameter
    wide.values = wide.dressed(wide.values)
    return wide


def _narrowed(double: TorchSubject) -> bool | None:
    """Whether it casts float64 to less on the way; None where it cannot run."""
    import torch

    drawn: list[str] = []
    try:
        with narrowing_watched(drawn=drawn) as narrowed, returning_watched() as back:
            double.at_point = double.row()
        if not narrowed:
            narrowed = rounded_on_return(double, back)
    except Exception:  # noqa: BLE001 - it cannot run: that is the answer
        return None
    double.draws = bool(drawn)
    wide = double.epsilon <= torch.finfo(torch.float64).eps
    return bool(narrowed) or not wide
