"""The stack's life by the command line: created, left alone, updated, deleted, over HTTP."""

import json

import pytest
from botocore.exceptions import ClientError
from cfn_template import load_template

from serverless_gc.deploy.clients import Aws
from serverless_gc.deploy.function_code import Zip
from serverless_gc.deploy.stack import describe
from serverless_gc.errors import ConfigError, InputError


def code_hash(cloud, region="us-east-1", function="serverless-gc"):
    return cloud.client("lambda", region).get_function_configuration(FunctionName=function)["CodeSha256"]


def outputs(cloud, region="us-east-1"):
    stack = cloud.client("cloudformation", region).describe_stacks(StackName="serverless-gc")["Stacks"][0]
    return {o["OutputKey"]: o["OutputValue"] for o in stack["Outputs"]}


def changes_asked(cloud):
    """Requests that change anything: CloudFormation's are recognized by what they leave in moto instead."""
    return [(m, p) for m, p in cloud.front.asked if m in {"PUT", "DELETE"}]


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_three_commands_from_an_empty_account_to_a_stack_that_answers(cloud, make_zip, region, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    package = make_zip()
    said = cloud.run("deploy", "--zip", str(package)).output
    assert "Deployed." in said
    found = outputs(cloud, region)
    assert found["Region"] == region
    for value in found.values():
        assert value in said
    assert code_hash(cloud, region) == Zip.read(package).code_sha256
    location = cloud.client("s3", region).get_bucket_location(Bucket=found["Bucket"])["LocationConstraint"]
    assert location == (None if region == "us-east-1" else region)
    shown = cloud.run("config", "show").output
    assert f"region       {region}" in shown
    assert str(cloud.config) in shown
    assert "Ready" in cloud.run("doctor", "--zip", str(package)).output


def test_a_second_deployment_changes_nothing(cloud, make_zip):
    package = make_zip()
    cloud.run("deploy", "--zip", str(package))
    cloud.front.asked.clear()
    events = len(cloud.client("cloudformation").describe_stack_events(StackName="serverless-gc")["StackEvents"])
    assert "up to date" in cloud.run("deploy", "--zip", str(package)).output
    assert not changes_asked(cloud)
    after = cloud.client("cloudformation").describe_stack_events(StackName="serverless-gc")["StackEvents"]
    assert len(after) == events


def test_new_code_of_the_same_stack_is_uploaded_alone(cloud, make_zip):
    cloud.run("deploy", "--zip", str(make_zip()))
    newer = make_zip("2")
    said = cloud.run("deploy", "--zip", str(newer)).output
    assert "upload the worker" in said
    assert "UPDATE_COMPLETE" not in said
    assert code_hash(cloud) == Zip.read(newer).code_sha256


def test_options_change_the_stack_and_stay_until_they_are_changed_again(cloud, make_zip):
    package = make_zip()
    cloud.run("deploy", "--zip", str(package), "--timeout", "120")
    said = cloud.run("deploy", "--zip", str(package), "--memory", "3008").output
    assert "Memory: 1769 -> 3008" in said
    assert "Timeout" not in said
    function = cloud.client("lambda").get_function_configuration(FunctionName="serverless-gc")
    assert (function["MemorySize"], function["Timeout"]) == (3008, 120)
    # Changing the function may bring the placeholder back; what is left is the worker all the same.
    assert function["CodeSha256"] == Zip.read(package).code_sha256


def test_a_dry_run_says_what_would_happen_and_does_nothing(cloud, make_zip):
    package = make_zip()
    said = cloud.run("deploy", "--zip", str(package), "--dry-run").output
    assert "create stack serverless-gc in us-east-1" in said
    assert "Nothing was changed." in said
    assert not cloud.client("cloudformation").list_stacks()["StackSummaries"]
    assert not cloud.config.exists()
    cloud.run("deploy", "--zip", str(package))
    said = cloud.run("deploy", "--zip", str(make_zip("2")), "--memory", "512", "--dry-run").output
    assert "Memory: 1769 -> 512" in said
    assert "upload the worker" in said
    function = cloud.client("lambda").get_function_configuration(FunctionName="serverless-gc")
    assert (function["MemorySize"], function["CodeSha256"]) == (1769, Zip.read(package).code_sha256)


def test_a_large_zip_goes_through_the_bucket_and_is_not_left_there(cloud, make_zip, monkeypatch):
    monkeypatch.setattr("serverless_gc.deploy.function_code.DIRECT_BYTES", 10)
    package = make_zip()
    cloud.run("deploy", "--zip", str(package))
    assert code_hash(cloud) == Zip.read(package).code_sha256
    assert any(m == "PUT" and "/sgc/runs/code/worker.zip" in p for m, p in cloud.front.asked)
    assert "Contents" not in cloud.client("s3").list_objects_v2(Bucket=outputs(cloud)["Bucket"])


def test_destroy_says_what_goes_asks_and_leaves_nothing(cloud, make_zip):
    cloud.run("deploy", "--zip", str(make_zip()))
    bucket, s3 = outputs(cloud)["Bucket"], cloud.client("s3")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for content in (b"one", b"two"):
        s3.put_object(Bucket=bucket, Key="sgc/runs/a/x", Body=content)
    s3.delete_object(Bucket=bucket, Key="sgc/runs/a/x")
    s3.create_multipart_upload(Bucket=bucket, Key="sgc/half")
    assert f"bucket {bucket} with 3 objects" in cloud.run("destroy", "--dry-run").output
    refused = cloud.run("destroy", input="n\n", fails=True)
    assert refused.exit_code == 1
    assert "Nothing was deleted." in refused.output
    assert len(s3.list_object_versions(Bucket=bucket)["Versions"]) == 2
    assert "nothing is left" in cloud.run("destroy", input="y\n").output
    with pytest.raises(ClientError, match="404"):
        s3.head_bucket(Bucket=bucket)
    assert not cloud.client("lambda").list_functions()["Functions"]
    assert not cloud.client("logs").describe_log_groups()["logGroups"]
    assert not cloud.client("iam").list_roles()["Roles"]
    assert "bucket" not in cloud.config.read_text()
    assert "nothing to delete" in cloud.run("destroy", "--yes").output


def test_destroy_of_objects_that_may_not_be_deleted_keeps_the_stack_and_names_them(cloud, make_zip):
    cloud.run("deploy", "--zip", str(make_zip()))
    bucket = outputs(cloud)["Bucket"]
    cloud.client("s3").put_object(Bucket=bucket, Key="sgc/kept", Body=b"1")
    cloud.front.undeletable = frozenset({"sgc/kept"})
    failed = cloud.run("destroy", "--yes", fails=True)
    assert isinstance(failed.exception, ConfigError)
    assert "1 of 1 objects" in str(failed.exception)
    assert "sgc/kept: AccessDenied" in str(failed.exception)
    with Aws("us-east-1") as aws:
        assert describe(aws, "serverless-gc") is not None


def test_a_stack_whose_creation_failed_is_deleted_first(cloud, make_zip, monkeypatch):
    cloud.run("deploy", "--zip", str(make_zip()))
    from serverless_gc.deploy import stack as module

    monkeypatch.setattr(module, "_FAILED_CREATION", frozenset({"CREATE_COMPLETE"}))
    said = cloud.run("deploy", "--zip", str(make_zip()), "--dry-run").output
    assert "delete stack serverless-gc, which is CREATE_COMPLETE and cannot be updated" in said
    assert said.index("delete stack") < said.index("create stack")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--stack", "9 lives"], "stack must be a letter"),
        (["--vpc", "vpc-1"], "vpc needs the subnets"),
        (["--vpc-subnets", "subnet-1"], "give --vpc as well"),
        (["--zip", "/nowhere.zip"], "made by 'serverless-gc build'"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_asked(cloud, arguments, words):
    cloud.front.asked.clear()
    refused = cloud.run("deploy", *arguments, fails=True)
    assert isinstance(refused.exception, InputError)
    assert words in str(refused.exception)
    assert not changes_asked(cloud)


def test_status_counts_objects_by_run(cloud, make_zip):
    assert "Create it with: serverless-gc deploy" in cloud.run("status", fails=True).output
    cloud.run("deploy", "--zip", str(make_zip()))
    for run, n in (("aaa", 2), ("bbb", 3)):
        for i in range(n):
            key = f"sgc/runs/{run}/x/{i}"
            cloud.client("s3").put_object(Bucket=outputs(cloud)["Bucket"], Key=key, Body=b"1" * 1000)
    said = cloud.run("status").output
    assert "CREATE_COMPLETE" in said
    assert "5 objects, 5.0 kB" in said
    runs = sorted(line.split()[:2] for line in said.splitlines() if line.startswith("     "))
    assert runs == [["aaa", "2"], ["bbb", "3"]]
    assert "just now" in said


def test_a_key_of_the_stacks_own_comes_with_the_rights_to_use_it(cloud, make_zip):
    cloud.run("deploy", "--zip", str(make_zip()), "--kms-key", "create")
    (key,) = cloud.client("kms").list_keys()["Keys"]
    s3, iam = cloud.client("s3"), cloud.client("iam")
    (rule,) = s3.get_bucket_encryption(Bucket=outputs(cloud)["Bucket"])["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key["KeyArn"]}
    (role,) = iam.list_roles()["Roles"]
    (statement,) = iam.get_role_policy(RoleName=role["RoleName"], PolicyName="key")["PolicyDocument"]["Statement"]
    assert statement["Resource"] == key["KeyArn"]
    policy = cloud.client("kms").get_key_policy(KeyId=key["KeyId"], PolicyName="default")["Policy"]
    policy = json.loads(policy) if isinstance(policy, str) else policy  # moto keeps what CloudFormation parsed
    assert {s["Sid"] for s in policy["Statement"]} == {"AccountAdministersKey", "AccountUsesKeyThroughS3"}


def test_a_given_key_is_used_and_none_is_made(cloud, make_zip):
    key = cloud.client("kms").create_key()["KeyMetadata"]["Arn"]
    cloud.run("deploy", "--zip", str(make_zip()), "--kms-key", key)
    assert [found["KeyArn"] for found in cloud.client("kms").list_keys()["Keys"]] == [key]
    s3 = cloud.client("s3")
    (rule,) = s3.get_bucket_encryption(Bucket=outputs(cloud)["Bucket"])["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}


@pytest.fixture
def network(cloud):
    """A VPC of two subnets and their route table."""
    ec2 = cloud.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{i}.0/24")["Subnet"]["SubnetId"] for i in range(2)]
    return vpc, subnets, ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]


def test_in_a_vpc_the_function_reaches_s3_by_its_gateway_and_nothing_reaches_the_function(cloud, make_zip, network):
    vpc, subnets, table = network
    options = ["--vpc", vpc, "--vpc-subnets", ",".join(subnets), "--vpc-route-tables", table]
    cloud.run("deploy", "--zip", str(make_zip()), *options)
    ec2, iam = cloud.client("ec2"), cloud.client("iam")
    found = cloud.client("lambda").get_function_configuration(FunctionName="serverless-gc")["VpcConfig"]
    assert found["SubnetIds"] == subnets
    (group,) = ec2.describe_security_groups(GroupIds=found["SecurityGroupIds"])["SecurityGroups"]
    assert group["VpcId"] == vpc
    assert not group["IpPermissions"]
    (way,) = load_template()["Resources"]["SecurityGroup"]["Properties"]["SecurityGroupEgress"]  # moto leaves it out
    assert (way["IpProtocol"], way["FromPort"], way["ToPort"]) == ("tcp", 443, 443)
    (endpoint,) = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    assert (endpoint["VpcEndpointType"], endpoint["ServiceName"]) == ("Gateway", "com.amazonaws.us-east-1.s3")
    assert (endpoint["VpcId"], endpoint["RouteTableIds"]) == (vpc, [table])
    (role,) = iam.list_roles()["Roles"]
    (denied,) = iam.get_role_policy(RoleName=role["RoleName"], PolicyName="network")["PolicyDocument"]["Statement"]
    assert denied["Effect"] == "Deny"
    assert "ec2:CreateNetworkInterface" in denied["Action"]
    cloud.run("destroy", "--yes")  # moto leaves the endpoint
    assert group["GroupId"] not in {g["GroupId"] for g in ec2.describe_security_groups()["SecurityGroups"]}
