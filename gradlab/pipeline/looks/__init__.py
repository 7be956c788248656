"""Second looks: everything that is done before something is said against an entry.

The fronts are `escalation`, where gradlab finds the steps, and `second_opinion`, where
the user chose them.
"""

__all__: list[str] = []
