"""Stochastic trainings whose workers do more than one gradient: time limits, partial results, local steps, triggers."""

import time

import numpy as np
import pytest
from node_rig import keys_of
from stochastic_rig import LOG, NET, Sampled, check_refused, tasks_of, trained

import serverless_gc as sgc
from serverless_gc.aggregate import AverageModels, Mean, WeightedMean
from serverless_gc.inject import Faults, Stragglers
from serverless_gc.optim import AMSGrad, ModelAverage, NaturalGradient
from serverless_gc.policies import Anytime, DitheredUniform, FirstDone, GossipReady, Groups, KSync, TopK
from serverless_gc.store import MemoryStore
from serverless_gc.stragglers import Constant, Exponential, PerSlot
from serverless_gc.topologies import Ring
from serverless_gc.transforms import SumMessages
from serverless_gc.types import Update


class Kept:
    """An aggregator that remembers what it was given."""

    def __init__(self, inner):
        self.inner, self.rounds = inner, []

    def combine(self, arrivals, ctx):
        self.rounds.append(list(arrivals))
        return self.inner.combine(arrivals, ctx)


def local_sgd(net, task, w, steps, lr, batch, part=None):
    for t in range(steps):
        w = w - lr * net.gradient(w, net.rows(task, net.part(task) if part is None else part, batch, t))
    return w


# -- until a time ------------------------------------------------------------------------------------------

SPEEDS = PerSlot(Constant(1.0), (0.25, 0.5, 1.0, 3.0))  # 4, 2, 1 and 0 units a second


def test_anytime_weighs_models_by_their_work():
    with sgc.Session("simulated", delay=SPEEDS) as s:
        fit = trained(s, scheme="anytime", compute_seconds=1.0, lr=0.1, batch=5, rounds=3)
    w = NET.w0
    for version in range(3):
        steps = (4, 2, 1, 0)
        models = [local_sgd(NET, t, w, n, 0.1, 5) for t, n in zip(tasks_of(version, 4, 5), steps, strict=True)]
        w = np.average(models, axis=0, weights=steps)
    np.testing.assert_allclose(fit.w, w, rtol=1e-12)
    assert (fit.account.seconds, fit.account.samples) == (3.0, 3 * 7 * 5)


@pytest.mark.parametrize(("pace", "steps"), [(0.5, 2), (5.0, 0)])
def test_equal_work_is_the_plain_average_and_none_changes_nothing(pace, steps):
    with sgc.Session("simulated", delay=Constant(pace)) as s:
        fit = trained(s, scheme="anytime", compute_seconds=1.0, lr=0.1, batch=5, rounds=1)
    models = [local_sgd(NET, task, NET.w0, steps, 0.1, 5) for task in tasks_of(0, 4, 5)]
    np.testing.assert_allclose(fit.w, np.mean(models, axis=0), rtol=1e-12)
    assert fit.account.seconds == 1.0


def test_anytime_minibatch_steps_along_the_mean_over_all_samples():
    with sgc.Session("simulated", delay=SPEEDS) as s:
        fit = trained(s, scheme="anytime-minibatch", compute_seconds=1.0, lr=0.1, batch=5, rounds=3)
    w = NET.w0
    for version in range(3):
        units = zip(tasks_of(version, 4, 5), (4, 2, 1, 0), strict=True)
        rows = [NET.rows(task, NET.part(task), 5, t) for task, n in units for t in range(n)]
        w = w - 0.1 * NET.gradient(w, np.concatenate(rows))
    np.testing.assert_allclose(fit.w, w, rtol=1e-12)


@pytest.mark.parametrize("backend", ["simulated", "local", "processes", "aws"])
@pytest.mark.parametrize("scheme", ["anytime", "anytime-minibatch"])
def test_a_fixed_time_comes_near_the_minimum(scheme, backend, aws):
    more = {"delay": Exponential(50.0)} if backend == "simulated" else {}
    lr, near = {"anytime": 0.1, "anytime-minibatch": 0.4}[scheme], 0.4 * np.linalg.norm(NET.best)
    with sgc.Session(backend, **more) as s:
        asked = {"scheme": scheme, "compute_seconds": 0.1, "batch": 4, "lr": lr, "rounds": 200}
        fit = trained(s, callback=lambda it: np.linalg.norm(it.w - NET.best) < near, **asked)
    assert fit.reason == "callback"  # in how many rounds depends on how fast this machine is
    assert fit.account.used == fit.steps * 4
    assert fit.account.samples % 4 == 0
    assert aws.bucket


