"""Functions whose Jacobians are mostly zeros."""

from __future__ import annotations

import numpy as np

from gradlab.building import Sides, build_subject
from gradlab.differentiation.evaluation import base_row
from gradlab.differentiation.metering.meter import Meter
from tests.specimens.activations import softmax


def stencil(x):
    return x[:-2] * x[1:-1] - np.sin(x[2:])


def swapped(x):
    return np.cos(x.T[::-1])


SPARSE = {
    "elementwise": (np.tanh, (12, 9)),
    "by row": (softmax, (10, 6)),
    "stencil": (stencil, (60,)),
    "transposed and reversed": (swapped, (7, 11)),
    "complex": (lambda z: z * np.conj(z) + z**3, (20,)),
}


def built(fn, x):
    subject = build_subject(fn, (x,), Sides(jac=fn))
    meter = Meter()
    return subject, base_row(subject, meter), meter


def point(rng, fn_name, shape):
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if fn_name == "complex" else x
