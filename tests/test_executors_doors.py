"""Jacobians and sweeps on an executor: the same bits as one process, for every method.

As in `test_executors`, an evaluation takes the millisecond that it sleeps, by a clock
that nothing else moves.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import BudgetError, InputError, InputTypeError
from tests.specimens.pools import spread

_METHODS = ["adaptive", "auto", "central", "forward", "backward"]


@pytest.fixture(autouse=True)
def _by_this_clock(clock):
    """Sleeping takes its time on the virtual clock, and none of the machine's."""


def wave(x):
    """Oscillate, slowly enough for sending it away."""
    time.sleep(1e-3)
    return np.sin(3 * x) * x.sum()


def slope(x):
    """Jacobian of `wave`."""
    return np.diag(3 * np.cos(3 * x) * x.sum()) + np.sin(3 * x)[:, None]


@pytest.mark.parametrize("method", [*_METHODS, "complex-step", gl.Central(step=1e-3)])
def test_jacobian_has_the_same_bits(pool, method):
    """Value, bar and step: what was looked at again on the workers as well."""
    x = np.linspace(-1, 2, 24)
    here = gl.numeric_jacobian(wave, x, method=method)
    there = gl.numeric_jacobian(wave, x, method=method, executor=pool)
    for name in ("value", "error", "step"):
        assert getattr(here, name).tobytes() == getattr(there, name).tobytes(), name


@pytest.mark.parametrize("kind", [ProcessPoolExecutor, ThreadPoolExecutor])
def test_sweep_has_the_same_bits(kind):
    """Curves, matrices and readings do not tell who evaluated them."""
    x = np.linspace(-1, 2, 12)
    options = {"jac": slope, "methods": ("central", "forward", "five-point")}
    here = gl.sweep(wave, x, steps=np.logspace(-9, -1, 9), **options)
    with kind(2) as workers:
        there = gl.sweep(
            wave, x, steps=np.logspace(-9, -1, 9), executor=workers, **options
        )
    assert here.table.equals(there.table)
    assert here.reading == there.reading
    assert here.best_step == there.best_step
    for key, matrix in here.matrices.items():
        assert matrix.tobytes() == there.matrices[key].tobytes()
    assert spread(there) > 9 * 12
    assert spread(here) == 0
    assert np.array_equal(x, np.linspace(-1, 2, 12))


def test_sweep_of_a_report_takes_an_executor(pool):
    """The report brings function and gradient along; its own verdicts stay."""
    report = gl.check(wave, np.linspace(0.5, 1, 8), jac=slope)
    here, there = (report.sweep(steps=[1e-6, 1e-4], executor=e) for e in (None, pool))
    assert here.table.equals(there.table)
    assert spread(there) > 0


def test_evaluations_of_a_sweep_add_up(pool, tmp_path):
    """Every call is counted, in whichever process it was made."""
    path = str(tmp_path / "calls")

    def f(x):
        with open(path, "ab", buffering=0) as file:  # noqa: PTH123 - it is pickled
            file.write(b".")
        time.sleep(1e-3)
        return (x**3).sum()

    sweep = gl.sweep(
        f, np.ones(20), grad=lambda x: 3 * x**2, steps=[1e-5, 1e-3], executor=pool
    )
    assert sweep.evaluations == os.stat(path).st_size  # noqa: PTH116
    assert spread(sweep) > 0


def test_budget_of_a_sweep_holds_on_an_executor(pool):
    """What is sent away is charged before; half a ladder has gaps, and says so."""
    options = {"jac": slope, "steps": np.logspace(-8, -2, 13), "executor": pool}
    sweep = gl.sweep(wave, np.ones(20), budget=300, **options)
    assert sweep.evaluations <= 300
    assert any("gaps" in remark for remark in sweep.remarks)
    with pytest.raises(BudgetError, match="first step"):
        gl.sweep(wave, np.ones(20), budget=2, **options)


def test_worker_that_dies_costs_a_sweep_no_number(tmp_path):
    """A process that ends in the middle is replaced, and that is told."""
    flag, parent = str(tmp_path / "died"), os.getpid()

    def f(x):
        time.sleep(1e-3)
        if x[5] != 1.0 and os.getpid() != parent and not os.path.exists(flag):  # noqa: PTH110
            with open(flag, "w"):  # noqa: PTH123
                os._exit(1)
        return (x**2).sum()

    options = {"grad": lambda x: 2 * x, "steps": [1e-5, 1e-3]}
    with ProcessPoolExecutor(2) as workers:
        there = gl.sweep(f, np.ones(12), executor=workers, **options)
    assert there.table.equals(gl.sweep(f, np.ones(12), **options).table)
    assert any("a worker died" in remark for remark in there.remarks)


def test_sweep_refuses_what_is_no_executor():
    """By name, and a pool that was shut down by what it says."""
    with pytest.raises(InputTypeError, match=r"concurrent\.futures\.Executor.*got int"):
        gl.sweep(wave, np.ones(3), jac=slope, executor=2)
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    with pytest.raises(InputError, match="takes no more work"):
        gl.sweep(wave, np.ones(3), jac=slope, executor=closed)
