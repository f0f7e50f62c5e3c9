"""A27: two runs share a store; each is right, prefixes are disjoint, and closing one leaves the other alone."""

import asyncio

import serverless_gc as sgc
from serverless_gc.store import LocalStore


def keys(store):
    async def collect():
        return {info.key async for info in store.list("")}

    return asyncio.run(collect())


def test_two_sessions_in_one_folder(make_problem, tmp_path):
    first, second = make_problem(seed=1), make_problem(seed=2)
    store = LocalStore(tmp_path)
    with sgc.Session(store=LocalStore(tmp_path)) as a:
        mine = a.encode(first.X, first.y, code="mds", n_workers=16, k=12)
        own = keys(store)
        with sgc.Session(store=LocalStore(tmp_path)) as b:
            theirs = b.encode(second.X, second.y, code="mds", n_workers=16, k=12)
            other = keys(store) - own
            assert other
            assert {key.split("/")[1] for key in own}.isdisjoint({key.split("/")[1] for key in other})
            first.check(mine.gradient(first.w))
            second.check(theirs.gradient(second.w))
        assert own <= keys(store)
        assert not other & keys(store)
        first.check(mine.gradient(first.w))
    assert keys(store) == set()


def test_same_data_in_two_sessions(problem, tmp_path):
    with sgc.Session(store=LocalStore(tmp_path)) as a, sgc.Session(store=LocalStore(tmp_path)) as b:
        g = a.encode(problem.X, problem.y).gradient(problem.w)
        h = b.encode(problem.X, problem.y).gradient(problem.w)
    problem.check(g)
    problem.check(h)
