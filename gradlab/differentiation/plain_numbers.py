"""Plain numbers beside arrays: parameters, if a gradient of them comes back.

``f(w, 0.5)`` does not say whether 0.5 is a bias or a setting. A gradient that is
returned for it does, and is judged then: a wrong one would pass unseen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.gradients import MISSING, by_leaf
from gradlab.subject.choosing import loose_numbers
from gradlab.subject.numpy_values import as_numpy
from gradlab.subject.state_guard import StateGuard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradlab.subject.numpy_subjects import ArraySubject

__all__ = ["claimed"]


def claimed(subject: ArraySubject, roots: Sequence[object]) -> list[int]:
    """Positions of the plain numbers beside arrays that have a gradient.

    The analytic side is asked once, if there are such numbers at all.

    Parameters
    ----------
    subject
        Of the arrays, with its analytic side.
    roots
        What the user passed: it is afterwards what it was.
    """
    numbers = [i for i in loose_numbers(subject.tree) if i not in subject.which]
    if not numbers or subject.analytic is None:
        return []
    analytic: Any = subject.analytic
    with StateGuard(*roots), np.errstate(all="ignore"):
        try:
            if analytic.takes_cotangents:
                subject.row()  # what the outputs are
            found = by_leaf(analytic.raw(), subject.tree)
        except Exception:  # noqa: BLE001 - whatever the user's code raises: told later
            return []
        finally:
            subject.put_back()
    return [i for i in numbers if _is_gradient(found.get(i, MISSING))]


def _is_gradient(value: Any) -> bool:
    if value is MISSING or value is None:
        return False
    try:
        return as_numpy(value, "a gradient").dtype.kind in "fc"
    except Exception:  # noqa: BLE001 - no array of numbers, whatever it is
        return False
