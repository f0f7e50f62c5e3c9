"""What is wrong with a deployment, and what mends it.

Each check yields findings as it goes; later checks that would only repeat an earlier failure are left out.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from serverless_gc import background
from serverless_gc.config import Setting
from serverless_gc.deploy.clients import Aws, advice_for, code_of, message_of
from serverless_gc.deploy.function_code import Package
from serverless_gc.deploy.probe import Warmth, exercise, probe_store
from serverless_gc.errors import ConfigError, InvokeError, ProtocolMismatch, ServerlessGCError, StoreError
from serverless_gc.limits import ACCOUNT_CONCURRENCY, MB_PER_VCPU, NEW_ACCOUNT_CONCURRENCY, NEW_ACCOUNT_MB

__all__ = ["Finding", "examine"]

Verdict = Literal["ok", "warn", "fail"]

FEW_EXECUTIONS = 100
_ANY_REGION = "us-east-1"
"""Where credentials are looked at while no region is chosen: they are those of all regions."""

_MORE_EXECUTIONS = (
    "aws service-quotas request-service-quota-increase --service-code lambda --quota-code L-B99A9384 "
    f"--desired-value {ACCOUNT_CONCURRENCY}"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``command`` mends it, where a command can."""

    verdict: Verdict
    subject: str
    text: str
    command: str = ""


def examine(settings: Mapping[str, Setting], *, code: Package | None = None) -> Iterator[Finding]:
    """Look at everything a run needs, from credentials to a timed invocation.

    Parameters
    ----------
    settings
        As `serverless_gc.config.resolve` gives them.
    code
        The local bundle that the function should hold, when one is at hand.

    Yields
    ------
    Finding
        In the order of the checks.
    """
    try:
        aws = Aws(settings["region"].value)
    except ConfigError as error:
        yield Finding("fail", "region", str(error), "export AWS_REGION=eu-west-1")
        with contextlib.suppress(ConfigError), Aws(_ANY_REGION) as aws:
            yield _credentials(aws)
        return
    with aws:
        yield Finding("ok", "region", f"{aws.region} ({_origin(settings['region'])})")
        credentials = _credentials(aws)
        yield credentials
        if credentials.verdict == "fail":
            return
        bucket = _bucket(aws, settings["bucket"])
        yield bucket
        function = list(_function(aws, settings, code))
        yield from function
        yield _account(aws)
        usable = bucket.verdict != "fail"
        if usable:
            probe = _objects(settings, aws.region)
            yield probe
            usable = probe.verdict != "fail"
        if usable and function[0].verdict != "fail":
            yield from _worker(settings, aws.region)


def _origin(setting: Setting) -> str:
    return "from the AWS configuration" if setting.value is None else f"from {setting.origin}"


def _refused(subject: str, doing: str, error: Exception, command: str = "") -> Finding:
    code = code_of(error)
    answer = f"{code}: {message_of(error)}" if code else message_of(error)
    advice = advice_for(error)
    text = f"{doing}: {answer}" + (f". {advice}" if advice else "")
    stale = "credentials have expired" in advice
    return Finding("fail", subject, text, "aws sso login" if stale else command)


def _credentials(aws: Aws) -> Finding:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        identity = aws.client("sts").get_caller_identity()
    except (BotoCoreError, ClientError) as error:
        return _refused("credentials", "AWS does not accept them", error, "aws configure")
    return Finding("ok", "credentials", f"{identity['Arn']} in account {identity['Account']}")


def _bucket(aws: Aws, setting: Setting) -> Finding:
    """Look whether the bucket exists and where. The region is in the header of any answer, a refusal too."""
    from botocore.exceptions import BotoCoreError, ClientError

    name = setting.value
    if not name:
        return Finding("fail", "bucket", "no bucket is configured", "serverless-gc deploy")
    try:
        answer = aws.client("s3").head_bucket(Bucket=name)
    except ClientError as error:
        answer = error.response
        if code_of(error) in {"404", "NoSuchBucket"}:
            return Finding("fail", "bucket", f"{name} ({_origin(setting)}) does not exist", "serverless-gc deploy")
        if code_of(error) not in {"301", "403", "400"}:
            return _refused("bucket", f"looking for {name}", error)
    except BotoCoreError as error:
        return _refused("bucket", f"looking for {name}", error)
    found = answer["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", aws.region)
    if found != aws.region:
        return Finding(
            "fail",
            "bucket",
            f"{name} is in {found}, the function is looked for in {aws.region}: both must be in one region",
            f"export SERVERLESS_GC_REGION={found}, or serverless-gc deploy --region {aws.region}",
        )
    return Finding("ok", "bucket", f"{name} in {found}")


def _function(aws: Aws, settings: Mapping[str, Setting], code: Package | None) -> Iterator[Finding]:
    from botocore.exceptions import BotoCoreError, ClientError

    name = settings["function"].value
    try:
        found: dict[str, Any] = aws.client("lambda").get_function_configuration(FunctionName=name)
    except ClientError as error:
        if code_of(error) == "ResourceNotFoundException":
            text = f"{name} ({_origin(settings['function'])}) does not exist in {aws.region}"
            yield Finding("fail", "function", text, "serverless-gc deploy")
        else:
            yield _refused("function", f"looking for {name}", error)
        return
    except BotoCoreError as error:
        yield _refused("function", f"looking for {name}", error)
        return
    state = found.get("State", "Active")
    update = found.get("LastUpdateStatus", "Successful")
    what = f"{name}: {found.get('Runtime', '?')}, {'/'.join(found.get('Architectures', ['?']))}"
    if state == "Failed" or update == "Failed":
        reason = found.get("StateReason") or found.get("LastUpdateStatusReason") or "no reason given"
        yield Finding("fail", "function", f"{what}, {state}: {reason}", "serverless-gc deploy")
        return
    if state == "Pending" or update == "InProgress":
        yield Finding("warn", "function", f"{what}, being changed right now", "serverless-gc doctor")
    else:
        yield Finding("ok", "function", f"{what}, changed {found.get('LastModified', '?')[:19]}")
    yield Finding("ok", "role", f"{found['Role']} (what it may do is tried below)")
    if code is not None:
        yield _hash(found["CodeSha256"], code)
    yield _memory(int(found["MemorySize"]))
    yield _timeout(int(found["Timeout"]), settings["deadline"])


