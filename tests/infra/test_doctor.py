"""``serverless-gc doctor`` finds what is wrong, says so in one line, and names the command that mends it."""

import json

import pytest

from serverless_gc.testing.lambda_endpoint import Step, error_step

FUNCTION = "serverless-gc"


@pytest.fixture
def deployed(cloud, make_zip):
    package = make_zip()
    cloud.run("deploy", "--zip", str(package))
    return package


def findings(cloud, *arguments):
    """Subject -> (verdict, rest of the line), and the exit status."""
    result = cloud.run("doctor", *arguments, fails=True)
    lines = [line.split(None, 2) for line in result.output.splitlines() if line.startswith(("ok ", "warn", "fail"))]
    return {subject: (verdict, rest) for verdict, subject, rest in lines}, result.exit_code


def account(cloud, concurrent, free):
    body = {"AccountLimit": {"ConcurrentExecutions": concurrent, "UnreservedConcurrentExecutions": free}}
    cloud.front.overrides["GET", "/account-settings/"] = cloud.front.overrides["GET", "/account-settings"] = (
        200,
        [("Content-Type", "application/json")],
        json.dumps(body).encode(),
    )


def test_everything_is_right(cloud, deployed):
    account(cloud, 1000, 1000)
    found, status = findings(cloud, "--zip", str(deployed))
    assert status == 0
    assert {verdict for verdict, _ in found.values()} == {"ok"}
    assert set(found) == {"region", "credentials", "bucket", "function", "role", "code", "memory", "timeout",
                          "concurrency", "objects", "worker", "python", "cold", "warm"}  # fmt: skip
    bucket = found["bucket"][1].split()[0]
    assert "Contents" not in cloud.client("s3").list_objects_v2(Bucket=bucket)  # the probes are gone


def test_nothing_is_deployed(cloud):
    found, status = findings(cloud)
    assert status == 1
    for subject in ("bucket", "function"):
        verdict, text = found[subject]
        assert verdict == "fail"
        assert text.endswith("-> serverless-gc deploy")
    assert "worker" not in found


def test_the_deployed_code_is_another_version(cloud, deployed, make_zip):
    found, status = findings(cloud, "--zip", str(make_zip("newer")))
    assert status == 1
    assert found["code"][0] == "fail"
    assert "another version is deployed -> serverless-gc deploy" in found["code"][1]
    assert deployed.exists()


def test_the_bucket_is_in_another_region_and_nothing_is_written(cloud, deployed):
    place = {"LocationConstraint": "eu-west-1"}
    cloud.client("s3", "eu-west-1").create_bucket(Bucket="elsewhere", CreateBucketConfiguration=place)
    cloud.front.asked.clear()
    found, status = findings(cloud, "--bucket", "elsewhere")
    assert status == 1
    verdict, text = found["bucket"]
    assert verdict == "fail"
    assert "in eu-west-1, the function is looked for in us-east-1" in text
    assert "SERVERLESS_GC_REGION=eu-west-1" in text
    assert not {"objects", "worker"} & found.keys()
    assert not [path for method, path in cloud.front.asked if method == "PUT"]
    assert deployed.exists()


def test_a_bucket_that_does_not_exist(cloud, deployed):
    found, status = findings(cloud, "--bucket", "nowhere")
    assert (status, found["bucket"][0]) == (1, "fail")
    assert "nowhere (from argument) does not exist -> serverless-gc deploy" in found["bucket"][1]
    assert deployed.exists()


@pytest.mark.parametrize(
    ("free", "verdict", "words"), [(10, "warn", "waves of 10"), (99, "warn", "waves of 99"), (100, "ok", "100 of")]
)
def test_an_account_with_few_executions_is_told_what_that_means(cloud, deployed, free, verdict, words):
    account(cloud, free, free)
    found, status = findings(cloud)
    assert status == 0
    assert found["concurrency"][0] == verdict
    assert words in found["concurrency"][1]
    assert ("aws service-quotas request-service-quota-increase" in found["concurrency"][1]) == (verdict == "warn")
    assert ("new accounts have 10" in found["concurrency"][1]) == (free == 10)
    assert deployed.exists()


def test_a_timeout_above_the_deadline_and_little_memory_are_worth_a_warning(cloud, make_zip, monkeypatch):
    cloud.run("deploy", "--zip", str(make_zip()), "--memory", "512")
    monkeypatch.setenv("SERVERLESS_GC_DEADLINE", "60")
    found, status = findings(cloud)
    assert status == 0
    assert found["timeout"][0] == found["memory"][0] == "warn"
    assert "after 60 s (from SERVERLESS_GC_DEADLINE)" in found["timeout"][1]
    assert found["timeout"][1].endswith("-> serverless-gc deploy --timeout 60")
    assert "0.3 processors" in found["memory"][1]


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (error_step(403, "AccessDeniedException", "no", times=0), "lambda:InvokeFunction"),
        (
            Step(
                action="reply",
                headers={"X-Amz-Function-Error": "Unhandled"},
                body=json.dumps({"errorType": "Runtime.ImportModuleError", "errorMessage": "No module named 'numpy'"}),
                times=0,
            ),
            "aws logs tail /aws/lambda/serverless-gc",
        ),
        (Step(action="reply", body='"hello"', times=0), "worker"),
    ],
)
def test_a_worker_that_does_not_answer_as_it_should(cloud, deployed, step, words):
    cloud.front.endpoint.script(FUNCTION, step)
    found, status = findings(cloud)
    assert (status, found["worker"][0]) == (1, "fail")
    assert words in found["worker"][1]
    assert "python" not in found
    assert deployed.exists()


def test_expired_credentials_are_named_as_such_and_nothing_else_is_tried(cloud, deployed):
    body = (
        "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredToken</Code>"
        "<Message>The security token included in the request is expired</Message></Error></ErrorResponse>"
    )
    cloud.front.overrides["POST", "/"] = (403, [("Content-Type", "text/xml")], body.encode())
    found, status = findings(cloud)
    assert status == 1
    assert found["credentials"][0] == "fail"
    assert "expired" in found["credentials"][1]
    assert found["credentials"][1].endswith("-> aws sso login")
    assert "bucket" not in found
    assert deployed.exists()


def test_no_region(cloud, monkeypatch):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    found, status = findings(cloud)
    assert (status, list(found)) == (1, ["region", "credentials"])  # what needs no region is looked at all the same
    assert found["credentials"][0] == "ok"
    assert found["region"][1].endswith("-> export AWS_REGION=eu-west-1")
