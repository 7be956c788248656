"""What evaluations may cost, and what they have cost.

`budget` reads the bounds that a user gives, `meter` counts and keeps to them, and tells
a progress `bar`. `timeouts` ends evaluations that do not return, sooner where they go
round in circles (`circling`).
"""

__all__: list[str] = []
