"""What a level of the hunt is: a story, broken source, hints, and the true function."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Level", "Size", "Trial", "load", "named"]

Size = Literal["shown", "hidden"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One set of inputs to try a student's code on.

    Attributes
    ----------
    inputs
        What is differentiated with respect to, by name; float64.
    given
        Whatever else the function takes: labels, a first batch.
    dout
        What arrives from above: the gradient of the loss with respect to the output.
        Its shape is that of the output; 0-d for a function that is a loss itself.
    """

    inputs: Mapping[str, np.ndarray[Any, Any]]
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    dout: np.ndarray[Any, Any] = dataclasses.field(
        default_factory=lambda: np.array(1.0)
    )

    def copy(self) -> Trial:
        """Return the same in fresh arrays: students write into what they are given."""
        inputs = {name: value.copy() for name, value in self.inputs.items()}
        given = {name: np.copy(value) for name, value in self.given.items()}
        return Trial(inputs, given, self.dout.copy())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Level:
    """One bug to find.

    Attributes
    ----------
    title
        What the game calls it; it does not give the answer away.
    edit
        Name of the class or function that the student edits and the game looks up.
    story
        What is seen from outside: two or three sentences.
    source
        The broken code, as an ordinary cell that runs as it stands.
    repair
        Piece of `source` that is wrong, and what belongs there.
    wrong
        Names of the gradients that the broken code gets wrong, and no other.
    hints
        From a nudge to the answer.
    moral
        What to remember, told when it is solved.
    gradients
        Name of each gradient -> name of the input that it belongs to.
    deal
        ``deal(rng, size)`` returns a `Trial`; "shown" and "hidden" differ in shape.
    forward
        The true function, ours: ``forward(inputs, given)`` returns the output. The
        gradients are judged against differences of this one.
    run
        ``run(student_object, trial)`` returns the student's output (None where the
        student writes only the backward) and gradients by name.
    needs
        Name of a library that the level needs; empty for NumPy alone.
    """

    title: str
    edit: str
    story: str
    source: str
    repair: tuple[str, str]
    wrong: tuple[str, ...]
    hints: tuple[str, ...]
    moral: str
    gradients: Mapping[str, str]
    deal: Callable[[np.random.Generator, Size], Trial]
    forward: Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
    run: Callable[[Any, Trial], tuple[Any, Mapping[str, Any]]]
    needs: str = ""

    @property
    def repaired(self) -> str:
        """The source with the bug removed: the answer key."""
        return self.source.replace(*self.repair)


def load(source: str, name: str) -> Any:
    r"""Run source as a cell would, and return what it calls `name`.

    Examples
    --------
    >>> load("def twice(x):\n    return 2 * x", "twice")(21)
    42
    """
    cell: dict[str, Any] = {"__name__": "cell"}
    exec(compile(source, f"<{name}>", "exec"), cell)  # noqa: S102 - our own source
    return cell[name]


def named(found: Any, names: Sequence[str], *, more: bool = False) -> dict[str, Any]:
    """Name the gradients that somebody returned, in whichever form they did.

    Parameters
    ----------
    found
        A tuple or list in the order of `names`; a dict by name, with or without the
        leading "d"; a single gradient as it is, or the only one in a tuple.
    names
        What the gradients are called.
    more
        Whether further results may follow, such as None for labels.

    Returns
    -------
    dict
        One entry for each name; None where a dict lacks it.

    Raises
    ------
    ValueError
        If it is none of these forms, with what was expected.

    Examples
    --------
    >>> named((1.0, 2.0), ["dx", "dW"])
    {'dx': 1.0, 'dW': 2.0}
    >>> named({"W": 2.0, "x": 1.0}, ["dx", "dW"])
    {'dx': 1.0, 'dW': 2.0}
    """
    if isinstance(found, Mapping):
        return {name: _looked_up(found, name) for name in names}
    several = isinstance(found, tuple | list)
    if len(names) == 1:
        # a list of one list is an array with one row, a tuple of one array is not
        wrapped = several and len(found) == 1 and hasattr(found[0], "shape")
        if wrapped or (isinstance(found, tuple) and found and more):
            return {names[0]: found[0]}
        return {names[0]: found}
    if not several or len(found) < len(names) or (len(found) > len(names) and not more):
        got = f"{len(found)} of them" if several else f"one {type(found).__name__}"
        msg = f"return {len(names)} gradients: {', '.join(names)}; got {got}"
        raise ValueError(msg)
    return dict(zip(names, found, strict=False))


def _looked_up(found: Mapping[str, Any], name: str) -> Any:
    """Return a gradient by its name, or by that with or without a leading d."""
    for key in (name, f"d{name}", name.removeprefix("d")):
        if key in found:
            return found[key]
    return None
