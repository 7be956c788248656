"""gradlab: is this gradient right, where is it wrong, and why.

>>> import gradlab as gl
>>> report = gl.check(lambda x: (x**2).sum(), np.arange(3.0), grad=lambda x: 2 * x)
>>> report.verdict.name
'AGREES'

Names are loaded when they are first used (PEP 562): ``import gradlab`` costs about as
much as importing NumPy.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradlab import compat, testing
    from gradlab.blaming import blame
    from gradlab.checks import check
    from gradlab.comparison.comparison import Comparison
    from gradlab.comparison.verdict import Verdict
    from gradlab.diagnosis.finding import BugKind, Finding
    from gradlab.differentiation.jacobian import Jacobian
    from gradlab.differentiation.method import (
        Adaptive,
        Auto,
        Backward,
        Central,
        ComplexStep,
        Forward,
    )
    from gradlab.errors import GradientMismatchError, GradlabError
    from gradlab.jacobians import analytic_jacobian, numeric_jacobian
    from gradlab.locating import locate
    from gradlab.presentation.widgets.epsilon import EpsilonSweep
    from gradlab.presentation.widgets.explorer import JacobianExplorer
    from gradlab.presentation.widgets.hunt import BugHunt
    from gradlab.presentation.widgets.layers import LayerBlame
    from gradlab.properties.accumulation import check_accumulation
    from gradlab.properties.hessians import check_hessian
    from gradlab.properties.modes import compare_modes
    from gradlab.properties.patterns import check_sparsity
    from gradlab.properties.taylor import taylor_test
    from gradlab.report import Report
    from gradlab.storage import load
    from gradlab.sweeping import sweep
    from gradlab.sweeps import Sweep

__version__ = "0.1.0"

# public name -> module that defines it
_HOMES = {
    "Adaptive": "gradlab.differentiation.method",
    "Auto": "gradlab.differentiation.method",
    "Backward": "gradlab.differentiation.method",
    "BugHunt": "gradlab.presentation.widgets.hunt",
    "BugKind": "gradlab.diagnosis.finding",
    "Central": "gradlab.differentiation.method",
    "Comparison": "gradlab.comparison.comparison",
    "ComplexStep": "gradlab.differentiation.method",
    "EpsilonSweep": "gradlab.presentation.widgets.epsilon",
    "Finding": "gradlab.diagnosis.finding",
    "Forward": "gradlab.differentiation.method",
    "GradientMismatchError": "gradlab.errors",
    "GradlabError": "gradlab.errors",
    "Jacobian": "gradlab.differentiation.jacobian",
    "JacobianExplorer": "gradlab.presentation.widgets.explorer",
    "LayerBlame": "gradlab.presentation.widgets.layers",
    "Report": "gradlab.report",
    "Sweep": "gradlab.sweeps",
    "Verdict": "gradlab.comparison.verdict",
    "analytic_jacobian": "gradlab.jacobians",
    "blame": "gradlab.blaming",
    "check": "gradlab.checks",
    "check_accumulation": "gradlab.properties.accumulation",
    "check_hessian": "gradlab.properties.hessians",
    "check_sparsity": "gradlab.properties.patterns",
    "compare_modes": "gradlab.properties.modes",
    "load": "gradlab.storage",
    "locate": "gradlab.locating",
    "numeric_jacobian": "gradlab.jacobians",
    "sweep": "gradlab.sweeping",
    "taylor_test": "gradlab.properties.taylor",
}
_MODULES = ("compat", "testing")

__all__ = [  # noqa: PLE0604 - built from the table above, which is sorted
    *sorted((*_HOMES, *_MODULES)),
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"gradlab.{name}")
    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'gradlab' has no attribute {name!r}"
        if name in importlib.import_module("gradlab.errors").__all__:
            msg += f"; it is gradlab.errors.{name}"
        raise AttributeError(msg, name=name, obj=sys.modules[__name__])
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted((*__all__, "__version__"))
