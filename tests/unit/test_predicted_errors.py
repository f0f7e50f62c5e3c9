"""What codes predict of their accuracy is not far below the truth, whoever answers."""

import numpy as np
import pytest

from serverless_gc.aggregate import Decode
from serverless_gc.codes import get
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.threshold import first_messages, neighbours_needed, predicted_errors
from serverless_gc.errors import DecodeError, NotDecodableError
from serverless_gc.types import Arrival, TaskSpec, UpdateContext

CODES = ["matdot", "ortho-matdot", "entangled", "polynomial", "polynomial-complex", "khatri-rao"]
CODES += ["lagrange", "lcc-mmc", "nested", "cyclic", "short-dot"]


def sent(code, messages, rng):
    """Messages of a random computation, and its exact result."""
    if code.kind == "matmul":
        split = code.split
        A, B = (rng.normal(size=(split.inner, blocks, 5, 3)) for blocks in (split.p, split.q))
        left, right = code.encode_left(A.reshape(-1, 5, 3)), code.encode_right(B.reshape(-1, 5, 3))
        exact = np.einsum("saij,sbik->abjk", A, B).reshape(-1, 3, 3)
        values = {i: left[code.operands(i)[0]].T @ right[code.operands(i)[1]] for i in messages}
        return values, exact[0] if code.target == "sum" else exact
    blocks = rng.normal(size=(code.k, 7, 3))
    stored = dict(zip(messages, code.encode(blocks, messages=messages), strict=True))
    if hasattr(code, "degree"):
        w = rng.normal(size=3)
        return {i: b.T @ (b @ w) for i, b in stored.items()}, sum(b.T @ (b @ w) for b in blocks)
    return stored, blocks.sum(axis=0) if code.target == "sum" else blocks


@pytest.mark.parametrize("n_workers", [30, 50, 100, 200])
@pytest.mark.parametrize("name", CODES)
def test_predictions_are_not_optimistic(name, n_workers):
    rng = np.random.default_rng(n_workers)
    code = get(name, n_workers=n_workers)
    if name == "lagrange":
        code = code.evaluated(2, total=True)
    for draw in range(4 if code.k > 60 else 12):
        if draw % 2:
            order = rng.permutation(n_workers)
        else:  # from somewhere outwards, some left out
            distance = np.abs(np.arange(n_workers) - rng.integers(n_workers))
            order = np.argsort(distance + rng.random(n_workers) * rng.choice([0.5, 3.0, n_workers / 8]))
        messages = first_messages(code, order.tolist())
        values, exact = sent(code, messages, rng)
        answer, certificate = code.decode(values)
        error = np.linalg.norm(answer - exact) / np.linalg.norm(exact)
        assert error <= 10 * certificate.predicted_error + 1e-14 or certificate.predicted_error > 0.1


def test_lcc_mmc_sees_what_neighbours_cost():
    code = get("lcc-mmc", n_workers=200)
    predicted, arrivals = neighbours_needed(code)
    assert predicted > 1
    assert 10 < arrivals < 100
    # Weights meet the interpolation equations, however small the singular values.
    messages = first_messages(code, range(100, 200))
    values, exact = sent(code, messages, np.random.default_rng(0))
    answer, certificate = code.decode(values)
    assert np.linalg.norm(answer - exact) / np.linalg.norm(exact) <= 10 * certificate.predicted_error


def test_an_aggregator_refuses_what_lost_its_digits():
    code = get("lcc-mmc", n_workers=200)
    nowhere = UpdateContext(np.zeros(1), 0, 0.0, np.random.default_rng(0), lambda _: np.zeros(1))
    sent = code.encode(np.ones((code.k, 1))) ** 2

    def sum_from(workers):
        tasks = [TaskSpec(f"0-{worker}", worker, 0) for worker in workers]
        bodies = [sent[list(code.placement(worker))] for worker in workers]
        arrivals = [Arrival(task, 0.0, 1.0, body=body) for task, body in zip(tasks, bodies, strict=True)]
        return Decode(code).combine(arrivals, nowhere).direction

    assert sum_from(range(0, 200, 10)).round(9) == code.k
    with pytest.raises(DecodeError, match="wait for more results"):
        sum_from(range(10))


class Silent(LinearCode):
    """Does not say how accurate it is."""

    certify = None


def test_who_cannot_predict_says_so():
    code = Silent(np.eye(4))
    assert predicted_errors(code) is None
    assert neighbours_needed(code) is None


def test_gradient_codes_predict_what_they_decode_to():
    code = get("cyclic", n_workers=20, stragglers=3)
    coded = code.encode(np.random.default_rng(0).normal(size=(20, 3)))
    for messages in (range(17), range(3, 20), range(20)):
        _, certificate = code.decode({i: coded[i] for i in messages})
        assert code.certify(messages) == certificate
    with pytest.raises(NotDecodableError):
        code.certify(range(16))


def test_prediction_and_need_of_the_well_conditioned():
    code = get("khatri-rao", n_workers=40)
    assert predicted_errors(code, trials=5).max() < 1e-11
    assert neighbours_needed(code) == (0.0, code.k)
