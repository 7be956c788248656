"""One run of a model, with every call in it noted: `record.record`."""

__all__: list[str] = []
