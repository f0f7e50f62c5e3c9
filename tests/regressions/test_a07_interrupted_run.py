"""A7: Ctrl-C ends the call within two seconds, says what may be billed, and leaves the next call clean."""

import re
import subprocess
import sys
import time

import numpy as np
from driver_process import driver
from fault_proxy import BLOCKS, Fault

import serverless_gc as sgc
from serverless_gc import background

SCRIPT = """
import asyncio, os, signal, sys, threading, time
import numpy as np, serverless_gc as sgc
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it, and so its children
from serverless_gc.invoke import LocalInvoker
from serverless_gc.store import MemoryStore

rng = np.random.default_rng(0)
X, y = rng.standard_normal((1000, 20)), rng.standard_normal(1000)
w = rng.standard_normal(20)


class Slow(LocalInvoker):
    seconds = 20.0

    async def invoke(self, task, payload, *, timeout):
        await asyncio.sleep(self.seconds)
        return await super().invoke(task, payload, timeout=timeout)


store = MemoryStore()
invoker = Slow(store)
with sgc.Session(store=store, invoker=invoker) as s:
    data = s.encode(X, y, code="mds", n_workers=16, k=12)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    try:
        data.gradient(w)
        sys.exit("was not interrupted")
    except KeyboardInterrupt as exc:
        took = time.monotonic() - start
        notes = " ".join(getattr(exc, "__notes__", []))
    assert took < 0.3 + 2.0, took
    assert "16 invocations" in notes and "billed" in notes, notes
    async def keys():
        return [info.key async for info in store.list("")]

    assert [key for key in asyncio.run(keys()) if key.endswith("/cancel")], "no cancel mark"
    invoker.seconds = 0.0
    other = -w
    np.testing.assert_allclose(data.gradient(other), X.T @ (X @ other - y), rtol=1e-10)
"""


def test_interrupt_then_run_again():
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=False, timeout=30, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


OVER_HTTP = """
with session() as s:
    data = s.encode(X, code="uncoded", n_workers=8)  # no result of the second round is late
    say(background.run(s.resources()).run)
    hear()
    try:
        data.matvec(w)
        sys.exit("was not interrupted")
    except KeyboardInterrupt as exc:
        say(" ".join(getattr(exc, "__notes__", [])))
    hear()
    np.testing.assert_allclose(data.matvec(-w), X @ -w, rtol=1e-10)
    say("again")
    hear()
"""


def test_over_http(proxied, account, count_objects, wait_until, tmp_path):
    """The functions at work find the cancel mark, so that nothing of the round is stored; then all of it goes."""
    proxy, _ = proxied
    before = account.counts()

    def asked(what):
        return sum(re.match(what, identity) is not None for _, identity in proxy.asked)

    with driver(OVER_HTTP, 0, tmp_path) as running:
        name = running.hear()
        proxy.faults = [Fault("delay", BLOCKS, seconds=1.0)]
        running.say("go")
        wait_until(lambda: account.counts().requests - before.requests == 8 and asked(BLOCKS))
        running.interrupt()
        interrupted = time.monotonic()
        said = running.hear()
        assert time.monotonic() - interrupted < 2.0
        assert "8 invocations" in said
        assert "billed" in said
        # Each that reads its block has looked before, and looks again afterwards; others find the mark at once.
        wait_until(lambda: asked(r"HEAD .*/0000001/cancel") >= 2 * asked(BLOCKS))
        proxy.faults = []
        assert count_objects(name, "round/0000001/") == 1  # the mark itself
        running.say("again")
        assert running.hear() == "again"
        running.say("close")
        running.end()
        assert count_objects(name) == 0


def test_a_function_that_outlives_its_session_stores_nothing(proxied, count_objects, wait_until):
    """It reads for two seconds; by then the round was decoded without it, and the session has swept what was its."""
    proxy, options = proxied
    proxy.faults = [Fault("delay", r"GET .*/rows/00003$", seconds=2.0)]
    X, w = np.random.default_rng(0).standard_normal((400, 10)), np.ones(10)
    with sgc.Session("aws", **options()) as s:
        data = s.encode(X, code="mds", n_workers=8, k=6, name="late")
        np.testing.assert_allclose(data.matvec(w), X @ w)
        run = background.run(s.resources()).run
    assert count_objects(run) == 0
    proxy.faults = []
    # It looks for what says that its run is there, and finds it gone.
    wait_until(lambda: any(re.match(r"HEAD .*/alive/", what) for _, what in proxy.asked))
    with sgc.Session("aws", **options()) as s:
        np.testing.assert_allclose(s.encode(X, code="uncoded", n_workers=8).matvec(w), X @ w)
        s.delete("late")
    assert count_objects(run) == 0