def test_a_worker_that_is_held_up_does_less_and_delays_nobody():
    kept = Kept(AverageModels())
    mine = sgc.Scheme(
        name="mine", policy=Anytime(0.5, guard=20.0), task="local-sgd", aggregator=kept, optimizer=ModelAverage()
    )
    slow = Stragglers(fraction={2}, slowdown=1000, base=0.001)
    with sgc.Session("local", inject=slow) as s:
        fit = trained(s, scheme=mine, lr=0.1, batch=4, rounds=1)
    for arrivals in kept.rounds:
        assert {a.task.slot: a.work_done > 0 for a in arrivals} == {0: True, 1: True, 2: False, 3: True}
    assert fit.account.samples == sum(a.work_done for arrivals in kept.rounds for a in arrivals)


# -- partial results ---------------------------------------------------------------------------------------


def finished(net, w, version, counts, batch):
    """Mean gradient of the first so many mini-batches of each slot."""
    units = [(task, t) for task in tasks_of(version, net.n, 5) for t in range(counts[task.slot])]
    return np.mean([net.gradient(w, net.rows(task, net.part(task), batch, t)) for task, t in units], axis=0)


def test_finished_mini_batches_count_and_no_others():
    with sgc.Session("simulated", delay=PerSlot(Constant(1.0), (1.0, 1.9, 3.9, 9.0))) as s:
        fit = trained(s, scheme="non-blocking", mini_batches=4, batch=5, lr=0.1, rounds=3)
    w = NET.w0
    for version in range(3):
        w = w - 0.1 * finished(NET, w, version, (4, 2, 1, 0), 5)
    np.testing.assert_allclose(fit.w, w, rtol=1e-12)
    assert fit.account.seconds == pytest.approx(3.0)
    assert fit.account.samples == 3 * 7 * 5


@pytest.mark.parametrize("backend", ["local", "aws"])
def test_workers_publish_mini_batches_and_stop_when_told(backend, aws, list_bucket, wait_until):
    kept = Kept(WeightedMean(of="sums"))
    mine = sgc.Scheme(
        name="mine", policy=FirstDone(1), task="mini-batches", units=4, transforms=(SumMessages(),), aggregator=kept
    )
    store = {"store": MemoryStore()} if backend == "local" else {}
    with sgc.Session(backend, inject=Stragglers(fraction={1, 2, 3}, slowdown=2, base=1.2), **store) as s:
        fit = trained(s, scheme=mine, batch=5, lr=0.1, rounds=1)
        told = time.monotonic() + 1.0
        wait_until(lambda: time.monotonic() > told)  # until the late have looked for the mark, which goes with the run
    w = NET.w0
    for version, arrivals in enumerate(kept.rounds):
        counts = dict.fromkeys(range(4), 0) | {a.task.slot: int(a.work_done) for a in arrivals}
        assert counts[0] == 4
        w = w - 0.1 * finished(NET, w, version, counts, 5)
    np.testing.assert_allclose(fit.w, w, rtol=1e-12)
    used = sum(a.work_done for arrivals in kept.rounds for a in arrivals)
    assert fit.account.samples == 5 * used
    assert used > 4  # the others have done a quarter long before the first is done
    assert list_bucket() == []
    assert not store or keys_of(store["store"]) == []
    assert aws.bucket


def test_one_mini_batch_is_k_sync():
    with sgc.Session("simulated", seed=2) as s:
        one = trained(s, scheme="non-blocking", mini_batches=1, k=2, batch=5, lr=0.1, rounds=5)
    with sgc.Session("simulated", seed=2) as s:
        plain = trained(s, scheme="k-sync", k=2, batch=5, lr=0.1, rounds=5)
    np.testing.assert_allclose(one.w, plain.w, rtol=1e-12)


# -- local steps -------------------------------------------------------------------------------------------


