"""Slow mode: every entry of every Jacobian, by torch's formulas and torch's rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradlab.compat.torch_pairs import Mismatch, Pair, agree

if TYPE_CHECKING:
    from gradlab.compat.torch_calls import Stage

__all__ = ["first_line", "slow"]


def slow(gc: Any, stage: Stage, *, masked: bool | None, explain: bool) -> None:
    """Compare all pairs, output-major; the first that disagrees decides.

    Parameters
    ----------
    gc
        Torch's module.
    stage
        Function, point and outputs, with the part of complex numbers considered.
    masked
        Whether entries that a sparse input does not store are left alone.
    explain
        Whether the pairs after the first mismatch are wanted too, for the report.

    Raises
    ------
    Mismatch
        With all pairs that could be computed.
    GradcheckError
        If backward is not deterministic, or its result has another size or dtype.
    """
    rule = stage.rule
    if not stage.outputs:
        gc._check_no_differentiable_outputs(  # noqa: SLF001 - the sub-check itself
            stage.func,
            stage.inputs,
            stage.func_out,
            eps=rule.eps,
            is_forward_ad=stage.forward,
        )
        return
    numeric = numeric_jacobians(gc, stage, masked=masked)
    if stage.forward:
        pairs = _forward_pairs(gc, stage, numeric)
        wrong = next((pair for pair in pairs if not agree(gc, pair, rule)), None)
    else:
        pairs, wrong = _backward_pairs(gc, stage, numeric, explain=explain)
    if wrong is not None:
        raise Mismatch(first_line(gc, stage, wrong), wrong, pairs)


def first_line(gc: Any, stage: Stage, pair: Pair) -> str:
    """Write the line by which people know this failure."""
    text = gc._get_notallclose_msg(  # noqa: SLF001 - the familiar words
        "",
        "",
        pair.output,
        pair.input,
        stage.complex_indices,
        stage.part == "imaginary",
        is_forward_ad=stage.forward,
    )
    return str(text).splitlines()[0]


def numeric_jacobians(
    gc: Any, stage: Stage, *, masked: bool | None
) -> list[tuple[Any, ...]]:
    """Central differences, by differentiable output, then by input."""
    point = stage.inputs if masked else gc._densify(stage.inputs)  # noqa: SLF001
    by_input = gc._get_numerical_jacobian(  # noqa: SLF001 - also knows sparse layouts
        stage.func,
        point,
        stage.func_out,
        eps=stage.rule.eps,
        is_forward_ad=stage.forward,
    )
    by_output = list(zip(*by_input, strict=True))
    return [
        jacobians
        for output, jacobians in zip(stage.func_out, by_output, strict=True)
        if output.requires_grad
    ]


def _forward_pairs(gc: Any, stage: Stage, numeric: list[tuple[Any, ...]]) -> list[Pair]:
    analytic = gc._get_analytical_jacobian_forward_ad(  # noqa: SLF001 - forward AD
        stage.func,
        stage.inputs,
        stage.func_out,
        check_grad_dtypes=stage.check_grad_dtypes,
    )
    # torch forgets to leave out here what it leaves out of the numeric side
    kept = [k for k, output in enumerate(stage.func_out) if output.requires_grad]
    return [
        stage.pair(i, j, analytic[j][k], jacobian)
        for i, k in enumerate(kept)
        for j, jacobian in enumerate(numeric[i])
    ]


def _backward_pairs(
    gc: Any, stage: Stage, numeric: list[tuple[Any, ...]], *, explain: bool
) -> tuple[list[Pair], Pair | None]:
    pairs: list[Pair] = []
    wrong: Pair | None = None
    for i, output in enumerate(stage.outputs):
        try:
            analytic = gc._check_analytical_jacobian_attributes(  # noqa: SLF001
                stage.inputs, output, stage.rule.nondet_tol, stage.check_grad_dtypes
            )
        except RuntimeError:
            if wrong is None:
                raise
            continue  # the verdict stands; this only makes the report shorter
        for j, jacobian in enumerate(analytic):
            pair = stage.pair(i, j, jacobian, numeric[i][j])
            pairs.append(pair)
            if wrong is None and not agree(gc, pair, stage.rule):
                wrong = pair
        if wrong is not None and not explain:
            break
    return pairs, wrong
