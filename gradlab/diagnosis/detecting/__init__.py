"""Detectors of wrong formulas, a file for each family; none knows of another.

Each takes a `Case`, one wrong input with both sides, and returns `Clue`s. The order in
which they are asked is in `gradlab.diagnosis.detectors`.
"""

__all__: list[str] = []
