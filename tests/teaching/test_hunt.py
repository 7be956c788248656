"""The game: score, hints, and answers to code that misbehaves."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import threading
import time
import weakref

import numpy as np
import pytest

from gradlab.differentiation.metering import timeouts
from gradlab.errors import InputError
from gradlab.teaching import time_limit
from gradlab.teaching.hunt import Hunt
from gradlab.teaching.level import load
from gradlab.teaching.levels import LEVELS
from gradlab.teaching.marking import judge
from gradlab.teaching.time_limit import call_within

LAZY = LEVELS[1]
PATIENCE = 120  # seconds to wait for what comes at once, but on a busy machine


def right(dout, x, W, b):
    """The gradients of a linear layer."""
    return dout @ W.T, x.T @ dout, dout.sum(axis=0)


def lazy(dout, x, W, b):
    """The same with the bug of level 2."""
    return dout @ W.T, x.T @ dout, dout


def ask(student, **options):
    """The rows for somebody's linear_backward, by name."""
    return {row.name: row for row in judge(LAZY, student, **options)}


# --------------------------------------------------------------------------- the score


@pytest.mark.parametrize(
    ("hints", "retries", "points"),
    [(0, 0, 100), (1, 0, 80), (0, 1, 95), (2, 3, 45), (3, 2, 30), (3, 9, 20)],
)
def test_points_fall_by_twenty_a_hint_and_five_a_retry(hints, retries, points):
    """100 - 20 per hint - 5 per retry, and never below 20."""
    hunt = Hunt(level=2)
    for _ in range(hints):
        hunt.hint()
    for _ in range(retries):
        hunt.check(functools.partial(lazy))  # the cell was run again
    hunt.check(right)

    assert hunt.score == points


def test_the_same_code_checked_again_costs_nothing():
    """A cell with a slip of syntax leaves what was defined before; that is said."""
    hunt = Hunt(level=2)
    first, second = (hunt.check(lazy).words for _ in range(2))
    hunt.check(lazy)
    hunt.check(right)

    assert first == "1 of 3 wrong: db."
    told = "As before, for free: run the cell with your linear_backward first."
    assert second == f"{first} {told}"
    assert hunt.score == 95


def test_code_that_was_changed_where_it_lies_is_other_code():
    """The same object, another answer: that was a try."""
    slip = {"b": 0}

    def code(dout, x, W, b):
        return dout @ W.T, x.T @ dout, (dout.sum(axis=0), dout)[slip["b"]]

    hunt = Hunt(level=2)
    slip["b"] = 1
    hunt.check(code)
    slip["b"] = 0
    hunt.check(code)

    assert hunt.score == 95


def test_solving_twice_pays_once():
    """Checks and hints after the solution change no points."""
    hunt = Hunt(level=2)
    hunt.check(right)
    hunt.hint()
    hunt.check(lazy)
    hunt.check(right)

    assert hunt.score == 100
    assert hunt.solved == (2,)


def test_the_next_level_opens_with_the_solution():
    """`advance` stays where it is until the level is solved, then moves on by one."""
    hunt = Hunt(level=2)

    assert not hunt.advance()
    hunt.check(right)
    assert hunt.advance()
    assert hunt.number == 3


def test_all_levels_can_be_played_to_the_full_score():
    """The answer keys, looked up by name in the notebook, win every point there is."""
    cell = {}
    hunt = Hunt([level for level in LEVELS if not level.needs], namespace=cell)
    for level in hunt.levels:
        cell[level.edit] = load(level.source, level.edit)
        assert not hunt.check().solved
        cell[level.edit] = load(level.repaired, level.edit)
        assert hunt.check().solved
        hunt.advance()

    assert hunt.score == 95 * len(hunt.levels)


