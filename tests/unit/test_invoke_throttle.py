import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.errors import InputError
from serverless_gc.invoke.throttle import AdaptiveLimit


def drain(limit):
    taken = []
    while (ticket := limit.take()) is not None:
        taken.append(ticket)
    return taken


def wave(limit, capacity):
    """Start as many calls as the limit lets; refusals of those above ``capacity`` come back first."""
    tickets = drain(limit)
    for ticket in tickets[capacity:]:
        limit.release(ticket, "throttled")
    now = limit.limit
    for ticket in tickets[:capacity]:
        limit.release(ticket, "ok")
    return now, max(0, len(tickets) - capacity)


def test_hard_limit_is_met_in_three_cuts_and_held():
    limit = AdaptiveLimit(64)
    seen = [wave(limit, 10) for _ in range(40)]
    assert seen[:3] == [(32, 54), (16, 22), (10, 6)]
    assert {now for now, _ in seen[3:]} == {10}  # a refused probe at 11 falls back to 10, not to 5
    assert sum(refused for _, refused in seen[3:]) <= 4  # and probes are rare while nobody waits
    assert limit.found == 10


def test_refusals_that_arrive_last_cut_by_half_only():
    limit = AdaptiveLimit(64)
    tickets = drain(limit)
    for ticket in tickets[:10]:
        limit.release(ticket, "ok")
    for ticket in tickets[10:]:
        limit.release(ticket, "throttled")
    assert limit.limit == 32


def test_one_burst_halves_at_most():
    limit = AdaptiveLimit(100)
    tickets = drain(limit)
    for ticket in tickets:
        limit.release(ticket, "throttled")
    assert limit.limit == 50


def test_floor_is_one():
    limit = AdaptiveLimit(8)
    for _ in range(20):
        for ticket in drain(limit):
            limit.release(ticket, "throttled")
    assert limit.limit == 1
    assert limit.found == 1
    assert limit.take() is not None


def test_growth_is_one_per_wave_when_small_and_proportional_when_large():
    small = AdaptiveLimit(1000)
    while small.limit > 10:
        for ticket in drain(small):
            small.release(ticket, "throttled")
    start = small.limit
    for ticket in drain(small):
        small.release(ticket, "ok")
    # Only a success while the limit is reached counts, so the first of a drained wave counts alone.
    assert start <= small.limit <= start + 1

    large = AdaptiveLimit(1000)
    for ticket in drain(large):
        large.release(ticket, "throttled")
    assert large.limit == 500
    held = drain(large)
    for _ in range(500):  # one full wave, each place taken again at once
        large.release(held.pop(0), "ok")
        held += drain(large)
    assert 524 <= large.limit <= 526  # 5 % of 500, not 1


def test_upper_bound_holds():
    limit = AdaptiveLimit(5)
    held = drain(limit)
    for _ in range(100):
        limit.release(held.pop(0), "ok")
        held += drain(limit)
    assert limit.limit == 5


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 40), st.lists(st.sampled_from(["take", "ok", "throttled", "other"]), max_size=300))
def test_never_more_than_the_limit_and_always_within_bounds(upper, moves):
    limit = AdaptiveLimit(upper)
    held = []
    for move in moves:
        if move == "take":
            ticket = limit.take()
            if ticket is not None:
                held.append(ticket)
                assert limit.in_flight <= limit.limit
        elif held:
            limit.release(held.pop(0), move)
        assert 1 <= limit.limit <= upper
        assert limit.in_flight == len(held)


async def test_waiters_are_served_in_order():
    limit = AdaptiveLimit(1)
    first = await limit.acquire()
    served = []

    async def wait(name):
        ticket = await limit.acquire()
        served.append(name)
        limit.release(ticket, "ok")

    waiting = [asyncio.create_task(wait(i)) for i in range(5)]
    await asyncio.sleep(0)
    assert limit.waiting == 5
    limit.release(first, "ok")
    await asyncio.gather(*waiting)
    assert served == [0, 1, 2, 3, 4]
    assert limit.in_flight == 0


async def test_cancelled_waiters_leak_nothing():
    limit = AdaptiveLimit(1)
    first = await limit.acquire()
    queued = asyncio.create_task(limit.acquire())
    served = asyncio.create_task(limit.acquire())
    await asyncio.sleep(0)
    queued.cancel()
    await asyncio.gather(queued, return_exceptions=True)
    assert limit.waiting == 1
    limit.release(first, "ok")  # gives leave to `served`, which is cancelled before it runs
    served.cancel()
    await asyncio.gather(served, return_exceptions=True)
    assert limit.in_flight == 0
    assert limit.take() is not None


async def test_leave_passes_over_a_waiter_that_is_just_being_cancelled():
    limit = AdaptiveLimit(1)
    first = await limit.acquire()
    going, next_ = asyncio.create_task(limit.acquire()), asyncio.create_task(limit.acquire())
    await asyncio.sleep(0)
    going.cancel()
    limit.release(first, "ok")  # before the cancelled task has had its turn
    with pytest.raises(asyncio.CancelledError):
        await going
    assert await next_ == 2
    assert (limit.in_flight, limit.waiting) == (1, 0)


@pytest.mark.parametrize(
    ("options", "named"),
    [({"upper": 0}, "floor"), ({"upper": 4, "floor": 5}, "floor"), ({"upper": 4, "shrink": 1.0}, "shrink")],
)
def test_parameters_are_checked(options, named):
    with pytest.raises(InputError, match=named):
        AdaptiveLimit(**options)


def test_negative_growth_is_refused():
    with pytest.raises(InputError, match="grow"):
        AdaptiveLimit(4, grow=-0.1)
