"""A level from an instructor's own code: right source in, something to play out.

The truth that gradients are judged by is the forward pass of the code itself. Five
forms are read off the source: an ``autograd.Function``; a class with ``forward`` and
``backward``; functions ``..._forward`` and ``..._backward``, with a cache or without
one; and a function that returns ``(loss, gradients)``.
"""

from __future__ import annotations

import ast
import inspect
import string
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.errors import InputError
from gradlab.teaching.level import Level, Size, Trial, load, named
from gradlab.teaching.marking import judge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["level_from"]

_SIZES = {"shown": (4, 3, 5, 2, 6, 7), "hidden": (3, 5, 2, 6, 4, 8)}


def level_from(
    code: Any,
    inputs: Mapping[str, Sequence[int | str]] | Callable[..., Trial],
    *,
    title: str = "",
    story: str = "",
) -> Level:
    r"""Make a level from right code with a hand-written backward pass.

    Parameters
    ----------
    code
        Source text, or a class or function whose source can be read. It must be right:
        mistakes are planted later, by `plant`.
    inputs
        Shape of each input, by the names that the forward pass gives them (of a class
        with attributes: the names of these as well). A length may be a number or a
        letter; ``{"x": "nd", "W": "dk", "b": "k"}`` are shapes that fit each other,
        and letters stand for other lengths where the code is tried unseen. Entries
        are standard normal. For anything else, pass ``deal(rng, size)`` that returns a
        `gradlab.teaching.level.Trial` (its `dout` is replaced).
    title, story
        What the game calls it, and tells about it.

    Returns
    -------
    Level
        Its source is right as it stands.

    Raises
    ------
    InputError
        If the form is none of those above, the code does not run on these inputs, or
        a gradient is wrong already.

    Examples
    --------
    >>> code = '''
    ... def scale_forward(x, g):
    ...     return x * g, (x, g)
    ...
    ... def scale_backward(dout, cache):
    ...     x, g = cache
    ...     return dout * g, (dout * x).sum(axis=0)
    ... '''
    >>> level = level_from(code, {"x": "nd", "g": "d"})
    >>> level.edit, dict(level.gradients)
    ('scale_backward', {'dx': 'x', 'dg': 'g'})
    """
    source = code if isinstance(code, str) else _source(code)
    edit, forward, run = _read(source)
    plain = inputs if callable(inputs) else _dealer(inputs)
    names = tuple(plain(np.random.default_rng(0), "shown").inputs)

    def deal(rng: np.random.Generator, size: Size) -> Trial:
        trial = plain(rng, size)
        out = np.asarray(forward(trial.copy().inputs, trial.given))
        return Trial(trial.inputs, trial.given, rng.standard_normal(out.shape))

    level = Level(
        title=title or f"Your own {edit}",
        edit=edit,
        story=story or f"A forward and a backward pass, `{edit}`.",
        source=source,
        repair=("", ""),
        wrong=(),
        hints=(),
        moral="",
        gradients={f"d{name}": name for name in names},
        deal=deal,
        forward=forward,
        run=run,
        needs="torch" if "autograd" in source else "",
    )
    _must_be_right(level)
    return level


def _source(code: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(code))
    except (OSError, TypeError) as error:
        raise InputError(
            f"the source of {code!r} cannot be read; pass it as text"
        ) from error


def _must_be_right(level: Level) -> None:
    """Refuse code that is wrong, or does not run, before a mistake is planted."""
    for size in ("shown", "hidden"):
        try:
            rows = judge(level, load(level.source, level.edit), size=size)
        except Exception as error:
            raise InputError(
                f"{level.edit} does not run on inputs of these shapes "
                f"({type(error).__name__}: {error}); pass others"
            ) from error
        bad = [f"{row.name} {row.words}" for row in rows if not row.right]
        if bad:
            raise InputError(
                f"{level.edit} is not right to begin with: {'; '.join(bad)}; mend it "
                "first, mistakes are planted into right code"
            )


def _dealer(shapes: Mapping[str, Sequence[int | str]]) -> Callable[..., Trial]:
    """Return a function that deals normal numbers of these shapes."""
    lengths = [each for shape in shapes.values() for each in shape]
    letters = list(dict.fromkeys(each for each in lengths if isinstance(each, str)))
    known = set(string.ascii_letters)
    if len(letters) > len(_SIZES["shown"]) or any(
        each not in known for each in letters
    ):
        raise InputError(
            f"shapes are made of numbers and at most {len(_SIZES['shown'])} different "
            f"letters; got {letters}"
        )

    def deal(rng: np.random.Generator, size: Size) -> Trial:
        of: dict[int | str, Any] = dict(zip(letters, _SIZES[size], strict=False))
        arrays = {
            name: rng.standard_normal([of.get(each, each) for each in shape])
            for name, shape in shapes.items()
        }
        return Trial(arrays)

    return deal


# ------------------------------------------------------------------ forms of the source


