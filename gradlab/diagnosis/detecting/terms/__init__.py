"""Detectors of formulas: of another function, or without one of their terms."""

__all__: list[str] = []
