"""Clients for the rig, whose own fixtures are in the conftest above."""

import threading

import pytest
from rig_functions import Sdk


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
