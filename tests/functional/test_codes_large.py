"""`serverless-gc codes` of sizes that no machine holds: an answer in seconds, or a reason, within a small memory."""

import json
import subprocess
import sys

import pytest

from serverless_gc.codes import available

MEMORY = 3 << 30
"""Of the address space: arrays that fill a laptop do not fit."""

SCRIPT = """
import contextlib, io, json, resource, sys, time
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
from serverless_gc.cli import main
import serverless_gc.cli.app
sys.modules["serverless_gc.cli.codes"]._PATIENCE = 0.05
for name in {names}:
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["serverless-gc", "codes", name, "--trials", "10", *{sizes}]
    begun = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            status = ended.code
    print(json.dumps([name, status, out.getvalue(), err.getvalue(), time.process_time() - begun]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [("--workers", "100000"), ("--workers", "64", "--k", "100000")], ids=["workers", "blocks"]
)
def test_no_size_hangs_or_fills_the_memory(sizes):
    names = [info.name for info in available()]
    script = SCRIPT.format(memory=MEMORY, names=names, sizes=sizes)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=240)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer[0] for answer in answers] == names, done.stderr[-2000:]
    for name, status, out, err, _ in answers:
        if status:
            assert status == 1, (name, err)
            assert err.startswith("serverless-gc: "), (name, err)
            assert "Unable to allocate" not in err, (name, err)  # refused before, by its size
        else:
            assert "results awaited of" in out or "approximate: never exact" in out
            assert "encode" in out
