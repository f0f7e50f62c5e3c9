"""Clients for the rig, whose own fixtures are in the conftest above."""

import pytest
from rig_functions import Sdk


@pytest.fixture
def sdk(on_rig):
    """boto3 on the rig."""
    assert on_rig.url
    with Sdk() as clients:
        yield clients
