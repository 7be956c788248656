"""What autograd answers to cotangents, and where that is no derivative of f."""

__all__: list[str] = []
