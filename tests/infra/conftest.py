"""All of AWS at one address on this machine, and the command line aimed at it."""

import boto3
import pytest
from aws_front import aws_front
from botocore.config import Config
from typer.testing import CliRunner

from serverless_gc.cli.app import app
from serverless_gc.testing.lambda_endpoint import LambdaEndpoint
from serverless_gc.testing.moto_server import MOTO_ENVIRONMENT, moto_server

FUNCTION = "serverless-gc"


@pytest.fixture(scope="package")
def running_cloud():
    with moto_server() as moto:
        environment = {**MOTO_ENVIRONMENT, "AWS_ENDPOINT_URL_S3": moto}
        with LambdaEndpoint([FUNCTION], environment=environment) as worker, aws_front(moto, worker.url) as front:
            front.endpoint = worker
            yield front


class Cloud:
    """An empty account; ``run`` is the command line in it."""

    def __init__(self, front, config):
        self.front, self.config = front, config
        self._clients = {}

    def run(self, *arguments, fails=False, **options):
        result = CliRunner().invoke(app, list(arguments), **options)
        if not fails:
            assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
        return result

    def client(self, service, region="us-east-1"):
        if (service, region) not in self._clients:
            config = Config(s3={"addressing_style": "path"})
            self._clients[service, region] = boto3.client(
                service, region_name=region, endpoint_url=self.front.url, config=config
            )
        return self._clients[service, region]

    def close(self):
        for client in self._clients.values():
            client.close()


@pytest.fixture
def cloud(running_cloud, aws_environment, monkeypatch, tmp_path):
    assert aws_environment["AWS_ACCESS_KEY_ID"] == "testing"
    running_cloud.reset()
    running_cloud.endpoint.script(FUNCTION)
    for name in ("BUCKET", "FUNCTION", "REGION", "PREFIX", "BACKEND", "DEADLINE", "CONCURRENCY"):
        monkeypatch.delenv(f"SERVERLESS_GC_{name}", raising=False)
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", running_cloud.url)
    monkeypatch.setenv("SERVERLESS_GC_CONFIG", str(tmp_path / "config.toml"))
    cloud = Cloud(running_cloud, tmp_path / "config.toml")
    yield cloud
    cloud.close()


@pytest.fixture
def make_zip(tmp_path):
    """Write a tiny zip with the real handler; ``note`` makes it another one."""
    import zipfile
    from pathlib import Path

    handler = Path(__file__).parents[2] / "lambda" / "handler.py"

    def make(note=""):
        path = tmp_path / f"worker{note}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo("handler.py"), handler.read_text() + f"# {note}\n")
        return path

    return make
