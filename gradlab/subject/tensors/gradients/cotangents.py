"""Backward tried with gradients as training sends them, but matrices never do.

A Jacobian is read out with neat cotangents: contiguous, one for every output. In
training ``y.sum()`` sends one number expanded over all entries, a transposition sends
its strides, and an output that is not used sends nothing. A backward written by hand
that looks at memory instead of entries, or forgets about None, is right by the matrix
and wrong there.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, Literal

from gradlab.errors import GradlabError
from gradlab.subject.own_seeds import own_seed
from gradlab.subject.tensors.graph import graph_nodes, name_of
from gradlab.tracebacks import in_one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gradlab.subject.tensors.subjects import TorchSubject

__all__ = [
    "SLACK",
    "Trial",
    "cotangent_trials",
    "has_own_code",
    "has_reentrant_checkpoint",
    "is_reentrant",
    "moves_unseen",
]

_REENTRANT = "CheckpointFunction"  # torch's, with use_reentrant=True

_CAST = 0.02  # what the order of sums costs in bfloat16; misread memory is far off
# Units of round-off that another order of summation may cost, as in a batch; beyond,
# it is another computation.
SLACK = 256
_MOST_NODES = 10_000  # of a graph that are walked
_MOST_OUTPUTS = 8  # tried one by one
_LARGE = 1 << 26  # bytes of inputs above which further backward passes are felt
_MOVE = 1e-3  # relative displacement that shows whether an output moves


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """One way of sending a gradient that changed the answer.

    Parameters
    ----------
    way
        "strided" (entries far apart in memory), "expanded" (one number for all
        entries) or "alone" (nothing for the other outputs).
    output
        The output that got the gradient.
    where
        Name of the input whose gradient differs; "" if the backward raised.
    detail
        What the backward raised; else the largest relative difference, in words.
    raised
        Which of the two.
    """

    way: Literal["strided", "expanded", "alone"]
    output: str
    where: str
    detail: str
    raised: bool


def cotangent_trials(
    subject: TorchSubject, seed: int, in_time: Callable[[], None]
) -> Iterator[Trial]:
    """Send the same gradients in other ways, and compare what comes back.

    Meant for graphs that contain code of the user's (`has_own_code`): torch's own
    operations do not look at memory. One forward pass, a few backward ones.

    Parameters
    ----------
    subject
        Evaluated before.
    seed
        Of the cotangent.
    in_time
        Called before each part of the work; what it raises ends it.
    """
    from gradlab.subject.tensors.in_double.narrowing import narrowing_watched

    if sum(cell.values.nbytes for cell in subject.cells) > _LARGE:
        return
    in_time()
    try:
        values, leaves = subject.with_leaves(range(len(subject.cells)))
        with narrowing_watched() as narrowed:
            tensors = subject.evaluate(values, grad=True)
            outputs = [t for t in tensors if t.requires_grad]
            trials = _Trials(subject, leaves, outputs, seed, in_time)
    except Exception:  # noqa: BLE001 - whatever the user's code raises has been told
        return
    try:
        yield from trials.run(narrowed)
    except GradlabError:  # there is no more time
        raise
    except Exception:  # noqa: BLE001 - as above
        return


class _Trials:
    def __init__(
        self,
        subject: TorchSubject,
        leaves: list[Any],
        outputs: list[Any],
        seed: int,
        in_time: Callable[[], None],
    ) -> None:
        import torch

        generator = torch.Generator("cpu").manual_seed(own_seed(seed, "trials"))
        self._subject, self._leaves, self._outputs = subject, leaves, outputs
        self._deliver, self._in_time = _delivery(), in_time
        self._sizes = [0.0] * len(leaves)  # of gradients of random cotangents
        self._floors = [0.0] * len(leaves)  # of which f shows no more digits
        self._blur = 0.0  # relative difference that is no matter of memory
        self._weights = [
            torch.randn(
                t.shape, generator=generator, dtype=torch.float64, device="cpu"
            ).to(device=t.device, dtype=t.dtype)
            for t in outputs
        ]

    def run(self, narrowed: list[str]) -> Iterator[Trial]:
        """Try all ways; `narrowed` names the casts to less in the forward pass."""
        plain = self._backward(self._weights)
        if not self._same(plain, self._backward(self._weights)):
            return  # no two answers are alike: told elsewhere
        sizes = [_largest(gradient) for gradient in plain]
        self._sizes = [size if size < float("inf") else 0.0 for size in sizes]
        self._floors = self._least_seen()
        self._in_time()
        self._blur = _CAST if narrowed else self._rounding(plain)
        for k, weight in enumerate(self._weights[:_MOST_OUTPUTS]):
            self._in_time()
            zeros = [w * 0 for w in self._weights]
            alone = self._backward(_put(zeros, k, weight))
            ways: list[tuple[Any, Any, Any]] = []
            if weight.numel() > 1:
                one = weight.new_ones(())
                neat = self._backward(_put(zeros, k, weight * 0 + 1))
                sparse = _put(zeros, k, _strided(weight))
                ways += [
                    ("strided", alone, sparse),
                    ("expanded", neat, _put(zeros, k, one.expand(weight.shape))),
                ]
            if len(self._outputs) > 1:
                nothing: list[Any] = [None] * len(zeros)
                ways.append(("alone", alone, _put(nothing, k, weight)))
            for way, expected, sent in ways:
                self._in_time()
                trial = self._try(way, k, expected, sent)
                if trial is not None:
                    yield trial

    def _try(
        self, way: Any, k: int, expected: list[Any], sent: list[Any]
    ) -> Trial | None:
        names = [v.name for v in self._subject.outputs]
        output = names[k] if len(names) == len(self._outputs) else "the output"
        try:
            came = self._backward(sent)
        except Exception as error:  # noqa: BLE001 - the finding itself
            return Trial(way, output, "", in_one_line(error, 200), True)
        cells = self._subject.cells
        # what cancels to nothing, as of a normalised sum, has the rounding of its terms
        pairs = zip(cells, expected, came, self._sizes, self._floors, strict=True)
        for cell, one, two, size, floor in pairs:
            apart = _apart(one, two, size, floor)
            if apart > max(self._blur, _half_the_digits(two)):
                words = f"relative difference {apart:.2g}"
                return Trial(way, output, cell.variable.name, words, False)
        return None

    def _rounding(self, plain: list[Any]) -> float:
        """Tell what the order of sums may cost where the backward rounds to less.

        It is linear but for that, and casts inside it are seen by nobody: torch calls
        it without the modes that watch a forward pass.
        """
        thrice = self._backward([3 * weight for weight in self._weights])
        thirds = [None if gradient is None else gradient / 3 for gradient in thrice]
        parts = zip(plain, thirds, self._sizes, self._floors, strict=True)
        return min(SLACK * max((_apart(*part) for part in parts), default=0.0), _CAST)

    def _least_seen(self) -> list[float]:
        """Tell of each leaf the slope that changes f by all that f is, by its size.

        A gradient that is zero by cancellation, as that of ``softmax(x).sum()``, is
        nothing but rounding, and so is the next one; neither has a size.
        """
        parts = zip(self._outputs, self._weights, strict=True)
        whole = sum(float((y.detach() * w).abs().sum()) for y, w in parts)
        sizes = [_largest(leaf.detach()) for leaf in self._leaves]
        floors = [whole / (size or 1.0) for size in sizes]
        return [floor if floor < float("inf") else 0.0 for floor in floors]

    def _backward(self, cotangents: Sequence[Any]) -> list[Any]:
        import torch

        with torch.enable_grad():
            start = sum(
                self._deliver(output, cotangent)
                for output, cotangent in zip(self._outputs, cotangents, strict=True)
                if cotangent is not None
            )
            return list(
                torch.autograd.grad(
                    start,
                    self._leaves,
                    retain_graph=True,
                    allow_unused=True,
                )
            )

    def _same(self, one: list[Any], two: list[Any]) -> bool:
        return all(_apart(a, b) == 0 for a, b in zip(one, two, strict=True))


def _put(items: list[Any], k: int, item: Any) -> list[Any]:
    return [item if i == k else other for i, other in enumerate(items)]


def _strided(weight: Any) -> Any:
    """Copy to a tensor of reversed order of axes, with gaps between entries."""
    room = weight.new_zeros((*reversed(weight.shape), 2))
    view = room[..., 0].permute(*reversed(range(weight.dim())))
    return view.copy_(weight)


@functools.cache
def _delivery() -> Callable[[Any, Any], Any]:
    """Return what sends a cotangent into a graph as it lies in memory."""
    import torch

    class Deliver(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, output: Any, cotangent: Any) -> Any:
            ctx.cotangent = cotangent
            return output.new_zeros((), dtype=output.real.dtype)

        @staticmethod
        def backward(ctx: Any, _: Any) -> Any:
            kept = ctx.cotangent
            # a backward that writes to its gradient must not spoil the next trial;
            # what is expanded has no memory of its own, and stays as it is
            dense = kept.is_contiguous()
            return (kept.clone() if dense else kept), None

    return Deliver.apply


def _half_the_digits(gradient: Any) -> float:
    """Relative difference that another order of sums may cost; misread memory more."""
    import torch

    return 0.0 if gradient is None else float(torch.finfo(gradient.dtype).eps ** 0.5)


def _largest(gradient: Any) -> float:
    import torch

    if gradient is None or not gradient.numel():
        return 0.0
    dense = gradient.layout is torch.strided
    return float((gradient if dense else gradient.to_dense()).abs().max())


def _apart(one: Any, two: Any, least: float = 0.0, floor: float = 0.0) -> float:
    """Relative difference of two gradients beyond round-off; 0 if there is none.

    `least` is the size of the terms that they are sums of, where that is known, and
    `floor` one of which a rounding is not seen.
    """
    import torch

    if one is None and two is None:
        return 0.0
    if one is None or two is None:
        present = two if one is None else one
        return float(bool(present.any()))
    one, two = (
        g.to_dense() if g.layout is not torch.strided else g for g in (one, two)
    )
    if one.shape != two.shape:
        return 1.0
    size = max(_largest(one), least)
    apart = float((one - two).abs().max()) if one.numel() else 0.0
    if apart <= SLACK * torch.finfo(one.dtype).eps * max(size, floor):
        return 0.0
    return apart / max(size, 1e-300) if apart == apart else 0.0  # noqa: PLR0124 - nan


def has_own_code(outputs: Sequence[Any]) -> bool:
    """Whether a custom ``autograd.Function``, in Python or C++, is in a graph.

    Parameters
    ----------
    outputs
        Tensors at the end of the graph.
    """
    import torch

    own: Any = torch.autograd.function.BackwardCFunction
    for node in graph_nodes((output.grad_fn for output in outputs), _MOST_NODES):
        if "CppNode" in name_of(node):
            return True
        if isinstance(node, own):
            home = getattr(type(node), "_forward_cls", type(node)).__module__
            if not home.startswith("torch."):
                return True
    return False


def has_reentrant_checkpoint(outputs: Sequence[Any]) -> bool:
    """Whether a checkpoint in a graph runs what it holds backwards by itself.

    What it finds of parameters is added to their ``.grad``; the graph does not lead to
    them.
    """
    nodes = graph_nodes((output.grad_fn for output in outputs), _MOST_NODES)
    return any(map(is_reentrant, nodes))


def is_reentrant(node: Any) -> bool:
    """Whether a node of a graph is such a checkpoint."""
    return name_of(node).startswith(_REENTRANT)


def moves_unseen(subject: TorchSubject) -> dict[str, float]:
    """Find outputs left out, for they have no gradient, although they move.

    Returns
    -------
    dict
        By name: the relative change when all inputs move by a thousandth of their
        size. Two evaluations.
    """
    import torch

    kept, subject.kept = subject.kept, None
    generator = torch.Generator("cpu").manual_seed(0)
    values = []
    for cell in subject.cells:
        still = cell.own().detach().clone()
        noise = torch.rand(
            still.shape, generator=generator, dtype=torch.float64, device="cpu"
        )
        size = float(still.abs().max()) if still.numel() else 0.0
        shift = (_MOVE * (size or 1.0) * (noise + 0.5)).to(still.device, still.dtype)
        pair = still, still + shift
        values.append(
            pair if cell.pattern is None else tuple(map(cell.pattern.build, pair))
        )
    try:
        seen = []
        for side in (0, 1):
            if subject.reset is not None:
                subject.reset()
            with torch.no_grad():
                seen.append(subject.observed([pair[side] for pair in values]))
    except Exception:  # noqa: BLE001 - a function that fails beside the point
        return {}
    finally:
        subject.kept = kept
    names = seen[0].names
    return {
        names[k]: change
        for k in range(len(names))
        if kept is not None and k not in kept
        if (change := _apart(seen[0].tensors[k], seen[1].tensors[k])) > 0
    }
