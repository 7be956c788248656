"""Parameters: where they are registered, and other tensors that stand in for them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.recording.frames import parameters_handed_in, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.variables import Variable

__all__ = ["Owners", "standing_in"]


_MARK = "_stands_in_for_a_parameter"  # attribute of our own replacements


class Owners:
    """Where each parameter of a model is registered; a tied one is in several places.

    Parameters
    ----------
    root
        The model.
    """

    def __init__(self, root: Any) -> None:
        self._places: dict[int, list[tuple[dict[str, Any], str]]] = {}
        self.names: dict[int, str] = {}
        self.by_module: dict[int, list[Any]] = {}
        self._fixed: set[int] = set()
        # For every module all parameters in it, as (table, key, parameter).
        self._inside: dict[int, list[tuple[dict[str, Any], str, Any]]] = {}
        for prefix, module in root.named_modules(remove_duplicate=True):
            if not isinstance(module._parameters, dict):  # noqa: SLF001
                continue  # compiled: its parameters cannot be exchanged
            for key, parameter in module._parameters.items():  # noqa: SLF001
                if parameter is None:
                    continue
                name = f"{prefix}.{key}" if prefix else key
                self._places.setdefault(id(parameter), []).append(
                    (module._parameters, key)  # noqa: SLF001
                )
                self.names.setdefault(id(parameter), name)
                self.by_module.setdefault(id(module), []).append(parameter)
                if hasattr(module, "_flat_weights") and not hasattr(
                    module, "_weights_have_changed"
                ):
                    # Recurrent layers of torch keep a second list of their weights,
                    # which old versions do not refresh by themselves.
                    self._fixed.add(id(parameter))

        for module in root.modules():
            self._inside[id(module)] = [
                (part._parameters, key, parameter)  # noqa: SLF001
                for part in module.modules()
                if isinstance(part._parameters, dict)  # noqa: SLF001
                for key, parameter in part._parameters.items()  # noqa: SLF001
            ]

    def is_piece(self, module: Any) -> bool:
        """Whether a call of a module now is a piece of its own.

        It is not if the module is not part of the model, or if its caller exchanged
        its parameters (``torch.func.functional_call``): then it is the caller's code.
        """
        inside = self._inside.get(id(module))
        return inside is not None and all(
            table.get(key) is parameter or hasattr(table.get(key), _MARK)
            for table, key, parameter in inside
        )

    def inside(self, module: Any) -> list[Any]:
        """Trainable parameters of a module and all below, each once."""
        found = {
            id(p): p for _, _, p in self._inside.get(id(module), []) if p is not None
        }
        return [p for p in found.values() if p.requires_grad]

    def own(self, module: Any) -> list[Any]:
        """Trainable parameters registered in a module itself, each once."""
        mine = {id(p): p for p in self.by_module.get(id(module), []) if p.requires_grad}
        return list(mine.values())

    def held(self, frame: Frame) -> list[Any]:
        """Trainable parameters that a call answers for itself, each once.

        Those registered in the module, and in all below that it does not call: a
        ``ParameterList``, or a layer of which it reads the weight. Whether they are in
        the graph does not matter: a weight read through ``.data`` is in none. Those of
        the modules that a custom Function calls, if it may add to their ``.grad``.
        """
        found = self.within(frame) if frame.adds_up is not False else []
        return found + [p for p in self._held(frame) if p.requires_grad]

    def within(self, frame: Frame) -> list[Any]:
        """Trainable parameters that a Function is not given, of modules it calls."""
        given = {id(parameter) for parameter in parameters_handed_in(frame).values()}
        found = {id(p): p for module in frame.within for p in self.own(module)}
        return [p for key, p in found.items() if key not in given]

    def frozen(self, frame: Frame, *, whole: bool) -> list[Any]:
        """Parameters that a call reads and nobody trains; `whole` with those inside."""
        inside = [p for _, _, p in self._inside.get(id(frame.target), [])]
        found = inside if whole else self._held(frame)
        return [p for p in found if p is not None and not p.requires_grad]

    def note_added(
        self, frame: Frame, variables: Sequence[Variable], gradients: Sequence[Any]
    ) -> None:
        """Note in a call whether its backward adds to what only it can reach."""
        if frame.adds_up is None and frame.within:
            own = {id(parameter) for parameter in self.within(frame)}
            frame.adds_up = any(
                gradient is not None and id(variable.parameter) in own
                for variable, gradient in zip(variables, gradients, strict=False)
            )

    def _held(self, frame: Frame) -> list[Any]:
        called = {id(call.target) for call in walk(frame.children)}
        found: dict[int, Any] = {}
        stack = [frame.target]
        while stack:
            module = stack.pop()
            mine = self.by_module.get(id(module), [])
            found |= {id(parameter): parameter for parameter in mine}
            below = getattr(module, "_modules", None) or {}
            stack += [
                m for m in below.values() if m is not None and id(m) not in called
            ]
        return list(found.values())

    def name(self, parameter: Any) -> str:
        """Qualified name; "?" for a tensor that is registered nowhere."""
        return self.names.get(id(parameter), "?")

    def places(self, parameter: Any) -> list[tuple[dict[str, Any], str]]:
        """Tables and keys under which it can be exchanged; empty if it cannot."""
        if id(parameter) in self._fixed:
            return []
        return self._places.get(id(parameter), [])


@contextlib.contextmanager
def standing_in(
    owners: Owners, stand_ins: Iterable[tuple[Any, Callable[[], Any]]]
) -> Iterator[None]:
    """Let other tensors stand in for parameters, which are not touched.

    A parameter that cannot be exchanged (registered nowhere, or kept twice by torch)
    is overwritten, and restored bitwise from a copy.

    Parameters
    ----------
    owners
        Of the model.
    stand_ins
        Parameters, and what makes the replacement of each; called one at a time, to
        save memory.
    """
    import torch

    with contextlib.ExitStack() as stack:
        for parameter, value in stand_ins:
            places = owners.places(parameter)
            if places:
                stack.callback(_register, places, parameter)
                new = value()
                if not isinstance(new, torch.nn.Parameter):
                    new = torch.nn.Parameter(new, requires_grad=new.requires_grad)
                setattr(new, _MARK, True)
                _register(places, new)
                continue
            memory = parameter.detach()
            copy = memory.clone()
            stack.callback(_write, parameter, copy)
            _write(parameter, value())
        yield


def _register(places: list[tuple[dict[str, Any], str]], parameter: Any) -> None:
    for table, key in places:
        table[key] = parameter


def _write(parameter: Any, value: Any) -> None:
    # Through .data: the version counter of the user's tensor stays what it was.
    parameter.data.copy_(value)
