"""How functions come to the rig: templates, layers, versions, updates; and what is refused."""

import json
import sys

import pytest
from rig_functions import SMALL, Sdk, make_zip

from serverless_gc.testing.rig import Rig

TEMPLATE = {
    "Parameters": {"Code": {"Type": "String"}, "Retries": {"Type": "Number"}, "Memory": {"Type": "Number"}},
    "Resources": {
        "Bucket": {
            "Type": "AWS::S3::Bucket",
            "Properties": {
                "LifecycleConfiguration": {
                    "Rules": [
                        {
                            "Id": "expire",
                            "Status": "Enabled",
                            "Prefix": "sgc/",
                            "ExpirationInDays": 7,
                            "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
                        }
                    ]
                },
                "PublicAccessBlockConfiguration": {"BlockPublicAcls": True, "RestrictPublicBuckets": True},
            },
        },
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": []}},
        },
        "Layer": {
            "Type": "AWS::Lambda::LayerVersion",
            "Properties": {"LayerName": "extra", "Content": {"S3Bucket": {"Ref": "Code"}, "S3Key": "layer.zip"}},
        },
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "FunctionName": "stacked",
                "Runtime": "python3.13",
                "Handler": "app.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Code": {"S3Bucket": {"Ref": "Code"}, "S3Key": "code.zip"},
                "Layers": [{"Ref": "Layer"}],
                "Architectures": ["arm64"],
                "EphemeralStorage": {"Size": 1024},
                "MemorySize": {"Ref": "Memory"},
                "ReservedConcurrentExecutions": 5,
                "Environment": {"Variables": {"GREETING": "hello"}},
                "Tags": [{"Key": "project", "Value": "serverless-gc"}],
            },
        },
        "Events": {
            "Type": "AWS::Lambda::EventInvokeConfig",
            "Properties": {
                "FunctionName": {"Ref": "Function"},
                "Qualifier": "$LATEST",
                "MaximumRetryAttempts": {"Ref": "Retries"},
            },
        },
    },
    "Outputs": {"Layer": {"Value": {"Ref": "Layer"}}, "Bucket": {"Value": {"Ref": "Bucket"}}},
}

READS_LAYER = "import os, extra\ndef handler(event, context): return [os.environ['GREETING'], extra.WHERE]"


def parameters(**given):
    return [{"ParameterKey": name, "ParameterValue": str(value)} for name, value in given.items()]


def test_a_stack_is_what_its_template_says(sdk):
    """Nothing of these resources is dropped, and the function runs with its layer."""
    sdk.s3.create_bucket(Bucket="code-of-the-stack")
    for key, files in (("code", {"app.py": READS_LAYER}), ("layer", {"python/extra.py": "WHERE = 'layer'"})):
        sdk.s3.put_object(Bucket="code-of-the-stack", Key=f"{key}.zip", Body=make_zip(files))
    given = {"StackName": "stack", "TemplateBody": json.dumps(TEMPLATE)}
    sdk.cloudformation.create_stack(
        **given, Parameters=parameters(Code="code-of-the-stack", Retries=1, Memory=256), Capabilities=["CAPABILITY_IAM"]
    )
    stack = sdk.cloudformation.describe_stacks(StackName="stack")["Stacks"][0]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    assert outputs["Layer"].startswith("arn:aws:lambda:us-east-1:123456789012:layer:")
    assert sdk.invoke("stacked").value == ["hello", "layer"]

    function = sdk.functions.get_function(FunctionName="stacked")
    configuration = function["Configuration"]
    assert [layer["Arn"] for layer in configuration["Layers"]] == [outputs["Layer"]]
    assert configuration["Architectures"] == ["arm64"]
    assert configuration["EphemeralStorage"] == {"Size": 1024}
    assert function["Tags"] == {"project": "serverless-gc"}
    events = sdk.functions.get_function_event_invoke_config(FunctionName="stacked")
    assert events["MaximumRetryAttempts"] == 1
    rule = sdk.s3.get_bucket_lifecycle_configuration(Bucket=outputs["Bucket"])["Rules"][0]
    assert (rule["Expiration"], rule["Filter"]) == ({"Days": 7}, {"Prefix": "sgc/"})
    block = sdk.s3.get_public_access_block(Bucket=outputs["Bucket"])["PublicAccessBlockConfiguration"]
    assert (block["BlockPublicAcls"], block["BlockPublicPolicy"]) == (True, False)

    sdk.cloudformation.update_stack(
        **given, Parameters=parameters(Code="code-of-the-stack", Retries=0, Memory=512), Capabilities=["CAPABILITY_IAM"]
    )
    events = sdk.functions.get_function_event_invoke_config(FunctionName="stacked")
    assert events["MaximumRetryAttempts"] == 0
    assert sdk.functions.get_function_configuration(FunctionName="stacked")["MemorySize"] == 512
    assert sdk.invoke("stacked").value == ["hello", "layer"]
    sdk.cloudformation.delete_stack(StackName="stack")
    with pytest.raises(sdk.functions.exceptions.ResourceNotFoundException):
        sdk.invoke("stacked")


