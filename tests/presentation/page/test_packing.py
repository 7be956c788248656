"""What the page is given: true numbers, true places, within the budget."""

from __future__ import annotations

import json
import math

import builders
import numpy as np
import pytest

import gradlab as gl
from gradlab.presentation.packing import number, pack_block, pack_tile
from gradlab.presentation.packing_results import (
    EMBED_BYTES,
    pack_layers,
    pack_report,
    pack_sweep,
)
from gradlab.presentation.tiles import arrangement, badness, worst_of_tiles


def plane(planes, key, kind="<f4"):
    """Read a plane back."""
    return np.frombuffer(planes[key], kind)


def test_planes_hold_the_values_times_the_unit(rng):
    """Values, error bar and verdicts come back from the bytes to float32 accuracy."""
    block = builders.zoo(rng)["fc1.weight"]
    meta, planes = pack_block(block, "fc1.weight")

    for key, values in {
        "a": block.analytic,
        "n": block.numeric,
        "e": block.numeric_error,
    }.items():
        np.testing.assert_allclose(
            plane(planes, key) * meta["unit"], values.ravel(), rtol=1e-7
        )
    np.testing.assert_array_equal(plane(planes, "v", "u1"), block.verdicts.ravel())


def test_small_differences_survive_the_cast(rng):
    """A difference of 1e-13 of the value is packed with seven digits of its own."""
    numeric = rng.standard_normal((4, 5))
    analytic = numeric * (1 + 1e-13)
    meta, planes = pack_block(builders.comparison(analytic, numeric), "W")

    np.testing.assert_allclose(
        plane(planes, "d") * meta["unit"], (analytic - numeric).ravel(), rtol=1e-6
    )


@pytest.mark.parametrize("scale", [1e-200, 1e-40, 1e60, 1e250])
def test_any_scale_fits_float32(rng, scale):
    """Gradients far outside the range of float32 are shown with their digits."""
    numeric = rng.standard_normal((3, 4)) * scale
    meta, planes = pack_block(builders.comparison(2 * numeric, numeric), "W")

    read = plane(planes, "n").astype(float) * meta["unit"]
    np.testing.assert_allclose(read, numeric.ravel(), rtol=1e-7)


def test_nan_and_inf_stay_what_they_are(rng):
    """NaN and inf are packed as themselves, and JSON stays strict."""
    report = builders.zoo(rng)
    meta, planes = pack_block(report["fc2.bias"], "fc2.bias")

    assert np.isnan(plane(planes, "d")[5 * 4 + 2])
    assert np.isinf(plane(planes, "a")[7 * 4 + 1])
    json.dumps(meta, allow_nan=False)
    json.dumps(pack_report(report).state, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "text"),
    [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (1.5, 1.5)],
)
def test_numbers_that_json_lacks_travel_as_words(value, text):
    """JavaScript's Number() reads the words back."""
    assert number(value) == text


@pytest.mark.parametrize(
    ("rows", "shape", "expected"),
    [
        (1, (4, 10), (4, 10, "input")),
        (1, (6, 1, 3, 3), (6, 9, "input")),
        (1, (5,), (1, 5, "matrix")),
        (3, (4, 10), (3, 40, "matrix")),
        (1, (), (1, 1, "matrix")),
    ],
)
def test_a_gradient_is_drawn_in_the_shape_of_its_input(rng, rows, shape, expected):
    """One row is laid out as the parameter; several rows stay a matrix."""
    numeric = rng.standard_normal((rows, math.prod(shape)))
    block = builders.comparison(numeric, numeric, "W", shape, ("y", (rows,)))

    assert arrangement(block) == expected


def test_a_long_vector_is_folded(rng):
    """784 entries of one row become lines, every entry once."""
    numeric = rng.standard_normal((1, 784))
    rows, columns, kind = arrangement(builders.comparison(numeric, numeric, "b"))

    assert kind == "fold"
    assert 784 <= rows * columns < 784 + columns


