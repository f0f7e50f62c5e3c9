"""A driver that is killed: what it left is found and cleaned, and another goes on.

Without a name the coded blocks are the killed run's own, and a new session encodes again. Under a name the next driver
finds them, whether the first was killed while it stored them or later.
"""

import re

import numpy as np
import pytest
from driver_process import driver
from fault_proxy import BLOCKS, Fault
from rig_functions import Sdk
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

        # the blocks, the results, and what said that the run is there
        assert f"{blocks + 8 + 1} objects" in run_command("clean", "--run", killed, "--dry-run")
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


TRAINING = """
with session() as s:
    data = s.encode(X, y, code="mds", n_workers=8, k=6, name="numbers")
    say("encoded")

    def told(at):
        say(at.step)
        hear()

    options = {"method": "gradient-descent", "lr": 1e-3, "max_rounds": 6, "tolerance": 0}
    fit = sgc.minimize(data, np.zeros(10), checkpoint="state", callback=told, **options)
    say(fit.resumed_at, *(w.hex() for w in fit.w))
"""


def stored_sets(account):
    with Sdk() as sdk:
        listed = sdk.s3.list_objects_v2(Bucket=account.bucket, Prefix="sgc/kept/")
        return {entry["Key"] for entry in listed.get("Contents", [])}


def puts(proxy, since):
    """Keys that were written through the proxy, but for what belongs to a run."""
    asked = [re.fullmatch(r"PUT /[^/]+/(sgc/kept/[^?]+).*", what) for _, what in proxy.asked[since:]]
    return [found[1] for found in asked if found]


def steps(process, upto):
    """Let it go on until it has told so many steps."""
    for step in upto:
        assert process.hear() == str(step)
        process.say("go")


@pytest.fixture
def kept_away(account):
    yield
    for name in sorted({key.split("/")[2] for key in stored_sets(account)}):
        run_command("data", "delete", name, "--yes")


@pytest.mark.usefixtures("kept_away")
@pytest.mark.parametrize("account", ["rig"], indirect=True)
def test_a_training_goes_on_from_its_checkpoint_and_uploads_nothing_again(proxied, account, tmp_path):
    proxy, _ = proxied
    with driver(TRAINING, 0, tmp_path) as first:
        assert first.hear() == "encoded"
        steps(first, range(1, 3))
        assert first.hear() == "3"
        first.kill()
    assert len(puts(proxy, 0)) == len(stored_sets(account)) == 8 + 8 + 4  # blocks of rows and columns, and manifests
    asked = len(proxy.asked)
    with driver(TRAINING, 0, tmp_path) as second:
        assert second.hear() == "encoded"
        assert puts(proxy, asked) == []
        steps(second, range(4, 7))
        resumed_at, *weights = second.hear().split()
        second.end()
    assert resumed_at == "3"
    assert puts(proxy, asked) == []
    np.testing.assert_allclose([float.fromhex(w) for w in weights], descent(6), rtol=1e-9)


def descent(n):
    """The same in NumPy, with the data of the script."""
    rng = np.random.default_rng(0)
    X, y, w = rng.standard_normal((400, 10)), rng.standard_normal(400), np.zeros(10)
    for _ in range(n):
        w = w - 1e-3 * X.T @ (X @ w - y)
    return w


@pytest.mark.usefixtures("kept_away")
@pytest.mark.parametrize("account", ["endpoint"], indirect=True)
def test_an_upload_goes_on_where_it_was_killed(proxied, account, wait_until, tmp_path):
    proxy, _ = proxied
    proxy.faults = [Fault("delay", r"PUT .*/kept/.*/rows/0000[4-7]", seconds=1.0)]
    with driver(TRAINING, 0, tmp_path) as first:
        wait_until(lambda: {key[-5:] for key in puts(proxy, 0)} >= {f"{i:05d}" for i in range(8)})
        first.kill()
    proxy.faults = []
    there = stored_sets(account)
    assert 1 <= len(there) < 20
    assert not any(key.endswith("numbers/manifest") for key in there)
    assert "not stored to the end" in run_command("data", "list")
    asked = len(proxy.asked)
    with driver(TRAINING, 0, tmp_path) as second:
        assert second.hear() == "encoded"
        again = puts(proxy, asked)
        assert not set(again) & there
        assert len(again) == len(set(again)) > 0
        assert len(stored_sets(account)) == 20
        steps(second, range(1, 7))
        second.hear()
        second.end()
