"""Why a gradient is wrong: findings, ranked, with the measurement behind each."""

__all__: list[str] = []
