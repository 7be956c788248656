"""Derivatives along a line: all coordinates moved together.

`directions` are random ones, made again from a seed; they move `parts` of the inputs,
and `weights` single out some indices. A `walk` moves a subject along one. `line_slope`
differentiates a scalar line, `probe` compares that with the analytic side, and
`least_scales` finds how far an input has to be moved before f notices.
"""

__all__: list[str] = []
