"""What command lines share: the meaning of ``FILE.py:NAME``, and files to write.

What ``gradlab check`` takes under `NAME`, in order of how much it leaves to the command
line:

- a mapping with the arguments of `gradlab.check`:
  ``{"fn": loss, "inputs": (x, w), "jac": jac}``; every other key is an option;
- a tuple or list ``(fn, *inputs)``, when there are no options;
- a function that needs no arguments and returns one of these, or a `gradlab.Report`;
- a `gradlab.Report`, already made when the file was run.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib.util
import inspect
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gradlab.errors import GradlabError, InputError, SubjectError
from gradlab.labels import with_article
from gradlab.subject.callables import given_to, needed_arguments

if TYPE_CHECKING:
    import types

    from gradlab.report import Report

__all__ = [
    "load_target",
    "refuse_unwritable",
    "report_of",
    "split_target",
    "targets_like",
]

_FORMS = (
    "a gradlab.Report, a dict like {'fn': f, 'inputs': (x,)}, a tuple (fn, *inputs), "
    "or a function without arguments that returns one of them"
)


def load_target(target: str) -> Any:
    """Run a file and take one name out of it.

    Parameters
    ----------
    target
        ``FILE.py:NAME``; a dotted `NAME` reads attributes ("case.report"). As with
        ``python FILE.py``, the file's folder comes first on ``sys.path``; its
        ``if __name__ == "__main__":`` part does not run.

    Raises
    ------
    InputError
        If there is no such file or name.
    SubjectError
        If the file fails to run.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "case_in_a_docstring.py")
    ...     _ = file.write_text("case = {'fn': abs, 'inputs': (2.0,)}")
    ...     load_target(f"{file}:case")
    {'fn': <built-in function abs>, 'inputs': (2.0,)}
    """
    path, name = split_target(target)
    module = _run(path)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            offers = _offers(module, part if value is module else "")
            raise InputError(f"{path} has no {name!r}; {offers}")
        value = getattr(value, part)
    return value


def split_target(target: str) -> tuple[pathlib.Path, str]:
    """Split ``FILE.py:NAME`` into a file that is there and a name; nothing is run.

    Parameters
    ----------
    target
        As typed on a command line.

    Raises
    ------
    InputError
        If one of the two is missing, or there is no such file.

    Examples
    --------
    >>> _ = (tmp_path / "model.py").write_text("case = (abs, 1)")
    >>> path, name = split_target(f"{tmp_path}/model.py:case")
    >>> path.name, name
    ('model.py', 'case')
    """
    # From the right: on Windows the path itself may hold a colon.
    file, separator, name = target.rpartition(":")
    if not (separator and file and name) or pathlib.Path(target).exists():
        whole = target.rstrip(":")
        shown = whole if whole.endswith(".py") else "model.py"
        raise InputError(
            f"say which file and name to check, as in {shown}:case; got {target!r}"
        )
    path = pathlib.Path(file)
    if not path.is_file():
        meant = f"{file}.py" if pathlib.Path(f"{file}.py").is_file() else ""
        hint = f"; did you mean {meant}:{name}?" if meant else ""
        raise InputError(f"there is no file {file!r} (from {pathlib.Path.cwd()}){hint}")
    return path, name


def _run(path: pathlib.Path) -> types.ModuleType:
    """Import a file under its own name, its folder first on the path."""
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError(f"{path} is no Python file: its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickling (process pools) look a module up by name; a module that
    # is loaded already keeps its place, so that `numpy.py` breaks nothing but itself.
    sys.modules.setdefault(name, module)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        told = _described(error, str(path.resolve()))
        raise SubjectError(f"{path} failed to run: {told}") from error
    return module


def report_of(value: Any, options: Mapping[str, Any]) -> Report:
    """Turn what stands behind a name into a report, checking if need be.

    Parameters
    ----------
    value
        One of the forms above.
    options
        Options of `gradlab.check` that override those of `value`.

    Raises
    ------
    InputError
        If `value` has none of the forms, or is a finished report and `options` would
        have no effect on it.
    SubjectError
        If the function behind `value` fails, or ends the program (``sys.exit``).

    Examples
    --------
    >>> case = {
    ...     "fn": np.sin,
    ...     "inputs": (np.ones(2),),
    ...     "jac": lambda x: np.diag(np.cos(x)),
    ... }
    >>> report_of(case, {"seed": 1}).verdict
    <Verdict.AGREES: 0>
    """
    from gradlab.checks import check
    from gradlab.report import Report

    told = ""
    if callable(value) and not isinstance(value, Report):
        told, value = _called(value)
    if isinstance(value, Report):
        given = [name for name in options if name != "progress"]
        if given:
            raise InputError(
                f"the target is a finished report, so {', '.join(given)} would change "
                "nothing; return the arguments of gradlab.check instead"
            )
        return value
    fn, inputs, own = _arguments(value, told or "the target is")
    known = list(inspect.signature(check).parameters)
    for name in own:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(
                f"the target has an option {name!r}, which gl.check has not; {meant}"
                f"it takes {', '.join(known)}"
            )
    try:
        return check(fn, *inputs, **{**own, **options})
    except SystemExit as error:  # would end the command line with a code of its own
        told = _described(error, _file_of(fn))
        raise SubjectError(
            f"the function, or its gradient, left the program instead of returning: "
            f"{told}"
        ) from error


def refuse_unwritable(path: pathlib.Path, read: pathlib.Path | None = None) -> None:
    """Refuse early: long work whose result cannot be written was for nothing.

    Parameters
    ----------
    path
        The file to write.
    read
        A file that is read for it, which must not be written over.

    Raises
    ------
    InputError
        If `path` is a folder, in a folder that is not there, or the file `read`.
    """
    if path.is_dir():
        raise InputError(f"{str(path)!r} is a folder; name the file to write")
    if not path.absolute().parent.is_dir():
        raise InputError(f"there is no folder {str(path.parent)!r} to write into")
    if read is not None and path.exists() and path.samefile(read):
        raise InputError(
            f"{str(path)!r} is the file that is read; name another one to write"
        )


def _called(function: Callable[..., Any]) -> tuple[str, Any]:
    """Return what a function without arguments returns, and how an error begins."""
    needed = needed_arguments(function)
    name = getattr(function, "__name__", type(function).__name__)
    if needed:
        raise InputError(
            f"{name}({', '.join(needed)}) needs arguments, and the command line has "
            f"none to give; put them into the file, "
            f"case = ({given_to(function, name)}), and check case"
        )
    try:
        return f"{name}() returned", function()
    except GradlabError:
        raise
    except (Exception, SystemExit) as error:
        told = _described(error, _file_of(function))
        raise SubjectError(f"{name}() failed: {told}") from error


def _file_of(function: Callable[..., Any]) -> str:
    """Return the file that a function was written in, "" if it has none."""
    code = getattr(function, "__code__", None)
    return str(getattr(code, "co_filename", ""))


def _arguments(
    value: Any, told: str
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Split a specification into function, inputs and options."""
    if isinstance(value, Mapping | tuple | list) and not value:
        raise InputError(
            f"{told} an empty {type(value).__name__}, and should be {_FORMS}"
        )
    if isinstance(value, Mapping):
        own = dict(value)
        if "fn" not in own:
            keys = ", ".join(map(repr, own))
            raise InputError(f"the target has {keys} and no 'fn'; name {_FORMS}")
        fn = own.pop("fn")
        inputs = own.pop("inputs", ())
        if not isinstance(inputs, tuple | list):
            raise InputError(
                "'inputs' should be a tuple with one entry per input, "
                f"as in (x,), got {type(inputs).__name__}"
            )
    elif isinstance(value, tuple | list):
        fn, *inputs = value
        own = {}
    else:
        kind = with_article(type(value).__name__)
        raise InputError(f"{told} {kind}, and should be {_FORMS}")
    if not callable(fn):
        raise InputError(
            f"'fn' should be the function to check, got {type(fn).__name__}; "
            f"name {_FORMS}"
        )
    return fn, tuple(inputs), own


