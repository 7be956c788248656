"""Exercises of lessons 3 and 4: the bug hunt by hand, and reading an error matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.checks import check
from gradlab.comparison.verdict import Verdict
from gradlab.teaching.answering import Exercise, Open, dealt, names, number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[np.float64]]

__all__ = ["EXERCISES", "mystery"]

_FOUR = ("W1", "b1", "W2", "b2")


# -------------------------------------------------------------------------- lesson 3
def _forward(params: Arrays, X: Any) -> tuple[Any, Any]:
    hidden = np.maximum(0.0, X @ params["W1"] + params["b1"])
    scores = hidden @ params["W2"] + params["b2"]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, odds / odds.sum(axis=1, keepdims=True)


def _deal(seed: int) -> tuple[dict[str, Any], Any, Any]:
    rng = np.random.default_rng(seed)
    shapes = ((3, 6), (6,), (6, 4), (4,))
    params = {
        name: rng.normal(size=shape) for name, shape in zip(_FOUR, shapes, strict=True)
    }
    return params, rng.normal(size=(7, 3)), rng.integers(0, 4, 7)


def _network(seed: int, backward: Callable[[Arrays, Any, Any], Any]) -> Any:
    """Check somebody's backward pass of the two-layer network."""
    params, X, y = _deal(seed)

    def loss_and_grads(params: Arrays) -> tuple[float, Any]:
        _, p = _forward(params, X)
        loss = -np.log(p[np.arange(len(y)), y]).mean()
        return float(loss), backward(params, X, y)

    return check(loss_and_grads, params, diagnose=False)


def _backward(
    params: Arrays, X: Any, y: Any, *, mean: bool = True, mask: bool = True
) -> dict[str, Any]:
    hidden, p = _forward(params, X)
    d = p.copy()
    d[np.arange(len(y)), y] -= 1
    d /= len(y) if mean else 1
    back = d @ params["W2"].T
    back = back * (hidden > 0) if mask else back
    parts = (X.T @ back, back.sum(axis=0), hidden.T @ d, d.sum(axis=0))
    return dict(zip(_FOUR, parts, strict=True))


def _wrong(**slip: bool) -> Iterable[str]:
    """Name the gradients that a slip spoils: try it."""

    def backward(params: Arrays, X: Any, y: Any) -> dict[str, Any]:
        return _backward(params, X, y, **slip)

    table = _network(0, backward).table
    return set(table["input"][table["verdict"] == "DISAGREES"])


def _repaired(student: Any, seed: int) -> str:
    """Judge a backward pass on shapes and numbers that the lesson does not show."""
    params, X, y = _deal(seed)
    found = student({name: value.copy() for name, value in params.items()}, X, y)
    if found is None:
        raise Open
    if not hasattr(found, "keys"):
        return "return a dict: name of the parameter -> its gradient"
    lacking = [name for name in _FOUR if name not in found]
    if lacking:
        return f"there is no gradient called {lacking[0]!r}"
    for name in _FOUR:
        shape = np.shape(found[name])
        if shape != params[name].shape:
            return f"the gradient of {name} has shape {shape}, not {params[name].shape}"
    report = _network(seed, student)
    if report.verdict is Verdict.AGREES:
        return ""
    wrong = ", ".join(dict.fromkeys(report.culprits)) or "one of them"
    return f"on numbers that you have not seen these are wrong: {wrong}"


# -------------------------------------------------------------------------- lesson 4
_KINDS = ("factor", "transpose", "mask", "one entry", "not summed", "none")
_LETTERS = "ABCDEF"


def _kind(letter: str, seed: int) -> str:
    return dealt(_KINDS, letter, [seed, 4])


