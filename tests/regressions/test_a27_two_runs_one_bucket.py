"""A27: two runs share a store; each is right, prefixes are disjoint, and closing one leaves the other alone."""

import asyncio

from driver_process import driver

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


RUN = """
with sgc.Session("aws") as s:
    data = s.encode(X, y, code="uncoded", n_workers=4)  # no result is late
    say(background.run(s.resources()).run)
    hear()
    for _ in range(3):
        np.testing.assert_allclose(data.gradient(w), expected, rtol=1e-9)
"""


def test_two_processes_in_one_bucket(account, count_objects, tmp_path):
    """Started together; the second works on when the first has tidied up, and nothing of either is left."""
    del account
    with driver(RUN, 1, tmp_path) as first, driver(RUN, 2, tmp_path) as second:
        names = [first.hear(), second.hear()]
        assert len(set(names)) == 2
        assert all(count_objects(name) for name in names)
        for number, one in enumerate((first, second)):
            one.say("go")
            one.end()
            assert [count_objects(name) > 0 for name in names] == [False, number == 0]
