"""Evaluating on an executor: the same numbers as one process, whatever befalls it.

Work is sent away where an evaluation takes long enough. Here it takes the millisecond
that it sleeps, by a clock that nothing else moves: what is sent is the same everywhere.
"""

from __future__ import annotations

import os
import random
import sys
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

import gradlab as gl
from gradlab.differentiation.crews.pieces import Job, Piece, cut, halves, singles
from gradlab.differentiation.crews.work import same_arithmetic
from gradlab.errors import InputError, InputTypeError, SubjectError
from tests.specimens.pools import spread

_BITS = ("analytic", "numeric", "numeric_error", "step", "verdicts", "allowed")


@pytest.fixture(autouse=True)
def _by_this_clock(clock):
    """Sleeping takes its time on the virtual clock, and none of the machine's."""


def slowly(f):
    """Make a function slow enough that sending it away is worth it."""

    def slow(*arguments):
        time.sleep(1e-3)
        return f(*arguments)

    return slow


def assert_same(here, there):
    """Both reports hold the same numbers, to the bit."""
    for one, other in zip(here.comparisons, there.comparisons, strict=True):
        for name in _BITS:
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


class Counting:
    """Counts its calls in a file, which all processes share."""

    def __init__(self, path, f):
        self.path, self.f = str(path), f

    def __call__(self, x):
        with open(self.path, "ab", buffering=0) as file:  # noqa: PTH123 - it is pickled
            file.write(b".")
        time.sleep(1e-3)
        return self.f(x)


@pytest.mark.parametrize("method", ["auto", "central", "forward", "adaptive"])
def test_processes_give_the_same_bits(pool, method):
    """Pieces are evaluated by other processes, and nothing in the report differs."""
    x = np.linspace(-1, 2, 24)
    f = slowly(lambda x: np.sin(3 * x) * x.sum())
    jac = lambda x: np.diag(3 * np.cos(3 * x) * x.sum()) + np.sin(3 * x)[:, None]
    here = gl.check(f, x, jac=jac, method=method)
    there = gl.check(f, x, jac=jac, method=method, executor=pool)
    assert_same(here, there)
    assert there.ok
    assert spread(there) > 0


def test_wrong_gradient_is_wrong_on_an_executor_too(pool):
    """The second look climbs its ladders on the workers, and names the entry."""
    x = np.linspace(0.5, 1.5, 20)

    def grad(x):
        wrong = np.exp(x)
        wrong[7] *= 1.01
        return wrong

    f = slowly(lambda x: np.exp(x).sum())
    here, there = gl.check(f, x, grad=grad), gl.check(f, x, grad=grad, executor=pool)
    assert_same(here, there)
    assert there["x0"].worst(1).label[0] == "x0[7]"


def test_parameters_in_place_are_perturbed_in_the_copies(pool):
    """A net that reads its own params travels with them, as one object."""

    class Net:
        def __init__(self):
            self.params = {"W": np.arange(12.0).reshape(3, 4), "b": np.ones(4)}

        def loss(self):
            time.sleep(1e-3)
            out = np.tanh(np.ones(3) @ self.params["W"] / 20 + self.params["b"])
            slope = 1 - out**2
            grads = {"W": np.outer(np.ones(3), slope) / 20, "b": slope}
            return out.sum(), grads

    net = Net()
    before = {name: value.copy() for name, value in net.params.items()}
    here = gl.check(net.loss, params=net.params)
    there = gl.check(net.loss, params=net.params, executor=pool)
    assert_same(here, there)
    assert there.ok
    assert spread(there) > 0
    assert all(np.array_equal(before[k], net.params[k]) for k in before)


def test_threads_evaluate_copies():
    """Threads share memory: each perturbs a copy of its own, and none the user's."""
    x = np.linspace(0, 1, 16)
    f = slowly(lambda x: (x**3).sum())
    with ThreadPoolExecutor(3) as threads:
        report = gl.check(f, x, grad=lambda x: 3 * x**2, executor=threads)
    assert_same(gl.check(f, x, grad=lambda x: 3 * x**2), report)
    assert spread(report) == 32
    assert np.array_equal(x, np.linspace(0, 1, 16))


