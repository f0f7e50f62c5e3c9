"""What Lambda does, the rig does: seen through boto3 and aiobotocore, with nothing but AWS's own variables set."""

import os
import re
import uuid
from concurrent.futures import ThreadPoolExecutor

import botocore.exceptions
import pytest
from aiobotocore.session import get_session
from rig_functions import Invoked, Sdk

from serverless_gc.limits import DEFAULT_LIMITS
from serverless_gc.testing.rig import Rig, Step, error_step


@pytest.fixture
def function(on_rig, sdk):
    name = f"f-{uuid.uuid4().hex[:8]}"
    sdk.deploy(name)
    yield name
    on_rig.admin.kill(name)


@pytest.fixture
def client(sdk):
    return sdk.functions


def refusal(client, name, payload=b"{}", **options):
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        client.invoke(FunctionName=name, Payload=payload, **options)
    answer = caught.value.response
    return answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"], answer


def test_cold_then_warm(function, on_rig, sdk):
    first, second = (sdk.invoke(function, LogType="Tail") for _ in range(2))
    assert (first.status, first.error) == (200, None)
    assert (first.value["calls"], second.value["calls"]) == (1, 2)
    assert first.value["pid"] == second.value["pid"]
    assert "module loaded" in first.log
    assert "Init Duration" in first.log
    assert "module loaded" not in second.log
    assert "Init Duration" not in second.log
    assert first.value["left_ms"] <= 5000
    assert on_rig.admin.counts(function).cold_starts == 1


def test_the_tail_of_the_log_has_lambdas_lines(function, sdk):
    lines = sdk.invoke(function, LogType="Tail").log.strip().split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("START RequestId: "))
    request_id = re.fullmatch(r"START RequestId: ([0-9a-f-]{36}) Version: \$LATEST", lines[start])[1]
    assert lines[start + 1] == "asked to tell"
    assert lines[start + 2] == f"END RequestId: {request_id}"
    pattern = rf"REPORT RequestId: {request_id}\tDuration: [\d.]+ ms\tBilled Duration: \d+ ms\tMemory Size: 256 MB\t"
    assert re.match(pattern + r"Max Memory Used: [1-9]\d* MB\tInit Duration: [\d.]+ ms$", lines[start + 3])


def test_no_tail_unless_asked(function, sdk):
    assert sdk.invoke(function).log == ""


def test_logs_are_readable(function, sdk):
    sdk.invoke(function)
    streams = sdk.logs.describe_log_streams(logGroupName=f"/aws/lambda/{function}")["logStreams"]
    environment = sdk.invoke(function, {"act": "environ"}).value
    assert [stream["logStreamName"] for stream in streams] == [environment["AWS_LAMBDA_LOG_STREAM_NAME"]]
    assert environment["AWS_LAMBDA_LOG_GROUP_NAME"] == f"/aws/lambda/{function}"
    events = sdk.logs.filter_log_events(logGroupName=f"/aws/lambda/{function}")["events"]
    messages = [event["message"] for event in events]
    assert "module loaded" in messages
    assert sum(message.startswith("REPORT ") for message in messages) == 2


def test_an_exception_has_the_runtimes_own_shape_and_leaves_the_environment(function, sdk):
    before = sdk.invoke(function).value
    failed = sdk.invoke(function, {"act": "raise"})
    assert (failed.status, failed.error) == (200, "Unhandled")  # A25: a failure has status 200
    assert failed.value["errorType"] == "ArithmeticError"
    assert failed.value["errorMessage"] == "on purpose"
    assert "in handler" in failed.value["stackTrace"][0]
    assert failed.value["requestId"]
    after = sdk.invoke(function).value
    assert (after["pid"], after["calls"]) == (before["pid"], 3)


def test_a_timeout_kills_the_environment(function, client, sdk):
    client.update_function_configuration(FunctionName=function, Timeout=1)
    before = sdk.invoke(function).value
    failed = sdk.invoke(function, {"act": "sleep", "seconds": 60}, LogType="Tail")
    assert failed.error == "Unhandled"
    assert failed.value["errorType"] == "Sandbox.Timedout"
    assert failed.value["errorMessage"].endswith("Error: Task timed out after 1.00 seconds")
    assert "Status: error\tError Type: Sandbox.Timedout" in failed.log
    after = sdk.invoke(function).value
    assert (after["calls"], after["pid"] == before["pid"]) == (1, False)


@pytest.mark.parametrize(("act", "how"), [("exit", "exit status 3"), ("die", "signal: segmentation fault")])
def test_an_exit_is_reported_and_ends_the_environment(function, act, how, sdk):
    failed = sdk.invoke(function, {"act": act})
    assert failed.error == "Unhandled"
    assert failed.value["errorType"] == "Runtime.ExitError"
    assert failed.value["errorMessage"].endswith(f"Error: Runtime exited with error: {how}")
    assert sdk.invoke(function).value["calls"] == 1


