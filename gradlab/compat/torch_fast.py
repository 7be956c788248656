"""Fast mode: a few random directions per input, and slow mode where they raise doubt.

Torch compares ``v.J.u`` for one pair of directions that is the same in every call and
has no negative entry, and forgives ``atol`` times the sum of both: the more entries,
the more an error in one of them may hide. Here the directions have both signs and
entries of order one, so that one wrong entry weighs as much as in slow mode, and the
tolerance does not grow with the number of entries. In exchange a doubt is not yet a
verdict: the pair is computed in full, and compared entry by entry, wherever that can be
afforded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.compat.torch_machinery import direction, generator_of
from gradlab.compat.torch_pairs import Mismatch, Pair, agree
from gradlab.compat.torch_slow import first_line, slow

if TYPE_CHECKING:
    from gradlab.compat.torch_calls import Stage

__all__ = ["fast"]

_PROBES = 2  # two, because one may be nearly orthogonal to the error by bad luck
_MOST_ENTRIES = 20_000  # evaluations and backward passes that settling a doubt may cost
_SEED = 0x67726164  # any number: the same directions in every run, but not all positive


def fast(gc: Any, stage: Stage, *, masked: bool | None, explain: bool) -> None:
    """Compare ``v.J.u`` of both sides for every pair; see `slow` for the arguments."""
    generator = generator_of(_SEED)
    for _ in range(_PROBES):
        _probe(gc, stage, generator, masked=masked, explain=explain)
        if not stage.outputs:
            return


def _probe(
    gc: Any, stage: Stage, generator: Any, *, masked: bool | None, explain: bool
) -> None:
    point = stage.inputs if masked else gc._densify(stage.inputs)  # noqa: SLF001
    numbers, tensors = gc._get_inp_tensors(point)  # noqa: SLF001
    along: list[Any] = []
    for tensor in tensors:
        one = direction(tensor, generator)
        along.append(
            (one, direction(tensor, generator)) if tensor.is_complex() else one
        )
    flat = [_flat(gc, u) for u in along]
    if not stage.outputs and not stage.forward:
        gc._check_no_differentiable_outputs_fast(  # noqa: SLF001 - the sub-check itself
            stage.func,
            stage.func_out,
            point,
            numbers,
            along,
            stage.rule.eps,
            stage.rule.nondet_tol,
        )
        return
    slopes = gc._get_numerical_vJu(  # noqa: SLF001 - J u for every input
        stage.func,
        point,
        numbers,
        stage.func_out,
        along,
        None,
        stage.rule.eps,
        is_forward_ad=stage.forward,
    )
    if stage.forward:
        doubt = _forward_doubt(gc, stage, along, slopes)
    else:
        doubt = _backward_doubt(gc, stage, flat, slopes, generator)
    if doubt is not None:
        _settle(gc, stage, doubt, masked=masked, explain=explain)


def _flat(gc: Any, u: Any) -> Any:
    """Direction as flat dense numbers, for a dot product with a gradient."""
    dense = gc._to_flat_dense_if_sparse  # noqa: SLF001
    return (dense(u[0]), dense(u[1])) if isinstance(u, tuple) else dense(u)


def _forward_doubt(
    gc: Any, stage: Stage, along: list[Any], slopes: list[Any]
) -> Pair | None:
    analytic = gc._get_analytical_jacobian_forward_ad(  # noqa: SLF001 - forward AD
        stage.func,
        stage.inputs,
        stage.func_out,
        all_u=along,
        check_grad_dtypes=stage.check_grad_dtypes,
    )
    for j, by_output in enumerate(slopes):
        for i, slope in enumerate(by_output):
            if not stage.func_out[i].requires_grad:
                continue
            pair = stage.pair(i, j, analytic[j][i], slope)
            if not agree(gc, pair, stage.rule):
                return pair
    return None


def _backward_doubt(
    gc: Any, stage: Stage, flat: list[Any], slopes: list[Any], generator: Any
) -> Pair | None:
    weights = [direction(o, generator, real=False) for o in stage.outputs]
    analytic = gc._get_analytical_vJu_backward_mode(  # noqa: SLF001 - v J, twice
        stage.inputs,
        stage.outputs,
        stage.rule.nondet_tol,
        stage.check_grad_dtypes,
        weights,
        flat,
    )
    kept = [k for k, output in enumerate(stage.func_out) if output.requires_grad]
    for j, by_output in enumerate(slopes):
        for i, k in enumerate(kept):
            weighted = weights[i] * by_output[k]
            a, n = analytic[i][j], weighted.sum()
            # the size of the terms, not of their sum: that may be small by chance
            size = float(weighted.abs().square().sum().sqrt())
            bound = stage.rule.atol + stage.rule.rtol * max(size, float(n.abs()))
            if not float((a.to(n.device) - n).abs()) <= bound:  # nan is a doubt as well
                return stage.pair(i, j, a, n)
    return None


def _settle(
    gc: Any, stage: Stage, doubt: Pair, *, masked: bool | None, explain: bool
) -> None:
    """Let the entries decide: a doubt alone is no verdict where they can be had."""
    entries = sum(
        t.numel()
        for t in gc._iter_tensors(stage.inputs, True)  # noqa: SLF001
    )
    line = first_line(gc, stage, doubt)
    rows = sum(output.numel() for output in stage.outputs)
    if entries > _MOST_ENTRIES or (not stage.forward and rows > _MOST_ENTRIES):
        a, n = doubt.analytic, doubt.numeric
        raise Mismatch(
            line,
            doubt,
            [],
            f"in fast mode: along random directions analytic = {_told(a)}, numeric = "
            f"{_told(n)}; the input is too large to compare all entries "
            f"(gradlab.locate finds the wrong ones)",
        )
    slow(gc, stage, masked=masked, explain=explain)


def _told(value: Any) -> str:
    return f"{value.item():.6g}" if value.numel() == 1 else f"{value.numel()} numbers"
