"""``logits.float()`` in bfloat16 widens: the copy in float64 goes on in float64."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")

from gradlab.subject.tensors.subjects import torch_subject  # noqa: E402

F = torch.nn.functional
SINGLE = torch.float32
SHORT = [torch.bfloat16, torch.float16]


def values(dtype, *shape, seed=0):
    """Normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def norm(x):
    """Normalise by the root of the mean square."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


# what the user wrote, and the same without casts
HARMLESS = {
    "float": (lambda x: x.float().sin(), torch.sin),
    "to": (lambda x: x.to(SINGLE).sin(), torch.sin),
    "to, by keyword": (lambda x: x.to(dtype=SINGLE).sin(), torch.sin),
    "type": (lambda x: x.type(SINGLE).sin(), torch.sin),
    "and back": (lambda x: x.float().sin().to(x.dtype), torch.sin),
    "softmax": (
        lambda x: F.softmax(x, -1, dtype=SINGLE),
        lambda x: F.softmax(x, -1),
    ),
    "sum": (lambda x: x.sum(dtype=SINGLE), torch.sum),
    "buffer": (lambda x: torch.zeros_like(x, dtype=SINGLE) + x.float(), torch.clone),
    "norm": (lambda x: norm(x.float()).type_as(x), norm),
}


@pytest.mark.parametrize("dtype", [*SHORT, torch.float32], ids=str)
@pytest.mark.parametrize("name", HARMLESS)
def test_cast_that_loses_nothing_is_left_out(name, dtype):
    """The copy computes the same in float64, from end to end."""
    (fn, exact), x = HARMLESS[name], values(dtype, 3, 4)

    double = torch_subject(fn, (x,)).in_double()

    assert double.outputs[0].dtype == "float64"
    wanted = exact(x.double()).flatten().numpy()
    assert double.row() == pytest.approx(wanted, rel=1e-14, abs=0)


@pytest.mark.parametrize(
    ("fn", "dtypes"),
    [
        (lambda x: x.bfloat16().sin(), [torch.float32]),
        (lambda x: x.half().sin(), [torch.float32]),
        (lambda x: x.half().sin(), [torch.bfloat16]),  # 1e5 is infinite there
        (lambda x: x.bfloat16().sin(), [torch.float16]),
        (lambda x, w: x * w.bfloat16(), [torch.bfloat16, torch.float32]),
        (lambda x, w: x + w.float(), [torch.bfloat16, torch.float64]),
    ],
)
def test_cast_that_loses_digits_of_an_input_stays(fn, dtypes):
    """A function that narrows has no copy in float64."""
    inputs = tuple(values(dtype, 3) for dtype in dtypes)

    assert torch_subject(fn, inputs).in_double() is None


@pytest.mark.parametrize("back", [torch.Tensor.double, torch.Tensor.float])
def test_cast_inside_float64_is_left_out_and_told(back):
    """In a float64 model ``.float()`` narrows: without it bars are narrow as well."""
    x = values(torch.float64, 4).requires_grad_()

    report = gl.check(lambda x: back(x.float().sin()), x)

    assert report.verdict == gl.Verdict.AGREES
    assert "in float64" in str(report)
    assert report.table.numeric_error.iloc[0] < 1e-9


def test_memory_of_the_cast_is_its_own():
    """``x.bfloat16().float()`` is a copy, and may be written to."""

    def fn(x):
        y = x.float()
        y.mul_(3)
        return y + x

    x = values(torch.bfloat16, 4)
    double = torch_subject(fn, (x,)).in_double()

    assert double.row() == pytest.approx(4 * x.double().numpy(), rel=1e-15)
    assert double.row() == pytest.approx(4 * x.double().numpy(), rel=1e-15)


class Scaled(torch.autograd.Function):
    """x sin(w) in single precision, whose gradient by x can be off by a factor."""

    factor = 1.0

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x.float() * w.float().sin()).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = g.float()
        by_x = Scaled.factor * g * w.float().sin()
        return by_x.to(x.dtype), (g * x.float() * w.float().cos()).to(w.dtype)


class Model(torch.nn.Module):
    """Two layers, a custom Function and a norm that computes in single precision."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.gain = torch.nn.Parameter(torch.linspace(0.3, 2.0, 8))
        self.last = torch.nn.Linear(8, 4)

    def forward(self, x):
        h = Scaled.apply(torch.tanh(self.first(x)), self.gain)
        return self.last(norm(h.float()).type_as(h))


