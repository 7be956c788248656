"""Detectors of right gradients times a factor, or with a constant too much."""

__all__: list[str] = []
