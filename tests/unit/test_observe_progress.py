import asyncio
import io
import logging
import re
import subprocess
import sys

import pytest

from serverless_gc.observe import Progress, RoundClosed, RoundOpened, TaskArrived, TaskFailed, TaskIssued

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def play(progress, clock, number=0, n=4, needed=3):
    progress(RoundOpened(clock.now, number, n_slots=n, needed=needed))
    for slot in range(n):
        progress(TaskIssued(clock.now, number, slot))
    for slot in range(needed):
        clock.now += 1
        progress(TaskArrived(clock.now, number, slot))
        progress.tick()
    progress(RoundClosed(clock.now, number))


def test_plain_lines_only_now_and_then_and_without_control_characters():
    clock, out = Clock(), io.StringIO()
    progress = Progress(stream=out, clock=clock, interval=2.0)
    play(progress, clock)
    play(progress, clock, number=1)
    progress.close()
    assert out.getvalue().splitlines() == [
        "round 1: 2 of at least 3 results",
        "round 2: 1 of at least 3 results",
        "round 2: 3 of at least 3 results",
    ]
    assert not CONTROL.search(out.getvalue())


def test_short_calls_are_silent_in_a_file():
    clock, out = Clock(), io.StringIO()
    play(Progress(stream=out, clock=clock, interval=60.0), clock)
    assert out.getvalue() == ""


def test_what_is_awaited_is_named():
    clock, out = Clock(), io.StringIO()
    progress = Progress(stream=out, clock=clock, interval=5.0)
    progress(RoundOpened(0.0, 2, n_slots=16, needed=12))
    for slot in range(16):
        progress(TaskIssued(0.0, 2, slot))
    progress(TaskFailed(0.5, 2, 3))
    progress(TaskIssued(0.6, 2, 3, attempt=1))
    for slot in (0, 1, 2):
        progress(TaskArrived(1.0, 2, slot))
    progress(TaskFailed(1.0, 2, 15))
    clock.now = 4.0
    progress.tick()
    assert out.getvalue() == ""
    clock.now = 6.0
    progress.tick()
    clock.now = 7.0
    progress.tick()
    waiting = (
        "round 3: waiting for 9 more results (3 of 12) after 6 s; running: 3, 4, 5, 6, 7, 8, 9, 10 and 4 more; 2 failed"
    )
    assert out.getvalue().splitlines() == [waiting]


def test_enough_results_that_do_not_decode_yet_and_a_slow_close():
    clock, out = Clock(), io.StringIO()
    progress = Progress(stream=out, clock=clock, interval=1.0)
    progress(RoundOpened(0.0, 0, n_slots=2, needed=1))
    progress(TaskIssued(0.0, 0, 0))
    progress(TaskArrived(0.0, 0, 0))
    progress(TaskArrived(0.0, 7, 1))  # another round's
    clock.now = 3.0
    progress.tick()
    clock.now = 9.0
    progress(RoundClosed(9.0, 0))
    clock.now = 20.0
    progress.tick()
    assert out.getvalue().splitlines() == [
        "round 1: waiting for the right results (1 arrived) after 3 s; none is running",
        "round 1: closed after 9.0 s with 1 result",
    ]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.ERROR, logging.CRITICAL])
def test_a_terminal_gets_a_bar_whatever_the_logging_level(level, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "level", level)
    clock, out = Clock(), Terminal()
    progress = Progress(stream=out, clock=clock, interval=0.5)
    play(progress, clock)
    progress.close()
    assert "round 1" in out.getvalue()
    assert "3/3" in out.getvalue()
    assert "waiting for 1 more result (2 of 3)" in out.getvalue()


def test_the_bar_grows_when_more_than_the_least_number_is_needed():
    clock, out = Clock(), Terminal()
    progress = Progress(stream=out, clock=clock)
    progress(RoundOpened(0.0, 0, n_slots=3, needed=1))
    for slot in range(3):
        progress(TaskArrived(0.0, 0, slot))
    assert progress._bar.total == 3
    progress.close()
    assert progress._bar is None


def test_a_bar_over_known_rounds_counts_rounds():
    clock, out = Clock(), Terminal()
    progress = Progress(stream=out, clock=clock, n_rounds=5)
    for number in range(3):
        play(progress, clock, number)
    assert (progress._bar.n, progress._bar.total) == (3, 5)
    progress.close()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_encoding_is_shown(stream):
    clock, out = Clock(), stream()
    progress = Progress(stream=out, clock=clock, interval=2.0)
    for written in range(1, 6):
        clock.now += 1.0
        progress.on_encode(written, 5)
    assert ("encoding: 5 of 5 blocks written\n" in out.getvalue()) == (stream is io.StringIO)
    assert (CONTROL.search(out.getvalue()) is None) == (stream is io.StringIO)
    assert progress._bar is None


async def test_watch_ticks_until_cancelled():
    clock, out = Clock(), io.StringIO()
    progress = Progress(stream=out, clock=clock, interval=3.0)
    progress(RoundOpened(0.0, 0, n_slots=1, needed=1))
    progress(TaskIssued(0.0, 0, 0))

    async def sleep(seconds):
        if clock.now >= 7:
            raise asyncio.CancelledError
        clock.now += seconds

    with pytest.raises(asyncio.CancelledError):
        await progress.watch(sleep)
    assert len(out.getvalue().splitlines()) == 2


def test_a31_a_file_stays_clean_and_importing_configures_nothing():
    code = """
import logging, threading
before = len(logging.root.handlers)
import serverless_gc.observe as o, serverless_gc.encode
import sys
assert len(logging.root.handlers) == before
ours = [name for name in logging.root.manager.loggerDict if name.startswith("serverless_gc")]
assert not any(logging.getLogger(name).handlers for name in ours)
assert "matplotlib" not in sys.modules and "tqdm" not in sys.modules
p = o.Progress(interval=0.0)
p(o.RoundOpened(0.0, 0, n_slots=2, needed=2))
for slot in range(2):
    p(o.TaskArrived(0.0, 0, slot))
p.tick()
p(o.RoundClosed(0.0, 0))
q = o.Progress(bar=True)
q(o.RoundOpened(0.0, 0, n_slots=2, needed=2))
q.close()
assert threading.active_count() == 1
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    plain = done.stderr.decode().split("\r")[0]
    assert len(plain.splitlines()) == 4
    assert plain.endswith("with 2 results\n")
    assert not CONTROL.search(plain)
