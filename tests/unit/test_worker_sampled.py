"""The kernel of stochastic trainings against plain NumPy."""

import time

import numpy as np
import pytest
import scipy.sparse

from serverless_gc.policies import DitheredUniform, TopK
from serverless_gc.policies.compress import described
from serverless_gc.rounds.functions import ship
from serverless_gc.wire import CsrBlock
from serverless_gc.wire.sampled import Sampled
from serverless_gc.worker import kernels, losses

RNG = np.random.default_rng(3)
X = RNG.standard_normal((12, 4)) * (RNG.random((12, 4)) < 0.7)
Y = (RNG.random(12) < 0.5).astype(float)
WEIGHT = RNG.random(12)
W = RNG.standard_normal(4)
L2, SCALE = 0.3, 0.7 / 12


def csr(matrix):
    rows = scipy.sparse.csr_array(matrix)
    return CsrBlock(rows.data, rows.indices, rows.indptr, rows.shape)


def params(**changes):
    objective = {"labelled": True, "weighted": False, "parts": [[0, 0, 5], [1, 5, 12]], "value": True}
    objective |= {"loss": "logistic", "loss_params": {}}
    plain = {"node": 0, "shape": [4], "objective": objective, "scale": SCALE, "l2": L2, "batch": 5, "seed": 9}
    return {**plain, "units": 1, "extra": "", **changes}


def blocks(matrix=X, columns=(Y,), cut=lambda part: part):
    return [part for rows in (slice(0, 5), slice(5, 12)) for part in (cut(matrix[rows]), *(c[rows] for c in columns))]


def drawn(t, batch=5):
    return np.random.default_rng((9, 0, t)).integers(12, size=batch) if batch else np.arange(12)


def each(w, rows, loss="logistic", y=Y, weight=None):
    """Gradient of each row as the task scales it, with its share of the regularizer."""
    known, columns = losses.get(loss), w.reshape(4, -1)
    labels = y if loss == "softmax" else y[:, None]
    factors = np.ones(12) if weight is None else weight
    single = [factors[i] * np.outer(X[i], known.residual(X[[i]] @ columns, labels[[i]])).reshape(-1) for i in rows]
    return 12 * SCALE * np.array(single) + L2 * w


def run(given, w, asked, extra=0):
    return Sampled.unpack(kernels.get("sampled")(given, w, asked), extra)


# -- gradients and sums over rows --------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [np.array, csr], ids=["dense", "sparse"])
@pytest.mark.parametrize("batch", [0, 5])
def test_a_gradient_is_that_of_the_drawn_rows(cut, batch):
    found = run(blocks(cut=cut), W, params(batch=batch))
    rows = drawn(0, batch)
    np.testing.assert_allclose(found.body, each(W, rows).mean(axis=0), rtol=1e-12)
    assert found.samples == len(rows)
    value = 12 * SCALE * losses.get("logistic").value(X[rows] @ W, Y[rows]) / len(rows) + 0.5 * L2 * W @ W
    assert found.loss == pytest.approx(value)


def test_several_mini_batches_at_one_point_are_the_mean_over_all_their_samples():
    found = run(blocks(), W, params(units=3))
    rows = np.concatenate([drawn(t) for t in range(3)])
    np.testing.assert_allclose(found.body, each(W, rows).mean(axis=0), rtol=1e-12)
    assert found.samples == 15


def test_messages_are_the_mini_batches_one_by_one_from_any_on():
    asked = params(n_messages=3)
    messages = [Sampled.unpack(m, 0).body for m in kernels.stream("sampled", blocks(), W, asked)]
    np.testing.assert_allclose(messages, [each(W, drawn(t)).mean(axis=0) for t in range(3)], rtol=1e-12)
    [last] = kernels.stream("sampled", blocks(), W, asked, 2)
    assert np.array_equal(Sampled.unpack(last, 0).body, messages[2])