@pytest.mark.parametrize("kind", [ProcessPoolExecutor, ThreadPoolExecutor])
def test_random_function_sees_the_same_draw_everywhere(kind):
    """Workers rewind their own generators to the state of this process."""
    rng = np.random.default_rng(3)

    def f(x):
        time.sleep(1e-3)
        mask = np.random.random(x.size) < 0.5
        return ((x * mask) ** 2).sum() + random.random() + rng.normal()

    x = np.linspace(1, 2, 16)
    state = np.random.get_state()[1].copy()
    jacobian = gl.numeric_jacobian(f, x, method="central")
    with kind(2) as workers:
        there = gl.numeric_jacobian(f, x, method="central", executor=workers)
    assert there.value.tobytes() == jacobian.value.tobytes()
    assert np.array_equal(state, np.random.get_state()[1])


def test_evaluations_add_up(pool, tmp_path):
    """The report counts every call, in whichever process it was made."""
    f = Counting(tmp_path / "calls", lambda x: (x**2).sum())
    report = gl.check(f, np.ones(40), grad=lambda x: 2 * x, executor=pool)
    assert report.evaluations == (tmp_path / "calls").stat().st_size


def test_function_travels_once_to_each_worker(tmp_path):
    """Later pieces name the subject; they do not bring it along again."""

    class Heavy:
        def __init__(self, path):
            self.path = str(path)

        def __setstate__(self, state):
            self.__dict__.update(state)
            with open(self.path, "a") as file:  # noqa: PTH123
                file.write(f"{os.getpid()}\n")

        def __call__(self, x):
            time.sleep(1e-3)
            return (x**2).sum()

    path = tmp_path / "unpickled"
    with ProcessPoolExecutor(2) as workers:
        for _ in range(1):
            gl.check(Heavy(path), np.ones(200), grad=lambda x: 2 * x, executor=workers)
    pids = path.read_text().split()
    assert len(pids) == len(set(pids)) <= 2


def test_exception_at_a_perturbed_point_comes_through(pool):
    """A function that raises beside the point has no value there, here or there."""

    def f(x):
        time.sleep(1e-3)
        if x[5] > 1.0:
            msg = "out of the domain"
            raise ValueError(msg)
        return (x**2).sum()

    x = np.ones(12)
    here = gl.check(f, x, grad=lambda x: 2 * x)
    there = gl.check(f, x, grad=lambda x: 2 * x, executor=pool)
    assert_same(here, there)
    assert [f.evidence for f in here.findings] == [f.evidence for f in there.findings]


def test_other_shapes_are_refused_as_in_one_process(pool):
    """A function whose outputs change their shape is told so, by the same sentence."""

    def f(x):
        time.sleep(1e-3)
        return np.ones(3) if x[5] == 1.0 or x[6] != 1.0 else np.ones(2)

    with pytest.raises(SubjectError, match="shapes must not depend on the values"):
        gl.check(f, np.ones(12), jac=lambda x: np.zeros((3, 12)), executor=pool)


def test_worker_that_dies_is_replaced(tmp_path):
    """A process that ends in the middle costs a repetition, no number."""
    flag = str(tmp_path / "died")
    parent = os.getpid()

    def f(x):
        time.sleep(1e-3)
        if x[9] != 1.0 and os.getpid() != parent and not os.path.exists(flag):  # noqa: PTH110
            with open(flag, "w"):  # noqa: PTH123
                os._exit(1)
        return (x**2).sum()

    x = np.ones(24)
    with ProcessPoolExecutor(2) as workers:
        there = gl.check(f, x, grad=lambda x: 2 * x, executor=workers)
    assert_same(gl.check(f, x, grad=lambda x: 2 * x), there)
    assert any("a worker died" in remark for remark in there.remarks)


def test_point_that_ends_its_process_has_no_value():
    """What kills every worker does not kill the notebook: that entry is undecided."""
    parent = os.getpid()

    def f(x):
        time.sleep(1e-3)
        if abs(x[2] - 1.0) > 0 and np.all(x[3:] == 1.0) and os.getpid() != parent:
            os._exit(9)
        return (x**2).sum()

    with ProcessPoolExecutor(2) as workers:
        jacobian = gl.numeric_jacobian(
            f, np.ones(6), method="central", executor=workers
        )
    assert np.isnan(jacobian.value).tolist() == [False, False, True, *[False] * 3]


