"""What is called, on tensors that stand in for the user's, and what it has to find."""

__all__: list[str] = []
