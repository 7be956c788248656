"""Models that are handed a sparse matrix, as graph networks are, as a constant."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import gradlab as gl


class Convolution(nn.Module):
    """A (x W), with the neighbours A as a sparse matrix."""

    def __init__(self, cut):
        super().__init__()
        self.weight, self.cut = nn.Parameter(torch.randn(3, 2)), cut

    def forward(self, x, adjacency):
        """Mix the rows of x W."""
        weight = self.weight.data if self.cut else self.weight
        return torch.mm(adjacency, x @ weight) + 0 * self.weight.sum()


class Graph(nn.Module):
    """One convolution inside another module, whose own code hands the matrix on."""

    def __init__(self, cut=False):
        super().__init__()
        torch.manual_seed(0)
        self.convolution = Convolution(cut)

    def forward(self, x, adjacency):
        """Call the one inside."""
        return self.convolution(x, adjacency)


@pytest.fixture(params=["coo", "csr"])
def adjacency(request):
    """Four nodes in a ring, each with itself."""
    dense = torch.eye(4) + torch.eye(4).roll(1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its CSR is in beta
        return dense.to_sparse() if request.param == "coo" else dense.to_sparse_csr()


def test_the_matrix_is_a_constant(adjacency):
    """The gradient of a sum of squares is 2 (A x)^T (A x W)."""
    model, x = Graph(), torch.randn(4, 3)
    report = gl.check(model, x, adjacency, loss=lambda out: (out**2).sum())
    assert report.verdict.name == "AGREES"
    mixed = adjacency.to_dense() @ x
    right = 2 * mixed.T @ mixed @ model.convolution.weight.detach()
    found = report["convolution.weight"].numeric.reshape(3, 2)
    assert torch.allclose(torch.tensor(found), right.double(), rtol=1e-4)


@pytest.mark.parametrize("door", [gl.check, gl.blame])
def test_a_cut_beside_it_is_found_and_no_layer_left_unchecked(adjacency, door):
    """The module around the wrong one can be run by itself, matrix or not."""
    found = door(Graph(cut=True), torch.randn(4, 3), adjacency, loss=torch.sum)
    assert found.culprits[0] == "convolution"
    assert [f.kind for f in found.findings if f.severity != "note"] == ["detached"]