def test_memory_is_limited(function, sdk):
    """The default: an allocation fails, the function sees it, the environment lives on."""
    failed = sdk.invoke(function, {"act": "take", "megabytes": 300})
    assert (failed.error, failed.value["errorType"]) == ("Unhandled", "MemoryError")
    assert sdk.invoke(function).value["calls"] == 2


@pytest.fixture(scope="module")
def strict_rig():
    """A rig with a small account, which kills what takes too much memory."""
    with Rig(memory="kill", concurrency=3) as running:
        yield running


def test_memory_kill_has_lambdas_shape(strict_rig):
    with strict_rig.activated(), Sdk() as sdk:
        sdk.deploy("hungry", MemorySize=128)
        assert sdk.invoke("hungry", {"act": "take", "megabytes": 64}).value == 64 * 2**20
        failed = sdk.invoke("hungry", {"act": "take", "megabytes": 300, "seconds": 60}, LogType="Tail")
        assert failed.value["errorType"] == "Runtime.OutOfMemory"
        assert failed.value["errorMessage"].endswith("Error: Runtime exited with error: signal: killed")
        assert int(re.search(r"Max Memory Used: (\d+) MB", failed.log)[1]) >= 128
        assert sdk.invoke("hungry").value["calls"] == 1


def padded(size):
    """A JSON text of exactly this many bytes."""
    return b'"' + b"x" * (size - 2) + b'"'


@pytest.mark.parametrize(("kind", "limit"), [("RequestResponse", "request_bytes"), ("Event", "event_bytes")])
def test_a12_requests_are_measured_to_the_byte(function, client, kind, limit):
    limit = getattr(DEFAULT_LIMITS, limit)
    for size in (limit - 1, limit):
        answer = Invoked(client.invoke(FunctionName=function, Payload=padded(size), InvocationType=kind))
        assert answer.status == {"RequestResponse": 200, "Event": 202}[kind]
    status, code, _ = refusal(client, function, padded(limit + 1), InvocationType=kind)
    assert (status, code) == (413, "RequestTooLargeException")


def test_replies_are_measured_to_the_byte(function, sdk):
    limit = DEFAULT_LIMITS.reply_bytes
    whole = sdk.invoke(function, {"act": "fill", "size": limit - 2})
    assert (whole.error, len(whole.raw)) == (None, limit)
    failed = sdk.invoke(function, {"act": "fill", "size": limit - 1})
    assert (failed.status, failed.error) == (200, "Unhandled")
    assert failed.value["errorType"] == "Function.ResponseSizeTooLarge"
    assert sdk.invoke(function).value["calls"] == 1  # the runtime client gives up on a refused reply


def test_any_json_is_a_payload_and_nothing_else(function, client, sdk):
    for event in ("text", [1, 2], 1.5, True):
        assert sdk.invoke(function, event).value == event
    assert Invoked(client.invoke(FunctionName=function)).value["version"] == "$LATEST"  # no payload
    status, code, _ = refusal(client, function, b"{not json")
    assert (status, code) == (400, "InvalidRequestContentException")


def test_an_event_is_repeated_until_it_succeeds(function, client, on_rig, wait_until, sdk):
    bucket = function
    sdk.s3.create_bucket(Bucket=bucket)
    event = {"act": "count", "bucket": bucket, "fail": 2}
    assert sdk.invoke(function, event, InvocationType="Event").status == 202
    wait_until(lambda: on_rig.admin.counts(function).runs == 3)
    client.put_function_event_invoke_config(FunctionName=function, MaximumRetryAttempts=0)
    assert sdk.invoke(function, {"act": "raise"}, InvocationType="Event").status == 202
    wait_until(lambda: on_rig.admin.counts(function).dropped == 1)
    assert on_rig.admin.counts(function).runs == 4


def test_dry_run_runs_nothing(function, on_rig, sdk):
    assert sdk.invoke(function, InvocationType="DryRun").status == 204
    assert on_rig.admin.counts(function).runs == 0


