"""Decentralized trainings that go wrong: who is named, and that nothing is left."""

import asyncio

import numpy as np
import pytest
from node_rig import Net, keys_of

import serverless_gc as sgc
from serverless_gc.errors import DeadlineExceeded, InputError, NotDecodableError
from serverless_gc.inject import Faults
from serverless_gc.store import MemoryStore, StoreWrapper
from serverless_gc.stragglers import Constant
from serverless_gc.topologies import Groups, Ring
from serverless_gc.worker.schemes import Average

N, D = 4, 3
NET = Net(N)
W0 = np.array([0.5, -1.0, 0.0])


def encoded(session, X=NET.X, y=NET.y):
    return session.encode(X, y, code="ignore-stragglers", n_workers=N)


def test_a_loss_that_fails_names_its_node_and_its_rows():
    def broken(_X, y, w):
        if y[0] == 2.0:
            raise ValueError("no such row")
        return 0 * w

    store = MemoryStore()
    with sgc.Session("local", store=store) as s:
        data = encoded(s, np.zeros((8, 1)), np.repeat([0.0, 1.0, 2.0, 3.0], 2))
        with pytest.raises(
            NotDecodableError, match=r"node 2 did not finish its round 1: .*no such row.*rows 4..5"
        ) as e:
            sgc.minimize_decentralized(data, np.zeros(1), loss=broken, lr=0.1)
        assert any("ValueError: no such row" in note for note in e.value.__notes__)
    assert keys_of(store) == []


def test_a_model_that_grows_beyond_all_bounds_is_an_error():
    with (
        sgc.Session("simulated") as s,
        pytest.raises(NotDecodableError, match=r"node . is not finite after its round .*smaller lr"),
    ):
        sgc.minimize_decentralized(encoded(s), W0, lr=1e80, rounds=50)


def test_a_node_that_never_answers_meets_the_deadline():
    store, words = MemoryStore(), r"round 1 of the nodes was given up: 0.3 s have passed.*slots [0-9, ]*2"
    with sgc.Session("local", store=store, inject=Faults(drop={2})) as s, pytest.raises(DeadlineExceeded, match=words):
        sgc.minimize_decentralized(encoded(s), W0, lr=0.1, deadline=0.3)
    assert keys_of(store) == []
    with sgc.Session("simulated", delay=Constant(60.0)) as s, pytest.raises(DeadlineExceeded, match="5 s have passed"):
        sgc.minimize_decentralized(encoded(s), W0, lr=0.1, deadline=5.0)


async def test_an_interrupted_run_leaves_nothing():
    began, loop = asyncio.Event(), asyncio.get_running_loop()

    class Telling(StoreWrapper):
        def _before(self, operation, key, size):  # noqa: ARG002 - the arguments of the hook
            if operation == "put" and "/state/" in key:
                loop.call_soon_threadsafe(began.set)
            return 0.0

    store = MemoryStore()
    async with sgc.Session("local", store=Telling(store)) as s:
        data = await s.encode_async(NET.X, NET.y, code="ignore-stragglers", n_workers=N)
        run = asyncio.create_task(sgc.minimize_decentralized_async(data, W0, lr=0.01, rounds=10**6))
        await began.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        fit = await sgc.minimize_decentralized_async(data, W0, lr=0.1, rounds=2)  # the session is as good as new
    assert fit.models.shape == (N, D)
    assert [info async for info in store.list("")] == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"method": "sgp"}, "no method is called 'sgp'; there are push-sum, row-average, aet, layup, lasgd"),
        ({"method": 3}, "method must be a name or have the methods start, step, share, model; got 3"),
        ({"method": Average(), "a": 1}, "a= is a parameter of methods by name"),
        ({"layers": 2}, "layers= is no parameter of method 'push-sum', which takes debias"),
        ({"method": "row-average", "debias": True}, "which takes none here"),
        ({"method": "layup", "layers": 4}, "layers must be at most the number of coordinates, 3, got 4"),
        ({"method": "layup", "topology": "ring"}, "topology must be a LayerPeers"),
        ({"method": "aet", "b": 0}, "b must be at least 1"),
        ({"method": "lasgd", "group_size": 3}, "size must divide the number of nodes, 4, got 3"),
        ({"method": "lasgd", "group_size": 2, "period": 0}, "period must be an integer of at least 1, got 0"),
        ({"method": "lasgd", "tau": 2}, "tau= does not go with 'lasgd'"),
        ({"method": "lasgd", "topology": "ring"}, "topology must be a Groups"),
        ({"method": "lasgd", "topology": Groups(4, 2), "group_size": 2}, "both say what the groups are"),
        ({"method": "lasgd", "debias": True}, "debias= is no parameter of method 'lasgd', which takes group_size"),
        ({"topology": "star"}, "topology must be one of one-peer, exponential, ring, directed-ring, complete or an"),
        ({"topology": Ring(5)}, "5 nodes cannot share 4 partitions"),
        ({"lr": 0.0}, "lr must be a positive number"),
        ({"method": "lasgd", "lr": 0.0}, "lr must be a positive number"),
        ({"rounds": 0}, "rounds must be an integer of at least 1, got 0"),
        ({"batch": 1.5}, "batch must be an integer of at least 1, got 1.5"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"tau": -1}, "tau must be an integer of at least 0"),
        ({"w0": np.zeros(2)}, r"w must have shape \(3,\)"),
        ({"w0": np.zeros(3, complex)}, "w0 must be real"),
        ({"loss": "hinge"}, "hinge"),
        ({"l2": -1.0}, "l2 must be a finite number"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_bad_arguments_are_named(given, words):
    asked = {"lr": 0.1, "rounds": 2, "w0": W0, **given}
    store = MemoryStore()
    with sgc.Session("simulated", store=store) as s:
        data = encoded(s)
        before = keys_of(store)
        with pytest.raises(InputError, match=words):
            sgc.minimize_decentralized(data, **asked)
        assert keys_of(store) == before


def test_data_of_another_kind_are_refused():
    with sgc.Session("simulated") as s:
        data = s.encode(NET.X, NET.y, code="mds", n_workers=4, k=3)
        with pytest.raises(InputError, match=r"gradient code, such as code='ignore-stragglers'.*got CodedData"):
            sgc.minimize_decentralized(data, W0, lr=0.1)
        data = encoded(s, NET.X + 1j, NET.y)
        with pytest.raises(InputError, match="real data only"):
            sgc.minimize_decentralized(data, W0, lr=0.1)
