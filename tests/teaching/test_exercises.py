"""Right answers are right, known slips get their own sentence."""

from __future__ import annotations

import math

import numpy as np
import pytest

import gradlab as gl
from gradlab.teaching.exercises_hunt import mystery
from gradlab.teaching.exercises_scale import mystery_gradient
from gradlab.teaching.lessons import check_answer
from gradlab.testing import assert_gradients

RIGHT = {
    "1.1": 31.4,  # 2 x 7850 x 2 ms
    "1.3": [
        "np.exp(np.sin(x)).sum()",
        "np.sqrt((x**2).sum())",
        "np.log(1 + x**2).sum()",
    ],
    "2.1": 6e-3,  # (3 x 6e-8)^(1/3) = 5.6e-3
    "2.2": 100,
    "2.3": "noise",
    "3.2": ["W1", "b1", "W2", "b2"],
    "3.3": ["W1", "b1"],
    "3.4": 3,
    "4.1": (2, 5),
    "5.1": (-3, -3, -3),
    "6.1": 0.798,  # 1000 x 2e-3 x 0.3989
    "7.1": 4,
    "8.1": ["fc4.weight"],
    "8.2": "fc3",
    "9.1": 2995,
    "9.2": 20,
    "10.1": 2.7e-4,
    "11.2": 2,
}
SLIPS = [
    ("1.1", 15.7, "one-sided"),
    ("1.1", 15700, "counts evaluations"),
    ("1.1", "many", "a number was expected"),
    ("1.3", ["np.abs(x).sum()"], "0 of your 1 belong there and 3 are missing"),
    ("1.3", ["sin"], "is not among"),
    ("2.1", 7e-6, "float64"),
    ("2.1", 5e-4, "one-sided"),
    ("2.2", 1000, "square root"),
    ("2.2", 1, "it does move"),
    ("2.3", "bug", "stays where it is"),
    ("2.3", "maybe", "choose one of"),
    ("3.2", ["W1"], "1 of your 1 belongs there and 3 are missing"),
    ("3.4", 2, "which is less"),
    ("4.1", (3, 6), "counting starts at 0"),
    ("4.1", (3, 6.0), "counting starts at 0"),
    ("4.1", (1, 6), "row by row"),
    ("4.1", (2, 6), "the column is not right"),
    ("4.1", 5, "two whole numbers"),
    ("3.1", lambda *_: (1, 2, 3, 4), "return a dict"),
    ("8.1", 3, "a list of names was expected"),
    ("5.1", (5, 7, 9), "ignored"),
    ("5.1", (3, 3, 3), "sign"),
    ("5.1", (-1, -1), "three numbers"),
    ("6.1", 0.399, "one side only"),
    ("6.1", 2.0, "density"),
    ("7.1", 7, "definition with the sum"),
    ("9.1", 1000, "a third of the cases"),
    ("9.2", 19, "two in a million"),
    ("10.1", 7e-6, "first derivative"),
    ("11.2", 1, "wrong"),
]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("1.1", np.array([31.4])),
        ("1.1", "31.4"),
        ("2.3", " Noise"),
        ("3.2", np.array(["b2", "W1", "W2", "b1"])),
        ("5.1", [[-3, -3, -3]]),
    ],
)
def test_right_answers_in_another_form(name, value):
    """What is meant counts, not how it is written."""
    assert check_answer(name, value).right


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers(name):
    """What algebra, or a second measurement, gives is accepted."""
    if name in {"8.1", "8.2"}:
        pytest.importorskip("torch")

    answer = check_answer(name, RIGHT[name])

    assert answer.right, answer.words
    assert answer.words  # what it shows


@pytest.mark.parametrize(("name", "value", "words"), SLIPS)
def test_slips_are_named(name, value, words):
    """A known slip is told as what it is, and the right answer is not."""
    answer = check_answer(name, value)

    assert answer.status == "wrong"
    assert words in answer.words


class TestCentralGradient:
    """Exercise 1.2."""

    @staticmethod
    def right(f, x, h):
        point = np.array(x, dtype=float)
        gradient = np.zeros_like(point)
        for place in np.ndindex(point.shape):
            up, down = point.copy(), point.copy()
            up[place] += h
            down[place] -= h
            gradient[place] = (f(up) - f(down)) / (2 * h)
        return gradient

    def test_right(self):
        """A function that differentiates copies is right."""
        assert check_answer("1.2", self.right).right

    @pytest.mark.parametrize(
        ("slip", "words"),
        [
            (lambda f, x, h: TestCentralGradient.right(f, x, h) * 2, "twice"),
            (lambda f, x, h: -TestCentralGradient.right(f, x, h), "sign"),
            (lambda f, x, h: TestCentralGradient.right(f, x, h)[0], "shape"),
            (lambda f, x, h: TestCentralGradient.right(f, x, 1e-6), "exact derivative"),
            (lambda f, x, h: np.zeros_like(x), "are not those"),
            (lambda f, x, h: 1 / 0, "raised ZeroDivisionError"),
        ],
    )
    def test_slips(self, slip, words):
        """Each slip has its sentence."""
        assert words in check_answer("1.2", slip).words

    def test_point_is_put_back(self):
        """A gradient that leaves x moved is not accepted, though its numbers are."""

        def careless(f, x, h):
            gradient = TestCentralGradient.right(f, x, h)
            x += h
            return gradient

        assert "put every entry back" in check_answer("1.2", careless).words

    def test_integers(self):
        """Steps on an array of integers are cut off, and that is said."""

        def in_place(f, x, h):
            gradient = np.zeros(x.shape)
            for place in np.ndindex(x.shape):
                old = x[place]
                x[place] = old + h
                up = f(x)
                x[place] = old - h
                gradient[place] = (up - f(x)) / (2 * h)
                x[place] = old
            return gradient

        assert "integers" in check_answer("1.2", in_place).words