def _hash(held: str, code: Package) -> Finding:
    if held == code.code_sha256:
        return Finding("ok", "code", f"the function holds {code.path.name} ({held[:12]})")
    text = f"the function holds {held[:12]}, {code.path.name} is {code.code_sha256[:12]}: another version is deployed"
    return Finding("fail", "code", text, "serverless-gc deploy")


def _memory(megabytes: int) -> Finding:
    text = f"{megabytes} MB, {megabytes / MB_PER_VCPU:.1f} processors"
    if megabytes < MB_PER_VCPU:
        return Finding(
            "warn",
            "memory",
            f"{text}: less than one computes slowly at the same price",
            f"serverless-gc deploy --memory {MB_PER_VCPU}",
        )
    if megabytes > NEW_ACCOUNT_MB:
        text += f" (above {NEW_ACCOUNT_MB}, the cap of new accounts)"
    return Finding("ok", "memory", text)


def _timeout(seconds: int, deadline: Setting) -> Finding:
    if seconds > deadline.value:
        text = (
            f"a task may run {seconds} s, a round is given up after {deadline.value:g} s ({_origin(deadline)}): "
            "what is given up runs on and is billed"
        )
        return Finding("warn", "timeout", text, f"serverless-gc deploy --timeout {max(1, int(deadline.value))}")
    return Finding("ok", "timeout", f"{seconds} s, within the deadline of {deadline.value:g} s")


def _account(aws: Aws) -> Finding:
    """Compare the account's concurrency with what runs like to use."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        limit = aws.client("lambda").get_account_settings()["AccountLimit"]
    except (BotoCoreError, ClientError, KeyError) as error:
        said = message_of(error) if code_of(error) in {"AccessDeniedException", "AccessDenied"} else "no answer"
        text = f"the account's limit cannot be read ({said}); the driver finds it out as it runs"
        return Finding("warn", "concurrency", text, "aws lambda get-account-settings")
    free = int(limit["UnreservedConcurrentExecutions"])
    text = f"{free} of {limit['ConcurrentExecutions']} executions at once are free for this function"
    if free >= FEW_EXECUTIONS:
        return Finding("ok", "concurrency", text)
    new = f"; new accounts have {NEW_ACCOUNT_CONCURRENCY}" if free <= NEW_ACCOUNT_CONCURRENCY else ""
    return Finding("warn", "concurrency", f"{text}{new}: wider rounds run in waves of {free}", _MORE_EXECUTIONS)


def _objects(settings: Mapping[str, Setting], region: str) -> Finding:
    bucket, prefix = settings["bucket"].value, settings["prefix"].value
    try:
        seconds = background.run(probe_store(bucket, prefix, region))
    except (StoreError, ConfigError) as error:
        return Finding("fail", "objects", str(error), "aws sts get-caller-identity")
    return Finding("ok", "objects", f"s3://{bucket}/{prefix}: written, read and deleted in {seconds * 1e3:.0f} ms")


def _worker(settings: Mapping[str, Setting], region: str) -> Iterator[Finding]:
    name = settings["function"].value
    logs = f"aws logs tail /aws/lambda/{name} --region {region} --since 15m"
    try:
        seen = background.run(
            exercise(
                settings["bucket"].value, settings["prefix"].value, name, region, deadline=settings["deadline"].value
            )
        )
    except ProtocolMismatch as error:
        yield Finding("fail", "worker", str(error), "serverless-gc deploy")
        return
    except InvokeError as error:
        commands = {"missing": "serverless-gc deploy", "function": logs, "timeout": logs}
        yield Finding("fail", "worker", str(error), commands.get(error.kind, ""))
        return
    except ServerlessGCError as error:
        yield Finding("fail", "worker", str(error), logs)
        return
    yield Finding("ok", "worker", f"read a block, multiplied, stored and returned the result; NumPy {seen.numpy}")
    yield _python(seen.python, seen.driver_python)
    yield from _speed(seen)


def _python(worker: str, driver: str) -> Finding:
    def minor(version: str) -> str:
        found = re.match(r"\d+\.\d+", version)
        return found[0] if found else version

    if minor(worker) == minor(driver):
        return Finding("ok", "python", f"{worker} there, {driver} here")
    text = f"{worker} there, {driver} here: named losses work, losses of your own need one and the same"
    return Finding("warn", "python", text, f"serverless-gc deploy --python {minor(driver)}")


def _speed(seen: Warmth) -> Iterator[Finding]:
    if seen.cold is None:
        yield Finding("ok", "cold start", "none seen: all environments were warm")
    else:
        yield Finding("ok", "cold start", f"{seen.cold:.2f} s for an empty task")
    if seen.warm is None:
        yield Finding("warn", "warm call", "none seen: every call started an environment")
    else:
        yield Finding("ok", "warm call", f"{seen.warm * 1e3:.0f} ms for an empty task")
