"""Of a function only what a displaced entry of an input changes is evaluated again.

`following` finds the products by which inputs enter, `input_products` displaces what
comes out there; `displaced_entries` displaces one entry of a weight, and `differing`
goes on with the one row or column that it changes.
"""

__all__: list[str] = []
