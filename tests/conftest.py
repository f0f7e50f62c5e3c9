from __future__ import annotations

import uuid

import boto3
import pytest

from serverless_gc.testing.moto_server import MOTO_ENVIRONMENT, moto_server

pytest.register_assert_rewrite("serverless_gc.testing.store_suite")


@pytest.fixture(scope="session")
def moto_endpoint():
    """S3 on this machine, one server for the session; nobody's credentials are used."""
    with moto_server() as endpoint:
        yield endpoint


@pytest.fixture
def aws_environment(monkeypatch, tmp_path):
    """An environment with credentials for moto and no trace of the user's AWS configuration."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    for name, value in MOTO_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return MOTO_ENVIRONMENT


@pytest.fixture
def s3_bucket(moto_endpoint, aws_environment):
    """A new bucket on the session's server: (endpoint, bucket)."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    client = boto3.client("s3", endpoint_url=moto_endpoint, region_name=aws_environment["AWS_DEFAULT_REGION"])
    client.create_bucket(Bucket=name)
    yield moto_endpoint, name
    client.close()
