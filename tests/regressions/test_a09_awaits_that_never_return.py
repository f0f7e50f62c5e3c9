"""A9: one call in a hundred never answers; every iteration ends and nothing is left behind."""

import asyncio
import os

import serverless_gc as sgc
from serverless_gc import background


def test_twenty_iterations_with_lost_calls(problem):
    with sgc.Session(inject=sgc.inject.Faults(drop=0.01, seed=4)) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=512, k=480)
        data.gradient(problem.w)

        async def tasks():
            return len(asyncio.all_tasks())

        before = (background.run(tasks()), len(os.listdir("/proc/self/fd")))
        voided = 0
        for _ in range(20):
            g, report = data.gradient(problem.w, with_report=True)
            problem.check(g)
            assert report.balanced
            voided += report.voided
        assert voided > 0
        assert background.run(tasks()) <= before[0] + 1  # at most the last round's clean-up
        assert len(os.listdir("/proc/self/fd")) == before[1]
