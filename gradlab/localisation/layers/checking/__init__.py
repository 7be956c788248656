"""One call's backward against differences of its forward: `check.Checker`."""

__all__: list[str] = []
