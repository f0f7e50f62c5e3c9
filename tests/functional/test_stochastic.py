"""Stochastic trainings whose tasks are done by workers: the same draws as in NumPy, on every backend."""

import numpy as np
import pytest
from node_rig import keys_of
from stochastic_rig import LOG, NET, Sampled, check_refused, tasks_of, trained

import serverless_gc as sgc
from serverless_gc.inject import Faults, Stragglers
from serverless_gc.optim import Momentum
from serverless_gc.policies import KSync
from serverless_gc.store import MemoryStore
from serverless_gc.stragglers import Constant, Exponential


def sync_sgd(net, rounds, lr, batch, seed=5):
    w = net.w0
    for version in range(rounds):
        found = [net.gradient(w, net.rows(t, net.part(t), batch)) for t in tasks_of(version, net.n, seed)]
        w = w - lr * np.mean(found, axis=0)
    return w


# -- gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, 6])
def test_all_of_k_is_synchronous_sgd_with_the_same_draws(batch):
    with sgc.Session("simulated") as s:
        sync = trained(s, scheme="sync", lr=0.1, batch=batch, rounds=5)
        all_of_k = trained(s, scheme="k-sync", k=NET.n, lr=0.1, batch=batch, rounds=5)
    np.testing.assert_allclose(sync.w, sync_sgd(NET, 5, 0.1, batch), rtol=1e-12)
    assert all_of_k.w.tobytes() == sync.w.tobytes()
    assert sync.account.used == sync.account.evaluations == 5 * NET.n
    assert sync.account.updates == 5


def test_models_are_the_same_bits_on_every_backend(aws, list_bucket):
    def on(backend):
        with sgc.Session(backend) as s:
            return trained(s, scheme="sync", lr=0.1, batch=6, rounds=2)

    first = on("local")
    for backend in ("simulated", "processes", "aws"):
        assert on(backend).w.tobytes() == first.w.tobytes()
    assert list_bucket() == []
    assert aws.bucket


GRADIENTS = {
    "k-sync": {"k": 3},
    "k-batch-sync": {"k": 6},
    "k-async": {"k": 2},
    "k-batch-async": {"k": 3, "rounds": 120},
    "adasync": {"k": 2, "interval": 0.5},
    "cutoff": {},
    "gap-aware": {"batch": 32, "rounds": 240},
    "gba": {},
}
"""Schemes whose updates are of few results take more of them: on a real clock the means below are of other samples."""


@pytest.mark.parametrize("backend", ["simulated", "local"])
@pytest.mark.parametrize("scheme", GRADIENTS)
def test_schemes_of_gradients_come_near_the_minimum(scheme, backend):
    store, asked = MemoryStore(), {"batch": 8, "rounds": 60, **GRADIENTS[scheme]}
    with sgc.Session(backend, store=store, inject=Stragglers(fraction=0.1, slowdown=3)) as s:
        fit = trained(s, LOG, scheme=scheme, lr=lambda t: 2.0 / (1 + 0.1 * t), **asked)
    assert np.linalg.norm(fit.w - LOG.best) < 0.4 * np.linalg.norm(LOG.best)
    assert fit.account.samples == asked["batch"] * fit.account.used
    assert sum(fit.account.staleness.values()) == fit.account.used
    assert fit.report.check()
    assert fit.values[0] == pytest.approx(np.log(2))
    assert fit.values[-30:].mean() < 0.55
    assert keys_of(store) == []


def test_k_async_staleness_is_that_of_the_law():
    with sgc.Session("simulated", delay=Exponential(1.0)) as s:
        fit = trained(s, LOG, scheme="k-batch-async", k=2, batch=1, lr=0.01, rounds=500)
    mean = sum(age * n for age, n in fit.account.staleness.items()) / fit.account.used
    assert mean == pytest.approx((LOG.n - 1) / 2, rel=0.04)


