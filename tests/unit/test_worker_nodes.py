"""Rounds of nodes as tasks: written once, repeatable, and never a share lost or counted twice."""

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
from node_rig import Memo, Net, mass

from serverless_gc.engine import AioHost, Backoff, Engine, VirtualHost
from serverless_gc.errors import InvokeError, ObjectNotFound, StoreError
from serverless_gc.gossip import AET, LayUp, LinearSampleTrigger, PushSum, RowAverage, StoredNodes, synchronous
from serverless_gc.policies import GossipReady
from serverless_gc.store import CountingStore, LatencyStore, LocalStore, MemoryStore, S3Store, StoreWrapper
from serverless_gc.stragglers import Exponential
from serverless_gc.topologies import FromAdjacency, LayerPeers, OnePeerExponential, Ring
from serverless_gc.types import TaskSpec
from serverless_gc.wire import unpack
from serverless_gc.wire.turn import mail_key, state_key

N, ROUNDS = 4, 6
DIGRAPH = FromAdjacency([[0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0]])
NET = Net(N)
START = np.arange(3.0)
BASE = "runs/run/nodes/0000001"
KERNELS = {
    "push": lambda g: PushSum(DIGRAPH, g, START, lr=0.1),
    "push without weights": lambda g: PushSum(Ring(N), g, START, lr=lambda t: 0.1 / (1 + t), debias=False),
    "rows": lambda g: RowAverage(DIGRAPH, g, START, lr=0.1),
    "aet": lambda g: AET(Ring(N), g, START, LinearSampleTrigger(1, 2), lr=lambda t: 0.1 / (1 + 0.01 * t)),
    "layup": lambda g: LayUp(LayerPeers(N, 2, seed=4), g, START, lr=0.1),
}


def push(gradient=None, topology=DIGRAPH):
    return PushSum(topology, gradient, START, lr=0.1)


def close(left, right):
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)


def task(node, k, mail=(), attempt=0):
    return TaskSpec(f"{k}-{node}", node, 0, attempt=attempt, payload={"round": k, "mail": mail})


async def keys_of(store, prefix=BASE):
    return [info.key.removeprefix(f"{BASE}/") async for info in store.list(f"{prefix}/")]


@pytest.fixture(params=["memory", "local", "s3"])
def opened(request, tmp_path):
    """Open one of the stores; workers open the last two by their URLs."""
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


@pytest.mark.parametrize("name", KERNELS)
async def test_rounds_of_workers_are_the_synchronous_rounds(name):
    store, kernel = MemoryStore(), KERNELS[name](None)
    async with NET.tasks(store, kernel) as tasks:
        host = VirtualHost(Exponential(1.0), seed=1)
        await host.run(Engine(GossipReady(kernel.topology, every=ROUNDS, last=ROUNDS), N), tasks.run)
        nodes = StoredNodes(kernel, store, BASE)
        for k, states in enumerate(synchronous(KERNELS[name](NET.gradient), N, ROUNDS), 1):
            for i in range(N):
                close(await nodes.state(i, k), states[i])
                assert tasks.slopes[i, k] > 0
    assert tasks.traffic["rebuilt"] == tasks.traffic["resumed"] == 0


class Twice:
    """Does every attempt, and now and then an old one once more, when the others have gone on."""

    def __init__(self, tasks, rng, lose=()):
        self.tasks, self.rng, self.again, self.lose, self.store = tasks, rng, [], set(lose), tasks.attempts.store

    async def run(self, spec):
        done = await self.tasks.run(spec)
        self.again.append(spec)
        if self.rng.random() < 0.5:
            await self.tasks.run(self.again[self.rng.randrange(len(self.again))])
        lost = {key for key in self.lose if key.endswith(f"/{spec.payload['round']}/{spec.slot}")}
        await self.store.delete([f"{BASE}/{key}" for key in lost])
        self.lose -= lost
        return done


