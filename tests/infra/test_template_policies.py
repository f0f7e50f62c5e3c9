"""The rights that both templates grant: one prefix of one bucket, one function, one log group; nothing else."""

import re

import pytest
from cfn_template import ROOT, Resolver, as_list, load_template, statements_of

ARN = "arn:aws:kms:us-east-1:123456789012:key/abc"
VARIANTS = {
    "default": {},
    "own key": {"KmsKey": "create"},
    "given key": {"KmsKey": ARN},
    "vpc": {"VpcId": "vpc-1", "SubnetIds": "subnet-1,subnet-2", "RouteTableIds": "rtb-1"},
}
ATTRIBUTES = {
    "Bucket.Arn": "arn:aws:s3:::BUCKET",
    "Function.Arn": "arn:aws:lambda:us-east-1:123456789012:function:FUNCTION",
    "LogGroup.Arn": "arn:aws:logs:us-east-1:123456789012:log-group:/aws/lambda/FUNCTION:*",
    "Key.Arn": ARN,
}
# The only places where a right may point, beside the key.
ALLOWED_RESOURCES = {
    "arn:aws:s3:::BUCKET/sgc/*",
    "arn:aws:s3:::BUCKET",
    *ATTRIBUTES.values(),
    "arn:aws:kms:us-east-1:123456789012:key/none",
}


