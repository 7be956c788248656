"""Names that the examples in docstrings may use without importing them."""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl


@pytest.fixture(autouse=True)
def _names_for_doctests(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, object]
) -> None:
    """Every example starts where a reader does: numpy and gradlab imported.

    Examples that write a file find a folder of their own under ``tmp_path``.
    """
    if isinstance(request.node, pytest.DoctestItem):
        folder = request.getfixturevalue("tmp_path")
        doctest_namespace.update(np=np, gl=gl, tmp_path=folder)