@pytest.mark.parametrize("cut", [np.array, csr], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_sums_of_squares_are_those_of_the_rows(cut, weighted, loss):
    objective = {**params()["objective"], "loss": loss, "weighted": weighted}
    given = blocks(columns=(Y, WEIGHT) if weighted else (Y,), cut=cut)
    found = run(given, W, params(objective=objective, extra="sum_of_squares", units=2), 4)
    single = each(W, np.concatenate([drawn(0), drawn(1)]), loss, weight=WEIGHT if weighted else None)
    np.testing.assert_allclose(found.extra, (single**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.body, single.mean(axis=0), rtol=1e-12)


def test_sums_for_a_matrix_of_weights():
    classes, w = RNG.integers(3, size=12), RNG.standard_normal(12)
    objective = {**params()["objective"], "loss": "softmax"}
    asked = {"objective": objective, "shape": [4, 3]}
    single = each(w, drawn(0), "softmax", classes)
    squares = run(blocks(columns=(classes,)), w, params(extra="sum_of_squares", **asked), 12)
    np.testing.assert_allclose(squares.extra, (single**2).sum(axis=0), rtol=1e-11)
    fisher = run(blocks(columns=(classes,)), w, params(extra="fisher", **asked), 144)
    np.testing.assert_allclose(fisher.extra.reshape(12, 12), single.T @ single, rtol=1e-11, atol=1e-12)


def own(X, y, w):
    r = X @ w - y
    return 0.5 * float(r @ r), X.T @ r


def block_of(function, name="loss"):
    shipment = ship(function, name)
    return np.frombuffer(shipment.data, np.uint8), shipment.stamp


@pytest.mark.parametrize("extra", ["sum_of_squares", "fisher"])
def test_sums_of_a_function_of_ones_own(extra):
    block, stamp = block_of(own)
    objective = {k: v for k, v in params()["objective"].items() if not k.startswith("loss")} | {"function": stamp}
    found = run([*blocks(), block], W, params(objective=objective, extra=extra), 4 if extra == "sum_of_squares" else 16)
    single = each(W, drawn(0), "squared")
    wanted = (single**2).sum(axis=0) if extra == "sum_of_squares" else (single.T @ single).reshape(-1)
    np.testing.assert_allclose(found.extra, wanted, rtol=1e-12)
    np.testing.assert_allclose(found.body, single.mean(axis=0), rtol=1e-12)


def test_a_function_need_not_tell_its_value():
    block, stamp = block_of(lambda X, y, w: own(X, y, w)[1])
    objective = {k: v for k, v in params()["objective"].items() if not k.startswith("loss")}
    asked = params(objective={**objective, "function": stamp, "value": "if-given"})
    found = run([*blocks(), block], W, asked)
    assert found.loss is None
    np.testing.assert_allclose(found.body, each(W, drawn(0), "squared").mean(axis=0), rtol=1e-12)


# -- steps, time -------------------------------------------------------------------------------------------


def test_local_steps_are_those_of_the_mini_batches():
    found = run(blocks(), W, params(units=3, lr=0.2, extra="sum_of_squares"), 4)
    w, squares = W, 0
    for t in range(3):
        single = each(w, drawn(t))
        w, squares = w - 0.2 * single.mean(axis=0), squares + (single**2).sum(axis=0)
    np.testing.assert_allclose(found.body, w, rtol=1e-12)
    np.testing.assert_allclose(found.extra, squares, rtol=1e-12)
    assert found.samples == 15


@pytest.mark.parametrize("late", [{"stop_at": 0.0}, {"pace": 60.0}], ids=["over", "held up"])
def test_who_begins_too_late_did_nothing(late):
    stop = {"stop_at": time.time() + 0.02, **late}
    gradient, model = run(blocks(), W, params(**stop)), run(blocks(), W, params(lr=0.1, **stop))
    assert (gradient.samples, model.samples, gradient.loss) == (0, 0, None)
    assert np.array_equal(gradient.body, np.zeros(4))
    assert np.array_equal(model.body, W)


def test_work_ends_with_the_first_mini_batch_that_is_done_behind_the_time():
    def slow(X, y, w):
        time.sleep(0.002)
        return own(X, y, w)

    block, stamp = block_of(slow)
    objective = {k: v for k, v in params()["objective"].items() if not k.startswith("loss")} | {"function": stamp}
    asked = {"objective": objective, "batch": 0}
    found = run([*blocks(), block], W, params(stop_at=time.time() + 0.05, **asked))
    assert found.samples % 12 == 0
    assert found.samples <= 12 * 14  # two calls of 2 ms for each
    slowed = run([*blocks(), block], W, params(stop_at=time.time() + 0.05, slowdown=20, **asked))
    assert slowed.samples <= 12


# -- what is sent ------------------------------------------------------------------------------------------


def test_compressed_results_are_smaller_and_nearly_the_same_and_a_retry_repeats_them():
    compressor = DitheredUniform(0.1)
    name, fields = described(compressor)
    asked = params(compressor={"name": name, "params": fields}, extra="sum_of_squares")
    sent, again = (kernels.get("sampled")(blocks(), W, asked) for _ in range(2))
    assert sent.tobytes() == again.tobytes()
    plain = run(blocks(), W, params())
    found = compressor.decode(Sampled.unpack(sent, 4).body, 9)
    assert 0 < np.abs(found - plain.body).max() <= 0.05 + 1e-12
    moved = run(blocks(), W, params(compressor={"name": "TopK", "params": {"k": 4}}, lr=0.2, units=2))
    np.testing.assert_allclose(TopK(4).decode(moved.body, 9), run(blocks(), W, params(lr=0.2, units=2)).body - W)


def test_a_compressor_of_ones_own_and_one_that_nobody_knows():
    class Half:
        def encode(self, g, seed):  # noqa: ARG002
            return g.astype("<f4").tobytes()

    block, stamp = block_of(Half(), "compressor")
    found = run([*blocks(), block], W, params(compressor=stamp))
    np.testing.assert_allclose(np.frombuffer(found.body, "<f4"), run(blocks(), W, params()).body, rtol=1e-6)
    with pytest.raises(ValueError, match="no compressor 'Zip'; it has DitheredUniform"):
        run(blocks(), W, params(compressor={"name": "Zip", "params": {}}))


def test_a_gradient_is_sent_if_it_changed_on_the_same_rows():
    earlier = W + 0.5
    change = np.sum((each(W, drawn(0)).mean(axis=0) - each(earlier, drawn(0)).mean(axis=0)) ** 2)
    silent = run([*blocks(), earlier], W, params(threshold=change * 1.001))
    assert (silent.body, silent.samples) == (None, 5)
    sent = run([*blocks(), earlier], W, params(threshold=change * 0.999))
    assert np.array_equal(sent.body, run(blocks(), W, params()).body)


@pytest.mark.parametrize(
    "value",
    [np.zeros(3, np.float32), np.zeros((3, 1)), np.zeros(2), np.array([np.nan, 0, 0]), np.array([1, 0, 0, np.inf])],
    ids=["dtype", "shape", "short", "nan", "inf"],
)
def test_what_is_no_result_is_refused(value):
    with pytest.raises(ValueError, match="it "):
        Sampled.unpack(value, 0)
