"""Fixtures for pytest: import them in ``conftest.py``.

::

    from serverless_gc.testing.rig.fixtures import on_rig, rig  # noqa: F401

"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from serverless_gc.testing.rig.client import Rig

__all__ = ["on_rig", "rig"]


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    """One rig for the session; this process's environment is left alone."""
    with Rig() as running:
        yield running


@pytest.fixture
def on_rig(rig: Rig) -> Iterator[Rig]:
    """Let all AWS clients that the test makes find the session's rig."""
    with rig.activated():
        yield rig
