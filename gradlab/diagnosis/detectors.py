"""All detectors of a wrong formula, in the order in which they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.diagnosis import (
    balances,
    constant_errors,
    couplings,
    end_slopes,
    exchanged,
    exits,
    factors,
    formulas,
    group_sizes,
    layers,
    leftovers,
    new_leaves,
    normalising,
    penalties,
    products,
    rearranged,
    separable,
    severed,
    shuffles,
    sketched,
    special,
    stretching,
    surrogates,
    switched,
    tables,
    zeros,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.diagnosis.measures import Case, Clue

__all__ = ["COSTLY", "DETECTORS", "GUESSES", "LINES"]

DETECTORS: tuple[Callable[[Case], list[Clue]], ...] = (
    sketched.read_from_directions,
    zeros.detached,
    severed.severed,
    new_leaves.begun_anew,
    severed.hooked,
    severed.written,
    exits.left_torch,
    shuffles.conjugated,
    factors.accumulation,
    surrogates.straight_through,
    surrogates.on_identity,
    surrogates.clipped,
    factors.scales,
    group_sizes.uneven_means,
    penalties.penalty,
    zeros.partial_zeros,
    shuffles.transposed,
    shuffles.transposed_factor,
    shuffles.transposed_inside,
    couplings.swapped_output,
    couplings.coupled_axes,
    couplings.identity_path,
    couplings.invariant_sums,
    shuffles.moved_one,
    shuffles.permuted,
    formulas.elementwise,
    end_slopes.slopes_of_one_end,
    normalising.terms_of_normalisation,
    tables.repeated_rows,
    balances.units,
    special.kinked_point,
    rearranged.partly_transposed,
    rearranged.offset,
    rearranged.repeated,
    rearranged.copied,
    rearranged.other_axis,
    rearranged.selection,
    balances.coupling_factor,
    balances.broken_sums,
    balances.moved_along,
    stretching.part_along_itself,
    balances.constants,
    balances.unreal,
    exchanged.of_another_input,
    exchanged.multiplier,
    exchanged.growing,
)

# only where the cheap ones leave a doubt: these evaluate at other points
COSTLY: tuple[Callable[[Case], list[Clue]], ...] = (
    separable.entry_by_entry,
    special.symmetric_point,
    special.real_point,
    constant_errors.steady,
    layers.equal_units,
    switched.units_near_zero,
    penalties.of_its_own_entry,
    separable.piecewise_linear,
)

# what structure alone suggests of one line of code
LINES: tuple[Callable[[Case], list[Clue]], ...] = (
    layers.siblings,
    products.too_few_products,
)

# what is left over, read as a term: only where nothing else explains it
GUESSES: tuple[Callable[[Case], list[Clue]], ...] = (leftovers.terms,)
