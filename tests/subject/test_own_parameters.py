"""Modules that look at, assign or overwrite their own parameters inside forward."""

from __future__ import annotations

import pytest

import gradlab as gl
from gradlab.diagnosis.finding import BugKind
from tests.specimens.functions import with_backward

torch = pytest.importorskip("torch")
nn = torch.nn


class Layer(nn.Module):
    """A layer with a prologue before it computes."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(4)
        self.weight = nn.Parameter(torch.randn(3, 2, generator=generator).double())
        self.bias = nn.Parameter(torch.randn(2, generator=generator).double())

    def forward(self, x):
        self.before()
        return torch.tanh(x @ self.weight + self.bias).pow(2).sum()

    def before(self):
        """Do nothing."""


class AssignsInPlace(Layer):
    def before(self):
        with torch.no_grad():
            self.weight *= 1.0


class AsksForTypes(Layer):
    def before(self):
        own = list(self.parameters())
        if len(own) != 2 or not all(type(one) is nn.Parameter for one in own):
            raise TypeError("these are not my parameters")


class RegistersAgain(Layer):
    def before(self):
        self.register_parameter("weight", self.weight)
        self.second = self.bias


class ListsThem(Layer):
    def forward(self, x):
        weight, bias = nn.ParameterList([self.weight, self.bias])
        return torch.tanh(x @ weight + bias).pow(2).sum()


class Normalised(Layer):
    def before(self):
        with torch.no_grad():
            self.weight /= self.weight.norm()


class NormalisedData(Layer):
    def before(self):
        self.weight.data = self.weight.data / self.weight.data.norm()


class Clipped(Layer):
    def before(self):
        self.weight.data.clamp_(-0.5, 0.5)


def inputs(dtype=torch.float64):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(4, 3, generator=generator).to(dtype)


def snapshot(module):
    """Everything that a check might leave changed."""
    tables = {name: set(vars(part)) for name, part in module.named_modules()}
    own = {
        name: (id(p), p._version, p.detach().numpy().tobytes(), p.requires_grad, p.grad)
        for name, p in module.named_parameters()
    }
    return tables, own


HARMLESS = [AssignsInPlace, AsksForTypes, RegistersAgain, ListsThem]
WRITING = [Normalised, NormalisedData]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("kind", HARMLESS)
def test_stand_ins_of_parameters_are_parameters(kind, coverage, dtype):
    """What forward asks of or does with its own parameters works in a check too."""
    module = kind().to(dtype)
    before = snapshot(module)

    report = gl.check(module, inputs(dtype), coverage=coverage)

    assert report.verdict == gl.Verdict.AGREES
    assert snapshot(module) == before


@pytest.mark.parametrize("kind", HARMLESS)
def test_stand_ins_are_parameters_in_second_derivatives(kind):
    """The backward of the backward runs the same forward."""
    assert gl.check(kind(), inputs(), order=2).verdict == gl.Verdict.AGREES


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("kind", WRITING)
def test_parameters_that_forward_overwrites_are_told(kind, coverage):
    """Autograd takes the write for none: nothing can be compared, and no one errs."""
    module = kind()
    before = snapshot(module)

    report = gl.check(module, inputs(), coverage=coverage)

    assert report.ok
    assert report.verdict == gl.Verdict.UNDECIDED
    assert report["bias"].verdict == gl.Verdict.AGREES
    found = [f for f in report.findings if f.where == "weight"]
    assert [f.kind for f in found] == [BugKind.SURROGATE]
    assert "overwrites all entries of weight" in found[0].evidence
    assert snapshot(module) == before


@pytest.mark.parametrize("kind", WRITING)
def test_writes_that_were_made_before_count_as_well(kind):
    """A norm that is one already is not written to at the point, but beside it."""
    module = kind()
    with torch.no_grad():
        module.weight /= module.weight.norm()

    report = gl.check(module, inputs())

    assert report.ok
    assert report.verdict == gl.Verdict.UNDECIDED


@pytest.mark.parametrize("kind", WRITING)
def test_sweeps_do_not_compare_overwritten_parameters(kind):
    """No step is the right one for a slope that every evaluation writes over."""
    sweep = gl.sweep(kind(), inputs())

    assert sweep.verdicts["weight"] == gl.Verdict.UNDECIDED
    assert sweep.reading["weight"].startswith("not compared: The gradient is not the")
    assert sweep.verdicts["bias"] == gl.Verdict.AGREES


def test_only_overwritten_entries_are_excused():
    """A slip in an entry that clipping leaves alone is a slip."""
    slip = with_backward(
        lambda w: w.clone(),
        lambda _w, g: g * torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 3.0]]).double(),
    )

    class Wrong(Clipped):
        def forward(self, x):
            self.before()
            return torch.tanh(x @ slip(self.weight)).pow(2).sum()

    module = Wrong()
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[2.0, -2.0], [0.1, 0.2], [0.3, 0.4]]))
    report = gl.check(module, inputs(), wrt="weight")

    verdicts = report["weight"].verdicts[0]
    assert [gl.Verdict(v).name for v in verdicts] == [
        *["UNDECIDED"] * 2,
        *["AGREES"] * 3,
        "DISAGREES",
    ]


@pytest.mark.parametrize("kind", [*HARMLESS, *WRITING, Clipped])
def test_audits_accuse_no_layer_that_writes_to_its_parameters(kind):
    """The gradient is that at the values written: what torch defines it to be."""
    module = nn.Sequential(nn.Linear(3, 3).double(), kind())
    before = snapshot(module)

    blame = gl.blame(module, inputs())

    assert blame.culprits == ()
    assert snapshot(module) == before


@pytest.mark.parametrize("through", ["no_grad", "data", "numpy"])
def test_unrecorded_writes_to_inputs_are_the_cause(through):
    """A function that normalises its input behind autograd's back loses a slope."""

    def function(x):
        if through == "no_grad":
            with torch.no_grad():
                x /= x.norm()
        elif through == "data":
            x.data = x.data / x.data.norm()
        else:
            array = x.detach().numpy()
            array /= (array**2).sum() ** 0.5
        return (x**3).sum()

    finding = gl.check(function, inputs()[0].clone()).findings[0]

    assert (finding.kind, finding.where) == (BugKind.DETACHED, "x")
    assert "overwrites all entries of x" in finding.evidence


