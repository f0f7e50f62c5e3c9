"""The endpoint that stands in for Lambda, asked over plain HTTP."""

import http.client
import json
import socket
from urllib.parse import urlsplit

import pytest

from serverless_gc.errors import InputError
from serverless_gc.testing.lambda_endpoint import ECHO, LambdaEndpoint, Step, error_step

HANDLERS = {"echo": ECHO, "raising": "operator:truediv", "scripted": ECHO}


@pytest.fixture(scope="module")
def endpoint():
    with LambdaEndpoint(HANDLERS, concurrency=3, timeout=1.0, request_bytes=1000, reply_bytes=500) as running:
        yield running


def post(endpoint, function, body=b"{}", **headers):
    connection = http.client.HTTPConnection(urlsplit(endpoint.url).netloc, timeout=10.0)
    try:
        path = f"/2015-03-31/functions/{function}/invocations"
        connection.request("POST", path, body, {"Authorization": "any", **headers})
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()


def test_runs_the_handler(endpoint):
    status, headers, body = post(endpoint, "echo", b'{"a": [1, 2]}')
    assert (status, json.loads(body)) == (200, {"a": [1, 2]})
    assert headers["X-Amz-Executed-Version"] == "$LATEST"
    assert "X-Amz-Function-Error" not in headers


def test_an_arn_names_the_function_too(endpoint):
    assert post(endpoint, "arn%3Aaws%3Alambda%3Aus-east-1%3A123456789012%3Afunction%3Aecho")[0] == 200


def test_unknown_function(endpoint):
    status, headers, body = post(endpoint, "nobody")
    assert (status, headers["x-amzn-ErrorType"]) == (404, "ResourceNotFoundException")
    assert "nobody" in json.loads(body)["message"]


def test_unsigned_request(endpoint):
    connection = http.client.HTTPConnection(urlsplit(endpoint.url).netloc, timeout=10.0)
    connection.request("POST", "/2015-03-31/functions/echo/invocations", b"{}")
    assert connection.getresponse().status == 403
    connection.close()


@pytest.mark.parametrize(("size", "expected"), [(999, 200), (1000, 200), (1001, 413)])
def test_request_limit(endpoint, size, expected):
    body = b'"' + b"x" * (size - 2) + b'"'
    endpoint.script("scripted", Step(action="reply", body="{}"))
    assert post(endpoint, "scripted", body)[0] == expected
    endpoint.script("scripted")


def test_reply_limit_is_a_function_error(endpoint):
    status, headers, body = post(endpoint, "echo", b'"' + b"x" * 600 + b'"')
    assert (status, headers["X-Amz-Function-Error"]) == (200, "Unhandled")
    assert json.loads(body)["errorType"] == "Function.ResponseSizeTooLarge"


def test_exception_is_status_200_with_a_header(endpoint):
    status, headers, body = post(endpoint, "raising")
    error = json.loads(body)
    assert (status, headers["X-Amz-Function-Error"], error["errorType"]) == (200, "Unhandled", "TypeError")
    assert error["stackTrace"]


def test_function_timeout(endpoint):
    endpoint.script("scripted", Step(delay=5.0))
    status, headers, body = post(endpoint, "scripted")
    assert (status, headers["X-Amz-Function-Error"]) == (200, "Unhandled")
    assert "Task timed out after 1.00 seconds" in json.loads(body)["errorMessage"]


def test_account_concurrency(endpoint):
    endpoint.script("scripted", Step(action="hang", times=3))
    path = "/2015-03-31/functions/scripted/invocations"
    held = [http.client.HTTPConnection(urlsplit(endpoint.url).netloc, timeout=10.0) for _ in range(3)]
    before = endpoint.counts("scripted").requests
    for connection in held:
        connection.request("POST", path, b"{}", {"Authorization": "any"})
    while endpoint.counts("scripted").requests < before + 3:
        pass
    status, headers, body = post(endpoint, "echo")
    for connection in held:
        assert connection.getresponse().status == 200  # timed out
        connection.close()
    assert (status, headers["x-amzn-ErrorType"]) == (429, "TooManyRequestsException")
    assert json.loads(body)["Reason"] == "ConcurrentInvocationLimitExceeded"
    assert post(endpoint, "echo")[0] == 200


def test_event_is_accepted_and_runs(endpoint):
    before = endpoint.counts("echo")
    status, _, body = post(endpoint, "echo", b"{}", **{"X-Amz-Invocation-Type": "Event"})
    assert (status, body) == (202, b"")
    while endpoint.counts("echo").runs == before.runs:
        pass
    assert endpoint.counts("echo").requests == before.requests + 1


def test_script_is_used_up_in_order_and_counted(endpoint):
    endpoint.script("scripted", error_step(429, "TooManyRequestsException", times=2), Step(action="reply", body="null"))
    before = endpoint.counts("scripted")
    seen = [post(endpoint, "scripted", b'{"i": 1}') for _ in range(4)]
    assert [(status, body[:5]) for status, _, body in seen[2:]] == [(200, b"null"), (200, b'{"i":')]
    assert [status for status, _, _ in seen[:2]] == [429, 429]
    after = endpoint.counts("scripted")
    assert (after.requests - before.requests, after.runs - before.runs) == (4, 1)


def test_broken_connection(endpoint):
    endpoint.script("scripted", Step(action="break"))
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        post(endpoint, "scripted")


def test_closes_quickly_with_a_hanging_request_and_frees_its_port():
    with LambdaEndpoint({"f": ECHO}, script=(Step(action="hang"),)) as endpoint:
        host, _, port = urlsplit(endpoint.url).netloc.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10.0)
        connection.request("POST", "/2015-03-31/functions/f/invocations", b"{}", {"Authorization": "any"})
        process = endpoint._process
    assert process.returncode == 0
    connection.close()
    with socket.socket() as probe:
        assert probe.connect_ex((host, int(port))) != 0
    with pytest.raises(InputError, match="not running"):
        _ = endpoint.url
