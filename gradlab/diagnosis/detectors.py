"""All detectors of a wrong formula, in the order in which they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradlab.diagnosis import leftovers
from gradlab.diagnosis.detecting.amounts import (
    accumulated,
    constant_errors,
    end_slopes,
    factors,
    group_sizes,
    held_gradients,
    penalties,
    sketched,
)
from gradlab.diagnosis.detecting.graphs import (
    exits,
    new_leaves,
    severed,
    surrogates,
)
from gradlab.diagnosis.detecting.networks import (
    activations,
    gates,
    layers,
    switched,
)
from gradlab.diagnosis.detecting.places import (
    balances,
    couplings,
    exchanged,
    passing,
    shuffles,
    square_parts,
    tables,
    transposes,
    zeros,
)
from gradlab.diagnosis.detecting.terms import (
    chained,
    formulas,
    neutral,
    normalising,
    products,
    separable,
    stretching,
    uses,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gradlab.diagnosis.measuring.measures import Case, Clue

__all__ = ["BY_PARTS", "COSTLY", "DETECTORS", "LAST"]

DETECTORS: tuple[Callable[[Case], list[Clue]], ...] = (
    sketched.read_from_directions,
    zeros.detached,
    leftovers.halved,
    held_gradients.few_bits,
    severed.severed,
    new_leaves.begun_anew,
    severed.hooked,
    severed.written,
    exits.left_torch,
    shuffles.conjugated,
    shuffles.other_way_round,
    accumulated.accumulation,
    surrogates.straight_through,
    surrogates.mostly_still,
    surrogates.on_identity,
    surrogates.clipped,
    factors.scales,
    group_sizes.uneven_means,
    group_sizes.weighted_groups,
    penalties.penalty,
    zeros.partial_zeros,
    transposes.transposed,
    transposes.transposed_data,
    square_parts.square_part,
    transposes.transposed_factor,
    transposes.transposed_signal,
    couplings.swapped_output,
    couplings.coupled_axes,
    couplings.identity_path,
    couplings.invariant_sums,
    shuffles.permuted,
    formulas.elementwise,
    end_slopes.slopes_of_one_end,
    normalising.terms_of_normalisation,
    normalising.mean_behind_a_weight,
    tables.repeated_rows,
    tables.named_rows,
    balances.units,
    passing.kinked_point,
    transposes.partly_transposed,
    shuffles.selection,
    balances.coupling_factor,
    balances.broken_sums,
    balances.moved_along,
    stretching.part_along_itself,
    constant_errors.constants,
    constant_errors.of_own_entries,
    constant_errors.of_groups,
    balances.unreal,
    exchanged.of_another_input,
    exchanged.as_of_another_input,
    exchanged.multiplier,
    exchanged.growing,
)

# only where the cheap ones leave a doubt: most evaluate at other points
COSTLY: tuple[Callable[[Case], list[Clue]], ...] = (
    held_gradients.right_when_asked,
    separable.entry_by_entry,
    transposes.symmetric_point,
    constant_errors.steady,
    activations.equal_units,
    gates.wrong_gates,
    switched.units_near_zero,
    penalties.of_its_own_entry,
    chained.slope_of_its_own,
    # what structure alone suggests of one line of code
    layers.siblings,
    products.too_few_products,
    tables.every_row_repeated,
    leftovers.terms,
)

# only where these leave it open
LAST: tuple[Callable[[Case], list[Clue]], ...] = (neutral.right_at_neutral,)

# only where a term is said to be missing, or a formula to be wrong: they say which part
BY_PARTS: tuple[Callable[[Case], list[Clue]], ...] = (uses.left_out,)
