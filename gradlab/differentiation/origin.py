"""Where differences start from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gradlab.subject.subject import Subject

__all__ = ["Origin"]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """A subject at its point, and f there, (rows,), which all differences share."""

    subject: Subject
    base: NDArray[np.float64]
