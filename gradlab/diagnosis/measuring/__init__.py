"""What detectors measure with: cases, places, other points, shapes, held arrays."""

__all__: list[str] = []
