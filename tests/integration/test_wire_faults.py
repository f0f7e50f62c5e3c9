"""Bodies that end in the middle, connections that are closed, answers that come late, between all of us."""

import pytest
from fault_proxy import BLOCKS, INVOKE, OBJECTS, Fault

import serverless_gc as sgc
from serverless_gc.limits import Limits

RESULTS = r"(GET|PUT) .*/round/\d+/\d+"
OPERANDS = r"(GET|PUT) .*/operand"


BY_REFERENCE = Limits(request_bytes=16_000, reply_bytes=16_000)
"""Operands and results go through the store, as those of large problems do."""


@pytest.mark.parametrize(
    "fault",
    [
        Fault("cut", BLOCKS, 0.3),
        Fault("cut", OPERANDS, 0.3),
        Fault("cut", RESULTS, 0.3),
        Fault("break", OBJECTS, 0.2),
        Fault("break", INVOKE, 0.2),
        Fault("delay", OBJECTS, 0.2, seconds=0.1),
    ],
    ids=["cut-blocks", "cut-operands", "cut-results", "closed-s3", "closed-lambda", "late-s3"],
)
def test_the_gradient_is_right_and_the_counts_add_up(problem, proxied, fault):
    proxy, options = proxied
    with sgc.Session("aws", max_attempts=5, limits=BY_REFERENCE, **options()) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=8, k=6)
        proxy.faults = [fault]
        for w in (problem.w, -problem.w):
            g, report = data.gradient(w, with_report=True)
            assert abs(g - problem.reference(w)).max() < 1e-8
            assert report.issued == report.used + report.surplus + report.failed + report.voided
        proxy.faults = []
    assert proxy.met[fault.what] > 0
