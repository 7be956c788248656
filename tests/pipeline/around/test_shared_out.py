"""Functions that read one triangle of a symmetric matrix, and gradients of both halves.

Truth is algebra: the gradient of ``log det S`` by all symmetric changes is the inverse.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradlab as gl
from gradlab.building import Sides, build_subject
from gradlab.subject.mirrors import mirror_of, with_mirrored

C = np.random.default_rng(1).normal(size=(4, 4))
DOORS = [{}, {"coverage": "probe"}, {"coverage": "sample", "budget": 400}]


def covariance(seed=0, n=4):
    """A symmetric matrix that is positive definite."""
    rows = np.random.default_rng(seed).normal(size=(n, n))
    return rows @ rows.T / n + np.eye(n)


def log_determinant(s):
    """By Cholesky's factor: of the lower triangle alone."""
    return 2 * np.log(np.diag(np.linalg.cholesky(s))).sum()


def by_eigenvalues(s):
    """Weighted squares of the eigenvalues."""
    return (np.linalg.eigvalsh(s) ** 2 * np.arange(1, 5)).sum()


def test_a_matrix_that_is_not_read_has_no_triangle_that_is():
    """The inverse is kept from an earlier matrix: no slope is shared out."""
    matrix, y = covariance(), C[0]
    kept = np.linalg.inv(matrix)

    report = gl.check(
        lambda s: float(y @ kept @ y),
        matrix,
        grad=lambda s: -np.outer(kept @ y, kept @ y),
        names=["s"],
    )

    assert report.culprits == ("s",)
    assert "triangle" not in str(report)


def of_eigenvalues(s):
    """Its gradient, ``V diag(2 k w) V'``."""
    values, vectors = np.linalg.eigh(s)
    return (vectors * 2 * values * np.arange(1, 5)) @ vectors.T


RIGHT = [(log_determinant, np.linalg.inv), (by_eigenvalues, of_eigenvalues)]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("f", "grad"), RIGHT)
def test_half_of_each_derivative_for_either_entry_is_right(f, grad, door):
    """Entry by entry one triangle is twice too small and the other is not there."""
    report = gl.check(f, covariance(), grad=grad, **door)

    assert report.ok, report
    assert all(finding.severity == "note" for finding in report.findings)


@pytest.mark.parametrize("door", DOORS[:2])
@pytest.mark.parametrize(("f", "grad"), RIGHT)
@pytest.mark.parametrize(
    "slip",
    [
        lambda g: 1.01 * g,
        lambda g: g + g.T,
        np.tril,
        lambda g: 2 * g - np.diag(np.diag(g)),
        lambda g: g - np.diag(np.diag(g)) / 2,
        lambda g: g + 1e-3 * (np.eye(4)[[1]].T @ np.eye(4)[[2]]),
    ],
    ids=["1 %", "added", "one triangle", "counted double", "diagonal", "one entry"],
)
def test_a_wrong_one_is_told(f, grad, slip, door):
    """Sums of mirror images are what they are, and the diagonal has none."""
    report = gl.check(f, covariance(), grad=lambda s: slip(grad(s)), **door)

    assert report.verdict == gl.Verdict.DISAGREES


def test_the_factor_is_told_as_of_any_other_gradient():
    """The numeric side is shared out as well: twice is twice everywhere."""
    double = gl.check(
        log_determinant, covariance(), grad=lambda s: 2 * np.linalg.inv(s)
    )

    assert double.diagnosis == "scale"
    assert double["s"].analytic == pytest.approx(2 * double["s"].numeric, rel=1e-6)


@pytest.mark.parametrize(
    ("f", "grad"),
    [
        (lambda s: (s * C).sum(), lambda s: C.T),
        (
            lambda s: (np.linalg.inv(s) * C).sum(),
            lambda s: -np.linalg.inv(s) @ C.T @ np.linalg.inv(s),
        ),
        (lambda s: (np.tril(s) * C).sum(), lambda s: np.tril(C).T),
    ],
    ids=["product", "inverse", "triangle"],
)
def test_a_lost_transpose_at_a_symmetric_point_is_told(f, grad):
    """What is not symmetric itself is shared out between nobody."""
    report = gl.check(f, covariance(), grad=grad)

    assert report.verdict == gl.Verdict.DISAGREES


