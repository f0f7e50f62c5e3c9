"""Following an operation on a stack: events as they happen, and the reason of the first failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

from serverless_gc.deploy.clients import Aws, explained
from serverless_gc.errors import ConfigError

__all__ = ["Report", "StackEvent", "follow", "known_events", "silent"]

POLL_SECONDS = 3.0
LONGEST_SECONDS = 3600.0

_SUCCEEDED = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"})

# What CloudFormation's reasons contain -> what to do about it.
_ADVICE = (
    ("UnreservedConcurrentExecution", "This account has too few executions to reserve any: deploy without --reserve"),
    ("MemorySize", "This account is capped at less memory: deploy with --memory 3008, or ask AWS for more"),
    ("already exists", "Something of that name is there already: delete it, or deploy with another --stack"),
    ("not authorized", "Ask an administrator for this right; infra/README.md lists what a deployment needs"),
    ("AccessDenied", "Ask an administrator for this right; infra/README.md lists what a deployment needs"),
    ("kms", "The key must exist in this region, be enabled, and let this account use it"),
    ("route table", "These route tables have an S3 endpoint already: deploy without --vpc-route-tables"),
    ("subnet", "Check that the subnets are of this VPC: 'aws ec2 describe-subnets'"),
    ("not empty", "Run 'serverless-gc destroy', which empties the bucket first"),
    ("Runtime", "Lambda in this region does not offer this Python yet: deploy with another --python"),
)


@dataclass(frozen=True, slots=True)
class StackEvent:
    """One thing that CloudFormation did or could not do."""

    id: str
    resource: str
    type: str
    status: str
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether this is a failure of its own, not the end of what another failure stopped."""
        return self.status.endswith("_FAILED") and "cancelled" not in self.reason.lower()


Report: TypeAlias = Callable[[StackEvent], None]
"""What is told of each event."""


def silent(event: StackEvent) -> None:
    """Tell nobody of an event."""
    del event


def known_events(aws: Aws, stack: str) -> frozenset[str]:
    """Return the ids of all events so far."""
    return frozenset(event.id for event in _new_events(aws, stack, frozenset()))


def follow(
    aws: Aws,
    stack: str,
    *,
    seen: Collection[str] = (),
    report: Report = silent,
    sleep: Callable[[float], None] | None = None,
) -> str:
    """Wait for the end of the operation on a stack.

    Parameters
    ----------
    aws
        Account and region.
    stack
        Id of the stack: its name is no longer known once it is deleted.
    seen
        Ids of events that belong to earlier operations.
    report
        Called with each event.
    sleep
        How to wait between two looks.

    Returns
    -------
    str
        The final status.

    Raises
    ------
    ConfigError
        If the operation failed, with the first failure's reason; or if it has not ended in an hour.
    """
    sleep = time.sleep if sleep is None else sleep
    known = set(seen)
    failures: list[StackEvent] = []
    client = aws.client("cloudformation")
    waited = 0.0
    while True:
        # The status is asked for first: events that come with the final one are then all there.
        with explained("waiting for CloudFormation"):
            found: dict[str, Any] = client.describe_stacks(StackName=stack)["Stacks"][0]
        for event in _new_events(aws, stack, known):
            known.add(event.id)
            failures += [event] if event.failed else []
            report(event)
        status: str = found["StackStatus"]
        if status in _SUCCEEDED:
            return status
        if not status.endswith("_IN_PROGRESS"):
            raise ConfigError(_failure(found["StackName"], status, failures, found.get("StackStatusReason", "")))
        if waited >= LONGEST_SECONDS:
            raise ConfigError(
                f"stack {found['StackName']} is still {status} after an hour; it goes on without this command. "
                f"Look with 'serverless-gc status --stack {found['StackName']}'"
            )
        sleep(POLL_SECONDS)
        waited += POLL_SECONDS


def _new_events(aws: Aws, stack: str, known: Collection[str]) -> list[StackEvent]:
    """Return the events that are not known, oldest first."""
    events: list[StackEvent] = []
    with explained("reading the stack's events"):
        for page in aws.client("cloudformation").get_paginator("describe_stack_events").paginate(StackName=stack):
            for raw in page["StackEvents"]:  # newest first
                if raw["EventId"] in known:
                    return events[::-1]
                events.append(
                    StackEvent(
                        raw["EventId"],
                        raw.get("LogicalResourceId", ""),
                        raw.get("ResourceType", ""),
                        raw.get("ResourceStatus", ""),
                        raw.get("ResourceStatusReason", ""),
                    )
                )
    return events[::-1]


def _failure(name: str, status: str, failures: list[StackEvent], reason: str) -> str:
    """Say what failed first and what to do."""
    own = [event for event in failures if event.type != "AWS::CloudFormation::Stack"] or failures
    if not own:
        return f"stack {name} ended as {status}: {reason or 'CloudFormation gives no reason'}. See its events"
    first = own[0]
    advice = next((words for part, words in _ADVICE if part.lower() in first.reason.lower()), "")
    kept = {
        "ROLLBACK_COMPLETE": "Everything that had been made is deleted again",
        "UPDATE_ROLLBACK_COMPLETE": "The stack is as it was before",
    }.get(status, f"The stack is {status}")
    said = first.reason.strip().rstrip(".")
    text = f"stack {name}: {first.resource} ({first.type}) is {first.status}: {said}. {kept}."
    return f"{text} {advice}." if advice else text
