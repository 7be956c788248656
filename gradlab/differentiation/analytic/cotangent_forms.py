"""How a cotangent is handed to code that somebody wrote: where the outputs stand.

Beside what has no derivative (an index, a mask, a name), or in a row of one, people
differ: some take the outputs apart as the function returns them, and some are handed
those alone that can be derived. Both are right; the code says which by running.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from gradlab.subject.analytic_sides import Problem
    from gradlab.subject.numpy_subjects import ArraySubject

    Read = tuple[list[NDArray[np.float64]], list[Problem]]

__all__ = ["Upstream"]

# what Python raises where a tuple comes in place of an array, or the other way round
_OF_FORM = ("TypeError", "AttributeError", "IndexError", "unpack")
_HARMLESS = {"dtype"}  # slips that say nothing of how the cotangents were taken


class Upstream:
    """Hands cotangents to a `vjp` or a `backward`, in the form that it takes.

    Parameters
    ----------
    subject
        Knows the outputs once it was evaluated.
    """

    def __init__(self, subject: ArraySubject) -> None:
        self._subject = subject
        self._form: int | None = None  # None until it is known

    def pull(self, cotangent: NDArray[np.float64], read: Callable[[Any], Read]) -> Read:
        """Read the gradients that come back for one cotangent.

        Parameters
        ----------
        cotangent
            One number for each real output row.
        read
            Calls the user's code with the cotangents, and reads what it returns; says
            what is wrong rather than raise.
        """
        forms = self.forms(cotangent)
        if self._form is None:
            tried = []
            for form in forms:
                tried.append(read(form))
                if not _spoiled(tried[-1]):
                    break
            # where none will do, what is handed out plainly has the clearest message
            last = len(tried) - 1
            self._form = min(range(last, -1, -1), key=lambda k: _spoiled(tried[k]))
            return tried[self._form]
        return read(forms[self._form])

    def first(self, cotangent: NDArray[np.float64], call: Callable[[Any], Any]) -> Any:
        """Return what the user's code returns for the first form that it takes."""
        *others, last = self.forms(cotangent)
        for form in others:
            with contextlib.suppress(Exception):  # whatever the user's code raises
                return call(form)
        return call(last)

    def forms(self, cotangent: NDArray[np.float64]) -> list[Any]:
        """Put a cotangent in the place of the outputs; scalars stay scalars."""
        reader = self._subject.reader
        values = [
            array[()] if array.ndim == 0 else array
            for array in reader.cotangents(cotangent)
        ]
        return reader.arrangements([self._subject.present_output(v) for v in values])


def _spoiled(read: Read) -> int:
    """Rank what came back: as it should, of another shape or number, or not at all.

    Last what was raised because cotangents came in another form than was expected.
    """
    kinds = {problem.kind for problem in read[1]} - _HARMLESS
    if "raised" not in kinds:
        return int(bool(kinds))
    told = " ".join(problem.detail for problem in read[1])
    return 3 if any(word in told for word in _OF_FORM) else 2
