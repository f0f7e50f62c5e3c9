"""The Terraform module against moto: applied once, no drift, equal in effect to the stack, destroyed without a rest.

Terraform and the provider come from this machine: the test asks no registry. Name the folder with the provider in
``TF_PLUGIN_CACHE_DIR``, or a configuration with a mirror in ``TF_CLI_CONFIG_FILE``.
"""

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from cfn_template import ROOT, Resolver, as_list, load_template

from serverless_gc.testing.moto_server import MOTO_ENVIRONMENT, moto_server

pytestmark = pytest.mark.slow
ACCESS = {"region_name": "us-east-1", "aws_access_key_id": "testing", "aws_secret_access_key": "testing"}


class Terraform:
    """The module in a folder of its own."""

    def __init__(self, folder, endpoint, package):
        self.folder, self.endpoint = folder, endpoint
        self.variables = [f"-var=endpoint={endpoint}", f"-var=zip={package}"]
        dropped = {"AWS_CA_BUNDLE", "AWS_PROFILE", "AWS_ENDPOINT_URL"}
        if not Path(os.environ.get("TF_CLI_CONFIG_FILE", "/nowhere")).is_file():
            dropped.add("TF_CLI_CONFIG_FILE")
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        self.environment = {**kept, **MOTO_ENVIRONMENT, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}

    def run(self, command, *options, statuses=(0,)):
        done = subprocess.run(
            [shutil.which("terraform"), command, *options],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode in statuses, f"terraform {command}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    def plan(self, *options):
        """Whether there is anything to do: 0 no, 2 yes."""
        flags = ["-input=false", "-no-color", "-detailed-exitcode"]
        return self.run("plan", *flags, *self.variables, *options, statuses=(0, 2)).returncode

    def client(self, service):
        config = Config(s3={"addressing_style": "path"})
        return boto3.client(service, endpoint_url=self.endpoint, config=config, **ACCESS)


@pytest.fixture(scope="module")
def terraform(tmp_path_factory):
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not installed")
    plugins = os.environ.get("TF_PLUGIN_CACHE_DIR", "")
    configured = Path(os.environ.get("TF_CLI_CONFIG_FILE", "/nowhere")).is_file()
    if not plugins and not configured:
        pytest.skip("no AWS provider on this machine: set TF_PLUGIN_CACHE_DIR or TF_CLI_CONFIG_FILE")
    folder = tmp_path_factory.mktemp("terraform")
    shutil.copytree(ROOT / "infra", folder / "infra")
    place = folder / "tests" / "infra" / "terraform"
    shutil.copytree(ROOT / "tests" / "infra" / "terraform", place)
    package = folder / "worker.zip"
    shutil.make_archive(str(package.with_suffix("")), "zip", ROOT / "lambda")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
        server = contextlib.ExitStack()
        endpoint = server.enter_context(moto_server())
    with server:
        module = Terraform(place, endpoint, package)
        module.environment.pop("TF_PLUGIN_CACHE_DIR", None)
        module.run("init", "-input=false", *([f"-plugin-dir={plugins}"] if plugins else []))
        module.run("validate")
        assert module.plan() == 2
        module.run("apply", "-auto-approve", "-input=false", *module.variables)
        yield module
        module.run("destroy", "-auto-approve", "-input=false", *module.variables)
        assert not module.client("s3").list_buckets()["Buckets"]
        assert not module.client("lambda").list_functions()["Functions"]
        assert not module.client("logs").describe_log_groups()["logGroups"]
        assert not module.client("iam").list_roles()["Roles"]


@pytest.fixture(scope="module")
def outputs(terraform):
    return json.loads(terraform.run("output", "-json").stdout)["all"]["value"]


@pytest.fixture(scope="module")
def stack(terraform, outputs):
    """The stack's resources as they would be with the names that Terraform chose."""
    function = terraform.client("lambda").get_function_configuration(FunctionName=outputs["function"])
    group = terraform.client("logs").describe_log_groups()["logGroups"][0]["arn"].removesuffix(":*")
    attributes = {
        "Bucket.Arn": f"arn:aws:s3:::{outputs['bucket']}",
        "Function.Arn": function["FunctionArn"],
        "LogGroup.Arn": f"{group}:*",
        "Role.Arn": function["Role"],
    }
    return Resolver(load_template(), attributes=attributes).resources()


def normal(document):
    """Bring a policy into one form, without what names no key."""
    document = json.loads(document) if isinstance(document, str) else document
    out = []
    for statement in document["Statement"]:
        entry = {**statement, "Action": sorted(as_list(statement["Action"]))}
        if "Resource" in entry:
            entry["Resource"] = sorted(as_list(entry["Resource"]))
        if entry.get("Resource") == ["arn:aws:kms:us-east-1:123456789012:key/none"]:
            continue
        conditions = entry.get("Condition", {}).items()
        entry["Condition"] = {t: {k: sorted(as_list(v)) for k, v in of.items()} for t, of in conditions}
        entry.pop("Sid", None)
        out.append(json.dumps(entry, sort_keys=True))
    return sorted(out)


def test_a_second_plan_finds_nothing_to_do_and_a_change_is_found(terraform):
    assert terraform.plan() == 0
    assert terraform.plan("-var=memory=3008") == 2


def test_a_key_and_a_vpc_bring_what_the_stack_brings(terraform):
    vpc = 'vpc={id="vpc-1",subnets=["subnet-1"],route_tables=["rtb-1"]}'
    flags = ["-input=false", "-no-color", "-var=kms_key=create", f"-var={vpc}"]
    said = terraform.run("plan", *flags, *terraform.variables).stdout
    wanted = {
        "aws_kms_key.this[0]",
        "aws_iam_role_policy.key[0]",
        "aws_iam_role_policy.network[0]",
        "aws_iam_role_policy_attachment.vpc[0]",
        "aws_security_group.this[0]",
        "aws_vpc_endpoint.s3[0]",
    }
    for resource in wanted:
        assert f"module.worker.{resource} will be created" in said
    assert "6 to add" in said


@pytest.fixture
def extended(terraform):
    """The module with a key and a VPC, and afterwards without them again."""
    ec2 = terraform.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    wanted = json.dumps({"id": vpc, "subnets": [subnet], "route_tables": [table]})
    apply = ["-auto-approve", "-input=false", *terraform.variables]
    try:
        terraform.run("apply", *apply, "-var=kms_key=create", f"-var=vpc={wanted}")
        yield vpc, subnet, table
    finally:
        terraform.run("apply", *apply)


def test_a_key_and_a_vpc_are_there_when_they_are_applied(terraform, outputs, extended):
    vpc, subnet, table = extended
    s3, ec2, iam = (terraform.client(service) for service in ("s3", "ec2", "iam"))
    (key,) = terraform.client("kms").list_keys()["Keys"]
    (rule,) = s3.get_bucket_encryption(Bucket=outputs["bucket"])["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key["KeyArn"]}
    policy = json.loads(terraform.client("kms").get_key_policy(KeyId=key["KeyId"], PolicyName="default")["Policy"])
    template = load_template()
    assert normal(policy) == normal(Resolver(template).value(template["Resources"]["Key"]["Properties"]["KeyPolicy"]))
    found = terraform.client("lambda").get_function_configuration(FunctionName=outputs["function"])["VpcConfig"]
    assert found["SubnetIds"] == [subnet]
    (group,) = ec2.describe_security_groups(GroupIds=found["SecurityGroupIds"])["SecurityGroups"]
    assert (group["VpcId"], group["IpPermissions"]) == (vpc, [])
    (way,) = group["IpPermissionsEgress"]
    assert (way["IpProtocol"], way["FromPort"], way["ToPort"]) == ("tcp", 443, 443)
    (endpoint,) = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    assert (endpoint["VpcEndpointType"], endpoint["ServiceName"]) == ("Gateway", "com.amazonaws.us-east-1.s3")
    assert (endpoint["VpcId"], endpoint["RouteTableIds"]) == (vpc, [table])
    (role,) = iam.list_roles()["Roles"]
    assert set(iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"]) == {"worker", "key", "network"}


def test_the_bucket_is_the_same(terraform, outputs, stack):
    s3, bucket = terraform.client("s3"), outputs["bucket"]
    wanted = stack["Bucket"]["Properties"]
    (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    (expected,) = wanted["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ApplyServerSideEncryptionByDefault"] == expected["ServerSideEncryptionByDefault"]
    block = s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    assert block == wanted["PublicAccessBlockConfiguration"]
    assert s3.get_bucket_ownership_controls(Bucket=bucket)["OwnershipControls"] == wanted["OwnershipControls"]
    found = {rule["ID"]: rule for rule in s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]}
    expected = {rule["Id"]: rule for rule in wanted["LifecycleConfiguration"]["Rules"]}
    assert {name: rule["Filter"]["Prefix"] for name, rule in found.items()} == {
        name: rule["Prefix"] for name, rule in expected.items()
    }
    scratch, uploads = found["expire-scratch"], found["abort-uploads"]
    assert scratch["Expiration"]["Days"] == expected["expire-scratch"]["ExpirationInDays"]
    assert "Expiration" not in uploads  # it covers what is kept, too
    aborted = expected["abort-uploads"]["AbortIncompleteMultipartUpload"]
    assert uploads["AbortIncompleteMultipartUpload"] == aborted
    policy = s3.get_bucket_policy(Bucket=bucket)["Policy"]
    assert normal(policy) == normal(stack["BucketPolicy"]["Properties"]["PolicyDocument"])
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)


def test_the_function_is_the_same(terraform, outputs, stack):
    client, wanted = terraform.client("lambda"), stack["Function"]["Properties"]
    found = client.get_function_configuration(FunctionName=outputs["function"])
    for name in ("FunctionName", "Runtime", "Handler", "MemorySize", "Timeout", "Architectures", "Role", "Description"):
        assert found[name] == wanted[name], name
    assert not found.get("Environment")
    assert "ReservedConcurrentExecutions" not in client.get_function_concurrency(FunctionName=outputs["function"])
    repeats = client.get_function_event_invoke_config(FunctionName=outputs["function"], Qualifier="$LATEST")
    for name in ("MaximumRetryAttempts", "MaximumEventAgeInSeconds"):
        assert repeats[name] == stack["EventInvokeConfig"]["Properties"][name]
    (group,) = terraform.client("logs").describe_log_groups()["logGroups"]
    assert group["logGroupName"] == stack["LogGroup"]["Properties"]["LogGroupName"]
    assert group["retentionInDays"] == stack["LogGroup"]["Properties"]["RetentionInDays"]


def test_the_rights_are_the_same(terraform, outputs, stack):
    iam = terraform.client("iam")
    (role,) = iam.list_roles()["Roles"]
    wanted = stack["Role"]["Properties"]
    assert normal(role["AssumeRolePolicyDocument"]) == normal(wanted["AssumeRolePolicyDocument"])
    assert iam.list_role_policies(RoleName=role["RoleName"])["PolicyNames"] == [
        p["PolicyName"] for p in wanted["Policies"]
    ]
    worker = iam.get_role_policy(RoleName=role["RoleName"], PolicyName="worker")["PolicyDocument"]
    assert normal(worker) == normal(wanted["Policies"][0]["PolicyDocument"])
    assert not iam.list_attached_role_policies(RoleName=role["RoleName"])["AttachedPolicies"]
    arn = outputs["driver_policy_arn"]
    version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
    driver = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
    assert normal(driver) == normal(stack["DriverPolicy"]["Properties"]["PolicyDocument"])


def test_the_outputs_are_those_of_the_stack(outputs):
    names = {"".join(part.capitalize() for part in name.split("_")) for name in outputs}
    assert names == set(load_template()["Outputs"])
