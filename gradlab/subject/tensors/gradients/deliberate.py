"""Operations of torch whose gradient is not the derivative, on purpose.

They are documented, many a model needs them, and none is a mistake: what they change
cannot be compared with differences, and is said to be left out.

A CTC loss with its derivative, in place of the gradient that torch gives it. With
respect to a log-probability torch hands on the probability too much, summed over what
comes in: a ``log_softmax`` before it takes that away again. Nothing else does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.tensors.calling.uncompiled import uncompiled
from gradlab.subject.tensors.gradients.hidden_writes import written_parameters
from gradlab.subject.tensors.graph import graph_nodes, name_of
from gradlab.subject.tensors.in_double.double import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from gradlab.subject.subject import Variable
    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = [
    "IMPLICIT",
    "Purpose",
    "ctc_alone",
    "drawn_implicitly",
    "padded_row",
    "purposes",
    "spectral",
    "with_its_derivative",
]

_MOST = 100_000  # nodes of a graph that are walked
_SPECTRAL = {
    "torch.nn.utils.parametrizations._SpectralNorm",
    "torch.nn.utils.spectral_norm.SpectralNorm",
}
# M. Figurnov, S. Mohamed and A. Mnih, "Implicit reparameterization gradients", 2018.
IMPLICIT = (
    "draws of a gamma distribution (chi-squared, Student, beta, Dirichlet) are accepted"
    " or rejected; they have the gradient of its quantile (implicit reparametrisation)"
)
_IMPLICIT = ("StandardGammaBackward", "_DirichletBackward")
_REDUCTIONS = ("none", "mean", "sum")  # by the numbers that ``torch.ctc_loss`` takes


@dataclasses.dataclass(frozen=True, slots=True)
class Purpose:
    """An input whose gradient is something else on purpose.

    Parameters
    ----------
    which
        Position of the input.
    words
        What does it, as a sentence.
    row
        The only row of it that is concerned, and whose gradient is zero; None for all
        of it.
    entries
        The only coordinates that are concerned; None for all.
    advice
        What to do to compare them after all.
    twin
        The same with its derivative instead, if there is one: by what its gradient is
        off as well, that is no purpose.
    """

    which: int
    words: str
    row: int | None = None
    entries: NDArray[np.intp] | None = None
    advice: str = "It was not compared; check the model without that option."
    twin: TorchSubject | None = None

    def coordinates(self, variable: Variable) -> NDArray[np.intp]:
        """Return the coordinates of the input that are concerned."""
        every = np.arange(variable.coordinates)
        if self.entries is not None:
            return self.entries
        if self.row is None:
            return every
        width = variable.coordinates // variable.shape[0]
        return every[self.row * width : (self.row + 1) * width]


def purposes(subject: TorchSubject, *, graph: bool = True) -> tuple[Purpose, ...]:
    """Find the inputs of a subject that torch treats otherwise on purpose.

    Parameters
    ----------
    subject
        Evaluated before.
    graph
        Whether to look into the graph of one more forward pass as well, and not only
        at the layers of a module; worth it where something disagrees.
    """
    if not graph:
        return _once([*_of_modules(subject), *_of_writes(subject)])
    try:
        found = [*_of_modules(subject), *_of_writes(subject)]
        values, leaves = subject.with_leaves(range(len(subject.cells)))
        outputs = subject.evaluate(values, grad=True)
    except Exception:  # noqa: BLE001 - whatever the user's code raises has been told
        return ()
    place = {id(leaf): which for which, leaf in enumerate(leaves)}
    for node in graph_nodes((output.grad_fn for output in outputs), _MOST):
        name = name_of(node)
        if name in ("EmbeddingBackward0", "EmbeddingBagBackward0"):
            found += _of_embedding(node, place)
        if name.startswith("CtcLossBackward") and ctc_alone(node):
            words = (
                "ctc_loss takes its input for normalised log-probabilities, and its "
                "gradient is right only together with the log_softmax before it"
            )
            twin = within(subject, with_its_derivative, backward=False)
            found += [Purpose(k, words, twin=twin) for k in _below(node, place)]
        if drawn_implicitly(node):
            advice = "It was not compared; check the rest with the draw as an input."
            found += [Purpose(k, IMPLICIT, advice=advice) for k in _below(node, place)]
    return _once(found)


def _once(found: Iterable[Purpose]) -> tuple[Purpose, ...]:
    seen: dict[tuple[int, int | None], Purpose] = {}
    for purpose in found:
        seen.setdefault((purpose.which, purpose.row), purpose)
    return tuple(seen.values())


def _below(node: Any, place: dict[int, int]) -> list[int]:
    """Positions of the inputs that get their gradient through a node."""
    below = graph_nodes([node], _MOST)
    variables = [getattr(part, "variable", None) for part in below]
    return sorted({place[id(v)] for v in variables if id(v) in place})


def _of_embedding(node: Any, place: dict[int, int]) -> Iterable[Purpose]:
    parent = node.next_functions[0][0]
    which = place.get(id(getattr(parent, "variable", None)))
    if which is None:
        return
    if node._saved_scale_grad_by_freq:  # noqa: SLF001 - how nodes tell their options
        words = (
            "scale_grad_by_freq divides the gradient of a row by how often it is used"
        )
        yield Purpose(which, words)
    row = node._saved_padding_idx  # noqa: SLF001 - as above
    rows = node._saved_weight_sym_argsize_0  # noqa: SLF001 - as above
    row = row - 2**64 if row >= 2**63 else row
    if 0 <= row < rows:
        yield Purpose(which, f"padding_idx keeps row {row} from learning", row)


def _of_modules(subject: TorchSubject) -> Iterable[Purpose]:
    from torch import nn

    module = getattr(subject.program, "module", None)
    if module is None:
        return
    place = {cell.variable.name: k for k, cell in enumerate(subject.cells)}
    for prefix, part in module.named_modules():
        start = f"{prefix}." if prefix else ""
        own: list[tuple[str, str]] = []
        if isinstance(part, (nn.Embedding, nn.EmbeddingBag)):
            words = "max_norm overwrites rows of the weight at every call"
            own += [("weight", words)] if part.max_norm is not None else []
            words = "scale_grad_by_freq divides the gradient of a row by its frequency"
            own += [("weight", words)] if part.scale_grad_by_freq else []
        if spectral(part):
            words = (
                "in training mode spectral norm takes its singular vectors for "
                "constants; call eval() to check it"
            )
            own += [
                (name, words)
                for name, _ in part.named_parameters()
                if name.endswith(("weight_orig", ".original", "original0"))
            ]
        for name, words in own:
            if start + name in place:
                yield Purpose(place[start + name], words)


def _of_writes(subject: TorchSubject) -> Iterable[Purpose]:
    for written in written_parameters(subject):
        variable = subject.inputs[written.which]
        count, size = len(written.positions), variable.coordinates
        some = "all" if count == size else f"{count} of {size}"
        by = f"by up to {written.most:.3g}" if written.most else "beside the point"
        yield Purpose(
            written.which,
            f"forward overwrites {some} entries of {variable.name} ({by}) where "
            f"autograd does not record (no_grad, .data), which gives the gradient at "
            f"the values written and takes the write for none",
            entries=written.positions,
            advice="These entries were not compared; move the write behind "
            "optimizer.step(), or make it part of forward "
            "(torch.nn.utils.parametrize), and check again.",
        )


def spectral(layer: Any) -> bool:
    """Whether a layer has a spectral norm that is in training mode."""
    parts = list(layer._forward_pre_hooks.values())  # noqa: SLF001 - no public list
    for made in getattr(layer, "parametrizations", {}).values():
        parts += list(made)
    names = {f"{type(part).__module__}.{type(part).__name__}" for part in parts}
    return bool(layer.training and names & _SPECTRAL)


def drawn_implicitly(node: Any) -> bool:
    """Whether a node of a graph drew variables that are not moved by their gradient."""
    return bool(name_of(node).startswith(_IMPLICIT))


def ctc_alone(node: Any) -> bool:
    """Whether a CTC loss in a graph is not fed by a log_softmax."""
    for parent, _ in node.next_functions:
        while parent is not None and name_of(parent).startswith(
            ("Transpose", "Permute", "View", "Unsafe", "Slice", "Clone", "Copy", "T0")
        ):
            parent = parent.next_functions[0][0]  # noqa: PLW2901 - down the line
        if parent is not None and not name_of(parent).startswith("LogSoftmax"):
            return True
    return False


def padded_row(layer: Any) -> int | None:
    """Row of an embedding that never learns; None for any other layer."""
    from torch import nn

    if not isinstance(layer, nn.Embedding) or layer.padding_idx is None:
        return None
    if type(layer).forward is not nn.Embedding.forward:
        return None  # somebody else's; it may use all rows
    return int(layer.padding_idx) % int(layer.num_embeddings)


@contextlib.contextmanager
def with_its_derivative() -> Iterator[None]:
    """Give every CTC loss that is computed meanwhile the gradient that it has.

    Examples
    --------
    >>> import torch
    >>> x = torch.zeros(2, 1, 3, dtype=torch.float64, requires_grad=True)
    >>> lengths = torch.tensor([2]), torch.tensor([1])
    >>> with with_its_derivative():
    ...     loss = torch.nn.functional.ctc_loss(x, torch.tensor([[1]]), *lengths)
    >>> slopes = torch.autograd.grad(loss, x)[0].sum(dim=-1)  # -1 is moved in all
    >>> [round(float(slope), 9) for slope in slopes]
    [-1.0, -1.0]
    """
    from torch.overrides import TorchFunctionMode

    class Right(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            del types
            result = func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") != "ctc_loss":
                return result
            return result - _too_much(args, kwargs or {})

    with uncompiled(), Right():
        yield


def _too_much(args: Any, kwargs: Any) -> Any:
    """Zero, with the gradient that a log_softmax would take away."""
    import torch

    bound = inspect.signature(torch.nn.functional.ctc_loss).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    logs = given["log_probs"]
    long, goals = (
        torch.as_tensor(given[f"{name}_lengths"], device=logs.device)
        for name in ("input", "target")
    )
    with torch.no_grad():
        alone = {**given, "log_probs": logs.detach(), "reduction": "none"}
        alone["zero_infinity"] = False
        known = torch.nn.functional.ctc_loss(**alone).isfinite()
    if logs.dim() == 2:
        long, goals = long.reshape(()), goals.reshape(())
    times = torch.arange(len(logs), device=logs.device)
    inside = times.reshape(-1, *[1] * long.dim()) < long
    total = torch.where(inside, logs.exp().sum(dim=-1), 0).sum(dim=0)
    rest = torch.where(known, total - total.detach(), 0)
    reduction = given["reduction"]
    reduction = reduction if isinstance(reduction, str) else _REDUCTIONS[reduction]
    if reduction == "mean":
        return (rest / goals.clamp(min=1)).mean()
    return rest.sum() if reduction == "sum" else rest
