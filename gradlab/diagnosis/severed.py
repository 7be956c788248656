"""Detector of graphs that are cut: run torch again with detach and hooks switched off.

If the gradient is right once `detach`, `.data` and `no_grad` do nothing, they were the
cause; nothing can be said more surely. Torch is used only where the user has loaded it.
"""

from __future__ import annotations

import collections
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.diagnosis.finding import BugKind
from gradlab.diagnosis.measures import Case, Clue
from gradlab.diagnosis.torch_modes import under
from gradlab.subject.subject import is_torch_subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["hooked", "severed", "written"]

_CUTS = {"detach", "detach_", "data", "no_grad"}
_EXITS = {"item", "numpy", "tolist", "__array__", "__float__"}
_LARGE = 1_000_000  # entries of a Jacobian beyond which it is not computed again


class _Handle:
    """Stands in for the handle of a hook that was not installed."""

    def remove(self) -> None:
        """Do nothing: there is no hook."""


def severed(case: Case) -> list[Clue]:
    """Detect detach, .data and no_grad by undoing them.

    Where the function is locally constant they are there on purpose: straight through.
    """
    if np.abs(case.numeric).max(initial=0) <= 1e-6 * np.abs(case.analytic).max():
        return []
    undone = _again(case, cuts=True, hooks=False)
    if undone is None:
        return []
    values, met = undone
    cuts = [f"{name} ({count}x)" for name, count in met.items() if name in _CUTS]
    exits = [f"{name} ({count}x)" for name, count in met.items() if name in _EXITS]
    if cuts and _right(case, values):
        return [
            Clue(
                BugKind.DETACHED,
                0.99,
                f"The function uses {', '.join(cuts)}; with these doing nothing, the "
                f"gradient of {case.name} is right.",
                "Remove the one that stands between the input and the output, or leave "
                "the input out with wrt= if the cut is meant.",
            )
        ]
    if exits and not case.analytic.any():
        return [
            Clue(
                BugKind.DETACHED,
                0.995,
                f"The function leaves torch by {', '.join(exits)} on the way from "
                f"{case.name}; no gradient comes back from there.",
                "Stay with torch operations between the input and the output.",
            )
        ]
    return []


def written(case: Case) -> list[Clue]:
    """Detect an input that is overwritten where autograd does not record."""
    subject: Any = case.evidence.subject
    if not is_torch_subject(subject) or case.variable.name not in subject.mutated:
        return []
    from gradlab.subject.torch_written import unrecorded

    case.evidence.meter.spend(1)
    found = unrecorded(subject, case.part.which)
    if found is None:
        return []
    columns = case.part.positions[case.wrong.any(axis=0)]
    if not np.isin(columns, found.positions).all():
        return []
    size = case.variable.coordinates
    some = (
        "all" if len(found.positions) == size else f"{len(found.positions)} of {size}"
    )
    return [
        Clue(
            BugKind.DETACHED,
            0.99,
            f"The function overwrites {some} entries of {case.name} (by up to "
            f"{found.most:.3g}) where autograd does not record (no_grad, .data or "
            f"NumPy): its gradient lacks the slope of that write.",
            f"Write it out of place ({case.name} = ...), where autograd sees it.",
        )
    ]


def hooked(case: Case) -> list[Clue]:
    """Detect hooks that change gradients, by not installing them."""
    undone = _again(case, cuts=False, hooks=True)
    if undone is None or "register_hook" not in undone[1]:
        return []
    if not _right(case, undone[0]):
        return []
    return [
        Clue(
            BugKind.SURROGATE,
            0.965,
            f"The function installs a hook that changes gradients; without it the "
            f"gradient of {case.name} is right.",
            "Check without the hook, or remove it if the change is not meant.",
        )
    ]


def _right(case: Case, values: NDArray[np.float64]) -> bool:
    """Whether recomputed values agree where the original ones did not."""
    gap = np.abs(values - case.numeric)[case.wrong]
    size = np.abs(case.error)[case.wrong]
    return bool((gap <= 10 * case.tolerance[case.wrong] + 1e-4 * size).all())


def _again(
    case: Case, *, cuts: bool, hooks: bool
) -> tuple[NDArray[np.float64], collections.Counter[str]] | None:
    """Pull all cotangents back with some of torch's functions made harmless."""
    subject: Any = case.evidence.subject
    torch: Any = sys.modules.get("torch")
    side = subject.analytic
    if torch is None or side is None or not is_torch_subject(subject):
        return None
    if not str(side.description).startswith("autograd"):
        return None
    if case.analytic.size > _LARGE:
        return None
    met: collections.Counter[str] = collections.Counter()
    mode = _mode(torch, met, cuts=cuts, hooks=hooks)
    rows = len(case.evidence.base)
    case.evidence.meter.spend(1)
    try:
        with under(subject, mode, mode):
            values = _pulled(side.on(subject), rows, case.part.which)
    except Exception:  # noqa: BLE001 - without its cut the program may not run
        return None
    return values[:, case.part.positions], met


def _pulled(side: Any, rows: int, which: int) -> NDArray[np.float64]:
    """Jacobian by one input; of a large model no other gradient is kept."""
    if rows > 1 or not getattr(side, "streams", False):
        return np.asarray(side.pull(np.eye(rows)).values[which])
    found: dict[int, NDArray[np.float64]] = {}
    side.stream(np.ones(1), [which], lambda k, g: found.update({k: g[None].copy()}))
    return found[which]


def _mode(
    torch: Any, met: collections.Counter[str], *, cuts: bool, hooks: bool
) -> type[Any]:
    """Make a function mode that counts, and replaces what it is told to."""
    data = torch.Tensor.data.__get__

    class Harmless(torch.overrides.TorchFunctionMode):  # type: ignore[misc] # Any base
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = "data" if func == data else str(getattr(func, "__name__", ""))
            if name == "_set_grad_enabled":
                name = "" if args[0] else "no_grad"
            tracked = bool(args) and getattr(args[0], "requires_grad", False)
            counted = name in {"no_grad", "register_hook"} or tracked
            if counted and name in _CUTS | _EXITS | {"register_hook"}:
                met[name] += 1
            if cuts and name == "no_grad":
                return None
            if cuts and tracked and name in _CUTS:
                return args[0].clone()
            if hooks and name == "register_hook":
                return _Handle()
            return func(*args, **(kwargs or {}))

    return Harmless
