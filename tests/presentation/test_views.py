"""Pooling never hides an entry, whatever the shape of the matrix."""

from __future__ import annotations

import dataclasses
import gc
import tracemalloc

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from gradlab.comparison.verdict import Verdict
from gradlab.presentation.pictures import picture, tolerance_of
from gradlab.presentation.tiles import badness, digest, worst_of_tiles
from gradlab.presentation.views import by_severity, log_error, worst_entry


def pooled_errors(error, out):
    """Reduce an error matrix to the worst of each tile."""
    rows, columns = worst_of_tiles(lambda r, c: error[r, c], error.shape, out)
    return error[rows, columns]


class TestPooling:
    """A tile is represented by its worst entry."""

    @hypothesis.given(
        rows=st.integers(1, 70),
        columns=st.integers(1, 70),
        down=st.integers(1, 20),
        across=st.integers(1, 20),
        data=st.data(),
    )
    def test_one_wrong_entry_survives(self, rows, columns, down, across, data):
        """Wherever the single error lies, exactly one tile shows it."""
        place = (
            data.draw(st.integers(0, rows - 1)),
            data.draw(st.integers(0, columns - 1)),
        )
        error = np.full((rows, columns), 1e-9)
        error[place] = 0.5

        pooled = pooled_errors(error, (down, across))

        assert pooled.shape == (min(rows, down), min(columns, across))
        assert (pooled == 0.5).sum() == 1

    @hypothesis.given(
        rows=st.integers(1, 40), columns=st.integers(1, 40), seed=st.integers(0, 99)
    )
    def test_agrees_with_the_definition(self, rows, columns, seed):
        """Every tile holds the maximum of its entries, computed entry by entry."""
        error = np.random.default_rng(seed).random((rows, columns))
        out = (7, 5)

        pooled = pooled_errors(error, out)

        expected = np.zeros(pooled.shape)
        for i in range(rows):
            for j in range(columns):
                # tile t of k begins at floor(t n / k)
                a = max(
                    t
                    for t in range(pooled.shape[0])
                    if t * rows // pooled.shape[0] <= i
                )
                b = max(
                    t
                    for t in range(pooled.shape[1])
                    if t * columns // pooled.shape[1] <= j
                )
                expected[a, b] = max(expected[a, b], error[i, j])
        assert np.array_equal(pooled, expected)

    def test_order_of_special_values(self):
        """nan beats inf, inf beats any number, any number beats exact equality."""
        assert np.isnan(pooled_errors(np.array([[np.inf, np.nan, 1.0]]), (1, 1))[0, 0])
        assert pooled_errors(np.array([[1e300, np.inf, 0.0]]), (1, 1))[0, 0] == np.inf
        assert pooled_errors(np.array([[0.0, 1e-300]]), (1, 1))[0, 0] == 1e-300

    def test_bands_make_no_difference(self, monkeypatch, rng):
        """Reading in small bands gives the same tiles as reading at once."""
        error = rng.random((97, 113))
        whole = pooled_errors(error, (9, 11))
        monkeypatch.setattr("gradlab.presentation.tiles._BAND", 50)

        assert np.array_equal(pooled_errors(error, (9, 11)), whole)

    def test_nothing_to_pool(self):
        """A matrix without entries gives a picture without pixels."""
        rows, columns = worst_of_tiles(lambda r, c: np.zeros((0, 0)), (0, 5), (4, 4))

        assert rows.shape == columns.shape == (0, 4)

    def test_log_error(self):
        """Exact equality is minus infinity; nan and inf stay what they are."""
        logs = log_error(np.array([0.0, 1e-5, np.inf, np.nan]))

        assert logs[0] == -np.inf
        assert logs[1] == pytest.approx(-5)
        assert logs[2] == np.inf
        assert np.isnan(logs[3])


