"""Kernels that are forked are as good as others: see `tests.kernels`."""

from __future__ import annotations

import ast
import contextlib
import os
import time

import driver
import pytest
from jupyter_client.manager import start_new_kernel

from tests import kernels

pytestmark = pytest.mark.browser


@pytest.fixture
def kernel(surroundings, tmp_path, monkeypatch):
    """Start kernels, and ask them."""
    monkeypatch.setenv("JUPYTER_PATH", surroundings["JUPYTER_PATH"])

    @contextlib.contextmanager
    def start(**more):
        manager, client = start_new_kernel(
            env=surroundings | more, cwd=str(tmp_path), startup_timeout=driver.PATIENCE
        )

        def ask(expression):
            answer = client.execute_interactive(
                "import os, sys, numpy", user_expressions={"value": expression}
            )
            value = answer["content"]["user_expressions"]["value"]
            return ast.literal_eval(value["data"]["text/plain"])

        try:
            yield ask, manager
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)

    return start


def _lives(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_each_is_a_process_with_draws_of_its_own(kernel, surroundings):
    """What has been imported is there; torch is not, for nobody asked for it."""
    with kernel() as (first, _), kernel() as (second, _):
        assert first("os.getppid()") == second("os.getppid()")  # forked by the same
        assert first("os.getpid()") != second("os.getpid()")
        assert first("numpy.random.rand()") != second("numpy.random.rand()")
        assert first("'gradlab' in sys.modules") is True
        assert first("'torch' in sys.modules") is False
        assert first(f"os.environ[{kernels.SOCKET!r}]") == surroundings[kernels.SOCKET]


def test_a_notebook_that_imports_torch_finds_it(kernel, tmp_path):
    """Pytest and Jupyter say which notebook a kernel is for."""
    (tmp_path / "book.ipynb").write_text('"import torch\\n"', encoding="utf-8")
    with kernel(PYTEST_CURRENT_TEST="some/book.ipynb::book (call)") as (ask, _):
        assert ask("'torch' in sys.modules") is True


def test_it_ends_with_what_jupyter_takes_for_it(kernel):
    """Killed without a word, it is gone; nothing computes on by itself."""
    with kernel() as (ask, manager):
        process = ask("os.getpid()")
        manager.shutdown_kernel(now=True)
        deadline = time.monotonic() + driver.PATIENCE
        while _lives(process):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_without_them_the_usual_one_is_started(kernel, tmp_path):
    """Nobody at the door: slower, and no error."""
    with kernel(**{kernels.SOCKET: str(tmp_path / "nobody")}) as (ask, _):
        assert ask("'gradlab' in sys.modules") is False
