"""A driver that is killed in mid-round: what it left is found and cleaned, and another computes the same anew.

Nothing is taken over from the killed run: its coded blocks are its own, under its own name, and a new session encodes
again. That is what resuming means today.
"""

import pytest
from driver_process import driver
from fault_proxy import BLOCKS, Fault
from typer.testing import CliRunner

from serverless_gc.cli.app import app

KILLED = """
with session() as s:
    data = s.encode(X, y, code="uncoded", n_workers=8)
    say(background.run(s.resources()).run)
    hear()
    data.gradient(w)
"""

ANEW = """
with session() as s:
    data = s.encode(X, y, code="uncoded", n_workers=8)
    say(background.run(s.resources()).run)
    hear()
    np.testing.assert_allclose(data.gradient(w), expected, rtol=1e-9)
"""


def run_command(*words):
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("account", ["rig"], indirect=True)
def test_cleaned_and_computed_anew(proxied, account, count_objects, wait_until, tmp_path):
    proxy, _ = proxied
    before = account.counts().runs
    with driver(KILLED, 0, tmp_path) as first, driver(ANEW, 0, tmp_path) as second:
        killed, fellow = first.hear(), second.hear()
        proxy.faults = [Fault("delay", BLOCKS, seconds=2.0)]
        first.say("go")
        wait_until(lambda: account.counts().runs == before + 8)
        assert count_objects(killed, "round/") < 8
        first.kill()
        proxy.faults = []
        # Nobody has told the functions: they store their results, as those of any driver that lost its connection.
        wait_until(lambda: count_objects(killed, "round/") == 8)
        blocks = count_objects(killed, "data/")
        assert blocks >= 2 * 8

        assert f"{blocks + 8} objects" in run_command("clean", "--run", killed, "--dry-run")
        run_command("clean", "--run", killed)
        assert count_objects(killed) == 0
        assert count_objects(fellow) > 0  # another run's are left alone
        second.say("go")
        second.end()
    with driver(ANEW, 0, tmp_path) as third:
        name = third.hear()
        third.say("go")
        third.end()
    assert [count_objects(run) for run in (killed, fellow, name)] == [0, 0, 0]
