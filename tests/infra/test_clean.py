"""``serverless-gc clean``: runs that are over go, a thousand objects a request; those that are not stay."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from serverless_gc.deploy.sweep import RunObjects, choose, parse_age
from serverless_gc.errors import ConfigError, InputError

BUCKET = "scratch"


@pytest.fixture
def bucket(cloud, monkeypatch):
    cloud.client("s3").create_bucket(Bucket=BUCKET)
    monkeypatch.setenv("SERVERLESS_GC_BUCKET", BUCKET)

    def put(run, n, size=1):
        def one(i):
            cloud.client("s3").put_object(Bucket=BUCKET, Key=f"sgc/runs/{run}/results/{i:04d}", Body=b"1" * size)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, range(n)))

    return put


def keys(cloud):
    pages = cloud.client("s3").get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    return {entry["Key"] for page in pages for entry in page.get("Contents", [])}


@pytest.mark.slow
def test_2300_objects_go_in_three_requests_and_three_that_may_not_go_are_named(cloud, bucket):
    bucket("finished", 2300)
    bucket("running", 2)
    kept = {f"sgc/runs/finished/results/{i:04d}" for i in (7, 1234, 2299)}
    cloud.front.undeletable = frozenset(kept)
    cloud.front.asked.clear()
    done = cloud.run("clean", "--run", "finished", fails=True)
    assert done.exit_code == 1
    assert "Deleted 2,297 objects of 1 run" in done.output
    assert "3 objects could not be deleted" in done.output
    for key in kept:
        assert f"{key.removeprefix('sgc/')}: AccessDenied" in done.output
    assert cloud.front.count("POST", "delete") == 3
    assert keys(cloud) == kept | {"sgc/runs/running/results/0000", "sgc/runs/running/results/0001"}


def test_a_refused_object_is_named_and_the_status_is_one(cloud, bucket):
    bucket("a", 3)
    cloud.front.undeletable = frozenset({"sgc/runs/a/results/0001"})
    done = cloud.run("clean", "--run", "a", fails=True)
    assert done.exit_code == 1
    assert "Deleted 2 objects" in done.output
    assert "runs/a/results/0001: AccessDenied" in done.output


def test_what_wrote_lately_stays_unless_it_is_named(cloud, bucket):
    bucket("a", 2)
    bucket("b", 2)
    assert "nothing to delete" in cloud.run("clean").output
    assert len(keys(cloud)) == 4
    said = cloud.run("clean", "--run", "a", "--dry-run").output
    assert "Would delete 2 objects of 1 run" in said
    assert len(keys(cloud)) == 4
    cloud.run("clean", "--run", "a")
    assert {key.split("/")[2] for key in keys(cloud)} == {"b"}
    cloud.run("clean", "--older-than", "0s")
    assert not keys(cloud)


def test_a_run_that_is_not_there_is_an_error_that_lists_those_that_are(cloud, bucket):
    bucket("a", 1)
    refused = cloud.run("clean", "--run", "b", fails=True)
    assert isinstance(refused.exception, InputError)
    assert "there is a" in str(refused.exception)


def test_no_bucket_is_an_error_with_the_next_command(cloud):
    refused = cloud.run("clean", fails=True)
    assert isinstance(refused.exception, ConfigError)
    assert "serverless-gc deploy" in str(refused.exception)


def test_age_is_that_of_the_last_write_so_a_long_run_is_never_taken_apart():
    day = 86400.0
    runs = [RunObjects("long", ("runs/long/a",), 1, newest=9.5 * day), RunObjects("over", ("runs/over/a",), 1, 2 * day)]
    assert [r.run for r in choose(runs, older_than=parse_age("7d"), now=10 * day)] == ["over"]
    assert choose(runs, older_than=parse_age("2w"), now=10 * day) == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("12h", 43200), ("0s", 0), ("1.5d", 129600), ("2w", 1209600)]
)
def test_ages(text, seconds):
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1y"])
def test_what_is_no_age_is_refused(text):
    with pytest.raises(InputError, match="12h or 7d"):
        parse_age(text)
