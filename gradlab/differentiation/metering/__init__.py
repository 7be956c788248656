"""What evaluations may cost, and what they have cost.

`budget` reads the bounds that a user gives, `meter` counts and keeps to them. It tells
a progress `bar`, which learns of work to come by `foresight`; `timeouts` ends
evaluations that do not return, sooner where they go round in circles (`circling`).
"""

__all__: list[str] = []
