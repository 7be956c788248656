"""Failures of gradcheck that are not about values: what each means, what to do."""

from __future__ import annotations

from gradlab.diagnosis.finding import BugKind, Finding

__all__ = ["trouble"]

# part of torch's message -> kind, what it means, what to do; the first match counts
_TABLE = (
    (
        "expected to be zero",
        BugKind.DETACHED,
        "No output requires grad, although the outputs change with the inputs.",
        "Look for detach, .data, .item() or an integer on the way through.",
    ),
    (
        "not reentrant",
        BugKind.NONDETERMINISTIC,
        "Two backward passes on the same graph gave different gradients.",
        "Look for random numbers or state in backward; or pass nondet_tol.",
    ),
    (
        "not multiplied by grad_output",
        BugKind.IGNORES_UPSTREAM,
        "The gradient is not zero although the incoming gradient is.",
        "Multiply by grad_output in backward.",
    ),
    (
        "undefined or zero when",
        BugKind.IGNORES_UPSTREAM,
        "The gradient is not zero although no gradient came in.",
        "Return None, or zeros, from backward for an incoming None or zero.",
    ),
    (
        "handle undefined output grads",
        BugKind.UNKNOWN,
        "Backward raises if the gradient of an output is undefined (None).",
        "Test grad_output for None in backward, or have ctx materialize zeros.",
    ),
    (
        "Mismatch in tangent values",
        BugKind.UNKNOWN,
        "Forward mode treats a missing tangent otherwise than a tangent of zeros.",
        "Treat a tangent of None as zeros in jvp.",
    ),
    (
        "dtype mismatch",
        BugKind.DTYPE,
        "A gradient, or a tangent, has another dtype than what it belongs to.",
        "Cast it to the dtype of its input at the end of backward (or jvp).",
    ),
    (
        "incorrect type",
        BugKind.DTYPE,
        "A gradient has another dtype than its input.",
        "Cast it to the dtype of its input at the end of backward.",
    ),
    (
        "incorrect size",
        BugKind.WRONG_SHAPE,
        "A gradient has another shape than its input.",
        "Sum over broadcast axes and restore the shape at the end of backward.",
    ),
    (
        "incorrect layout",
        BugKind.WRONG_SHAPE,
        "A sparse gradient has another layout than its input.",
        "Convert it to the layout of its input at the end of backward.",
    ),
    (
        "incorrect sparse_dim",
        BugKind.WRONG_SHAPE,
        "A sparse gradient has another number of sparse dimensions than its input.",
        "Rebuild it with the sparse and dense dimensions of its input.",
    ),
    (
        "incorrect dense_dim",
        BugKind.WRONG_SHAPE,
        "A sparse gradient has another number of dense dimensions than its input.",
        "Rebuild it with the sparse and dense dimensions of its input.",
    ),
    (
        "incorrect device",
        BugKind.UNKNOWN,
        "A gradient lies on another device than its input.",
        "Move it to the device of its input at the end of backward.",
    ),
    (
        "batched grad",
        BugKind.UNKNOWN,
        "The gradient under vmap is not the gradient without it.",
        "Use operations in backward that vmap knows, or give the Function a vmap rule.",
    ),
)


def trouble(text: str) -> Finding:
    """Read one of torch's messages as a finding.

    Parameters
    ----------
    text
        Message of a GradcheckError.

    Examples
    --------
    >>> trouble("backward not multiplied by grad_output").kind
    <BugKind.IGNORES_UPSTREAM: 'ignores_upstream'>
    """
    for part, kind, evidence, advice in _TABLE:
        if part in text:
            return Finding(kind, "error", "", 0.9, evidence, advice)
    return Finding(
        BugKind.UNKNOWN,
        "error",
        "",
        0.1,
        "torch's gradcheck failed for a reason of its own, given below.",
        "See the message of torch.",
    )
