"""The page on the offline rig: its snippets are part of this file, which runs."""

import io
import re
import zipfile
from pathlib import Path

import boto3
import pytest

from serverless_gc.testing.rig import Rig, Step, error_step

PAGE = Path(__file__).parents[2] / "examples" / "guide" / "offline-rig.md"

HANDLER = """
import boto3, os

def handler(event, context):
    print("storing", event["key"])
    boto3.client("s3").put_object(Bucket=os.environ["BUCKET"], Key=event["key"], Body=b"done")
    return context.memory_limit_in_mb
"""


@pytest.fixture(scope="module")
def account():
    with Rig() as rig, rig.activated():  # AWS clients of this process find the rig, and nothing else
        yield rig


def deploy(name, code, **options):
    """What Terraform, CloudFormation or `aws lambda create-function` do, in four lines."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("app.py", code)
    role = boto3.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    boto3.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Handler="app.handler",
        Role=role,
        Code={"ZipFile": content.getvalue()},
        **options,
    )


def test_the_deployed_code_runs(account):
    boto3.client("s3").create_bucket(Bucket="results")
    deploy("storing", HANDLER, MemorySize=512, Environment={"Variables": {"BUCKET": "results"}})
    answer = boto3.client("lambda").invoke(FunctionName="storing", Payload=b'{"key": "a"}')
    assert answer["Payload"].read() == b'"512"'
    assert boto3.client("s3").get_object(Bucket="results", Key="a")["Body"].read() == b"done"
    events = boto3.client("logs").filter_log_events(logGroupName="/aws/lambda/storing")["events"]
    assert "storing a" in [event["message"] for event in events]
    assert account.admin.counts("storing").cold_starts == 1


def test_a_bad_day(account):
    boto3.client("s3").create_bucket(Bucket="more-results")
    deploy("unlucky", HANDLER, Environment={"Variables": {"BUCKET": "more-results"}})
    throttled = error_step(429, "TooManyRequestsException", "Rate Exceeded.")
    account.admin.set_faults("unlucky", {1: throttled, 2: Step(action="kill"), 3: Step(delay=0.5)})
    client = boto3.client("lambda")  # repeats what was throttled: that is attempt 2
    killed, late = (client.invoke(FunctionName="unlucky", Payload=b'{"key": "a"}') for _ in range(2))
    assert b"signal: killed" in killed["Payload"].read()
    assert late["Payload"].read() == b'"128"'
    assert account.admin.counts("unlucky").throttles == 1


def test_snippets():
    snippets = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) == 3
    for snippet in snippets:
        assert snippet in Path(__file__).read_text(encoding="utf-8")
