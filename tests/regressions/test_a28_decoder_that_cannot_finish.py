"""A28: where nothing is solvable the decoder says so at once, and the run ends by policy; nothing spins."""

import itertools
import time

import numpy as np
import pytest

import serverless_gc as sgc

CODES = [
    ("uncoded", 8, 8),
    ("replication", 8, 4),
    ("mds", 8, 6),
    ("polar", 8, 6),
]


@pytest.mark.parametrize(("name", "n", "k"), CODES)
def test_every_way_to_lose_one_block_too_many(name, n, k):
    code = sgc.codes.get(name, n_workers=n, k=k)
    u = np.arange(k * 3.0).reshape(k, 3)
    coded = code.encode(u)
    undecodable = 0
    for lost in itertools.combinations(range(n), n - k + 1):
        arrived = [i for i in range(n) if i not in lost]
        tracker = code.tracker()
        verdicts = [tracker.add(i) for i in arrived]
        if verdicts[-1]:
            continue
        undecodable += 1
        assert verdicts[-1].missing
        start = time.thread_time()  # of this thread alone: what else the machine does is no matter
        with pytest.raises(sgc.NotDecodableError) as caught:
            code.decode({i: coded[i] for i in arrived})
        assert time.thread_time() - start < 0.5
        assert set(caught.value.missing) == set(verdicts[-1].missing)
    assert undecodable == len(list(itertools.combinations(range(n), n - k + 1)))


@pytest.mark.parametrize("name", ["mds", "polar", "replication"])
def test_random_losses_at_64(name):
    k = 32 if name == "replication" else 48
    code = sgc.codes.get(name, n_workers=64, k=k)
    rng = np.random.default_rng(0)
    coded = code.encode(rng.standard_normal((k, 2)))
    for _ in range(200):
        arrived = rng.permutation(64)[: k - 1]
        with pytest.raises(sgc.NotDecodableError):
            code.decode({int(i): coded[i] for i in arrived})


def test_the_run_raises_when_nothing_more_can_come(problem):
    with sgc.Session(inject=sgc.inject.Faults(fail=range(5), fail_times=99), deadline=30) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=16, k=12)
        with pytest.raises(sgc.NotDecodableError, match="cannot be reconstructed") as caught:
            data.gradient(problem.w)
    assert not isinstance(caught.value, sgc.DeadlineExceeded)
