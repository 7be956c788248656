"""What a report says about a gradient: kind, place, evidence, next step."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Literal

from gradlab.errors import InputError
from gradlab.labels import few_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = [
    "LOOKED_AT",
    "NEARLY_RIGHT",
    "NOTHING_TO_DO",
    "BugKind",
    "Finding",
    "Severity",
    "asks_nothing",
    "rank",
    "spared",
]

LOOKED_AT = "that were looked at"  # of entries, where there are others
NOTHING_TO_DO = "Nothing to do."  # the advice that is none
# what to do about a gradient that is off by very little
NEARLY_RIGHT = (
    "If the function iterates or integrates to a tolerance, make that smaller: where "
    "the difference shrinks with it the gradient is right. Else compare constants of "
    "forward and backward: an epsilon, a rounded coefficient, n for n - 1."
)

Severity = Literal["error", "warning", "note"]
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


class BugKind(enum.StrEnum):
    """Closed list of what can be the matter (a `str`, so compare with plain text).

    Notes
    -----
    Mistakes in the analytic side: ``scale`` (a constant factor), ``sign``,
    ``transpose``, ``missing_reduction`` (1/N missing, or there twice),
    ``accumulated_grad`` (never zeroed), ``ignores_upstream`` (the incoming gradient is
    not multiplied by), ``wrong_mask`` (relu, dropout, max), ``missing_term``,
    ``extra_term``, ``broadcast_reduction`` (not summed over a broadcast axis),
    ``stale_cache`` (a saved value was overwritten, or the wrong one saved),
    ``wrong_index`` (permuted, off by one), ``wrong_axis``, ``detached`` (none, or zero:
    detach, ``.data``, a cast), ``lost_accumulation`` (overwritten where it should be
    added), ``conjugate``, ``regularization`` (a penalty in loss or gradient only),
    ``wrong_derivative`` (of another function), ``surrogate`` (deliberately none:
    straight-through, reversal, clipping), ``second_order``, ``dtype``,
    ``wrong_shape``.

    Conditions that are no wrong formula: ``nondeterministic``, ``nondifferentiable``,
    ``low_precision``, ``step_size``, ``aliasing`` (memory that is shared),
    ``nonfinite``, ``mutates_input``, ``dependent_inputs``, ``stateful``.

    And ``unknown``, which is an honest answer; ``none``.

    Examples
    --------
    >>> BugKind.MISSING_REDUCTION == "missing_reduction"
    True
    """

    # mistakes in the analytic side
    SCALE = "scale"
    SIGN = "sign"
    TRANSPOSE = "transpose"
    MISSING_REDUCTION = "missing_reduction"
    ACCUMULATED_GRAD = "accumulated_grad"
    IGNORES_UPSTREAM = "ignores_upstream"
    WRONG_MASK = "wrong_mask"
    MISSING_TERM = "missing_term"
    EXTRA_TERM = "extra_term"
    BROADCAST_REDUCTION = "broadcast_reduction"
    STALE_CACHE = "stale_cache"
    WRONG_INDEX = "wrong_index"
    WRONG_AXIS = "wrong_axis"
    DETACHED = "detached"
    LOST_ACCUMULATION = "lost_accumulation"
    CONJUGATE = "conjugate"
    REGULARIZATION = "regularization"
    WRONG_DERIVATIVE = "wrong_derivative"
    SURROGATE = "surrogate"
    SECOND_ORDER = "second_order"
    DTYPE = "dtype"
    WRONG_SHAPE = "wrong_shape"
    # conditions that are not a wrong formula
    NONDETERMINISTIC = "nondeterministic"
    NONDIFFERENTIABLE = "nondifferentiable"
    LOW_PRECISION = "low_precision"
    STEP_SIZE = "step_size"
    ALIASING = "aliasing"
    NONFINITE = "nonfinite"
    MUTATES_INPUT = "mutates_input"
    DEPENDENT_INPUTS = "dependent_inputs"
    STATEFUL = "stateful"
    # honest answers
    UNKNOWN = "unknown"
    NONE = "none"


@dataclasses.dataclass(frozen=True, repr=False, slots=True)
class Finding:
    """One statement about a gradient, with the measurement that supports it.

    Parameters
    ----------
    kind
        What it is.
    severity
        "error" (the gradient is wrong), "warning" (it may be, or the check was
        hampered) or "note" (harmless, worth knowing).
    where
        Name of the input, parameter or layer concerned; "" for the whole subject.
    confidence
        From 0 to 1: how much of the error this explains, times how surely.
    evidence
        The measurement, as one sentence.
    advice
        One concrete next step.
    doubts
        Kinds that the same measurement leaves open; default none.
    also
        Other places that it is told of: of which the same is measured, or which the
        mistake may spoil; default none.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(3), grad=lambda x: -2 * x)
    >>> finding = report.findings[0]
    >>> str(finding.kind), finding.severity, finding.where
    ('sign', 'error', 'x')
    >>> gl.Finding("sign", "error", "x", 1.0, "analytic = -numeric.", "Drop a minus.")
    <Finding x: sign (error): analytic = -numeric. Drop a minus.>
    """

    kind: BugKind
    severity: Severity
    where: str
    confidence: float
    evidence: str
    advice: str
    doubts: tuple[BugKind, ...] = ()
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            kind = BugKind(self.kind)
        except ValueError:
            known = ", ".join(BugKind)
            msg = f"kind must be one of {known}, got {self.kind!r}"
            raise InputError(msg) from None
        if self.severity not in _SEVERITIES:
            known = ", ".join(_SEVERITIES)
            msg = f"severity must be one of {known}, got {self.severity!r}"
            raise InputError(msg)
        object.__setattr__(self, "kind", kind)  # plain text will do

    @property
    def places(self) -> tuple[str, ...]:
        """All places that it is told of, the root cause first; () for the subject."""
        return tuple(filter(None, (self.where, *self.also)))

    def __str__(self) -> str:
        place = f"{few_of(self.places, 4)}: " if self.places else ""
        return f"{place}{self.kind} ({self.severity}): {self.evidence} {self.advice}"

    def __repr__(self) -> str:
        return f"<Finding {self}>"


def asks_nothing(finding: Finding) -> bool:
    """Whether a note is told at the foot: it would stand before the answer."""
    quiet = finding.severity == "note" and not finding.where
    return quiet and finding.advice == NOTHING_TO_DO


def spared(findings: Iterable[Finding], places: Collection[str]) -> list[Finding]:
    """Leave out places of which something else is known, and findings of no other.

    Examples
    --------
    >>> told = gl.Finding("sign", "error", "W2", 1.0, "a = -n.", "Look.", also=("b2",))
    >>> spared([told], {"W2"})[0].places, spared([told], {"W2", "b2"})
    (('b2',), [])
    """
    kept = []
    for finding in findings:
        left = [place for place in finding.places if place not in places]
        if left or not finding.where:
            where, *also = left or [""]
            finding = dataclasses.replace(finding, where=where, also=tuple(also))  # noqa: PLW2901
            kept.append(finding)
    return kept


def rank(findings: list[Finding]) -> tuple[Finding, ...]:
    """Order findings: errors first, place by place, the surest place first.

    Of several errors in one place the surest leads and the others follow at once;
    warnings and notes come by confidence.
    """
    lead: dict[str, float] = {}
    for f in findings:
        if f.severity == "error":
            lead[f.where] = max(lead.get(f.where, 0.0), f.confidence)
    places = {w: i for i, w in enumerate(sorted(lead, key=lambda w: -lead[w]))}
    return tuple(
        sorted(
            findings,
            key=lambda f: (
                _SEVERITIES.index(f.severity),
                places[f.where] if f.severity == "error" else 0,
                -f.confidence,
            ),
        )
    )
