"""A31: no control characters in a file, a bar whatever the log level, and importing configures no handler."""

import logging
import subprocess
import sys

SCRIPT = """
import logging, sys
logging.basicConfig(level=logging.ERROR)
import numpy as np
import serverless_gc as sgc
with sgc.Session(progress=True, inject=sgc.inject.Stragglers(fraction=[0], slowdown=10, base=0.05)) as s:
    data = s.encode(np.eye(40), np.ones(40), code="uncoded", n_workers=4)
    for _ in range(3):
        data.gradient(np.ones(40))
print("done")
"""


def test_nothing_odd_in_a_file(tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("w") as o, err.open("w") as e:
        subprocess.run([sys.executable, "-c", SCRIPT], stdout=o, stderr=e, check=True, timeout=60)
    assert out.read_text() == "done\n"
    assert not [c for c in err.read_text() if ord(c) < 32 and c != "\n"]


def test_bar_is_shown_on_a_terminal_whatever_the_log_level():
    import os
    import pty

    parent, child = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.DEVNULL, stderr=child)
    os.close(child)
    seen = b""
    while True:
        try:
            piece = os.read(parent, 4096)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(parent)
    assert process.wait(timeout=60) == 0
    assert b"X w (uncoded)" in seen
    assert b"/4 [" in seen


def test_importing_configures_no_handler():
    code = (
        "import logging, serverless_gc, serverless_gc.api; "
        "print(len(logging.root.handlers), len(logging.getLogger('serverless_gc').handlers))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0"]
    assert logging.getLogger("serverless_gc").propagate
