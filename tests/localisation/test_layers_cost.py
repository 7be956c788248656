"""What an audit costs: how often layers are run that have nothing to do with a mistake.

Counted in forward calls of one layer, which is torch's own, so that one probe is
enough for it: the recorded run, its vector-Jacobian product, and two moved calls.
"""

from __future__ import annotations

import pytest

import gradlab as gl
from tests.localisation.networks import Swish
from tests.specimens.functions import bent, with_backward

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

nn = torch.nn

RIGHT = 4
TOGETHER = 5  # once more with all that is inside: a VJP, and two probes of two calls


linear = with_backward(
    lambda x, weight, factor: x @ weight.T,
    lambda x, weight, factor, upstream: (
        upstream @ weight,
        factor * upstream.T @ x,
        None,
    ),
)


class Handing(nn.Module):
    """Hands its weight to a Function."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(7, 5, dtype=torch.float64))
        self.factor = factor

    def forward(self, x):
        return linear(x, self.weight, self.factor)


class HandingUnseen(Handing):
    """The same, where autograd does not record."""

    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


class Clones(TorchDispatchMode):
    """Counts copies of tensors of one shape."""

    def __init__(self, shape):
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        copied = func.overloadpacket is torch.ops.aten.clone
        self.count += copied and args[0].shape == self.shape
        return func(*args, **(kwargs or {}))


class Residual(nn.Module):
    """A block whose own code adds, and forgets half of the gradient where it cuts."""

    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(4, 8), Swish(), nn.Linear(8, 4)
        self.cut = False

    def forward(self, x):
        return (x.detach() if self.cut else x) + self.down(self.act(self.up(x)))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.blocks = nn.Sequential(*(Residual() for _ in range(4)))

    def forward(self, x):
        return self.blocks(self.first(x).tanh()).square().mean()


class Counted:
    """Counts the forward calls of a layer."""

    def __init__(self, layer):
        self.calls = 0
        forward = layer.forward

        def counting(*args):
            self.calls += 1
            return forward(*args)

        layer.forward = counting


@pytest.fixture
def model():
    torch.manual_seed(2)
    return Deep().double()


def calls(model, layer):
    """How often an audit of a model runs a layer; the audit."""
    counted = Counted(layer)
    audit = gl.blame(model, torch.randn(5, 3, dtype=torch.float64))
    return counted.calls, audit


def test_each_layer_of_a_right_model_is_run_four_times(model):
    """What cuts the graph is looked for in code between layers, not in a run of all."""
    for block in model.blocks:
        block.act = nn.SiLU()

    count, audit = calls(model, model.first)

    assert audit.culprits == ()
    assert count == RIGHT


def test_where_somebody_wrote_a_backward_all_is_run_together_as_well(model):
    """A Function that is right by itself may spoil what another call counts on."""
    count, audit = calls(model, model.first)

    assert audit.culprits == ()
    assert count == RIGHT + TOGETHER


@pytest.mark.parametrize("block", [1, 3])
def test_a_wrong_function_has_layers_run_again_only_in_its_block(model, block):
    """The parameters just before it move it within the reach of the model."""
    model.blocks[block].act.slip = "slip of 0.1 %"

    count, audit = calls(model, model.first)

    assert audit.culprits == (f"blocks.{block}.act",)
    assert count == RIGHT


def test_many_wrong_functions_have_no_layer_run_more_often_for_each_other(model):
    """Four mistakes cost what they cost in four blocks by themselves."""
    for block in model.blocks:
        block.act.slip = "sign"

    count, audit = calls(model, model.first)

    assert sorted(audit.culprits) == [f"blocks.{k}.act" for k in range(4)]
    assert count == RIGHT


def test_a_wrong_sum_is_moved_by_the_block_before_it(model):
    """All is run once more to name the line that cuts the graph, once for a look."""
    model.blocks[3].cut = True

    count, audit = calls(model, model.first)

    assert audit.culprits == ("blocks.3",)
    assert count == RIGHT + 2


def test_a_weight_that_is_handed_to_a_function_is_copied_nowhere():
    """To hand on a parameter is nothing that could be wrong."""
    model = Handing()
    state_guard = 1  # the user's own is saved once, to be put back

    with Clones(model.weight.shape) as clones:
        audit = gl.blame(model, torch.randn(3, 5, dtype=torch.float64))

    assert audit.culprits == ()
    assert clones.count <= state_guard


def test_a_hook_on_a_weight_that_is_handed_to_a_function_is_found():
    """It hangs between the parameter and the Function, which is right."""
    model = Handing()
    model.weight.register_hook(lambda gradient: 3 * gradient)

    audit = gl.blame(model, torch.randn(3, 5, dtype=torch.float64))

    assert audit.culprits == ("Handing",)
    assert "hook" in audit.findings[0].evidence


def test_a_weight_that_is_handed_over_unrecorded_is_found():
    """What no_grad cuts is wrong, although the Function is right."""
    audit = gl.blame(HandingUnseen(), torch.randn(3, 5, dtype=torch.float64))

    assert audit.culprits == ("HandingUnseen",)


def test_a_function_wrong_by_a_weight_that_it_is_given_is_named():
    """Each entry of a parameter moves by itself, so nothing has to show its reach."""
    model = nn.Sequential(nn.Linear(3, 5).double(), Handing(0.5))

    count, audit = calls(model, model[0])

    assert audit.culprits == ("1",)
    assert audit.findings[0].kind == gl.BugKind.SCALE
    assert count == RIGHT


def test_a_kink_within_the_first_step_is_passed_by_a_shorter_one():
    """One entry of a thousand close to zero costs two runs more, and no doubt."""
    layer = nn.Sequential(nn.ReLU())
    x = torch.linspace(-1, 1, 1000, dtype=torch.float64)
    x[500] = 1e-6
    x.requires_grad_()

    audit = gl.blame(layer, x)

    assert audit.culprits == ()
    assert audit.evaluations == 5


def test_calls_of_a_loop_share_the_runs_beside_the_point(monkeypatch):
    """A wrong Function at each step of a loop: the model is run to either side once."""
    from gradlab.localisation.layers.checking import reach

    class Recurrent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = torch.nn.Linear(3, 3)

        def forward(self, x):
            for _ in range(6):
                x = bent(self.cell(x), 0.5)
            return x

    torch.manual_seed(0)
    runs = []
    plain = reach.calls_again
    monkeypatch.setattr(
        reach, "calls_again", lambda program: runs.append(None) or plain(program)
    )
    audit = gl.blame(Recurrent().double(), torch.randn(2, 3, dtype=torch.float64))

    assert len(audit.culprits) == 1
    assert len(runs) == 2
