"""Worst sets of stragglers: enumeration and the greedy adversary on graphs and designs with known values."""

import numpy as np
import pytest

from serverless_gc.codes.gradient import LinearGradientCode
from serverless_gc.codes.gradient.worst import ENUMERABLE, greedy_worst, worst_case
from serverless_gc.errors import InputError

OUTER = [(i, (i + 1) % 5) for i in range(5)]
SPOKES = [(i, i + 5) for i in range(5)]
INNER = [(5 + i, 5 + (i + 2) % 5) for i in range(5)]


def petersen():
    adjacency = np.zeros((10, 10))
    for a, b in OUTER + SPOKES + INNER:
        adjacency[a, b] = adjacency[b, a] = 1 / 3
    return LinearGradientCode(adjacency, exact=False)


@pytest.mark.parametrize(
    ("s", "optimal", "one_step"),
    [(1, 0.181818, 0.288066), (2, 0.470588, 0.763889), (3, 1.0, 1.564626), (4, 2.285714, 2.962963)],
)
def test_petersen_graph(s, optimal, one_step):
    code = petersen()
    found = worst_case(code, s)
    assert found.proven
    assert found.error == pytest.approx(optimal, abs=1e-6)
    assert worst_case(code, s, method="one-step").error == pytest.approx(one_step, abs=1e-6)
    greedy = greedy_worst(code, s)
    assert greedy.error == pytest.approx(optimal, abs=1e-6)
    assert not greedy.proven
    kept = [i for i in range(10) if i not in found.stragglers]
    assert code.weights(kept).error == pytest.approx(found.error)
    assert len(found.stragglers) == s


def test_plain_circulant():
    circulant = [[1 if (j - i) % 7 < 3 else 0 for j in range(7)] for i in range(7)]
    code = LinearGradientCode(circulant, exact=False)
    errors = [worst_case(code, s).error for s in range(1, 6)]
    np.testing.assert_allclose(errors, [0.076923, 0.25, 1, 2.5, 3.4], atol=1e-6)


def test_a_worker_with_several_messages_loses_them_all():
    code = LinearGradientCode(np.eye(4), placement=[[0, 1], [2], [3]], exact=False)
    assert (worst_case(code, 1).error, worst_case(code, 1).stragglers) == (pytest.approx(2.0), (0,))
    assert greedy_worst(code, 2).error == pytest.approx(3.0)


def test_greedy_where_sets_are_too_many_and_refusals():
    code = LinearGradientCode(np.eye(30), exact=False)
    found = worst_case(code, 10)
    assert (found.error, found.proven) == (pytest.approx(10.0), False)
    assert ENUMERABLE < 30045015
    assert worst_case(code, 0).error == pytest.approx(0.0, abs=1e-20)
    with pytest.raises(InputError, match=r"stragglers must be in 0\.\.n_workers=30, got 31"):
        worst_case(code, 31)
    with pytest.raises(InputError, match="method must be"):
        worst_case(code, 1, method="best")
