"""Inputs and outputs of torch subjects: which there are, and what they are called."""

from __future__ import annotations

import subprocess
import sys

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import gradlab as gl
from gradlab.errors import InputError, InputTypeError, SubjectError
from gradlab.subject.tensors.subjects import torch_subject
from gradlab.subject.tensors.values import is_torch, looks_like_module
from tests.specimens.torch_sides import (
    DOUBLE,
    assert_analytic_equals_differences,
    names_of,
    randn,
)

torch = pytest.importorskip("torch")


def test_nested_arguments_are_named_by_their_paths():
    """Dict keys, tuple positions and signatures make the names."""

    def f(params, xs, scale, y):
        return params["W"].sum() + params["cell"]["h"] * xs[1].sum() * y * scale

    params = {"W": randn(2, 3), "cell": {"h": randn()}}
    subject = torch_subject(f, (params, [randn(1), randn(2)], 2.0, randn()))

    assert names_of(subject) == ["W", "cell.h", "xs.0", "xs.1", "y"]


def test_tensors_that_require_grad_are_chosen_where_some_do():
    """One tensor that requires grad excludes those that do not."""
    subject = torch_subject(torch.mul, (randn(2, requires_grad=True), randn(2)))

    assert names_of(subject) == ["x0"]


def test_all_floating_and_complex_tensors_are_chosen_where_none_requires_grad():
    """Integers, booleans and Python values pass through untouched."""

    def f(x, index, z, mask, power):
        assert index.dtype == torch.int64
        assert mask.dtype == torch.bool
        return (x[index] * mask) ** power * z

    arguments = (
        randn(3),
        torch.tensor([0, 2]),
        randn(dtype=torch.complex64),
        torch.tensor([True, False]),
        2,
    )
    subject = torch_subject(f, arguments)

    assert names_of(subject) == ["x", "z"]
    assert subject.inputs[1].dtype == "complex64"
    assert len(subject.row()) == 4


def test_wrt_restricts_the_inputs():
    """Only the inputs asked for are perturbed, others keep their values."""
    subject = torch_subject(lambda x, w: x * w, (randn(2), randn(2)), wrt="w")

    assert names_of(subject) == ["w"]


def test_wrt_may_name_an_argument_that_does_not_require_grad():
    """An explicit wish beats the rule of requires_grad."""
    module = torch.nn.Linear(2, 1)
    subject = torch_subject(module, (torch.ones(1, 2),), wrt=["input", "bias"])

    assert names_of(subject) == ["bias", "input"]
    assert len(subject.analytic.pull(np.ones((1, 1))).values[1][0]) == 2


def test_unknown_wrt_lists_what_there_is():
    """A misspelt name is answered with the names that exist."""
    with pytest.raises(InputError, match=r"\['v'\].*\['x', 'w'\]"):
        torch_subject(lambda x, w: x * w, (randn(2), randn(2)), wrt=["v"])


def test_names_rename_and_wrt_understands_them():
    """`names=` replaces the names, for `wrt=` as well."""
    arguments = (randn(2), randn(2))
    subject = torch_subject(torch.mul, arguments, names=["a", "b"], wrt="b")

    assert names_of(subject) == ["b"]


def test_no_differentiable_input_is_refused():
    """Integers only: one sentence says so, and how to get further."""
    with pytest.raises(InputError, match=r"no differentiable input.*double"):
        torch_subject(lambda n: n * 2, (torch.arange(3),))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"loss": 3}, "loss must be callable, got int 3"), ({"mode": "up"}, "'up'")],
)
def test_bad_options_are_refused(options, message):
    """Options of the wrong kind are named with their values."""
    with pytest.raises((InputError, InputTypeError), match=message):
        torch_subject(torch.sin, (randn(2),), **options)


def test_real_coordinates_of_complex_inputs_interleave():
    """Real and imaginary part of an entry are neighbours."""
    subject = torch_subject(lambda z: z, (torch.tensor([1 + 2j, 3 + 4j]),))

    assert subject.point(0).tolist() == [1, 2, 3, 4]
    subject.coordinates(0)[3] = 9.0
    assert subject.row().tolist() == [1, 3, 2, 9]


