"""What Lambda's refusals, failures and broken connections mean, in this package's words."""

from __future__ import annotations

import json
from typing import NamedTuple

from serverless_gc.aws.identity import EXPIRED_CODES
from serverless_gc.errors import FailureKind, InvokeError
from serverless_gc.invoke.envelope import reply_too_large
from serverless_gc.invoke.transport import Answer
from serverless_gc.types import TaskSpec

__all__ = ["Target", "function_failed", "refused", "transport_failed"]

_BAD_CREDENTIALS = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
    }
)
_BAD_SIGNATURE = frozenset({"InvalidSignatureException", "SignatureDoesNotMatch", "RequestTimeTooSkewed"})
_KMS = frozenset(
    {"KMSAccessDeniedException", "KMSDisabledException", "KMSNotFoundException", "KMSInvalidStateException"}
)
_MISSING = frozenset({"ResourceNotFoundException", "NoPublishedVersionException"})
_TOO_LARGE = frozenset(
    {"RequestTooLargeException", "RequestEntityTooLargeException", "SerializedRequestEntityTooLargeException"}
)
_RENEW = "They were asked for again and are no newer: renew them (`aws sso login`, a new session token), call again"
# The function exists and is being created, updated or attached to its network: nothing ran, asking again helps.
_NOT_READY = frozenset({408, 409})


class Target(NamedTuple):
    """Which function is invoked, for messages."""

    function: str
    region: str


def refused(answer: Answer, task: TaskSpec, target: Target) -> InvokeError:
    """Classify an error of the service: it answered, and the function did not run."""
    kind, reason, advice = _meaning(answer.error, answer.status, answer.detail, target)
    said = answer.message.strip(" .") or "no message"
    return InvokeError(
        f"task {task.task_id}, attempt {task.attempt}: function {target.function} in {target.region} answered "
        f"{answer.status} {answer.error}: {said}. {advice}",
        kind=kind,
        reason=reason,
        retryable=kind in {"throttled", "unavailable"},
        may_have_run=False,
        request_id=answer.request_id,
    )


def _meaning(code: str, status: int, detail: str, target: Target) -> tuple[FailureKind, str, str]:
    """Kind, reason and advice."""
    if status == 429:
        return "throttled", "throttled", f"Reason: {detail or 'not given'}. Fewer at a time will be asked"
    if code in EXPIRED_CODES:
        return "denied", "credentials expired", _RENEW
    if code in _BAD_CREDENTIALS:
        return "denied", "credentials invalid", "Check them with `aws sts get-caller-identity`"
    if code in _BAD_SIGNATURE:
        return "denied", "signature refused", "Check the secret key and this machine's clock"
    if code in _KMS:
        return "denied", "key refused", "The function's role may not use the KMS key of its environment or bucket"
    if code in _MISSING:
        advice = f"Create it with `serverless-gc deploy`, or set AWS_REGION if it is not in {target.region}"
        return "missing", "no such function", advice
    if code in _TOO_LARGE or status == 413:
        return "too-large", "request too large", "Put the operand into the store (operand_key) or use smaller blocks"
    if status in {401, 403}:
        advice = f"Allow lambda:InvokeFunction on {target.function}; `serverless-gc doctor` prints the statement"
        return "denied", "not allowed", advice
    if status >= 500 or status in _NOT_READY:
        return "unavailable", "service unavailable", "The function did not run"
    return "bad-reply", "request refused", "Compare function and worker with `serverless-gc doctor`"


def function_failed(answer: Answer, task: TaskSpec, target: Target) -> InvokeError:
    """Classify a reply with ``X-Amz-Function-Error``: the function ran, and it failed."""
    kind_of, said = _error_of(answer.body)
    where = f"task {task.task_id}, attempt {task.attempt}: function {target.function}"
    logs = f"`aws logs tail /aws/lambda/{target.function} --region {target.region}` has its log"
    if kind_of == "Function.ResponseSizeTooLarge":
        return reply_too_large(task, f"Lambda refused the reply ({said})", answer.request_id)
    if kind_of == "Sandbox.Timedout" or "Task timed out" in said:
        reason, advice = "function timed out", "Raise the function's Timeout or use more, smaller blocks"
    elif kind_of == "Runtime.OutOfMemory" or "signal: killed" in said or kind_of == "MemoryError":
        reason, advice = "out of memory", "Raise the function's MemorySize or use more, smaller blocks"
    elif kind_of == "Runtime.ImportModuleError":
        reason, advice = "worker not importable", "Build and deploy it again with `serverless-gc deploy`"
    elif kind_of == "Runtime.ExitError":
        reason, advice = "function exited", "Native code crashed or user code called exit"
    else:
        reason, advice = "function raised", "The error is in the function's code or data"
    return InvokeError(
        f"{where} failed ({answer.function_error}, {reason}): {kind_of or 'no error type'}: {said}. {advice}; {logs}",
        kind="function",
        reason=reason,
        request_id=answer.request_id,
    )


def _error_of(body: bytes) -> tuple[str, str]:
    """Type and message of a function's error object."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        return "", body[:200].decode("utf-8", "replace")
    return str(answer.get("errorType", "")), str(answer.get("errorMessage", ""))[:1000]


def transport_failed(error: Exception, task: TaskSpec, target: Target) -> InvokeError:
    """Classify what botocore and aiohttp raise when there was no answer at all."""
    from aiohttp import ClientConnectorError, ClientProxyConnectionError, ConnectionTimeoutError
    from botocore import exceptions as b

    where = f"task {task.task_id}, attempt {task.attempt}: function {target.function} in {target.region}"
    said = str(error).rstrip(".")
    credentials = (
        b.NoCredentialsError,
        b.PartialCredentialsError,
        b.CredentialRetrievalError,
        b.TokenRetrievalError,
        b.SSOError,
    )
    if isinstance(error, credentials):
        return InvokeError(
            f"{where}: no usable credentials: {said}. Set AWS_PROFILE or run `aws configure` (or `aws sso login`)",
            kind="denied",
            reason="no credentials",
        )
    # aiobotocore files every aiohttp connection error under EndpointConnectionError; only the error it keeps tells
    # a connection that never was from one that broke with the request on it.
    origin = getattr(error, "kwargs", {}).get("error")
    never = (
        ClientConnectorError,
        ClientProxyConnectionError,
        ConnectionTimeoutError,
        b.ConnectTimeoutError,
        b.ProxyConnectionError,
        b.SSLError,
    )
    if isinstance(error, never) or isinstance(origin, never):
        return InvokeError(
            f"{where}: cannot connect: {said}. Check the network, proxy settings and AWS_ENDPOINT_URL_LAMBDA",
            kind="unavailable",
            reason="cannot connect",
            may_have_run=False,
        )
    if isinstance(error, (b.ReadTimeoutError, TimeoutError)):
        return InvokeError(
            f"{where}: the connection was silent for too long: {said}", kind="timeout", reason="no reply"
        )
    return InvokeError(
        f"{where}: the connection broke after the request was sent: {said}. The function may have run",
        kind="lost",
        reason="connection lost",
    )
