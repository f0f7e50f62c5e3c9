"""Steps of nodes over a store: written once, repeatable, and never a share lost or counted twice."""

import asyncio
import random
from contextlib import asynccontextmanager

import numpy as np
import pytest

from serverless_gc.engine import AioHost, Backoff, Engine, VirtualHost
from serverless_gc.errors import InvokeError, ObjectNotFound, StoreError
from serverless_gc.gossip import LayUp, PushSum, StoredNodes, own_share, synchronous
from serverless_gc.policies import GossipReady
from serverless_gc.store import CountingStore, LatencyStore, LocalStore, MemoryStore, S3Store, StoreWrapper
from serverless_gc.stragglers import Exponential
from serverless_gc.topologies import FromAdjacency, LayerPeers, OnePeerExponential
from serverless_gc.types import TaskSpec

N, ROUNDS = 4, 6
DIGRAPH = FromAdjacency([[0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]])


def pull(node, k, z):
    return np.sin(z - node) + 0.1 * k


def kernel(topology=DIGRAPH):
    return PushSum(topology, pull, np.arange(3.0), lr=0.1)


def same(left, right):
    return all(a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))


@pytest.fixture(params=["memory", "local", "s3"])
def opened(request, tmp_path):
    """Open one of the stores."""
    bucket = request.getfixturevalue("s3_bucket") if request.param == "s3" else None

    @asynccontextmanager
    async def open_one():
        if bucket is not None:
            store = S3Store(bucket[1], endpoint=bucket[0], region="us-east-1")
        else:
            store = MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "objects")
        try:
            yield store
        finally:
            await store.close()

    return open_one


class Unlucky(StoreWrapper):
    """Loses mail that it said to have written, and fails once between a state and its mail."""

    def __init__(self, inner, *, lose=(), fail=()):
        super().__init__(inner)
        self.lose, self.fail = set(lose), set(fail)

    async def put(self, key, data, *, if_absent=False):
        if key in self.fail:
            self.fail.remove(key)
            raise StoreError(f"the invocation was killed before it wrote {key!r}", key=key, retryable=True)
        if key in self.lose:
            self.lose.remove(key)
            return True
        return await super().put(key, data, if_absent=if_absent)


class Twice:
    """Does every attempt two times, the second one when the others have gone on."""

    def __init__(self, nodes, rng):
        self.nodes, self.rng, self.again = nodes, rng, []

    async def run(self, task):
        done = await self.nodes.run(task)
        self.again.append((task, done.body))
        if self.rng.random() < 0.5:
            old, body = self.again[self.rng.randrange(len(self.again))]
            assert same((await self.nodes.run(old)).body, body)
        return done


async def total_mass(nodes, topology, done):
    """Sum over nodes and over mail that no state records as consumed: of x, and of the weights."""
    parts = []
    taken = set()
    for i, k in enumerate(done):
        state = await nodes.state(i, k)
        parts.append([own_share(topology, i, k) * a for a in state])
        for r in range(1, k + 1):
            taken |= {nodes.mail_key(i, sent, src) for src, sent in await nodes.consumed(i, r)}
    for src, k in enumerate(done):
        for r in range(1, k + 1):
            for dst, arrays in nodes.kernel.send(src, r, await nodes.state(src, r)):
                if nodes.mail_key(dst, r, src) not in taken:
                    parts.append(list(arrays))
    return [sum(p[which] for p in parts) for which in (0, 1)]


async def test_stored_rounds_are_the_synchronous_rounds_to_the_last_bit(opened):
    async with opened() as store:
        nodes = StoredNodes(kernel(), store, "run")
        host = VirtualHost(Exponential(1.0), seed=1)
        await host.run(Engine(GossipReady(DIGRAPH, every=ROUNDS), N), nodes.run)
        for k, states in enumerate(synchronous(kernel(), N, ROUNDS), 1):
            for i in range(N):
                assert same(await nodes.state(i, k), states[i])
        assert nodes.resent == 0
        await nodes.clear()
        assert [info async for info in store.list()] == []


