"""A18: what every task needs travels once, not per call; what cannot be shipped is refused by name beforehand.

User functions (what they capture, modules that the worker lacks) have trials of their own.
"""

import numpy as np
import pytest

import serverless_gc as sgc


def test_a_large_operand_is_stored_once(proxied):
    proxy, options = proxied
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((48, 20_000)), rng.standard_normal((20_000, 20))  # w: 3.2 MB
    with sgc.Session("aws", **options()) as s:
        data = s.encode(X, code="mds", n_workers=8, k=6)
        data.matvec(-w)  # its report counts the blocks, too
        proxy.asked.clear()
        z, report = data.matvec(w, with_report=True)
        asked = [identity for _, identity in proxy.asked]
    np.testing.assert_allclose(z, X @ w, atol=1e-9)
    assert len([name for name in asked if name.startswith("PUT") and name.endswith("/operand")]) == 1
    assert w.nbytes <= report.bytes_up < 1.1 * w.nbytes  # and with it the tasks of all attempts


def test_a_small_one_travels_in_the_task(proxied, problem):
    proxy, options = proxied
    with sgc.Session("aws", **options()) as s:
        data = s.encode(problem.X, code="mds", n_workers=8, k=6)
        proxy.asked.clear()
        data.matvec(problem.w)
        assert not [name for _, name in proxy.asked if name.endswith("/operand")]


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (lambda X, y, w: X.T @ (X @ w - y), "<lambda>.*losses of X @ w"),
        (open, "built-in function open"),
        ("hinge-of-mine", "'hinge-of-mine'.*logistic"),
    ],
    ids=["lambda", "built-in", "name"],
)
def test_a_loss_that_a_data_code_cannot_serve_is_refused_before_anything_is_sent(aws, problem, loss, said):
    before = aws.counts().requests
    with sgc.Session("aws") as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=4, k=3)
        with pytest.raises(sgc.InputError, match=said):
            data.gradient(problem.w, loss=loss)
    assert aws.counts().requests == before
