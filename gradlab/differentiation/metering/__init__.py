"""What evaluations may cost, and what they have cost.

`budget` reads the bounds that a user gives, `meter` counts and keeps to them,
`foresight` tells a progress bar what is to come, and `timeouts` ends evaluations that
do not return.
"""

__all__: list[str] = []
