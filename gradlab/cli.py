"""The command line: ``gradlab check FILE.py:NAME`` and ``gradlab lab``.

Exit codes of ``check`` are meant for scripts: 0 the gradient agrees, 1 it disagrees,
2 undecided or an error. An error is one sentence on stderr, never a traceback.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np
import typer

from gradlab.comparison.verdict import Verdict
from gradlab.errors import GradlabError, InputError
from gradlab.presentation.screens import printable, terminal
from gradlab.presentation.text import report_text
from gradlab.presentation.widgets.progress import terminal_bar
from gradlab.targets import (
    load_target,
    refuse_unwritable,
    report_of,
    split_target,
    targets_like,
)

if TYPE_CHECKING:
    from gradlab.report import Report

__all__ = ["main"]

_EXIT_CODES = {Verdict.AGREES: 0, Verdict.DISAGREES: 1, Verdict.UNDECIDED: 2}
_EXIT_ERROR = 2
_METHODS = ("auto", "central", "forward", "backward", "complex-step", "adaptive")
_COVERAGES = ("auto", "full", "sample", "probe")

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line; the entry point ``gradlab``.

    Examples
    --------
    >>> main  # doctest: +ELLIPSIS
    <function main at 0x...>
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a tick should show a question mark, not fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        import gradlab

        typer.echo(f"gradlab {gradlab.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version and stop.",
        ),
    ] = False,
) -> None:
    """Say whether a gradient is right, where it is wrong, and why."""


# ---------------------------------------------------------------------- check


@app.command(
    "check",
    epilog="In model.py: case = (loss, x, w). Then: gradlab check model.py:case "
    "--html report.html",
)
def _check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:NAME",
            help="A gradlab.Report, a dict {'fn': f, 'inputs': (x,), **options}, a "
            "tuple (fn, *inputs), or a function without arguments returning one.",
            autocompletion=targets_like,
        ),
    ],
    html: Annotated[
        pathlib.Path | None, typer.Option(help="Write a self-contained page here.")
    ] = None,
    json_: Annotated[
        pathlib.Path | None,
        typer.Option("--json", help="Write the numbers here; - is standard output."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="central, forward, adaptive, complex-step ...",
            autocompletion=lambda: list(_METHODS),
        ),
    ] = None,
    coverage: Annotated[
        str | None,
        typer.Option(
            help="full, sample, probe or auto.",
            autocompletion=lambda: list(_COVERAGES),
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Evaluations (1000) or seconds (30s).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of random choices.")] = None,
) -> None:
    """Check one gradient. Exit code 0: agrees, 1: disagrees, 2: undecided or error."""
    options: dict[str, Any] = {
        "method": method,
        "coverage": coverage,
        "budget": int(budget) if budget and budget.isdecimal() else budget,
        "seed": seed,
    }
    options = {name: value for name, value in options.items() if value is not None}
    to_stdout = str(json_) == "-"
    with _errors_in_one_sentence():
        _refuse_to_overwrite(target, html, None if to_stdout else json_)
        # What the user's code prints must not end up between the numbers.
        redirect = contextlib.redirect_stdout(sys.stderr)
        with redirect if to_stdout else contextlib.nullcontext():
            value = load_target(target)
            with contextlib.ExitStack() as bars:
                if sys.stderr.isatty():  # a bar in a log or a pipe is noise
                    options["progress"] = bars.enter_context(terminal_bar())
                report = report_of(value, options)
        _hand_out(report, html, json_)
    raise typer.Exit(_EXIT_CODES[report.verdict])


def _refuse_to_overwrite(
    target: str, html: pathlib.Path | None, json_: pathlib.Path | None
) -> None:
    """Refuse files that cannot be written, or that would be written over."""
    checked, _ = split_target(target)
    for path in (html, json_):
        if path is not None:
            refuse_unwritable(path, read=checked)
    if html is not None and json_ is not None and html.resolve() == json_.resolve():
        raise InputError(
            f"--html and --json are both to write {str(html)!r}; name two files"
        )


def _hand_out(
    report: Report, html: pathlib.Path | None, json_: pathlib.Path | None
) -> None:
    """Print the report and write what was asked for."""
    if html is not None:
        report.to_html(html)
        typer.echo(f"page: {html}", err=True)
    if str(json_) != "-":
        width, colour = terminal()
        typer.echo(printable(report_text(report, width=width, colour=colour)))
    if json_ is not None:
        text = json.dumps(_plain(_contents(report)), indent=2, allow_nan=False)
        if str(json_) == "-":
            typer.echo(text)
        else:
            json_.write_text(text + "\n", encoding="utf-8")


@contextlib.contextmanager
def _errors_in_one_sentence() -> Iterator[None]:
    """Turn whatever goes wrong into one line on stderr and exit code 2."""
    try:
        yield
    except KeyboardInterrupt:
        _fail("interrupted before there was anything to report")
    except GradlabError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.strerror}: {error.filename!r}" if error.filename else str(error))
    except BaseException as error:  # noqa: BLE001 - the last resort of a program, which
        # would leave with 1, "disagrees", or with any code that sys.exit was given
        _fail(f"{type(error).__name__}: {error}")


def _fail(message: str) -> NoReturn:
    """Say it in one line, which a terminal does not break inside of words."""
    lines = [f"gradlab: {' '.join(message.split())}"]
    if sys.stderr.isatty():
        from gradlab.presentation.words import wrapped

        width = shutil.get_terminal_size().columns
        lines = wrapped(lines[0], "  ", "", width=width)
    typer.echo("\n".join(lines), err=True)
    raise typer.Exit(_EXIT_ERROR)


def _contents(report: Report) -> dict[str, Any]:
    """Give everything a script may want to know about a report."""
    import gradlab

    return {
        "gradlab": gradlab.__version__,
        "verdict": report.verdict.name,
        "ok": report.ok,
        "culprits": report.culprits,
        "diagnosis": report.diagnosis,
        "findings": [
            {
                "kind": str(finding.kind),
                "severity": finding.severity,
                "where": finding.where,
                "also": finding.also,
                "confidence": finding.confidence,
                "evidence": finding.evidence,
                "doubts": list(map(str, finding.doubts)),
                "advice": finding.advice,
            }
            for finding in report.findings
        ],
        "table": report.table.to_dict("records"),
        "power": report.power,
        "method": report.method,
        "coverage": report.coverage,
        "evaluations": report.evaluations,
        "seconds": report.seconds,
        "seed": report.seed,
        "partial": report.partial,
        "remarks": report.remarks,
    }


def _plain(value: Any) -> Any:
    """Bring a value into JSON: numbers JSON has no word for become strings.

    nan and the infinities are "NaN", "Infinity" and "-Infinity", which is what
    JavaScript's Number() and Python's float() both read; a complex number is
    ``{"real": ..., "imag": ...}``.
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, complex):
        return {"real": _plain(value.real), "imag": _plain(value.imag)}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    return value if isinstance(value, str | int | float | None) else str(value)


