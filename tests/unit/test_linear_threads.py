"""The limit of one BLAS thread, alone, nested and overlapping."""

import threading

import numpy as np
import pytest

from serverless_gc.codes import threads
from serverless_gc.codes.blocks import combine
from serverless_gc.codes.threads import single_blas_thread


def blas_threads():
    """Threads of the libraries NumPy uses; SciPy brings its own, of which nothing is asked here."""
    return {info["num_threads"] for info in threads.BLAS._find().info() if info["user_api"] == "blas"}


def test_nested():
    before = blas_threads()
    with single_blas_thread():
        with single_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_lifted_after_an_error():
    before = blas_threads()
    with pytest.raises(ZeroDivisionError), single_blas_thread():
        raise ZeroDivisionError
    assert blas_threads() == before
    with single_blas_thread():
        assert blas_threads() == {1}


@pytest.mark.parametrize("first_to_leave", ["this", "other"])
def test_overlapping_limits_leave_what_they_found(first_to_leave):
    before = blas_threads()
    inside, leave = threading.Event(), threading.Event()

    def other():
        with single_blas_thread():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with single_blas_thread():
        thread.start()
        assert inside.wait(10)
        if first_to_leave == "other":
            leave.set()
            thread.join(10)
            assert blas_threads() == {1}
    leave.set()
    thread.join(10)
    assert blas_threads() == before


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_combine_on_threads_equals_the_product(dtype):
    rng = np.random.default_rng(0)
    coefficients, checks = rng.normal(size=(40, 60)), rng.normal(size=(2, 60))
    sources = rng.normal(size=(60, 30_001)).astype(dtype)
    targets = np.empty((40, 30_001), dtype)
    residual = combine(coefficients, list(sources), list(targets), checks=checks)
    np.testing.assert_allclose(targets, coefficients @ sources, rtol=0, atol=1e-4 if dtype is np.float32 else 1e-12)
    expected = np.sqrt(np.mean((checks @ sources) ** 2) / np.mean(sources.astype(float) ** 2))
    assert residual == pytest.approx(expected, rel=1e-4)
    assert combine(coefficients[:0], [], []) == 0.0