def check(statement, kind):
    """Fail on a right that is wider than it should be."""
    actions, resources = as_list(statement["Action"]), as_list(statement.get("Resource", []))
    condition = statement.get("Condition", {})
    if statement["Effect"] == "Deny":
        assert condition, f"a refusal without condition would lock everybody out: {statement}"
        return
    assert not [a for a in actions if "*" in a], f"wildcard action: {statement}"
    assert statement.get("Principal", {}) != "*", f"open to everybody: {statement}"
    if kind == "KeyPolicy":
        assert resources == ["*"], "in a key's own policy this means: this key"
        if "kms:Decrypt" in actions:
            assert condition == {"StringEquals": {"kms:ViaService": "s3.us-east-1.amazonaws.com"}}
        return
    assert set(resources) <= ALLOWED_RESOURCES, f"resource too wide: {statement}"
    if "s3:ListBucket" in actions:
        assert condition == {"StringLikeIfExists": {"s3:prefix": "sgc/*"}}, f"lists the whole bucket: {statement}"
    if any(a in {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"} for a in actions):
        assert resources == ["arn:aws:s3:::BUCKET/sgc/*"], f"objects outside of the prefix: {statement}"
    if any(a.startswith("kms:") for a in actions):
        assert condition["StringEquals"]["kms:ViaService"] == "s3.us-east-1.amazonaws.com"


def resolved(variant):
    return Resolver(load_template(), VARIANTS[variant], attributes=ATTRIBUTES).resources()


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_right_of_the_stack_is_wider_than_its_purpose(variant):
    resources = resolved(variant)
    found = [
        (name, kind, statement)
        for name, kind, statement in statements_of(resources)
        if "AssumeRolePolicyDocument" not in statement
    ]
    assert len(found) >= 9
    for _, kind, statement in found:
        check(statement, kind)


@pytest.mark.parametrize(
    "bad",
    [
        {"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::BUCKET/sgc/*"},
        {"Effect": "Allow", "Action": ["lambda:InvokeFunction"], "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::BUCKET/*"},
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::BUCKET"},
        {"Effect": "Deny", "Action": "s3:*", "Resource": "*", "Principal": "*"},
    ],
)
def test_the_check_finds_what_it_is_for(bad):
    with pytest.raises(AssertionError):
        check(bad, "PolicyDocument")


def test_only_tls_reaches_the_bucket():
    (statement,) = resolved("default")["BucketPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "s3:*")
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert statement["Resource"] == ["arn:aws:s3:::BUCKET", "arn:aws:s3:::BUCKET/*"]


def test_the_worker_may_do_what_it_does_and_the_driver_what_it_does():
    resources = resolved("default")
    worker = {a for s in resources["Role"]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
              for a in as_list(s["Action"])}  # fmt: skip
    driver = {a for s in resources["DriverPolicy"]["Properties"]["PolicyDocument"]["Statement"]
              for a in as_list(s["Action"])}  # fmt: skip
    assert worker == {"s3:GetObject", "s3:PutObject", "s3:ListBucket", "logs:CreateLogStream", "logs:PutLogEvents"}
    assert driver >= {"s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:ListBucket", "s3:GetBucketLocation",
                      "lambda:InvokeFunction", "lambda:GetFunctionConfiguration"}  # fmt: skip
    assert "logs:CreateLogGroup" not in worker, "the log group would outlive the stack"


def test_an_idle_account_is_asked_for_nothing_by_default():
    resources = resolved("default")
    function = resources["Function"]["Properties"]
    assert "ReservedConcurrentExecutions" not in function  # accounts with a concurrency of 10 cannot reserve any
    assert function["MemorySize"] <= 3008  # the cap of new accounts
    assert (function["Runtime"], function["Architectures"]) == ("python3.13", ["arm64"])
    assert not {"VpcConfig", "Layers", "Environment"} & function.keys()
    assert not {"Key", "SecurityGroup", "Endpoint", "KeyRights", "NetworkRights"} & resources.keys()
    repeats = resources["EventInvokeConfig"]["Properties"]
    assert (repeats["MaximumRetryAttempts"], repeats["MaximumEventAgeInSeconds"]) == (0, 60)


def test_a_key_comes_as_a_set():
    for variant in ("own key", "given key"):
        resources = resolved(variant)
        (rule,) = resources["Bucket"]["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        assert rule["BucketKeyEnabled"] is True
        assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": ARN}
        users = {name for name, kind, s in statements_of(resources)
                 if kind == "PolicyDocument" and s.get("Sid") == "Key" and as_list(s["Resource"]) == [ARN]}  # fmt: skip
        assert users == {"KeyRights", "DriverPolicy"}
    assert "Key" not in resolved("given key")


def test_a_function_in_a_vpc_reaches_s3_and_its_code_makes_no_interfaces():
    resources = resolved("vpc")
    endpoint = resources["Endpoint"]["Properties"]
    assert (endpoint["VpcEndpointType"], endpoint["ServiceName"]) == ("Gateway", "com.amazonaws.us-east-1.s3")
    assert endpoint["RouteTableIds"] == ["rtb-1"]
    assert resources["Function"]["Properties"]["VpcConfig"]["SubnetIds"] == ["subnet-1", "subnet-2"]
    (managed,) = resources["Role"]["Properties"]["ManagedPolicyArns"]
    assert managed.endswith("service-role/AWSLambdaENIManagementAccess")
    (refusal,) = resources["NetworkRights"]["Properties"]["PolicyDocument"]["Statement"]
    assert refusal["Effect"] == "Deny"
    assert "ec2:CreateNetworkInterface" in refusal["Action"]
    function = "arn:aws:lambda:us-east-1:123456789012:function:serverless-gc"
    assert refusal["Condition"] == {"ArnEquals": {"lambda:SourceFunctionArn": function}}


def blocks(text, opening):
    """Yield the bodies of HCL blocks whose first line matches."""
    for match in re.finditer(opening, text, re.MULTILINE):
        depth, i = 1, match.end()
        while depth:
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            i += 1
        yield match, text[match.end() : i - 1]


def hcl_statements():
    """Yield the statements of the Terraform module as the stack's, from its text."""
    text = (ROOT / "infra/terraform/rights.tf").read_text()
    names = {
        "aws_s3_bucket.this.arn": "arn:aws:s3:::BUCKET",
        "aws_lambda_function.this.arn": ATTRIBUTES["Function.Arn"],
        '"${aws_cloudwatch_log_group.this.arn}:*"': ATTRIBUTES["LogGroup.Arn"],
        "local.key_arn": ARN,
        "statement.value": ARN,
        '"${aws_s3_bucket.this.arn}/${var.prefix}/*"': "arn:aws:s3:::BUCKET/sgc/*",
    }

    def listed(body, field):
        found = re.search(rf"^\s*{field}\s*=\s*\[(.*?)\]", body, re.MULTILINE | re.DOTALL)
        items = [i.strip() for i in re.split(r",\s*", found[1]) if i.strip()] if found else []
        return [names.get(item, item.strip('"')) for item in items]

    for document, body in blocks(text, r'^data "aws_iam_policy_document" "(\w+)" \{'):
        for _, statement in blocks(body, r"(?:statement|content) \{\n(?!\s*for_each)"):
            inner = re.sub(r"(condition|principals) \{.*?\}", "", statement, flags=re.DOTALL)
            effect = re.search(r'effect\s*=\s*"(\w+)"', inner)
            out = {"Effect": effect[1] if effect else "Allow", "Action": listed(inner, "actions")}
            out["Resource"] = listed(inner, "resources")
            for _, condition in blocks(statement, r"condition \{"):
                test, variable = (re.search(rf'{f}\s*=\s*"([^"]+)"', condition)[1] for f in ("test", "variable"))
                value = listed(condition, "values")[0].replace("${var.prefix}", "sgc")
                value = re.sub(r"\$\{local.region\}\.\$\{data[^}]*\}", "us-east-1.amazonaws.com", value)
                out["Condition"] = {test: {variable: value}}
            if document[1] != "assume":
                yield document[1], out


def test_no_right_of_the_terraform_module_is_wider_than_its_purpose():
    found = list(hcl_statements())
    assert {name for name, _ in found} == {"worker", "key_rights", "network", "driver", "bucket", "key"}
    assert len(found) == 13
    for name, statement in found:
        check(statement, "KeyPolicy" if name == "key" else "PolicyDocument")


def test_what_expires_is_what_runs_left_and_not_what_is_kept_under_names():
    rules = resolved("default")["Bucket"]["Properties"]["LifecycleConfiguration"]["Rules"]
    assert {rule["Id"]: rule["Prefix"] for rule in rules} == {"expire-scratch": "sgc/runs/", "abort-uploads": "sgc/"}
    assert [rule["Id"] for rule in rules if "ExpirationInDays" in rule] == ["expire-scratch"]
    assert [rule["Id"] for rule in rules if "AbortIncompleteMultipartUpload" in rule] == ["abort-uploads"]
