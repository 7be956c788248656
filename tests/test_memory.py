"""Jacobians that do not fit: every entry judged, little kept, memory bounded."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.comparison.tally import Tallying
from gradlab.differentiation.metering.budget import parse_memory
from gradlab.differentiation.metering.meter import Meter
from gradlab.errors import InputError
from gradlab.presentation.pictures import picture


def dense(n, slip=0.0, at=(0, 0)):
    """Build a dense function without a matrix of its own, its vjp, and a point."""
    rng = np.random.default_rng(0)
    kernel = np.fft.rfft(rng.normal(size=n) / np.sqrt(n))

    def f(x):
        return np.fft.irfft(np.fft.rfft(np.tanh(x)) * kernel, n)

    def vjp(cotangent, x):
        back = np.fft.irfft(np.fft.rfft(cotangent) * kernel.conj(), n)
        back = back * (1 - np.tanh(x) ** 2)
        back[at[1]] += slip * cotangent[at[0]]
        return (back,)

    return f, vjp, rng.uniform(0.2, 1.5, n)


def test_streamed_check_says_what_a_whole_one_says():
    """Counts, extremes and power are the same, and so is the worst entry."""
    f, vjp, x = dense(300, slip=1e-2, at=(123, 45))
    whole = gl.check(f, x, vjp=vjp, coverage="full")["x"]
    streamed = gl.check(f, x, vjp=vjp, coverage="full", memory="2MiB")["x"]
    assert whole.tally is None
    assert streamed.tally is not None
    assert streamed.counts == whole.counts == (300 * 300 - 1, 0, 1)
    for name in ("verdict", "max_abs_error", "max_rel_error", "power"):
        assert getattr(streamed, name) == pytest.approx(getattr(whole, name)), name
    assert streamed.shape[1] < 100
    assert streamed.worst(1).label[0] == whole.worst(1).label[0] == "out[123] / x[45]"
    kept = streamed.columns
    assert np.allclose(streamed.numeric, whole.numeric[:, kept], rtol=1e-9, atol=1e-9)


@pytest.mark.untraced
def test_single_wrong_entry_is_found_within_bounded_memory():
    """One entry of a million is wrong by a thousandth; whole, they take 180 MB."""
    n = 1000
    f, vjp, x = dense(n, slip=1e-3, at=(777, 555))
    gl.check(*dense(16)[::2], vjp=dense(16)[1])  # what is imported is no matrix
    tracemalloc.start()
    report = gl.check(f, x, vjp=vjp, coverage="full", memory="64MiB")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20
    assert report.verdict.name == "DISAGREES"
    assert report["x"].counts == (n * n - 1, 0, 1)
    assert report["x"].worst(1).label[0] == "out[777] / x[555]"
    assert report.coverage == "full"
    assert any("streamed within 64 MiB: 1,000" in remark for remark in report.remarks)


@pytest.mark.untraced
def test_short_numbers_stay_within_the_bound_as_well():
    """Beside the user's gradients there are those in float64: of 64 MiB, 48 will do."""
    torch = pytest.importorskip("torch")
    from tests.allocations import Allocations

    n = 1000

    def f(x):
        kernel = torch.cos(torch.arange(x.numel(), dtype=x.dtype) ** 2) / n**0.5
        return torch.fft.irfft(torch.fft.rfft(torch.tanh(x)) * torch.fft.rfft(kernel))

    with Allocations():  # for what is imported on the way
        gl.check(f, torch.full((8,), 0.5, requires_grad=True))
    x = torch.linspace(0.2, 1.5, n).requires_grad_()
    with Allocations() as counted:
        report = gl.check(f, x, coverage="full", memory="64MiB")

    assert report.verdict.name == "AGREES"
    assert any("streamed within 64 MiB" in remark for remark in report.remarks)
    assert counted.peak < 48 * 2**20


def test_batches_of_cotangents_are_a_small_part_of_the_bound(monkeypatch):
    """Of 8 MiB half of one; they took 16, whatever the bound was."""
    from gradlab.pipeline.sides.analytic_side import analytic_side

    f, vjp, x = dense(600)
    subject = build_subject(f, (x,), Sides(vjp=vjp))
    subject.row()
    sizes, pull = [], type(subject.analytic).pull

    def counted(self, cotangents):
        sizes.append(cotangents.nbytes)
        return pull(self, cotangents)

    monkeypatch.setattr(type(subject.analytic), "pull", counted)
    some = [np.arange(5)]
    bounded = analytic_side(subject, some, Meter(memory=2**23))
    free = analytic_side(subject, some)

    assert max(sizes[:-1]) <= 2**19
    assert sizes[-1] == 8 * 600 * 600
    assert np.array_equal(bounded.values[0], free.values[0])


