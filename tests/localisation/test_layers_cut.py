"""Weights of layers that are read and never called, cut from the graph or not."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
nn = torch.nn


class Tied(nn.Module):
    """A language model whose head reads the weight of a layer it never calls."""

    def __init__(self, cut):
        super().__init__()
        self.cut = cut
        self.embedding = nn.Embedding(7, 4)
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, words):
        hidden = torch.tanh(self.body(self.embedding(words)))
        weight = self.head.weight.data if self.cut else self.head.weight
        return nn.functional.linear(hidden, weight).log_softmax(-1)


class Listed(nn.Module):
    """Eleven weights in a list, of which one may be cut."""

    def __init__(self, cut):
        super().__init__()
        self.cut = cut
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(2)) for _ in range(11))

    def forward(self, x):
        parts = [
            torch.sin(x + k) * (weight.detach() if self.cut and k == 4 else weight)
            for k, weight in enumerate(self.weights)
        ]
        return torch.stack(parts).sum(0)


class Contrast(nn.Module):
    """Cross-entropy of cosines; its targets stay in float32, whatever is raised."""

    def __init__(self, cut):
        super().__init__()
        self.cut = cut
        self.others = nn.Parameter(torch.randn(3, 4))
        self.targets = [nn.functional.normalize(torch.randn(6, 4), dim=1)]

    def forward(self, x):
        others = self.others.detach() if self.cut else self.others
        rows = nn.functional.normalize(torch.cat([x, others]), dim=1)
        logits = rows @ self.targets[0].T / 0.07
        return nn.functional.cross_entropy(logits, torch.arange(6))


MODELS = {
    "tied": (Tied, lambda: torch.tensor([[1, 2, 3], [4, 5, 1]])),
    "listed": (Listed, lambda: torch.randn(2)),
    "contrast": (Contrast, lambda: torch.randn(3, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_answers_for_the_weights_that_it_reads(name):
    """What it cuts is its own mistake, although the weight is in no graph."""
    make, point = MODELS[name]
    for seed in range(3):
        torch.manual_seed(seed)
        x = point()

        assert not gl.blame(make(cut=False), x).culprits
        assert gl.blame(make(cut=True), x).culprits == (make.__name__,)
