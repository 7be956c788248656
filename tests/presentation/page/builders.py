"""Reports made by hand from NumPy matrices: the page is tested without a check."""

from __future__ import annotations

import dataclasses
import math
import types

import numpy as np

from gradlab.comparison.comparison import Comparison
from gradlab.comparison.verdict import Verdict
from gradlab.diagnosis.finding import Finding, rank
from gradlab.localisation.layers.audited import LayerAudit, LayerRow, LayerState
from gradlab.report import Report
from gradlab.subject.subject import Variable

SAFETY = 5.0


def comparison(
    analytic,
    numeric,
    name="W",
    shape=None,
    output=("loss", ()),
    bar=None,
    rtol=1e-6,
    floor=1e-11,
    **options,
):
    """Compare two matrices by the rule of DESIGN section 4, written out again."""
    a, n = np.atleast_2d(analytic), np.atleast_2d(numeric)
    size = np.maximum(np.abs(a), np.abs(n))
    top = np.abs(n[np.isfinite(n)]).max(initial=0.0)
    if bar is None:
        bar = 1e-12 * top + 1e-10 * np.abs(n)
    bar = np.broadcast_to(np.asarray(bar, float), a.shape).copy()
    with np.errstate(all="ignore"):
        allowed = rtol * size + floor * top
        error = np.abs(a - n)
        verdicts = np.where(5.0 * bar > allowed, 1, 0).astype(np.int8)
        verdicts[(error > allowed) & (error > SAFETY * bar)] = 2
        one = np.isfinite(a) != np.isfinite(n)
        both = ~np.isfinite(a) & ~np.isfinite(n)
    verdicts[one] = 2
    verdicts[both] = 1
    dtype = "complex128" if np.iscomplexobj(a) else "float64"
    shape = (a.shape[1],) if shape is None else shape
    return Comparison(
        output=Variable(output[0], tuple(output[1])),
        input=Variable(name, tuple(shape), dtype),
        analytic=a,
        numeric=n,
        numeric_error=bar,
        allowed=np.nan_to_num(allowed),
        verdicts=verdicts,
        step=np.full(a.shape, 6e-6),
        **options,
    )


def report(*comparisons, findings=(), **options):
    """Wrap comparisons into a report."""
    wrong = tuple(c.input.name for c in comparisons if c.verdict == 2)
    settings = {
        "subject": "NumPy function loss_and_grads",
        "analytic": "the gradients that loss_and_grads returns",
        "culprits": wrong,
        "method": "central differences",
        "coverage": "full",
        "evaluations": 1 + 2 * sum(c.shape[1] for c in comparisons),
        "seconds": 0.0134,
        "seed": 0,
    }
    return Report(
        comparisons=tuple(comparisons),
        findings=rank(list(findings)),
        **(settings | options),
    )


def noisy(rng, matrix, size=3e-10):
    """Return what finite differences would make of a Jacobian."""
    return matrix * (1 + size * rng.standard_normal(matrix.shape))


def tutorial(rng):
    """The course tutorial's network: W1 doubled, the rest right."""
    shapes = {"W1": (4, 10), "b1": (10,), "W2": (10, 3), "b2": (3,)}
    blocks = []
    for name, shape in shapes.items():
        numeric = rng.standard_normal((1, math.prod(shape)))
        analytic = numeric * (2 if name == "W1" else 1)
        blocks.append(comparison(analytic, noisy(rng, numeric), name, shape))
    finding = Finding(
        "scale",
        "error",
        "W1",
        0.98,
        "analytic = 2.000 x numeric in all 40 entries.",
        "Look for a factor 2 in the line that computes grads['W1'].",
    )
    return report(*blocks, findings=[finding])


