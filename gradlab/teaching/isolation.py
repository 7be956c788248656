"""Marking in a process of its own, which may loop, crash, print or end itself.

The process protects the grading from accidents. It is no prison: code that means harm
can do what its user may do, so grade submissions of strangers inside a container.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import io
import json
import os
import pickle
import re
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradlab.errors import InputError
from gradlab.teaching.grading import LOOKS, Grade, Mark, hidden_seeds, mark, nothing
from gradlab.teaching.time_limit import call_within
from gradlab.tracebacks import in_one_line

if TYPE_CHECKING:
    from gradlab.teaching.level import Level

__all__ = ["grade"]

_START_UP = 60.0  # seconds, for a cold import of torch on a busy machine
_LOADING = 10.0  # seconds for the program itself, imports included, at least
# Imported before the clock starts: on a busy machine they take longer than the limit.
_SLOW = ("torch", "pandas", "matplotlib.pyplot", "scipy", "sklearn", "jax")
_PRINTED = 2000  # characters that are kept
_CHILD = "from gradlab.teaching.isolation import _child; _child()"


class _Brief(io.TextIOBase):
    """Takes everything that is printed, and keeps the beginning."""

    def __init__(self) -> None:
        self.kept = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.kept += text[: _PRINTED - len(self.kept)]
        return len(text)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Job:
    """What the other process needs."""

    level: Level
    source: str | None
    parcel: bytes | None
    options: dict[str, Any]
    patience: float  # seconds for loading the program
    answer: str  # path of a file
    folder: str | None


def grade(
    level: Level,
    student: Any,
    *,
    seed: int | None = None,
    seconds: float = 5.0,
    by_hand: bool = True,
    shown: int = 0,
    folder: str | Path | None = None,
) -> Grade:
    """Mark a student's code in a process of its own.

    Parameters
    ----------
    level
        What was asked.
    student
        The class or function, or the text of the program that defines it under the
        name ``level.edit``.
    seed
        Of the hidden inputs; default: a fresh one, told in the grade.
    seconds
        How long the code may run per trial; after seven times that, and a minute for
        starting Python, the process is killed.
    by_hand
        Whether calls to automatic or numeric differentiation cost all points.
    shown
        The seed that students saw.
    folder
        Where the program may import other files from; default: nowhere.

    Returns
    -------
    Grade
        Code that cannot be judged has no points, and a reason. A program that raises,
        or ends itself by `sys.exit`, after it has defined what was asked, is judged.

    Raises
    ------
    InputError
        If the class or function cannot be sent to another process, or cloudpickle,
        which sends it, is not installed; or `seed` is one that students saw.

    Examples
    --------
    >>> from gradlab.teaching.levels import LEVELS
    >>> text = "import os; os._exit(3)"
    >>> print(grade(LEVELS[1], text, seed=7).marks[0].reason)
    the process ended with code 3 before its code could be judged
    """
    seed = secrets.randbelow(2**31) + 8 if seed is None else seed
    seed, *_ = hidden_seeds(seed, shown)  # refused there, it would cost all marks
    options = {"seed": seed, "seconds": seconds, "by_hand": by_hand, "shown": shown}
    source = student if isinstance(student, str) else None
    parcel = _packed(student) if source is None else None
    start = time.monotonic()
    beside = None if folder is None else str(Path(folder).resolve())
    with tempfile.TemporaryDirectory(prefix="gradlab-grade-") as empty:
        answer = Path(empty) / "answer.json"
        patience = max(_LOADING, seconds)
        job = _Job(level, source, parcel, options, patience, str(answer), beside)
        sent = bytes(_pickler().dumps(job))
        code, last = _run(sent, empty, _START_UP + LOOKS * seconds)
        told = json.loads(answer.read_text("utf-8")) if answer.exists() else None
    took = time.monotonic() - start
    if told is None:
        reason = (
            f"still running after {took:.0f} s: its process was ended"
            if code is None
            else f"the process ended with code {code} before its code could be judged"
        ) + (f" ({last})" if last else "")
        return dataclasses.replace(nothing(level, reason, seed=seed), seconds=took)
    marks = tuple(Mark(**each) for each in told["marks"])
    return Grade(level.edit, marks, seed, took, told["printed"])


def _run(job: bytes, folder: str, seconds: float) -> tuple[int | None, str]:
    """Run the other process.

    Returns its exit code, None if it had to be killed, and what Python said last.
    """
    home = str(Path(__file__).resolve().parents[2])  # a checkout may not be installed
    path = os.pathsep.join(part for part in [home, *sys.path] if part)
    code = None
    errors = Path(folder) / "errors.txt"
    with errors.open("wb") as told, contextlib.suppress(subprocess.TimeoutExpired):
        code = subprocess.run(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-c", _CHILD],
            input=job,
            stdout=subprocess.DEVNULL,
            stderr=told,  # of the interpreter; what the code prints is caught inside
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "MPLBACKEND": "Agg"},
            timeout=seconds,
            check=False,
        ).returncode
    with errors.open("rb") as told:
        told.seek(max(0, errors.stat().st_size - _PRINTED))
        lines = told.read().decode(errors="replace").split("\n")
    return code, next((line.strip() for line in reversed(lines) if line.strip()), "")


def _pickler() -> Any:
    """Return cloudpickle, which sends closures, and what a notebook defines."""
    if importlib.util.find_spec("cloudpickle") is None:
        raise InputError(
            "grading in another process takes cloudpickle: pip install cloudpickle, "
            "or mark here, with gradlab.teaching.grading.mark"
        )
    return importlib.import_module("cloudpickle")


def _packed(student: Any) -> bytes:
    """Pack a class or function with all that it uses."""
    pickler = _pickler()
    name = getattr(student, "__module__", None)
    module = sys.modules.get(str(name))
    by_value = module is not None and name != "__main__"
    try:
        if by_value:  # the other process may not find the student's file
            pickler.register_pickle_by_value(module)
        return bytes(pickler.dumps(student))
    except Exception as error:
        what = getattr(student, "__name__", repr(student))
        raise InputError(
            f"{what} cannot be sent to another process ({error}); pass the text of "
            "the program that defines it"
        ) from error
    finally:
        if by_value:
            pickler.unregister_pickle_by_value(module)


def _child() -> None:
    """Do the job that comes in on standard input, and write the answer to its file."""
    job: _Job = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - from our parent
    printed = _Brief()
    sys.stdin = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        told = _judged(job)
    marks = [dataclasses.asdict(each) for each in told.marks]
    part = Path(job.answer).with_suffix(".part")
    part.write_text(json.dumps({"marks": marks, "printed": printed.kept}), "utf-8")
    part.rename(job.answer)
    os._exit(0)  # whatever threads were left behind


def _judged(job: _Job) -> Grade:
    """Load the code, and mark it."""
    level = job.level
    if job.folder is not None:
        sys.path.insert(0, job.folder)
    for library in _SLOW:
        if re.search(rf"\bimport\s+{library}|\bfrom\s+{library}", job.source or ""):
            with contextlib.suppress(ImportError):
                importlib.import_module(library)

    def loaded() -> Any:
        if job.source is not None:
            return _defined(job.source, level.edit)
        return pickle.loads(job.parcel or b"")  # noqa: S301 - from our parent

    try:
        student = call_within(job.patience, loaded)
    except (_MissingError, TimeoutError) as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any student's code
        reason = f"does not run: {in_one_line(error)}"
    else:
        return mark(level, student, **job.options)
    return nothing(level, reason, seed=job.options["seed"])


class _MissingError(Exception):
    """A program that does not define what was asked."""


class _NoIPython:
    """Takes what notebooks ask of IPython, and does nothing."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_args, **_named: None


def _defined(source: str, name: str) -> Any:
    """Run a program, and return what it calls `name`.

    What goes wrong after that was defined, a plot or a file that is missing, is no
    matter of the gradient.
    """
    cell: dict[str, Any] = {"__name__": "cell", "get_ipython": _NoIPython}
    cell["display"] = print
    try:
        exec(compile(source, f"<{name}>", "exec"), cell)  # noqa: S102 - as `load` does
    except (Exception, SystemExit) as error:
        if name not in cell:
            raise
        print("the program raised", type(error).__name__, error)  # noqa: T201 - kept
    if name in cell:
        return cell[name]
    defined = [
        each
        for each, value in cell.items()
        if callable(value) and getattr(value, "__module__", "") == "cell"
    ]
    close = difflib.get_close_matches(name, defined, n=1)
    meant = f"; is it {close[0]}?" if close else ""
    raise _MissingError(f"there is no {name} in it{meant}")
