"""Codes whose workers send more than one message, on the backends that need nothing else."""

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.codes import LinearCode, get

GENERATOR = get("mds", n_workers=12, k=8).generator


@pytest.mark.parametrize("backend", ["local", "simulated"])
@pytest.mark.parametrize("placement", [None, [range(5), range(5, 8), range(8, 11), [11]]])
def test_products_and_gradients_from_stacked_messages(backend, placement):
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(37, 5)), rng.normal(size=37), rng.normal(size=5)
    code = LinearCode(GENERATOR, placement=placement, n_workers=6 if placement is None else None)
    with sgc.Session(backend, inject=sgc.inject.Stragglers(fraction=0.2, slowdown=10, seed=3, base=0.002)):
        z, report = sgc.coded_matvec(X, w, code=code, with_report=True)
        gradient = sgc.coded_gradient(X, y, w, code=code)
    np.testing.assert_allclose(z, X @ w, rtol=1e-10)
    np.testing.assert_allclose(gradient, X.T @ (X @ w - y), rtol=1e-9, atol=1e-10)
    assert report.issued == code.n_workers == report.used + report.surplus + report.failed + report.voided
