"""A7: Ctrl-C ends the call within two seconds, says what may be billed, and leaves the next call clean."""

import subprocess
import sys

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
import os, signal, sys, threading, time
import numpy as np, serverless_gc as sgc
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it, and so its children
from serverless_gc.testing.lambda_endpoint import Step
from serverless_gc.testing.offline_aws import offline_aws

rng = np.random.default_rng(0)
X, w = rng.standard_normal((1000, 20)), rng.standard_normal(20)
with offline_aws() as aws, sgc.Session("aws") as s:
    data = s.encode(X, code="mds", n_workers=16, k=12)
    aws.script(Step(delay=20.0, times=0))

    def interrupt():
        while aws.counts().requests < 16:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        data.matvec(w)
        sys.exit("was not interrupted")
    except KeyboardInterrupt as exc:
        interrupted = time.monotonic()
        notes = " ".join(getattr(exc, "__notes__", []))
    assert "16 invocations" in notes and "billed" in notes, notes
    assert aws.counts().runs == 0
    aws.script()
    np.testing.assert_allclose(data.matvec(-w), X @ -w, rtol=1e-10)
    assert time.monotonic() - interrupted < 5.0
"""


def test_over_http():
    done = subprocess.run([sys.executable, "-c", OVER_HTTP], check=False, timeout=30, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
