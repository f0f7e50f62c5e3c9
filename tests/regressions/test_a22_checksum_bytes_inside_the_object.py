"""A22: a damaged block is found by its own header, counted, and left to the code; it is never used."""

import pytest
from rig_functions import Sdk

import serverless_gc as sgc
from serverless_gc import background


@pytest.mark.parametrize("how", ["prefix", "flip", "truncate"])
def test_damaged_block_is_never_used(problem, how):
    with sgc.Session(inject=sgc.inject.Faults(corrupt=[2, 7], corrupt_how=how)) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=16, k=14)
        g, report = data.gradient(problem.w, with_report=True)
    problem.check(g)
    assert report.failures["corrupt"] > 0
    assert report.balanced


def test_without_redundancy_it_is_an_error(problem):
    with sgc.Session(inject=sgc.inject.Faults(corrupt=[2])) as s:
        data = s.encode(problem.X, problem.y, code="uncoded", n_workers=16)
        with pytest.raises(sgc.NotDecodableError, match="checksum") as caught:
            data.gradient(problem.w)
    assert caught.value.missing == (2,)


@pytest.mark.parametrize(
    "damage",
    [lambda b: b"5;chunk\r\n" + b, lambda b: b[:-9] + bytes([b[-9] ^ 4]) + b[-8:], lambda b: b[:-8]],
    ids=["prefix", "flip", "truncate"],
)
def test_blocks_damaged_in_the_bucket(problem, account, damage):
    with sgc.Session("aws") as s, Sdk() as sdk:
        data = s.encode(problem.X, code="mds", n_workers=8, k=6)
        blocks = f"sgc/runs/{background.run(s.resources()).run}/data/"
        stored = sdk.s3.list_objects_v2(Bucket=account.bucket, Prefix=blocks)["Contents"]
        for key in sorted(entry["Key"] for entry in stored)[1:3]:
            content = sdk.s3.get_object(Bucket=account.bucket, Key=key)["Body"].read()
            sdk.s3.put_object(Bucket=account.bucket, Key=key, Body=damage(content))
        z, report = data.matvec(problem.w, with_report=True)
    assert abs(z - problem.X @ problem.w).max() < 1e-9
    assert report.failures == {"corrupt": report.failed}
    assert report.failed >= 2
