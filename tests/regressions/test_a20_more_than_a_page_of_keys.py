"""A20: of 2,300 scratch objects 3 may not be deleted: those are named, the rest is gone, others' are untouched."""

import asyncio
import json

import pytest

import serverless_gc as sgc
from serverless_gc import background


@pytest.fixture
def deny(aws, s3_client):
    """Deny the deletion of keys, by the bucket's policy."""

    def put(keys):
        statement = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:DeleteObject",
            "Resource": [f"arn:aws:s3:::{aws.bucket}/{key}" for key in keys],
        }
        s3_client.put_bucket_policy(
            Bucket=aws.bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        )

    yield put
    s3_client.delete_bucket_policy(Bucket=aws.bucket)


def test_closing_names_what_it_could_not_delete(problem, deny, list_bucket):
    with sgc.Session("aws") as other:
        theirs = other.encode(problem.X, problem.y, code="mds", n_workers=16, k=12)
        before = list_bucket()
        s = sgc.Session("aws")
        s.encode(problem.X, problem.y, code="mds", n_workers=16, k=12)
        encoded = len(list_bucket()) - len(before)
        res = background.run(s.resources())
        names = [f"{res.prefix}/round/0000001/{i:05d}" for i in range(2300)]
        background.run(write(res.store, names))
        denied = [names[i] for i in (5, 1500, 2299)]
        deny([f"sgc/{name}" for name in denied])
        with pytest.raises(sgc.StoreError) as caught:
            s.close()
        message = str(caught.value)
        assert f"3 of {2300 + encoded} objects" in message
        assert "serverless-gc clean" in message
        for name in denied:
            assert f"{name} (AccessDenied" in message
        assert sorted(list_bucket()) == sorted(before + [f"sgc/{name}" for name in denied])
        problem.check(theirs.gradient(problem.w))


async def write(store, names):
    await asyncio.gather(*(store.put(name, b"") for name in names))