async def test_duplicates_delays_losses_and_a_killed_attempt_change_nothing(opened):
    async with opened() as bare:
        rng = random.Random(5)
        lose = {"run/mail/2/3/1", "run/mail/1/2/0", "run/mail/2/2/0", "run/mail/0/4/3"}
        unlucky = Unlucky(bare, lose=lose, fail={"run/mail/3/3/2"})
        nodes = StoredNodes(kernel(), LatencyStore(unlucky, lambda *_: rng.random() / 1000), "run")
        twice = Twice(nodes, rng)
        engine = Engine(GossipReady(DIGRAPH, every=ROUNDS), N, backoff=Backoff(base=0.0))
        outcome = await AioHost().run(engine, twice.run)
        assert outcome.error is None
        assert outcome.counts.retries == 1
        assert outcome.counts.balanced
        assert not unlucky.fail
        assert not unlucky.lose
        assert nodes.resent >= 1
        for k, states in enumerate(synchronous(kernel(), N, ROUNDS), 1):
            for i in range(N):
                assert same(await nodes.state(i, k), states[i])
        done = [max(a.task.payload["round"] for a in outcome.arrivals if a.task.slot == i) for i in range(N)]
        _, w = await total_mass(nodes, DIGRAPH, done)
        assert w[0] == pytest.approx(N, abs=1e-12)


@pytest.mark.parametrize("tau", [1, 3])
async def test_mass_is_conserved_with_late_mail_and_faults(tau):
    gradients = {}

    def pull_and_tell(node, k, z):
        return gradients.setdefault((node, k), pull(node, k, z))

    topology, rng = OnePeerExponential(N), random.Random(tau)
    store = Unlucky(MemoryStore(), lose={f"run/mail/{(i + 1) % N}/{2 * i + 2}/{i}" for i in range(N)})
    nodes = StoredNodes(PushSum(topology, pull_and_tell, np.arange(3.0), lr=0.1), store, "run")
    engine, host = Engine(GossipReady(topology, tau, every=5), N), VirtualHost(Exponential(1.0), seed=tau)
    twice, done, late = Twice(nodes, rng), [0] * N, 0
    for _ in range(4):
        outcome = await host.run(engine, twice.run)
        for a in outcome.arrivals:
            done[a.task.slot] = a.task.payload["round"]
            late += sum(sent < a.task.payload["round"] - 1 for _, sent in a.task.payload["mail"])
        x, w = await total_mass(nodes, topology, done)
        assert w[0] == pytest.approx(N, abs=1e-12)
        np.testing.assert_allclose(x, N * np.arange(3.0) - 0.1 * sum(gradients.values()), rtol=0, atol=1e-12)
    assert late > 0
    assert nodes.resent > 0
    assert not store.lose


async def test_layer_weights_are_conserved_exactly_over_a_store():
    topology = LayerPeers(N, 2, seed=4)
    layup = LayUp(topology, pull, np.zeros(5), lr=0.1)
    nodes = StoredNodes(layup, Unlucky(MemoryStore(), lose={"run/mail/1/3/0", "run/mail/0/5/2"}), "run")
    engine = Engine(GossipReady(topology, None, every=12, ahead=True), N)
    outcome = await VirtualHost(Exponential(1.0), seed=2).run(engine, Twice(nodes, random.Random(1)).run)
    weights, taken, sent = np.zeros(2), set(), {}
    for i in range(N):
        done = max(a.task.payload["round"] for a in outcome.arrivals if a.task.slot == i)
        for k in range(1, done + 1):
            state = await nodes.state(i, k)
            taken |= {(i, src, r) for src, r in await nodes.consumed(i, k)}
            sent |= {(dst, i, k): arrays for dst, arrays in layup.send(i, k, state)}
        weights += state[1] - layup.sent_weights(state[1])
    assert taken <= sent.keys()
    for key in sent.keys() - taken:
        layers, omega, _ = sent[key]
        weights[layers] += omega
    assert weights.tolist() == [N, N]


async def test_a_step_is_repeatable_even_when_its_state_is_lost():
    store = MemoryStore()
    nodes = StoredNodes(kernel(), store, "run")
    await VirtualHost(Exponential(1.0)).run(Engine(GossipReady(DIGRAPH, every=4), N), nodes.run)
    for node, k in ((2, 3), (0, 4), (1, 1)):
        key, taken = nodes.state_key(node, k), await nodes.consumed(node, k)
        before = bytes(await store.get(key))
        await store.delete([key])
        await nodes.step(node, k, taken)
        assert bytes(await store.get(key)) == before


async def test_weights_and_models_travel_in_one_object():
    store = CountingStore(MemoryStore())
    nodes = StoredNodes(kernel(OnePeerExponential(N)), store, "run")
    policy = GossipReady(OnePeerExponential(N), every=3)
    outcome = await VirtualHost(Exponential(1.0)).run(Engine(policy, N), nodes.run)
    steps = len(outcome.arrivals)
    assert store.requests["put"] == 2 * steps  # a state and a message
    mail = [info.key async for info in store.list("run/mail/")]
    assert len(mail) == steps
    assert store.requests["get"] <= 2 * steps


