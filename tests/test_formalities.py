"""What holds for every file, so that the suite fails quickly and says where."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import pathlib
import subprocess
import sys

import pytest

import gradlab

pytestmark = pytest.mark.untraced  # of gradlab nothing runs here that does any work

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "gradlab").rglob("*.py"))
PYTHON_FILES = SOURCES + sorted((ROOT / "tests").rglob("*.py"))
NOTEBOOKS = sorted(
    path
    for folder in ("notebooks", "tutorials")
    for path in (ROOT / folder).rglob("*.ipynb")
    if ".ipynb_checkpoints" not in path.parts and "_build" not in path.parts
)
# What a plain `import gradlab` must leave alone: each costs more than gradlab does.
HEAVY = ("torch", "pandas", "matplotlib", "ipywidgets", "anywidget", "IPython")
MAX_LINES = 400  # type in one file, variants in siblings: no file eats its neighbours
TORCH_FILES = (
    "auditing.py",
    "compat/torch.py",
    "compat/torch_*.py",
    "differentiation/analytic/second_order.py",
    "localisation/layers/*.py",
    "localisation/layers/*/*.py",
    "subject/guarding/torch_state.py",
    "subject/state_guard.py",
    "subject/tensors/*.py",
    "subject/tensors/*/*.py",
)
MAX_BODY = 60  # lines of one function, its docstring left out
IMPORT_RATIO = 1.5


def _name(path):
    return str(path.relative_to(ROOT))


@functools.cache
def _tree(path):
    """Return the syntax of a file, which several rules look at and none changes."""
    return ast.parse(path.read_text(encoding="utf-8"))


def _module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _exported(tree):
    """Names written out in a module's ``__all__``, or None where there is none."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if isinstance(node, ast.AnnAssign):
            targets = (node.target,)
        if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
            return [e.value for e in node.value.elts if isinstance(e, ast.Constant)]
    return None


# Where functions live that a user calls: gradlab's own names, and these modules.
USED_AS_MODULES = ("testing", "compat.torch", "compat.chainer", "compat.cs231n")


def _public_functions():
    """Names of all functions that a user calls."""
    own = [n for n in gradlab.__all__ if not inspect.ismodule(getattr(gradlab, n))]
    names = [f"gradlab.{name}" for name in own]
    for module in USED_AS_MODULES:
        path = ROOT / "gradlab" / f"{module.replace('.', '/')}.py"
        if path.exists():
            exported = _exported(_tree(path)) or []
            names += [f"gradlab.{module}.{name}" for name in exported]
    return [name for name in names if name.rpartition(".")[2].islower()]


_WORK = """
import os, sys
count = 0
def look(frame, event, argument):
    global count
    count += 1
sys.setprofile(look)
{statement}
sys.setprofile(None)
files = [getattr(module, "__cached__", None) for module in sys.modules.values()]
size = sum(os.path.getsize(name) for name in files if name and os.path.exists(name))
print(count, len(sys.modules), size)
"""


def _printed(code):
    """What a fresh interpreter prints."""
    run = [sys.executable, "-c", code]
    return subprocess.run(run, capture_output=True, check=True, text=True).stdout


def _work(statement):
    """What a fresh interpreter does for one import, told without a clock.

    Calls that it makes, modules that it loads, and the size of their bytecode.
    """
    _printed(_WORK.format(statement=statement))  # now all is compiled
    return [int(n) for n in _printed(_WORK.format(statement=statement)).split()]


def test_import_loads_nothing_heavy():
    """A plain import leaves torch, pandas and everything that draws unloaded."""
    code = f"import sys, gradlab; print([m for m in {HEAVY!r} if m in sys.modules])"

    assert _printed(code).strip() == "[]"


def test_check_of_what_is_right_loads_no_more_than_it_asks():
    """A right gradient in NumPy waits for no detector, search, ladder or layer.

    Nor for a second opinion or excuses, which it needs none of.
    """
    unasked = (
        "diagnosis.detectors",
        "differentiation.ladder.climb",
        "localisation.layers",
        "localisation.searching",
        "pipeline.around.excuses",
        "pipeline.around.joint_kinks",
        "pipeline.large",
        "pipeline.looks.second_opinion",
        "subject.tensors.subjects",
    )
    code = (
        "import sys, numpy as np, gradlab as gl\n"
        "x = np.linspace(0.5, 1, 5)\n"
        "report = gl.check(np.sin, x, jac=lambda x: np.diag(np.cos(x)))\n"
        "assert report.verdict == gl.Verdict.AGREES\n"
        f"print([m for m in {unasked!r} if f'gradlab.{{m}}' in sys.modules])\n"
        "print('numpy.ma' in sys.modules)"
    )

    assert _printed(code).split("\n")[:2] == ["[]", "False"]


