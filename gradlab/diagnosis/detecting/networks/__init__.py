"""Detectors for layers of networks: one of them, a unit, a gate."""

__all__: list[str] = []
