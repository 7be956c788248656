"""Executors in processes of their own: forks with threads, Ctrl-C, a Dask cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import gradlab as gl
from tests.clocks import VirtualClock

PATIENCE = 600  # seconds for a process that hangs, not for one that is slow
# Workers that begin with Dask imported, as each that dies is followed by another; and a
# Dask that does nothing again by itself: what is done again, gradlab has asked for.
_DYING_WORKERS = {
    "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "forkserver",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
}


def _run(folder, code, *arguments, **options):
    """Run a program in a process of its own, where its workers may do as they like."""
    script = folder / "program.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, script, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=folder,
        **options,
    )


_FORKED = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import time, torch, gradlab as gl
torch.set_num_threads(2)
W = torch.randn(300, 300, dtype=torch.float64)
(W @ W).exp().sum()  # starts the threads that a fork loses
def f(x):
    time.sleep(1e-3)
    return (torch.tanh(x @ W) ** 2).sum()
x = torch.randn(64, 300, dtype=torch.float64) / 9
if __name__ == "__main__":
    for how in sys.argv[1:]:
        with ProcessPoolExecutor(2, mp_context=get_context(how)) as pool:
            report = gl.check(f, x, coverage="sample", executor=pool)
        print(how, report.verdict.name, *report.remarks, sep="|")
"""


@pytest.mark.slow
def test_torch_on_workers_does_not_hang(tmp_path):
    """A forked worker has no OpenMP threads to wait for; it says that it uses one."""
    done = _run(tmp_path, _FORKED, "fork", "spawn")
    assert done.returncode == 0, done.stderr
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert [line[:2] for line in lines] == [["fork", "AGREES"], ["spawn", "AGREES"]]
    for how, _, *remarks in lines:
        assert any("workers of ProcessPoolExecutor" in remark for remark in remarks)
        assert any("last digits" in remark for remark in remarks) == (how == "fork")


_INTERRUPTED = """
import os, signal, sys, threading, time
from concurrent.futures import ProcessPoolExecutor
import numpy as np, gradlab as gl
def f(x):
    time.sleep(2e-3)
    return (x**2).sum()
if __name__ == "__main__":
    whom = os.killpg if sys.argv[1] == "group" else os.kill
    underway = threading.Event()
    def ctrl_c():
        underway.wait()
        whom(os.getpid(), signal.SIGINT)
    threading.Thread(target=ctrl_c, daemon=True).start()
    class Bar:
        n = 0
        def update(self, more):
            self.n += more
            if self.n > 1000:  # of 8000: some slices are done, and more are to come
                underway.set()
    with ProcessPoolExecutor(2) as pool:
        report = gl.check(f, np.ones(4000), grad=lambda x: 2 * x, coverage="full",
                          executor=pool, progress=Bar())
        workers = list(pool._processes)
    print(report.partial, report.verdict.name, *report.remarks, sep="|")
    for worker in workers:
        try:
            for _ in range(600):  # a minute to end
                os.kill(worker, 0)
                time.sleep(0.1)
            print("still there", worker)
        except ProcessLookupError:
            pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["process", "group"])
def test_interrupt_leaves_a_partial_report_and_no_worker(tmp_path, whom):
    """Ctrl-C, which a terminal sends to the workers too, ends in a partial report."""
    done = _run(tmp_path, _INTERRUPTED, whom, start_new_session=True)
    assert done.stdout.startswith("True|UNDECIDED"), done.stdout + done.stderr
    assert "interrupted: " in done.stdout
    assert "still there" not in done.stdout


@pytest.mark.slow
def test_dask_gives_the_same_bits(monkeypatch):
    """A local Dask cluster, through its executor or its client itself."""
    distributed = pytest.importorskip("distributed")
    # an evaluation seems to take a millisecond: long enough to be sent away
    monkeypatch.setattr(time, "perf_counter", VirtualClock(reading=2e-3).read)
    x = np.linspace(-1, 2, 20)

    def f(x):
        return np.sin(3 * x) * x.sum()

    def jac(x):
        return np.diag(3 * np.cos(3 * x) * x.sum()) + np.sin(3 * x)[:, None]

    here = gl.numeric_jacobian(f, x, method="central")
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**settings) as cluster,
        distributed.Client(cluster) as client,
    ):
        for executor in (client.get_executor(), client):
            there = gl.numeric_jacobian(f, x, method="central", executor=executor)
            assert there.value.tobytes() == here.value.tobytes()
            assert there.error.tobytes() == here.error.tobytes()
        report = gl.check(f, x, jac=jac, executor=client)
        assert report.ok
        assert any(" workers of " in remark for remark in report.remarks)


_DYING = """
import os, sys, time
import numpy as np
from dask.distributed import Client, LocalCluster
import gradlab as gl
from gradlab.differentiation.crews import silence
silence.LOOK = 1.0
parent, flag = os.getpid(), sys.argv[1]
def f(x):
    time.sleep(2e-3)
    if os.getpid() != parent:
        if flag and x[9] != 1.0 and not os.path.exists(flag):
            open(flag, "w").close()
            os._exit(1)
        if not flag and x[2] != 1.0 and np.all(x[3:] == 1.0):
            os._exit(9)
    return (x**2).sum()
if __name__ == "__main__":
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**settings, silence_logs=50) as made, Client(made) as client:
        try:
            report = gl.check(
                f, np.ones(24), grad=lambda x: 2 * x, executor=client, diagnose=False
            )
            print(report.verdict.name)
        except gl.GradlabError as error:
            print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("once", [True, False])
def test_worker_of_dask_that_dies_keeps_nobody_waiting(tmp_path, once):
    """Its work is done again; where all die of it, again and again, a sentence says so.

    Dask gives up a task, or its local cluster a worker, whichever comes first.
    """
    pytest.importorskip("distributed")
    flag = str(tmp_path / "died") if once else ""
    done = _run(tmp_path, _DYING, flag, env={**os.environ, **_DYING_WORKERS})
    assert done.returncode == 0, done.stderr
    if once:
        assert Path(flag).exists()
        assert done.stdout.strip() == "AGREES", done.stdout
    else:
        told = "every worker of executor= has died" in done.stdout
        assert told or done.stdout.strip() == "UNDECIDED", done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("block", [0, 1])
def test_code_on_the_page_about_clusters_runs(tmp_path, block):
    """A pool of processes, and a local Dask cluster, as the tutorial writes them."""
    if block:
        pytest.importorskip("distributed")
    page = Path(__file__).resolve().parents[1] / "tutorials" / "cluster.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert len(blocks) == 2
    done = _run(tmp_path, blocks[block])
    assert done.returncode == 0, done.stderr
    wanted = "agrees" if not block else "Jacobian(shape=(50, 50)"
    assert wanted in done.stdout
