"""Failures that lie in the function or the numbers: told once, not tried again, and not blamed on the code."""

import warnings

import numpy as np
import pytest

import serverless_gc as sgc

X = np.random.default_rng(0).standard_normal((48, 3))
Y = np.ones(48)
W = np.ones(3)


def failing(_X, _y, _w):
    return undefined  # noqa: F821 - on purpose


@pytest.mark.parametrize("backend", ["local", "simulated"])
def test_an_error_of_the_loss_is_told_once_with_its_count(backend):
    with sgc.Session(backend) as s:
        data = s.encode(X, Y, code="cyclic", n_workers=8, stragglers=7)  # any one result would do: all eight fail
        with pytest.raises(sgc.NotDecodableError) as caught:
            data.gradient(W, loss=failing)
    said = str(caught.value)
    assert said.count("NameError") == 1
    assert "8x function: the loss raised NameError: name 'undefined' is not defined, first on partition" in said
    assert "redundancy" not in said
    assert "max_attempts" not in said


@pytest.mark.parametrize("backend", ["local", "simulated"])
@pytest.mark.parametrize("code", ["mds", "frc"])
def test_overflow_is_called_so_and_not_tried_again(backend, code):
    with sgc.Session(backend) as s, warnings.catch_warnings():
        warnings.simplefilter("error")
        data = s.encode(X * 1e200, Y, code=code, n_workers=4)
        before = sgc.background.run(s.resources()).invoker.stats.invocations
        with pytest.raises(sgc.NotDecodableError, match=r"the products overflow: .* Rescale X or w") as caught:
            data.gradient(W * 1e200)
        tried = sgc.background.run(s.resources()).invoker.stats.invocations - before
    assert tried <= 4
    assert "redundancy" not in str(caught.value)


def test_a_result_spoiled_on_the_way_is_still_tried_again():
    with sgc.Session("simulated", inject=sgc.inject.Faults(non_finite=1.0)) as s:
        data = s.encode(X, Y, code="mds", n_workers=4)
        with pytest.raises(sgc.NotDecodableError, match=r"result holds NaN or Inf.*\(3 attempts\)"):
            data.gradient(W)
