"""The CloudFormation stack: what a deployment would change, and making it so.

The stack makes the function with a placeholder; the worker's zip is then sent to the function itself, checked by
its hash. So a stack is created in one pass (its own bucket cannot hold the code before it exists), nothing of the
code stays in the bucket, and new code of the same stack is one request of a few seconds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from serverless_gc.deploy.clients import Aws, code_of, explained, message_of
from serverless_gc.deploy.events import Report, follow, known_events, silent
from serverless_gc.deploy.function_code import Package, current_hash, megabytes, upload_code
from serverless_gc.errors import ConfigError, InputError

__all__ = [
    "DEFAULT_ARCHITECTURE",
    "DEFAULT_NAME",
    "DEFAULT_PYTHON",
    "Plan",
    "Stack",
    "check_name",
    "delete_stack",
    "describe",
    "make_plan",
    "parameters_from",
    "realize",
]

DEFAULT_NAME = "serverless-gc"
DEFAULT_PYTHON = "3.13"
DEFAULT_ARCHITECTURE = "arm64"

_FAILED_CREATION = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"})
_STUCK = "UPDATE_ROLLBACK_FAILED"

_KEY = re.compile(r"none|create|arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+")
_LAYER = re.compile(r"arn:[a-z-]+:lambda:[a-z0-9-]+:[0-9]{12}:layer:[A-Za-z0-9_-]+:[0-9]+")


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack as it stands."""

    name: str
    id: str
    status: str
    parameters: Mapping[str, str]
    outputs: Mapping[str, str]
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether its creation or deletion failed, so that it can only be deleted."""
        return self.status in _FAILED_CREATION


@dataclass(frozen=True, slots=True)
class Plan:
    """What a deployment would do.

    Attributes
    ----------
    action
        What happens to the stack.
    code
        Whether the function gets new code.
    changes
        Everything that changes, in words; empty if nothing does.
    parameters
        Parameters of the stack that are given; the others keep their value, or take the template's.
    replaces
        A stack that failed before and is deleted first.
    """

    name: str
    action: Literal["create", "update", "none"]
    code: bool
    changes: tuple[str, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    replaces: Stack | None = None
    stack: Stack | None = None


def check_name(name: str) -> str:
    """Return the name if a stack and its function can have it.

    Raises
    ------
    InputError
        If they cannot.

    Examples
    --------
    >>> check_name("serverless-gc")
    'serverless-gc'
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]{0,39}", name):
        raise InputError(f"stack must be a letter followed by at most 39 letters, digits and dashes, got {name!r}")
    return name


