"""The environment that the offline rig puts in place, and takes away again."""

import os

import pytest

import serverless_gc as sgc
from serverless_gc.errors import InputError
from serverless_gc.testing.offline_aws import offline_aws


def configuration():
    return {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "SERVERLESS_GC_"))}


def test_the_users_configuration_is_out_of_the_way_and_comes_back(running_aws, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "secret")
    monkeypatch.setenv("SERVERLESS_GC_BACKEND", "processes")
    monkeypatch.setenv("SERVERLESS_GC_BUCKET", "my-bucket")
    before = configuration()
    with running_aws.activated():
        inside = configuration()
        session = sgc.Session("aws")
        assert session.settings["bucket"] == running_aws.bucket
        session.close()
    assert configuration() == before
    assert inside.items() <= running_aws.environment.items()
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN", "SERVERLESS_GC_BACKEND"} & inside.keys()
    assert (inside["AWS_ENDPOINT_URL_S3"], inside["AWS_ENDPOINT_URL_LAMBDA"]) == (
        running_aws.s3_url,
        running_aws.lambda_url,
    )


def test_it_comes_back_after_an_error_too(running_aws, monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "mine")
    before = configuration()

    def failing():
        with running_aws.activated():
            os.environ["AWS_REGION"] = "set inside"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert configuration() == before


def test_a_bucket_name_that_s3_refuses():
    with pytest.raises(InputError, match="bucket must be a name that S3 accepts"), offline_aws(bucket="X"):
        pass
