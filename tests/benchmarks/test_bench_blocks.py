"""Blocks to and from S3: the hot path against aiobotocore and boto3, on a raw server that is faster than all of them.

Run with ``pytest tests/benchmarks/test_bench_blocks.py --benchmark-only -s``. Rates are of the best of several bursts;
processor time is the steadier figure.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import botocore.config
import numpy as np
import pytest

from serverless_gc.limits import Limits
from serverless_gc.store import S3Store

AT_ONCE = 16
BURSTS = 3
WHOLE = Limits(multipart_bytes=2**40)


@pytest.fixture(scope="module")
def endpoint():
    program = Path(__file__).with_name("blocks_endpoint.py")
    process = subprocess.Popen([sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.stdin.close()


@pytest.fixture(autouse=True)
def _credentials(aws_environment):
    return aws_environment


class Meter:
    """Best wall and processor time of a few bursts of ``n`` objects of ``size`` bytes."""

    def __init__(self, n, size):
        self.n, self.size, self.wall, self.cpu = n, size, float("inf"), float("inf")

    @contextlib.contextmanager
    def burst(self):
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.cpu = min(self.cpu, time.process_time() - cpu)
        self.wall = min(self.wall, time.perf_counter() - wall)

    @property
    def rate(self):
        return self.n * self.size / self.wall

    def __str__(self):
        return f"{self.rate / 1e6:6.0f} MB/s {1e3 * self.cpu / self.n:6.2f} ms CPU"


def block(size):
    """A frame as the encoder writes it: a header and an array."""
    return [bytes(256), np.zeros(size - 256, np.uint8).data]


def measure_store(endpoint, transport, operation, n, size, limits=WHOLE, benchmark=None):
    meter, data = Meter(n, size), block(size)
    with asyncio.Runner() as runner:
        store = S3Store(
            "b", region="us-east-1", endpoint=endpoint, transport=transport, concurrency=AT_ONCE, limits=limits
        )

        async def all_of_them():
            if operation == "put":
                await asyncio.gather(*(store.put(f"{i}/{size}", data) for i in range(n)))
            else:
                read = await asyncio.gather(*(store.get(f"{i}/{size}") for i in range(n)))
                assert {len(each) for each in read} == {size}

        runner.run(all_of_them())  # connections are open from here on

        def burst():
            with meter.burst():
                runner.run(all_of_them())

        if benchmark is None:
            for _ in range(BURSTS):
                burst()
        else:
            benchmark.pedantic(burst, rounds=BURSTS)
        runner.run(store.close())
    return meter


def measure_boto3(endpoint, operation, n, size):
    config = botocore.config.Config(
        max_pool_connections=AT_ONCE,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path", "payload_signing_enabled": False},
    )
    client = boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint, config=config)
    data = b"".join(block(size))

    def one(i):
        if operation == "put":
            client.put_object(Bucket="b", Key=f"{i}/{size}", Body=data)
        else:
            assert len(client.get_object(Bucket="b", Key=f"{i}/{size}")["Body"].read()) == size

    meter = Meter(n, size)
    with contextlib.closing(client), ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, range(n)))
        for _ in range(BURSTS):
            with meter.burst():
                list(pool.map(one, range(n)))
    return meter


@pytest.mark.parametrize("operation", ["put", "get"])
@pytest.mark.parametrize(("size", "n"), [(2**16, 256), (2**20, 64), (2**24, 16)], ids=["64KiB", "1MiB", "16MiB"])
def test_blocks_against_boto3(benchmark, hold, endpoint, operation, size, n):
    theirs = measure_boto3(endpoint, operation, n, size)
    sdk = measure_store(endpoint, "sdk", operation, n, size)
    ours = measure_store(endpoint, "http", operation, n, size, benchmark=benchmark)
    benchmark.extra_info.update(
        mb_per_second=round(ours.rate / 1e6),
        cpu_ms_per_object=round(1e3 * ours.cpu / n, 3),
        rate_over_boto3=round(ours.rate / theirs.rate, 2),
        rate_over_aiobotocore=round(ours.rate / sdk.rate, 2),
        boto3_cpu_over_ours=round(theirs.cpu / ours.cpu, 2),
        aiobotocore_cpu_over_ours=round(sdk.cpu / ours.cpu, 2),
    )
    print(  # noqa: T201 - a benchmark is read
        f"\n{operation} {n} x {size / 2**20:g} MiB: http {ours} | aiobotocore {sdk} | boto3 {theirs} | "
        f"{ours.rate / theirs.rate:.1f}x boto3's rate at 1/{theirs.cpu / ours.cpu:.1f} of its CPU"
    )
    what = f"{operation} {n} x {size // 2**10} KiB: processor time, in that of "
    hold(what + "aiobotocore", ours.cpu / sdk.cpu, at_most=0.9, tolerance=1)
    if operation == "put" or size <= 2**16:  # reading large blocks is copying, for all three
        hold(what + "boto3", ours.cpu / theirs.cpu, at_most=0.8, tolerance=1)


@pytest.mark.parametrize("operation", ["put", "get"])
def test_parts_against_one_request(benchmark, hold, endpoint, operation):
    """What cutting a large object costs the driver; what it gains is the network's, which is not here."""
    size = 2**27
    whole = measure_store(endpoint, "http", operation, 1, size)
    cut = measure_store(endpoint, "http", operation, 1, size, limits=Limits(), benchmark=benchmark)
    benchmark.extra_info.update(
        mb_per_second=round(cut.rate / 1e6), rate_over_one_request=round(cut.rate / whole.rate, 2)
    )
    line = f"\n{operation} 128 MiB: in parts {cut} | in one request {whole}: {cut.rate / whole.rate:.2f}x"
    print(line)  # noqa: T201 - a benchmark is read
    hold(
        f"{operation} 128 MiB in parts: processor time, in that of one request",
        cut.cpu / whole.cpu,
        at_most=3,
        tolerance=1,
    )
