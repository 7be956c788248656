"""Which leaves of what the user passes are differentiated, and what they are called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputError, InputTypeError
from gradlab.subject.numpy_values import is_differentiable, is_number
from gradlab.subject.pairs import kind_of
from gradlab.subject.tree import argument_names, flatten, leaves_of, rename

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gradlab.subject.tree import Leaf, Tree

__all__ = [
    "beside_params",
    "check_words",
    "check_writable",
    "loose_numbers",
    "number_lists",
    "pick",
]


def loose_numbers(tree: Tree) -> list[int]:
    """Positions of plain numbers that may be parameters, and may be settings.

    Whole numbers never are parameters; a number of NumPy is an array of one entry.

    Examples
    --------
    >>> from gradlab.subject.tree import flatten
    >>> loose_numbers(flatten(({"w": np.ones(2), "b": 0.5, "depth": 3},), ["p"]))
    [1]
    """
    return [
        i
        for i, leaf in enumerate(tree.leaves)
        if is_number(leaf.value)
        and not isinstance(leaf.value, int | np.integer)
        and not is_differentiable(leaf.value)
    ]


def beside_params(
    fn: Callable[..., Any], inputs: tuple[Any, ...], params: object
) -> list[str]:
    """Name what could be differentiated among inputs, and is no parameter.

    With ``params=`` only these are: other arrays are what the function needs.

    Examples
    --------
    >>> w = np.ones(2)
    >>> beside_params(lambda X, y, w: None, (np.ones(2), np.array([0, 1]), w), [w])
    ['X']
    """
    known = {id(leaf.value) for leaf in leaves_of(params, "")}
    return [
        leaf.name
        for leaf in flatten(inputs, argument_names(fn, len(inputs))).leaves
        if is_differentiable(leaf.value) and id(leaf.value) not in known
    ]


def pick(
    tree: Tree,
    wrt: Sequence[str] | str | None,
    names: Sequence[str] | Mapping[str, str] | None,
    *,
    explicit: bool = False,
    left_out: Collection[str] = (),
    numbers: Collection[int] = (),
    beside: Collection[str] = (),
) -> tuple[list[int], list[str]]:
    """Choose the differentiable leaves and name them.

    Parameters
    ----------
    wrt, names
        As in `gradlab.check`.
    explicit
        Whether an array of integers is a mistake, and no input that passes through.
    left_out
        Names of leaves that are not to be chosen.
    numbers
        Plain numbers to choose beside arrays. Without arrays all are, and so are those
        that `wrt` names.
    beside
        Names of inputs beside the parameters that are chosen from.

    Raises
    ------
    InputError, InputTypeError
        If there is nothing to choose, or `wrt` and `names` do not fit.
    """
    check_words(wrt, names)
    wanted = [wrt] if isinstance(wrt, str) else wrt if wrt is None else list(wrt)
    loose = loose_numbers(tree)
    arrays = [
        i
        for i, leaf in enumerate(tree.leaves)
        if (is_differentiable(leaf.value) and leaf.name not in left_out)
        or (i in loose and (i in numbers or leaf.name in (wanted or ())))
    ]
    chosen = arrays or loose
    whole = [leaf for leaf in tree.leaves if _is_integer_array(leaf.value)]
    if explicit and whole:
        raise InputError(_integer_message(whole[0]))
    if not chosen:
        if whole:
            raise InputError(_integer_message(whole[0]))
        raise InputError(_nothing_message(tree.leaves))
    called = rename([tree.leaves[i].name for i in chosen], names)
    if wanted is None:
        return chosen, called
    if not wanted:
        told = ", ".join(map(repr, called))
        raise InputError(f"wrt= is empty; name one of {told}, or leave it out")
    for name in wanted:
        if name not in called:
            other = [leaf for leaf in tree.leaves if leaf.name == name]
            if other and _is_integer_array(other[0].value):
                raise InputError(_integer_message(other[0]))
            msg = f"wrt= asks for {name!r}; the differentiable inputs are "
            msg += ", ".join(map(repr, called))
            if name in beside:
                msg += (
                    f": with params= only parameters are compared; check {name} in a "
                    f"call without params="
                )
            raise InputError(msg)
    kept = [(i, n) for i, n in zip(chosen, called, strict=True) if n in wanted]
    return [i for i, _ in kept], [n for _, n in kept]


def _nothing_message(leaves: Sequence[Leaf]) -> str:
    """Say that nothing can be differentiated, and what to pass for what is there."""
    if not leaves:
        return (
            "there is nothing to differentiate: got no inputs, and params= holds none; "
            "pass an array of floating-point numbers, or the parameters that the "
            "function reads"
        )
    found = ", ".join(f"{leaf.name}: {kind_of(leaf.value)}" for leaf in leaves)
    whole = [leaf.name for leaf in leaves if type(leaf.value) is int]
    boxed = [leaf.name for leaf in leaves if _is_boxed(leaf.value)]
    lists = {name.rpartition(".")[0] for name in whole}
    meant = "at least one array"
    frames = [leaf.name for leaf in leaves if hasattr(leaf.value, "to_numpy")]
    if boxed:
        meant = f"{boxed[0]}.astype(float), or an array"
    elif frames:
        meant = f"{frames[0]}.to_numpy(), or an array"
    elif len(whole) > 1 and len(lists) == 1 and lists != {""}:
        meant = f"np.array({lists.pop()}, dtype=float), or an array"
    elif whole:
        meant = f"float({whole[0]}), or an array"
    return (
        f"none of the inputs can be differentiated (got {found}); pass {meant} of "
        f"floating-point numbers"
    )


def check_words(wrt: Any, names: Any) -> None:
    """Refuse what cannot hold names.

    Raises
    ------
    InputTypeError
        If `wrt` or `names` is a number, say.

    Examples
    --------
    >>> check_words(1, None)
    Traceback (most recent call last):
        ...
    gradlab.errors.InputTypeError: wrt= must be a name or a sequence of names, got int 1
    """
    for option, value in (("wrt", wrt), ("names", names)):
        if value is not None and not hasattr(value, "__iter__"):
            msg = (
                f"{option}= must be a name or a sequence of names, got "
                f"{type(value).__name__} {value!r}"
            )
            raise InputTypeError(msg)


def _is_boxed(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _is_integer_array(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iub"


def _integer_message(leaf: Leaf) -> str:
    return (
        f"{leaf.name} is an array of {leaf.value.dtype}, which has no derivative; pass "
        f"{leaf.name}.astype(float)"
    )


def number_lists(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Read a list of plain numbers, or of rows of them, as the array it stands for.

    Examples
    --------
    >>> number_lists(([[1.0, 2], [3, 4]], [1, 2], [[1.0], [2.0, 3.0]]))
    (array([[1., 2.],
           [3., 4.]]), [1, 2], [[1.0], [2.0, 3.0]])
    """
    return tuple(
        np.array(value, dtype=np.result_type(np.asarray(value), np.float64))
        if any(not isinstance(part, int | np.integer) for part in _numbers(value))
        else value
        for value in inputs
    )