def test_all_fresh_clients_are_federated_averaging():
    with sgc.Session("simulated") as s:
        fit = trained(s, scheme="hybrid-federated", k=4, local_steps=3, lr=0.1, batch=5, rounds=3)
    w = NET.w0
    for version in range(3):
        models = [local_sgd(NET, t, w, 3, 0.1, 5, NET.parts[t.slot]) for t in tasks_of(version, 4, 5)]
        w = np.average(models, axis=0, weights=[len(part) for part in NET.parts])
    np.testing.assert_allclose(fit.w, w, rtol=1e-12)


@pytest.mark.parametrize("backend", ["simulated", "local"])
@pytest.mark.parametrize("curvature", ["persample", "square"])
def test_late_clients_are_merged(backend, curvature):
    store = MemoryStore()
    slow = Stragglers(fraction={0, 1}, slowdown=6, base=0.002)
    with sgc.Session(backend, store=store, inject=slow) as s:
        asked = {"scheme": "hybrid-federated", "k": 5, "lr": 0.3, "compensation": 0.5, "curvature": curvature}
        fit = trained(s, LOG, batch=20, rounds=60, **asked)
    assert np.linalg.norm(fit.w - LOG.best) < 0.2 * np.linalg.norm(LOG.best)
    assert max(fit.account.staleness) > 0
    assert fit.account.used + fit.account.wasted == fit.account.issued
    assert fit.account.wasted <= LOG.n - 5  # only what was in flight at the end
    assert keys_of(store) == []


# -- triggers ----------------------------------------------------------------------------------------------


def amsgrad(net, rounds, groups, batch, first):
    """Distributed AMSGrad: the first of each group sends the gradient on the group's shard, scaled to all rows."""
    rule, w = AMSGrad(0.05), net.w0
    state = rule.init(w)
    for version in range(rounds):
        tasks, found = tasks_of(version, net.n, 5), []
        for members in groups:
            shard = np.concatenate([net.parts[i] for i in members])
            share = len(groups) * len(shard) / len(net.X)
            task = tasks[members[first]]
            found.append(share * (net.gradient(w, net.rows(task, shard, batch)) - net.l2 * w) + net.l2 * w)
        w, state = rule.step(w, Update(np.mean(found, axis=0)), state, version)
    return w


@pytest.mark.parametrize(("size", "groups"), [(1, [[0], [1], [2], [3]]), (2, [[0, 1], [2, 3]])])
@pytest.mark.parametrize("scheme", ["cada", "lag"])
def test_who_always_sends_is_distributed_amsgrad(scheme, size, groups):
    with sgc.Session("simulated", delay=PerSlot(Constant(1.0), (2.0, 1.0, 2.0, 1.0))) as s:
        fit = trained(s, scheme=scheme, weight=0.0, group_size=size, lr=0.05, batch=5, rounds=6)
    np.testing.assert_allclose(fit.w, amsgrad(NET, 6, groups, 5, size - 1), rtol=1e-10)
    assert fit.account.issued == 6 * 4


@pytest.mark.parametrize("backend", ["simulated", "local"])
def test_who_never_changes_enough_sends_by_age_alone(backend):
    with sgc.Session(backend) as s:
        fit = trained(s, scheme="cada", weight=np.inf, max_age=3, group_size=2, lr=0.05, batch=5, rounds=10)
    assert fit.account.samples == 2 * 4 * 5  # of rounds 0, 3, 6, 9, by two groups
    assert fit.account.used == 2 * 10


def test_silence_saves_uploads_or_invocations_and_little_is_lost():
    store = MemoryStore()
    with sgc.Session("simulated", store=store, inject=Faults(fail=0.05, lose_reply=0.05, seed=3)) as s:
        asked = {"lr": 0.1, "rounds": 100, "batch": None}
        always = trained(s, LOG, scheme="cada", weight=0.0, **asked)
        cada = trained(s, LOG, scheme="cada", weight=0.1, **asked)
        lag = trained(s, LOG, scheme="lag", weight=1.0, **asked)
    for fit in (always, cada, lag):
        assert np.linalg.norm(fit.w - LOG.best) < 0.1 * np.linalg.norm(LOG.best)
    assert cada.account.samples < 0.5 * always.account.samples
    assert cada.account.bytes_down < always.account.bytes_down
    assert lag.account.used < 0.5 * cada.account.used
    assert keys_of(store) == []


