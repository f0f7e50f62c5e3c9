"""Data kept under names, on the command line: listed, not cleaned, named before a stack goes, deleted when asked."""

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.errors import ConfigError, InputError, StoreError
from serverless_gc.store import S3Store, StoreWrapper


class Breaks(StoreWrapper):
    """Takes ten objects and no more."""

    taken = 0

    async def put(self, key, data, *, if_absent=False):
        self.taken += 1
        if self.taken > 10:
            raise StoreError("the machine is off", key=key)
        return await super().put(key, data, if_absent=if_absent)


@pytest.fixture
def kept(cloud, make_zip):
    """A deployed stack with the set ``flights``, half of the set ``half``, and an object of a run that was killed."""
    cloud.run("deploy", "--zip", str(make_zip()))
    (bucket,) = [entry["Name"] for entry in cloud.client("s3").list_buckets()["Buckets"]]
    X, y = np.random.default_rng(0).standard_normal((60, 4)), np.ones(60)

    def store():
        return S3Store(bucket, "sgc", region="us-east-1", endpoint=cloud.front.url)

    with sgc.Session(store=store()) as s:
        s.encode(X, y, code="mds", n_workers=6, k=4, name="flights")
    with sgc.Session(store=Breaks(store())) as s, pytest.raises(StoreError):
        s.encode(X + 1, y, code="mds", n_workers=6, k=4, name="half")
    cloud.client("s3").put_object(Bucket=bucket, Key="sgc/runs/killed/data/1", Body=b"1")
    return bucket


def keys(cloud, bucket):
    return {entry["Key"] for entry in cloud.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])}


def test_they_are_listed_with_what_they_are_and_whether_they_are_whole(cloud, kept):
    said = cloud.run("data", "list").output
    flights, about, half, _ = said.splitlines()
    assert flights.split()[:3] == ["flights", "16", "objects"]
    assert "60 x 4 float64, mds with 6 workers and k = 4, fingerprint" in about
    assert half.split()[0] == "half"
    assert half.endswith("not stored to the end")
    status = cloud.run("status").output
    assert "kept      2 data sets" in status
    assert "flights, half" in status
    assert f"s3://{kept}/sgc: 1 object, 1 bytes of runs" in status


def test_cleaning_takes_what_runs_left_and_nothing_that_is_kept(cloud, kept):
    before = keys(cloud, kept)
    said = cloud.run("clean", "--older-than", "0s").output
    assert "Deleted 1 object of 1 run" in said
    assert "2 kept data sets not looked at: flights, half" in said
    assert keys(cloud, kept) == before - {"sgc/runs/killed/data/1"}


def test_deleting_says_what_goes_and_asks(cloud, kept):
    before = keys(cloud, kept)
    assert "Would delete 2 data sets" in cloud.run("data", "delete", "flights", "half", "--dry-run").output
    asked = cloud.run("data", "delete", "flights", input="n\n", fails=True)
    assert (asked.exit_code, keys(cloud, kept)) == (1, before)
    with_typo = cloud.run("data", "delete", "half", "fligths", "--yes", fails=True)
    assert isinstance(with_typo.exception, InputError)
    assert keys(cloud, kept) == before
    assert "Deleted half" in cloud.run("data", "delete", "half", "--yes").output
    assert {key for key in before if key.startswith("sgc/kept/half/")} == before - keys(cloud, kept)
    cloud.run("data", "delete", "flights", "--yes")
    assert "No data set is kept" in cloud.run("data", "list").output


def test_destroying_a_stack_names_them_first(cloud, kept):
    said = cloud.run("destroy", "--dry-run").output
    assert "among them 2 kept data sets: flights, half" in said
    assert keys(cloud, kept)


def test_without_a_bucket_nothing_is_listed(cloud):
    assert isinstance(cloud.run("data", "list", fails=True).exception, ConfigError)