def test_copy_that_computes_something_else_is_not_believed(pool, tmp_path, monkeypatch):
    """A function that reads a module's own arrays does not see those of its copy."""
    source = (
        "import time\nimport numpy as np\nparams = {'w': np.ones(20)}\n"
        "def loss():\n    time.sleep(1e-3)\n"
        "    w = params['w']\n    return float((w**2).sum()), {'w': 2 * w}\n"
    )
    (tmp_path / "a_users_module.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    import a_users_module  # type: ignore[import-not-found]

    report = gl.check(a_users_module.loss, params=a_users_module.params, executor=pool)
    monkeypatch.delitem(sys.modules, "a_users_module")
    assert report.verdict.name == "AGREES"
    assert any("evaluated in this process" in remark for remark in report.remarks)


def test_executor_that_is_none_is_refused():
    """What has no submit is refused by name, before any work."""
    with pytest.raises(InputTypeError, match=r"concurrent\.futures\.Executor.*got int"):
        gl.check(np.sum, np.ones(3), grad=np.ones_like, executor=2)


def test_executor_that_was_shut_down_is_refused():
    """One clear sentence instead of RuntimeError from within."""
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(InputError, match="takes no more work"):
        gl.check(np.sum, np.ones(3), grad=np.ones_like, executor=pool)


def test_function_that_cannot_be_pickled_is_refused(pool):
    """The sentence says what pickling said, and what to do."""
    import threading

    lock = threading.Lock()

    def f(x):
        with lock:
            return (x**2).sum()

    with pytest.raises(InputError, match=r"pickling it raised TypeError .*lock.*leave"):
        gl.check(f, np.ones(3), grad=lambda x: 2 * x, executor=pool)


class Flaky(Executor):
    """Runs what it is given at once, and fails as it is told to."""

    def __init__(self, failures, error=OSError):
        self.failures, self.error = failures, error

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        if fn is not os.getpid and self.failures:
            self.failures -= 1
            future.set_exception(self.error("the line is down"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.parametrize("failures", [1, 2, 1000])
def test_executor_that_fails_is_tried_again_and_then_left(failures):
    """An error of the executor itself costs time, and never a number."""
    x = np.ones(30)
    f = slowly(lambda x: np.exp(x).sum())
    there = gl.check(f, x, grad=np.exp, executor=Flaky(failures))
    assert_same(gl.check(f, x, grad=np.exp), there)
    assert any("the executor failed" in r for r in there.remarks) == (failures > 2)


def test_budget_holds_on_an_executor(pool):
    """Evaluations are charged before they are sent: none is made beyond the budget."""
    report = gl.check(
        slowly(lambda x: (x**2).sum()),
        np.ones(400),
        grad=lambda x: 2 * x,
        budget=300,
        coverage="full",
        executor=pool,
    )
    assert report.partial
    assert report.evaluations <= 300 + 4  # what the two workers proved themselves with


def test_pieces_do_not_cut_batches():
    """However many workers there are, batches and pairs stay whole."""
    whole = Piece("rows", 0, np.arange(103), np.ones(103), batched=True, alone=False)
    for breadth in (1, 2, 3, 7, 50):
        jobs = cut(whole, breadth, 1e-2, 8)
        assert all(job.start % 8 == 0 for job in jobs)
        together = np.concatenate([job.piece.positions for job in jobs])
        assert np.array_equal(together, np.arange(103))


@pytest.mark.parametrize("apart", [halves, singles])
def test_what_is_cut_smaller_is_all_of_it(apart):
    """Halves, and single evaluations, of a piece hold what the piece held, in order."""
    piece = Piece("rows", 0, np.arange(7), np.ones(7), batched=False, alone=False)
    parts = apart(Job(piece, start=40))
    together = np.concatenate([job.piece.positions for job in parts])
    assert np.array_equal(together, piece.positions)
    assert [job.start for job in parts] == [
        40 + job.piece.positions[0] for job in parts
    ]


def test_other_rounding_is_told_from_other_numbers():
    """Last digits may differ between processors; anything else is another function."""
    row = np.array([[1.0, -3.0], [1.001, -3.0]])
    assert same_arithmetic(row, row.copy()) is True
    assert same_arithmetic(row * (1 + 4e-16), row) is False
    assert same_arithmetic(row[[0, 0]], row) is None
    assert same_arithmetic(np.where(row > 0, np.nan, row), row) is None


def test_missing_cloudpickle_is_told_with_its_remedy(monkeypatch):
    """The function is not at fault: one sentence, which says how to get it."""
    monkeypatch.setitem(sys.modules, "cloudpickle", None)  # as if not installed
    needed = r"^executor= needs cloudpickle.* pip install gradlab\[distributed\]$"
    with ThreadPoolExecutor(1) as threads, pytest.raises(InputError, match=needed):
        gl.check(slowly(np.sum), np.ones(3), grad=np.ones_like, executor=threads)
