"""A13: what counts against a limit is the encoded message; a result too large to reply goes through the store."""

import dataclasses

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.limits import DEFAULT_LIMITS


@pytest.mark.parametrize("columns", [1, 40, 400])
def test_large_results_travel_by_key(problem, columns):
    limits = dataclasses.replace(DEFAULT_LIMITS, reply_bytes=200_000)
    operand = np.random.default_rng(1).standard_normal((20, columns))
    with sgc.Session(limits=limits) as s:
        data = s.encode(problem.X, code="mds", n_workers=16, k=12)
        z, report = data.matvec(operand, with_report=True)
    np.testing.assert_allclose(z, problem.X @ operand, atol=1e-10)
    block = -(-1000 // 12) * columns * 8  # bytes of one worker's result
    encoded = 4 * block / 3
    assert (report.by_reference > 0) == (encoded > 200_000 - 25_000)
    assert report.failed == 0