def _offers(module: types.ModuleType, typed: str) -> str:
    """Names in a module that could be meant: of its own those that can be checked."""
    names = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and _is_form(value, module.__name__)
    }
    if not names:
        return _nearly(module, typed)
    near = difflib.get_close_matches(typed, names, 1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}it has {', '.join(sorted(names))}"


def _nearly(module: types.ModuleType, typed: str) -> str:
    """Say what to write where nothing can be checked as it is."""
    functions = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }
    if not functions:
        return f"nothing in it can be checked; name {_FORMS}"
    near = [*difflib.get_close_matches(typed, functions, 1, 0.3), *functions]
    case = f"case = ({given_to(functions[near[0]], near[0])})"
    return f"nothing in it can be checked as it is: write {case} and check case"


def _is_form(value: Any, module: str) -> bool:
    """Whether a value has one of the forms that can be checked; nothing is called."""
    from gradlab.report import Report

    if isinstance(value, Report):
        return True
    if isinstance(value, Mapping):
        return callable(value.get("fn"))
    if isinstance(value, tuple | list):
        return bool(value) and callable(value[0])
    own = getattr(value, "__module__", module) == module  # not what it imported
    return inspect.isfunction(value) and own and not needed_arguments(value)


def _described(error: BaseException, file: str) -> str:
    """Describe an exception in one line, with the line of the user's file it left."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{type(error).__name__}: {error.msg} (line {error.lineno})"
    text = " ".join(str(error).split())
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == file:
            line = traceback.tb_lineno  # the deepest that is the user's own
        traceback = traceback.tb_next
    where = "" if line is None else f" (line {line})"
    kind = type(error).__name__
    return f"{kind}: {text}{where}" if text else f"{kind}{where}"


def targets_like(incomplete: str) -> list[str]:
    """List what may follow on a command line: files, and the names that one defines.

    A shell asks at every press of Tab, so files are read and not run.

    Parameters
    ----------
    incomplete
        What has been typed of ``FILE.py:NAME``.

    Examples
    --------
    >>> _ = (tmp_path / "model.py").write_text("case = (abs, 1)")
    >>> [found] = targets_like(f"{tmp_path}/mod")
    >>> found.endswith("model.py:")
    True
    >>> [found] = targets_like(f"{tmp_path}/model.py:")
    >>> found.endswith("model.py:case")
    True
    """
    file, colon, name = incomplete.rpartition(":")
    if colon and file.endswith(".py"):
        return [f"{file}:{each}" for each in _defined(file) if each.startswith(name)]
    folder, slash, start = incomplete.rpartition("/")
    near: list[pathlib.Path] = []
    with contextlib.suppress(OSError):
        inside = sorted(pathlib.Path(folder + slash or ".").iterdir())
        near = [p for p in inside if p.name.startswith(start) and p.name[0] not in "._"]
    ends = {path: "/" if path.is_dir() else ":" for path in near}
    return [
        f"{folder}{slash}{path.name}{end}"
        for path, end in ends.items()
        if end == "/" or path.suffix == ".py"
    ]


def _defined(file: str) -> list[str]:
    """Names that a program gives at its outermost level, those of its own left out."""
    try:
        body = ast.parse(pathlib.Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    names: list[str] = []
    for line in body:
        if isinstance(line, ast.FunctionDef):
            names.append(line.name)
        elif isinstance(line, ast.Assign | ast.AnnAssign):
            targets = line.targets if isinstance(line, ast.Assign) else [line.target]
            names += [each.id for each in targets if isinstance(each, ast.Name)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]
