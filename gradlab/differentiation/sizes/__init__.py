"""How large coordinates are: the unit in which they are moved.

`scales` are the sizes that steps are chosen by; `small_coordinates` are far smaller
than their tensor, and measured on their own scale too; `magnitudes` are the sizes of
millions of numbers.
"""

__all__: list[str] = []
