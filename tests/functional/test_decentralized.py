"""Decentralized trainings whose nodes step in workers: the same models on every backend and in any weather."""

import asyncio

import numpy as np
import pytest
from node_rig import Net, keys_of

import serverless_gc as sgc
from serverless_gc.errors import NotDecodableError
from serverless_gc.gossip import AET, LayUp, LinearSampleTrigger, PushSum, RowAverage, synchronous
from serverless_gc.inject import Faults, Stragglers
from serverless_gc.invoke import LocalInvoker
from serverless_gc.store import MemoryStore
from serverless_gc.stragglers import Constant
from serverless_gc.topologies import FromAdjacency, Groups, LayerPeers, OnePeerExponential, Ring
from serverless_gc.wire.turn import Turn

N, ROUNDS, D = 4, 3, 3
NET = Net(N, l2=0.01, seed=7)
W0 = np.array([0.5, -1.0, 0.0])
LOPSIDED = FromAdjacency([[0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]])


def growing(t):
    return 0.2 / (1 + 0.05 * t)


METHODS = {
    "push-sum": ({"topology": LOPSIDED}, lambda g: PushSum(LOPSIDED, g, W0, growing)),
    "d-psgd": (
        {"method": "push-sum", "debias": False, "topology": "ring"},
        lambda g: PushSum(Ring(N), g, W0, growing, debias=False),
    ),
    "row-average": ({}, lambda g: RowAverage(OnePeerExponential(N), g, W0, growing)),
    "aet": ({"a": 1, "b": 2, "topology": "ring"}, lambda g: AET(Ring(N), g, W0, LinearSampleTrigger(1, 2), growing)),
    "layup": ({"layers": 2}, lambda g: LayUp(LayerPeers(N, 2, seed=7), g, W0, growing)),
}


def options(name):
    return {"method": name, "lr": growing, "rounds": ROUNDS, "l2": 0.01, "batch": 2, "seed": 7, **METHODS[name][0]}


def encoded(session, X=NET.X, y=NET.y, n=N):
    return session.encode(X, y, code="ignore-stragglers", n_workers=n)


def reference(name):
    """Models of all nodes by the in-memory rounds, gradients in plain NumPy."""
    kernel = METHODS[name][1](NET.gradient)
    *_, states = synchronous(kernel, N, ROUNDS)
    return np.array([kernel.model(state) for state in states])


def trained(session, name, **more):
    return sgc.minimize_decentralized(encoded(session), W0, **{**options(name), **more})


