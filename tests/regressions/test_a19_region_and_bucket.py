"""A bucket in another region than the function is refused before anything is uploaded."""

import boto3
import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.errors import ConfigError
from serverless_gc.store.region import bucket_region, check_region
from serverless_gc.testing.http_double import http_double, response


@pytest.fixture
def elsewhere(account):
    """A bucket in eu-west-1 beside the offline function in us-east-1."""
    client = boto3.client("s3", endpoint_url=account.s3_url, region_name="eu-west-1")
    client.create_bucket(Bucket="elsewhere", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    yield client
    client.delete_bucket(Bucket="elsewhere")
    client.close()


def test_a_session_refuses_it_before_any_upload(account, elsewhere, problem):
    before = account.counts().requests
    with sgc.Session("aws", bucket="elsewhere") as session, pytest.raises(ConfigError) as refused:
        session.encode(problem.X, problem.y, code="mds", n_workers=4, k=3)
    assert "bucket elsewhere is in eu-west-1" in str(refused.value)
    assert "in us-east-1: nothing was uploaded" in str(refused.value)
    assert "SERVERLESS_GC_REGION=eu-west-1" in str(refused.value)
    assert elsewhere.list_objects_v2(Bucket="elsewhere")["KeyCount"] == 0
    assert account.counts().requests == before


@pytest.mark.parametrize("account", ["endpoint"], indirect=True)  # the rig's function is in one region
@pytest.mark.usefixtures("elsewhere")
def test_the_same_bucket_is_fine_where_it_is(problem):
    with sgc.Session("aws", bucket="elsewhere", region="eu-west-1") as session:
        gradient = session.encode(problem.X, problem.y, code="mds", n_workers=4, k=3).gradient(problem.w)
    np.testing.assert_allclose(gradient, problem.gradient, rtol=1e-9)


async def test_a_refusal_names_the_region_too_and_silence_is_no_obstacle():
    refusal = response(403, headers="x-amz-bucket-region: ap-south-1\r\n")
    with http_double(lambda *_: refusal) as server:
        assert await bucket_region("b", "eu-west-1", server.endpoint) == "ap-south-1"
        (asked,) = server.asked
        assert (asked.method, asked.path) == ("HEAD", "/b")
        assert "authorization" not in asked.headers
        with pytest.raises(ConfigError, match="bucket b is in ap-south-1"):
            await check_region(f"s3://b/p?region=eu-west-1&endpoint={server.endpoint}")
    with http_double(lambda *_: response(200)) as server:  # a server that does not know regions
        await check_region(f"s3://b/p?region=eu-west-1&endpoint={server.endpoint}")
    await check_region(f"s3://b/p?region=eu-west-1&endpoint={server.endpoint}")  # nobody there any more
    await check_region("memory://x")
