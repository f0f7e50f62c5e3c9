"""A29: the blocking face works beside a running loop, over several loops, from threads, often, and after a fork."""

import asyncio
import subprocess
import sys
import threading

import serverless_gc as sgc


def test_beside_running_loops_threads_and_often(problem):
    def call():
        return sgc.coded_gradient(problem.X, problem.y, problem.w)

    problem.check(call())
    threads = threading.active_count()

    async def inside():
        return call(), await sgc.coded_gradient_async(problem.X, problem.y, problem.w)

    for _ in range(2):
        for g in asyncio.run(inside()):
            problem.check(g)
    results = []
    workers = [threading.Thread(target=lambda: results.append(call())) for _ in range(4)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert len(results) == 4
    for g in results:
        problem.check(g)
    for _ in range(300):
        g = call()
    problem.check(g)
    assert threading.active_count() == threads


THREADS = """
from concurrent.futures import ThreadPoolExecutor
import threading
import numpy as np, serverless_gc as sgc
X, y, w = np.ones((200, 6)), np.ones(200), np.zeros(6)
together = threading.Barrier(8)

def call(_):
    together.wait()
    return sgc.coded_gradient(X, y, w, code="polar")

with ThreadPoolExecutor(8) as pool:
    assert np.allclose(list(pool.map(call, range(8))), -X.T @ y)
assert [t.name for t in threading.enumerate()].count("serverless-gc") == 1
"""


def test_the_very_first_call_comes_from_several_threads_at_once():
    done = subprocess.run([sys.executable, "-c", THREADS], check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


FORK = """
import os, sys, warnings
import numpy as np, serverless_gc as sgc
rng = np.random.default_rng(0)
X, y, w = rng.standard_normal((50, 4)), rng.standard_normal(50), rng.standard_normal(4)
expected = X.T @ (X @ w - y)
assert np.allclose(sgc.coded_gradient(X, y, w), expected)
warnings.simplefilter("ignore", DeprecationWarning)  # Python warns of fork beside threads: that is the trial
pid = os.fork()
ok = np.allclose(sgc.coded_gradient(X, y, w), expected)
if pid == 0:
    os._exit(0 if ok else 1)
_, status = os.waitpid(pid, 0)
sys.exit(status != 0 or not ok)
"""


def test_after_fork():
    done = subprocess.run([sys.executable, "-c", FORK], check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
