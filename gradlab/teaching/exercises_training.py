"""Exercises of lessons 7 and 8: gradients of inputs, and layers that are to blame."""

from __future__ import annotations

import copy
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.checks import check
from gradlab.jacobians import numeric_jacobian
from gradlab.teaching.answering import Exercise, Open, choice, names, number

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["EXERCISES", "mystery_network"]

_RATE = 0.2  # of learning, in exercise 7.2


# -------------------------------------------------------------------------- lesson 7
def _trained(student: Any, seed: int) -> str:
    """Judge a training loop that leaves the gradient of the input behind."""
    torch: Any = sys.modules["torch"]  # the student's cell has imported it
    rng = np.random.default_rng([seed, 8])
    model, criterion = torch.nn.Linear(3, 2).double(), torch.nn.CrossEntropyLoss()
    with torch.no_grad():
        model.weight.copy_(torch.tensor(rng.normal(size=(2, 3))))
        model.bias.copy_(torch.tensor(rng.normal(size=2)))
    before = model.weight.detach().clone()
    twin = copy.deepcopy(model)
    x = torch.tensor(rng.normal(size=(6, 3)), requires_grad=True)
    labels = torch.tensor(rng.integers(0, 2, 6))
    optimiser = torch.optim.SGD(model.parameters(), lr=_RATE)
    steps = 5
    found = student(model, criterion, optimiser, x, labels, steps)
    if found is None:
        raise Open
    if torch.equal(before, model.weight.detach()):
        return "the model was not trained: its weight is what it was before"
    took = _steps_to(model, twin, lambda model: criterion(model(x), labels))
    if took is not None and took != steps:
        return f"{steps} steps were asked, the model has taken {took}"
    exact: Any = numeric_jacobian(lambda x: criterion(model(x), labels), x)
    found = np.asarray(found.detach() if hasattr(found, "detach") else found)
    if found.shape != exact.value.shape:
        return f"the gradient has shape {found.shape}, x has {exact.value.shape}"
    ratio = float((found * exact.value).sum() / (exact.value**2).sum())
    if np.allclose(found, exact.value, rtol=1e-6, atol=1e-9):
        return ""
    if ratio > 2:
        return (
            f"it is about {ratio:.1f} times the gradient: backward passes were added up"
        )
    return (
        "it is not the gradient at the trained parameters: is it that of the loss "
        "before the last step?"
    )


