"""Many perturbed evaluations in one call, and one by one where that is no gain."""

__all__: list[str] = []
