"""The offline S3: no patching, loopback only, nothing left behind."""

from __future__ import annotations

import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from serverless_gc.testing.moto_server import MOTO_ENVIRONMENT, moto_server


def listening(host, port):
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def test_servers_run_side_by_side_and_free_their_ports():
    """A23."""
    with moto_server() as one, moto_server() as two:
        ports = [urlsplit(endpoint).port for endpoint in (one, two)]
        assert ports[0] != ports[1]
        for port in ports:
            assert listening("127.0.0.1", port)
            assert not listening("127.0.0.2", port)  # bound to one address, not to all
    assert not any(listening("127.0.0.1", port) for port in ports)


def test_a_failing_block_stops_the_server_too():
    ports = []

    def failing():
        with moto_server() as endpoint:
            ports.append(urlsplit(endpoint).port)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert not listening("127.0.0.1", ports[0])


USER = """
import asyncio, aiobotocore.client, botocore.client
before = (aiobotocore.client.AioBaseClient._make_api_call, botocore.client.BaseClient._make_api_call)
from serverless_gc.store import S3Store
from serverless_gc.testing.moto_server import moto_server
import boto3

async def main(endpoint):
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="bucket")
    store = S3Store("bucket", "p", endpoint=endpoint)
    await store.put("k", b"v")
    print(bytes(await store.get("k")))
    await store.close()

with moto_server() as endpoint:
    asyncio.run(main(endpoint))
assert before == (aiobotocore.client.AioBaseClient._make_api_call, botocore.client.BaseClient._make_api_call)
"""


def test_a_user_in_an_empty_environment_needs_no_patching(tmp_path):
    """A23."""
    done = subprocess.run(
        [sys.executable, "-c", USER],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PYTHONPATH": ".", "HOME": str(tmp_path), **MOTO_ENVIRONMENT},
    )
    assert done.stdout.strip() == "b'v'", done.stderr