def _read(source: str) -> tuple[str, Callable[..., Any], Callable[..., Any]]:
    """Return what is edited, the true function, and how a student's code is run."""
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = {
                each.name for each in node.body if isinstance(each, ast.FunctionDef)
            }
            if {"forward", "backward"} <= methods:
                bases = " ".join(ast.unparse(base) for base in node.bases)
                form = _capsule if "Function" in bases else _layer
                return (node.name, *form(source, node.name))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    for name in names:
        twin = name.replace("backward", "forward")
        if twin != name and twin in names:
            return (name, *_pair(source, twin))
    if len(names) == 1:
        return (names[0], *_loss(source, names[0]))
    raise InputError(
        "found no class with forward and backward, no functions ..._forward and "
        "..._backward, and no single function that returns (loss, gradients); the "
        f"source defines {', '.join(names) or 'no function'}"
    )


def _by_name(found: Any, names: Sequence[str]) -> dict[str, Any]:
    """Name what a backward pass returned."""
    return named(found, tuple(f"d{name}" for name in names), more=True)


def _pair(source: str, forward: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``f_forward(x, w) -> out`` or ``(out, cache)``, and its backward."""
    first = load(source, forward)

    def true(inputs: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        out = first(**inputs, **given)
        return out[0] if isinstance(out, tuple) else out

    def run(student: Any, trial: Trial) -> tuple[None, dict[str, Any]]:
        out = first(**trial.inputs, **trial.given)
        if isinstance(out, tuple):
            rest = out[1:]
        else:
            rest = (*trial.inputs.values(), *trial.given.values())
        return None, _by_name(student(trial.dout, *rest), tuple(trial.inputs))

    return true, run


def _loss(source: str, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """``loss(x, w) -> (loss, gradients)``, or of one dict of parameters."""
    first = load(source, name)

    def call(function: Any, trial_inputs: Mapping[str, Any], given: Any) -> Any:
        free = [
            each
            for each in inspect.signature(function).parameters.values()
            if each.default is each.empty
        ]
        if len(free) == 1 and free[0].name not in trial_inputs:
            return function(dict(trial_inputs), **given)
        return function(**trial_inputs, **given)

    def true(inputs: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        return call(first, inputs, given)[0]

    def run(student: Any, trial: Trial) -> tuple[Any, dict[str, Any]]:
        loss, *found = call(student, trial.inputs, trial.given)
        one = found[0] if len(found) == 1 else tuple(found)
        by_name = _by_name(one, tuple(trial.inputs))
        # the loss is a scalar: what arrives from above multiplies all of them
        scale = float(trial.dout)
        scaled = {
            each: None if value is None else np.asarray(value) * scale
            for each, value in by_name.items()
        }
        return loss, scaled

    return true, run


def _layer(source: str, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Write attributes, call ``forward(x)`` and ``backward(dout)``, read gradients."""
    first = load(source, name)

    def forward_of(kind: Any, trial_inputs: Mapping[str, Any], given: Any) -> Any:
        arguments = inspect.signature(kind.forward).parameters
        layer = _bare(kind)
        passed = {n: v for n, v in trial_inputs.items() if n in arguments}
        for each in trial_inputs.keys() - passed.keys():
            setattr(layer, each, trial_inputs[each])
        return layer, passed, layer.forward(**passed, **given)

    def true(inputs: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        return forward_of(first, inputs, given)[2]

    def run(student: Any, trial: Trial) -> tuple[Any, dict[str, Any]]:
        layer, passed, out = forward_of(student, trial.inputs, trial.given)
        found = _by_name(layer.backward(trial.dout), tuple(passed))
        grads = getattr(layer, "grads", {})
        for each in trial.inputs.keys() - passed.keys():
            stored = grads.get(each, grads.get(f"d{each}"))
            found[f"d{each}"] = getattr(layer, f"d{each}", stored)
        return out, found

    return true, run


def _bare(kind: Any) -> Any:
    """Return an object of a class, made without arguments or without `__init__`."""
    needed = [
        each
        for each in inspect.signature(kind.__init__).parameters.values()
        if each.default is each.empty
        and each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}
    ]
    return kind() if len(needed) <= 1 else object.__new__(kind)


def _capsule(source: str, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Apply a `torch.autograd.Function` to tensors, and go back through it."""
    first = load(source, name)

    def true(inputs: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        torch: Any = sys.modules["torch"]  # the source has imported it
        with torch.no_grad():
            out = first.apply(*map(torch.tensor, inputs.values()), *given.values())
        return out.numpy()

    def run(student: Any, trial: Trial) -> tuple[Any, dict[str, Any]]:
        torch: Any = sys.modules["torch"]
        with torch.enable_grad():
            leaves = [
                torch.tensor(each, requires_grad=True) for each in trial.inputs.values()
            ]
            out = student.apply(*leaves, *trial.given.values())
            found = torch.autograd.grad(
                out, leaves, torch.tensor(trial.dout), allow_unused=True
            )
        arrays = [None if each is None else each.numpy() for each in found]
        names = (f"d{each}" for each in trial.inputs)
        return out.detach().numpy(), dict(zip(names, arrays, strict=True))

    return true, run
