"""One noted call again, with given values for all that it calls: `replay.Piece`."""

__all__: list[str] = []
