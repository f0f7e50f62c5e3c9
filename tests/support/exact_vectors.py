"""The stored results of exact arithmetic, and the scripts that write them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from serverless_gc.codes import available

DATA = Path(__file__).parents[1] / "data"
KNOWN = {info.name for info in available()}


def stored(name):
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def written_again(script, folder):
    """Run a script, without this package and what it needs, and return what it writes."""
    again = folder / "again.json"
    subprocess.run([sys.executable, "-I", "-c", _RUN, str(DATA / script), str(again)], check=True)
    return again.read_bytes()


_RUN = """
import runpy, sys
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[1]).parent))
runpy.run_path(sys.argv[1])["main"](sys.argv[2])
others = {"numpy", "scipy", "serverless_gc"} & set(sys.modules)
assert not others, others
"""


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12 * max(1.0, np.abs(expected).max()))


def sets_in(bits, n):
    """Yield all sets of ``n`` messages, and whether the bit of each is set."""
    bits = int(bits, 16)
    for members in range(2**n):
        yield [i for i in range(n) if members >> i & 1], bool(bits >> members & 1)


def evenly(items, count=60):
    """Take so many items, spread over all of them, and the last."""
    items = list(items)
    return items[:: max(1, len(items) // count)] + items[-1:]


def tracked(code, members):
    """Say whether a fresh tracker is content with these messages."""
    tracker = code.tracker()
    for message in members:
        tracker.add(message)
    return tracker.decodable