def test_a_matrix_that_is_not_symmetric_has_no_mirror():
    """Nor has one that is not square, or of one entry."""
    lopsided = covariance()
    lopsided[0, 1] += 1e-6

    report = gl.check(log_determinant, lopsided, grad=np.linalg.inv)

    assert report.verdict == gl.Verdict.DISAGREES
    for other in (np.ones((2, 3)), np.ones((1, 1)), np.ones(4)):
        subject = build_subject(np.sum, (other,), Sides(grad=np.ones_like))
        assert mirror_of(subject, 0) is None
        assert with_mirrored(subject, 0, np.array([1])).tolist() == [1]


def test_a_search_names_none_of_them():
    """It is heard as a check is."""
    found = gl.locate(log_determinant, covariance(), grad=np.linalg.inv)

    assert found.table.empty


def gaussian(mean, **shape):
    """A distribution that refuses what is no covariance, whatever others have set."""
    from torch.distributions import MultivariateNormal

    return MultivariateNormal(mean, validate_args=True, **shape)


class TestTorch:
    """Its own gradients of decompositions."""

    @pytest.mark.parametrize("kind", ["float64", "float32", "complex128"])
    @pytest.mark.parametrize("name", ["cholesky", "eigvalsh", "pinv"])
    def test_decompositions(self, name, kind):
        """Hermitian ones too, and a stack of them."""
        torch = pytest.importorskip("torch")
        generator = torch.Generator().manual_seed(3)
        rows = torch.randn(2, 3, 3, generator=generator, dtype=getattr(torch, kind))
        s = rows @ rows.mH + torch.eye(3, dtype=rows.dtype)

        options = {"hermitian": True} if name == "pinv" else {}

        report = gl.check(
            lambda s: getattr(torch.linalg, name)(s, **options), s.requires_grad_()
        )

        assert report.ok, report

    def test_a_distribution_that_refuses_what_is_not_symmetric(self):
        """Only short steps are taken by it, and it is not at the edge of anything."""
        torch = pytest.importorskip("torch")
        s = torch.tensor(covariance(), requires_grad=True)
        x = torch.tensor(C)

        def density(s):
            zero = torch.zeros(4, dtype=s.dtype)
            normal = gaussian(zero, covariance_matrix=s)
            return normal.log_prob(x).sum()

        report = gl.check(density, s)

        assert report.ok, report
        assert [str(found.kind) for found in report.findings] == ["dependent_inputs"]

    @pytest.mark.thinned(2)
    @pytest.mark.parametrize("coverage", ["full", "probe"])
    @pytest.mark.parametrize("factor", [1.0, 1.01])
    def test_zeros_of_a_factor_that_nobody_may_move(self, factor, coverage):
        """Above its diagonal a distribution allows nothing else, on either side."""
        torch = pytest.importorskip("torch")
        s = torch.tensor(np.linalg.cholesky(covariance()), requires_grad=True)
        x = torch.tensor(C)

        def density(s):
            zero = torch.zeros(4, dtype=s.dtype)
            normal = gaussian(zero, scale_tril=s)
            out = normal.log_prob(x)
            return factor * out - (factor - 1) * out.detach()

        report = gl.check(density, s, coverage=coverage)

        if factor == 1:
            assert report.verdict == gl.Verdict.AGREES, report
            assert {found.severity for found in report.findings} == {"note"}
            assert np.isfinite(report.table["max_rel_error"]).all()
            assert np.isfinite(report["s"].numeric[report["s"].ranking(1)[0]])
        else:
            assert report.verdict == gl.Verdict.DISAGREES

    def test_a_slope_where_nobody_may_move_is_left_open(self):
        """A gradient that is not zero there has nothing to be compared to."""
        torch = pytest.importorskip("torch")
        s = torch.tensor(np.linalg.cholesky(covariance()), requires_grad=True)

        def drawn(s):
            zero = torch.zeros(4, dtype=s.dtype)
            torch.manual_seed(0)
            return gaussian(zero, scale_tril=s).rsample()

        assert gl.check(drawn, s).verdict == gl.Verdict.UNDECIDED
