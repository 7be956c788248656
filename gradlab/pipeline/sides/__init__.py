"""The two sides of a comparison: slopes by differences, slopes as they are claimed."""

__all__: list[str] = []