def parameters_from(
    *,
    prefix: str | None = None,
    python: str | None = None,
    arch: str | None = None,
    memory: int | None = None,
    timeout: int | None = None,
    kms_key: str | None = None,
    reserved_concurrency: int | None = None,
    layers: Sequence[str] | None = None,
    vpc: str | None = None,
    subnets: Sequence[str] | None = None,
    route_tables: Sequence[str] | None = None,
) -> dict[str, str]:
    """Name the given options as the template does; options that are None are left out.

    Raises
    ------
    InputError
        If a VPC comes without subnets, or subnets without a VPC, or a key or a layer is not named as AWS does.

    Examples
    --------
    >>> parameters_from(memory=3008, layers=["arn:aws:lambda:eu-west-1:123456789012:layer:numpy:3"])
    {'Memory': '3008', 'Layers': 'arn:aws:lambda:eu-west-1:123456789012:layer:numpy:3'}
    """
    if kms_key is not None and not _KEY.fullmatch(kms_key):
        raise InputError(
            f"--kms-key must be none, create or the ARN of a key (arn:aws:kms:...:key/...), got {kms_key!r}"
        )
    for layer in layers or ():
        if not _LAYER.fullmatch(layer):
            raise InputError(
                f"--layer must be the ARN of a layer's version (arn:aws:lambda:...:layer:NAME:VERSION), got {layer!r}"
            )
    if vpc and not subnets:
        raise InputError("vpc needs the subnets that the function shall run in: give --vpc-subnets as well")
    if (subnets or route_tables) and not vpc:
        raise InputError("subnets and route tables need the VPC that they are of: give --vpc as well")
    given = {
        "Prefix": prefix,
        "Python": python,
        "Architecture": arch,
        "Memory": memory,
        "Timeout": timeout,
        "KmsKey": kms_key,
        "ReservedConcurrency": reserved_concurrency,
        "Layers": None if layers is None else ",".join(layers),
        "VpcId": vpc,
        "SubnetIds": None if subnets is None else ",".join(subnets),
        "RouteTableIds": None if route_tables is None else ",".join(route_tables),
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def describe(aws: Aws, name: str) -> Stack | None:
    """Look at a stack by its name or id.

    Returns
    -------
    Stack or None
        None if there is none, or it has been deleted.

    Raises
    ------
    ConfigError
        If AWS does not answer.
    """
    from botocore.exceptions import ClientError

    with explained(f"looking for stack {name!r} in {aws.region}"):
        try:
            found: dict[str, Any] = aws.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]
        except ClientError as error:
            if code_of(error) == "ValidationError" and "does not exist" in message_of(error):
                return None
            raise
    if found["StackStatus"] == "DELETE_COMPLETE":
        return None
    return Stack(
        found["StackName"],
        found["StackId"],
        found["StackStatus"],
        {p["ParameterKey"]: p.get("ParameterValue", "") for p in found.get("Parameters", [])},
        {o["OutputKey"]: o["OutputValue"] for o in found.get("Outputs", [])},
        found.get("StackStatusReason", ""),
    )


def make_plan(aws: Aws, name: str, template: str, parameters: Mapping[str, str], code: Package) -> Plan:
    """Compare what is wanted with what stands. Nothing is changed.

    Parameters
    ----------
    aws
        Account and region.
    name
        Of the stack, and of its function.
    template
        Text of the template.
    parameters
        Those to set, named as in the template.
    code
        The worker's zip.

    Raises
    ------
    ConfigError
        If the stack is being changed by somebody, or AWS does not answer.
    """
    stack = describe(aws, name)
    if stack is None or stack.failed:
        words = ", ".join(f"{key} {value}" for key, value in sorted(parameters.items())) or "all by default"
        changes = [
            f"create stack {name} in {aws.region}: bucket, function, role, log group, driver policy ({words})",
            f"upload the worker: {code.path.name}, {megabytes(code)}",
        ]
        if stack is not None:
            changes.insert(0, f"delete stack {name}, which is {stack.status} and cannot be updated")
        return Plan(name, "create", code=True, changes=tuple(changes), parameters=parameters, replaces=stack)
    _refuse_unready(stack)
    changes = [
        f"{key}: {stack.parameters.get(key, '(none)')} -> {value}"
        for key, value in sorted(parameters.items())
        if stack.parameters.get(key) != value
    ]
    with explained(f"reading the template of stack {name!r}"):
        deployed = aws.client("cloudformation").get_template(StackName=name)["TemplateBody"]
    changes += _template_changes(str(deployed), template)
    action: Literal["update", "none"] = "update" if changes else "none"
    function = stack.outputs.get("Function", name)
    new_code = current_hash(aws, function) != code.code_sha256
    if new_code:
        changes.append(f"upload the worker: {code.path.name}, {megabytes(code)}")
    return Plan(name, action, code=new_code, changes=tuple(changes), parameters=parameters, stack=stack)