class ReadsTheLayer(torch.autograd.Function):
    """Takes a layer's weights for their gradients' sake; computes with the layer."""

    @staticmethod
    def forward(ctx, x, layer, factor, *weights):
        ctx.save_for_backward(x, *weights)
        ctx.factor = factor
        return layer(x)

    @staticmethod
    def backward(ctx, upstream):
        x, weight, _ = ctx.saved_tensors
        own = ctx.factor * upstream.t() @ x, upstream.sum(0)
        return upstream @ weight, None, None, *own


@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_weights_that_a_forward_reads_by_itself_are_moved_there(factor, coverage):
    """What an unrecorded forward reads through a layer moves with its argument."""
    generator = torch.Generator().manual_seed(3)
    layer = nn.Linear(3, 2).double()
    x = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    before = [weight.detach().clone() for weight in layer.parameters()]

    def reads(x, weight, bias):
        return ReadsTheLayer.apply(x, layer, factor, weight, bias).sin()

    report = gl.check(reads, x, layer.weight, layer.bias, coverage=coverage)

    assert report.culprits == (() if factor == 1.0 else ("weight",))
    assert all(map(torch.equal, layer.parameters(), before))
    assert layer.weight.grad is None


class CallsAgain(torch.autograd.Function):
    """Differentiates its layer in backward, by the weights that it was handed."""

    @staticmethod
    def forward(ctx, x, layer, factor, *weights):
        ctx.save_for_backward(x, *weights)
        ctx.layer, ctx.factor = layer, factor
        return layer(x).sin()

    @staticmethod
    def backward(ctx, upstream):
        x, *weights = ctx.saved_tensors
        with torch.enable_grad():
            there = x.detach().requires_grad_()
            found = torch.autograd.grad(
                ctx.layer(there).sin(), (there, *weights), upstream, allow_unused=True
            )
        by_x, by_weight, by_bias = found
        by_weight = None if by_weight is None else ctx.factor * by_weight
        return by_x, None, None, by_weight, by_bias


class Adjoint(nn.Module):
    """Hands its layer and the weights of it to such a function."""

    def __init__(self, factor):
        super().__init__()
        torch.manual_seed(5)
        self.layer, self.factor = nn.Linear(3, 2).double(), factor

    def forward(self, x):
        return CallsAgain.apply(x, self.layer, self.factor, *self.layer.parameters())


@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize("coverage", ["full", "probe"])
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_backward_that_calls_the_layer_again_finds_its_own_weights(
    factor, coverage, as_function
):
    """Adjoint solvers call the model in backward: the same weights stand there."""
    model = Adjoint(factor)
    x = torch.ones(4, 3, dtype=torch.float64).cumsum(0).sin().requires_grad_()
    weights = list(model.parameters())
    before = [weight.detach().clone() for weight in weights]

    if as_function:
        report = gl.check(lambda x, *_: model(x), x, *weights, coverage=coverage)
    else:
        report = gl.check(model, x, coverage=coverage, diagnose=False)

    wrong = {
        c.input.name for c in report.comparisons if c.verdict == gl.Verdict.DISAGREES
    }
    assert len(wrong) == (0 if factor == 1.0 else 1)
    assert "x" not in wrong
    assert all(map(torch.equal, model.parameters(), before))
    assert all(one is two for one, two in zip(model.parameters(), weights, strict=True))
