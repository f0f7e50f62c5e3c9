import pytest

from serverless_gc.invoke import LocalInvoker
from serverless_gc.store.local import LocalStore
from serverless_gc.store.memory import MemoryStore
from serverless_gc.testing.invoker_suite import InvokerSuite


class TestLocalInMemory(InvokerSuite):
    @pytest.fixture
    def store(self):
        return MemoryStore()

    @pytest.fixture
    def make_invoker(self, store):
        return lambda **options: LocalInvoker(store, threads=3, **options)


class TestLocalOnDisk(InvokerSuite):
    @pytest.fixture
    def store(self, tmp_path):
        return LocalStore(tmp_path)

    @pytest.fixture
    def make_invoker(self, store):
        return lambda **options: LocalInvoker(store, threads=1, **options)
