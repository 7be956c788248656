"""What is differentiated: a callable at a point, seen as named inputs and outputs."""

__all__: list[str] = []
