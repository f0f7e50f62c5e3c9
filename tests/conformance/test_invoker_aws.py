"""The Lambda invoker over HTTP against the endpoint that runs the real handler."""

import pytest

from serverless_gc.invoke import LambdaInvoker
from serverless_gc.store.local import LocalStore
from serverless_gc.testing.invoker_suite import InvokerSuite
from serverless_gc.testing.lambda_endpoint import LambdaEndpoint


@pytest.fixture(scope="module")
def endpoint():
    with LambdaEndpoint(("worker",)) as running:
        yield running


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


class Over(InvokerSuite):
    transport = "http"

    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path)

    @pytest.fixture
    def make_invoker(self, endpoint):
        return lambda **options: LambdaInvoker(
            "worker",
            region="us-east-1",
            endpoint=endpoint.url,
            concurrency=8,
            transport=self.transport,
            **options,
        )


class TestOverHttp(Over):
    pass


class TestOverSdk(Over):
    transport = "sdk"
