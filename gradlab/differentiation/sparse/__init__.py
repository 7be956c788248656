"""Jacobians of which most entries are zero: many columns, or rows, at a time.

`dependence` asks f what depends on what, `colouring` finds what may be moved together,
`packed_slopes` and `zero_bars` say what came of it; `compression` is the course of it,
for columns. `row_groups` does the same for the rows of the analytic side. `support` is
where entries may be, `entries` what they are.
"""

__all__: list[str] = []