def zoo(rng, rows=24):
    """Seven parameters of a network, three of them wrong in different ways."""
    shapes = {
        "conv1.weight": (6, 1, 3, 3),
        "conv1.bias": (6,),
        "norm.gamma": (16,),
        "fc1.weight": (12, 6),
        "fc1.bias": (12,),
        "fc2.weight": (4, 12),
        "fc2.bias": (4,),
    }
    blocks = []
    for name, shape in shapes.items():
        n = math.prod(shape)
        keep = rng.random((rows, n)) < 0.75
        spread = 10.0 ** rng.normal(0, 0.7, (1, n))
        numeric = noisy(rng, rng.standard_normal((rows, n)) * keep * spread)
        analytic = noisy(rng, numeric)
        bar = None
        if name == "norm.gamma":
            analytic = analytic * 2
        if name == "fc1.weight":
            analytic[:, 30:36] = 0
        if name == "fc2.bias":
            analytic[5, 2] = np.nan
            analytic[7, 1] = np.inf
        if name == "conv1.bias":
            bar = np.full((rows, n), 1e-9)
            bar[:, 2] = 1e-2
        blocks.append(
            comparison(analytic, numeric, name, shape, ("out", (4, 6)), bar=bar)
        )
    findings = [
        Finding(
            "missing_term",
            "error",
            "fc1.weight",
            0.9,
            "analytic is exactly 0 in 6 of 72 columns, and only there.",
            "Check that every unit of fc1 receives its gradient: row 5 gets none.",
        ),
        Finding(
            "scale",
            "error",
            "norm.gamma",
            0.97,
            "analytic = 2.000 x numeric in all 290 entries.",
            "Look for a factor 2 where the gradient of norm.gamma is computed.",
        ),
        Finding(
            "nonfinite",
            "error",
            "fc2.bias",
            0.8,
            "analytic is nan in 1 entry and inf in 1, numeric is finite.",
            "Evaluate the backward pass at out[1, 1] by hand: it divides by zero.",
        ),
        Finding(
            "step_size",
            "warning",
            "conv1.bias",
            0.4,
            "the error bar of column 2 is 1e-2 of the scale at every step.",
            "Run the check in float64.",
        ),
    ]
    return report(*blocks, findings=findings, subject="torch module ConvNet")


def large(rng, side=1000, at=(613, 271)):
    """A large matrix with one wrong entry."""
    numeric = rng.standard_normal((side, side))
    analytic = noisy(rng, numeric, 1e-9)
    analytic[at] += 0.5
    block = comparison(analytic, numeric, "W", (side,), ("y", (side,)))
    return report(block)


def right(rng, count=100):
    """A model with many parameters, all right."""
    blocks = []
    for i in range(count):
        shape = (8, 8) if i % 2 == 0 else (8,)
        numeric = rng.standard_normal((1, math.prod(shape)))
        name = f"encoder.layers.{i // 2}.{'weight' if i % 2 == 0 else 'bias'}"
        blocks.append(comparison(noisy(rng, numeric), numeric, name, shape))
    return report(*blocks, subject="torch module Encoder")


def hostile(rng):
    """Names that would run a script if they reached the page as HTML."""
    name = '<img src=x onerror="window.pwned=1">&\'</script><b>'
    numeric = rng.standard_normal((3, 8))
    finding = Finding("sign", "error", name, 1.0, f"{name} flipped.", f"See {name}.")
    block = comparison(-numeric, numeric, name, (2, 4), (name, (3,)))
    return report(block, findings=[finding], subject=name, remarks=(name,))


def sweep(rng, right=0):
    """A sweep as the ladder of steps would find it, written down by formula."""
    steps = 10.0 ** np.arange(-14, 0.01, 0.5)
    unit = np.finfo(float).eps
    order = {"forward": 1, "central": 2}
    names = ["fc1.weight", "norm.gamma", "drop.mask", "relu.kink", "fc2.weight"]
    names += [f"encoder.layers.{i}.weight" for i in range(right)]
    verdicts = dict.fromkeys(names, 0) | {
        "fc1.weight": 2,
        "norm.gamma": 2,
        "drop.mask": 1,
        "relu.kink": 1,
    }
    readings = dict.fromkeys(names, "V: correct, best step 6e-06") | {
        "fc1.weight": "plateau at 1: the analytic gradient of some entries is 0",
        "norm.gamma": "plateau at 0.33: the analytic side is wrong by a factor",
        "drop.mask": "noise at every step: the function is not deterministic",
        "relu.kink": "a kink within 2e-4 of the point",
    }
    errors, matrices, analytic = {}, {}, {}
    for method, p in order.items():
        for name in names:
            noise = unit / steps * np.abs(rng.normal(1, 0.3, steps.size))
            e = 0.2 * 10 ** rng.uniform(-0.5, 0.5) * steps**p + noise + unit
            if name == "fc1.weight":
                e = np.maximum(e, 1.0)
            if name == "norm.gamma":
                e = np.maximum(e, 1 / 3)
            if name == "drop.mask":
                e = np.maximum(e, 3e-3 * 10 ** rng.normal(0, 0.3, steps.size))
            if name == "relu.kink":
                e = e + np.where(steps > 2e-4, 0.2 * (1 - 2e-4 / steps), 0)
            errors[method, name] = np.minimum(e, 1.0)
        for name in names[:5]:
            exact = analytic.setdefault(name, rng.standard_normal((12, 20)))
            spread = errors[method, name][:, None, None] * rng.random((1, 12, 20))
            sign = rng.choice([-1, 1], (steps.size, 12, 20))
            matrices[method, name] = exact * (1 + 2 * sign * spread)
    made = types.SimpleNamespace(
        inputs=tuple(names),
        steps=steps,
        methods=tuple(order),
        errors=errors,
        curves={},  # none of them cut short
        curve=lambda method, _: types.SimpleNamespace(
            best_step={"forward": 3e-8, "central": 6e-6}[method],
            floor={"forward": 2e-8, "central": 2e-11}[method],
        ),
        best_step=dict.fromkeys(names, 3e-8),
        verdict=Verdict.DISAGREES,
        verdicts={k: Verdict(v) for k, v in verdicts.items()},
        reading=readings,
        theory={
            "forward": [("truncation ~ h", 1, -0.7), ("rounding ~ u/h", -1, -15.6)],
            "central": [("truncation ~ h²", 2, -0.7), ("rounding ~ u/h", -1, -15.6)],
        },
        blocks=(),
        matrices=matrices,
        analytic=analytic,
        shapes=dict.fromkeys(names, (20,)),
        evaluations=1200,
        seconds=0.3,
        remarks=(),
    )
    made.read = lambda _, name: made.reading[name]
    return made


