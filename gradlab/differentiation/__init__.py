"""Jacobians, numeric and analytic, each with what is known about its error."""

__all__: list[str] = []