async def test_duplicates_delays_and_lost_mail_change_nothing(opened):
    async with opened() as bare:
        rng = random.Random(5)
        store = LatencyStore(bare, lambda *_: rng.random() / 1000)
        async with NET.tasks(store, push()) as tasks:
            twice = Twice(tasks, rng, {"mail/2/3/1", "mail/1/2/0", "mail/2/2/0", "mail/0/4/3"})
            engine = Engine(GossipReady(DIGRAPH, every=ROUNDS), N, backoff=Backoff(base=0.0))
            outcome = await AioHost().run(engine, twice.run)
            assert outcome.error is None
            assert outcome.counts.balanced
            assert not twice.lose
            assert tasks.traffic["rebuilt"] >= 1
            assert tasks.attempts.counts["refused_writes"] >= 1
            nodes = StoredNodes(push(), store, BASE)
            for k, states in enumerate(synchronous(push(NET.gradient), N, ROUNDS), 1):
                for i in range(N):
                    close(await nodes.state(i, k), states[i])


class Killed(StoreWrapper):
    """Ends invocations just before they write one of these keys, once each."""

    def __init__(self, inner, keys):
        super().__init__(inner)
        self.keys = set(keys)

    def _before(self, operation, key, size):  # noqa: ARG002 - the arguments of the hook
        if operation == "put" and key in self.keys:
            self.keys.remove(key)
            raise RuntimeError(f"killed before it wrote {key!r}")
        return 0.0


async def test_a_round_killed_between_state_and_mail_is_taken_up_and_computes_nothing():
    store = CountingStore(MemoryStore())
    killed = Killed(store, [mail_key(BASE, 2, 1, 0)])
    async with NET.tasks(killed, push()) as tasks:
        with pytest.raises(InvokeError, match="killed before it wrote"):
            await tasks.run(task(0, 1))
        assert await keys_of(store) == ["mail/1/1/0", "node/0/state/1"]
        before = bytes(await store.get(state_key(BASE, 0, 1)))
        done = await tasks.run(task(0, 1, attempt=1))
        assert done.stats["resumed"] == 1
        assert (done.stats["gets"], done.stats["puts"]) == (1, 2)
        assert await keys_of(store) == ["mail/1/1/0", "mail/2/1/0", "node/0/state/1"]
        assert bytes(await store.get(state_key(BASE, 0, 1))) == before
        assert done.body == unpack(before).header["slope"]


async def test_mail_that_an_attempt_did_not_get_to_is_sent_by_the_next_one(opened):
    async with opened() as store, NET.tasks(store, push()) as tasks:
        await tasks.run(task(0, 1))
        written = {key: bytes(await store.get(f"{BASE}/{key}")) for key in await keys_of(store)}
        await store.delete([mail_key(BASE, 1, 1, 0), mail_key(BASE, 2, 1, 0)])
        done = await tasks.run(task(0, 1, attempt=1))
        assert (done.stats["resumed"], done.stats["puts"]) == (1, 2)
        assert {key: bytes(await store.get(f"{BASE}/{key}")) for key in await keys_of(store)} == written


async def test_a_round_killed_before_its_state_is_done_from_the_beginning():
    store = MemoryStore()
    async with NET.tasks(Killed(store, [state_key(BASE, 0, 1)]), push()) as tasks:
        with pytest.raises(InvokeError, match="killed"):
            await tasks.run(task(0, 1))
        assert await keys_of(store) == []
        done = await tasks.run(task(0, 1, attempt=1))
        assert done.stats["resumed"] == 0
        assert len(await keys_of(store)) == 3


@pytest.mark.parametrize("tau", [1, 3])
async def test_mass_is_conserved_with_late_mail_and_faults(tau):
    topology, rng = OnePeerExponential(N), random.Random(tau)
    memo, kernel = Memo(MemoryStore()), PushSum(OnePeerExponential(N), None, START, lr=0.1)
    async with NET.tasks(memo, kernel) as tasks:
        lose = {f"mail/{(i + 1) % N}/{2 * i + 2}/{i}" for i in range(N)}
        twice, late = Twice(tasks, rng, lose), 0
        engine, host = Engine(GossipReady(topology, tau, every=5), N), VirtualHost(Exponential(1.0), seed=tau)
        for _ in range(4):
            outcome = await host.run(engine, twice.run)
            frames = {key: unpack(raw) for key, raw in memo.written.items() if "/state/" in key}
            states = {(f.header["node"], f.header["round"]): f.arrays for f in frames.values()}
            consumed = [(f.header["node"], *mail) for f in frames.values() for mail in f.header["consumed"]]
            assert len(consumed) == len(set(consumed))
            late += sum(
                sent < a.task.payload["round"] - 1 for a in outcome.arrivals for _, sent in a.task.payload["mail"]
            )
            x, w = mass(kernel, topology, states, set(consumed))
            assert w[0] == pytest.approx(N, abs=1e-12)
            moved = sum(_gradient_of(kernel, states, frames[state_key(BASE, i, k)], memo) for i, k in states)
            np.testing.assert_allclose(x, N * START - 0.1 * moved, rtol=0, atol=1e-12)
    assert late > 0
    assert tasks.traffic["rebuilt"] > 0
    assert not twice.lose


