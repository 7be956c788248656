"""What keeps f, and its gradient, from being smooth at small distances.

`noise` estimates it from values of f, `hidden_noise` finds what is coarser than the
rounding of its numbers, and `analytic_noise` measures it in the gradient.
"""

__all__: list[str] = []