def test_hints_are_revealed_one_by_one_and_end():
    """Each call reveals one more; after the last nothing is taken."""
    hunt = Hunt(level=2)
    told = [hunt.hint() for _ in range(4)]

    assert tuple(told[:3]) == LAZY.hints
    assert "no more" in told[3]
    assert hunt.progress.hints == 3


@pytest.mark.parametrize("level", [0, 10, -1])
def test_an_unknown_level_is_refused(level):
    """The message says which there are."""
    with pytest.raises(InputError, match="1 to 9"):
        Hunt(LEVELS, level=level)
    with pytest.raises(InputError, match="1 to 9"):
        Hunt(LEVELS).source(level)


def test_code_that_is_not_there_costs_nothing():
    """A check before the cell was run says what to do and does not count as a try."""
    hunt = Hunt(level=2, namespace={})
    outcome = hunt.check()

    assert "run the cell" in outcome.words
    assert hunt.progress.checks == 0


def test_the_same_seed_deals_the_same_numbers():
    """Errors agree to the last digit for one seed, and not for another."""

    def off(dout, x, W, b):
        return dout @ W.T, x.T @ dout + 1e-3, dout.sum(axis=0)

    first, again, other = (ask(off, seed=seed)["dW"].error for seed in (5, 5, 6))
    assert first == again != other


# ---------------------------------------------------------------- code that misbehaves


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda b: b[None], r"has shape \(1, 3\), expected \(3,\) like b"),
        (lambda b: None, "is missing"),
        (lambda b: "text", "is not an array of real numbers but a str"),
        (lambda b: [[1.0], [2.0, 3.0]], "is not an array of real numbers"),
        (lambda b: b * 1j, "is not an array of real numbers"),
        (lambda b: b * np.nan, "3 of 3 entries disagree"),
        (
            lambda b: b + np.array([0, 0, 1e-3]),
            r"1 of 3 entries .* worst db\[2\]",
        ),
    ],
    ids=["shape", "none", "text", "ragged", "complex", "nan", "one entry"],
)
def test_whatever_is_returned_is_an_answer(answer, words):
    """A sentence says what is wrong with db; dx and dW keep their own verdict."""

    def student(dout, x, W, b):
        return dout @ W.T, x.T @ dout, answer(dout.sum(axis=0))

    rows = ask(student)
    assert re.search(words, rows["db"].words)
    assert [rows[name].right for name in ("dx", "dW", "db")] == [True, True, False]


def test_an_exception_is_an_answer_with_its_line():
    """The sentence holds type, message and line of the student's own code."""
    student = load(
        "def linear_backward(dout, x, W, b):\n    return dout @ W\n", LAZY.edit
    )
    (row,) = judge(LAZY, student)

    assert not row.right
    assert "raised ValueError" in row.words
    assert "in line 2" in row.words


def test_too_few_gradients_is_an_answer():
    """Returning two gradients where three belong is said in words."""
    (row,) = judge(LAZY, lambda dout, x, W, b: (x, W))

    assert "return 3 gradients: dx, dW, db" in row.words


def test_the_student_cannot_spoil_the_inputs():
    """Code that overwrites what it is given is judged against what it was given."""

    def greedy(dout, x, W, b):
        answers = dout @ W.T, x.T @ dout, dout.sum(axis=0)
        for array in (dout, x, W, b):
            array[...] = 0
        return answers

    assert all(row.right for row in judge(LAZY, greedy))


def test_a_forward_pass_that_was_changed_is_seen():
    """Whoever bends the loss to fit the gradient gets a row that says so."""
    level = LEVELS[0]
    bent = level.source.replace(".mean()", ".sum()")
    rows = {row.name: row for row in judge(level, load(bent, level.edit))}

    assert not rows["forward"].right


# ---------------------------------------------------------------------- the time limit