@pytest.mark.parametrize(("count", "lines"), [(64, 4), (500, 20), (784, 16)])
def test_lines_of_a_vector_have_no_gap_where_one_can_be_spared(count, lines, rng):
    """Empty places in the last line would look like entries that are equal."""
    numeric = rng.standard_normal((1, count))
    block = builders.comparison(numeric, numeric, "b")
    rows, columns, kind = arrangement(block)

    assert (rows, kind) == (lines, "fold")
    assert rows * columns == count


def test_sampled_columns_are_not_drawn_as_the_parameter(rng):
    """With some columns only, positions in the shape would be lies."""
    numeric = rng.standard_normal((1, 6))
    block = builders.comparison(
        numeric,
        numeric,
        "W",
        (4, 10),
        columns=np.array([0, 7, 12, 20, 33, 39]),
        coverage="sample",
    )

    assert arrangement(block)[2] == "matrix"
    meta, planes = pack_block(block, "W")
    np.testing.assert_array_equal(plane(planes, "cols", "<u4"), block.columns)
    assert meta["kind"] == "matrix"


def test_overview_shows_the_one_wrong_entry_with_its_true_place(rng):
    """Reduced 60-fold, the single wrong entry is there, and its index is right."""
    report = builders.large(rng, 700, (613, 271))
    meta, planes = pack_block(report["W"], "W", 8000)

    verdicts = plane(planes, "v", "u1")
    at = int(np.flatnonzero(verdicts == 2)[0])
    assert meta["grid"][0] * meta["grid"][1] <= 8000
    assert (plane(planes, "ri", "<u4")[at], plane(planes, "ci", "<u4")[at]) == (
        613,
        271,
    )
    assert meta["worst"]["index"] == [613, 271]
    assert meta["counts"] == [700 * 700 - 1, 0, 1]


