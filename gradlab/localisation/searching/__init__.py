"""Wrong entries among millions: groups of them, moved along random directions.

`set_up` makes a `bench` of both gradients, `search` is the course of a search on it,
`tensor_search` that of one among whole inputs. The fronts are
`gradlab.localisation.entries` and `gradlab.localisation.tensors`.
"""

__all__: list[str] = []
