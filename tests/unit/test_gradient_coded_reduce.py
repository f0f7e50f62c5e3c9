"""CodedReduce: the worked tree, aggregation with dead nodes, the contract of a runtime, refusals."""

from itertools import combinations, product

import numpy as np
import pytest
from gradient_sets import fed, least_error
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import from_manifest, get
from serverless_gc.codes.gradient import CodedReduceCode, CyclicRepetitionCode
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import InputError, NotDecodableError

PAPER = CyclicRepetitionCode(3, 3, stragglers=1, coefficients=[[0.5, 1], [1, -1], [1, 0.5]])


def example():
    return CodedReduceCode.tree(3, 2, stragglers=1, inner=PAPER)


@pytest.mark.parametrize(
    ("n", "s", "depth", "sizes"),
    [
        (3, 1, 1, (3, 3, 2, 2 / 3)),
        (3, 1, 2, (12, 15, 4, 4 / 15)),
        (3, 2, 2, (12, 18, 9, 1 / 2)),
        (5, 2, 2, (30, 40, 9, 0.225)),
        (3, 1, 3, (39, 57, 8, 0.1403509)),
    ],
)
@pytest.mark.parametrize("inner", ["cyclic", "auto"])
def test_sizes_and_random_patterns_with_the_most_dead_children(n, s, depth, sizes, inner):
    code = CodedReduceCode.tree(n, depth, stragglers=s, inner=inner)
    assert (code.n_workers, code.k, code.units_each) == sizes[:3]
    assert code.units_each / code.k == pytest.approx(sizes[3], abs=1e-7)
    assert code.units_each / code.k == pytest.approx(1 / sum((n / (s + 1)) ** level for level in range(1, depth + 1)))
    assert all(len(code.local(node)[0]) == code.units_each for node in range(code.n_workers))
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(code.k, 5))
    for _ in range(5):
        dead = {
            int(child)
            for parent in (None, *range(code.n_workers))
            for child in rng.permutation(code.children(parent))[:s]
        }
        total = code.aggregate(gradients, dead)
        np.testing.assert_allclose(total, gradients.sum(axis=0), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("path", "vector"),
    [
        ((0,), {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5}),
        ((0, 0), {4: 1 / 4, 5: 1 / 2, 6: 1, 7: 1}),
        ((0, 1), {6: 1, 7: 1, 8: -1, 9: -1}),
        ((1, 2), {9: 1 / 2, 10: -1 / 2, 13: -1, 14: -1}),
        ((2, 2), {4: 1 / 4, 10: 1 / 2, 13: 1, 14: 1}),
    ],
)
def test_worked_units(path, vector):
    code = example()
    node = None
    for step in path:
        node = code.children(node)[step]
    units, weights = code.local(node)
    assert dict(zip(units.tolist(), weights.tolist(), strict=True)) == pytest.approx(vector)


def test_worked_sum_with_dead_nodes():
    code = example()
    dead = {0, code.children(1)[1], code.children(2)[0]}
    assert float(code.aggregate(np.arange(1.0, 16.0), dead)) == pytest.approx(120)


def test_every_set_of_dead_nodes_of_a_small_tree():
    code = CodedReduceCode.tree(3, 2, stragglers=1, inner="cyclic")
    gradients = np.random.default_rng(1).normal(size=(code.k, 2))
    for dead in (set(d) for size in range(5) for d in combinations(range(code.n_workers), size)):
        complete = [node for node in range(3) if node not in dead and len(dead & set(code.children(node))) <= 1]
        if len(complete) >= 2:
            np.testing.assert_allclose(code.aggregate(gradients, dead), gradients.sum(axis=0), atol=1e-8)
        else:
            with pytest.raises(NotDecodableError, match="wait for more children"):
                code.aggregate(gradients, dead)


def test_who_can_send_is_who_does_when_nodes_are_dead():
    code = CodedReduceCode.tree(2, 3, stragglers=1)
    rng = np.random.default_rng(4)
    for _ in range(100):
        arrived = set(np.flatnonzero(rng.random(code.n_workers) < 0.6).tolist())
        able = code.sending(arrived)
        for node in range(code.n_workers):
            suffice = not code.children(node) or len(set(code.children(node)) & set(able)) >= 1
            assert (node in able) == (node in arrived and suffice)
        gradients = rng.normal(size=(code.k, 2))
        if set(able) & set(code.children(None)):
            np.testing.assert_allclose(code.aggregate(gradients, set(range(14)) - arrived), gradients.sum(axis=0))
        else:
            with pytest.raises(NotDecodableError):
                code.aggregate(gradients, set(range(14)) - arrived)
    with pytest.raises(InputError, match="message id"):
        code.sending([14])


