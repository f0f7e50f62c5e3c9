"""What gradient codes store: each partition once, shared by codes; labels beside it; nothing that stays behind."""

import asyncio

import gradient_codes
import numpy as np
import pytest
from gradient_cases import close, problem

import serverless_gc as sgc
from serverless_gc import background
from serverless_gc.store import CountingStore, MemoryStore


def cubic(X, y, w):
    r = X @ w - y
    return X.T @ (r * np.abs(r))


def stored(store):
    async def sizes():
        return {info.key: info.size async for info in store.list("")}

    return asyncio.run(sizes())


def test_partitions_are_stored_once_and_shared_by_codes_and_labels():
    X, y, w, expected = problem("squared", 300)
    store = CountingStore(MemoryStore())
    with sgc.Session(store=store) as s:
        close(s.encode(X, y, code=gradient_codes.frc()).gradient(w), expected)
        first = {key for key in stored(store) if "/data/" in key}
        assert len(first) == 2 * 6
        size = sum(size for key, size in stored(store).items() if key in first)
        assert X.nbytes + y.nbytes < size < X.nbytes + y.nbytes + 12 * 256
        for code in (gradient_codes.cyclic(), gradient_codes.roots_of_unity()):
            close(s.encode(X.copy(order="F"), y.copy(), code=code).gradient(w), expected)
        assert {key for key in stored(store) if "/data/" in key} == first
        close(s.encode(X, y + 1, code=gradient_codes.frc()).gradient(w), X.T @ (X @ w - y - 1))
        second = {key for key in stored(store) if "/data/" in key}
        assert first < second
        assert len(second) == 3 * 6  # the new labels, and X not again
        data = s.encode(X, y, code=gradient_codes.frc())
        for shift in range(8):  # weights of one call are not kept for ever
            weights = np.arange(300.0) + shift
            close(data.gradient(w, sample_weight=weights), X.T @ (weights * (X @ w - y)))
        settle(s)
        assert len([key for key in stored(store) if "/data/" in key]) <= 6 * (1 + 4 + 1)
        for _ in range(3):
            data.gradient(w, loss=cubic)
        assert len([key for key in stored(store) if "/functions/" in key]) == 1
        data.close()
        settle(s)
        assert not [key for key in stored(store) if "/data/" in key]
        with pytest.raises(sgc.ServerlessGCError, match="deleted; encode it again"):
            data.gradient(w)
    assert stored(store) == {}


def settle(session):
    async def settled():
        await (await session.resources()).settle()

    background.run(settled())


@pytest.mark.parametrize("code", ["mds", gradient_codes.frc()], ids=["data", "gradient"])
def test_what_was_closed_can_be_encoded_again(code):
    X, y, w, expected = problem("squared", 30)
    with sgc.Session() as s:
        s.encode(X, y, code=code).close()
        close(s.encode(X, y, code=code).gradient(w), expected)


@pytest.fixture(scope="module")
def local():
    with sgc.Session("local") as session:
        yield session


def test_the_report_says_what_storing_cost_once(local):
    X, y, w, _ = problem("squared", 211)
    data = local.encode(X, y, code=gradient_codes.frc())
    _, first = data.gradient(w, with_report=True)
    _, second = data.gradient(w, with_report=True)
    assert first.bytes_up - second.bytes_up > X.nbytes + y.nbytes
    assert first.encode_seconds > second.encode_seconds == 0


async def test_calls_at_once_do_not_mix(local):
    X, y, w, _ = problem("squared", 60)
    data = await local.encode_async(X, y, code=gradient_codes.cyclic())
    weights = [np.random.default_rng(i).random(60) for i in range(12)]
    answers = await asyncio.gather(*[data.gradient_async((i + 1) * w, sample_weight=s) for i, s in enumerate(weights)])
    for i, (s, answer) in enumerate(zip(weights, answers, strict=True)):
        close(answer, X.T @ (s * (X @ ((i + 1) * w) - y)))
