"""A24: without Docker the offline account really runs the packaged handler, and a failure has Lambda's shape."""

import json
import os

import numpy as np
import pytest
from rig_functions import SMALL, Sdk, make_zip

import serverless_gc as sgc
from serverless_gc.invoke.envelope import decode_reply, encode_request
from serverless_gc.testing.lambda_endpoint import LambdaEndpoint
from serverless_gc.testing.rig import Rig
from serverless_gc.types import TaskSpec
from serverless_gc.wire import Reply, Task

BROKEN = """
def handler(event, context):
    raise RuntimeError("deliberately")
"""


@pytest.fixture(scope="module")
def without_docker(tmp_path_factory):
    """A rig on a machine where no container engine can be found: neither a command nor a socket."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
        patch.setenv("DOCKER_HOST", "tcp://127.0.0.1:9")
        with Rig() as rig:
            yield rig


def test_a_deliberate_exception_comes_back_as_from_lambda(without_docker):
    with without_docker.activated(), Sdk() as sdk:
        sdk.deploy("small", make_zip({"app.py": SMALL}))
        assert sdk.invoke("small", {"act": "tell"}).value["calls"] == 1  # its code ran, and nothing echoed
        done = sdk.invoke("small", {"act": "raise"}, LogType="Tail")
    assert (done.status, done.error) == (200, "Unhandled")
    assert done.value["errorType"] == "ArithmeticError"
    assert done.value["errorMessage"] == "on purpose"
    assert all(isinstance(line, str) for line in done.value["stackTrace"])
    assert "app.py" in "".join(done.value["stackTrace"])
    assert done.value["requestId"]
    assert "[ERROR] ArithmeticError: on purpose" in done.log


def test_the_light_endpoint_answers_in_the_same_shape(without_docker):
    with without_docker.activated(), Sdk() as sdk:
        sdk.deploy("broken", make_zip({"app.py": BROKEN}))
        real = sdk.invoke("broken")
    with LambdaEndpoint({"broken": "json:loads"}) as endpoint, without_docker.activated():
        os.environ["AWS_ENDPOINT_URL_LAMBDA"] = endpoint.url
        with Sdk() as sdk:
            light = sdk.invoke("broken")  # json.loads refuses the context as an argument
    assert (light.status, light.error) == (real.status, real.error)
    assert light.value.keys() == real.value.keys()
    assert {name: type(value) for name, value in light.value.items()} == {
        name: type(value) for name, value in real.value.items()
    }


def test_a_package_that_fails_is_a_failure_of_the_function(without_docker, problem):
    with without_docker.activated(SERVERLESS_GC_BUCKET="a24", SERVERLESS_GC_FUNCTION="fails"), Sdk() as sdk:
        sdk.s3.create_bucket(Bucket="a24")
        sdk.deploy("fails", make_zip({"app.py": BROKEN}))
        with sgc.Session("aws", max_attempts=2) as s:
            data = s.encode(problem.X, code="mds", n_workers=4, k=3)
            with pytest.raises(sgc.NotDecodableError) as caught:
                data.matvec(problem.w)
    assert "RuntimeError" in str(caught.value)
    assert "deliberately" in str(caught.value)


def test_the_packaged_worker_runs_here(account):
    """The deployed zip, asked for a kernel: the numbers are computed, not echoed."""
    task = Task("r", 0, "t", 0, 0, kernel="noop", blocks=(), result_key="", store="file:///", params={"size": 8})
    with Sdk() as sdk:
        answer = sdk.functions.invoke(FunctionName=account.function, Payload=encode_request(task.to_bytes()))
        body = answer["Payload"].read()
    assert "FunctionError" not in answer
    reply = Reply.from_bytes(decode_reply(TaskSpec("t", 0, 0), body))
    np.testing.assert_array_equal(reply.value, np.zeros(8))
    assert json.loads(body).keys() == {"sgc"}