def _steps_to(model: Any, twin: Any, loss: Any) -> int | None:
    """Count the plain steps from the twin to the model; None if none lead there."""
    torch: Any = sys.modules["torch"]
    for count in range(21):
        if torch.allclose(twin.weight, model.weight, rtol=1e-9):
            return count
        gradients = torch.autograd.grad(loss(twin), list(twin.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(twin.parameters(), gradients, strict=True):
                parameter.sub_(_RATE * gradient)
    return None


# -------------------------------------------------------------------------- lesson 8
def _slipping_linear(*, of_input: float) -> Any:
    """Return a linear map: its weight gets twice its gradient, its input a factor."""
    torch: Any = sys.modules["torch"]

    class Map(torch.autograd.Function):  # type: ignore[misc] # torch has no types here
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
            ctx.save_for_backward(x, weight)
            return x @ weight.T + bias

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            x, weight = ctx.saved_tensors
            to_weight = 2 * upstream.T @ x
            return of_input * upstream @ weight, to_weight, upstream.sum(0)

    class Linear(torch.nn.Linear):  # type: ignore[misc] # torch has no types here
        def forward(self, x: Any) -> Any:
            return Map.apply(x, self.weight, self.bias)

    return Linear


def _softsign(slope: Any) -> Any:
    """Return x / (1 + |x|) as a layer, with this for its derivative."""
    torch: Any = sys.modules["torch"]

    class Function(torch.autograd.Function):  # type: ignore[misc] # as above
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x / (1 + x.abs())

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            return upstream * slope(ctx.saved_tensors[0])

    class Activation(torch.nn.Module):  # type: ignore[misc] # as above
        def forward(self, x: Any) -> Any:
            return Function.apply(x)

    return Activation()


def _network(linears: list[Any], activations: list[Any], seed: int) -> Any:
    """Build a network of these classes of 4 x 4 layers, and these activations.

    Its parameters are drawn without touching anybody's random state.
    """
    torch: Any = sys.modules["torch"]
    model = torch.nn.Sequential()
    pairs = zip(linears, activations, strict=True)
    for i, (linear, activation) in enumerate(pairs, start=1):
        model.add_module(f"fc{i}", torch.nn.utils.skip_init(linear, 4, 4))
        model.add_module(f"act{i}", activation)
    model.double()
    rng = np.random.default_rng([seed, 9])
    with torch.no_grad():
        for parameter in model.parameters():
            shape = tuple(parameter.shape)
            parameter.copy_(torch.tensor(rng.normal(size=shape) / shape[-1] ** 0.5))
    return model


def _blamed(seed: int) -> tuple[str, ...]:
    rng = np.random.default_rng([seed, 10])
    chosen = rng.choice(np.arange(1, 6), size=int(rng.integers(1, 3)), replace=False)
    return tuple(f"act{i}" for i in sorted(chosen))


def mystery_network(seed: int = 0) -> tuple[Any, Any]:
    """Deal a network of lesson 8, in which one or two activations are wrong.

    Parameters
    ----------
    seed
        Another seed, other culprits.

    Returns
    -------
    tuple
        A module of five linear layers ``fc1`` to ``fc5`` and five activations ``act1``
        to ``act5``, and an input for it; float64.

    Examples
    --------
    >>> import torch
    >>> model, x = mystery_network()
    >>> model(x).shape
    torch.Size([6, 4])
    """
    torch: Any = sys.modules["torch"]
    culprits = _blamed(seed)
    activations = [
        _softsign(
            (lambda x: 1 / (1 + x.abs()))
            if f"act{i}" in culprits
            else (lambda x: 1 / (1 + x.abs()) ** 2)
        )
        for i in range(1, 6)
    ]
    model = _network([torch.nn.Linear] * 5, activations, seed)
    rng = np.random.default_rng([seed, 11])
    return model, torch.tensor(rng.normal(size=(6, 4)))


_PARAMETERS = tuple(f"fc{i}.{part}" for i in range(1, 6) for part in ("weight", "bias"))


def _only_weight() -> Iterable[str]:
    """Check a network whose fc4 doubles the gradient of its weight."""
    return _disagreeing(4, of_input=1.0)


def _disagreeing(guilty: int, *, of_input: float) -> set[str]:
    """Name the gradients that disagree where one of five linear layers slips."""
    torch: Any = sys.modules["torch"]
    kinds = [torch.nn.Linear] * 5
    kinds[guilty - 1] = _slipping_linear(of_input=of_input)
    model = _network(kinds, [torch.nn.Tanh() for _ in kinds], 0)
    x = torch.tensor(np.random.default_rng(0).normal(size=(5, 4)))
    report = check(model, x, loss=lambda out: (out**2).mean(), diagnose=False)
    table = report.table
    return set(table["input"][table["verdict"] == "DISAGREES"])


def _read() -> str:
    """Find the layer that explains the pattern of exercise 8.2, by trying each."""
    seen = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight"}
    found = (k for k in range(1, 6) if _disagreeing(k, of_input=2.0) == seen)
    return f"fc{next(found)}"


EXERCISES = {
    "7.1": Exercise(
        "a number of backward passes",
        number(
            lambda: 1 / (1 - 0.75),
            {
                "that is for the definition with the sum; the one with the maximum was "
                "used here": lambda _: 7.0,
                "a share of 3/4 is too much: how many parts are there in all?": (
                    lambda _: 3.0
                ),
            },
        ),
        "1 - 1/4 = 0.75: four passes were added up.",
    ),
    "7.2": Exercise(
        "the function train",
        _trained,
        "The gradient of the input is that of one backward pass, at the parameters "
        "that the training arrived at.",
    ),
    "8.1": Exercise(
        "a list of names",
        names(
            _only_weight,
            _PARAMETERS,
            "what does fc4 hand on to the layers before it: the gradient of its "
            "weight, or that of its input?",
        ),
        "Nobody uses the gradient of a weight but the optimiser: nothing is "
        "contaminated.",
    ),
    "8.2": Exercise(
        "the name of a layer",
        choice(
            _read,
            {
                "fc1": "fc1 is nearest to the input: it cannot spoil what lies behind",
                "fc2": "then fc3.weight would be right",
                "fc3": "what does it hand on?",
                "fc4": "then something of fc4 would be wrong, or all of fc3",
                "fc5": "then something of fc5 would be wrong, or all of fc4",
                "act1": "then fc2.weight would be right",
                "act2": "then fc3.weight would be right",
                "act3": "then fc3.bias would be wrong too",
                "act4": "then all of fc4 would be wrong",
                "act5": "then all of fc5 would be wrong",
            },
        ),
        "Its bias is right, so what arrives at fc3 is right; its weight and everything "
        "before it are wrong, so what it computes is not.",
    ),
    "8.3": Exercise(
        "a list of names of layers",
        lambda answer, seed: names(
            lambda: _blamed(seed),
            [f"{kind}{i}" for i in range(1, 6) for kind in ("fc", "act")],
            "a layer that is only contaminated has a right backward of its own",
        )(answer, seed),
        "The audit tries each layer on what it really received, so that a wrong "
        "gradient that was handed down does not count against it.",
    ),
}