def _numbers(value: Any) -> list[Any]:
    """List the numbers of a list, or of lists of one length; none of anything else."""
    found = [value]
    while all(isinstance(part, list | tuple) for part in found):
        if len({len(part) for part in found}) != 1:
            return []
        found = [each for part in found for each in part]
    listed = isinstance(value, list | tuple) and all(map(is_number, found))
    return found if listed else []


def check_writable(leaves: Sequence[Leaf]) -> None:
    """Refuse parameters that cannot be moved where they are.

    Raises
    ------
    InputError, InputTypeError
        For an array that is read-only; for what is no array.
    """
    for leaf in leaves:
        if isinstance(leaf.value, np.ndarray) and not leaf.value.flags.writeable:
            msg = (
                f"params[{leaf.name!r}] is read-only and cannot be perturbed in place; "
                f"pass a writable array, or the parameters as an input of the function"
            )
            raise InputError(msg)
        if not isinstance(leaf.value, np.ndarray):
            kind = type(leaf.value)
            where = kind.__module__.partition(".")[0]
            told = kind.__name__ if where == "builtins" else f"{where}.{kind.__name__}"
            remedy = "store it as a NumPy array of shape ()"
            if getattr(leaf.value, "ndim", 0):  # of another library
                remedy = "pass it as an input of the function, gl.check(f, W, b)"
            msg = (
                f"params[{leaf.name!r}] is a {told}, which cannot be perturbed in "
                f"place; {remedy}"
            )
            raise InputTypeError(msg)
