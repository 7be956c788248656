"""What a case of the battery is: the arguments of one call of `gradlab.check`."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np

import gradlab as gl


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One call of `gradlab.check`, and the name under which it is reported."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def check(self, **more):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the programs, not of gradlab
            return gl.check(*self.arguments, **self.options, **more)


class Shelf(list):
    """A list of cases that is filled by calls."""

    def add(self, name, *arguments, **options):
        if any(case.name == name for case in self):
            raise ValueError(f"two cases are called {name!r}")
        self.append(Case(name, arguments, options))