class TestHunt:
    """Exercises of lessons 3 and 4."""

    @staticmethod
    def backward(params, X, y, factor=1.0):
        hidden = np.maximum(0, X @ params["W1"] + params["b1"])
        p = np.exp(hidden @ params["W2"] + params["b2"])
        d = p / p.sum(axis=1, keepdims=True)
        d[np.arange(len(y)), y] -= 1
        d /= len(y)
        back = d @ params["W2"].T * (hidden > 0)
        first = {"W1": factor * X.T @ back, "b1": back.sum(0)}
        return first | {"W2": hidden.T @ d, "b2": d.sum(0)}

    def test_repaired(self):
        """A right backward is accepted, a doubled one is named."""
        wrong = check_answer(
            "3.1", lambda params, X, y: self.backward(params, X, y, 2.0)
        )

        assert check_answer("3.1", self.backward).right
        assert wrong.words.endswith("wrong: W1")

    def test_shapes_and_names(self):
        """A gradient that is missing, or of another shape, is told."""

        def lacking(params, X, y):
            return {"W1": params["W1"]}

        def flat(params, X, y):
            found = self.backward(params, X, y)
            return found | {"W1": found["W1"].T}

        assert "no gradient called 'b1'" in check_answer("3.1", lacking).words
        assert "has shape (6, 3)" in check_answer("3.1", flat).words

    @pytest.mark.untraced
    @pytest.mark.parametrize("seed", range(8))
    def test_mysteries_show(self, seed):
        """Every mistake of lesson 4 shows, in the inputs that it belongs to."""
        found = []
        for letter in "ABCDEF":
            forward, backward, inputs = mystery(letter, seed)
            report = gl.check(forward, *inputs, backward=backward, diagnose=False)
            found.append(tuple(sorted(report.culprits)))

        assert sorted(found) == [(), ("b",), ("b", "w", "x"), ("w",), ("w",), ("x",)]

    def test_mysteries_are_judged(self):
        """One assignment of kinds is right, and a part of it counts."""
        kinds = {}
        for letter in "ABCDEF":
            forward, backward, inputs = mystery(letter, 3)
            report = gl.check(forward, *inputs, backward=backward, diagnose=False)
            kinds[letter] = {
                (): "none",
                ("b",): "not summed",
                ("b", "w", "x"): "mask",
                ("x",): "transpose",
            }.get(tuple(sorted(report.culprits)))
            if kinds[letter] is None:
                wrong = (report["w"].verdicts == gl.Verdict.DISAGREES).any(axis=0)
                kinds[letter] = "one entry" if wrong.sum() == 1 else "factor"

        assert check_answer("4.2", kinds, seed=3).right
        assert "F left" in check_answer("4.2", kinds | {"F": None}, seed=3).words
        swapped = kinds | {"A": kinds["B"], "B": kinds["A"]}
        assert "4 of 6 are right" in check_answer("4.2", swapped, seed=3).words

    def test_unknown_letter(self):
        """A letter that is not dealt is refused."""
        with pytest.raises(ValueError, match="one of A, B"):
            mystery("Z")


def test_wrong_entries():
    """Three places, found by comparing with the derivative of log(1 + w^2)."""
    _, gradient, w = mystery_gradient(5)
    places = np.nonzero(abs(gradient(w) - 2 * w / (1 + w**2)) > 1e-6)[0]

    assert len(places) == 3
    assert check_answer("9.3", places.tolist(), seed=5).right
    assert "2 of your 2 are" in check_answer("9.3", places[:2].tolist(), seed=5).words


class TestTests:
    """Exercise 11.1: tests that are tested."""

    @staticmethod
    def demanding(x, W):
        def test(forward, backward):
            assert_gradients(forward, x, W, np.zeros(W.shape[1]), backward=backward)

        return test

    def test_random_numbers_find_everything(self, rng):
        """Random numbers with three different sizes let no mistake pass."""
        test = self.demanding(rng.normal(size=(3, 4)), rng.normal(size=(4, 2)))

        assert check_answer("11.1", test).right

    @pytest.mark.parametrize(
        ("x", "W", "survivor"),
        [
            (np.ones((3, 2)), np.eye(2), "transpose"),
            (np.zeros((3, 4)), np.ones((4, 2)), "ignored upstream"),
            (np.full((1, 3), 0.5), np.array([[1.0, 2], [3, 4], [5, 6]]), "mean"),
        ],
    )
    def test_weak_inputs_let_some_pass(self, x, W, survivor):
        """What an identity, zeros or a batch of one hide is told by its kind."""
        answer = check_answer("11.1", self.demanding(x, W))

        assert answer.status == "wrong"
        assert survivor in answer.words

    def test_a_test_that_fails_for_all(self):
        """A test that is against everything is told why."""

        def strict(forward, backward):
            raise ValueError("no")

        assert "a layer that is right" in check_answer("11.1", strict).words

    def test_a_test_without_a_test_is_open(self):
        """A function that looks at nothing has not been written yet."""
        assert check_answer("11.1", lambda forward, backward: None).status == "open"


def test_probability_of_a_kink():
    """The number of exercise 6.1 by simulation, not by the density."""
    draws = np.random.default_rng(0).normal(size=(2000, 1000))
    crossing = (abs(draws) < 1e-3).sum(axis=1).mean()

    assert math.isclose(crossing, RIGHT["6.1"], rel_tol=0.1)
    assert check_answer("6.1", RIGHT["6.1"]).right