def test_complex_outputs_are_split_into_real_and_imaginary_part():
    """All real parts come first, then all imaginary ones, as two outputs."""
    subject = torch_subject(lambda z: (z, z.abs()), (randn(2, dtype=torch.complex128),))
    subject.row()

    names = [(variable.name, variable.dtype) for variable in subject.outputs]
    assert names == [
        ("out.0.real", "float64"),
        ("out.0.imag", "float64"),
        ("out.1", "float64"),
    ]


def test_outputs_that_cannot_be_differentiated_are_ignored_anywhere():
    """Indices, flags, None and numbers among the outputs are passed over."""

    def f(x):
        best, where = x.max(0)
        return {"a": (where, best), "b": [None, 3.0, x.sum()], "c": x > 0}

    subject = torch_subject(f, (randn(4),))

    assert [variable.name for variable in subject.outputs] == ["out.a.1", "out.b.2"]


def test_function_without_tensor_output_is_refused():
    """A float is not something that autograd could differentiate."""
    with pytest.raises(SubjectError, match=r"float.*item"):
        torch_subject(lambda x: x.sum().item(), (randn(2),)).row()


def test_outputs_that_change_their_shape_are_refused():
    """A Jacobian needs a fixed number of rows."""
    subject = torch_subject(lambda x: x[x > 0], (torch.ones(3, dtype=DOUBLE),))
    subject.row()
    subject.coordinates(0)[1] = -1.0

    with pytest.raises(SubjectError, match=r"\(3,\).*then.*\(2,\)"):
        subject.row()


def test_inference_mode_is_refused():
    """Autograd does not exist there, so there is nothing to check."""
    with torch.inference_mode(), pytest.raises(InputError, match="outside"):
        torch_subject(torch.sin, (randn(2),))


def test_an_audit_refuses_inference_mode_as_well():
    """It would find a right layer detached."""
    layer = torch.nn.Linear(3, 2)
    with torch.inference_mode(), pytest.raises(InputError, match="outside"):
        gl.blame(layer, torch.ones(4, 3))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 2, 3)])
def test_every_shape_goes_through(shape):
    """0-d, empty and plain tensors have the coordinates they should have."""
    subject = torch_subject(torch.sin, (randn(*shape),))

    assert len(subject.coordinates(0)) == int(np.prod(shape))
    assert_analytic_equals_differences(subject)


def test_strides_are_kept():
    """A non-contiguous tensor is perturbed as a non-contiguous tensor."""
    seen = []

    def f(x):
        seen.append(x.stride())
        return x * 2

    source = randn(4, 6)[:, ::2].t()
    subject = torch_subject(f, (source,))
    subject.row()

    assert set(seen) == {source.stride()}
    coordinates = subject.coordinates(0)
    flat = source.reshape(-1)
    assert [coordinates[i] for i in range(12)] == flat.tolist()


def test_expanded_tensors_are_spread_out_and_remembered():
    """Every entry of an expanded tensor can be moved by itself."""
    subject = torch_subject(lambda x: x * 1.0, (torch.ones(1).expand(3),))
    subject.coordinates(0)[1] = 5.0

    assert subject.row().tolist() == [1, 5, 1]
    assert subject.aliased == ("x",)


def test_inputs_that_share_memory_are_separated_and_remembered():
    """The same memory twice is two inputs, each with its own derivative."""
    x = randn(4)
    subject = torch_subject(lambda a, b: a * b, (x[:3], x[1:]))
    subject.coordinates(0)[1] = 0.0

    assert subject.row()[1] == 0
    assert subject.row()[0] == pytest.approx(float(x[0] * x[1]))
    assert subject.shared == (("a", "b"),)


@pytest.mark.parametrize(
    "sparse",
    [
        lambda x: x.to_sparse(),
        lambda x: x.to_sparse_csr(),
        lambda x: x.to_sparse_csc(),
        lambda x: x.to_sparse_bsr((2, 2)),
        lambda x: x.to_sparse_bsc((2, 2)),
    ],
    ids=["coo", "csr", "csc", "bsr", "bsc"],
)
def test_sparse_inputs_have_their_stored_values_as_coordinates(sparse):
    """The support names the flat positions of the stored values, in order."""
    dense = torch.tensor([[1.0, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]])
    subject = torch_subject(lambda s: s.to_dense(), (sparse(dense),))

    variable = subject.inputs[0]
    assert variable.shape == (4, 4)
    flat = dense.reshape(-1).numpy()
    assert subject.point(0).tolist() == flat[variable.support].tolist()
    subject.coordinates(0)[0] = 10.0
    changed = np.flatnonzero(subject.row() != flat)
    assert changed.tolist() == [variable.support[0]]


