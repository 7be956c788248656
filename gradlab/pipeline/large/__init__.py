"""Matrices that are not looked at whole: along directions, or in slabs of columns."""

__all__: list[str] = []
