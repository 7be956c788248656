"""Detectors of graphs of torch that are cut, left, or no gradient on purpose."""

__all__: list[str] = []
