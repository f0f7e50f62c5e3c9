"""A script that ends without closing anything ends silently and leaves nothing behind."""

import os
import subprocess
import sys

import pytest

CALL = "import numpy as np, serverless_gc as sgc; X = np.arange(40.0).reshape(20, 2); w = np.ones(2)\n"
SCRIPTS = {
    "no session": CALL + "print(sgc.coded_gradient(X, X[:, 0], w, code='mds', n_workers=4, backend='processes'))",
    "unclosed": CALL + "s = sgc.Session('processes'); d = s.encode(X, X[:, 0], code='mds', n_workers=4); d.gradient(w)",
    "never used": CALL + "s = sgc.Session('processes')",
    "dropped": CALL + "sgc.Session('processes'); s = sgc.Session('local'); s.encode(X, code='mds', n_workers=4)",
    "fails": CALL + "s = sgc.Session('processes'); s.encode(X, code='mds', n_workers=4).matvec(w); raise SystemExit(3)",
    "forked": CALL
    + "import os, sys; s = sgc.Session('processes'); d = s.encode(X, code='mds', n_workers=4)\n"
    + "child = os.fork()\n"
    + "if child == 0: sys.exit(0)\n"
    + "assert os.waitpid(child, 0)[1] == 0\n"
    + "d.matvec(w)",  # the child's end has not taken its blocks away
}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_the_end_of_a_script_is_silent_and_clean(script, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.stderr == ""
    assert ended.returncode == (3 if "SystemExit" in script else 0)
    assert list(tmp_path.iterdir()) == []
