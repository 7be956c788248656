"""The adaptive ladder: from values on many steps to a slope that says how sure it is.

`climb` asks `planning` which rungs to evaluate next, has `reading` look at what came,
and lets `conclusion` say what it amounts to. The front is
`gradlab.differentiation.adaptive`.
"""

__all__: list[str] = []