# -- statistics --------------------------------------------------------------------------------------------


def test_precisions_are_those_of_the_rounds_before():
    with sgc.Session("simulated") as s:
        fit = trained(s, scheme="precision", memory=0.5, lr=0.1, batch=6, rounds=3)
    w, variance = NET.w0, {}
    for version in range(3):
        singles = [NET.each(w, NET.rows(t, NET.parts[t.slot], 6)) for t in tasks_of(version, 4, 5)]
        weight = np.array([1 / variance.get(slot, 1.0) for slot in range(4)])
        for slot, single in enumerate(singles):
            now = single.var(axis=0, ddof=1).mean()
            variance[slot] = 0.5 * variance.get(slot, now) + 0.5 * now
        w = w - 0.1 * np.average([single.mean(axis=0) for single in singles], axis=0, weights=weight)
    np.testing.assert_allclose(fit.w, w, rtol=1e-9)


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_natural_gradients_know_the_rows(kind):
    with sgc.Session("local") as s:
        rule = NaturalGradient(0.3, kind, damping=0.1, memory=0.0)
        fit = trained(s, scheme="sync", optimizer=rule, lr=0.3, batch=6, rounds=2)
        named = trained(s, scheme="natural-gradient", kind=kind, damping=0.1, memory=0.0, lr=0.3, batch=6, rounds=2)
    w = NET.w0
    for version in range(2):
        single = np.concatenate([NET.each(w, NET.rows(t, NET.part(t), 6)) for t in tasks_of(version, 4, 5)])
        fisher = single.T @ single / len(single)
        fisher = np.diag(np.diag(fisher)) if kind == "diag" else fisher
        w = w - 0.3 * np.linalg.solve(fisher + 0.1 * np.eye(3), single.mean(axis=0))
    np.testing.assert_allclose(fit.w, w, rtol=1e-9)
    assert named.w.tobytes() == fit.w.tobytes()


# -- compressors -------------------------------------------------------------------------------------------


def test_the_error_of_dithered_gradients_is_uniform_and_their_bytes_are_few():
    step, d = 0.05, 4000
    wide = Sampled(2, rows=20, d=d, l2=0.0)
    with sgc.Session("local") as s:
        asked = {"scheme": "sync", "n_workers": 1, "lr": 1.0, "rounds": 1, "batch": 4}
        plain = trained(s, wide, **asked)
        small = trained(s, wide, compressor=DitheredUniform(step), **asked)
    error = small.w - plain.w
    assert np.abs(error).max() <= step / 2 + 1e-12
    assert error.var() == pytest.approx(step**2 / 12, rel=0.1)
    assert abs(error.mean()) < 4 * step / np.sqrt(12 * d)
    assert small.account.bytes_down < 0.3 * plain.account.bytes_down


class Single:
    """A compressor of one's own."""

    unbiased = False

    def encode(self, g, seed):  # noqa: ARG002
        return g.astype("<f4").tobytes()

    def decode(self, data, seed):  # noqa: ARG002
        return np.frombuffer(data, "<f4")

    def noise_var(self, g):  # noqa: ARG002
        return 0.0


@pytest.mark.parametrize("compressor", [Single(), TopK(3)], ids=["own", "top"])
@pytest.mark.parametrize("scheme", ["sync", "hybrid-federated"])
def test_compressors_of_ones_own_and_of_local_steps(scheme, compressor):
    with sgc.Session("local") as s:
        asked = {"scheme": scheme, "lr": 0.1, "rounds": 4, "batch": 5}
        asked |= {"k": 4} if scheme != "sync" else {}
        plain, small = trained(s, **asked), trained(s, compressor=compressor, **asked)
    np.testing.assert_allclose(small.w, plain.w, rtol=1e-5)
    assert (small.w.tobytes() != plain.w.tobytes()) or isinstance(compressor, TopK)


