import pytest

from serverless_gc.invoke import SimulatedInvoker
from serverless_gc.store.memory import MemoryStore
from serverless_gc.testing.invoker_suite import InvokerSuite


class TestSimulated(InvokerSuite):
    cancellable = False

    @pytest.fixture
    def store(self):
        return MemoryStore()

    @pytest.fixture
    def make_invoker(self, store):
        return lambda **options: SimulatedInvoker(store, **options)
