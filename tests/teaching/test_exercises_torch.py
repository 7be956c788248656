"""Exercises that need PyTorch: right answers are right, slips are named."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.teaching.exercises_functions import suspect
from gradlab.teaching.exercises_training import mystery_network
from gradlab.teaching.lessons import check_answer

torch = pytest.importorskip("torch")


def function(forward, backward):
    """Make an autograd.Function that saves its inputs."""

    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, upstream):
            return backward(upstream, *ctx.saved_tensors)

    return Made


def softplus(x):
    """Log of one plus e to the x."""
    return torch.log(1 + torch.exp(x))


def capsule(vector, weight):
    """Lengths of the projections of the columns of `vector`."""
    return (weight @ torch.linalg.pinv(weight) @ vector).norm(dim=0)


def capsule_backward(upstream, vector, weight, *, listens=True):
    """Backward of the capsule, with or without its incoming gradient."""
    inverse = (weight.T @ weight).inverse()
    projection = weight @ inverse @ weight.T
    length = (projection @ vector).norm(dim=0)
    outside = torch.eye(len(weight), dtype=weight.dtype) - projection
    scaled = vector * upstream / length if listens else vector / length
    to_weight = outside @ scaled @ vector.T @ weight @ inverse
    return upstream * (projection @ vector) / length, to_weight


FUNCTIONS = {
    "5.2": function(softplus, lambda up, x: up * torch.sigmoid(x)),
    "5.3": function(capsule, capsule_backward),
    "10.2": function(torch.exp, lambda up, x: up * torch.exp(x)),
    "10.3": function(
        lambda a, b: a * b, lambda up, a, b: (up * b.conj(), up * a.conj())
    ),
}
SLIPS = [
    ("5.2", function(softplus, lambda up, x: torch.sigmoid(x)), "incoming gradient"),
    ("5.2", function(softplus, lambda up, x: up * torch.sigmoid(-x)), "minus the"),
    ("5.2", function(torch.exp, lambda up, x: up * torch.exp(x)), "forward pass"),
    ("5.2", softplus, "the class itself"),
    ("5.2", 3.0, "the class itself"),
    (
        "5.3",
        function(capsule, lambda *a: capsule_backward(*a, listens=False)),
        "identical",
    ),
    (
        "10.2",
        function(torch.exp, lambda up, x: up * torch.exp(x.detach())),
        "the derivative of the backward is not",
    ),
    ("10.3", function(lambda a, b: a * b, lambda up, a, b: (up * b, up * a)), "turned"),
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_functions(name):
    """A Function with the derivative of the textbook is accepted."""
    answer = check_answer(name, FUNCTIONS[name])

    assert answer.right, answer.words


@pytest.mark.parametrize(("name", "slip", "words"), SLIPS)
def test_slips(name, slip, words):
    """A known slip is told by what is measured."""
    answer = check_answer(name, slip)

    assert answer.status == "wrong"
    assert words in answer.words


@pytest.mark.parametrize(("name", "count"), [("5.2", 1), ("5.3", 2), ("10.3", 2)])
def test_unwritten_backward_is_open(name, count):
    """The Function as the lesson ships it counts as not solved, not as wrong."""
    forward = {"5.2": softplus, "5.3": capsule, "10.3": lambda a, b: a * b}[name]
    empty = function(forward, lambda *_: (None,) * count if count > 1 else None)

    assert check_answer(name, empty).status == "open"


@pytest.mark.parametrize("seed", range(4))
def test_suspects(seed):
    """A backward is wrong where the slope is outside both sides, or drawn again."""
    wrong = []
    for letter in "ABCDE":
        forward, _, x = suspect(letter, seed)
        source = forward.__qualname__.split(".")[0]
        left, right = (float(forward(x * 0 + h)[0][1]) / h for h in (-1e-3, 1e-3))
        if source == "_dropout":
            wrong.append(letter)
        elif source == "_rectifier":
            _, backward, point = suspect(letter, seed)
            (slope,) = backward(x * 0 + 1, point)
            leaks = not left <= slope[0] <= left  # at -1.5 there is one slope only
            if leaks or not left <= slope[1] <= right:
                wrong.append(letter)

    assert len(wrong) == 3
    assert check_answer("6.2", wrong, seed=seed).right
    assert check_answer("6.2", wrong[:2], seed=seed).status == "wrong"


class TestTraining:
    """Exercise 7.2."""

    @staticmethod
    def steps(model, criterion, optimiser, x, labels, steps):
        for _ in range(steps):
            optimiser.zero_grad()
            criterion(model(x), labels).backward()
            optimiser.step()

    def test_right(self):
        """One backward pass after the training is what was asked."""

        def train(model, criterion, optimiser, x, labels, steps):
            self.steps(model, criterion, optimiser, x, labels, steps)
            (gradient,) = torch.autograd.grad(criterion(model(x), labels), x)
            return gradient

        assert check_answer("7.2", train).right

    def test_added_up(self):
        """Five passes that were added up are told as about that many."""

        def train(model, criterion, optimiser, x, labels, steps):
            self.steps(model, criterion, optimiser, x, labels, steps)
            return x.grad

        assert "were added up" in check_answer("7.2", train).words

    def test_untrained(self):
        """The gradient of a model that was not trained does not count."""

        def train(model, criterion, optimiser, x, labels, steps):
            return torch.autograd.grad(criterion(model(x), labels), x)[0]

        assert "not trained" in check_answer("7.2", train).words


@pytest.mark.parametrize("seed", range(6))
def test_mystery_networks(seed):
    """The audit names the activations that are wrong, and these are accepted."""
    model, x = mystery_network(seed)
    culprits = gl.blame(model, x).culprits

    assert check_answer("8.3", culprits, seed=seed).right
    more = [*culprits, "fc1"]
    assert f"{len(culprits)} of your {len(more)}" in (
        check_answer("8.3", more, seed=seed).words
    )


def test_nobody_s_random_state_is_touched():
    """Judging draws its numbers from generators of its own."""
    before = torch.get_rng_state().clone()
    for name, student in FUNCTIONS.items():
        check_answer(name, student)
    mystery_network(3)
    check_answer("8.1", ["fc4.weight"])

    assert torch.equal(before, torch.get_rng_state())
