"""What tests of a search may ask for."""

from __future__ import annotations

import pytest

from gradlab.localisation import tensors
from gradlab.pipeline import coverage
from gradlab.pipeline.large import entry_looks, probing


@pytest.fixture
def passes(monkeypatch):
    """Backward passes of gradlab: how many inputs each was for."""
    from gradlab.subject.tensors.gradients.backward import Backward

    seen, run = [], Backward._grad

    def counted(self, *args, **kwargs):
        seen.append(len(self.leaves))
        return run(self, *args, **kwargs)

    monkeypatch.setattr(Backward, "_grad", counted)
    return seen


@pytest.fixture
def dear_from(monkeypatch):
    """Have evaluations be dear from a number of coordinates on, not from millions."""

    def start(count):
        for module in (coverage, entry_looks, probing, tensors):
            monkeypatch.setattr(module, "DEAR", min(module.DEAR, count))

    return start