@pytest.mark.parametrize("shape", [(7, 11), (64, 64), (100, 3), (1, 1000), (513, 700)])
def test_worst_of_tiles_agrees_with_looking_at_every_tile(rng, shape):
    """Against a slow loop over all tiles: the same worst rank in each."""
    numeric = rng.standard_normal(shape)
    analytic = numeric * (1 + 10.0 ** rng.uniform(-14, 0, shape))
    analytic.flat[shape[0] * shape[1] // 2] = np.nan
    verdicts = (rng.random(shape) < 0.02).astype(np.int8) * 2
    out = (8, 16)
    rows, columns = worst_of_tiles(
        lambda r, c: badness(analytic[r, c], numeric[r, c], verdicts[r, c], 0.0),
        shape,
        out,
    )

    with np.errstate(invalid="ignore"):
        relative = np.abs(analytic - numeric) / (np.abs(analytic) + np.abs(numeric))
    rank = np.where(np.isnan(relative), 5, relative) + 8 * verdicts
    down, across = rows.shape
    for i in range(down):
        for j in range(across):
            part = rank[
                i * shape[0] // down : (i + 1) * shape[0] // down,
                j * shape[1] // across : (j + 1) * shape[1] // across,
            ]
            assert rank[rows[i, j], columns[i, j]] == pytest.approx(
                part.max(), rel=1e-6
            )


def test_tile_is_cut_at_full_resolution(rng):
    """A window of the picture returns exactly the entries in it."""
    block = builders.large(rng, 300, (10, 20))["W"]
    meta, _ = pack_block(block, "W", 900)
    planes = pack_tile(block, meta, (5, 25, 15, 45))

    np.testing.assert_allclose(
        plane(planes, "a").reshape(20, 30) * meta["unit"],
        block.analytic[5:25, 15:45],
        rtol=1e-6,
    )


def test_tile_of_a_gradient_in_the_shape_of_its_input(rng):
    """The same where the picture is the parameter and the matrix one row."""
    numeric = rng.standard_normal((1, 60 * 50))
    block = builders.comparison(numeric, numeric, "W", (60, 50))
    meta, _ = pack_block(block, "W", 100)
    planes = pack_tile(block, meta, (10, 12, 3, 6))

    expected = numeric.reshape(60, 50)[10:12, 3:6]
    read = plane(planes, "n").reshape(2, 3) * meta["unit"]
    np.testing.assert_allclose(read, expected, rtol=1e-6)


def test_report_stays_within_the_budget(rng):
    """Many blocks and a large one together stay below the bytes allowed."""
    blocks = [
        *builders.large(rng, 400, (3, 7)).comparisons,
        *builders.right(rng, 20).comparisons,
    ]
    packed = pack_report(builders.report(*blocks), 200_000)

    assert sum(len(p) for planes in packed.blobs.values() for p in planes.values()) <= (
        200_000
    )
    assert EMBED_BYTES * 4 / 3 < 2e6


def test_blocks_come_worst_first(rng):
    """Disagreeing before undecided before agreeing, NaN before numbers."""
    state = pack_report(builders.zoo(rng)).state
    verdicts = [block["verdict"] for block in state["blocks"]]

    assert verdicts == sorted(verdicts, reverse=True)
    assert state["blocks"][0]["name"] == state["param"] == "fc2.bias"


def test_what_nobody_looked_at_does_not_agree():
    """A check that ends before its first direction has no entry, and is undecided."""
    x = np.linspace(0.1, 1.0, 300)
    report = gl.check(
        lambda x: np.sin(x).sum(), x, grad=np.cos, coverage="probe", budget=2
    )
    (block,) = pack_report(report).state["blocks"]

    assert block["counts"] == [0, 0, 0]
    assert block["verdict"] == gl.Verdict.UNDECIDED


def test_complex_blocks_carry_both_parts(rng):
    """Real, imaginary and the magnitude of the difference are packed."""
    numeric = rng.standard_normal((2, 3)) + 1j * rng.standard_normal((2, 3))
    analytic = numeric.conj()
    meta, planes = pack_block(builders.comparison(analytic, numeric, "z"), "z")

    assert meta["complex"]
    np.testing.assert_allclose(
        plane(planes, "ai") * meta["unit"], analytic.imag.ravel(), rtol=1e-6
    )
    np.testing.assert_allclose(
        plane(planes, "d") * meta["unit"],
        np.abs(analytic - numeric).ravel(),
        rtol=1e-6,
    )


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_empty_blocks_are_packed(shape):
    """No entries: no worst one, and no error."""
    empty = np.zeros((1, 0))
    meta, planes = pack_block(builders.comparison(empty, empty, "W", shape), "W")

    assert meta["worst"] is None
    assert planes["a"] == b""


def test_sweep_keeps_every_curve_and_the_matrices(rng):
    """Curves by method and input; slices hold log10 of the relative error."""
    sweep = builders.sweep(rng)
    packed = pack_sweep(sweep)

    json.dumps(packed.state, allow_nan=False)
    curve = packed.state["curves"]["central"][1]
    np.testing.assert_allclose(curve, sweep.errors["central", "norm.gamma"])
    first = packed.state["matrices"][0]
    logs = plane(packed.blobs[first["key"]], "s").reshape(len(sweep.steps), 12, 20)
    name = sweep.inputs[first["input"]]
    a, n = sweep.analytic[name], sweep.matrices[first["method"], name][3]
    expected = np.abs(a - n) / (np.abs(a) + np.abs(n))
    np.testing.assert_allclose(10.0 ** logs[3], expected, rtol=1e-5)


def test_layers_are_packed_in_order():
    """Rows in execution order with state and place; JSON stays strict."""
    audit = builders.audit(3)
    state = pack_layers(audit).state

    json.dumps(state, allow_nan=False)
    assert [row["name"] for row in state["rows"]] == [row.name for row in audit.rows]
    assert state["verdict"] == 2
    assert "blocks.1.act" in state["headline"]


def test_a_shortened_name_keeps_its_first_letter():
    """The headline of a page begins with a capital, but a name is left as it is."""
    name = "model.encoder.layers.0.self_attention.projection.parametrizations.weight"
    sweep = gl.sweep(lambda p: (p[name] @ p[name], {name: p[name]}), {name: np.ones(2)})

    assert pack_sweep(sweep).state["headline"].startswith("model.encoder.")
