"""A9: one call in a hundred never answers; every iteration ends and nothing is left behind."""

import asyncio
import os

import serverless_gc as sgc
from serverless_gc import background
from serverless_gc.testing.lambda_endpoint import Step


def held():
    """Tasks of the loop, and open files and sockets."""

    async def tasks():
        return len(asyncio.all_tasks())

    return background.run(tasks()), len(os.listdir("/proc/self/fd"))


def test_twenty_iterations_with_lost_calls(problem):
    with sgc.Session(inject=sgc.inject.Faults(drop=0.01, seed=4)) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=512, k=480)
        data.gradient(problem.w)

        before = held()
        voided = 0
        for _ in range(20):
            g, report = data.gradient(problem.w, with_report=True)
            problem.check(g)
            assert report.balanced
            voided += report.voided
        assert voided > 0
        after = held()
        assert after[0] <= before[0] + 1  # at most the last round's clean-up
        assert after[1] == before[1]


def test_over_http(problem, account):
    before = held()
    with sgc.Session("aws") as s:
        data = s.encode(problem.X, code="mds", n_workers=8, k=7)
        for _ in range(5):
            account.script(Step(action="hang"))
            z, report = data.matvec(problem.w, with_report=True)
            assert abs(z - problem.X @ problem.w).max() < 1e-9
            assert report.voided >= 1
    assert held()[0] <= before[0]
    assert held()[1] <= before[1]