# -- the same everywhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_models_are_those_of_the_synchronous_rounds(name):
    with sgc.Session("local") as s:
        fit = trained(s, name)
    np.testing.assert_allclose(fit.models, reference(name), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(fit.w, fit.models.mean(axis=0))
    assert fit.gradient_norms.shape == (ROUNDS, N)
    assert (fit.gradient_norms > 0).all()
    assert fit.report.check().used == N * ROUNDS
    assert fit.report.bytes_down <= 8 * N * (ROUNDS + 2 * D + 2)  # a number a round, and the last states


def test_models_are_the_same_bits_on_every_backend(aws, list_bucket):
    def on(backend, **more):
        with sgc.Session(backend, **more) as s:
            return {name: trained(s, name).models.tobytes() for name in METHODS}

    first = on("local")
    assert on("simulated") == first
    assert on("processes") == first
    assert on("aws") == first
    with sgc.Session("aws", presigned=True) as s:  # workers without any right
        for name in ("push-sum", "layup"):
            assert trained(s, name).models.tobytes() == first[name]
    assert list_bucket() == []
    assert aws.bucket


# -- bad weather -------------------------------------------------------------------------------------------

WEATHER = [
    Faults(throttle={0}, lose_reply={1}, fail={2}, late={3}, seed=1),
    Stragglers(fraction=0.3, slowdown=3, base=0.005, seed=2),
]


@pytest.mark.parametrize("backend", ["local", "aws"])
def test_faults_change_nothing_but_the_account(backend, aws, list_bucket):
    with sgc.Session(backend, inject=WEATHER) as s:
        fit = trained(s, "push-sum")
    np.testing.assert_allclose(fit.models, reference("push-sum"), rtol=1e-12, atol=1e-12)
    report = fit.report.check()
    assert report.recovered >= ROUNDS
    assert report.failures["function"] == ROUNDS
    assert report.throttles >= ROUNDS
    assert list_bucket() == []
    assert aws.bucket


def test_store_errors_and_bad_replies_change_nothing():
    with (
        sgc.Session(
            "local", inject=[Faults(slow_down=0.05, slow_down_seconds=60, seed=3), Faults(non_finite={1})]
        ) as s,
        pytest.raises(NotDecodableError, match="no finite number"),
    ):
        trained(s, "layup")
    with sgc.Session("local", inject=Faults(slow_down=0.05, slow_down_seconds=60, seed=3)) as s:
        fit = trained(s, "layup")
    np.testing.assert_allclose(fit.models, reference("layup"), rtol=1e-12, atol=1e-12)
    assert fit.report.slow_downs > 0


class Doubled(LocalInvoker):
    """Has every task done twice, at the same time, and answers what came second."""

    async def invoke(self, task, payload, *, timeout):
        replies = await asyncio.gather(*(super(Doubled, self).invoke(task, payload, timeout=timeout) for _ in range(2)))
        return replies[1]


def test_every_task_done_twice_gives_the_same():
    store = MemoryStore()
    with sgc.Session("local", store=store, invoker=Doubled(store, threads=4)) as s:
        fit = trained(s, "aet")
    np.testing.assert_allclose(fit.models, reference("aet"), rtol=1e-12, atol=1e-12)
    assert keys_of(store) == []


def test_a_slow_node_holds_up_those_who_wait_for_it_alone():
    slow = Stragglers(fraction={1}, slowdown=10, persistent=True)

    def seconds(tau):
        with sgc.Session("simulated", delay=Constant(1.0), inject=slow) as s:
            fit = trained(s, "layup", tau=tau, rounds=6)
        return fit.account.seconds, fit.account.busy_used, fit

    waiting, _, exact = seconds(0)
    free, busy, late = seconds(None)
    assert waiting >= free == 60.0  # the slow one's own six rounds
    assert busy == 3 * 6 + 60
    assert np.isfinite(late.models).all()
    assert not np.array_equal(late.models, exact.models)


@pytest.mark.parametrize("method", ["push-sum", "row-average", "aet", "layup"])
def test_late_mail_still_leads_to_the_minimum(method):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((80, 3))
    y = X @ [1.0, -2.0, 0.5]
    more = {"a": 0, "b": 2} if method == "aet" else {}
    with sgc.Session("simulated", inject=Stragglers(fraction=0.2, slowdown=8)) as s:
        fit = sgc.minimize_decentralized(
            encoded(s, X, y), np.zeros(3), method=method, lr=0.2, rounds=80, tau=2, topology=None, **more
        )
    np.testing.assert_allclose(fit.w, [1.0, -2.0, 0.5], atol=1e-3)


# -- losses, data, schemes ---------------------------------------------------------------------------------


def test_unequal_partitions_find_the_minimum_over_all_rows():
    rng = np.random.default_rng(5)
    X, c = rng.standard_normal((43, 2)), 0.01
    y = X @ [2.0, 1.0] + rng.standard_normal(43)
    best = np.linalg.solve(X.T @ X / 43 + c * np.eye(2), X.T @ y / 43)
    with sgc.Session("simulated") as s:
        data = s.encode(X, y, code="frc", n_workers=8, k=8)
        fit = sgc.minimize_decentralized(
            data, np.zeros(2), topology=Ring(4), l2=c, lr=lambda t: 0.3 / (1 + 0.03 * t), rounds=150
        )
    assert fit.models.shape == (4, 2)  # two partitions each
    np.testing.assert_allclose(fit.w, best, atol=0.02)
    equal = np.mean([np.linalg.solve(X[i].T @ X[i], X[i].T @ y[i]) for i in np.array_split(range(43), 4)], axis=0)
    assert np.linalg.norm(equal - best) > 0.05


def test_complete_graph_is_gradient_descent_whatever_the_loss():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    rng = np.random.default_rng(6)
    X = rng.standard_normal((40, 5)) * (rng.random((40, 5)) < 0.5)
    labels, weight = rng.integers(3, size=40), rng.random(40)
    with sgc.Session("local") as s:
        data = encoded(s, scipy_sparse.csr_array(X), labels)
        loss = {"loss": "softmax", "sample_weight": weight}
        fit = sgc.minimize_decentralized(data, np.zeros((5, 3)), topology="complete", lr=0.5, rounds=6, **loss)
        w = np.zeros((5, 3))
        for _ in range(6):
            w = w - 0.5 * data.gradient(w, reduction="mean", max_error=0.0, **loss)
        drawn = sgc.minimize_decentralized(data, np.zeros((5, 3)), lr=0.5, rounds=3, batch=4, **loss)
    np.testing.assert_allclose(fit.w, w, atol=1e-12)
    assert drawn.models.shape == (4, 5, 3)


def pull(X, y, w):
    """Gradient of a user's own loss, on whatever shape."""
    return len(X) * (w - y.mean())


class Halves:
    """A scheme of the user's: half of what came last, half of one's own."""

    def start(self, x):
        return (x,)

    def step(self, turn, state, mail, gradient):
        x = state[0] if not mail else (state[0] + mail[-1].arrays[0]) / 2
        for rate in turn.rates:
            x = x - rate * gradient(turn.k, x)
        return (x,)

    def share(self, state, share):  # noqa: ARG002
        return state

    def model(self, state):
        return state[0]


def test_a_loss_and_a_scheme_of_ones_own_are_sent_along(aws, list_bucket):
    X, y = np.zeros((8, 1)), np.repeat([0.0, 1.0, 2.0, 3.0], 2)
    asked = {"method": Halves(), "topology": "directed-ring", "lr": 0.1, "rounds": 5}
    with sgc.Session("aws") as s:
        fit = sgc.minimize_decentralized(encoded(s, X, y), np.zeros((2, 2)), loss=pull, **asked)
    x = np.zeros(4)
    for k in range(5):
        x = (x + np.roll(x, 1)) / 2 if k else x
        x = x - 0.1 * (x - np.arange(4))
    assert fit.method == "Halves"
    np.testing.assert_allclose(fit.models, np.broadcast_to(x[:, None, None], (4, 2, 2)), atol=1e-12)
    assert list_bucket() == []
    assert aws.bucket


class Relay:
    """A topology of the user's: node 0 passes all it has on and keeps nothing; NumPy's numbers, as they come."""

    def out(self, i, k):  # noqa: ARG002
        return [(np.int64(1), np.float64(1.0))] if i == 0 else [(np.int64(i), np.float32(0.5)), (0, 0.5)]

    def groups(self):
        return [[0], [1]]

    def matrix(self, k):
        A = np.zeros((2, 2))
        for i in range(2):
            for j, weight in self.out(i, k):
                A[j, i] = weight
        return A


def test_a_topology_of_ones_own_need_not_leave_a_node_anything():
    def weights(k):
        w = np.ones(2)
        for r in range(1, k):
            w = Relay().matrix(r) @ w
        return w

    net = Net(2, batch=0)
    kernel = PushSum(Relay(), net.gradient, W0, lr=np.float32(0.125))
    *_, states = synchronous(kernel, 2, 5)
    assert [state[1][0] for state in states] == weights(5).tolist()
    with sgc.Session("local") as s:
        data = encoded(s, net.X, net.y, n=2)
        fit = sgc.minimize_decentralized(data, W0, topology=Relay(), lr=np.float32(0.125), rounds=np.int64(5))
    np.testing.assert_allclose(fit.models, [kernel.model(state) for state in states], rtol=1e-12)


def test_a_large_model_is_read_by_key():
    X = np.random.default_rng(0).standard_normal((8, 6000))
    with sgc.Session("local") as s:
        fit = sgc.minimize_decentralized(encoded(s, X, X[:, 0]), np.ones(6000), lr=1e-4, rounds=2)
    assert fit.report.bytes_up < 4 * 48_000 + X.nbytes * 1.1
    assert fit.models.shape == (4, 6000)


# -- groups ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["local", "aws", "simulated"])
def test_groups_of_one_are_local_steps_and_averages(backend, aws):
    with sgc.Session(backend) as s:
        groups = {"method": "lasgd", "topology": Groups(N, 1), "period": 3}
        fit = sgc.minimize_decentralized(encoded(s), W0, lr=0.1, rounds=ROUNDS, l2=0.01, batch=2, seed=7, **groups)
    x = W0
    for average in range(ROUNDS):
        local = []
        for i in range(N):
            z = x
            for h in range(3):
                z = z - 0.1 * NET.gradient(i, 3 * average + h, z)
            local.append(z)
        x = np.mean(local, axis=0)
    np.testing.assert_allclose(fit.models, np.tile(x, (N, 1)), rtol=1e-12, atol=1e-12)
    assert fit.disagreement == pytest.approx(0, abs=1e-15)
    assert fit.gradient_norms.shape == (ROUNDS, N)
    assert fit.report.check().used == ROUNDS * N * 3
    assert aws.bucket


def test_groups_stand_faults_and_leave_nothing():
    store = MemoryStore()
    rng = np.random.default_rng(3)
    X = rng.standard_normal((800, 5000))
    with sgc.Session("local", store=store, inject=[Faults(fail=0.1, lose_reply=0.1), WEATHER[1]]) as s:
        data = encoded(s, X, X @ np.ones(5000) / 100, n=8)
        fit = sgc.minimize_decentralized(
            data, np.zeros(5000), method="lasgd", group_size=4, period=5, lr=1e-4, rounds=2, batch=20
        )
    assert np.linalg.norm(X @ fit.w - X @ np.ones(5000) / 100) < np.linalg.norm(X @ np.ones(5000) / 100)
    assert fit.models.shape == (2, 5000)
    assert fit.models[0].tobytes() == fit.models[1].tobytes()
    assert fit.report.check().used == 20
    assert sum(fit.account.staleness.values()) == 20
    assert keys_of(store) == []


def test_a_turn_says_all_that_a_worker_must_be_asked_for():
    turn = Turn(1, 3, 0.5, (0.1, 0.2), ((2, (0, 1)),), ((0, 2, (1,)),), "p")
    assert turn.requests() == [
        ("GET", "p/node/1/state/2"),
        ("GET", "p/mail/1/2/0"),
        ("GET", "p/node/0/state/2"),
        ("GET", "p/node/1/state/3"),
        ("PUT", "p/node/1/state/3"),
        ("PUT", "p/mail/2/3/1"),
    ]
    assert Turn.from_dict(turn.to_dict()) == turn
    assert Turn(0, 1, 1.0, (0.3,) * 1000).to_dict()["rates"] == (0.3,)
