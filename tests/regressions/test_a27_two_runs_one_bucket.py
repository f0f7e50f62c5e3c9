"""A27: two runs share a store; each is right, prefixes are disjoint, and closing one leaves the other alone."""

import asyncio
import os
import subprocess
import sys

from rig_functions import Sdk

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
import sys
import numpy as np, serverless_gc as sgc
from serverless_gc import background
rng = np.random.default_rng(int(sys.argv[1]))
X, y, w = rng.standard_normal((200, 10)), rng.standard_normal(200), rng.standard_normal(10)
with sgc.Session("aws") as s:
    data = s.encode(X, y, code="mds", n_workers=4, k=3)
    print(background.run(s.resources()).run, flush=True)
    sys.stdin.readline()
    for _ in range(3):
        np.testing.assert_allclose(data.gradient(w), X.T @ (X @ w - y), rtol=1e-9)
"""


def test_two_processes_in_one_bucket(account, tmp_path):
    """Started together; the second works on when the first has tidied up, and nothing of either is left."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def start(seed):
        return subprocess.Popen([sys.executable, "-c", RUN, str(seed)], cwd=tmp_path, env=environment, **pipes)

    def stored(name):
        with Sdk() as sdk:
            return sdk.s3.list_objects_v2(Bucket=account.bucket, Prefix=f"sgc/runs/{name}/")["KeyCount"]

    processes = [start(seed) for seed in (1, 2)]
    names = [process.stdout.readline().strip() for process in processes]
    assert len(set(names)) == 2
    assert all(stored(name) for name in names), names
    for number, process in enumerate(processes):
        _, errors = process.communicate("go\n", timeout=60)
        assert process.returncode == 0, errors
        assert [stored(name) > 0 for name in names] == [False, number == 0]
