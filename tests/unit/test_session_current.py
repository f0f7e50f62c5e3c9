"""Which session calls without one use: that of the innermost `with` block still running, however blocks end."""

import contextvars

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.session import current_session

X, Y, W = np.arange(12.0).reshape(6, 2), np.ones(6), np.array([0.5, -0.5])


def test_blocks_that_end_out_of_order_leave_no_closed_session_behind() -> None:
    first, second = sgc.Session("local"), sgc.Session("local")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert current_session() is second
    second.__exit__(None, None, None)
    assert current_session() is None
    np.testing.assert_allclose(sgc.coded_gradient(X, Y, W, n_workers=8, k=4), X.T @ (X @ W - Y))


def test_a_block_that_ends_in_another_context_leaves_no_closed_session_behind() -> None:
    session = sgc.Session("local")
    session.__enter__()
    contextvars.copy_context().run(session.__exit__, None, None, None)
    assert session.closed
    assert current_session() is None


def test_blocks_nest() -> None:
    with sgc.Session("local") as outer:
        with sgc.Session("local") as inner:
            assert current_session() is inner
        assert current_session() is outer
    assert current_session() is None


def test_a_session_closed_inside_its_own_block_is_refused_not_replaced() -> None:
    with sgc.Session("local") as session:
        session.close()
        with pytest.raises(sgc.ServerlessGCError, match="closed; make a new one"):
            sgc.coded_gradient(X, Y, W)


def test_a_closed_or_running_session_is_not_entered_again() -> None:
    with sgc.Session("local") as session, pytest.raises(sgc.ServerlessGCError, match="already running"):
        session.__enter__()
    with pytest.raises(sgc.ServerlessGCError, match="closed; make a new one"):
        session.__enter__()
    assert current_session() is None
