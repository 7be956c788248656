"""Conditions around a comparison: no formula is wrong, and the numbers differ."""

__all__: list[str] = []
