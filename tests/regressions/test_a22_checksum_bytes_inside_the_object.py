"""A22: a damaged block is found by its own header, counted, and left to the code; it is never used."""

import pytest

import serverless_gc as sgc


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
