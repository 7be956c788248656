"""Where the error sits: entries by group testing, layers by local audit."""

__all__: list[str] = []