def test_import_costs_about_as_much_as_numpy():
    """Importing gradlab is at most half as much work again as importing numpy alone.

    In counts, which no busy machine changes; `make bench` has the seconds.
    """
    alone, ours = _work("import numpy"), _work("import gradlab")

    for theirs, own in zip(alone, ours, strict=True):
        assert 0 < own <= IMPORT_RATIO * theirs


def _nonempty(found):
    """What was found, by the file it was found in; files without any are left out."""
    return {_name(path): each for path, each in found.items() if each}


def test_there_are_files_to_look_at():
    """All rules below hold for hundreds of files."""
    assert len(SOURCES) > 200
    assert len(TESTS) > 100


def test_file_holds_one_idea():
    """No file has more than 400 lines."""
    lines = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in PYTHON_FILES}

    assert {_name(p): count for p, count in lines.items() if count > MAX_LINES} == {}


def _long_functions(tree):
    too_long = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            if lines > MAX_BODY:
                too_long[node.name] = lines
    return too_long


def test_functions_fit_on_a_screen():
    """No function has more than 60 lines below its docstring."""
    assert _nonempty({path: _long_functions(_tree(path)) for path in SOURCES}) == {}


def test_module_says_what_it_is():
    """Every module has a docstring."""
    assert [_name(p) for p in SOURCES if not ast.get_docstring(_tree(p))] == []


def test_module_says_what_it_offers():
    """Every module with code has an __all__; a docstring-only __init__ offers none."""
    silent = [path for path in SOURCES if _exported(_tree(path)) is None]

    assert [_name(path) for path in silent if len(_tree(path).body) > 1] == []


def _exists(at, name):
    return hasattr(importlib.import_module(at), name)


def test_exported_names_exist():
    """Whatever __all__ promises can be imported."""
    offers = [(_module_name(p), n) for p in SOURCES for n in _exported(_tree(p)) or ()]

    assert [(at, name) for at, name in offers if not _exists(at, name)] == []


def _asked_for(tree):
    """Pairs of a module and a name that a file takes from it."""
    nodes, taken = list(ast.walk(tree)), {}
    for node in nodes:
        names = node.names if isinstance(node, ast.ImportFrom) else ()
        taken |= {n.asname or n.name: (str(node.module), n.name) for n in names}
    members = [node for node in nodes if isinstance(node, ast.Attribute)]
    known = [(node, taken.get(getattr(node.value, "id", None))) for node in members]
    return {*taken.values(), *((".".join(at), node.attr) for node, at in known if at)}


def test_what_a_file_offers_is_asked_for():
    """A function in __all__ that no other file takes is the file's own."""
    asked = set().union(*(_asked_for(_tree(path)) for path in PYTHON_FILES))
    lessons = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS)
    for path in set(SOURCES) - {ROOT / "gradlab/pytest_plugin.py"}:  # of pytest
        offered = set(_exported(_tree(path)) or ())
        own = {n.name for n in _tree(path).body if isinstance(n, ast.FunctionDef)}
        idle = [n for n in offered & own if (_module_name(path), n) not in asked]
        assert [n for n in idle if n not in lessons] == [], _name(path)


def test_what_is_asked_of_a_file_is_offered():
    """What one file of gradlab takes from another, types apart, is in its __all__."""
    asked = set().union(*(_asked_for(_tree(path)) for path in SOURCES))
    offers = {_module_name(path): _exported(_tree(path)) for path in SOURCES}
    taken = [(at, n) for at, n in asked if n not in (offers.get(at) or (n,))]

    assert [(at, name) for at, name in taken if _exists(at, name)] == []


def test_public_names_are_sorted():
    """The list of public names is in ruff's order and without repetition."""

    def in_order(name):  # constants, classes, the rest: what RUF022 sorts by
        return (not name.isupper(), not name[0].isupper(), name)

    assert list(gradlab.__all__) == sorted(set(gradlab.__all__), key=in_order)


def test_dir_shows_the_lazy_names():
    """Completion in a notebook offers every public name before it is loaded."""
    assert set(gradlab.__all__) <= set(dir(gradlab))


