r"""Mark a whole folder of submissions, with a table at the end.

::

    python -m gradlab.teaching.submissions FOLDER --level 2 --out marks.csv

A submission is a program or a notebook; the student's name is the first part of its
path below the folder (``ada.py``, ``ada/week3.ipynb``). Every one runs in a process of
its own with a time limit, and nothing that it does stops the others. Files in a
student's folder may import each other; one that only helps another is not marked.

What was asked is a level of gradlab's, by number or name, or one of your own: ``--level
week3.py:LEVEL`` names a `Level` in a file, or what `plant` or `level_from` returned.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import json
import re
import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
from tqdm.auto import tqdm

from gradlab.errors import InputError
from gradlab.targets import refuse_unwritable
from gradlab.teaching.grading import hidden_seeds, nothing
from gradlab.teaching.isolation import grade
from gradlab.teaching.level import Level
from gradlab.teaching.levels import LEVELS
from gradlab.teaching.planting import Planted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Submission", "asked", "code_of", "grade_folder", "write_table"]

# %magic, !command, ?name, name?, files = !ls, t = %time f(): indentation and name stay
_MAGIC = re.compile(
    r"^(\s*)((?:[\w, ]+=\s*)?)(?:[%!][^=\s].*|\?.*)$|^(\s*)[\w.]+\?+\s*$"
)
_PYTHON_CELLS = r"%%(time|timeit|capture|prun)\b"

_COLUMNS = ("student", "file", "edit", "score", "reasons", "seed", "seconds", "printed")


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """One file that somebody handed in.

    Attributes
    ----------
    student
        First part of the path below the folder, without an ending.
    path
        Where the file lies.
    """

    student: str
    path: Path


def _find(folder: str | Path) -> list[Submission]:
    """Return the programs and notebooks in a folder, by student.

    Parameters
    ----------
    folder
        Looked through with all its folders; hidden ones (checkpoints) are left out.

    Returns
    -------
    list of Submission
        In alphabetical order.

    Raises
    ------
    InputError
        If it is not a folder, or holds no submission.
    """
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{folder} is not a folder: give the one with the submissions")
    found = [
        Submission(path.relative_to(root).parts[0].removesuffix(path.suffix), path)
        for path in sorted(root.rglob("*"))
        if path.suffix in {".py", ".ipynb"}
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
    ]
    if not found:
        raise InputError(f"{folder} holds no .py and no .ipynb file")
    return found


def code_of(path: str | Path) -> str:
    r"""Return the program in a file: its text, or the code cells of a notebook.

    Magics and shell commands are left out. Cells that raise do not end the program:
    a broken plot at the end of a notebook costs no marks.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> cells = [{"cell_type": "code", "source": ["%matplotlib inline\n", "x = 3"]}]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "ada.ipynb")
    ...     _ = path.write_text(json.dumps({"cells": cells}))
    ...     program = {}
    ...     exec(code_of(path), program)
    >>> program["x"]
    3
    """
    text = Path(path).read_text(encoding="utf-8-sig")  # Windows marks its UTF-8
    if Path(path).suffix == ".py":
        return text
    cells = [
        "".join(cell["source"])
        for cell in json.loads(text)["cells"]
        if cell["cell_type"] == "code"
    ]
    plain = [_plain(cell) for cell in cells]
    # each cell is compiled by itself: one that is no Python does not spoil the rest
    return (
        f"for _cell in {plain!r}:\n"
        "    try:\n"
        "        exec(compile(_cell, '<cell>', 'exec'), globals())\n"
        "    except (Exception, SystemExit) as _error:\n"
        "        print('a cell raised', type(_error).__name__, _error)\n"
    )


def _plain(cell: str) -> str:
    """Blank out what only IPython understands; line numbers stay."""
    first, _, rest = cell.lstrip().partition("\n")
    if first.startswith("%%"):
        # the rest of a timed or captured cell is Python, that of others is not
        cell = f"\n{rest}" if re.match(_PYTHON_CELLS, first) else ""
    with contextlib.suppress(SyntaxError):
        ast.parse(cell)
        return cell
    return "\n".join(_MAGIC.sub(r"\1\2\3None", line) for line in cell.split("\n"))


def grade_folder(
    folder: str | Path,
    levels: Iterable[Level],
    *,
    seed: int = 1000,
    seconds: float = 5.0,
    by_hand: bool = True,
    mend: bool = False,
    jobs: int = 2,
    progress: bool | None = False,
) -> list[dict[str, Any]]:
    """Mark every submission in a folder.

    Parameters
    ----------
    folder
        With programs and notebooks.
    levels
        What was asked: each submission is looked through for every one of them.
    seed
        Of the hidden inputs, the same for everybody; keep it to yourself.
    seconds
        How long a submission may run per trial.
    by_hand
        Whether calls to automatic or numeric differentiation cost all points.
    mend
        All or nothing: for code that was handed out with one mistake in it, where most
        gradients are right before anybody has done anything.
    jobs
        How many processes run at a time.
    progress
        Whether to show a bar; None shows it on a terminal.

    Returns
    -------
    list of dict
        A record for each submission and level: student, file, edit, score out of 100,
        reasons, seed, seconds, and the beginning of what was printed.

    Raises
    ------
    InputError
        If the folder holds nothing to mark, or `seed` is one that students saw.
    """
    hidden_seeds(seed)
    every = tuple(levels)
    pairs = [(each, level) for each in _find(folder) for level in every]

    def one(pair: tuple[Submission, Level]) -> dict[str, Any]:
        submission, level = pair
        name = str(submission.path.relative_to(folder))
        try:
            code = code_of(submission.path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            marked = nothing(level, f"cannot be read: {error}", seed=seed)
        else:
            # files that lie loose beside those of others import nothing from there
            own = submission.path.parent
            marked = grade(
                level,
                code,
                seed=seed,
                seconds=seconds,
                by_hand=by_hand,
                folder=None if own == Path(folder) else own,
            )
        record = marked.record()
        if mend and not marked.full:
            record["score"] = 0.0
        return {
            "student": submission.student,
            "file": name,
            **record,
            "seconds": round(marked.seconds, 2),
            "printed": marked.printed,
        }

    bar: Any = tqdm(
        total=len(pairs), disable=None if progress is None else not progress
    )
    with bar, ThreadPoolExecutor(jobs) as pool:
        records = []
        for record in pool.map(one, pairs):
            records.append(record)
            bar.update()
    return _without_helpers(records)


def _without_helpers(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out files that lack what another file of the same student defines."""

    def lacks(record: dict[str, Any]) -> bool:
        return str(record["reasons"]).startswith("there is no ")

    told = {(each["student"], each["edit"]) for each in records if not lacks(each)}
    return [
        each
        for each in records
        if not (lacks(each) and (each["student"], each["edit"]) in told)
    ]


