"""A10: copies only for real stragglers, one at most, none for small healthy jobs, none after the end."""

import pytest

import serverless_gc as sgc


def duplicates(problem, n_workers, inject, seed=0):
    with sgc.Session(
        "simulated",
        policy=lambda code: sgc.Speculate(sgc.UntilDecodable(code)),
        delay=sgc.stragglers.Constant(1.0),
        inject=inject,
        seed=seed,
    ) as s:
        data = s.encode(problem.X, code="uncoded", n_workers=n_workers)
        z, report = data.matvec(problem.w, with_report=True)
    assert abs(z - problem.X @ problem.w).max() < 1e-10
    assert report.balanced
    return report.duplicates, report.elapsed


@pytest.mark.parametrize("n_workers", [2, 3, 16])
def test_no_copy_for_equal_tasks(problem, n_workers):
    assert duplicates(problem, n_workers, ())[0] == 0


def test_one_copy_for_one_straggler(problem):
    class OneSlow(sgc.inject.Stragglers):
        def factor(self, slot, version, attempt=0):  # noqa: ARG002 - the seam's signature
            return 10.0 if slot == 7 and attempt == 0 else 1.0

    count, elapsed = duplicates(problem, 16, OneSlow())
    assert count == 1
    assert elapsed < 5


def test_one_copy_even_if_the_copy_straggles(problem):
    slow = sgc.inject.Stragglers(fraction=[7], slowdown=10.0)
    assert duplicates(problem, 16, slow)[0] == 1