@pytest.mark.parametrize("name", sorted(gradlab.__all__))
def test_public_name_is_documented(name):
    """Every public name can be imported, and what is behind it says what it is."""
    value = getattr(gradlab, name)

    if callable(value) or inspect.ismodule(value):
        assert inspect.getdoc(value)


def test_no_module_hides_a_public_name():
    """Importing ``gradlab.check`` the module leaves ``gl.check`` the function.

    The import system binds each submodule to its name in the package; where a module
    and a public name share one, whoever came last would win.
    """
    code = (
        "import importlib, pkgutil, types, gradlab\n"
        "for module in pkgutil.iter_modules(gradlab.__path__):\n"
        "    if module.name in gradlab.__all__:\n"
        "        importlib.import_module(f'gradlab.{module.name}')\n"
        "print([n for n in gradlab.__all__ if n not in ('compat', 'testing')\n"
        "       and isinstance(getattr(gradlab, n), types.ModuleType)])"
    )

    assert _printed(code).strip() == "[]"


def test_unknown_name_is_an_attribute_error():
    """A misspelt name fails like any other, and the message repeats it."""
    with pytest.raises(AttributeError, match="chekc"):
        _ = gradlab.chekc


@pytest.mark.parametrize("name", _public_functions())
def test_public_function_shows_an_example(name):
    """What a user calls has an Examples section, and pytest runs it as a doctest."""
    value = gradlab
    if name.startswith(tuple(f"gradlab.{module}." for module in USED_AS_MODULES)):
        value = importlib.import_module(name.rpartition(".")[0])
    value = getattr(value, name.rpartition(".")[2])
    doc = inspect.getdoc(value) or ""

    assert "Examples\n--------" in doc
    assert ">>> " in doc


def _imported(tree):
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    return imported


def test_no_pyplot():
    """Nothing in the package imports pyplot: its figures are global state."""
    found = [(_name(path), n) for path in SOURCES for n in _imported(_tree(path))]

    assert [each for each in found if "pyplot" in each[1] or "pylab" in each[1]] == []


def _imports_torch(nodes):
    imports = [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
    names = [getattr(n, "module", None) or n.names[0].name for n in imports]
    return any(name.partition(".")[0] == "torch" for name in names)


def _is_for_type_checkers(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _body(path):
    return [node for node in _tree(path).body if not _is_for_type_checkers(node)]


def test_torch_is_imported_late():
    """No import of gradlab needs torch."""
    assert [_name(path) for path in SOURCES if _imports_torch(_body(path))] == []


def test_torch_is_imported_in_few_files():
    """Files that use torch say so by their name."""
    named = {path for kind in TORCH_FILES for path in (ROOT / "gradlab").glob(kind)}
    others = [path for path in SOURCES if path not in named]
    nodes = {p: [n for each in _body(p) for n in ast.walk(each)] for p in others}

    assert [_name(path) for path in others if _imports_torch(nodes[path])] == []


TESTS = sorted((ROOT / "tests").rglob("test_*.py"))
CLOCKS = {"perf_counter", "perf_counter_ns", "process_time", "thread_time", "time"}


def _looking_at_a_clock(tree):
    looking = []
    for node in tree.body:
        named = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
        looks = [
            each.attr
            for each in named
            if each.attr == "wait_for_timeout"
            or (ast.unparse(each.value) == "time" and each.attr in CLOCKS)
        ]
        arguments = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
        if looks and not arguments & {"clock", "monkeypatch"}:
            looking.append(ast.unparse(node).partition("\n")[0])
    return looking


def test_no_test_depends_on_a_clock():
    """Who looks at a clock has set it: a busy machine must not fail anybody's landing.

    `time.monotonic` is for waiting, which ends when something happens. In a browser a
    pause of so many milliseconds waits for nothing: see `driver.settle`.
    """
    others = [path for path in TESTS if path.parent.name != "benchmarks"]

    assert _nonempty({path: _looking_at_a_clock(_tree(path)) for path in others}) == {}


@pytest.mark.skipif(not NOTEBOOKS, reason="no notebook in this checkout")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=_name)
def test_notebook_is_kept_without_outputs(path):
    """Outputs are made by running, not kept in git."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]

    assert code, "a notebook without code"
    assert not [cell["source"] for cell in code if cell["outputs"]]
    assert {cell["execution_count"] for cell in code} == {None}
