"""Two Jacobians side by side: a verdict for every entry."""

__all__: list[str] = []
