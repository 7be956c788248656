"""How a pattern of zeros may be declared, read into one matrix for each block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputError, InputTypeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject, Variable

__all__ = ["Blocks", "read_pattern"]

Blocks = dict[tuple[int, int], "NDArray[np.bool_]"]  # by output and input


def read_pattern(pattern: Any, subject: Subject) -> Blocks:
    """Read a declaration into one boolean matrix for each block that it names.

    Parameters
    ----------
    pattern
        As in `gradlab.check_sparsity`.
    subject
        Whose outputs are known.

    Raises
    ------
    InputError, InputTypeError
        If it does not fit the Jacobian, or says nothing of any block.
    """
    outputs, inputs = subject.outputs, subject.inputs
    if not isinstance(pattern, Mapping):
        if len(outputs) * len(inputs) != 1:
            known = ", ".join(repr((o.name, i.name)) for o in outputs for i in inputs)
            msg = f"there are several blocks; pass pattern= as a dict by {known}"
            raise InputError(msg)
        return {(0, 0): _matrix(pattern, outputs[0], inputs[0])}
    blocks: Blocks = {}
    places = {
        (o.name, i.name): (k, n)
        for k, o in enumerate(outputs)
        for n, i in enumerate(inputs)
    }
    for key, declared in pattern.items():
        if isinstance(key, tuple):
            chosen = [key] if key in places else []
        else:
            chosen = [place for place in places if place[1] == key]
        if not chosen or (len(chosen) > 1 and np.ndim(declared) > 0):
            known = ", ".join(map(repr, places))
            raise InputError(f"pattern names {key!r}; the blocks are {known}")
        for place in chosen:
            k, n = places[place]
            blocks[k, n] = _matrix(declared, outputs[k], inputs[n])
    if not blocks:
        known = ", ".join(map(repr, places))
        raise InputError(f"pattern names no block to judge; the blocks are {known}")
    return blocks


def _matrix(declared: Any, output: Variable, variable: Variable) -> NDArray[np.bool_]:
    size = (output.size, variable.size)
    if hasattr(declared, "to_dense"):  # a torch tensor
        declared = declared.detach().to_dense().cpu().numpy()
    if isinstance(declared, int | float | np.number | np.bool_):
        _refuse_nan(declared, output, variable)
        return np.full(size, bool(declared))
    if hasattr(declared, "todense") and hasattr(declared, "nonzero"):
        found = declared.nonzero()
        if tuple(declared.shape) != size:
            raise _misfit(tuple(declared.shape), output, variable)
        declared = found
    if isinstance(declared, tuple) and len(declared) == 2:
        rows, columns = (np.asarray(part) for part in declared)
        flat = rows.ndim == columns.ndim == 1 and rows.dtype.kind in "iu"
        if flat and rows.shape == columns.shape and columns.dtype.kind in "iu":
            pairs = np.stack([rows, columns])
            if (pairs < 0).any() or (pairs >= np.reshape(size, (2, 1))).any():
                msg = (
                    f"pattern has an index below 0 or beyond the Jacobian of "
                    f"{output.name} with respect to {variable.name}, which is "
                    f"{size[0]} x {size[1]}"
                )
                raise InputError(msg)
            matrix = np.zeros(size, dtype=bool)
            matrix[rows, columns] = True
            return matrix
    try:
        array = np.asarray(declared)
    except ValueError:  # sequences of unequal lengths
        array = np.array(None)
    if array.dtype.kind not in "biufc":
        msg = (
            f"pattern for {output.name} and {variable.name} must be numbers, or a pair "
            f"(rows, columns) of index sequences of one length, got {declared!r}"
        )
        raise InputTypeError(msg)
    if array.shape not in {size, (*output.shape, *variable.shape)}:
        raise _misfit(array.shape, output, variable)
    _refuse_nan(array, output, variable)
    return np.asarray(array.reshape(size) != 0)


def _refuse_nan(declared: Any, output: Variable, variable: Variable) -> None:
    if np.isnan(declared).any():
        msg = (
            f"pattern for {output.name} and {variable.name} has nan entries: write 1 "
            f"where the Jacobian may differ from zero, and 0 elsewhere"
        )
        raise InputError(msg)


def _misfit(shape: tuple[int, ...], output: Variable, variable: Variable) -> InputError:
    wanted = ((output.size, variable.size), (*output.shape, *variable.shape))
    return InputError(
        f"pattern for {output.name} and {variable.name} has shape {shape}, expected "
        f"{' or '.join(map(str, dict.fromkeys(wanted)))}"
    )
