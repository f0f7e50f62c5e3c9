import pytest

from serverless_gc.invoke import ProcessInvoker
from serverless_gc.store.local import LocalStore
from serverless_gc.testing.invoker_suite import InvokerSuite


class TestProcesses(InvokerSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path)

    @pytest.fixture
    def make_invoker(self, store):
        return lambda **options: ProcessInvoker(store, processes=2, **options)
