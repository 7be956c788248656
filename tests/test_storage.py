"""A report on disk is the report."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

import gradlab as gl
from gradlab.errors import InputError
from tests.specimens.course import TwoLayerNet, data


@pytest.fixture
def report():
    """The bug hunt's."""
    net, (inputs, labels) = TwoLayerNet(), data()
    return gl.check(lambda: net.loss(inputs, labels), params=net.params)


def test_round_trip(report, tmp_path):
    """Verdicts, findings, text and every number come back."""
    report.save(tmp_path / "report.npz")
    loaded = gl.load(tmp_path / "report.npz")

    assert str(loaded) == str(report)
    assert loaded.findings == report.findings
    assert loaded.culprits == report.culprits
    assert loaded.table.equals(report.table)
    for ours, theirs in zip(report.comparisons, loaded.comparisons, strict=True):
        assert np.array_equal(ours.analytic, theirs.analytic)
        assert np.array_equal(ours.numeric_error, theirs.numeric_error)
        assert np.array_equal(ours.verdicts, theirs.verdicts)


def test_layers_round_trip(tmp_path):
    """The audit of a module comes back with its rows."""
    torch = pytest.importorskip("torch")

    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, upstream):
            return 1.5 * upstream

    class Layer(torch.nn.Module):
        def forward(self, x):
            return Bad.apply(x)

    net = torch.nn.Sequential(torch.nn.Linear(3, 3), Layer(), torch.nn.Linear(3, 2))
    x = torch.randn(4, 3, dtype=torch.float64)
    report = gl.check(net.double(), x, loss=lambda out: (out**2).mean())
    report.save(tmp_path / "report.npz")

    loaded = gl.load(tmp_path / "report.npz")

    assert report.layers is not None
    assert loaded.layers is not None
    assert [r.name for r in loaded.layers.rows] == [r.name for r in report.layers.rows]
    assert loaded.culprits[0] == "1"


def test_no_pickle(report, tmp_path):
    """The file holds plain arrays only."""
    report.save(tmp_path / "report.npz")
    with zipfile.ZipFile(tmp_path / "report.npz") as file:
        assert all(name.endswith(".npy") for name in file.namelist())
    with np.load(tmp_path / "report.npz", allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04"])
def test_other_files_are_refused(content, tmp_path):
    """A file that is no report says so."""
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a report saved by gradlab"):
        gl.load(path)


@pytest.mark.parametrize("text", ["[1]", "{}", '{"format": 1}', '{"format": 99}'])
def test_damaged_reports_are_refused(text, tmp_path):
    """An archive that lacks something is no report; that of another version says so."""
    path = tmp_path / "damaged.npz"
    content = np.frombuffer(text.encode(), dtype=np.uint8)
    np.savez(path, **{"report.json": content})
    words = "format 99, this gradlab reads 1" if "99" in text else "is not a report"
    with pytest.raises(InputError, match=words):
        gl.load(path)


def test_missing_file(tmp_path):
    """A file that is not there is the usual error."""
    with pytest.raises(FileNotFoundError):
        gl.load(tmp_path / "nowhere.npz")


def test_a_loaded_report_has_no_subject(report, tmp_path):
    """What needs the function is refused with a sentence."""
    report.save(tmp_path / "report.npz")
    loaded = gl.load(tmp_path / "report.npz")
    assert loaded.live is None
    with pytest.raises(gl.GradlabError):
        loaded.sweep()
