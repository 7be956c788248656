"""Check one recorded call: its backward must be the derivative of its forward."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.audited import LayerState
from gradlab.localisation.layers.checking.base_point import unfit_to_compare
from gradlab.localisation.layers.checking.call_outcome import CallOutcome
from gradlab.localisation.layers.checking.careful_look import judge
from gradlab.localisation.layers.checking.deliberate import deliberate, without_padding
from gradlab.localisation.layers.checking.inexact import beyond_digits
from gradlab.localisation.layers.checking.kind import characterise, random_cotangents
from gradlab.localisation.layers.checking.probe import (
    Measure,
    Precision,
    quick,
)
from gradlab.localisation.layers.checking.raising import failed_backward
from gradlab.localisation.layers.checking.rounding import (
    over_longer_steps,
    shortening_watched,
    without_halves,
    without_lossless_casts,
    without_short_numbers,
)
from gradlab.localisation.layers.checking.tensor_hooks import tensor_hook
from gradlab.localisation.layers.products import any_nonzero
from gradlab.localisation.layers.recording.hooks import (
    changes_gradient,
    hooks_of,
    place_of_hook,
)
from gradlab.localisation.layers.replaying.directions import Scratch
from gradlab.localisation.layers.replaying.hidden_writes import writes_unseen
from gradlab.localisation.layers.replaying.replay import Piece
from gradlab.localisation.layers.variables import BackwardError, ReplayError
from gradlab.subject.subject import SINGLE

if TYPE_CHECKING:
    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.owners import Owners
    from gradlab.localisation.layers.variables import Product

__all__ = ["Checker", "is_torchs"]

_MOST_WHOLE = 1 << 28  # bytes of parameters that may be moved at once
_FEW, _SMALL = 8, 1 << 20  # tensors, entries: up to here each tensor gets its own probe
_PILED = (
    "what half precision rounds off piles up over its layers, and in double precision "
    "they cannot be run together"
)
_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)


class Checker:
    """Checks calls one by one, children before their parents.

    Parameters
    ----------
    owners
        Parameters of the model.
    seed
        Of all directions.
    raised
        What the backward of the whole model raised, in words; "" if nothing.
    """

    def __init__(self, owners: Owners, seed: int, raised: str = "") -> None:
        self._owners = owners
        self._seed = seed
        self._raised = raised
        self._scratch = Scratch()
        self.evaluations = 0
        self.product_seconds = 0.0  # one training step, once all calls are through

    def check(self, frame: Frame, *, sound: bool) -> CallOutcome:
        """Check one call; its children must have been checked before.

        Parameters
        ----------
        frame
            The recorded call.
        sound
            Whether all that is inside it was found right.
        """
        if _only_passes_on(frame):
            first = frame.children[0]
            frame.input_cotangents = list(first.input_cotangents[:1])
            return CallOutcome(
                LayerState.RIGHT, "only passes on what its layers return"
            )
        outcome = self._try(frame, whole=False)
        if outcome.doubtful or not outcome.failed or not self.can_be_whole(frame):
            return outcome
        together = self.together(frame)
        if together.state is LayerState.RIGHT:
            reason = f"together with what is inside: {together.reason}"
            return dataclasses.replace(together, reason=reason)
        if together.state is LayerState.WRONG and sound:
            return together
        return outcome

    def together(self, frame: Frame) -> CallOutcome:
        """Check one call with all that is inside."""
        return dataclasses.replace(self._try(frame, whole=True), together=True)

    def raises_together(self, frame: Frame) -> CallOutcome | None:
        """Say what the backward of one call with all that is inside raises, if it does.

        None where it raises nothing, or not what that of the model raised.
        """
        piece = self._piece(frame, raised=False, whole=True)
        try:
            piece.product()
        except BackwardError as error:
            outcome = failed_backward(piece, str(error), self._raised)
            wrong = outcome.state is LayerState.WRONG
            return dataclasses.replace(outcome, together=True) if wrong else None
        except Exception:  # noqa: BLE001 - the user's code; alone it is something else
            return None
        finally:
            self.evaluations += piece.evaluations
        return None

    def can_be_whole(self, frame: Frame) -> bool:
        """Whether a call has others inside, and its parameters can be moved at once."""
        parameters = self._owners.inside(frame.target)
        if frame.low:  # copied as well, in double
            parameters += self._owners.frozen(frame, whole=True)
        size = sum(p.numel() * max(8, p.element_size()) for p in parameters)
        return bool(frame.children) and frame.kind == "module" and size <= _MOST_WHOLE

    def _try(self, frame: Frame, *, whole: bool) -> CallOutcome:
        """Check in double precision where that works, else as the model computes."""
        trouble = frame.unfit
        tries = (True, False) if frame.low else (False,)
        for raised in () if trouble else tries:
            piece = self._piece(frame, raised=raised, whole=whole)
            try:
                outcome = self._check(piece)
            except BackwardError as error:
                if raised:
                    continue
                return failed_backward(piece, str(error), self._raised)
            except ReplayError as error:
                trouble = f"{_what(frame)} {error}"
                continue
            except Exception as error:  # noqa: BLE001 - it is the user's code that runs
                trouble = f"could not be run by itself: {type(error).__name__}: {error}"
                continue
            finally:
                self.evaluations += piece.evaluations
            if raised and outcome.doubtful:
                continue
            return outcome
        return CallOutcome(LayerState.UNCHECKED, trouble.split("\n")[0], failed=True)

    def _piece(
        self, frame: Frame, *, raised: bool, bare: bool = False, whole: bool = False
    ) -> Piece:
        piece = Piece(
            frame,
            self._owners,
            raised=raised,
            bare=bare,
            whole=whole,
            scratch=self._scratch,
        )
        if not frame.reached:
            # No gradient arrived here: any will do to test the formula.
            piece = piece.with_cotangents(random_cotangents(piece, self._seed))
        return without_padding(piece)

    # ------------------------------------------------------------- one precision
    def _check(self, piece: Piece) -> CallOutcome:
        """Check as it is; where it casts inside, without that as well."""
        shortened: list[str] = []
        outcome = self._compared(piece, shortened)
        if not shortened or outcome.doubtful or outcome.state is LayerState.WRONG:
            return outcome
        try:
            with without_short_numbers():
                again = self._compared(piece, [], again=True, lossless=True)
        except Exception:  # noqa: BLE001 - the user's code may not take float64 at all
            return outcome
        wrong = again.state is LayerState.WRONG
        return dataclasses.replace(again, wide=True) if wrong else outcome

    def _compared(
        self,
        piece: Piece,
        shortened: list[str],
        *,
        again: bool = False,
        lossless: bool = False,
    ) -> CallOutcome:
        """Compare both sides; functions that leave fewer digits are put in a list.

        Where some do `again`, steps are taken that are long enough to see beyond. With
        `lossless`, casts that lose nothing in the model are left out already.
        """
        frame = piece.frame
        began = time.perf_counter()
        with shortening_watched(own=not is_torchs(frame)) as seen_short:
            product = piece.product()
        shortened += seen_short
        if shortened and piece.raised and not lossless:
            left: list[str] = []
            with contextlib.suppress(Exception), without_lossless_casts(piece):
                found = self._compared(piece, left, lossless=True)
                shortened[:] = left
                return found
        self.product_seconds += time.perf_counter() - began
        unfit = unfit_to_compare(piece, product, known=again)
        if unfit is not None:
            return unfit
        if frame.reached or any(child.reached for child in frame.children):
            for place, gradient in product.passed.items():
                if gradient is None or frame.inputs[place].parameter:
                    continue
                if any_nonzero(gradient):
                    frame.input_cotangents[place] = gradient.detach()
        precision = Precision.of(piece)
        seen = self._probe(piece, product, precision)
        agreed = all(measure.agrees for measure in seen)
        if agreed and not (again and shortened):
            return _right(product, seen)
        if writes_unseen(piece):
            raise ReplayError(
                "writes to what it is given behind the back of autograd (.data): what "
                "that was is not known any more"
            )
        if piece.whole and precision.epsilon > SINGLE:
            return CallOutcome(LayerState.UNCHECKED, _PILED)
        seed = self._seed + frame.number
        measures = seen if agreed else judge(piece, product, precision, seed)
        hidden = any(not m.certain and m.note == "noise" for m in measures)
        if shortened and (agreed or hidden):
            measures = over_longer_steps(piece, product, measures, seed)
        return self._sentence(piece, product, precision, measures)

    def _probe(
        self, piece: Piece, product: Product, precision: Precision
    ) -> list[Measure]:
        """One probe of everything; for the user's own code a second look."""
        seed = self._seed + 31 * piece.frame.number
        try:
            seen = [quick(piece, product, precision, seed)]
            if not seen[0].agrees or is_torchs(piece.frame):
                return seen
            entries = sum(variable.base.numel() for variable in product.variables)
            many = len(product.variables)
            if 1 < many <= _FEW and entries <= _SMALL:
                seen += [
                    quick(piece, product, precision, seed + 1 + k, only=k)
                    for k in range(many)
                ]
            else:
                seen.append(quick(piece, product, precision, seed + 1))
        except ReplayError:  # a branch was taken within the step: look with care
            return [Measure("", 0.0, 0.0, 0.0, 0.0, agrees=False)]
        return seen

    def _sentence(
        self,
        piece: Piece,
        product: Product,
        precision: Precision,
        measures: list[Measure],
    ) -> CallOutcome:
        """Turn careful measures of all tensors into an answer."""
        bad = [m for m in measures if m.certain and not m.agrees]
        if not bad:
            open_ones = [m for m in measures if not m.certain]
            if not open_ones:
                return _right(product, measures)
            first = open_ones[0]
            purpose = deliberate(piece, product, [m.label for m in open_ones])
            if first.note in ("coarse", "noise") and not purpose:
                casts, smooth = without_halves(piece, product, self._seed)
                if smooth:
                    return _right(product, smooth, casts)
            reason = purpose or {
                "kink": f"{first.label} sits on a kink: its one-sided slopes differ in "
                "every direction",
                "coarse": "rounds coarsely inside, so only large steps see a slope, "
                f"and there {first.label} agrees",
                "noise": f"rounding hides the derivative with respect to {first.label}",
            }.get(first.note, f"{first.label}: {first.note or 'rounding hides it'}")
            return CallOutcome(LayerState.UNCHECKED, reason, first)
        bad, purpose = beyond_digits(bad, measures)
        purpose = purpose or deliberate(piece, product, [m.label for m in bad])
        if not purpose:
            casts, smooth = without_halves(piece, product, self._seed)
            if smooth:
                return _right(product, smooth, casts)
            if casts:
                purpose = (
                    f"rounds coarsely inside ({casts}), where differences show no "
                    f"slope; without that its backward is right"
                )
        if purpose:
            return CallOutcome(LayerState.UNCHECKED, purpose, bad[0])
        worst = max(bad, key=lambda measure: measure.error)
        labels = {measure.label for measure in bad}
        hook = self._hook(piece, product, precision)
        character = characterise(piece, worst, precision, self._seed)
        where = f"with respect to {worst.label}"
        if not character.only_slopes:  # whose words are these numbers
            where += f": analytic {worst.analytic:.6g}, numeric {worst.numeric:.6g} "
            where += f"± {worst.bar:.1g}"
        return CallOutcome(
            LayerState.WRONG,
            f"its backward {character.words} ({where})",
            worst,
            [v for v in product.variables if v.label in labels],
            character,
            hook,
        )

    def _hook(self, piece: Piece, product: Product, precision: Precision) -> str:
        """Say which hook is to blame, if the layer is right without its hooks."""
        frame = piece.frame
        if frame.kind != "module":
            return ""
        modules = [
            hook for table in _HOOKS for hook in getattr(frame.target, table).values()
        ]
        parameters = [
            (hooks_of(variable.parameter)[0], variable.label)
            for variable in product.variables
            if variable.parameter is not None
            and changes_gradient(variable.parameter, self._seed)
        ]
        if not (modules or parameters):
            return tensor_hook(piece, precision, self._seed + 5)
        bare = self._piece(frame, raised=piece.raised, bare=True, whole=piece.whole)
        try:
            measure = quick(bare, bare.product(), precision, self._seed + 5)
        except Exception:  # noqa: BLE001 - the user's code may raise anything
            return ""
        finally:
            self.evaluations += bare.evaluations
        if not measure.agrees:
            return ""
        if parameters:
            hook, label = parameters[0]
            return f"the hook {place_of_hook(hook)} on its parameter {label}"
        return f"the hook {place_of_hook(modules[0])} registered on it"