def test_reserved_concurrency(function, client, on_rig, sdk):
    client.put_function_concurrency(FunctionName=function, ReservedConcurrentExecutions=4)

    def call(_):
        try:
            return sdk.invoke(function, {"act": "sleep", "seconds": 1.5}).status
        except client.exceptions.TooManyRequestsException as error:
            return error.response["Reason"]

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(call, range(10)))
    assert answers.count(200) == 4
    assert answers.count("ReservedFunctionConcurrentInvocationLimitExceeded") == 6
    counts = on_rig.admin.counts(function)
    assert (counts.peak, counts.throttles, counts.cold_starts) == (4, 6, 4)
    client.put_function_concurrency(FunctionName=function, ReservedConcurrentExecutions=0)
    status, code, answer = refusal(client, function)
    assert (status, code) == (429, "TooManyRequestsException")
    assert answer["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"


def test_account_concurrency_less_what_is_reserved(strict_rig):
    with strict_rig.activated(), Sdk() as sdk:
        sdk.deploy("reserving")
        sdk.deploy("other")
        sdk.functions.put_function_concurrency(FunctionName="reserving", ReservedConcurrentExecutions=2)
        with ThreadPoolExecutor(2) as pool:  # the two that are reserved are not the one that is left
            at_once = [pool.submit(sdk.invoke, name, {"act": "sleep", "seconds": 1}) for name in ("reserving", "other")]
            assert [answer.result().status for answer in at_once] == [200, 200]
        told = sdk.functions.get_account_settings()["AccountLimit"]
        assert (told["ConcurrentExecutions"], told["UnreservedConcurrentExecutions"]) == (3, 1)
        sdk.functions.put_function_concurrency(FunctionName="reserving", ReservedConcurrentExecutions=3)
        _, _, answer = refusal(sdk.functions, "other")
        assert answer["Reason"] == "ConcurrentInvocationLimitExceeded"
        sdk.functions.delete_function_concurrency(FunctionName="reserving")


async def test_aiobotocore_finds_it(function):
    async with get_session().create_client("lambda") as client:
        answer = await client.invoke(FunctionName=function, Payload=b"[1]")
        assert await answer["Payload"].read() == b"[1]"


def test_a_new_configuration_has_new_environments(function, client, on_rig, sdk):
    before = sdk.invoke(function).value
    client.update_function_configuration(FunctionName=function, Environment={"Variables": {"COLOUR": "blue"}})
    assert sdk.invoke(function, {"act": "environ"}).value["COLOUR"] == "blue"
    after = sdk.invoke(function).value
    assert (after["calls"], after["pid"] == before["pid"]) == (2, False)
    assert len(on_rig.admin.environments(function)) == 1  # the old one is gone


def test_unknown_functions(client):
    status, code, answer = refusal(client, "nobody")
    assert (status, code) == (404, "ResourceNotFoundException")
    assert answer["Error"]["Message"].endswith("function:nobody")


def test_the_environment_is_lambdas(function, on_rig, sdk):
    environment = sdk.invoke(function, {"act": "environ"}).value
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == function
    assert environment["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "256"
    assert environment["AWS_LAMBDA_FUNCTION_VERSION"] == "$LATEST"
    assert environment["AWS_REGION"] == "us-east-1"
    assert environment["_HANDLER"] == "app.handler"
    assert environment["AWS_ENDPOINT_URL_S3"] == on_rig.url
    assert environment["PYTHONPATH"].startswith(environment["LAMBDA_TASK_ROOT"])
    assert not set(environment) & {"VIRTUAL_ENV", "PYTEST_CURRENT_TEST", "SERVERLESS_GC_BUCKET", "USER"}
    assert os.environ["AWS_ENDPOINT_URL"] == on_rig.url


def test_steps_by_number(function, client, on_rig, sdk):
    on_rig.admin.set_faults(
        function,
        {
            1: error_step(429, "TooManyRequestsException", "Rate Exceeded.", Reason="CallerRateLimitExceeded"),
            2: error_step(500, "ServiceException", "internal"),
            3: Step(action="kill"),
            4: Step(action="break"),
            5: Step(action="lose"),
            6: Step(delay=0.2),
        },
    )
    assert refusal(client, function)[:2] == (429, "TooManyRequestsException")
    assert refusal(client, function)[:2] == (500, "ServiceException")
    killed = sdk.invoke(function, {"act": "sleep", "seconds": 60})
    assert killed.value["errorType"] == "Runtime.ExitError"
    assert killed.value["errorMessage"].endswith("signal: killed")
    for _ in range(2):
        with pytest.raises(botocore.exceptions.ConnectionClosedError):
            sdk.invoke(function)
    slow = sdk.invoke(function, LogType="Tail")
    assert float(re.search(r"\tDuration: ([\d.]+) ms", slow.log)[1]) >= 200
    assert slow.value["calls"] == 2  # the lost one ran, the broken one did not
    counts = on_rig.admin.counts(function)
    assert (counts.requests, counts.runs, counts.throttles) == (6, 3, 1)


def test_a_function_made_anew_has_new_environments(function, client, sdk):
    before = sdk.invoke(function).value
    client.delete_function(FunctionName=function)
    sdk.deploy(function)
    after = sdk.invoke(function).value
    assert (after["calls"], after["pid"] == before["pid"]) == (1, False)


@pytest.mark.parametrize("step", [Step(delay=60), Step(action="hang")])
def test_delays_count_against_the_timeout(function, client, on_rig, sdk, step):
    client.update_function_configuration(FunctionName=function, Timeout=1)
    on_rig.admin.set_faults(function, {1: step})
    failed = sdk.invoke(function)
    assert failed.value["errorType"] == "Sandbox.Timedout"
    assert failed.value["errorMessage"].endswith("Error: Task timed out after 1.00 seconds")
    assert sdk.invoke(function).value["calls"] == 1


def test_killed_environments_are_replaced(function, on_rig, sdk):
    before = sdk.invoke(function).value
    assert on_rig.admin.kill(function) == 1
    after = sdk.invoke(function).value
    assert (after["calls"], after["pid"] == before["pid"]) == (1, False)
