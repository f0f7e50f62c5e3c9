"""A23: the testing page, followed in an empty environment, twice at once: nothing patched, nothing left listening."""

import re
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aiobotocore.client
import botocore.client

from serverless_gc.testing.offline_aws import offline_aws

PAGE = Path(__file__).parents[2] / "examples" / "05_offline_aws.py"


def listening(host, port):
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def start(tmp_path, *arguments):
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path), "HOME": str(tmp_path)},
    )


def test_the_page_as_a_script_in_two_processes_at_once(tmp_path):
    running = [start(tmp_path, "-W", "error", str(PAGE)) for _ in range(2)]
    ports = []
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert err == ""
        urls = re.findall(r"http://127\.0\.0\.1:\d+", out)
        assert len(urls) == 2
        ports += [urlsplit(url).port for url in urls]
    assert len(set(ports)) == 4
    assert not [port for port in ports if listening("127.0.0.1", port)]


def test_the_page_under_pytest(tmp_path):
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n")
    process = start(tmp_path, "-m", "pytest", "-q", "-c", str(settings), str(PAGE))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert "4 passed" in out


def test_one_address_only_and_nothing_afterwards():
    before = (aiobotocore.client.AioBaseClient._make_api_call, botocore.client.BaseClient._make_api_call)
    with offline_aws(activate=False) as aws:
        ports = [urlsplit(url).port for url in (aws.s3_url, aws.lambda_url)]
        for port in ports:
            assert listening("127.0.0.1", port)
            assert not listening("127.0.0.2", port)
    assert not [port for port in ports if listening("127.0.0.1", port)]
    assert before == (aiobotocore.client.AioBaseClient._make_api_call, botocore.client.BaseClient._make_api_call)
