"""Where f is asked about slight accusations."""

from __future__ import annotations

import numpy as np

from gradlab.building import Sides, build_subject
from gradlab.pipeline.around.slight_errors import unasked_point


def test_a_point_that_nobody_has_asked_is_computed():
    """A function that keeps results by hand has none of them there."""
    kept, computed = {}, []

    def f(x):
        if x.tobytes() not in kept:
            computed.append(x.copy())
            kept[x.tobytes()] = float(x @ x)
        return kept[x.tobytes()]

    x = np.array([0.0, 2.0, -3.0])
    subject = build_subject(f, (x,), Sides(grad=lambda x: 2 * x))
    subject.row()
    for count in range(3):
        with unasked_point(subject, count):
            near = subject.row()
        np.testing.assert_allclose(near, 13.0, rtol=1e-7)
    subject.row()

    assert len(computed) == 4
    assert subject.point(0).tolist() == x.tolist()