def coo(indices, values, shape):
    """Sparse tensor whose indices are checked, or torch warns."""
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)


def test_uncoalesced_entries_are_added_up_first():
    """Two stored values at one place are one coordinate."""
    twice = coo([[1, 1, 0]], torch.tensor([1.0, 2.0, 5.0]), (3,))
    subject = torch_subject(lambda s: s.to_dense(), (twice,))

    assert subject.inputs[0].support.tolist() == [0, 1]
    assert subject.point(0).tolist() == [5, 3]


def test_hybrid_sparse_tensors_count_every_stored_number():
    """A sparse tensor with dense rows has a coordinate for each stored number."""
    hybrid = coo([[0, 2]], randn(2, 3), (4, 3))
    subject = torch_subject(lambda s: s.to_dense() ** 2, (hybrid,))

    assert subject.inputs[0].support.tolist() == [0, 1, 2, 6, 7, 8]
    assert_analytic_equals_differences(subject)


def test_tensors_without_numbers_are_refused():
    """Of a tensor on the device meta there is only the shape."""
    with pytest.raises(InputTypeError, match="'x' is on the device meta"):
        torch_subject(lambda x: 2 * x, (torch.ones(3, device="meta"),))


def test_nested_tensors_are_refused():
    """A layout without plain entries is named, with what to do instead."""
    nested = torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    )
    with pytest.raises(InputTypeError, match=r"'x' is a nested tensor"):
        torch_subject(lambda x: x, (nested,))


def test_questions_about_torch_do_not_import_it():
    """NumPy users are not made to wait for torch."""
    code = (
        "import sys, numpy; "
        "from gradlab.subject.tensors.values import is_torch, looks_like_module; "
        "import gradlab.subject.tensors.subjects; "
        "print(is_torch(numpy.ones(2)), looks_like_module(len), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False", "False", "False"]
    assert is_torch(torch.ones(1))
    assert looks_like_module(torch.nn.Linear(1, 1))


LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.t(),
    "sliced": lambda x: x[::2, 1:],
    "column": lambda x: x[:, 0],
    "expanded": lambda x: x[:1].expand(3, 5),
    "flipped": lambda x: x.flip(0),
    "conjugated": lambda x: torch.complex(x, x + 1).conj(),
    "imaginary": lambda x: torch.complex(x, x).conj().imag,
    "scalar": lambda x: x[0, 0],
    "empty": lambda x: x[:0],
}

leaves = st.sampled_from(sorted(LAYOUTS))
nestings = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3)
    ),
    max_leaves=4,
)


def build(nesting):
    """Tensors in the places of the words."""
    if isinstance(nesting, dict):
        return {key: build(part) for key, part in nesting.items()}
    if isinstance(nesting, list | tuple):
        return type(nesting)(build(part) for part in nesting)
    return LAYOUTS[nesting](randn(4, 5))


def total(nested):
    """Something nonlinear of everything in it."""
    if isinstance(nested, dict):
        return sum(i * total(v) for i, v in enumerate(nested.values(), 1))
    if isinstance(nested, list | tuple):
        return sum(i * total(v) for i, v in enumerate(nested, 1))
    return (nested * nested.conj()).real.sum() + torch.sin(nested).real.sum()


@hypothesis.given(nestings)
def test_any_nesting_of_any_layout_is_differentiated(nesting):
    """Names are distinct, the value is the user's, autograd and differences agree."""
    argument = build(nesting)
    subject = torch_subject(total, (argument,))

    assert len(set(names_of(subject))) == len(names_of(subject))
    assert subject.row() == pytest.approx(float(total(argument)), rel=1e-12, abs=1e-12)
    assert_analytic_equals_differences(subject, tolerance=1e-6)
