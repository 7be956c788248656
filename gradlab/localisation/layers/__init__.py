"""The audit of layers: which of the calls inside a model is wrong by itself.

`recording` runs the model once and notes every call, `replaying` runs one of them
again by itself, `checking` holds its backward against its forward. The front is
`audit.audit`, and `audited` is what it hands back.
"""

__all__: list[str] = []
