"""A driver in a process of its own, which the test interrupts or kills: a script that talks in lines."""

import contextlib
import os
import signal
import subprocess
import sys

PROBLEM = """
import os, signal, sys
import numpy as np, serverless_gc as sgc
from serverless_gc import background
from serverless_gc.store import S3Store
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it, and so its children
rng = np.random.default_rng(int(sys.argv[1]))
X, y, w = rng.standard_normal((400, 10)), rng.standard_normal(400), rng.standard_normal(10)
expected = X.T @ (X @ w - y)

def say(*words):
    print(*words, flush=True)

def hear():
    return sys.stdin.readline().strip()

def session():  # workers, too, are sent where S3 is for this process
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ["AWS_ENDPOINT_URL"]
    store = S3Store(os.environ["SERVERLESS_GC_BUCKET"], "sgc", region="us-east-1", endpoint=endpoint)
    return sgc.Session("aws", store=store)
"""
"""Begins every script: data drawn from the first argument, its gradient, and a way to talk with the test."""


class Driver:
    """The running process."""

    def __init__(self, process):
        self._process = process

    def hear(self):
        """Wait for its next line."""
        line = self._process.stdout.readline()
        assert line, self._process.communicate(timeout=10)[1]
        return line.strip()

    def say(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def interrupt(self):
        self._process.send_signal(signal.SIGINT)

    def kill(self):
        """End it as nothing can be caught."""
        self._process.kill()
        assert self._process.wait(10) == -signal.SIGKILL

    def end(self):
        """Wait for its good end."""
        _, errors = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, errors


@contextlib.contextmanager
def driver(script, seed, folder):
    """Run a script behind `PROBLEM`, with the environment of now."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROBLEM + script, str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    with process:
        try:
            yield Driver(process)
        finally:
            process.kill()