def test_global_batches_of_any_age_are_k_batch_async():
    with sgc.Session("simulated", seed=1) as s:
        tokens = trained(s, scheme="gba", tolerance=np.inf, k=3, batch=4, lr=0.05, rounds=30)
    with sgc.Session("simulated", seed=1) as s:
        plain = trained(s, scheme="k-batch-async", k=3, batch=4, lr=0.05, rounds=30)
    np.testing.assert_allclose(tokens.w, plain.w, rtol=1e-12)
    with sgc.Session("simulated", seed=1) as s:
        strict = trained(s, scheme="gba", tolerance=0, k=3, batch=4, lr=0.05, rounds=30)
    assert not np.allclose(strict.w, plain.w)


def test_adasync_waits_for_more_as_the_loss_falls():
    waited = []
    with sgc.Session("simulated", delay=Exponential(1.0)) as s:
        trained(
            s, Sampled(8, rows=200), scheme="adasync", k=1, interval=2.0, lr=0.1, batch=8, rounds=120,
            callback=lambda it: waited.append(it.seconds) and None,
        )  # fmt: skip
    gaps = np.diff([0.0, *waited])
    assert gaps[-30:].mean() > 3 * gaps[:15].mean()  # eight of eight instead of one of eight: 2.7 s instead of 0.125 s


def test_slow_slots_do_not_tilt_the_objective_unless_asked_to():
    shifted = Sampled(2, rows=40, d=1, l2=0.0)
    shifted.X = np.ones((40, 1))
    shifted.y = np.repeat([0.0, 1.0], 20)
    law = sgc.stragglers.PerSlot(Constant(1.0), (1.0, 50.0))

    def found(shards):
        with sgc.Session("simulated", delay=law) as s:
            return trained(s, shifted, scheme="k-sync", k=1, lr=lambda t: 1 / (1 + t), rounds=150, shards=shards).w[0]

    assert found("drawn") == pytest.approx(0.5, abs=0.15)
    assert found("fixed") == pytest.approx(0.0, abs=1e-12)


def test_unequal_fixed_shards_count_by_their_rows():
    with sgc.Session("simulated") as s:
        fit = trained(s, scheme="sync", shards="fixed", n_workers=3, lr=0.2, rounds=4)
    w = NET.w0
    for _ in range(4):
        w = w - 0.2 * NET.gradient(w)
    np.testing.assert_allclose(fit.w, w, rtol=1e-12)


def test_more_slots_than_partitions_draw_from_the_same():
    with sgc.Session("simulated") as s:
        fit = trained(s, scheme="k-sync", k=16, n_workers=16, lr=0.2, rounds=40)
    assert fit.account.issued == 40 * 16
    assert np.linalg.norm(fit.w - NET.best) < 0.2


# -- weather -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["local", "aws"])
def test_faults_change_nothing_but_the_account(backend, aws, list_bucket):
    weather = [Faults(lose_reply={1}, fail={2}, throttle={0}, seed=1), Stragglers(fraction=0.2, slowdown=3, base=0.003)]
    with sgc.Session(backend, inject=weather) as s:
        fit = trained(s, scheme="sync", lr=0.1, batch=6, rounds=3)
    np.testing.assert_allclose(fit.w, sync_sgd(NET, 3, 0.1, 6), rtol=1e-12)
    assert fit.report.recovered >= 3
    assert fit.report.failures["function"] == 3
    assert list_bucket() == []
    assert aws.bucket


def test_large_models_are_stored_once_a_version_and_nothing_is_left():
    store, d = MemoryStore(), 6000
    X = np.random.default_rng(0).standard_normal((32, d)) / np.sqrt(d)
    with sgc.Session("local", store=store, inject=Stragglers(fraction={3}, slowdown=20, base=0.005)) as s:
        data = s.encode(X, X[:, 0], code="ignore-stragglers", n_workers=4)
        fit = sgc.minimize_stochastic(data, np.ones(d), scheme="k-sync", k=3, lr=0.5, rounds=4)
    assert fit.account.wasted >= 4
    assert fit.account.writes < 5 * (4 + 3)  # results, a model and a mark each round, and the data
    assert keys_of(store) == []


# -- objectives --------------------------------------------------------------------------------------------


def own_loss(X, y, w):
    """Least squares, on a matrix of weights."""
    r = X @ w - y[:, None]
    return 0.5 * float(np.sum(r**2)), X.T @ r


