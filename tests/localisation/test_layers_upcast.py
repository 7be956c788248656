"""Models that cast to single precision on the way, as libraries do with logits."""

from __future__ import annotations

import pytest

import gradlab as gl

torch = pytest.importorskip("torch")
nn = torch.nn

TARGET = torch.tensor([0, 2, 1, 1, 0])


class Upcast(nn.Module):
    """Casts logits, and squares of what it normalises, to at least single precision."""

    def __init__(self, slip=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.outer = nn.Linear(4, 6), nn.Linear(6, 3)
        self.slip = slip

    def forward(self, x):
        h = self.inner(x)
        size = h.float().pow(2).mean(-1, keepdim=True)
        h = (h.float() * torch.rsqrt(size + 1e-6)).to(h.dtype)
        logits = self.outer(h).float()
        if self.slip:  # the same values, and gradients that are larger by that
            logits = logits + self.slip * (logits - logits.detach())
        return 1e3 + nn.functional.cross_entropy(logits, TARGET)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_casts_that_the_model_does_not_notice_are_not_in_the_way(dtype):
    """In double precision they round, and the piece was left open, or accused."""
    audit = gl.blame(Upcast().to(dtype), torch.randn(5, 4).to(dtype))

    assert audit.verdict == gl.Verdict.AGREES
    assert all(str(row.state) == "right" for row in audit.rows)


def test_what_is_a_thousandth_off_behind_them_is_found():
    """Without them a difference has digits left to tell it."""
    audit = gl.blame(Upcast(slip=1e-3), torch.randn(5, 4))

    assert audit.culprits == ("Upcast",)
