"""The rig's own fixtures, as users import them."""

import threading

import pytest
from rig_functions import Sdk

from serverless_gc.testing.rig.fixtures import on_rig, rig

__all__ = ["on_rig", "rig", "sdk", "wait_until"]


@pytest.fixture
def sdk(on_rig):
    """boto3 on the rig."""
    assert on_rig.url
    with Sdk() as clients:
        yield clients


@pytest.fixture
def wait_until():
    """Wait for something that another process does; fails after ten seconds."""

    def wait(condition):
        pause = threading.Event()
        for _ in range(500):
            if condition():
                return
            pause.wait(0.02)
        raise AssertionError("it did not happen within ten seconds")

    return wait