def _gradient_of(kernel, states, frame, memo):
    """Gradient of a round in plain NumPy, where its node was: from the state before and the mail as it was written."""
    node, k = frame.header["node"], frame.header["round"]
    before = states[node, k - 1] if k > 1 else kernel.start(node)
    keep = kernel.turn(node, k).kept
    mail = [unpack(memo.written[mail_key(BASE, node, r, src)]).arrays for src, r in frame.header["consumed"]]
    x = keep * before[0] + sum(m[0] for m in mail)
    w = keep * before[1] + sum(m[1] for m in mail)
    return NET.gradient(node, k, x / w)


async def test_layer_weights_are_conserved_exactly_over_a_store():
    topology = LayerPeers(N, 2, seed=4)
    layup, memo = LayUp(topology, None, np.zeros(3), lr=0.1), Memo(MemoryStore())
    async with NET.tasks(memo, layup) as tasks:
        twice = Twice(tasks, random.Random(1), {"mail/1/3/0", "mail/0/5/2"})
        engine = Engine(GossipReady(topology, None, every=12, ahead=True), N)
        await VirtualHost(Exponential(1.0), seed=2).run(engine, twice.run)
    frames = [unpack(raw) for key, raw in memo.written.items() if "/state/" in key]
    states = {(f.header["node"], f.header["round"]): f.arrays for f in frames}
    taken = {(f.header["node"], src, r) for f in frames for src, r in f.header["consumed"]}
    weights = np.zeros(2)
    for (i, k), (_, omega) in states.items():
        if (i, k + 1) not in states:
            weights += omega - layup.sent_weights(omega)
        for dst, (layers, sent, _) in layup.send(i, k, states[i, k]):
            if (dst, i, k) not in taken:
                weights[layers] += sent
    assert weights.tolist() == [N, N]


async def test_weights_and_models_travel_in_one_object_and_old_ones_go():
    store = CountingStore(MemoryStore())
    kernel = push(topology=OnePeerExponential(N))
    async with NET.tasks(store, kernel) as tasks:
        await tasks._res.alive()  # stores what says that the run is there, once
        put = store.requests["put"]
        engine = Engine(GossipReady(kernel.topology, every=1, last=40), N)
        host, most = VirtualHost(Exponential(1.0)), 0
        for _ in range(40):
            await host.run(engine, tasks.run)
            await asyncio.gather(*tasks._res.chores)
            most = max(most, len(await keys_of(store)))
        assert store.requests["put"] - put == tasks.traffic["puts"] == 2 * 40 * N  # a state and a message
        assert tasks.traffic["gets"] == 2 * 39 * N
        assert most < 2 * 40 * N - 50  # what all rounds together wrote
        await tasks.close(whole=True)
        assert await keys_of(store) == []


async def test_objects_are_where_the_layout_says_and_hold_what_it_says():
    store = MemoryStore()
    async with NET.tasks(store, push()) as tasks:
        done = await tasks.run(task(0, 1))
        assert await keys_of(store) == ["mail/1/1/0", "mail/2/1/0", "node/0/state/1"]
        assert done.body.shape == (1,)
        frame = unpack(await store.get(state_key(BASE, 0, 1)))
        assert frame.header["consumed"] == []
        np.testing.assert_allclose(frame.arrays[0], START - 0.1 * NET.gradient(0, 1, START), rtol=1e-14)
        shares = unpack(await store.get(mail_key(BASE, 1, 1, 0))).arrays
        assert [a.tobytes() for a in shares] == [(a * (1 / 3)).tobytes() for a in frame.arrays]