def write_table(records: Sequence[dict[str, Any]], file: TextIO) -> None:
    """Write records as CSV.

    Examples
    --------
    >>> import sys
    >>> write_table([{"student": "ada", "score": 100.0}], sys.stdout)
    student,file,edit,score,reasons,seed,seconds,printed
    ada,,,100.0,,,,
    """
    writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow({name: _tame(value) for name, value in record.items()})


def _tame(value: Any) -> Any:
    """Keep spreadsheets from running what a student printed as a formula."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@")):
        return f"'{value}"
    return value


def asked(name: str) -> Level:
    """Return a level by its number, by what is edited in it, or out of a file.

    Parameters
    ----------
    name
        "2", "linear_backward", or "week3.py:level": a variable of a program that holds
        a `Level`, or what `plant` returned.

    Returns
    -------
    Level
        What was asked of the students.

    Raises
    ------
    InputError
        If there is none of that name; those that there are, are told. If the file
        fails to run.

    Examples
    --------
    >>> asked("2").edit
    'linear_backward'
    """
    file, _, variable = name.rpartition(":")
    if file.endswith(".py"):
        return _own(file, variable)
    for number, level in enumerate(LEVELS, 1):
        if name in {str(number), level.edit}:
            return level
    names = ", ".join(f"{n} {level.edit}" for n, level in enumerate(LEVELS, 1))
    raise InputError(
        f"there is no level {name!r}; there are {names}; or give one of your own as "
        "FILE.py:NAME"
    )


def _own(file: str, variable: str) -> Level:
    """Return the level that a file calls so."""
    try:
        program = runpy.run_path(file)
    except Exception as error:
        kind = type(error).__name__
        raise InputError(f"{file} does not run: {kind}: {error}") from error
    found = program.get(variable)
    level = found.level if isinstance(found, Planted) else found
    if isinstance(level, Level):
        return level
    there = f"; {variable} is a {type(level).__name__}" if variable in program else ""
    raise InputError(f"there is no level {variable!r} in {file}{there}")


def _main(
    folder: Path,
    *,
    level: Annotated[list[str], typer.Option(help="Number, name, or FILE.py:NAME.")],
    out: Annotated[Path, typer.Option(help="The table to write.")] = Path("marks.csv"),
    seed: Annotated[int, typer.Option(help="Of the hidden inputs.")] = 1000,
    seconds: Annotated[float, typer.Option(help="How long one trial may take.")] = 5.0,
    jobs: Annotated[int, typer.Option(help="Processes at a time.")] = 2,
    by_hand: Annotated[
        bool, typer.Option(help="No points for automatic derivatives.")
    ] = True,
    mend: Annotated[
        bool, typer.Option(help="All or nothing: a mistake was to mend.")
    ] = False,
) -> None:
    """Mark every program and notebook in FOLDER."""
    try:
        refuse_unwritable(out)
        levels = [asked(name) for name in level]
        records = grade_folder(
            folder,
            levels,
            seed=seed,
            seconds=seconds,
            by_hand=by_hand,
            mend=mend,
            jobs=jobs,
            progress=None,
        )
    except InputError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    with out.open("w", encoding="utf-8", newline="") as file:
        write_table(records, file)
    mean = sum(record["score"] for record in records) / len(records)
    typer.echo(f"{len(records)} marks, mean {mean:.1f} of 100: {out}")


if __name__ == "__main__":
    app = typer.Typer(
        add_completion=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.command()(_main)
    app()
