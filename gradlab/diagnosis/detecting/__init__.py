"""Detectors of wrong formulas, a file for each family; none knows of another.

Each takes a `Case`, one wrong input with both sides, and returns `Clue`s. The order in
which they are asked is in `gradlab.diagnosis.detectors`. A gradient may be wrong in its
amounts (a factor, a constant), in the places of its numbers, or for a term of a
formula; networks and graphs of torch have mistakes of their own.
"""

__all__: list[str] = []
