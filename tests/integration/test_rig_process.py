"""The rig as a process: side by side, nothing left behind, and clear words when it cannot start."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rig_functions import Sdk, make_zip

from serverless_gc.errors import ConfigError, InputError
from serverless_gc.inject import Faults, Stragglers
from serverless_gc.invoke.envelope import encode_request
from serverless_gc.testing.lambda_endpoint import ECHO, LambdaEndpoint, Step
from serverless_gc.testing.rig import Admin, Rig, moto_seam
from serverless_gc.testing.rig.faults import Plan
from serverless_gc.testing.rig.settings import Settings
from serverless_gc.wire import Task

FOREVER = "import os, subprocess\ndef handler(event, context):\n while True: pass"


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def own_temporary(tmp_path, monkeypatch):
    """A folder for temporary files that nobody else uses."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_two_rigs_share_nothing_and_leave_nothing(own_temporary):
    pids, ports = [], []
    with Rig() as one, Rig() as two:
        for name, rig in (("one", one), ("two", two)):
            with rig.activated(), Sdk() as sdk:
                sdk.deploy(f"function-{name}")
                sdk.s3.create_bucket(Bucket="same-name")
                sdk.s3.put_object(Bucket="same-name", Key=name, Body=b"")
                assert [entry["Key"] for entry in sdk.s3.list_objects_v2(Bucket="same-name")["Contents"]] == [name]
                assert [f["FunctionName"] for f in sdk.functions.list_functions()["Functions"]] == [f"function-{name}"]
                pids.append(sdk.invoke(f"function-{name}").value["pid"])
            ports.append(urlsplit(rig.url).port)
        assert ports[0] != ports[1]
        assert len(one.admin.environments()) == 1
        assert all(alive(pid) for pid in pids)
        assert len(list(own_temporary.iterdir())) == 2
    assert not any(listening(port) for port in ports)
    assert not any(alive(pid) for pid in pids)
    assert list(own_temporary.iterdir()) == []


def test_a_rig_that_is_killed_takes_its_functions_along(wait_until, own_temporary):
    with Rig() as rig, rig.activated(), Sdk() as sdk:
        sdk.deploy("idle")
        sdk.invoke("idle")
        sdk.deploy("endless", make_zip({"app.py": FOREVER}), Timeout=900)
        sdk.invoke("endless", InvocationType="Event")
        wait_until(lambda: any(e.busy for e in rig.admin.environments("endless")))
        pids = [environment.pid for environment in rig.admin.environments()]
        assert len(pids) == 2
        os.kill(rig._process.pid, signal.SIGKILL)
        wait_until(lambda: not any(alive(pid) for pid in pids))
    assert list(own_temporary.iterdir()) == []


OWNER = """
import sys
from serverless_gc.testing.rig import Rig
with Rig() as rig:
    print(rig.url, flush=True)
    sys.stdin.read()
"""


def test_a_rig_ends_with_its_owner(wait_until):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with owner:
        port = urlsplit(owner.stdout.readline().strip()).port
        assert listening(port)
        owner.kill()
    wait_until(lambda: not listening(port))


