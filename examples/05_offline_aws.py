"""Testing your own code offline: the snippets of guide/testing.md. Run it as a script, or its tests with pytest."""

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.testing.lambda_endpoint import Step, error_step
from serverless_gc.testing.offline_aws import offline_aws


def train(X, y, rounds):
    """Your code: it opens a session on AWS and says nothing of tests."""
    w = np.zeros(X.shape[1])
    with sgc.Session("aws") as s:
        data = s.encode(X, y, code="mds", n_workers=8, k=6)
        for _ in range(rounds):
            w = w - data.gradient(w, reduction="mean")
    return w


@pytest.fixture(scope="session")
def aws():
    with offline_aws() as aws:
        yield aws


X = np.random.default_rng(0).standard_normal((60, 4))
y = X @ np.ones(4)


def test_training_finds_the_weights(aws):
    before = aws.counts().runs
    assert np.allclose(train(X, y, rounds=8), 1.0, atol=0.05)
    assert aws.counts().runs > before  # Lambda really ran


def test_training_survives_a_bad_minute_of_lambda(aws):
    aws.script(
        error_step(429, "TooManyRequestsException", "Rate Exceeded.", times=3),  # throttled
        Step(action="lose", times=2),  # ran, but the connection broke before the reply came
        Step(action="reply", headers={"X-Amz-Function-Error": "Unhandled"}, body='{"errorType": "MemoryError"}'),
    )
    assert np.allclose(train(X, y, rounds=8), 1.0, atol=0.05)


def test_stragglers_and_damaged_blocks():
    slow = sgc.inject.Stragglers(fraction=0.2, slowdown=5, base=0.001, seed=1)
    faults = sgc.inject.Faults(corrupt=[2], lose_reply=[0, 5], drop=0.02, seed=1)
    with sgc.Session(inject=[slow, faults]) as s:
        data = s.encode(X, y, code="mds", n_workers=8, k=6)
        g, report = data.gradient(np.zeros(4), with_report=True)
    assert np.allclose(g, -X.T @ y)
    assert report.balanced


def test_a_round_takes_a_second_not_ten():
    with sgc.Session(
        "simulated", delay=sgc.stragglers.Constant(1.0), inject=sgc.inject.Stragglers(fraction=[0, 3], slowdown=10)
    ) as s:
        _, report = s.encode(X, code="mds", n_workers=8, k=6).matvec(np.ones(4), with_report=True)
    assert max(span.t_end for span in report.spans) == 1.0


if __name__ == "__main__":
    with offline_aws() as running:
        print(f"S3 at {running.s3_url}, Lambda at {running.lambda_url}")
        test_training_finds_the_weights(running)
        test_training_survives_a_bad_minute_of_lambda(running)
        print(f"the function ran {running.counts().runs} times")
    test_stragglers_and_damaged_blocks()
    test_a_round_takes_a_second_not_ten()
