"""Realistic mistakes in a backward pass, as changes of its syntax tree.

Each kind looks at one node and says what a tired author might have written instead.
Whether that changes a gradient is not decided here: `planting.py` tries it.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["KINDS", "Kind"]


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """One kind of mistake.

    Attributes
    ----------
    name
        For the answer key.
    difficulty
        1: a constant or a shape gives it away. 2: the pattern of wrong entries does.
        3: the formula has to be derived.
    hint
        What to look for, without saying where.
    variants
        ``variants(node, names)`` yields what the node might be instead; `names` are
        the local variables that are known where the node stands.
    """

    name: str
    difficulty: int
    hint: str
    variants: Callable[[Any, tuple[str, ...]], Iterator[ast.AST]]


def _with(node: Any, **fields: Any) -> Any:
    """Return a copy of a node with some fields replaced."""
    fresh = copy.deepcopy(node)
    for name, value in fields.items():
        setattr(fresh, name, value)
    return fresh


def _operator(node: Any, *kinds: type[ast.operator]) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, kinds)


def _reduction(node: Any, *names: str) -> bool:
    """Whether a node is a call such as ``x.sum(axis=0)``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
        and bool(node.keywords)
    )


def _computed(node: Any) -> bool:
    """Whether a node is an expression from which a gradient may be made."""
    return _operator(node, ast.Mult, ast.MatMult, ast.Div) or _reduction(node, "sum")


def _doubled(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _computed(node):
        yield ast.BinOp(node, ast.Mult(), ast.Constant(2))


def _halved(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _computed(node):
        yield ast.BinOp(node, ast.Div(), ast.Constant(2))


def _negated(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _computed(node):
        yield _minus(node)


def _minus(node: Any) -> Any:
    """Put the sign where people write it: before the first factor."""
    if _operator(node, ast.Mult, ast.MatMult, ast.Div):
        return _with(node, left=_minus(node.left))
    return ast.UnaryOp(ast.USub(), node)


def _unsummed(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _reduction(node, "sum", "mean"):
        yield node.func.value


def _sum_for_mean(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _reduction(node, "mean"):
        yield _with(node, func=_with(node.func, attr="sum"))


def _mean_for_sum(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _reduction(node, "sum"):
        yield _with(node, func=_with(node.func, attr="mean"))


def _other_axis(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if isinstance(node, ast.keyword) and node.arg == "axis":
        value = node.value
        if isinstance(value, ast.Constant) and value.value in {0, 1}:
            yield _with(node, value=ast.Constant(0 if value.value else 1))


def _no_transpose(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if isinstance(node, ast.Attribute) and node.attr == "T":
        yield node.value


def _swapped_factors(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _operator(node, ast.MatMult):
        yield _with(node, left=node.right, right=node.left)


def _flipped_mask(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    other = {ast.Gt: ast.Lt, ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
    if isinstance(node, ast.Compare) and type(node.ops[0]) in other:
        yield _with(node, ops=[other[type(node.ops[0])]()])


def _other_mask(node: Any, names: tuple[str, ...]) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name):
        for name in names:
            if name != node.left.id:
                yield _with(node, left=ast.Name(name, ast.Load()))


def _no_division(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _operator(node, ast.Div):
        yield node.left


def _product_for_quotient(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _operator(node, ast.Div):
        yield _with(node, op=ast.Mult())


def _missing_factor(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _operator(node, ast.Mult):
        yield node.left
        yield node.right


def _missing_term(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _operator(node, ast.Sub, ast.Add):
        number = isinstance(node.left, ast.Constant)  # of 1 - h**2 the 1 is forgotten
        if not number:
            yield node.left
        if number or isinstance(node.op, ast.Add):
            yield node.right


def _sign_of_term(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    term = isinstance(node, ast.BinOp | ast.AugAssign)
    if term and isinstance(node.op, ast.Sub | ast.Add):
        yield _with(node, op=ast.Add() if isinstance(node.op, ast.Sub) else ast.Sub())


def _no_power(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if _operator(node, ast.Pow):
        yield node.left


def _skipped_line(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if isinstance(node, ast.AugAssign) or isinstance(target, ast.Subscript):
        yield ast.Pass()
    elif isinstance(target, ast.Name) and any(
        isinstance(used, ast.Name) and used.id == target.id
        for used in ast.walk(node.value)
    ):
        yield ast.Pass()  # x = f(x)


def _other_variable(node: Any, names: tuple[str, ...]) -> Iterator[ast.AST]:
    read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    if read and node.id in names:
        yield from (_with(node, id=name) for name in names if name != node.id)


def _swapped_results(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        results = node.value.elts
        for i in range(len(results) - 1):
            order = [*results[:i], results[i + 1], results[i], *results[i + 2 :]]
            yield _with(node, value=_with(node.value, elts=order))


def _kept_first(node: Any, _: tuple[str, ...]) -> Iterator[ast.AST]:
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
        and isinstance(node.value, ast.Name)
    ):
        known = ast.Call(
            ast.Name("getattr", ast.Load()),
            [target.value, ast.Constant(target.attr), ast.Constant(None)],
            [],
        )
        test = ast.Compare(known, [ast.Is()], [ast.Constant(None)])
        yield ast.If(test, [copy.deepcopy(node)], [])


KINDS: tuple[Kind, ...] = (
    Kind(
        "doubled",
        1,
        "a constant factor that the forward pass knows nothing of",
        _doubled,
    ),
    Kind(
        "halved", 1, "a constant factor that the forward pass knows nothing of", _halved
    ),
    Kind("negated", 1, "a sign", _negated),
    Kind(
        "unsummed",
        1,
        "a shape: what is broadcast forward is summed backward",
        _unsummed,
    ),
    Kind("sum for mean", 1, "a mean that became a sum", _sum_for_mean),
    Kind("mean for sum", 1, "a sum that became a mean", _mean_for_sum),
    Kind("no division", 1, "a division that is missing", _no_division),
    Kind("other axis", 2, "the axis of a sum", _other_axis),
    Kind("no transpose", 2, "a transpose that is missing", _no_transpose),
    Kind("swapped factors", 2, "the order of a matrix product", _swapped_factors),
    Kind("flipped mask", 2, "which entries a mask lets through", _flipped_mask),
    Kind("other mask", 2, "what a mask is made from", _other_mask),
    Kind(
        "skipped line",
        2,
        "a step of the forward pass with no counterpart",
        _skipped_line,
    ),
    Kind(
        "swapped results",
        2,
        "the order in which results are returned",
        _swapped_results,
    ),
    Kind("product for quotient", 3, "a quotient", _product_for_quotient),
    Kind(
        "missing factor",
        3,
        "a factor of the chain rule that is missing",
        _missing_factor,
    ),
    Kind(
        "missing term",
        3,
        "a path from input to output that was forgotten",
        _missing_term,
    ),
    Kind("sign of a term", 3, "the sign of one term", _sign_of_term),
    Kind(
        "no power", 3, "a derivative that is not quite that of the function", _no_power
    ),
    Kind(
        "other variable",
        3,
        "a variable that stands where another belongs",
        _other_variable,
    ),
    Kind(
        "kept first",
        3,
        "what the layer remembers from one call to the next",
        _kept_first,
    ),
)