def test_the_command_serves_until_it_is_interrupted():
    command = subprocess.Popen(
        [sys.executable, "-m", "serverless_gc.testing.rig", "--concurrency", "7"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with command:
        exported = {}
        while (line := command.stdout.readline()).startswith("export "):
            name, _, value = line.removeprefix("export ").strip().partition("=")
            exported[name] = value
        assert "Ctrl-C" in line
        url = exported["AWS_ENDPOINT_URL"]
        assert exported["AWS_ACCESS_KEY_ID"] == "testing"
        assert Admin(url).environments() == []
        command.send_signal(signal.SIGINT)
        assert command.wait(15) == 0
    assert not listening(urlsplit(url).port)


def test_it_listens_on_loopback_alone(rig):
    port = urlsplit(rig.url).port
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.2", port)) != 0


def test_the_environment_is_put_back(rig, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "mine")
    before = dict(os.environ)
    with rig.activated(SERVERLESS_GC_BUCKET="b"):
        assert os.environ["AWS_ENDPOINT_URL"] == rig.url
        assert os.environ["SERVERLESS_GC_BUCKET"] == "b"
        assert "AWS_PROFILE" not in os.environ
    assert dict(os.environ) == before


def test_moto_is_what_the_seam_reads():
    """The contract with moto: fails when a name that the rig reads has moved."""
    moto_seam.prepare()


def test_a_name_of_moto_that_has_moved_is_told_in_one_line(monkeypatch):
    from moto.awslambda.models import LambdaFunction

    monkeypatch.delattr(LambdaFunction, "_set_function_code")
    with pytest.raises(ConfigError) as caught:
        moto_seam.prepare()
    message = str(caught.value)
    assert "\n" not in message
    assert "_set_function_code" in message
    assert "pip install 'moto[server]==5.2.1'" in message


def test_an_interpreter_without_the_runtime_client_is_told_apart(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(ConfigError, match="-m pip install 'awslambdaric"), Rig(python=str(python)):
        pass
    with pytest.raises(ConfigError, match="does not run"), Rig(python=str(tmp_path / "absent")):
        pass


def test_a_port_that_is_taken_is_told(rig):
    with pytest.raises(ConfigError, match=r"did not start.*in use"), Rig(port=urlsplit(rig.url).port):
        pass


def test_the_thin_endpoint_knows_the_same_steps():
    """`LambdaEndpoint`, which runs no zips, answers a kill in the same shape."""
    with (
        LambdaEndpoint({"f": ECHO}, script=[Step(action="kill")]) as endpoint,
        contextlib.closing(http.client.HTTPConnection(urlsplit(endpoint.url).netloc)) as connection,
    ):
        connection.request("POST", "/2015-03-31/functions/f/invocations", b"{}", {"Authorization": "any"})
        answer = connection.getresponse()
        assert answer.headers["X-Amz-Function-Error"] == "Unhandled"
        assert json.loads(answer.read())["errorMessage"].endswith("Runtime exited with error: signal: killed")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"concurrency": -1}, "concurrency must be at least 0, got -1"),
        ({"cold_starts": 0}, "cold_starts must be at least 1, got 0"),
        ({"init_timeout": 0.0}, "init_timeout must be positive, got 0"),
        ({"event_delay": -1.0}, "event_delay must be at least 0"),
        ({"memory": "half"}, "memory must be one of limit, kill, off, got 'half'"),
        ({"inject": [Faults(corrupt=[1])]}, "not corrupt"),
    ],
)
def test_bad_parameters(options, match):
    with pytest.raises(InputError, match=match):
        Rig(**options)


def test_a_rig_that_does_not_run_has_no_url():
    with pytest.raises(InputError, match="context manager"):
        _ = Rig().url


def test_settings_survive_the_way_to_the_process():
    settings = Settings(
        concurrency=5,
        faults={"f": {2: Step(delay=1.5)}},
        inject=(Stragglers(fraction={3, 4}, base=0.1), Faults(throttle=0.5)),
    )
    again = Settings.from_line(settings.to_line())
    assert again.faults == settings.faults
    assert (again.concurrency, again.limits) == (5, settings.limits)
    assert [again.inject[0].factor(slot, 0) for slot in range(5)] == [1, 1, 1, 10, 10]
    assert again.inject[1] == settings.inject[1]


def payload(slot, round_=0, attempt=0):
    return encode_request(Task("r", round_, f"t{slot}", slot, attempt, "noop", (), "", "file:///").to_bytes())


def test_injection_is_drawn_from_the_task_whatever_the_order():
    injections = [Stragglers(fraction=0.3, slowdown=5, base=0.1, seed=2), Faults(drop=0.2, seed=3)]
    plans = [Plan({}, injections) for _ in range(2)]
    forth = {slot: plans[0].next("f", payload(slot)) for slot in range(50)}
    back = {slot: plans[1].next("f", payload(slot)) for slot in reversed(range(50))}
    assert forth == back
    slow = [slot for slot, doing in forth.items() if doing.stretch == 5]
    assert slow == [slot for slot in range(50) if injections[0].factor(slot, 0) == 5]
    hung = [slot for slot, doing in forth.items() if doing.step.action == "hang"]
    assert hung == [slot for slot in range(50) if injections[1].hits("drop", slot, 0)]
    assert slow
    assert hung


def test_throttles_and_failures_end():
    plan = Plan({}, [Faults(throttle={1}, throttle_times=2, fail={2})])
    assert [plan.next("f", payload(1)).step.status for _ in range(3)] == [429, 429, 200]
    assert "errorType" in plan.next("f", payload(2)).step.body
    assert plan.next("f", payload(2, attempt=1)).step == Step()
    assert plan.next("f", b'{"no": "task"}').step == Step()


def test_steps_count_from_where_they_were_set():
    plan = Plan({"f": {2: Step(action="kill")}})
    assert [plan.next("f", b"").step.action for _ in range(3)] == ["run", "kill", "run"]
    assert [plan.next("g", b"").step.action for _ in range(3)] == ["run"] * 3
    plan.set("f", {1: Step(action="break")})
    assert [plan.next("f", b"").step.action for _ in range(2)] == ["break", "run"]
