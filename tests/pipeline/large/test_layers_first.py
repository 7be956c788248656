"""A wrong layer is known before what it spoils is searched: that costs no more then."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.localisation.tensors import probe_tensors
from gradlab.pipeline import layers as layers_module
from tests.localisation import dense_networks as nets
from tests.localisation.test_tensors import subject_of
from tests.specimens.functions import with_output

torch = pytest.importorskip("torch")

DEPTH, WIDTH, WRONG = 10, 24, 6  # layers; the activation behind the seventh is wrong


# A tanh whose backward forgets a square.
half_tanh = with_output(torch.tanh, lambda out, grad: grad * (1 - out))


class Activation(torch.nn.Module):
    """The Function as a layer."""

    def forward(self, x):
        return half_tanh(x)


def network():
    """Ten layers, of which the seventh has the wrong activation behind it."""
    torch.manual_seed(0)
    parts = []
    for k in range(DEPTH):
        act = Activation() if k == WRONG else torch.nn.Tanh()
        parts += [torch.nn.Linear(WIDTH, WIDTH), act]
    model = torch.nn.Sequential(*parts).double()
    return model, torch.randn(5, WIDTH, dtype=torch.float64)


def checked(**options):
    model, x = network()
    return gl.check(
        model, x, loss=lambda out: (out**2).sum(), coverage="probe", **options
    )


def test_what_a_layer_spoils_is_measured_and_not_searched():
    """Fourteen tensors are wrong; to search each of them took 1,105 evaluations."""
    report = checked()

    wrong = {
        c.input.name for c in report.comparisons if c.verdict == gl.Verdict.DISAGREES
    }
    assert wrong == {
        f"{2 * k}.{kind}" for k in range(WRONG + 1) for kind in ("weight", "bias")
    }
    assert report.culprit == f"{2 * WRONG + 1}"
    assert report.evaluations <= 300


def test_the_audit_is_made_once(monkeypatch):
    """What the search has asked is what the report shows."""
    from gradlab import auditing

    made = []
    audit = auditing.audited

    def counted(*arguments, **options):
        made.append(audit(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(auditing, "audited", counted)
    report = checked()

    assert len(made) == 1
    assert report.layers is made[0]


def test_no_audit_of_a_right_model(monkeypatch):
    """Where nothing disagrees nobody asks."""
    monkeypatch.setattr(
        layers_module.Layers, "audited", lambda _: pytest.fail("audited")
    )
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()).double()
    report = gl.check(model, torch.ones(2, 3, dtype=torch.float64), coverage="probe")
    assert report.ok


def test_an_interrupted_audit_ends_the_search(monkeypatch):
    """Ctrl-C within it is that of the check, which tells what it knew by then."""
    from gradlab.localisation.layers.audit import Checker

    check, calls = Checker.check, []

    def stopped(checker, frame, **options):
        calls.append(frame)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return check(checker, frame, **options)

    monkeypatch.setattr(Checker, "check", stopped)
    report = checked()

    assert report.partial
    assert report.verdict != gl.Verdict.AGREES
    assert "interrupted before the search was over" in report.remarks


@pytest.mark.parametrize("told", [("W3", "W9"), ("W9",), ("W3",), ()])
def test_what_is_said_to_be_spoiled_is_measured_all_the_same(rng, told):
    """A right tensor agrees, a wrong one that nobody told of disagrees."""
    params, loss_and_grads = nets.network(rng, (12, *(16,) * 19, 3))
    grads = loss_and_grads(params)[1]
    slips = np.random.default_rng(0)
    for name in ("W3", "b4"):
        grads[name] = grads[name] * slips.uniform(0.5, 0.999, grads[name].shape)
    subject = subject_of(params, loss_and_grads, grads)
    probes = probe_tensors(subject, spoiled=lambda: told)

    wrong = {t.input for t in probes.tensors if t.verdict == gl.Verdict.DISAGREES}
    assert wrong == {"W3", "b4"}
    assert all(t.verdict != gl.Verdict.UNDECIDED for t in probes.tensors)
    assert probes.handed == {"W3"}.intersection(told)
