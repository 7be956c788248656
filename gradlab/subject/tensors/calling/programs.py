"""What is called when a torch subject is evaluated: a function or a module.

A program takes one tensor for each input and returns the user's result. Everything
else it needs (constants, frozen parameters, buffers) is its own private copy, put back
whenever a call has changed it, so that calls do not depend on each other.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any, Protocol

from gradlab.errors import InputError, InputTypeError
from gradlab.subject.choosing import check_words
from gradlab.subject.holders import Holder, exchanged, holders_of
from gradlab.subject.tensors.calling.constants import Constants, cast, double_dtype
from gradlab.subject.tensors.calling.swap import Swap
from gradlab.subject.tensors.values import (
    Cell,
    is_differentiable,
    is_torch,
    looks_like_module,
    make_cell,
)
from gradlab.subject.tree import argument_names, flatten, rename

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Mapping, Sequence

    from gradlab.subject.tree import Tree

__all__ = [
    "FunctionProgram",
    "ModuleProgram",
    "Program",
    "prepare",
    "refuse_inference_mode",
]


class Program(Protocol):
    """A callable on one tensor per input."""

    @property
    def kind(self) -> str:
        """What it is, for people."""

    @property
    def buffers(self) -> dict[str, Any]:
        """Private buffers of a module; empty for a function."""

    def call(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None = None
    ) -> object:
        """Return the user's result; `buffers` replaces the private ones."""

    def widened(self, cells: Sequence[Cell], *, copied: bool) -> Program | None:
        """Return the same program in float64; `copied` asks for a deep copy first."""

    def standing(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Let a module's private tensors stand in it, for a loss that reads them."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Arguments:
    """The user's arguments, with places for the inputs."""

    tree: Tree
    places: tuple[int, ...]  # where among the leaves each input belongs
    constants: Constants  # tensors that are no inputs, by leaf
    plain: bool = False  # every argument is an input by itself: nothing to rebuild
    # names of what could be an input and is none, since others require grad and it
    # does not: arguments of a function, parameters of a module
    left_out: tuple[str, ...] = ()

    def filled(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments of a call."""
        if self.plain:
            return tuple(values)
        leaves = [leaf.value for leaf in self.tree.leaves]
        for place, tensor in self.constants.tensors.items():
            leaves[place] = tensor
        for place, value in zip(self.places, values, strict=True):
            leaves[place] = value
        return self.tree.rebuild(leaves)

    def widened(self) -> Arguments:
        """Return the same with constants at double precision."""
        return dataclasses.replace(self, constants=self.constants.cast(double_dtype))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class FunctionProgram:
    """A function of tensors."""

    fn: Callable[..., Any]
    arguments: Arguments
    places: list[Holder] = dataclasses.field(default_factory=list)  # of inputs' tensors

    @property
    def kind(self) -> str:
        """What it is, for people."""
        import torch

        owner = getattr(self.fn, "__self__", None)
        if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
            return f"autograd.Function {owner.__name__}"
        return f"torch function {getattr(self.fn, '__name__', type(self.fn).__name__)}"

    @property
    def buffers(self) -> dict[str, Any]:
        """A function has none."""
        return {}

    def call(
        self,
        values: Sequence[Any],
        buffers: Mapping[str, Any] | None = None,  # noqa: ARG002 - modules have some
    ) -> object:
        """Return the user's result."""
        try:
            if not self.places:
                return self.fn(*self.arguments.filled(values))
            with self.standing(values):
                return self.fn(*self.arguments.filled(values))
        finally:
            self.arguments.constants.put_back()

    def own(self) -> list[Any]:
        """List the user's own tensors, one for each input."""
        return [self.arguments.tree.leaves[p].value for p in self.arguments.places]

    def search(self, roots: Sequence[object]) -> None:
        """Exchange inputs also where the function reads them by itself."""
        wanted = {id(tensor) for tensor in self.own()}
        self.places[:] = holders_of(wanted, (self.fn, *roots))

    @property
    def beside(self) -> bool:
        """Whether the search found that the function reads some by itself."""
        return bool(self.places)

    def standing(
        self,
        values: Sequence[Any],
        buffers: Mapping[str, Any] | None = None,  # noqa: ARG002 - modules have some
    ) -> contextlib.AbstractContextManager[None]:
        """Let the private tensors stand wherever the user's own do."""
        return exchanged(self.places, self.own(), values)

    def widened(self, cells: Sequence[Cell], *, copied: bool) -> Program | None:  # noqa: ARG002 - modules need them
        """Return the same program in float64; there is nothing to deep-copy."""
        if copied:
            return None
        return dataclasses.replace(self, arguments=self.arguments.widened())


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ModuleProgram:
    """A module, called on private parameters and buffers."""

    module: Any
    keys: tuple[str, ...]  # parameters that are inputs; they come first
    arguments: Arguments
    held: Constants  # private buffers
    # private copies of the other parameters; none where the module's own will do
    frozen: Constants = dataclasses.field(default_factory=lambda: Constants({}))
    swap: Swap = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        names = (*self.keys, *self.held.tensors, *self.frozen.tensors)
        object.__setattr__(self, "swap", Swap(self.module, names))

    @property
    def kind(self) -> str:
        """What it is, for people."""
        return f"torch module {type(self.module).__name__}"

    @property
    def buffers(self) -> dict[str, Any]:
        """Private buffers by name."""
        return self.held.tensors

    def call(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None = None
    ) -> object:
        """Return what forward returns; the module's own state is not touched."""
        state = self._state(values, buffers)
        arguments = self.arguments.filled(values[len(self.keys) :])
        try:
            return self.swap.call(state, arguments)
        finally:
            self.held.put_back()
            self.frozen.put_back()
            self.arguments.constants.put_back()

    def own(self) -> list[Any]:
        """List the module's own parameters among the inputs, which come first."""
        return [self.swap.own[key] for key in self.keys]

    def search(self, roots: Sequence[object]) -> None:
        """Exchange them also where they are held beside the module's tables."""
        self.swap.search(roots)

    @property
    def beside(self) -> bool:
        """Whether the search found some that are held beside those tables."""
        return self.swap.beside

    def standing(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None = None
    ) -> contextlib.AbstractContextManager[None]:
        """Let private parameters and buffers stand in the module meanwhile."""
        return self.swap.standing(self._state(values, buffers))

    def _state(
        self, values: Sequence[Any], buffers: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        own = values[: len(self.keys)]
        return {
            **self.frozen.tensors,
            **(self.held.tensors if buffers is None else buffers),
            **dict(zip(self.keys, own, strict=True)),
        }

    def widened(self, cells: Sequence[Cell], *, copied: bool) -> Program | None:  # noqa: ARG002 - the protocol
        """Return the same module on float64 parameters and buffers.

        With `copied`, tensors that hang on the module as plain attributes are cast as
        well, which takes a deep copy.
        """
        module = self.module
        if copied and self.swap.roots is not None:
            return None  # what else reads the parameters reads those of the original
        if copied:
            try:
                module = copy.deepcopy(module).double()
            except Exception:  # noqa: BLE001 - whatever a user's __deepcopy__ raises
                return None
            for part in module.modules():
                for name, value in list(vars(part).items()):
                    if is_differentiable(value):
                        object.__setattr__(part, name, cast(value, double_dtype))
        own = self.module.named_parameters()
        rest = {name: parameter for name, parameter in own if name not in self.keys}
        frozen = Constants(rest, double_dtype)
        constants = self.arguments.widened(), self.held.cast(double_dtype)
        wide = ModuleProgram(module, self.keys, *constants, frozen)
        if self.swap.roots is not None:
            wide.swap.search(self.swap.roots)
        return wide


def prepare(
    fn: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    wrt: str | Sequence[str] | None = None,
    names: Sequence[str] | Mapping[str, str] | None = None,
) -> tuple[Program, list[Cell]]:
    """Choose the inputs of a torch function or module and copy them.

    Parameters
    ----------
    fn
        Function or module.
    arguments
        Its positional arguments, nested as the user likes.
    wrt, names
        As for `gradlab.subject.tensors.subjects.torch_subject`.

    Raises
    ------
    InputError
        If there is no differentiable input, or `wrt` or `names` do not fit.
    """
    refuse_inference_mode()
    tree = flatten(arguments, argument_names(fn, len(arguments)))
    found = [(p, leaf) for p, leaf in enumerate(tree.leaves)]
    tensors = {p: leaf for p, leaf in found if is_differentiable(leaf.value)}
    parameters = {}
    if looks_like_module(fn):
        _check_module(fn)
        named = fn.named_parameters()  # type: ignore[attr-defined] # a module
        parameters = {key: value for key, value in named if is_differentiable(value)}
    # a candidate is a parameter (by key) or an argument (by place among the leaves)
    candidates: list[tuple[str | int, str, Any]] = [
        (key, key, value) for key, value in parameters.items()
    ]
    candidates += [(place, leaf.name, leaf.value) for place, leaf in tensors.items()]
    chosen = _choose(candidates, wrt, names, fn)
    keys = tuple(where for where, _, _ in chosen if isinstance(where, str))
    places = tuple(where for where, _, _ in chosen if isinstance(where, int))
    constants = Constants(
        {
            place: leaf.value
            for place, leaf in found
            if is_torch(leaf.value) and place not in places
        }
    )
    plain = places == tuple(range(len(arguments))) and all(map(is_torch, arguments))
    out = [name for where, name, _ in candidates if where not in (*keys, *places)]
    if parameters:  # what a module is called on is data unless it requires grad
        out = [name for name in out if name in parameters]
    left_out = tuple(out) if wrt is None else ()
    filled = Arguments(tree, places, constants, plain, left_out)
    cells = [make_cell(name, value) for _, name, value in chosen]
    if looks_like_module(fn):
        held = Constants(dict(fn.named_buffers()))  # type: ignore[attr-defined] # a module
        return ModuleProgram(fn, keys, filled, held), cells
    return FunctionProgram(fn, filled), cells


def refuse_inference_mode() -> None:
    """Refuse to look for gradients where torch records none, whatever is asked for.

    Raises
    ------
    InputError
        If ``torch.inference_mode()`` is on.

    Examples
    --------
    >>> refuse_inference_mode()
    """
    import torch

    if torch.is_inference_mode_enabled():
        msg = (
            "torch.inference_mode() is on, where autograd does not exist; check the "
            "gradient outside of it (torch.no_grad() would do no harm)"
        )
        raise InputError(msg)


def _check_module(module: Any) -> None:
    """Refuse modules that cannot be called on other parameters."""
    import torch

    if isinstance(module, torch.jit.ScriptModule):
        msg = (
            f"{type(module).__name__} is a scripted module, whose parameters cannot be "
            f"exchanged; pass the eager module it was made from"
        )
        raise InputTypeError(msg)
    for name, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
            msg = (
                f"parameter {name!r} of {type(module).__name__} has no shape yet; "
                f"call the lazy module once on an input before checking it"
            )
            raise InputError(msg)


def _choose(
    candidates: list[tuple[str | int, str, Any]],
    wrt: str | Sequence[str] | None,
    names: Sequence[str] | Mapping[str, str] | None,
    fn: object,
) -> list[tuple[str | int, str, Any]]:
    """Apply the rule of requires_grad, ``names=`` and ``wrt=``, in this order."""
    check_words(wrt, names)
    if not candidates:
        label = getattr(fn, "__name__", type(fn).__name__)
        msg = (
            f"{label} has no differentiable input: none of its arguments (or "
            f"parameters) is a floating or complex tensor; cast one, for example "
            f"by x.double()"
        )
        raise InputError(msg)
    chosen = [one for one in candidates if one[2].requires_grad] or candidates
    renamed = rename([name for _, name, _ in chosen], names)
    chosen = [
        (where, name, value)
        for (where, _, value), name in zip(chosen, renamed, strict=True)
    ]
    if wrt is None:
        return chosen
    wanted = [wrt] if isinstance(wrt, str) else list(wrt)
    new_names = {where: name for where, name, _ in chosen}
    offered = [
        (where, new_names.get(where, n), value) for where, n, value in candidates
    ]
    unknown = [name for name in wanted if name not in {n for _, n, _ in offered}]
    if unknown or not wanted:
        msg = (
            f"wrt= asks for {unknown or wanted}, but the differentiable inputs are "
            f"{[name for _, name, _ in offered]}"
        )
        raise InputError(msg)
    return [one for one in offered if one[1] in wanted]
