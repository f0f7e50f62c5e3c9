"""What a session makes of the hot path: warming up, and requests that the workers need no right for."""

import numpy as np
import pytest

import serverless_gc as sgc


@pytest.mark.usefixtures("aws")
def test_a_session_warms_up_and_its_next_report_says_so():
    with sgc.Session("aws") as s:
        warmth = s.warm(6)
        data = s.encode(np.eye(6), code="mds", n_workers=6, k=4)
        _, first = data.matvec(np.ones(6), with_report=True)
        _, second = data.matvec(np.ones(6), with_report=True)
    assert (warmth.asked, warmth.answered) == (6, 6)
    assert (first.warmed, second.warmed) == (6, 0)
    assert "6 no-op invocations to warm up" in str(first)
    assert first.merge(second).warmed == 6
    assert first.balanced


def test_sessions_without_environments_warm_their_threads():
    with sgc.Session("local") as s:
        assert s.warm(4).answered == 4