def test_picture_of_a_streamed_block_shows_the_whole():
    """The tiles cover all columns, and the wrong entry has a pixel of its own."""
    f, vjp, x = dense(300, slip=1e-2, at=(123, 45))
    report = gl.check(f, x, vjp=vjp, coverage="full", memory="2MiB")
    view = picture(report["x"])
    assert view.shape == (300, 300)
    assert [axis.tolist() for axis in view.failing] == [[123], [45]]
    assert (view.verdicts >= 0).all()
    assert "in 1 of 90,000 entries" in report.plot().title


def test_streamed_report_survives_saving(tmp_path):
    """Counts and tiles are part of the file; the page and the text are made of them."""
    f, vjp, x = dense(200, slip=1e-2, at=(12, 45))
    report = gl.check(f, x, vjp=vjp, coverage="full", memory="2MiB")
    report.save(tmp_path / "streamed.npz")
    again = gl.load(tmp_path / "streamed.npz")
    assert again["x"].counts == (39_999, 0, 1)
    assert str(again) == str(report)
    assert np.array_equal(again["x"].tally.columns, report["x"].tally.columns)
    assert "40,000" in repr(again["x"])
    assert '"counts": [39999, 0, 1]' in again.to_html().replace(":[", ": [").replace(
        ",0,1]", ", 0, 1]"
    )


def test_user_jacobian_is_streamed_without_a_copy():
    """Of a matrix that jac= returned, columns are taken as they are needed."""
    n = 400
    A = np.random.default_rng(1).normal(size=(n, n))

    def jac(x):
        J = A * (1 - np.tanh(x) ** 2)
        J[3, 7] = np.nan
        return J

    report = gl.check(
        lambda x: A @ np.tanh(x), np.ones(n), jac=jac, coverage="full", memory="4MiB"
    )
    assert report["x"].counts == (n * n - 1, 0, 1)
    assert report["x"].worst(1).label[0] == "out[3] / x[7]"


def test_several_inputs_outputs_and_complex_entries_are_streamed():
    """Blocks keep their own counts; a complex entry counts once."""
    n = 60
    A = np.random.default_rng(2).normal(size=(n, n))

    def f(z, w):
        return A @ z * 1.5, (A @ w) ** 2

    def vjp(cotangents, z, w):
        first, second = cotangents
        wrong = A.T @ first.conj() * 1.5
        wrong = wrong.conj()
        wrong[11] *= 1.1
        return wrong, A.T @ (second * 2 * (A @ w))

    z = np.linspace(1, 2, n) * (1 + 0.5j)
    w = np.linspace(0.5, 1.5, n)
    whole = gl.check(f, z, w, vjp=vjp, coverage="full")
    parts = gl.check(f, z, w, vjp=vjp, coverage="full", memory="1MiB")
    assert parts.comparisons[0].tally is not None
    for one, other in zip(whole.comparisons, parts.comparisons, strict=True):
        assert (one.input.name, one.output.name) == (
            other.input.name,
            other.output.name,
        )
        assert one.counts == other.counts
    assert parts.culprits == whole.culprits == ("z",)


def test_budget_that_ends_in_a_stream_leaves_what_was_seen():
    """The report is partial, says how far it came, and cannot agree."""
    f, vjp, x = dense(300)
    report = gl.check(f, x, vjp=vjp, coverage="full", memory="2MiB", budget=300)
    assert report.partial
    assert report.verdict.name == "UNDECIDED"
    assert 0 < report["x"].tally.looked < 300
    assert "the budget ended" in report.remarks


def test_right_gradient_agrees_when_streamed():
    """No slab knows less of the scale of a row than the whole: no false alarm."""
    f, vjp, x = dense(150)
    x[10] = 1e4  # one coordinate on which nothing depends any more: tanh is flat
    scaled = np.logspace(-3, 3, 150)
    report = gl.check(
        lambda x: scaled * f(x),
        x,
        vjp=lambda c, x: vjp(scaled * c, x),
        coverage="full",
        memory="1MiB",
    )
    assert report["x"].tally is not None
    assert report.verdict.name == "AGREES"
    assert np.isfinite(report["x"].power)


