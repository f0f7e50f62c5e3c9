"""Figures of the reproductions, computed once for all tests that look at them."""

from importlib import import_module

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session")
def figures():
    """Give the figures of a script by its name."""
    made = {}

    def of(name):
        if name not in made:
            with threadpool_limits(1):  # matrices are small: more threads only wait for each other
                made[name] = import_module(name).figures()
        return made[name]

    return of