def _right(product: Product, measures: list[Measure], casts: str = "") -> CallOutcome:
    """Say that a piece is right; without some casts, if they are named."""
    # two zeros, but for what rounding leaves of them, may be as far apart as they like
    telling = [m for m in measures if m.relative_bar < 1] or measures
    worst = max(telling, key=lambda measure: measure.error)
    count = len(product.variables)
    what = "1 tensor" if count == 1 else f"{count} tensors"
    note = next((m.note for m in measures if m.note == "kink"), "")
    tail = "; on a kink, where any slope between the sides is right" if note else ""
    tail += f"; compared without its casts ({casts})" if casts else ""
    return CallOutcome(
        LayerState.RIGHT,
        f"agrees with its difference quotient for {what}, to {worst.error:.1g}{tail}",
        worst,
    )


def _what(frame: Frame) -> str:
    return "it" if frame.kind == "loss" else "its forward"


def is_torchs(frame: Frame) -> bool:
    """Whether a call is of a class of ``torch.nn`` itself, without hooks."""
    if frame.kind != "module" or not type(frame.target).__module__.startswith(
        "torch.nn."
    ):
        return False
    return not any(getattr(frame.target, table) for table in _HOOKS)


def _only_passes_on(frame: Frame) -> bool:
    """Whether a call is of a plain ``Sequential``, which does nothing of its own."""
    import torch

    if type(frame.target) is not torch.nn.Sequential or not frame.children:
        return False
    glob: Any = torch.nn.modules.module
    hooks = [getattr(frame.target, table) for table in _HOOKS]
    hooks += [getattr(glob, f"_global{table}") for table in _HOOKS]
    return not any(hooks) and len(frame.inputs) == 1 == len(frame.children[0].inputs)
