"""Detectors of slopes that are lost, or stand in the wrong places."""

__all__: list[str] = []
