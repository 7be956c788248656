"""Reading gradients that people return: by name, by position, of any shape.

Whatever is wrong with them short of their values becomes a `Problem`, never a crash:
a wrong shape is one of the commonest mistakes in a hand-written backward pass, and
deserves a sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import GradlabError
from gradlab.labels import plural
from gradlab.subject.analytic_sides import Problem
from gradlab.subject.choosing import loose_numbers
from gradlab.subject.numpy_values import as_numpy, gather
from gradlab.subject.state_guard import StateGuard
from gradlab.subject.tree import is_mapping, leaves_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from gradlab.subject.numpy_subjects import ArraySubject
    from gradlab.subject.subject import Variable
    from gradlab.subject.tree import Tree

__all__ = [
    "MISSING",
    "claimed",
    "match_by_name",
    "match_by_position",
    "others_of",
    "read_gradient",
]


class _Missing:
    """Marks a gradient that was not returned at all; None is something returned."""

    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def match_by_name(
    gradients: Mapping[Any, Any], inputs: Sequence[Variable], paths: Sequence[str]
) -> list[Any]:
    """Pick the gradient of each input from a mapping, by its name or its path."""
    found = {leaf.name: leaf.value for leaf in leaves_of(dict(gradients), "")}
    flat = {str(key): value for key, value in gradients.items()}
    return [
        found.get(path, flat.get(path, found.get(v.name, flat.get(v.name, MISSING))))
        for v, path in zip(inputs, paths, strict=True)
    ]


def others_of(gradients: Mapping[Any, Any], known: Collection[str]) -> list[str]:
    """Name what may be gradients in a mapping, and has none of these names.

    Examples
    --------
    >>> others_of({"w": np.ones(2), "cell": {"h": np.ones(1)}, "b": 0.5, "n": 3}, ["w"])
    ['cell.h', 'b']
    """
    rest = {key: value for key, value in gradients.items() if str(key) not in known}
    return [
        leaf.name
        for leaf in leaves_of(rest, "")
        if leaf.name not in known
        and (hasattr(leaf.value, "shape") or isinstance(leaf.value, float))
    ]


def match_by_position(
    gradients: Any,
    tree: Tree,
    which: Sequence[int],
    inputs: Sequence[Variable],
) -> list[Any] | str:
    """Pick the gradient of each input from what a backward returned.

    A mapping is read by name. A tuple or list holds one gradient for each positional
    argument (None for those without one), or one for each differentiable input. A
    single array stands for a single input.

    Returns
    -------
    list or str
        One gradient per input, or a sentence that says what is wrong with the number.
    """
    paths = [tree.leaves[p].name for p in which]
    if is_mapping(gradients):
        return match_by_name(gradients, inputs, paths)
    if not isinstance(gradients, tuple | list):
        if len(inputs) == 1:
            return [gradients]
        return (
            f"one {type(gradients).__name__} came back for {len(inputs)} inputs "
            f"({', '.join(v.name for v in inputs)})"
        )
    order = _by_leaf(gradients, tree)
    found = [order.get(p, MISSING) for p in which]
    # else a list for a dict of as many parameters as there are arguments: by position
    nested = any(is_mapping(g) or isinstance(g, tuple | list) for g in gradients)
    told = nested or any(gradient is not MISSING for gradient in found)
    if told and len(gradients) == len(tree.template):
        return found
    if all(gradient is not MISSING for gradient in found):
        return found  # a container, with what has no derivative
    if len(gradients) == len(inputs):
        return list(gradients)
    if len(inputs) == 1 and all(getattr(g, "shape", ()) == () for g in gradients):
        return [np.asarray(gradients)]  # a gradient written as a list of numbers
    return (
        f"{plural(len(gradients), 'gradient')} came back, expected "
        f"{len(tree.template)}, one for each argument; differentiable: "
        f"{', '.join(v.name for v in inputs)}"
    )


def _by_leaf(gradients: Any, tree: Tree) -> dict[int, Any]:
    """Find what came back for each leaf, by position; nothing where it is not told."""
    if is_mapping(gradients):
        named = {leaf.name: leaf.value for leaf in leaves_of(dict(gradients), "")}
        flat = {str(key): value for key, value in gradients.items()}
        known = {**flat, **named}
        names = [leaf.name for leaf in tree.leaves]
        return {i: known[name] for i, name in enumerate(names) if name in known}
    if not isinstance(gradients, tuple | list):
        gradients = (gradients,)  # of the only argument
    whole = leaves_of(tree.rebuild(range(len(tree.leaves)))[0], "")
    if len(tree.template) == 1 and whole[:1] and whole[0].name:
        # one container: what came back is its gradient, or that in a row of one
        for part in (gradients, *gradients[: len(gradients) == 1]):
            matched = dict(_match_argument(part, whole))
            if any(found is not MISSING for found in matched.values()):
                return matched
    if len(gradients) != len(tree.template):
        return {}
    per_argument: list[Any] = []
    for i, part in enumerate(gradients):
        # the leaves of this argument, in the order in which they were found
        ours = leaves_of(tree.rebuild(range(len(tree.leaves)))[i], "")
        per_argument += _match_argument(part, ours)
    return dict(per_argument)


def _match_argument(part: Any, ours: list[Any]) -> list[tuple[int, Any]]:
    if len(ours) == 1 and not ours[0].name:
        return [(ours[0].value, part)]
    if part is None:
        return [(leaf.value, None) for leaf in ours]
    theirs = {leaf.name: leaf.value for leaf in leaves_of(part, "")}
    return [(leaf.value, theirs.get(leaf.name, MISSING)) for leaf in ours]


def read_gradient(
    value: Any, variable: Variable, inputs: Sequence[Variable]
) -> tuple[NDArray[np.float64], list[Problem]]:
    """Turn one gradient into real coordinates; what is odd about it goes along.

    A single number takes the precision of the arrays it meets, in NumPy as in torch, so
    the gradient of one may have that of any of the `inputs`.

    Returns
    -------
    coordinates
        Shape (variable.coordinates,); nan where nothing usable came back, 0 for None.
    problems
        Possibly empty.
    """
    name = variable.name
    blank = np.full(variable.coordinates, np.nan)
    if value is MISSING:
        detail = f"no gradient was returned for {name}; its derivative counts as 0."
        return np.zeros(variable.coordinates), [Problem("missing", name, detail)]
    if value is None:
        detail = f"the gradient of {name} is None; it counts as 0."
        return np.zeros(variable.coordinates), [Problem("none", name, detail)]
    try:
        array = as_numpy(value, f"the gradient of {name}")
    except GradlabError as cause:
        return blank, [Problem("dtype", name, f"{cause}.")]
    problems: list[Problem] = []
    if array.shape != variable.shape:
        detail = (
            f"the gradient of {name} has shape {array.shape}, expected "
            f"{variable.shape}, the shape of {name} itself."
        )
        problems.append(Problem("wrong_shape", name, detail, array.shape))
        if _squeezed(array.shape) != _squeezed(variable.shape):
            return blank, problems
        # only axes of length 1 are too many or too few: values still tell
        array = array.reshape(variable.shape)
    if array.dtype.kind in "biu":
        detail = (
            f"the gradient of {name} has dtype {array.dtype}, expected "
            f"{variable.dtype}: its fractions were cut off."
        )
        problems.append(Problem("dtype", name, detail))
    elif array.dtype.kind == "c" and not variable.is_complex:
        detail = f"the gradient of {name} is {array.dtype}, but {name} is real."
        problems.append(Problem("dtype", name, detail))
        array = array.real
    elif _width(array.dtype.name) < min(
        _width(v.dtype) for v in (inputs if variable.shape == () else [variable])
    ):
        detail = (
            f"the gradient of {name} has dtype {array.dtype}, but {name} is "
            f"{variable.dtype}: digits were lost on the way."
        )
        problems.append(Problem("dtype", name, detail))
    if variable.is_complex:
        array = array.astype(np.complex128)
    if variable.support is not None:
        flat = array.reshape(-1)[variable.support]
        return gather(flat), problems
    return gather(array), problems


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


def _width(dtype: str) -> int:
    """Bytes of one number, or of a part of a complex one: a real gradient loses none.

    Examples
    --------
    >>> _width("float64") == _width("complex128") > _width("bfloat16")
    True
    """
    if dtype == "bfloat16":  # which NumPy knows nothing of
        return 2
    known = np.dtype(dtype)
    return known.itemsize // 2 if known.kind == "c" else known.itemsize


def claimed(subject: ArraySubject, roots: Sequence[object]) -> list[int]:
    """Positions of the plain numbers beside arrays that have a gradient.

    ``f(w, 0.5)`` does not say whether 0.5 is a bias or a setting. A gradient that is
    returned for it does, and is judged then: a wrong one would pass unseen. The
    analytic side is asked once, if there are such numbers at all.

    Parameters
    ----------
    subject
        Of the arrays, with its analytic side.
    roots
        What the user passed: it is afterwards what it was.
    """
    numbers = [i for i in loose_numbers(subject.tree) if i not in subject.which]
    if not numbers or subject.analytic is None:
        return []
    analytic: Any = subject.analytic
    with StateGuard(*roots), np.errstate(all="ignore"):
        try:
            if analytic.takes_cotangents:
                subject.row()  # what the outputs are
            found = _by_leaf(analytic.raw(), subject.tree)
        except Exception:  # noqa: BLE001 - whatever the user's code raises: told later
            return []
        finally:
            subject.put_back()
    return [i for i in numbers if _is_gradient(found.get(i, MISSING))]


def _is_gradient(value: Any) -> bool:
    if value is MISSING or value is None:
        return False
    try:
        return as_numpy(value, "a gradient").dtype.kind in "fc"
    except Exception:  # noqa: BLE001 - no array of numbers, whatever it is
        return False
