"""Following CloudFormation: events as they happen, and the first reason when it fails."""

from datetime import UTC, datetime

import pytest
from botocore.stub import Stubber

from serverless_gc.deploy.clients import Aws
from serverless_gc.deploy.events import POLL_SECONDS, follow, known_events
from serverless_gc.errors import ConfigError

pytestmark = pytest.mark.usefixtures("aws_environment")
NOW = datetime(2026, 11, 30, tzinfo=UTC)


def status(word, reason=""):
    stack = {"StackName": "s", "CreationTime": NOW, "StackStatus": word}
    return {"Stacks": [{**stack, **({"StackStatusReason": reason} if reason else {})}]}


def events(*rows):
    """Make a page of events, given oldest first as (id, resource, status, reason)."""
    return {
        "StackEvents": [
            {
                "StackId": "arn:s",
                "EventId": id_,
                "StackName": "s",
                "LogicalResourceId": resource,
                "ResourceType": "AWS::CloudFormation::Stack" if resource == "s" else "AWS::Lambda::Function",
                "Timestamp": NOW,
                "ResourceStatus": word,
                "ResourceStatusReason": reason,
            }
            for id_, resource, word, reason in reversed(rows)
        ]
    }


@pytest.fixture
def scripted():
    with Aws("eu-west-1") as aws, Stubber(aws.client("cloudformation")) as stub:

        def script(*answers):
            for answer in answers:
                operation = "describe_stacks" if "Stacks" in answer else "describe_stack_events"
                stub.add_response(operation, answer)
            return aws

        yield script
        stub.assert_no_pending_responses()


def test_each_event_is_told_once_and_waits_lie_between_looks(scripted):
    first = [("1", "s", "CREATE_IN_PROGRESS", ""), ("2", "Role", "CREATE_COMPLETE", "")]
    aws = scripted(
        status("CREATE_IN_PROGRESS"), events(*first),
        status("CREATE_IN_PROGRESS"), events(*first),
        status("CREATE_COMPLETE"), events(*first, ("3", "s", "CREATE_COMPLETE", "")),
    )  # fmt: skip
    told, waits = [], []
    assert follow(aws, "s", report=lambda e: told.append(e.id), sleep=waits.append) == "CREATE_COMPLETE"
    assert told == ["1", "2", "3"]
    assert waits == [POLL_SECONDS, POLL_SECONDS]


def test_events_of_earlier_operations_are_left_out(scripted):
    old = ("1", "Function", "CREATE_FAILED", "an old story")
    aws = scripted(events(old), status("UPDATE_COMPLETE"), events(old, ("2", "s", "UPDATE_COMPLETE", "")))
    seen = known_events(aws, "s")
    told = []
    follow(aws, "s", seen=seen, report=lambda e: told.append(e.id), sleep=lambda _: None)
    assert told == ["2"]


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("decreases account's UnreservedConcurrentExecution below its minimum value of [10]", "without --reserve"),
        ("'MemorySize' value failed: Member must have value less than or equal to 3008", "--memory 3008"),
        ("/aws/lambda/serverless-gc already exists", "another --stack"),
        ("User: arn:aws:iam::1:user/u is not authorized to perform: iam:CreateRole", "infra/README.md"),
        ("route table rtb-1 already has a route with destination-prefix-list-id pl-1", "without --vpc-route-tables"),
    ],
)  # fmt: skip
def test_a_failure_gives_its_first_reason_and_what_to_do(scripted, reason, advice):
    aws = scripted(
        status("ROLLBACK_COMPLETE"),
        events(
            ("1", "Function", "CREATE_FAILED", reason),
            ("2", "Bucket", "CREATE_FAILED", "Resource creation cancelled"),
            ("3", "s", "ROLLBACK_IN_PROGRESS", "The following resource(s) failed to create: [Function, Bucket]."),
        ),
    )
    with pytest.raises(ConfigError) as failed:
        follow(aws, "s", sleep=lambda _: None)
    said = str(failed.value)
    assert "stack s: Function (AWS::Lambda::Function) is CREATE_FAILED" in said
    assert reason in said
    assert advice in said
    assert "deleted again" in said
    assert "cancelled" not in said


def test_an_operation_that_does_not_end_is_left_to_itself_after_an_hour(scripted, monkeypatch):
    monkeypatch.setattr("serverless_gc.deploy.events.LONGEST_SECONDS", 2 * POLL_SECONDS)
    running = (status("CREATE_IN_PROGRESS"), events())
    aws = scripted(*running, *running, *running)
    with pytest.raises(ConfigError, match=r"still CREATE_IN_PROGRESS after an hour.*serverless-gc status --stack s"):
        follow(aws, "s", sleep=lambda _: None)
