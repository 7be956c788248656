"""The analytic side as people write it, and the gradients that it returns, read."""

__all__: list[str] = []