# ------------------------------------------------------------------------ lab


@app.command("lab", short_help="Open JupyterLab on copies of the notebooks.")
def _lab(
    folder: Annotated[
        pathlib.Path, typer.Option(help="Where your copies of the notebooks live.")
    ] = pathlib.Path("gradlab-notebooks"),
    copy_only: Annotated[
        bool, typer.Option("--copy-only", help="Do not open JupyterLab.")
    ] = False,
) -> None:
    """Copy the notebooks here (yours are never overwritten) and open JupyterLab."""
    with _errors_in_one_sentence():
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{str(folder)!r} is a file; name a folder for the copies")
        if not copy_only and importlib.util.find_spec("jupyterlab") is None:
            raise InputError(
                "JupyterLab is not installed beside gradlab; "
                "run: python -m pip install jupyterlab"
            )
        copied, kept = _copy_notebooks(_notebooks(), folder)
        typer.echo(f"{folder}: {copied} files copied, {kept} of yours kept.", err=True)
    if copy_only:
        return
    command = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", "bug_hunt.ipynb"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # a container; Jupyter refuses root without it
    _become(command, folder)


def _become(command: list[str], folder: pathlib.Path) -> NoReturn:
    """Run a program in this one's place, so that Ctrl-C and kill reach it."""
    if os.name == "posix":
        os.chdir(folder)
        os.execv(command[0], command)  # noqa: S606 - no shell: our own arguments
    server = subprocess.Popen(command, cwd=folder)  # noqa: S603 - as above
    while True:
        try:
            raise typer.Exit(server.wait())
        except KeyboardInterrupt:  # the server has it too, and asks what is meant
            continue


def _notebooks() -> pathlib.Path:
    """Folder the notebooks come from: the checkout's, else the installed package's."""
    package = pathlib.Path(__file__).resolve().parent
    for candidate in (package.parent / "notebooks", package / "_notebooks"):
        if (candidate / "bug_hunt.ipynb").is_file():
            return candidate
    raise InputError(
        f"this installation of gradlab has no notebooks (looked beside {package}); "
        "install the wheel, or run from a checkout"
    )


def _copy_notebooks(source: pathlib.Path, folder: pathlib.Path) -> tuple[int, int]:
    """Copy what is not there yet; return how many were copied and how many kept."""
    copied = kept = 0
    for file in sorted(source.rglob("*")):
        relative = file.relative_to(source)
        if not file.is_file() or any(
            part.startswith((".", "__")) for part in relative.parts
        ):
            continue  # checkpoints and caches
        target = folder / relative
        if target.exists():
            kept += 1
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            copied += 1
    return copied, kept
