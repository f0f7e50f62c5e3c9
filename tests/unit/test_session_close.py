"""What closing a session meets does not hide what went wrong before, and is raised otherwise."""

import asyncio
import logging

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc import background
from serverless_gc.store import MemoryStore
from serverless_gc.store.wrappers import StoreWrapper


class Broken(StoreWrapper):
    """A store that refuses to delete and to list from some moment on."""

    refuses = False

    async def delete(self, keys):
        if self.refuses:
            raise sgc.ConfigError("the credentials have expired")
        return await super().delete(keys)

    async def list(self, prefix=""):
        if self.refuses:
            raise sgc.ConfigError("the credentials have expired")
        async for info in super().list(prefix):
            yield info


def use(store, error=None):
    """Open a session whose store stops to serve before it is closed."""
    with sgc.Session(store=store) as s:
        s.encode(np.eye(4), code="uncoded", n_workers=2)
        store.refuses = True
        if error is not None:
            raise error


async def use_in_a_coroutine(store, error):
    async with sgc.Session(store=store) as s:
        await s.encode_async(np.eye(4), code="uncoded", n_workers=2)
        store.refuses = True
        raise error


def test_the_first_error_stands_and_the_second_is_its_note():
    with pytest.raises(ZeroDivisionError) as caught:
        use(Broken(MemoryStore()), ZeroDivisionError())
    assert caught.value.__notes__ == ["Closing the session failed as well: the credentials have expired"]


async def test_in_a_coroutine_too():
    with pytest.raises(ZeroDivisionError) as caught:
        await use_in_a_coroutine(Broken(MemoryStore()), ZeroDivisionError())
    assert len(caught.value.__notes__) == 1


def test_alone_it_is_raised():
    with pytest.raises(sgc.ConfigError, match="expired"):
        use(Broken(MemoryStore()))


def test_clean_up_after_a_round_that_fails_is_logged_and_made_up_for(caplog):
    inner = MemoryStore()
    store = Broken(inner)
    with caplog.at_level(logging.WARNING), sgc.Session(store=store) as s:
        data = s.encode(np.eye(4), code="uncoded", n_workers=2)
        store.refuses = True
        np.testing.assert_array_equal(data.matvec(np.ones(4)), np.ones(4))
        background.run(settled(s))
        store.refuses = False
    assert ["the credentials have expired" in record.message for record in caplog.records] == [True]
    assert asyncio.run(keys(inner)) == []


async def keys(store):
    return [info.key async for info in store.list()]


async def settled(session):
    await (await session.resources()).settle()
