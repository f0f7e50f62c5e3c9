"""Every store obeys the one suite, bare and wrapped."""

from __future__ import annotations

import asyncio
import random

import pytest

from serverless_gc.inject import Faults
from serverless_gc.store import (
    CountingStore,
    FaultyStore,
    LatencyStore,
    LocalStore,
    MemoryStore,
    Retrier,
    RetryingStore,
    S3Store,
    Store,
    StoreRetry,
)
from serverless_gc.testing.store_suite import StoreSuite
from serverless_gc.worker.opening import open_blobs
from serverless_gc.worker.retry import Backoff, RetryingBlobs


class TestMemoryStore(StoreSuite):
    def make_store(self) -> Store:
        return MemoryStore()


class TestLocalStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def _root(self, tmp_path):
        self.root = tmp_path / "a store"

    def make_store(self) -> Store:
        return LocalStore(self.root)


class TestLocalStoreOpenedByWorkers(TestLocalStore):
    """Workers in other processes open the URL and must agree with the driver."""

    many = 1001
    big = 2**20

    def worker_blobs(self, store):
        return open_blobs(store.url)


class TestS3Store(StoreSuite):
    many = 1001
    big = 8 * 2**20
    overwrites_at_once = False
    transport = "http"

    @pytest.fixture(autouse=True)
    def _bucket(self, s3_bucket):
        self.endpoint, self.bucket = s3_bucket

    def make_store(self) -> Store:
        return S3Store(
            self.bucket,
            "runs/a prefix",
            region="us-east-1",
            endpoint=self.endpoint,
            concurrency=16,
            transport=self.transport,
        )


class TestS3StoreOverSdk(TestS3Store):
    transport = "sdk"


class TestWrappedStore(StoreSuite):
    many = 1001
    big = 2**20

    def make_store(self) -> Store:
        return LatencyStore(CountingStore(MemoryStore()), 0.0)


class TestRetriedFaultyStore(StoreSuite):
    """A store that refuses half of all requests is, behind retries, a store."""

    many = 1001
    big = 2**20

    def make_store(self) -> Store:
        async def at_once(_seconds: float) -> None:
            await asyncio.sleep(0)

        faulty = FaultyStore(MemoryStore(), Faults(slow_down=0.5, seed=1), clock=lambda: 0.0)
        return RetryingStore(faulty, retrier=Retrier(StoreRetry(attempts=40), sleep=at_once, rng=random.Random(0)))

    def worker_blobs(self, store):
        blobs = store.blobs()
        assert blobs is not None
        return RetryingBlobs(blobs, Backoff(attempts=40, base=0.0))
