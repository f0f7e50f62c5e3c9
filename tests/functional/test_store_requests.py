"""Reports and accounts count what S3 bills, and it is what S3 was asked."""

import re

import numpy as np
import pytest
from fault_proxy import slow_down

import serverless_gc as sgc
from serverless_gc import background

rng = np.random.default_rng(0)
X = rng.normal(size=(240, 6))
y = X @ rng.normal(size=6)


def billed(proxy):
    """Reads and writes of objects among what a proxy saw, after S3's price list."""
    seen = [identity.partition(" ")[::2] for _, identity in proxy.asked]
    objects = [method for method, path in seen if re.fullmatch(r"/[^/]+/.+", path)]
    lists = sum(method == "GET" and path.count("/") == 1 for method, path in seen)  # POST there deletes: free
    return sum(method in {"GET", "HEAD"} for method in objects), objects.count("PUT") + lists


def counted(reports, session):
    """The same of reports; what the session asked since the last one comes on top."""

    async def rest():
        res = await session.resources()
        await res.settle()
        return res.store_requests()

    late = background.run(rest())
    return sum(r.reads for r in reports) + late[0], sum(r.writes for r in reports) + late[1]


@pytest.mark.parametrize("code", ["uncoded", "frc"])
def test_every_request_is_counted_once(proxied, code):
    proxy, options = proxied
    with sgc.Session("aws", policy=lambda _: sgc.WaitAll(), **options()) as s:
        data = s.encode(X, y, code=code, n_workers=8)
        reports = [data.gradient(w, with_report=True)[1] for w in np.eye(6)[:2]]
        fit = sgc.minimize(data, np.zeros(6), method="gradient-descent", max_rounds=3, policy=lambda _: sgc.WaitAll())
        found = counted([*reports, fit.report], s)
        expected = billed(proxy)
    assert found == expected
    assert min(found) > 0
    assert (fit.account.reads, fit.account.writes) == (fit.report.reads, fit.report.writes)
    assert f"{fit.account.reads} reads" in str(fit)


def test_repeats_are_counted_and_stragglers_are_not(proxied):
    """Workers that were given up asked as well, and nobody hears of it."""
    proxy, options = proxied
    slow = sgc.inject.Stragglers(fraction=[1, 2], slowdown=20, base=0.02, persistent=True)
    with sgc.Session("aws", inject=slow, **options()) as s:
        data = s.encode(X, code="mds", n_workers=8, k=6)
        proxy.faults = [slow_down(0.2)]
        _, report = data.matvec(np.ones(6), with_report=True)
        proxy.faults = []
        found = counted([report], s)
    expected = billed(proxy)
    assert proxy.met["SlowDown"] > 0
    assert found[0] <= expected[0]
    assert found[1] <= expected[1]
    assert report.check().used >= 6


def test_the_simulated_clock_counts_what_s3_would_be_asked():
    """A manifest is looked for, it, eight blocks and a mark stored; a task looks twice for another, reads, writes."""
    with sgc.Session("simulated", policy=lambda _: sgc.WaitAll()) as s:
        data = s.encode(X, code="uncoded", n_workers=8)
        first = data.matvec(np.ones(6), with_report=True)[1]
        again = data.matvec(np.ones(6), with_report=True)[1]
    assert (first.reads, first.writes) == (1 + 8 * 3, 8 + 2 + 8)
    assert (again.reads, again.writes) == (8 * 2, 8)
    assert "16 reads and 8 writes of the store" in str(again)