def realize(
    aws: Aws,
    plan: Plan,
    template: str,
    code: Package,
    *,
    report: Report = silent,
    sleep: Callable[[float], None] | None = None,
) -> Mapping[str, str]:
    """Carry a plan out.

    Returns
    -------
    Mapping[str, str]
        The stack's outputs: ``Bucket``, ``Prefix``, ``Function``, ``Region``, ``DriverPolicyArn``.

    Raises
    ------
    ConfigError
        If the stack could not be made; the message holds the reason of the first resource that failed.
    """
    if plan.replaces is not None:
        delete_stack(aws, plan.replaces, report=report, sleep=sleep)
    if plan.action != "none":
        seen = known_events(aws, plan.stack.id) if plan.stack is not None else frozenset()
        stack_id = _submit(aws, plan, template)
        if stack_id is not None:
            follow(aws, stack_id, seen=seen, report=report, sleep=sleep)
    stack = describe(aws, plan.name)
    if stack is None:
        raise ConfigError(f"stack {plan.name} is gone: somebody deleted it meanwhile. Run serverless-gc deploy again")
    # Also after an update of the stack alone: a changed architecture or Python brings the placeholder back.
    upload_code(aws, stack.outputs["Function"], code, bucket=stack.outputs["Bucket"], prefix=stack.outputs["Prefix"])
    return stack.outputs


def delete_stack(
    aws: Aws,
    stack: Stack,
    *,
    report: Report = silent,
    sleep: Callable[[float], None] | None = None,
) -> None:
    """Delete a stack and wait until it is gone.

    Raises
    ------
    ConfigError
        If a resource could not be deleted.
    """
    seen = known_events(aws, stack.id)
    with explained(f"deleting stack {stack.name!r}"):
        aws.client("cloudformation").delete_stack(StackName=stack.id)
    follow(aws, stack.id, seen=seen, report=report, sleep=sleep)


def _submit(aws: Aws, plan: Plan, template: str) -> str | None:
    """Ask for the stack; returns its id, or None if CloudFormation finds nothing to do."""
    from botocore.exceptions import ClientError

    client = aws.client("cloudformation")
    with explained("checking the template"):
        summary = client.get_template_summary(TemplateBody=template)
    defaults = {p["ParameterKey"]: p.get("DefaultValue", "") for p in summary["Parameters"]}
    kept = plan.stack.parameters.keys() if plan.stack is not None else set()
    # What a request does not name goes back to its default, so everything is named.
    parameters: list[dict[str, Any]] = []
    for key, default in sorted(defaults.items()):
        if key in kept and key not in plan.parameters:
            parameters.append({"ParameterKey": key, "UsePreviousValue": True})
        else:
            parameters.append({"ParameterKey": key, "ParameterValue": plan.parameters.get(key, default)})
    request = {
        "StackName": plan.name,
        "TemplateBody": template,
        "Parameters": parameters,
        "Capabilities": ["CAPABILITY_IAM"],
        "Tags": [{"Key": "serverless-gc", "Value": plan.name}],
    }
    with explained(f"asking for stack {plan.name!r}"):
        if plan.action == "create":
            return str(client.create_stack(**request)["StackId"])
        try:
            return str(client.update_stack(**request)["StackId"])
        except ClientError as error:
            if "No updates are to be performed" in message_of(error):
                return None
            raise


def _refuse_unready(stack: Stack) -> None:
    if stack.status.endswith("_IN_PROGRESS"):
        raise ConfigError(
            f"stack {stack.name} is {stack.status}: another operation is under way. Wait for it "
            f"('serverless-gc status --stack {stack.name}') and run again"
        )
    if stack.status == _STUCK:
        raise ConfigError(
            f"stack {stack.name} is {stack.status}: {stack.reason or 'an update and its rollback failed'}. Run "
            f"'aws cloudformation continue-update-rollback --stack-name {stack.name}', then deploy again"
        )


def _template_changes(deployed: str, wanted: str) -> list[str]:
    old, new = deployed.strip().splitlines(), wanted.strip().splitlines()
    if old == new:
        return []
    lines = [line for line in difflib.unified_diff(old, new, n=0, lineterm="") if not line.startswith(("---", "+++"))]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return [f"template: {added} lines added, {removed} removed"]
