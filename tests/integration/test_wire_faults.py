"""Bodies that end in the middle, connections that are closed, answers that come late, between all of us."""

import pytest
from fault_proxy import BLOCKS, INVOKE, OBJECTS, Fault

import serverless_gc as sgc
from serverless_gc.limits import Limits

RESULTS = r"(GET|PUT) .*/round/\d+/\d+"
OPERANDS = r"(GET|PUT) .*/operand"


BY_REFERENCE = Limits(request_bytes=16_000, reply_bytes=16_000)
"""Operands and results go through the store, as those of large problems do."""


FAULTS = {
    "cut-blocks": Fault("cut", BLOCKS, 0.3),
    "cut-operands": Fault("cut", OPERANDS, 0.3),
    "cut-results": Fault("cut", RESULTS, 0.3),
    "closed-s3": Fault("break", OBJECTS, 0.2),
    "closed-lambda": Fault("break", INVOKE, 0.2),
    "late-s3": Fault("delay", OBJECTS, 0.2, seconds=0.1),
}
ON_RIG = ("cut-blocks", "cut-results")  # what deployed workers see otherwise than the light endpoint's


@pytest.mark.parametrize(
    ("account", "fault"),
    [("endpoint", name) for name in FAULTS] + [("rig", name) for name in ON_RIG],
    indirect=["account"],
)
def test_the_gradient_is_right_and_the_counts_add_up(problem, account, proxied, fault):
    assert account.bucket
    proxy, options = proxied
    with sgc.Session("aws", max_attempts=5, limits=BY_REFERENCE, **options()) as s:
        data = s.encode(problem.X, problem.y, code="mds", n_workers=8, k=6)
        proxy.faults = [FAULTS[fault]]
        for w in (problem.w, -problem.w):
            g, report = data.gradient(w, with_report=True)
            assert abs(g - problem.reference(w)).max() < 1e-8
            assert report.issued == report.used + report.surplus + report.failed + report.voided
        proxy.faults = []
    assert proxy.met[FAULTS[fault].what] > 0
