"""Accusations of a search that did not stand: taken back, and learnt from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from gradlab.localisation.searching.search import Search

__all__ = ["take_back"]


def take_back(search: Search, places: Collection[tuple[int, int]]) -> None:
    """Take back coordinates that a closer look has not confirmed.

    Parameters
    ----------
    search
        Which may be run again: no defect counts from here on that entries as far off
        as these add up to.
    places
        Input and position of each.
    """
    bench = search.bench
    for which, position in places:
        column = search.wrong.pop((which, position))
        gap = abs(column.analytic - column.expected)
        bench.patience.allow(which, gap if np.isfinite(gap) else 0.0)
        search.excused.add(which)
    for which in search.excused - {which for which, _ in search.wrong}:
        search.share.pop(which, None)  # nor is it wrong as a whole
        search.factor.pop(which, None)
        search.crowded = [part for part in search.crowded if part.which != which]
        bench.settled = [part for part in bench.settled if part.which != which]
