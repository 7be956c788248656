"""Weights that enter by a matrix product, measured through the product.

`product_groups` says which products are worth it, `through_products` takes the
differences and carries them to the weights.
"""

__all__: list[str] = []
