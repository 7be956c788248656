"""The analytic side: gradients that were written by hand, or asked for elsewhere.

`hand_written` is a backward pass or a vjp, `written_jacobian` a Jacobian; `gradients`
reads what they return. `gradients_elsewhere` asks any analytic side at another point,
and `second_order` makes a function of the gradient, for second derivatives.
"""

__all__: list[str] = []
