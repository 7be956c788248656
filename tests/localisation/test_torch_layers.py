"""Layers of torch that are right are not accused, by a check or by an audit."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import gradlab as gl  # noqa: E402

pytestmark = pytest.mark.untraced

IDS = torch.tensor([[0, 2, 4], [1, 1, 0]])
LAYERS = {
    "bilinear": lambda: (nn.Bilinear(3, 4, 2), torch.randn(2, 3), torch.randn(2, 4)),
    "instance norm": lambda: (
        nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
        torch.randn(2, 3, 5),
    ),
    "bag of a padded embedding": lambda: (nn.EmbeddingBag(5, 3, padding_idx=1), IDS),
    "sparse embedding": lambda: (nn.Embedding(5, 3, sparse=True), IDS),
    "two-way recurrent": lambda: (
        nn.GRU(3, 2, bidirectional=True),
        torch.randn(4, 2, 3),
    ),
    "projected": lambda: (nn.LSTM(3, 4, proj_size=2), torch.randn(3, 2, 3)),
    "attention": lambda: (
        nn.MultiheadAttention(4, 2, add_bias_kv=True, dropout=0.1),
        *(torch.randn(3, 2, 4) for _ in range(3)),
    ),
    "encoder": lambda: (nn.TransformerEncoderLayer(4, 2, 6), torch.randn(3, 2, 4)),
    "weight norm": lambda: (
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
        torch.randn(2, 4),
    ),
    "in place": lambda: (
        nn.Sequential(nn.Linear(3, 4), nn.SiLU(inplace=True), nn.Linear(4, 2)),
        torch.randn(5, 3),
    ),
    "unfrozen mixture": lambda: (
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.PReLU()),
        torch.randn(6, 3),
    ),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_right_layer_is_not_accused_and_not_changed(name, double, train):
    """Neither door finds an error, and state and random numbers are as before."""
    torch.manual_seed(1)
    module, *inputs = LAYERS[name]()
    module.train(train)
    if double:
        module.double()
        inputs = [x.double() if x.is_floating_point() else x for x in inputs]
    before = {key: value.clone() for key, value in module.state_dict().items()}
    drawn = torch.get_rng_state()

    assert gl.check(module, *inputs).ok
    assert gl.blame(module, *inputs).ok
    assert torch.equal(torch.get_rng_state(), drawn)
    after = module.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())
