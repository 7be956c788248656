"""Large models in float64, a few parameters at a time: the same numbers as all at once.

The truth is the same model after ``.double()``, which gradlab has no part in.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest

from gradlab.differentiation.lines.directions import Direction, unit_of
from gradlab.differentiation.lines.parts import whole
from gradlab.differentiation.lines.walk import Walk

torch = pytest.importorskip("torch")

from gradlab.subject.tensors.in_double.transient_parameters import Loan, Rooms  # noqa: E402
from gradlab.subject.tensors.subjects import torch_subject  # noqa: E402

WIDTH = 1500  # two layers: 18 MB in float32, from 16 MiB on parameters are lent


def square(out):
    """Curved in every output."""
    return (out**2).mean()


class Tied(torch.nn.Module):
    """One weight in two layers."""

    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.two = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.one(x).tanh() * self.two(x)


class Rolled(torch.nn.Module):
    """Three layers, read again at every time step."""

    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList(
            torch.nn.Linear(WIDTH, WIDTH) for _ in range(3)
        )

    def forward(self, x):
        for _ in range(5):
            for part in self.parts:
                x = part(x).tanh()
        return x


class Curious(torch.nn.Module):
    """Reads its parameters in all the ways that a dictionary can be read."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2 * WIDTH, WIDTH) / 40)
        self.bias = torch.nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):
        table = self._parameters
        ways = [
            table["weight"],
            table.get("weight"),
            dict(table)["weight"],
            {**table}["weight"],
            table.copy()["weight"],
            next(iter(table.values())),
            dict(self.named_parameters())["weight"],
            self.state_dict()["weight"],
            self.weight.view(-1)[: self.weight.numel()].view_as(self.weight),
        ]
        assert table.get("nothing") is None
        assert len(table.items()) == len(table) == 2
        return sum((k + 1) * (x @ way.T).sum() for k, way in enumerate(ways)) + (
            x * self.bias
        )


def stack():
    """Layers with and without a bias, a norm."""
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 2 * WIDTH),
        torch.nn.Tanh(),
        torch.nn.LayerNorm(2 * WIDTH),
        torch.nn.Linear(2 * WIDTH, 4, bias=False),
    )


def sides(model):
    """Make the subject that is lent its parameters, and that of the truth."""
    torch.manual_seed(1)
    x = torch.randn(2, WIDTH)
    subject = torch_subject(model, (x,), loss=square)
    subject.row()
    wide = copy.deepcopy(model).double()
    truth = torch_subject(wide, (x.double(),), loss=square)
    return subject.in_double(), truth


def along(subject, steps):
    """Values of a subject at some places on one line, and at the point again."""
    units = tuple(unit_of(subject, k) for k in range(len(subject.inputs)))
    walk = Walk(subject, Direction(5, whole(subject), units, pooled=True))
    found = []
    for step in steps:
        walk.to(step)
        found.append(subject.row())
    walk.back()
    return np.array([*found, subject.row()])


@pytest.mark.parametrize("make", [stack, Tied, Curious])
def test_values_are_those_of_the_model_in_float64(make):
    """To the last bit, displaced and at the point, and nothing is copied for it."""
    torch.manual_seed(0)
    lent, truth = sides(make())
    steps = [2.0**-20, -(2.0**-20), 0.25]

    np.testing.assert_array_equal(along(lent, steps), along(truth, steps))
    assert all(cell.parked for cell in lent.cells)


def test_what_asks_for_a_copy_gets_it_displaced():
    """A gradient half way along a line is that of the model there."""
    lent, truth = sides(stack())
    for subject in (lent, truth):
        units = tuple(unit_of(truth, k) for k in range(len(truth.inputs)))
        Walk(subject, Direction(5, whole(subject), units, pooled=True)).to(0.25)
    one, other = (s.analytic.pull(np.ones((1, 1))) for s in (lent, truth))

    for mine, theirs in zip(one.values, other.values, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_one_coordinate_alone_is_displaced_like_any_other():
    """And put back: entries are measured one by one after a search."""
    lent, truth = sides(stack())
    before = lent.row()
    for subject in (lent, truth):
        subject.coordinates(0)[7] += 0.5

    np.testing.assert_array_equal(lent.row(), truth.row())
    lent.place(0, None)
    np.testing.assert_array_equal(lent.row(), before)


def test_a_loop_over_time_finds_all_of_them_there():
    """What is read again and again had better not be made again and again."""
    lent, truth = sides(Rolled())

    assert not any(cell.parked for cell in lent.cells)
    np.testing.assert_array_equal(along(lent, [0.25]), along(truth, [0.25]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.nn.LSTM(WIDTH, 800, batch_first=True),
        lambda: torch.nn.Sequential(torch.nn.Linear(WIDTH, 8)),
    ],
)
def test_what_keeps_lists_of_its_own_or_is_small_is_copied(make):
    """A recurrent layer of torch reads its weights from a list, not from its table."""

    class First(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = make()

        def forward(self, x):
            out = self.part(x)
            return out[0] if isinstance(out, tuple) else out

    lent, truth = sides(First())

    assert not any(cell.parked for cell in lent.cells)
    np.testing.assert_array_equal(along(lent, [0.25]), along(truth, [0.25]))


def test_the_module_is_as_it_was():
    """Its tables are its own dictionaries, with its own parameters."""
    model = stack()
    tables = [(part, part._parameters) for part in model.modules()]
    own = dict(model.named_parameters())
    lent, _ = sides(model)
    along(lent, [0.25])

    assert all(part._parameters is table for part, table in tables)
    assert all(own[name] is p for name, p in model.named_parameters())
    assert not any(isinstance(p, Loan) for p in own.values())


def test_a_room_is_not_used_again_while_a_view_of_it_lives():
    """The tensor is gone, a slice of it is not."""
    rooms = Rooms()
    kept = torch.from_numpy(rooms.take(20_000)).view(100, 200)[3]
    kept[:] = 1.0
    torch.from_numpy(rooms.take(20_000))[:] = 2.0

    assert (kept == 1.0).all()