NEAR = {
    "non-blocking": {"mini_batches": 4, "batch": 4, "lr": 1.0},
    "precision": {"batch": 8, "lr": 1.0},
    "natural-gradient": {"batch": 8, "lr": lambda t: 0.5 / (1 + 0.1 * t), "damping": 0.05},
    "lag": {"lr": 0.1, "weight": 0.1},
    "cada": {"lr": 0.1, "weight": 0.1},
}


@pytest.mark.parametrize("backend", ["simulated", "local"])
@pytest.mark.parametrize("scheme", NEAR)
def test_others_come_near_the_minimum(scheme, backend):
    store = MemoryStore()
    with sgc.Session(backend, store=store) as s:
        fit = trained(s, LOG, scheme=scheme, rounds=50, **NEAR[scheme])
    assert np.linalg.norm(fit.w - LOG.best) < 0.3 * np.linalg.norm(LOG.best)
    assert keys_of(store) == []


# -- everywhere --------------------------------------------------------------------------------------------

KINDS = {
    "local-sgd": {"scheme": "hybrid-federated", "k": 4, "lr": 0.1},
    "triggered": {"scheme": "cada", "weight": 1.0, "lr": 0.05},
    "statistics": {"scheme": "precision", "lr": 0.1},
    "fisher": {"scheme": "natural-gradient", "kind": "full", "lr": 0.1, "compressor": DitheredUniform(0.01)},
    "own": {"scheme": sgc.Scheme(name="mine", policy=KSync(4), units=3, aggregator=Mean()), "lr": 0.1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task_gives_the_same_bits_everywhere(kind, aws, list_bucket):
    def on(backend, **more):
        with sgc.Session(backend, **more) as s:
            return trained(s, batch=5, rounds=3, **KINDS[kind]).w.tobytes()

    first = on("simulated")
    assert on("processes") == first
    assert on("aws", inject=Faults(lose_reply={1}, fail={2}, seed=1)) == first
    if kind == "triggered":
        assert on("aws", presigned=True) == first  # workers without any right
    assert list_bucket() == []
    assert aws.bucket


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"scheme": "anytime"}, "needs compute_seconds="),
        ({"scheme": "anytime", "compute_seconds": -1.0}, "seconds must be positive"),
        ({"scheme": "anytime", "compute_seconds": 1e4}, "an attempt is given up after"),
        ({"scheme": "anytime", "compute_seconds": 2.0, "deadline": 3.0}, "give a longer deadline="),
        ({"scheme": "non-blocking"}, "say how many rows, batch="),
        ({"scheme": "non-blocking", "batch": 4, "compressor": TopK(2)}, "does not go with partial results"),
        ({"scheme": "non-blocking", "batch": 4, "optimizer": NaturalGradient(0.1)}, "no stats"),
        ({"scheme": "cada", "group_size": 3}, "size"),
        ({"scheme": "cada", "shards": "drawn"}, "does not go with groups"),
        ({"scheme": "precision", "batch": 1}, "one row has no variance"),
        (
            {"scheme": sgc.Scheme(name="g", policy=Groups([[0, 4]]), shards="grouped")},
            "groups name slot 4, and there are 4",
        ),
        ({"scheme": "precision", "optimizer": NaturalGradient(0.1, "full")}, "needs sum_of_squares"),
        ({"compressor": "zip"}, "compressor must have the methods"),
        ({"scheme": "hybrid-federated", "local_steps": 0}, "units must be"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_stored(asked, said):
    check_refused(asked, said)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"task": "gradients"}, "task must be one of"),
        ({"stats": "mean"}, "stats must be one of"),
        ({"shards": "grouped"}, "goes with policy=Groups"),
        ({"units": 0}, "units must be"),
        ({"policy": "k-sync"}, "policy must be one like those"),
        ({"policy": GossipReady(Ring(4))}, r"take sgc\.minimize_decentralized"),
        ({"policy": sgc.Deadline(Anytime(1.0), 9.0), "task": "mini-batches"}, "no stop_at"),
    ],
)
def test_schemes_that_make_no_sense_are_refused(fields, said):
    with pytest.raises(sgc.InputError, match=said):
        sgc.Scheme(**{"name": "mine", "policy": KSync(2), **fields})