def test_a_new_zip_runs_at_the_next_call(sdk, on_rig):
    sdk.deploy("renewed", make_zip({"app.py": "def handler(event, context): return 'old'"}))
    assert sdk.invoke("renewed").value == "old"
    new = make_zip({"app.py": "def handler(event, context): return 'new'"})
    sdk.functions.update_function_code(FunctionName="renewed", ZipFile=new)
    assert sdk.invoke("renewed").value == "new"
    assert on_rig.admin.counts("renewed").cold_starts == 2


def test_versions_and_aliases_keep_their_code(sdk):
    sdk.deploy("numbered", make_zip({"app.py": "def handler(event, context): return 1, context.function_version"}))
    version = sdk.functions.publish_version(FunctionName="numbered")["Version"]
    sdk.functions.create_alias(FunctionName="numbered", Name="live", FunctionVersion=version)
    new = make_zip({"app.py": "def handler(event, context): return 2, context.function_version"})
    sdk.functions.update_function_code(FunctionName="numbered", ZipFile=new)
    assert sdk.invoke("numbered").value == [2, "$LATEST"]
    assert sdk.invoke("numbered:live").value == [1, "1"]
    for qualifier in (version, "live"):
        assert sdk.invoke("numbered", Qualifier=qualifier).value == [1, "1"]
    arn = sdk.functions.get_function_configuration(FunctionName="numbered")["FunctionArn"]
    assert sdk.invoke(arn).value == [2, "$LATEST"]


def test_functions_see_no_other_packages(sdk):
    """The rig has NumPy beside it; a zip without it must fail here as it does on Lambda."""
    sdk.deploy("bare", make_zip({"app.py": "import numpy\ndef handler(event, context): pass"}))
    failed = sdk.invoke("bare", LogType="Tail")
    assert failed.error == "Unhandled"
    assert failed.value["errorType"] == "Runtime.ImportModuleError"
    assert failed.value["errorMessage"] == "Unable to import module 'app': No module named 'numpy'"
    assert "Runtime.ImportModuleError" in failed.log


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("x = 1", "Runtime.HandlerNotFound"),
        ("def handler(event, context)", "Runtime.UserCodeSyntaxError"),
        ("raise KeyError('init')", "KeyError"),
        ("import os; os._exit(7)", "Runtime.ExitError"),
    ],
)
def test_handlers_that_do_not_load(sdk, code, error):
    name = error.partition(".")[2] or error
    sdk.deploy(name, make_zip({"app.py": code}))
    failed = sdk.invoke(name)
    assert (failed.error, failed.value["errorType"]) == ("Unhandled", error)


def test_a_zip_for_another_python_is_refused_with_advice(sdk):
    names = ("cpython-39-x86_64-linux-gnu", "cpython-39-aarch64-linux-gnu")
    files = {f"numpy/_core/_multiarray_umath.{name}.so": "" for name in names}
    sdk.deploy("foreign", make_zip({"app.py": SMALL, **files}))
    failed = sdk.invoke("foreign")
    assert failed.value["errorType"] == "Runtime.ImportModuleError"
    message = failed.value["errorMessage"]
    assert "built for another Python or machine" in message
    assert "cpython-39-x86_64" in message
    assert f"cpython-{sys.version_info.major}{sys.version_info.minor}" in message
    assert "--python" in message


def test_another_runtime_is_told_in_the_log(sdk):
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    sdk.deploy("other", Runtime="python3.9")
    sdk.deploy("own", Runtime=own)
    assert "RIG\truntime python3.9 was asked for, running on Python " in sdk.invoke("other", LogType="Tail").log
    assert "RIG\t" not in sdk.invoke("own", LogType="Tail").log


def test_what_is_no_python_zip(sdk):
    sdk.deploy("node", Runtime="nodejs22.x")
    with pytest.raises(sdk.functions.exceptions.InvalidRuntimeException, match="runs Python functions from zips"):
        sdk.invoke("node")
    sdk.deploy("broken", b"this is no zip")
    with pytest.raises(sdk.functions.exceptions.InvalidZipFileException, match="could not unzip"):
        sdk.invoke("broken")


def test_init_may_take_only_so_long():
    with Rig(init_timeout=0.5) as rig, rig.activated(), Sdk() as sdk:
        sdk.deploy("slow", make_zip({"app.py": "import time; time.sleep(60)"}))
        failed = sdk.invoke("slow")
        assert failed.value["errorType"] == "Sandbox.Timedout"
        assert "init" in failed.value["errorMessage"]
        assert rig.admin.environments() == []
