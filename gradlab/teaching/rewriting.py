"""Write a mistake into source, so that the rest of it stays as its author wrote it."""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import re
from typing import TYPE_CHECKING, Any

from gradlab.teaching.mistakes import KINDS

if TYPE_CHECKING:
    from gradlab.teaching.mistakes import Kind

__all__ = ["Change", "changes"]


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """One possible mistake at one place.

    Attributes
    ----------
    kind
        What kind it is.
    line
        Line of the source, counted from 1.
    source
        The whole source with the mistake in it.
    before, after
        The lines that differ, right and wrong.
    """

    kind: Kind
    line: int
    source: str
    before: str
    after: str


def _names(function: ast.AST) -> tuple[str, ...]:
    """Names of arguments and local variables of a function, `self` left out."""
    found: dict[str, None] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            found[node.arg] = None
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.id] = None
    return tuple(name for name in found if name not in {"self", "ctx"})


def _offset(lines: list[str], line: int, column: int) -> int:
    """Place in the source of a line and of a column in bytes, as ast counts them."""
    width = len(lines[line - 1].encode()[:column].decode())
    return sum(map(len, lines[: line - 1])) + width


def _plain(text: str) -> str:
    """Lay code out as people do: another style would give the line away."""
    text = re.sub(r"\b(\w+) \*\* (\w+)\b", r"\1**\2", text)
    text = re.sub(r"'(\w*)'", r'"\1"', text)
    return re.sub(r"^return \(([\w, ]+)\)$", r"return \1", text)


def _replace(source: str, node: Any, fresh: ast.AST) -> str | None:
    """Write a node over another; comments and layout around it stay as they are."""
    lines = source.splitlines(keepends=True)
    start = _offset(lines, node.lineno, node.col_offset)
    end = _offset(lines, node.end_lineno, node.end_col_offset)
    text = _plain(ast.unparse(ast.fix_missing_locations(fresh)))
    if not isinstance(fresh, ast.expr):
        text = text.replace("\n", "\n" + " " * node.col_offset)
        return source[:start] + text + source[end:]
    if isinstance(fresh, ast.Name | ast.Constant):
        start, end = _unwrapped(source, start, end)
    plain = source[:start] + text + source[end:]
    safe = source[:start] + f"({text})" + source[end:]
    try:
        meant = ast.dump(ast.parse(safe))
    except SyntaxError:
        return None
    try:
        same = ast.dump(ast.parse(plain)) == meant
    except SyntaxError:
        same = False
    return plain if same else safe  # brackets only where they are needed


def _unwrapped(source: str, start: int, end: int) -> tuple[int, int]:
    """Widen a place by the brackets around it: nobody writes (x).sum()."""
    before, after = source[:start], source[end:]
    call = re.search(r"[\w\])]\($", before)
    if before.endswith("(") and after.startswith(")") and not call:
        return start - 1, end + 1
    return start, end


def _strange(text: str) -> bool:
    """Whether nobody would write this: x = x, x - x, x / x, a - -b."""
    if re.search(r"[-+] -", text):
        return True
    try:
        tree = ast.parse(text.strip().rstrip(","))
    except SyntaxError:
        return False  # part of a longer statement
    return any(_idle(node) for node in ast.walk(tree))


def _idle(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div):
        return ast.dump(node.left) == ast.dump(node.right)
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
        return ast.unparse(node.targets[0]) == node.value.id
    return False


def _change(kind: Kind, source: str, node: Any, fresh: ast.AST) -> Change | None:
    written = _replace(source, node, copy.deepcopy(fresh))
    if written is None:
        return None
    if isinstance(fresh, ast.Pass):
        if node.end_lineno > node.lineno:
            return None
        # nobody writes `pass` for a line that was forgotten
        last = written.splitlines(keepends=True)
        del last[node.lineno - 1]
        written = "".join(last)
    old = source.splitlines()[node.lineno - 1 : node.end_lineno]
    longer = len(written.splitlines()) - len(source.splitlines())
    new = written.splitlines()[node.lineno - 1 : node.end_lineno + longer]
    if any(_strange(line) for line in new if line not in old):
        return None
    try:
        compile(written, "<planted>", "exec")
    except SyntaxError:
        return None
    return Change(kind, node.lineno, written, "\n".join(old), "\n".join(new))


def changes(source: str) -> list[Change]:
    r"""List every mistake that could be made in a piece of source.

    Parameters
    ----------
    source
        Right code: functions and classes. Constructors are left alone.

    Returns
    -------
    list of Change
        In the order of `KINDS`, then of the source. Some change nothing that matters,
        and some crash: see `plant`.

    Examples
    --------
    >>> [c.after.strip() for c in changes("def f(a, b):\n    return a * b")][:3]
    ['return a * b * 2', 'return a * b / 2', 'return -a * b']
    """
    return list(_changes(source))


@functools.lru_cache(maxsize=16)  # a whole class gets its exercises from one source
def _changes(source: str) -> tuple[Change, ...]:
    places = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and function.name != "__init__":
            names = _names(function)
            nodes = [n for part in function.body for n in ast.walk(part)]
            places += [(node, names) for node in nodes if hasattr(node, "lineno")]
    found = []
    for kind in KINDS:
        for node, names in places:
            for fresh in kind.variants(node, names):
                change = _change(kind, source, node, fresh)
                if change is not None and change.source != source:
                    found.append(change)
    return tuple(found)