def silent(X, y, w):
    return own_loss(X, y, w)[1]


@pytest.mark.parametrize("loss", [own_loss, silent])
def test_a_loss_of_ones_own(loss, aws):
    w0 = np.zeros((3, 2))
    with sgc.Session("aws") as s:
        fit = sgc.minimize_stochastic(
            NET.encode(s), w0, loss=loss, l2=NET.l2, scheme="sync", lr=0.1, batch=6, rounds=3, seed=5
        )
    np.testing.assert_allclose(fit.w, np.repeat(sync_sgd(NET, 3, 0.1, 6)[:, None], 2, axis=1), rtol=1e-12)
    assert np.isnan(fit.values).all() == (loss is silent)
    assert aws.bucket


def test_sparse_data_row_weights_and_an_optimizer():
    sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(6)
    X = rng.standard_normal((40, 5)) * (rng.random((40, 5)) < 0.5)
    labels, weight = rng.integers(3, size=40), rng.random(40)
    with sgc.Session("local") as s:
        data = s.encode(sparse.csr_array(X), labels, code="ignore-stragglers", n_workers=4)
        objective = {"loss": "softmax", "sample_weight": weight}
        fit = sgc.minimize_stochastic(
            data,
            np.zeros((5, 3)),
            scheme="sync",
            shards="fixed",
            lr=0.5,
            rounds=3,
            optimizer=Momentum(0.5),
            **objective,
        )
        w, u = np.zeros((5, 3)), np.zeros((5, 3))
        for _ in range(3):
            u = 0.9 * u + data.gradient(w, reduction="mean", max_error=0.0, **objective)
            w = w - 0.5 * u
    np.testing.assert_allclose(fit.w, w, atol=1e-12)


# -- ends --------------------------------------------------------------------------------------------------


def test_it_ends_by_callback_time_or_divergence():
    with sgc.Session("simulated", delay=Constant(1.0)) as s:
        told = []
        stopped = trained(s, scheme="sync", lr=0.1, callback=lambda it: told.append(it) or it.step == 3)
        in_time = trained(s, scheme="sync", lr=0.1, seconds=5.0)
        with np.errstate(all="ignore"):
            lost = trained(s, scheme="sync", lr=1e150, rounds=20)
    assert (stopped.reason, stopped.steps, [it.step for it in told]) == ("callback", 3, [1, 2, 3])
    assert (in_time.reason, in_time.steps, in_time.account.seconds) == ("seconds", 5, 5.0)
    assert lost.reason == "diverged"
    assert "smaller lr" in lost.message


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"scheme": "k-snyc"}, "did you mean 'k-sync'"),
        ({"scheme": 3}, "scheme must be a name or a Scheme"),
        ({"scheme": "sync", "k": 3}, "has no argument 'k'"),
        ({"scheme": "adasync"}, "needs interval="),
        ({"scheme": sgc.Scheme(name="x", policy=KSync(2)), "k": 3}, "an object brings its own"),
        ({"k": 0}, "k must be"),
        ({"k": 5}, "k must be at most the number of slots"),
        ({"lr": -1.0}, "lr must be a positive number"),
        ({"batch": 0}, "batch must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"n_workers": 0}, "n_workers must be"),
        ({"n_workers": 5, "shards": "fixed"}, "5 nodes cannot share 4 partitions"),
        ({"shards": "mine"}, "shards must be one of"),
        ({"seconds": 0}, "seconds must be"),
        ({"optimizer": "sgd"}, "optimizer must be one like"),
        ({"l2": -1}, "l2 must be"),
        ({"w0": np.zeros(2)}, "w0 must have shape"),
        ({"w0": np.zeros(3, complex)}, "w0 must be real"),
        ({"loss": "sqared"}, "did you mean 'squared'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_stored(asked, said):
    check_refused(asked, said)


def test_other_data_are_refused():
    with sgc.Session("local") as s:
        data = s.encode(NET.X, NET.y, code="mds", n_workers=4, k=3)
        with pytest.raises(sgc.InputError, match="ignore-stragglers"):
            sgc.minimize_stochastic(data, NET.w0, lr=0.1)