class TestDigest:
    """A large block, read once for all views."""

    @pytest.fixture(autouse=True)
    def _small_is_large(self, monkeypatch):
        for module in ("tiles", "views", "pictures"):
            monkeypatch.setattr(f"gradlab.presentation.{module}.LARGE", 1000)

    @pytest.mark.parametrize("value", [np.nan, np.inf, 2.0])
    def test_every_view_names_the_same_special_entry(self, compare, value):
        """nan, inf and a doubled entry are each found, and stand in the picture."""
        numeric = np.ones((50, 50))
        analytic = numeric * (1 + 1e-9)
        analytic[31, 17] = value
        block = compare("W", analytic, numeric, output="y")

        view = picture(block, (5, 5))

        assert worst_entry(block) == block.ranking(1)[0] == (31, 17)
        assert (view.rows[3, 1], view.columns[3, 1]) == (31, 17)
        assert (view.verdicts == Verdict.DISAGREES).sum() == 1
        assert tolerance_of(block) == pytest.approx(1e-6, rel=1e-3)

    def test_floor_keeps_structural_zeros_quiet(self, compare):
        """Noise on a zero does not outrank an error of one percent elsewhere."""
        numeric = np.tile([1e-13, 1.0], (600, 1))
        analytic = np.tile([0.0, 1.0], (600, 1))
        analytic[400, 1] = 1.01

        assert digest(compare("W", analytic, numeric, output="y")).worst == (400, 1)

    def test_a_large_gradient_is_drawn_in_the_shape_of_its_parameter(self, compare):
        """Place 1234 of a gradient of shape (40, 60) is row 20, column 34."""
        numeric = np.ones((1, 2400))
        analytic = numeric.copy()
        analytic[0, 1234] = 3.0
        block = compare("W", analytic, numeric, shape=(40, 60))

        assert worst_entry(block) == (0, 1234)
        found = digest(block)
        assert found.shape == (40, 60)
        assert (20, 34) in zip(found.rows.flat, found.columns.flat, strict=True)

    def test_is_read_once_and_forgotten_with_the_block(self, compare, monkeypatch):
        """Text, page and picture share one reading, which dies with the arrays."""
        from gradlab.presentation import tiles

        calls = []
        read = tiles._read
        monkeypatch.setattr(
            tiles, "_read", lambda *given: calls.append(given) or read(*given)
        )
        before = len(tiles._KNOWN)
        block = compare("W", np.ones((50, 50)), np.ones((50, 50)), output="y")

        worst_entry(block)
        picture(block)
        by_severity([block])

        assert len(calls) == 1
        assert len(tiles._KNOWN) == before + 1
        calls.clear()
        del block
        gc.collect()
        assert len(tiles._KNOWN) == before

    @pytest.mark.untraced
    def test_one_wrong_entry_in_twenty_five_million(self):
        """Each is read once, band by band, without a second copy."""
        shape = (5_000, 5_000)
        numeric = np.ones(shape, np.float32)
        analytic = np.ones(shape, np.float32)
        analytic[3789, 4321] = 1.5
        verdicts = np.zeros(shape, np.int8)
        read, bands = 0, 0

        def key(r, c):
            nonlocal read, bands
            read += (r.stop - r.start) * (c.stop - c.start)
            bands += 1
            return badness(analytic[r, c], numeric[r, c], verdicts[r, c], 0.0)

        tracemalloc.start()
        rows, columns = worst_of_tiles(key, shape, (512, 512))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        hit = np.argwhere(analytic[rows, columns] != 1)
        assert len(hit) == 1
        assert (rows[tuple(hit[0])], columns[tuple(hit[0])]) == (3789, 4321)
        assert peak < 50e6
        assert read == analytic.size
        assert bands < 600  # calls, each of some thousand numbers or more


class TestWorst:
    """The worst entry and the worst block."""

    @pytest.mark.parametrize("seed", range(20))
    def test_same_as_the_ranking(self, compare, seed):
        """Without sorting, the same entry as the first of the ranking."""
        rng = np.random.default_rng(seed)
        numeric = rng.normal(size=(4, 6))
        analytic = numeric * np.where(rng.random((4, 6)) < 0.3, 1.1, 1.0)
        if seed % 3 == 0:
            analytic[rng.integers(4), rng.integers(6)] = np.nan
        block = compare("W", analytic, numeric)

        assert worst_entry(block) == block.ranking(1)[0]

    def test_empty(self, compare):
        """A block without entries has no worst one."""
        assert worst_entry(compare("W", np.zeros((1, 0)), np.zeros((1, 0)))) is None

    def test_blocks_by_verdict_then_error(self, compare):
        """Disagreeing first, then undecided, then the larger error."""
        blocks = [
            compare("small", [[1 + 1e-9]], [[1.0]]),
            compare("large", [[1 + 1e-8]], [[1.0]]),
            compare("open", [[np.nan]], [[np.nan]]),
            compare("wrong", [[2.0]], [[1.0]]),
        ]
        order = [block.input.name for block in by_severity(blocks)]

        assert order == ["wrong", "open", "large", "small"]


