"""The same program in float64: wider copies, and what must not change by them."""

__all__: list[str] = []