async def test_mail_whose_sender_is_not_there_is_an_error_not_a_skip():
    async with NET.tasks(MemoryStore(), push()) as tasks:
        await tasks.run(task(1, 1))
        with pytest.raises(InvokeError, match="node/0/state/1") as caught:
            await tasks.run(task(1, 2, ((0, 1),)))
        assert (caught.value.kind, caught.value.retryable) == ("missing", False)
        with pytest.raises(ObjectNotFound):
            await StoredNodes(push(), tasks.attempts.store, BASE).state(1, 2)
        with pytest.raises(InvokeError, match="node/3/state/4"):
            await tasks.run(task(3, 5))


async def test_damaged_mail_is_an_error():
    store = MemoryStore()
    async with NET.tasks(store, push()) as tasks:
        await tasks.run(task(0, 1))
        await tasks.run(task(1, 1))
        key = mail_key(BASE, 1, 1, 0)
        raw = bytearray(await store.get(key))
        raw[-1] ^= 1
        await store.put(key, bytes(raw))
        with pytest.raises(InvokeError, match=f"'{key}' is damaged: checksum") as caught:
            await tasks.run(task(1, 2, ((0, 1),)))
        assert caught.value.kind == "corrupt"


async def test_another_run_below_the_same_prefix_is_noticed():
    async with NET.tasks(MemoryStore(), push()) as tasks:
        for node in range(N):
            await tasks.run(task(node, 1))
        await tasks.run(task(2, 2, ((0, 1), (1, 1))))
        for attempt in (0, 1):
            with pytest.raises(InvokeError, match=r"round 2 of node 2 was done before with other mail.*another run"):
                await tasks.run(task(2, 2, ((1, 1),), attempt=attempt))


async def test_simultaneous_attempts_agree(opened):
    async with opened() as store, NET.tasks(store, push()) as tasks:
        for node in range(N):
            await tasks.run(task(node, 1))
        again = [replace(task(2, 2, ((0, 1), (1, 1))), attempt=i) for i in range(4)]
        done = await asyncio.gather(*(tasks.run(spec) for spec in again))
        assert len({d.body.tobytes() for d in done}) == 1
        assert sum(not d.stats["resumed"] for d in done) >= 1
        assert tasks.attempts.counts["refused_writes"] == 3
        assert len([key for key in await keys_of(store) if key.startswith("node/2/")]) == 2


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("tau", [0, 2])
async def test_another_driver_goes_on_where_one_was_interrupted(tau):
    store, left = MemoryStore(), 17
    async with NET.tasks(store, push()) as tasks:

        async def until_interrupted(spec):
            nonlocal left
            left -= 1
            done = await tasks.run(spec)
            if left == 0:
                raise Interrupted  # the round is done, but the driver never hears of it
            return done

        with pytest.raises(Interrupted):
            await VirtualHost(Exponential(1.0), seed=tau).run(
                Engine(GossipReady(DIGRAPH, tau, every=9), N), until_interrupted
            )
        nodes = StoredNodes(push(), store, BASE)
        progress = await nodes.progress(N)
        assert sum(progress.done) == 17
    async with NET.tasks(store, push()) as tasks:
        engine = Engine(GossipReady(DIGRAPH, tau, every=3, progress=progress), N)
        outcome = await VirtualHost(Exponential(1.0), seed=9).run(engine, tasks.run)
        done = (await nodes.progress(N)).done
        assert sum(done) == 17 + len(outcome.arrivals)
        assert min(done) == min(progress.done) + 3
        states = {(i, k): await nodes.state(i, k) for i in range(N) for k in range(1, done[i] + 1)}
        taken = {(i, *mail) for i, k in states for mail in await nodes.consumed(i, k)}
        _, w = mass(push(), DIGRAPH, states, taken)
        assert w[0] == pytest.approx(N, abs=1e-12)
        if tau == 0:
            for k, expected in enumerate(synchronous(push(NET.gradient), N, min(done)), 1):
                for i in range(N):
                    close(states[i, k], expected[i])
        await nodes.clear()
        assert await keys_of(store) == []


async def test_what_cannot_be_deleted_is_named():
    class Stuck(StoreWrapper):
        async def delete(self, keys):
            return dict.fromkeys(keys, "not today")

    store = Stuck(MemoryStore())
    async with NET.tasks(store, push()) as tasks:
        await tasks.run(task(0, 1))
        with pytest.raises(StoreError, match=r"3 objects below .* were not deleted: .* not today"):
            await StoredNodes(push(), store, BASE).clear()
