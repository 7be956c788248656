"""Random directions: regenerated, never stored; walked and put back."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gradlab.building import Sides, build_subject
from gradlab.differentiation.lines.directions import Direction, unit_of
from gradlab.differentiation.lines.parts import Part, whole, without
from gradlab.differentiation.lines.walk import Walk

LARGE = 200_000  # more than three blocks of a generator


def gather(direction, part):
    """Values of a direction over a part, in one array."""
    return np.concatenate([values for _, values in direction.values(part)])


def subject_of(f, *inputs):
    return build_subject(f, list(inputs), Sides(need_analytic=False))


class TestDirection:
    def test_same_seed_gives_the_same_numbers(self):
        """A direction is its seed: generated twice, it is the same."""
        one, two = (Direction(3, (Part(0, 0, LARGE),), (1.0,)) for _ in range(2))

        assert np.array_equal(gather(one, one.parts[0]), gather(two, two.parts[0]))

    @pytest.mark.parametrize(
        ("start", "stop"), [(0, 5), (65_530, 65_540), (131_072, LARGE)]
    )
    def test_a_part_is_cut_out_of_the_whole(self, start, stop):
        """Cutting a part out never changes the numbers in it, at block edges too."""
        every = Direction(3, (Part(0, 0, LARGE),), (0.5,))
        cut = Part(0, start, stop)
        few = Direction(3, (cut,), (0.5,))

        assert np.array_equal(
            gather(few, cut), gather(every, every.parts[0])[start:stop]
        )

    def test_no_entry_is_diluted(self):
        """Every coordinate moves by at least one and less than two units."""
        part = Part(0, 0, LARGE)
        size = np.abs(gather(Direction(5, (part,), (0.25,)), part))

        assert size.min() >= 0.25
        assert size.max() < 0.5

    def test_signs_are_balanced_and_independent_between_seeds(self):
        """Signs average to zero, and those of two seeds do not go together.

        Both means have a standard deviation of 1 / sqrt(n).
        """
        part = Part(0, 0, LARGE)
        one, two = (
            np.sign(gather(Direction(s, (part,), (1.0,)), part)) for s in (1, 2)
        )

        assert abs(one.mean()) < 5 / math.sqrt(LARGE)
        assert abs((one * two).mean()) < 5 / math.sqrt(LARGE)

    def test_inputs_have_directions_of_their_own(self):
        """The same positions of two inputs do not move together."""
        parts = (Part(0, 0, 1000), Part(1, 0, 1000))
        direction = Direction(1, parts, (1.0, 1.0))

        assert not np.array_equal(
            gather(direction, parts[0]), gather(direction, parts[1])
        )

    @pytest.mark.parametrize("thinning", [1, 3, 6])
    def test_thinning_keeps_one_coordinate_in_a_power_of_two(self, thinning):
        """The share of coordinates that move is 2**-thinning, to five deviations."""
        part = Part(0, 0, LARGE)
        kept = np.count_nonzero(
            gather(Direction(1, (part,), (1.0,), thinning, 9), part)
        )
        expected = LARGE / 2**thinning

        assert abs(kept - expected) < 5 * math.sqrt(expected)

    def test_directions_with_the_same_choice_move_the_same_coordinates(self):
        """Thinned directions can be compared, because they share what they move."""
        part = Part(0, 0, LARGE)
        one, two = (gather(Direction(s, (part,), (1.0,), 4, 9), part) for s in (1, 2))

        assert np.array_equal(one != 0, two != 0)

    def test_along_is_the_dot_product(self, rng):
        """The analytic derivative along a direction is gradient dot direction."""
        parts = (Part(0, 0, LARGE), Part(1, 3, 7))
        direction = Direction(4, parts, (0.5, 2.0))
        gradients = [rng.normal(size=LARGE), rng.normal(size=10)]
        exact = math.fsum(
            np.concatenate(
                [
                    gradients[0] * gather(direction, parts[0]),
                    gradients[1][3:7] * gather(direction, parts[1]),
                ]
            ).tolist()
        )

        value, _ = direction.along(gradients)

        assert value == pytest.approx(exact, abs=1e-10)

    def test_at_reads_one_coordinate(self):
        """A single coordinate can be asked for, wherever it lies."""
        part = Part(0, 0, LARGE)
        direction = Direction(6, (part,), (1.0,))

        assert direction.at(0, 70_001) == gather(direction, part)[70_001]

    def test_without_leaves_the_rest(self):
        """Cutting ranges out keeps every other coordinate once."""
        holes = [Part(0, 0, 2), Part(0, 5, 6), Part(0, 9, 20), Part(1, 0, 20)]
        left = without(Part(0, 1, 10), holes)

        assert [(p.start, p.stop) for p in left] == [(2, 5), (6, 9)]


class TestUnit:
    @pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 1e200])
    def test_unit_is_within_a_factor_two_of_the_typical_size(self, scale, rng):
        """The unit is a power of two near the root mean square, at any scale."""
        x = scale * rng.normal(size=1000)
        unit = unit_of(subject_of(lambda x: 0.0 * x.sum(), x), 0)

        assert math.frexp(unit)[0] == 0.5
        assert 0.5 < unit / scale < 2

    def test_unit_of_zeros_is_one(self):
        """An input that is zero everywhere is taken to be of size one."""
        assert unit_of(subject_of(lambda x: x.sum(), np.zeros(3)), 0) == 1.0


class TestWalk:
    @pytest.mark.parametrize("count", [3, 100])
    def test_walk_goes_to_the_point_plus_the_step(self, count, rng):
        """Steps start from the point every time, and do not add up."""
        x, seen = rng.normal(size=count), []
        subject = subject_of(lambda x: (seen.append(x.copy()), x.sum())[1], x)
        direction = Direction(1, whole(subject), (1.0,))
        walk = Walk(subject, direction)
        for step in (0.5, 0.25):
            walk.to(step)
        subject.row()
        walk.back()
        subject.row()

        values = gather(direction, direction.parts[0])
        assert np.array_equal(seen[0], x + 0.25 * values)
        assert np.array_equal(seen[1], x)

    def test_a_subject_may_displace_by_itself(self, rng):
        """A subject's own displace is given every block, once per step."""
        x, got = rng.normal(size=LARGE), []
        subject = subject_of(lambda x: x.sum(), x)
        subject.displace = lambda which, start, v, factor: got.append(
            (start, factor * v)
        )
        direction = Direction(1, whole(subject), (1.0,))
        Walk(subject, direction).to(0.5)

        assert [start for start, _ in got] == [0, 65_536, 131_072, 196_608]
        assert np.array_equal(
            np.concatenate([v for _, v in got]),
            0.5 * gather(direction, direction.parts[0]),
        )