LONG = "encoder.transformer.layers.{}.self_attention.output_projection.weight"


def long_names(rng):
    """Six blocks whose names differ only in the middle; the third is wrong."""
    blocks = []
    for i in range(6):
        numeric = rng.standard_normal((3, 24))
        analytic = numeric * (1.5 if i == 2 else 1)
        output = ("decoder.output_logits_of_the_classifier", (3,))
        name = LONG.format(i)
        blocks.append(comparison(analytic, noisy(rng, numeric), name, (4, 6), output))
    return report(*blocks)


def audit(blocks=3):
    """A network of `blocks` blocks whose activation in the second one is wrong."""
    rows = [layer("stem", "Linear", "right", 2e-9, parents=())]
    for i in range(blocks):
        before = rows[-1].name
        state = "contaminated" if i < 1 else "right"
        error = 3e-10
        rows.append(layer(f"blocks.{i}.fc", "Linear", state, error, 1, (before,)))
        wrong = i == 1
        rows.append(
            layer(
                f"blocks.{i}.act",
                "Swish",
                "wrong" if wrong else state,
                0.45 if wrong else 4e-11,
                1,
                (f"blocks.{i}.fc", before),
            )
        )
    rows.append(layer("head", "Linear", "right", 5e-10, parents=(rows[-1].name,)))
    rows.append(layer("loss", "CrossEntropyLoss", "unchecked", math.nan))
    finding = Finding(
        "wrong_derivative",
        "error",
        "blocks.1.act",
        0.9,
        "its own VJP differs by 4.5e-01 where all others agree to 1e-09.",
        "Look at Swish.backward, model.py line 31.",
    )
    spoiled = ("stem.weight", "blocks.0.fc.weight")
    return audit_of(rows, ["blocks.1.act"], spoiled, findings=(finding,))


def audit_of(rows, culprits=(), contaminated=(), **changes):
    """Wrap rows into an audit, with a finding for each culprit."""
    findings = [
        Finding("wrong_derivative", "error", name, 0.9, f"{name} is wrong.", "Look.")
        for name in culprits
    ]
    audit = LayerAudit(
        rows=tuple(rows),
        culprits=tuple(culprits),
        contaminated=tuple(contaminated),
        findings=tuple(findings),
        evaluations=12,
        seconds=0.5,
        steps=3.0,
    )
    return dataclasses.replace(audit, **changes)


def layer(name, kind, state, error=1e-10, depth=0, parents=()):
    """One row of an audit."""
    reason = {
        "right": "its own VJP agrees with finite differences",
        "wrong": "its own VJP differs: analytic 0.91, numeric 0.34",
        "contaminated": "right itself, but the gradient it is fed is wrong",
        "unchecked": "returns a Python number",
    }[state]
    return LayerRow(
        name=name,
        type=kind,
        call=0,
        state=LayerState(state),
        error=error,
        bar=1e-10,
        piece="input 0",
        reason=reason,
        file="model.py",
        line=31,
        parameters=(f"{name}.weight",),
        depth=depth,
        children=(),
        parents=tuple(parents),
    )