def _telling(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Draw inputs at which every kind of mistake shows."""
    while True:
        x, w, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 4)), rng.normal(size=4)
        on = x @ w + b > 0
        # outputs that are off show a mask, columns that are on the entry and the sum
        if (~on).sum() >= 3 and on[:, 1].any() and on[1:].sum() >= 3:
            return x, w, b


def mystery(letter: str, seed: int = 0) -> tuple[Any, Any, tuple[Any, ...]]:
    """Deal one of six layers of lesson 4, five of which have a mistake.

    Parameters
    ----------
    letter
        "A" to "F". Every kind of mistake is behind one of them.
    seed
        Another seed, another order.

    Returns
    -------
    tuple
        ``forward(x, w, b)``, which returns output and cache, ``backward(dout, cache)``,
        and the inputs ``(x, w, b)``.

    Raises
    ------
    InputError
        A `ValueError`, if there is no such letter.

    Examples
    --------
    >>> forward, backward, inputs = mystery("A")
    >>> forward(*inputs)[0].shape
    (3, 4)
    """
    kind = _kind(letter, seed)
    x, w, b = _telling(np.random.default_rng([seed, 5]))

    def forward(x: Any, w: Any, b: Any) -> tuple[Any, Any]:
        out = np.maximum(0.0, x @ w + b)
        return out, (x, w, out)

    def backward(dout: Any, cache: Any) -> tuple[Any, Any, Any]:
        x, w, out = cache
        d = dout if kind == "mask" else dout * (out > 0)
        dx = d @ (w if kind == "transpose" else w.T)
        dw = x.T @ d * (1.7 if kind == "factor" else 1.0)
        db = d[0] if kind == "not summed" else d.sum(axis=0)
        if kind == "one entry":
            dw[2, 1] = 0.0
        return dx, dw, db

    return forward, backward, (x, w, b)


def _sorted_out(answer: Any, seed: int) -> str:
    """Judge who has which mistake."""
    if not isinstance(answer, dict):
        return "a dict was expected: letter -> kind"
    open_ones = [letter for letter in _LETTERS if answer.get(letter) is None]
    if len(open_ones) == len(_LETTERS):
        raise Open
    for letter, kind in answer.items():
        if letter not in _LETTERS:
            return f"there is no layer {letter!r}"
        if kind is not None and kind not in _KINDS:
            return f"{kind!r} is none of {', '.join(map(repr, _KINDS))}"
    done = [letter for letter in _LETTERS if letter not in open_ones]
    good = sum(answer[letter] == _kind(letter, seed) for letter in done)
    if good < len(done):
        return (
            f"{good} of {len(done)} are right. Ask of each: which input is wrong, in "
            "which rows, in which columns, and what is analytic / numeric there?"
        )
    if open_ones:
        return f"{good} of {len(done)} are right; {', '.join(open_ones)} left"
    return ""


def _indexed(answer: Any, _seed: int) -> str:
    """Judge the row of Y[1, 0] and the column of W[2, 1]; Y is 3 x 2, W is 4 x 2."""
    try:
        row, column = (int(value) for value in answer)
    except (TypeError, ValueError):
        return "two whole numbers were expected, such as (0, 0)"
    rows = np.arange(6).reshape(3, 2)
    columns = np.arange(8).reshape(4, 2)
    right_row, right_column = row == rows[1, 0], column == columns[2, 1]
    if right_row and right_column:
        return ""
    if (row, column) == (rows[1, 0] + 1, columns[2, 1] + 1):
        return "both are one too large: counting starts at 0"
    if (row, column) == (rows.T.ravel()[3], columns.T.ravel()[6]):
        return "arrays are flattened row by row: the last index moves fastest"
    if right_row or right_column:
        part = "column" if right_row else "row"
        return f"the {part} is not right: the last index moves fastest"
    return "neither is right: flatten both arrays row by row, and count from 0"


EXERCISES = {
    "3.1": Exercise(
        "the function repaired_backward",
        _repaired,
        "All four gradients agree with differences, on shapes that you did not see.",
    ),
    "3.2": Exercise(
        "a list of names",
        names(
            lambda: _wrong(mean=False),
            _FOUR,
            "where does the line stand, and what is made from its result?",
        ),
        "Everything is made from d, so everything is too large, by the number of rows.",
    ),
    "3.3": Exercise(
        "a list of names",
        names(
            lambda: _wrong(mask=False),
            _FOUR,
            "follow the gradient from the loss backwards: what comes after the ReLU?",
        ),
        "Only what lies before the ReLU, seen from the input, passes its mask.",
    ),
    "3.4": Exercise(
        "a factor, a number",
        number(
            lambda: (1 + 0.5) / (1 - 0.5),
            {
                "a factor of 2 gives (2 - 1) / (2 + 1), which is less": lambda _: 2.0,
                "that is how much it is too large as a share; the factor is asked": (
                    lambda _: 0.5
                ),
            },
        ),
        "(c - 1) / (c + 1) = 0.5 gives c = 3: the number of the relative error tells "
        "the factor.",
    ),
    "4.1": Exercise(
        "two numbers: a row and a column",
        _indexed,
        "Flattened row by row, the last index moves fastest.",
    ),
    "4.2": Exercise(
        "a dict: letter -> kind",
        _sorted_out,
        "Rows, columns and ratios name a mistake before you have seen any code.",
    ),
}
