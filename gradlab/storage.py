"""Reports on disk: one ``.npz`` of plain arrays and one JSON text, no pickle."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.comparison.comparison import Comparison
from gradlab.comparison.tally import Tally
from gradlab.diagnosis.finding import BugKind, Finding
from gradlab.errors import InputError
from gradlab.report import Report
from gradlab.subject.subject import Variable

if TYPE_CHECKING:
    from os import PathLike

    from gradlab.localisation.layers.audited import LayerAudit

__all__ = ["load", "save"]

_FORMAT = 1
_MATRICES = ("analytic", "numeric", "numeric_error", "allowed", "verdicts", "step")
_OPTIONAL = ("columns", "accepted")
_TILES = (
    "rows", "columns", "analytic", "numeric", "numeric_error", "allowed", "verdicts",
)  # fmt: skip
_TALLIED = (
    "shape", "looked", "counts", "max_abs_error", "max_rel_error", "finite_power",
)  # fmt: skip
_WORDS = ("method", "coverage", "escalated", "stated_power")
_PLAIN = (
    "subject", "analytic", "culprits", "method", "coverage", "evaluations", "seconds",
    "seed", "remarks", "partial", "epsilon",
)  # fmt: skip


def save(report: Report, path: str | PathLike[str]) -> None:
    """Write a report to `path`, everything but the live subject.

    Parameters
    ----------
    path
        Name of the file; written as it is, without adding a suffix.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> report.save(tmp_path / "report.npz")
    >>> gl.load(tmp_path / "report.npz").verdict.name
    'AGREES'
    """
    arrays: dict[str, Any] = {}
    blocks = []
    for i, comparison in enumerate(report.comparisons):
        for name in (*_MATRICES, *_OPTIONAL):
            value = getattr(comparison, name)
            if value is not None:
                arrays[f"{i}.{name}"] = value
        for side in ("output", "input"):
            support = getattr(comparison, side).support
            if support is not None:
                arrays[f"{i}.{side}.support"] = support
        if comparison.tally is not None:
            for name in _TILES:
                arrays[f"{i}.tally.{name}"] = getattr(comparison.tally, name)
        blocks.append(
            {
                "tally": _tally_to_json(comparison.tally),
                "output": _variable(comparison.output),
                "input": _variable(comparison.input),
                **{name: getattr(comparison, name) for name in _WORDS},
            }
        )
    text = {
        "format": _FORMAT,
        "blocks": blocks,
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
        "layers": _audit_to_json(report.layers),
        **{name: getattr(report, name) for name in _PLAIN},
    }
    arrays["report.json"] = np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)
    with Path(path).open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def load(path: str | PathLike[str]) -> Report:
    """Read a report that `Report.save` wrote.

    Parameters
    ----------
    path
        Name of the file.

    Returns
    -------
    Report
        Everything but the live subject: it can be shown, plotted and explored, but
        not swept.

    Raises
    ------
    InputError
        If the file is not one; nothing in it is ever executed.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> report = gl.check(lambda x: (x**2).sum(), np.ones(2), grad=lambda x: 2 * x)
    >>> report.save(tmp_path / "report.npz")
    >>> gl.load(tmp_path / "report.npz")["x"].analytic
    array([[2., 2.]])
    """
    named: Any = path
    if not isinstance(named, str | os.PathLike):
        msg = f"path must be the name of a file, got {type(path).__name__} {path!r}"
        raise InputError(msg)
    try:
        return _read(Path(path))
    except (FileNotFoundError, PermissionError, InputError):
        raise
    except Exception as cause:
        # what NumPy says of other files is about pickles, of which there are none here
        msg = (
            f"{path} is not a report saved by gradlab; pass a file that "
            f"Report.save has written"
        )
        raise InputError(msg) from cause


def _read(path: Path) -> Report:
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    text = json.loads(arrays["report.json"].tobytes())
    if text["format"] != _FORMAT:
        msg = (
            f"{path} has format {text['format']!r}, this gradlab reads {_FORMAT}; "
            f"install the version that wrote it"
        )
        raise InputError(msg)
    comparisons = tuple(
        _comparison(block, f"{i}.", arrays) for i, block in enumerate(text["blocks"])
    )
    plain = _frozen({name: text[name] for name in _PLAIN})
    return Report(
        comparisons=comparisons,
        findings=_findings(text["findings"]),
        layers=_audit_from_json(text["layers"]),
        **plain,
    )


def _comparison(
    block: dict[str, Any], prefix: str, arrays: dict[str, Any]
) -> Comparison:
    parts: dict[str, Any] = {name: arrays[prefix + name] for name in _MATRICES}
    parts |= {name: arrays.get(prefix + name) for name in _OPTIONAL}
    parts |= {name: block[name] for name in _WORDS}
    if block["tally"] is not None:
        tiles = {name: arrays[f"{prefix}tally.{name}"] for name in _TILES}
        parts["tally"] = Tally(**_frozen(block["tally"]), **tiles)
    for side in ("output", "input"):
        record, support = block[side], arrays.get(f"{prefix}{side}.support")
        shape = tuple(record["shape"])
        parts[side] = Variable(record["name"], shape, record["dtype"], support)
    return Comparison(**parts)


def _tally_to_json(tally: Tally | None) -> dict[str, Any] | None:
    if tally is None:
        return None
    return {name: getattr(tally, name) for name in _TALLIED}


def _findings(records: list[dict[str, Any]]) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            **_frozen(
                {
                    **record,
                    "kind": BugKind(record["kind"]),
                    "doubts": [BugKind(kind) for kind in record["doubts"]],
                }
            )
        )
        for record in records
    )


def _variable(variable: Variable) -> dict[str, Any]:
    return {"name": variable.name, "shape": variable.shape, "dtype": variable.dtype}


def _audit_to_json(audit: LayerAudit | None) -> dict[str, Any] | None:
    if audit is None:
        return None
    return dataclasses.asdict(dataclasses.replace(audit, live=None))


def _audit_from_json(record: dict[str, Any] | None) -> LayerAudit | None:
    if record is None:
        return None
    from gradlab.localisation.layers.audited import (
        LayerAudit,
        LayerRow,
        LayerState,
    )

    rows = tuple(
        LayerRow(**_frozen({**row, "state": LayerState(row["state"])}))
        for row in record["rows"]
    )
    rest = _frozen(record)
    rest |= {"rows": rows, "findings": _findings(record["findings"])}
    return LayerAudit(**rest)


def _frozen(record: dict[str, Any]) -> dict[str, Any]:
    """Turn the lists that JSON makes of tuples back into tuples."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in record.items()
    }
