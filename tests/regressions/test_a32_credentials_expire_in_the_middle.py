"""A32: a loop that outlives its credentials stops with that reason, and goes on from where it stopped.

What a training loop needs to go on is its iterate, which is the caller's from iteration to iteration; the data are
encoded again by a new session, and used again by one that still lives.
"""

import numpy as np
import pytest
from fault_proxy import OBJECTS, Fault

import serverless_gc as sgc
from serverless_gc.limits import Limits
from serverless_gc.testing.lambda_endpoint import error_step

LONG, SHORT = (50, 20), (15, 6)
"""Iterations, and the one from which on the credentials are refused."""


class Descent:
    """Gradient descent that keeps the last iterate in a file, as a careful user does."""

    def __init__(self, problem, path, rounds):
        self.problem, self.path, self.rounds = problem, path, rounds
        self.step = 1.0 / np.linalg.eigvalsh(problem.X.T @ problem.X).max()

    def load(self):
        if not self.path.exists():
            return 0, self.problem.w
        saved = np.load(self.path)
        return int(saved["t"]), saved["w"]

    def run(self, gradient, before=lambda _: None):
        t, w = self.load()
        while t < self.rounds:
            before(t)
            t, w = t + 1, w - self.step * gradient(w)
            np.savez(self.path, t=t, w=w)
        return w

    def encoded(self, session):
        return session.encode(self.problem.X, self.problem.y, code="mds", n_workers=4, k=3)


@pytest.fixture
def make_descent(problem, tmp_path):
    return lambda rounds: Descent(problem, tmp_path / "state.npz", rounds)


def check(descent, w):
    reference = Descent(descent.problem, descent.path.with_name("reference.npz"), descent.rounds)
    np.testing.assert_allclose(w, reference.run(descent.problem.reference), rtol=1e-10)


@pytest.mark.parametrize(
    ("account", "size", "again"),
    [("endpoint", LONG, "same session"), ("endpoint", SHORT, "new session"), ("rig", SHORT, "new session")],
    indirect=["account"],
)
def test_lambda_refuses_from_some_iteration_on(make_descent, account, size, again):
    rounds, expires_at = size
    descent = make_descent(rounds)

    def expire(t):
        if t == expires_at:
            account.script(error_step(403, "ExpiredTokenException", "The security token is expired", times=0))

    with sgc.Session("aws") as s:
        data = descent.encoded(s)
        with pytest.raises(sgc.ConfigError, match="ExpiredTokenException") as caught:
            descent.run(data.gradient, expire)
        assert "aws sso login" in str(caught.value)
        assert descent.load()[0] == expires_at  # all iterations before are done and kept
        account.script()
        if again == "same session":
            w = descent.run(data.gradient)
    if again == "new session":
        with sgc.Session("aws") as s:
            w = descent.run(descent.encoded(s).gradient)
    check(descent, w)


@pytest.mark.parametrize("account", ["endpoint"], indirect=True)
@pytest.mark.usefixtures("account")
def test_s3_refuses_from_some_iteration_on(make_descent, proxied):
    """The driver has to write its operands, and meets the refusal itself."""
    proxy, options = proxied
    rounds, expires_at = SHORT
    descent = make_descent(rounds)

    def expire(t):
        if t == expires_at:
            proxy.faults = [Fault("refuse", OBJECTS, status=400, code="ExpiredToken")]

    with sgc.Session("aws", limits=Limits(request_bytes=16_000), **options()) as s:
        data = descent.encoded(s)
        with pytest.raises(sgc.ConfigError, match="credentials have expired"):
            descent.run(data.gradient, expire)
        assert descent.load()[0] == expires_at
        proxy.faults = []
        w = descent.run(data.gradient)
    check(descent, w)