async def test_objects_are_where_the_layout_says():
    store = MemoryStore()
    nodes = StoredNodes(kernel(), store, "run")
    await nodes.step(0, 1, [])
    assert [info.key async for info in store.list()] == ["run/mail/1/1/0", "run/mail/2/1/0", "run/node/0/state/1"]
    assert same(await nodes.state(0, 0), kernel().start(0))


def task(node, k, mail=()):
    return TaskSpec(f"{k}-{node}", node, 0, payload={"round": k, "mail": mail})


async def test_mail_whose_sender_is_not_there_is_an_error_not_a_skip():
    nodes = StoredNodes(kernel(), MemoryStore(), "run")
    await nodes.run(task(1, 1))
    with pytest.raises(InvokeError, match="node/0/state/1") as caught:
        await nodes.run(task(1, 2, ((0, 1),)))
    assert (caught.value.kind, caught.value.retryable) == ("missing", False)
    with pytest.raises(ObjectNotFound):
        await nodes.state(1, 2)
    with pytest.raises(InvokeError, match="node/3/state/4"):
        await nodes.run(task(3, 5))


async def test_damaged_mail_is_an_error():
    store = MemoryStore()
    nodes = StoredNodes(kernel(), store, "run")
    await nodes.run(task(0, 1))
    await nodes.run(task(1, 1))
    raw = bytearray(await store.get("run/mail/1/1/0"))
    raw[-1] ^= 1
    await store.put("run/mail/1/1/0", bytes(raw))
    with pytest.raises(InvokeError, match="'run/mail/1/1/0' is damaged: checksum") as caught:
        await nodes.run(task(1, 2, ((0, 1),)))
    assert caught.value.kind == "corrupt"


async def test_another_run_below_the_same_prefix_is_noticed():
    nodes = StoredNodes(kernel(), MemoryStore(), "run")
    for node in range(N):
        await nodes.run(task(node, 1))
    await nodes.run(task(2, 2, ((0, 1), (1, 1))))
    with pytest.raises(InvokeError, match=r"round 2 of node 2 was done before with other mail.*another run") as caught:
        await nodes.run(task(2, 2, ((1, 1),)))
    assert not caught.value.retryable


async def test_passing_faults_may_be_tried_again():
    nodes = StoredNodes(kernel(), Unlucky(MemoryStore(), fail={"run/node/0/state/1"}), "run")
    with pytest.raises(InvokeError) as caught:
        await nodes.run(task(0, 1))
    assert (caught.value.kind, caught.value.retryable) == ("unavailable", True)
    await nodes.run(task(0, 1))


async def test_simultaneous_attempts_agree(opened):
    async with opened() as store:
        nodes = StoredNodes(kernel(), store, "run")
        for node in range(N):
            await nodes.run(task(node, 1))
        done = await asyncio.gather(*(nodes.run(task(2, 2, ((0, 1), (1, 1)))) for _ in range(4)))
        assert all(same(d.body, done[0].body) for d in done)
        assert same(await nodes.state(2, 2), done[0].body)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("tau", [0, 2])
async def test_another_driver_goes_on_where_one_was_interrupted(tau):
    store, left = MemoryStore(), 17
    nodes = StoredNodes(kernel(), store, "run")

    async def until_interrupted(task):
        nonlocal left
        left -= 1
        done = await nodes.run(task)
        if left == 0:
            raise Interrupted  # the step is done, but the driver never hears of it
        return done

    with pytest.raises(Interrupted):
        await VirtualHost(Exponential(1.0), seed=tau).run(
            Engine(GossipReady(DIGRAPH, tau, every=9), N), until_interrupted
        )
    progress = await nodes.progress(N)
    assert sum(progress.done) == 17
    engine = Engine(GossipReady(DIGRAPH, tau, every=3, progress=progress), N)
    outcome = await VirtualHost(Exponential(1.0), seed=9).run(engine, nodes.run)
    done = (await nodes.progress(N)).done
    assert sum(done) == 17 + len(outcome.arrivals)
    assert min(done) == min(progress.done) + 3
    _, w = await total_mass(nodes, DIGRAPH, done)
    assert w[0] == pytest.approx(N, abs=1e-12)
    if tau == 0:
        for k, states in enumerate(synchronous(kernel(), N, min(done)), 1):
            for i in range(N):
                assert same(await nodes.state(i, k), states[i])


async def test_nodes_that_have_not_started_have_no_progress():
    progress = await StoredNodes(kernel(), MemoryStore(), "run").progress(2)
    assert (progress.done, progress.taken) == ((0, 0), ({}, {}))