@pytest.fixture
def unhandled(monkeypatch):
    """Collect what ends a thread and is caught by nobody; a traceback otherwise."""
    found = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def test_a_loop_that_never_ends_is_an_answer():
    """It is ended when its time is up, even if it catches every exception."""
    threads = []

    def endless(dout, x, W, b):
        threads.append(threading.current_thread())
        while True:
            try:
                while True:
                    pass
            except Exception:
                pass

    (row,) = judge(LAZY, endless, seconds=0.3)

    assert "after 0.3 s" in row.words
    assert "never ends" in row.words
    (thread,) = threads
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_bare_except_is_ended_at_the_second_call_to_order():
    """A loop that swallows one interruption is interrupted again."""
    threads = []

    def stubborn():
        threads.append(threading.current_thread())
        try:
            while True:
                pass
        except BaseException:
            while True:
                pass

    with pytest.raises(TimeoutError):
        call_within(0.2, stubborn)

    threads[0].join(PATIENCE)
    assert not threads[0].is_alive()


def test_nothing_arrives_after_the_end(unhandled):
    """Calls that end just at the limit leave no interruption behind."""
    for _ in range(150):
        end = time.monotonic() + 0.002

        def work(end=end):
            while time.monotonic() < end:
                pass

        with contextlib.suppress(TimeoutError):
            call_within(0.002, work)
        for _ in range(200):  # bytecodes on which it would be delivered
            pass

    assert unhandled == []


def test_an_interruption_at_the_end_is_caught(unhandled):
    """Sent when the work was all but done, it must not arrive in `threading`."""
    for _ in range(20):
        begun, go = threading.Event(), threading.Event()

        def work(begun=begun, go=go):
            begun.set()
            return go.wait() and "done"

        errand = time_limit._Errand(work)
        assert begun.wait(PATIENCE)
        with errand._gate:  # the end of the work has to wait for this
            go.set()
            timeouts.interrupt(errand._thread.ident)
        errand._thread.join(PATIENCE)

        assert not errand._thread.is_alive()
        assert errand.wait(0.0)

    assert unhandled == []


def test_an_interruption_after_another_is_caught(unhandled):
    """Sent while what the first one broke off is being cleared away."""
    send = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, *2 * [ctypes.py_object])(
        ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
    )
    kept = []

    def half():
        """Return what is cleared away; no line of Python runs when that is."""
        thing, thread = np.ones(3), threading.get_ident()
        again = functools.partial(send, thread, timeouts.EvaluationTimeout)
        kept.append(weakref.ref(thing, again))
        return thing

    with pytest.raises(TimeoutError):
        call_within(0.2, lambda: (half(), [None for _ in iter(int, 1)]))

    assert kept[0]() is None
    assert unhandled == []


def test_what_has_not_begun_never_does(unhandled, monkeypatch):
    """A thread that comes late is not hit in `threading`, and leaves the work alone."""
    go, worked = threading.Event(), []

    class Late(threading.Thread):
        def run(self):
            go.wait(PATIENCE)  # as on a machine that is busy with others
            super().run()

    monkeypatch.setattr(threading, "Thread", Late)
    errand = time_limit._Errand(lambda: worked.append("done"))

    assert errand.stop()
    go.set()
    errand._thread.join(PATIENCE)
    assert not errand._thread.is_alive()
    assert worked == unhandled == []


def test_late_news_of_the_end_interrupts_nobody(monkeypatch):
    """A thread that has ended may have left its number to another one."""
    sent = []
    errand = time_limit._Errand(lambda: "done")
    assert errand.wait(PATIENCE)
    monkeypatch.setattr(time_limit, "interrupt", lambda *call: sent.append(call))
    monkeypatch.setattr(errand, "wait", lambda _: False)

    assert not errand.stop()
    assert sent == []
    assert errand.outcome() == "done"


def test_the_limit_works_in_the_threads_of_widgets():
    """Not only the main thread can be called to order."""
    seen = []

    def work():
        try:
            call_within(0.2, lambda: [None for _ in iter(int, 1)])
        except TimeoutError as error:
            seen.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)

    assert seen
    assert not thread.is_alive()