def test_row_that_never_learns_is_excused_in_a_stream_as_well():
    """The row of an embedding that is its padding has a gradient of zero on purpose."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(20, 8, generator=generator, dtype=torch.float64)
    chosen = torch.tensor([0, 3, 5, 0, 7, 9, 11, 19])

    report = gl.check(
        lambda weight: torch.nn.functional.embedding(chosen, weight, padding_idx=0),
        weight.requires_grad_(),
        coverage="full",
        memory="1MiB",
    )

    assert report.comparisons[0].tally is not None
    assert report.ok
    assert [str(finding.kind) for finding in report.findings] == ["surrogate"]


def test_what_slabs_met_is_told_once():
    """Half precision inside, and a step too long: the finding, and one count of all."""

    def half(a):
        return a.astype("f2").astype(float)

    def grad(x):
        t = np.tanh(x)
        return t + x * (1 - t * t)

    x = np.linspace(0.3, 1.4, 120)
    options = {"coverage": "full", "memory": "1MiB"}
    rounding = gl.check(
        lambda x: half(np.tanh(x)) * x, x, vjp=lambda c, x: (c * grad(x),), **options
    )
    assert rounding["x"].tally is not None
    assert rounding.diagnosis == "low_precision"

    long = gl.check(
        lambda x: np.sin(9 * x),
        x,
        vjp=lambda c, x: (c * 9 * np.cos(9 * x),),
        method=gl.Central(step=0.5),
        **options,
    )
    assert long["x"].counts[2] == 0
    told = [remark for remark in long.remarks if "disagree with central" in remark]
    assert len(told) == 1
    assert told[0].startswith(f"{long['x'].counts[1]} entries")


@pytest.mark.parametrize("memory", [0, -1, "lots", "1 KiB", True, float("nan"), "inf"])
def test_memory_that_is_none_is_refused(memory):
    """The sentence says what was expected."""
    with pytest.raises(InputError, match="memory must be a number of bytes"):
        gl.check(np.sin, np.ones(3), jac=np.diag, memory=memory)


def test_memory_is_read_in_the_usual_units():
    """Powers of two with an i, powers of ten without."""
    assert parse_memory("1.5 GiB") == 3 * 2**29
    assert parse_memory("2GB") == 2 * 10**9


def test_tally_of_parts_is_the_tally_of_the_whole():
    """In whatever pieces the columns come, the worst entry of each tile stays."""
    rng = np.random.default_rng(5)
    A = rng.normal(size=(7, 500))
    wrong = A * (1 + 0.1 * (rng.random(A.shape) < 0.01))
    report = gl.check(lambda x: A @ x, np.ones(500), jac=lambda _: wrong)
    block = report["x"]
    pieces = Tallying((7, 500))
    for part in np.array_split(rng.permutation(500), 9):
        some = np.sort(part)
        cut = {
            name: getattr(block, name)[:, some]
            for name in ("analytic", "numeric", "numeric_error", "allowed", "verdicts")
        }
        pieces.add(gl.Comparison(**_with(block, cut, some)))
    whole = Tallying((7, 500))
    whole.add(block)
    one, other = pieces.result(), whole.result()
    assert one.counts == other.counts == block.counts
    assert one.max_abs_error == other.max_abs_error == block.max_abs_error
    assert one.power == other.power == pytest.approx(block.power)
    assert np.array_equal(one.verdicts, other.verdicts)


def _with(block, cut, columns):
    rest = {name: getattr(block, name) for name in ("output", "input")}
    return {**rest, **cut, "step": cut["numeric"], "columns": columns}


def test_gradient_that_is_wrong_everywhere_is_not_proved_again_and_again():
    """Two slabs are looked at closely, the others hardly: all entries are counted."""
    f, vjp, x = dense(150)
    report = gl.check(
        f, x, vjp=lambda c, x: (1.1 * vjp(c, x)[0],), coverage="full", memory="1MiB"
    )
    assert report["x"].counts == (0, 0, 150 * 150)
    assert report.diagnosis == "scale"
    assert any("are counted, but not kept" in remark for remark in report.remarks)
    assert report.evaluations < 20 * 150  # 40 if every column climbed both ladders
