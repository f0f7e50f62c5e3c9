"""Nested code: worked values, nesting, the level rule against the rank, completion time, refusals."""

import numpy as np
import pytest
from gradient_sets import fed, least_error
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import from_manifest
from serverless_gc.codes.gradient import NestedCode, worst_case
from serverless_gc.codes.gradient.nested import nested_rows
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import InputError, NotDecodableError

H = np.array([[1.0, 2, 3, -6], [1, -1, 2, -2], [2, 1, -1, -2]])


def worked():
    return NestedCode(4, 4, stragglers=3, coefficients=nested_rows(H))


def level(code, t):
    return code.generator[[code.message(worker, t) for worker in range(code.n_workers)]]


def test_worked_levels():
    code = worked()
    np.testing.assert_array_equal(level(code, 0), np.eye(4))
    np.testing.assert_allclose(
        level(code, 1), [[1, -1 / 2, 0, 0], [0, 1, -2 / 3, 0], [0, 0, 1, 1 / 2], [6, 0, 0, 1]], atol=1e-12
    )
    np.testing.assert_allclose(
        level(code, 2),
        [[1, 1 / 7, -3 / 7, 0], [0, 1, 5 / 3, 7 / 6], [-3 / 2, 0, 1, 1 / 4], [10 / 3, 4 / 3, 0, 1]],
        atol=1e-12,
    )
    np.testing.assert_allclose(level(code, 3), np.ones((4, 4)), atol=1e-12)


def test_each_level_is_the_one_before_and_one_gradient_more():
    expected = [(-1 / 2, -2 / 3, 1 / 2, 6), (9 / 14, 7 / 3, -1 / 4, -8 / 3), (6 / 7, -2 / 3, 3 / 4, -7 / 3)]
    code = worked()
    for t, beta in enumerate(expected):
        low = level(code, t)
        computed = -(H[t] @ low.T) / (H[t] @ np.roll(low, -1, axis=0).T)
        np.testing.assert_allclose(computed, beta, atol=1e-12)
        np.testing.assert_allclose(
            level(code, t + 1), low + np.array(beta)[:, None] * np.roll(low, -1, axis=0), atol=1e-12
        )


def test_messages_of_a_worker_in_order():
    code = NestedCode(5, 5, stragglers=2)
    assert code.n_messages == 15
    assert code.placement(3) == (9, 10, 11)
    assert [code.row(m)[0] for m in code.placement(4)] == [(4,), (4, 0), (4, 0, 1)]
    for m in range(15):
        partitions, coefficients = code.row(m)
        np.testing.assert_array_equal(code.generator[m, list(partitions)], coefficients)
        assert np.count_nonzero(code.generator[m]) == len(partitions)
    with pytest.raises(InputError, match=r"level must be in 0\.\.2, got 3"):
        code.message(0, 3)


def test_worked_completion_times():
    code = NestedCode(8, 8, stragglers=3)
    assert code.completion_time([1] * 7 + [10]) == 2
    assert NestedCode(8, 8, stragglers=0).completion_time([1] * 7 + [10]) == 10
    assert code.completion_time([1, 1, 1, 1, 1, 9, 9, 9]) == 4
    with pytest.raises(InputError, match="times must have one entry"):
        code.completion_time([1])


@pytest.mark.parametrize("silent", [0, 1, 2, 3])
def test_silent_workers_cost_one_partition_each(silent):
    code = NestedCode(7, 7, stragglers=3)
    gradients = np.random.default_rng(silent).normal(size=(7, 4))
    sent = code.encode(gradients)
    working = range(silent, 7)
    tracker = code.tracker()
    arrived = {}
    for t in range(silent + 1):
        assert not tracker.decodable
        for worker in working:
            m = code.message(worker, t)
            tracker.add(m)
            arrived[m] = sent[m]
    assert tracker.decodable
    total, certificate = code.decode(arrived)
    np.testing.assert_allclose(total, gradients.sum(axis=0), rtol=0, atol=1e-8)
    assert certificate.method == "structured"
    assert {m % 4 for m in certificate.used} == {silent}


def test_random_profiles_of_highest_levels_only():
    code = NestedCode(8, 8, stragglers=4)
    rng = np.random.default_rng(0)
    reached = 0
    for _ in range(300):
        highest = rng.integers(-1, 5, size=8)
        arrived = [code.message(w, h) for w, h in enumerate(highest) if h >= 0]
        rule = any((highest >= t).sum() >= 8 - t for t in range(5))
        tracker = fed(code, arrived)
        assert tracker.decodable == rule == (least_error(code, arrived) <= 8e-12)
        if rule:
            assert np.abs(code.weights(arrived).alpha - 1).max() < 1e-7
            assert tracker.missing() == ()
        reached += rule
    assert 30 < reached < 270


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_rule_is_sufficient_with_any_messages(data):
    code = NestedCode(5, 5, stragglers=2)
    arrived = data.draw(st.sets(st.integers(0, 14)))
    tracker = fed(code, arrived)
    weights = code.weights(arrived)
    assert weights.error == pytest.approx(least_error(code, sorted(arrived)), abs=1e-6) or tracker.decodable
    if tracker.decodable:
        assert np.abs(weights.a @ code.generator - 1).max() < 1e-6
    again = fed(code, [*sorted(arrived, reverse=True), *arrived])
    assert again.decodable == tracker.decodable


def test_no_set_of_silent_workers_does_harm():
    code = NestedCode(7, 7, stragglers=3)
    assert worst_case(code, 3).error < 1e-15
    assert worst_case(code, 4).error > 1e-12
    assert code.tolerated == 3


def test_missing_names_what_is_not_counted():
    code = NestedCode(4, 4, stragglers=1)
    tracker = fed(code, [code.message(0, 0), code.message(2, 0)])
    assert tracker.missing() == (1, 3)
    with pytest.raises(NotDecodableError) as caught:
        code.decode({0: np.ones(2), 4: np.ones(2)})
    assert caught.value.missing == (1, 3)


def test_manifest_and_refusals():
    for code in (worked(), NestedCode(6, 6, stragglers=2, seed=4)):
        again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
        np.testing.assert_array_equal(again.coefficients, code.coefficients)
        assert repr(again) == repr(code)
    wrong = nested_rows(H)
    wrong[0, 0, 2] = 1
    with pytest.raises(InputError, match="zero beyond the partitions of a level"):
        NestedCode(4, 4, stragglers=3, coefficients=wrong)
    with pytest.raises(InputError, match=r"of shape \(4, 3, 3\)"):
        NestedCode(4, 4, stragglers=2, coefficients=nested_rows(H))