def checked(dtype, factor, monkeypatch):
    """Check the model with a loss that casts, as training code does."""
    monkeypatch.setattr(Scaled, "factor", factor)
    torch.manual_seed(0)
    model, target = Model().to(dtype), torch.tensor([0, 3, 1])
    return gl.check(
        model,
        values(dtype, 3, 6),
        loss=lambda logits: F.cross_entropy(logits.float(), target),
    )


@pytest.mark.parametrize("dtype", [*SHORT, torch.float32], ids=str)
def test_right_gradient_of_a_model_that_casts_agrees(dtype, monkeypatch):
    """Measured in float64, in spite of ``logits.float()``."""
    report = checked(dtype, 1.0, monkeypatch)

    assert report.verdict == gl.Verdict.AGREES, report
    assert "evaluated in float64" in str(report)


@pytest.mark.thinned(2)
@pytest.mark.untraced
@pytest.mark.parametrize("dtype", [*SHORT, torch.float32], ids=str)
@pytest.mark.parametrize("factor", [1.05, 1.02, -1.0])
def test_wrong_gradient_of_a_model_that_casts_is_found(dtype, factor, monkeypatch):
    """Two percent are less than bfloat16 resolves, and show in float64."""
    report = checked(dtype, factor, monkeypatch)

    assert report.verdict == gl.Verdict.DISAGREES, report
    blamed = set(report.culprits)
    assert {"first.weight", "first.bias"} <= blamed, report
    assert not blamed & {"gain", "last.weight", "last.bias"}, report


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("factor", [1.0, 1.05])
def test_probes_see_the_same(dtype, factor, monkeypatch):
    """`gl.locate` measures with the same copy."""
    monkeypatch.setattr(Scaled, "factor", factor)
    x, w = values(dtype, 8), values(dtype, 8, seed=1)

    found = gl.locate(
        lambda x, w: Scaled.apply(x, w).float().pow(2).sum(),
        x.requires_grad_(),
        w.requires_grad_(),
    )

    assert set(found.table["input"]) == (set() if factor == 1 else {"x"})


class Filled(torch.autograd.Function):
    """A product by columns, written into room in float32; its backward may slip."""

    @staticmethod
    def forward(ctx, x, make, slip):
        ctx.save_for_backward(x)
        ctx.slip = slip
        out = make(x)
        for k in range(x.shape[1]):
            out[:, k] = x[:, k] * x[:, 0]
        return out

    @staticmethod
    def backward(ctx, up):
        (x,) = ctx.saved_tensors
        grad = up * x[:, :1]
        grad[:, 0] += (up * x).sum(1)
        return ctx.slip * grad.to(x.dtype), None, None


ROOMS = {
    "zeros": lambda x: torch.zeros(*x.shape, dtype=torch.float32),
    "empty": lambda x: torch.empty(x.shape, dtype=torch.float),
    "new_ones": lambda x: x.new_ones(x.shape, dtype=torch.float),
    "zeros_like": lambda x: torch.zeros_like(x, dtype=torch.float32),
}


@pytest.mark.parametrize("room", ROOMS)
def test_room_made_in_single_precision_rounds_nothing(room):
    """What is written there was followed by steps for float32, with bars of 1e-4."""
    x = values(torch.float64, 3, 2)
    report = gl.check(lambda x: Filled.apply(x, ROOMS[room], 1.0), x)

    assert report.verdict == gl.Verdict.AGREES
    assert report["x"].numeric_error.max() < 1e-8


def test_what_is_written_to_such_room_wrongly_is_found():
    x = values(torch.float64, 2, 2)
    slipped = lambda x: Filled.apply(x, ROOMS["zeros"], 1.0003)
    assert gl.check(slipped, x, diagnose=False).verdict == gl.Verdict.DISAGREES
