"""Shared by all tests: the default problem of the trials, and S3 on this machine."""

import os
import threading
import uuid

import boto3
import hypothesis
import numpy as np
import pytest
import rig_account
from fault_proxy import fault_proxy
from rig_functions import Sdk

from serverless_gc.store import S3Store
from serverless_gc.testing.moto_server import MOTO_ENVIRONMENT, moto_server
from serverless_gc.testing.offline_aws import offline_aws
from serverless_gc.testing.rig.fixtures import on_rig, rig

__all__ = ["on_rig", "rig"]

hypothesis.settings.register_profile("ci", derandomize=True)  # a landing is not the place to find new examples
if os.environ.get("CI"):
    hypothesis.settings.load_profile("ci")

collect_ignore = ["data"]
"""Scripts that write stored test data; they run by themselves."""

pytest.register_assert_rewrite(*(f"serverless_gc.testing.{name}_suite" for name in ("invoker", "store")))


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


@pytest.fixture(scope="session")
def running_aws():
    """S3 and Lambda on this machine, one of each for the session; this process's environment is left alone."""
    with offline_aws(activate=False) as aws:
        yield aws


@pytest.fixture
def aws(running_aws):
    """S3 and Lambda on this machine, found by ``Session("aws")``; nothing is scripted."""
    with running_aws.activated():
        yield running_aws
    running_aws.script()


@pytest.fixture(scope="session")
def deployed_worker(rig):
    """The worker's zip, deployed once for the session on the rig."""
    return rig_account.deploy(rig)


@pytest.fixture(params=["endpoint", "rig"])
def account(request):
    """An account found by ``Session("aws")``, twice: the light endpoint, and the rig that runs the deployed zip."""
    if request.param == "endpoint":
        yield request.getfixturevalue("aws")
        return
    deployed = request.getfixturevalue("deployed_worker")
    with deployed.activated():
        yield deployed
    deployed.script()


@pytest.fixture
def count_objects(account):
    """Count the objects of a run that are stored."""
    with Sdk() as sdk:

        def count(run, part=""):
            pages = sdk.s3.get_paginator("list_objects_v2").paginate(
                Bucket=account.bucket, Prefix=f"sgc/runs/{run}/{part}"
            )
            return sum(page["KeyCount"] for page in pages)

        yield count


@pytest.fixture
def wait_until():
    """Wait for something that another process does; fails after half a minute."""

    def wait(condition):
        pause = threading.Event()
        for _ in range(1500):
            if condition():
                return
            pause.wait(0.02)
        raise AssertionError("it did not happen within half a minute")

    return wait


@pytest.fixture
def proxied(account):
    """The account behind a proxy that spoils requests: (proxy, options of a session that goes through it)."""
    with fault_proxy(account.s3_url, account.lambda_url) as proxy, account.activated():
        os.environ.update(proxy.environment())

        def options():
            # The endpoint is named in the tasks: workers go through the proxy, too.
            return {"store": S3Store(account.bucket, "sgc", region="us-east-1", endpoint=proxy.url)}

        yield proxy, options


@pytest.fixture
def s3_client(aws):
    """Reach the offline bucket by boto3, past whatever the session under test believes is there."""
    client = boto3.client("s3", endpoint_url=aws.s3_url, region_name="us-east-1")
    yield client
    client.close()


@pytest.fixture
def list_bucket(aws, s3_client):
    """List the keys of the offline bucket, but for runs of which functions of other tests had left something before."""

    def keys(prefix=""):
        pages = s3_client.get_paginator("list_objects_v2").paginate(Bucket=aws.bucket, Prefix=prefix)
        found = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return [key for key in found if tuple(key.split("/")[:3]) not in before]

    before = set()
    before = {tuple(key.split("/")[:3]) for key in keys()}
    return keys


class Problem:
    """X 1,000 x 20, y from a linear model plus noise, and the reference gradient in plain NumPy."""

    def __init__(self, n=1000, p=20, seed=0):
        rng = np.random.default_rng(seed)
        self.X = rng.standard_normal((n, p))
        self.y = self.X @ rng.standard_normal(p) + 0.1 * rng.standard_normal(n)
        self.w = rng.standard_normal(p)

    @property
    def gradient(self):
        return self.reference(self.w)

    def reference(self, w):
        return self.X.T @ (self.X @ w - self.y)

    def check(self, gradient):
        np.testing.assert_allclose(gradient, self.gradient, rtol=0, atol=1e-10 * np.linalg.norm(self.gradient))


@pytest.fixture
def problem():
    return Problem()


@pytest.fixture
def make_problem():
    return Problem
