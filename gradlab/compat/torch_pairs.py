"""What the two Jacobian comparisons of the drop-in share: pairs, and their mismatch."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

__all__ = ["Mismatch", "Pair", "Rule", "agree"]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """The numbers that decide, as in torch.

    Parameters
    ----------
    eps
        Step of the central difference, absolute, in the units of the input.
    atol, rtol
        ``|analytic - numeric| <= atol + rtol * |numeric|`` for every entry.
    nondet_tol
        Largest difference allowed between two backward passes.
    """

    eps: float
    atol: float
    rtol: float
    nondet_tol: float


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Both Jacobians of one output with respect to one input.

    The matrices are torch's: entries of the input x entries of the output, complex for
    a complex input (``d/d Re + i d/d Im``).
    """

    output: int  # number among the outputs that were kept
    input: int  # number among the inputs that require grad
    analytic: Any
    numeric: Any
    base: Any  # value of the output, for the round-off of the difference quotient
    forward: bool = False
    part: Literal["", "real", "imaginary"] = ""


class Mismatch(Exception):  # noqa: N818 - a message between files, never seen outside
    """A pair of Jacobians disagrees by torch's rule."""

    def __init__(
        self, line: str, where: Pair, pairs: list[Pair], note: str = ""
    ) -> None:
        super().__init__(line)
        self.line, self.where, self.pairs, self.note = line, where, pairs, note


def agree(gc: Any, pair: Pair, rule: Rule) -> bool:
    """Apply torch's rule: allclose in the common dtype, nan equal to nothing."""
    numeric = pair.numeric.to(pair.analytic.device)
    verdict = gc._allclose_with_type_promotion(  # noqa: SLF001 - the rule itself
        pair.analytic, numeric, rule.rtol, rule.atol
    )
    return bool(verdict)
