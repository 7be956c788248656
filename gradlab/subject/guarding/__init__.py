"""What a guard finds, keeps and puts back, so that a call leaves no trace.

`reachable` walks through all that the user passed, `snapshot` and its siblings keep
what was found, bit for bit. The front is `gradlab.subject.state_guard`.
"""

__all__: list[str] = []