class TestPicture:
    """A block as an image."""

    def test_gradient_in_the_shape_of_its_parameter(self, compare):
        """One output: the picture has the parameter's rows and columns."""
        values = np.arange(1.0, 13.0)[None]
        view = picture(compare("W", values, values, shape=(3, 4)))

        assert view.shape == (3, 4)
        assert np.array_equal(view.analytic, np.arange(1.0, 13.0).reshape(3, 4))
        assert view.ylabel == "row of W"

    def test_jacobian_has_a_row_per_output(self, compare):
        """Several outputs: the matrix itself."""
        view = picture(
            compare("W", np.eye(3, 4), np.eye(3, 4), shape=(2, 2), output="y")
        )

        assert view.shape == (3, 4)
        assert (view.ylabel, view.xlabel) == ("entry of y", "entry of W")

    def test_vector_is_a_strip(self, compare):
        """A bias is one row high."""
        assert picture(compare("b", np.ones((1, 5)), np.ones((1, 5)))).shape == (1, 5)

    def test_scalar_is_one_pixel(self, compare):
        """A 0-d parameter is a picture of one pixel."""
        assert picture(compare("s", [[1.0]], [[2.0]], shape=())).shape == (1, 1)

    def test_kernels_stand_in_a_grid(self, compare):
        """A convolution: kernel (o, i) is tile (o, i) of the picture."""
        weight = np.arange(2 * 3 * 2 * 2.0).reshape(2, 3, 2, 2)
        flat = weight.reshape(1, -1)
        view = picture(compare("w", flat, flat, shape=weight.shape))

        assert view.shape == (4, 6)
        assert np.array_equal(view.analytic[2:4, 4:6], weight[1, 2])

    def test_three_dimensions(self, compare):
        """Other tensors keep their last axis across."""
        flat = np.arange(24.0)[None]
        view = picture(compare("w", flat, flat, shape=(2, 3, 4)))

        assert view.shape == (6, 4)
        assert np.array_equal(view.numeric, flat.reshape(6, 4))

    def test_sampled_entries_stand_where_they_belong(self, compare):
        """Entries that were not looked at have no verdict."""
        block = compare("W", [[1.0, 2.0]], [[1.0, 5.0]], shape=(2, 3))
        block = dataclasses.replace(block, columns=np.array([1, 5]), coverage="sample")
        view = picture(block)

        assert view.verdicts.tolist() == [[-1, 0, -1], [-1, -1, 2]]
        assert view.numeric[1, 2] == 5.0

    def test_sampled_entries_survive_pooling(self, compare, rng):
        """A pixel prefers any entry that was looked at to one that was not."""
        columns = np.sort(rng.choice(10_000, 50, replace=False))
        values = rng.normal(size=(1, 50))
        block = compare("W", 2 * values, values, shape=(100, 100))
        view = picture(dataclasses.replace(block, columns=columns), (100, 10))

        tiles = {(c // 100, (c % 100) // 10) for c in columns.tolist()}
        assert int((view.verdicts == Verdict.DISAGREES).sum()) == len(tiles)

    def test_above_the_tolerance_exactly_where_it_disagrees(self, compare, rng):
        """Colour and verdict never contradict each other."""
        numeric = rng.normal(size=(20, 20)) * 10.0 ** rng.integers(-12, 1, (20, 20))
        analytic = numeric * (1 + 10.0 ** rng.uniform(-9, 0, (20, 20)))
        block = compare("W", analytic, numeric, bar=1e-10 * rng.random((20, 20)))
        view = picture(block)

        assert np.array_equal(view.error > view.tolerance, block.verdicts == 2)

    def test_accepted_subgradient_is_quiet(self, compare):
        """A difference that was accepted stays below the tolerance."""
        block = compare("W", [[0.5]], [[1.0]])
        block = dataclasses.replace(block, verdicts=np.zeros((1, 1), np.int8))

        assert picture(block).error[0, 0] < picture(block).tolerance

    def test_small_value_is_not_drawn_louder_than_it_counts(self, compare):
        """Noise on a zero gradient is drawn below the tolerance."""
        block = compare("W", [[0.0, 1.0]], [[1e-13, 1.0]], bar=1e-12)
        view = picture(block)

        assert view.error[0, 0] < view.tolerance

    def test_doubled_gradient_has_error_one_half(self, compare):
        """The error drawn is relative to the larger of both values."""
        assert picture(compare("W", [[2.0]], [[1.0]])).error[0, 0] == pytest.approx(0.5)

    def test_tolerance_is_that_of_the_largest_entry(self, compare):
        """rtol is read back from what was allowed."""
        block = compare("W", [[1e-3, 5.0]], [[1e-3, 5.0]])

        assert tolerance_of(block) == pytest.approx(1e-6)

    def test_tolerance_without_any_size(self, compare):
        """All-zero and empty blocks have a tolerance to draw with as well."""
        assert 0 < tolerance_of(compare("W", [[0.0]], [[0.0]])) < 1
        assert 0 < tolerance_of(compare("W", np.zeros((1, 0)), np.zeros((1, 0)))) < 1

    def test_complex_values_are_drawn_as_magnitudes(self, compare):
        """A conjugated entry has equal magnitudes and a full error."""
        view = picture(compare("z", [[3 + 4j]], [[3 - 4j]]))

        assert view.magnitude
        assert view.analytic[0, 0] == view.numeric[0, 0] == 5.0
        assert view.error[0, 0] == pytest.approx(8 / 5)

    def test_empty_block(self, compare):
        """No entries, no pixels."""
        block = compare("W", np.zeros((1, 0)), np.zeros((1, 0)), shape=(0, 3))

        assert 0 in picture(block).shape