def test_family_relations():
    code = CodedReduceCode.tree(2, 3, stragglers=1)
    assert code.levels() == (range(2), range(2, 6), range(6, 14))
    assert code.children(None) == range(2)
    for node in range(14):
        assert node in code.children(code.parent(node))
    assert [len(code.children(node)) for node in (0, 5, 6, 13)] == [2, 2, 0, 0]
    line = CodedReduceCode.tree(1, 3, stragglers=0)
    assert (line.levels(), line.children(0), line.parent(2)) == ((range(1), range(1, 2), range(2, 3)), range(1, 2), 1)
    np.testing.assert_allclose(line.aggregate(np.eye(line.k)), np.ones(line.k))


def test_a_runtime_by_hand():
    code = example()
    gradients = np.random.default_rng(2).normal(size=(code.k, 3))
    sent = {}
    for node in code.levels()[1]:
        units, weights = code.local(node)
        sent[node] = weights @ gradients[units]
    for node in code.levels()[0]:
        tracker = code.child_tracker(node)
        first, second, third = code.children(node)
        assert not tracker.add(third)
        assert not tracker.add(0)
        assert tracker.missing()
        assert tracker.add(first)
        units, weights = code.local(node)
        combined = code.combine(node, [third, first])
        assert set(combined) == {first, third}
        sent[node] = weights @ gradients[units] + sum(a * sent[child] for child, a in combined.items())
        np.testing.assert_allclose(sent[node], code.row(node)[1] @ gradients[list(code.row(node)[0])])
        assert second not in combined
    answer = sum(a * sent[child] for child, a in code.combine(None, [1, 2]).items())
    np.testing.assert_allclose(answer, gradients.sum(axis=0))
    with pytest.raises(InputError, match=r"node 0 has the children range\(3, 6\), got 7"):
        code.combine(0, [3, 7])
    with pytest.raises(NotDecodableError) as caught:
        code.combine(0, [3])
    assert set(caught.value.missing) == set(code.row(0)[0][code.units_each :])


def test_as_a_flat_code_only_the_drivers_children_count():
    code = example()
    gradients = np.random.default_rng(3).normal(size=(code.k, 3))
    sent = code.encode(gradients)
    for arrived in (s for size in range(4) for s in combinations(range(3), size)):
        decodable = least_error(code, arrived) < 1e-12
        assert fed(code, arrived).decodable == fed(code, (*arrived, 3, 4, 11)).decodable == decodable
        weights = code.weights((*arrived, 5))
        assert weights.error == pytest.approx(least_error(code, arrived), abs=1e-9)
        assert np.linalg.norm(weights.a @ code.generator - weights.alpha) < 1e-9
        if decodable:
            np.testing.assert_allclose(code.decode({i: sent[i] for i in arrived})[0], gradients.sum(axis=0))
    assert fed(code, [0]).missing()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.data())
def test_any_tree_with_at_most_s_dead_children_a_parent(n, depth, data):
    s = data.draw(st.integers(0, n - 1))
    code = CodedReduceCode.tree(n, depth, stragglers=s)
    parents = [None, *(node for node in range(code.n_workers) if code.children(node))]
    dead = set()
    for parent in parents[:6]:
        dead |= data.draw(st.sets(st.sampled_from(list(code.children(parent))), max_size=s))
    gradients = np.random.default_rng(n).normal(size=(code.k, 2))
    np.testing.assert_allclose(code.aggregate(gradients, dead), gradients.sum(axis=0), rtol=0, atol=1e-5)


def test_manifest_carries_the_inner_code():
    for code in (example(), CodedReduceCode.tree(4, 2, stragglers=1), CodedReduceCode.tree(5, 2, stragglers=2)):
        again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
        np.testing.assert_array_equal(again.generator, code.generator)
        assert (repr(again), again.depth, type(again.inner)) == (repr(code), code.depth, type(code.inner))


def test_depth_by_default():
    shapes = {
        n: (get("coded-reduce", n_workers=n).branching, get("coded-reduce", n_workers=n).depth)
        for n in (1, 2, 6, 12, 16, 20, 30)
    }
    assert shapes == {1: (1, 1), 2: (2, 1), 6: (2, 2), 12: (3, 2), 16: (16, 1), 20: (4, 2), 30: (5, 2)}
    assert get("coded-reduce", n_workers=39, depth=3).branching == 3
    assert get("coded-reduce", k=24).k == 24


def test_refusals():
    for name, value in product(("branching", "depth"), (0, 1.5)):
        with pytest.raises(InputError, match=f"{name} must be an integer of at least 1"):
            CodedReduceCode.tree(**{"branching": 3, "depth": 2, name: value})
    with pytest.raises(InputError, match=r"n_workers must be .* got 13: use 12 or 20"):
        CodedReduceCode(13, depth=2)
    with pytest.raises(InputError, match="k must be the 15 units"):
        CodedReduceCode(12, 14, stragglers=1)
    with pytest.raises(InputError, match="stragglers must be less than the branching=3, got 3"):
        CodedReduceCode.tree(3, stragglers=3)
    with pytest.raises(InputError, match="inner must be a code with n_workers=k=4"):
        CodedReduceCode.tree(4, stragglers=1, inner=PAPER)
    with pytest.raises(InputError, match="inner must be 'auto'"):
        CodedReduceCode.tree(4, stragglers=1, inner="mds")
