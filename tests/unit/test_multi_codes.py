"""Multi-message codes: orders of computation, decodable states, values, refusals."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import available, from_manifest, get
from serverless_gc.codes.gradient import GradientTracker
from serverless_gc.codes.linear import as_linear
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import InputError, NotDecodableError

SUMS = [
    ("cpgc", 4, 4, {}),
    ("cpgc", 5, 5, {"sizes": (1, 1, 1)}),
    ("cpgc", 6, 6, {"sizes": (1, 2, 3)}),
    ("gc-mmc", 6, 6, {"clusters": 2, "r": 3}),
    ("gc-mmc", 4, 8, {"clusters": 1, "r": 4}),
    ("gc-mmc", 4, 10, {"clusters": 2, "r": 2}),
    ("gc-mmc", 7, 7, {}),
]
ids = [f"{name}-{n}-{k}-{params}" for name, n, k, params in SUMS]


def prefixes(code):
    """Yield every state of the workers: how many messages of each are here."""
    return product(*(range(len(code.placement(i)) + 1) for i in range(code.n_workers)))


def messages_of(code, state):
    return [m for worker, done in enumerate(state) for m in code.placement(worker)[:done]]


def decodable_states(code, total):
    states = [s for s in prefixes(code) if sum(s) == total]
    good = []
    for state in states:
        tracker = code.tracker()
        for message in messages_of(code, state):
            tracker.add(message)
        if tracker.decodable:
            good.append(state)
    return good, len(states)


# -- worked values ---------------------------------------------------------------------------------------


def test_coded_partial_gradients_minimal_instance():
    code = get("cpgc", n_workers=4)
    assert [tuple(np.flatnonzero(code.generator[m])) for m in code.placement(2)] == [(2,), (0, 3)]
    good, total = decodable_states(code, 3)
    assert (set(good), total) == ({(0, 0, 1, 2), (0, 1, 2, 0), (1, 2, 0, 0), (2, 0, 0, 1)}, 16)
    counts = {m: (len(decodable_states(code, m)[0]), decodable_states(code, m)[1]) for m in range(9)}
    assert counts[4] == (15, 19)
    assert all(good == all_ for m, (good, all_) in counts.items() if m >= 5)
    assert all(good == 0 for m, (good, _) in counts.items() if m < 3)


@pytest.mark.parametrize("code", [get("uc-mmc", k=4, r=2), get("cpgc", k=4, sizes=(1, 1))], ids=["blocks", "sum"])
def test_uncoded_counts_of_decodable_states(code):
    counts = {m: (len(decodable_states(code, m)[0]), decodable_states(code, m)[1]) for m in range(9)}
    assert (counts[3], counts[4], counts[5]) == ((0, 16), (7, 19), (12, 16))
    assert all(good == all_ for m, (good, all_) in counts.items() if m >= 6)


# -- order of computation --------------------------------------------------------------------------------


@given(k=st.integers(1, 12), data=st.data())
@settings(max_examples=25, deadline=None)
def test_cyclic_order_gives_each_block_each_place_once(k, data):
    r = data.draw(st.integers(1, k))
    placed = [get("uc-mmc", k=k, r=r).placement(worker) for worker in range(k)]
    for place in range(r):
        assert sorted(row[place] for row in placed) == list(range(k))
    assert all(len(set(row)) == r for row in placed)


@given(k=st.integers(1, 10), data=st.data())
@settings(max_examples=25, deadline=None)
def test_sums_walk_through_consecutive_partitions_once(k, data):
    sizes = [1]
    while sum(sizes) < k and data.draw(st.booleans()):
        sizes.append(data.draw(st.integers(1, k - sum(sizes))))
    code = get("cpgc", k=k, sizes=sizes)
    for worker in range(k):
        walked = [p for m in code.placement(worker) for p in code.row(m)[0]]
        assert walked == [(worker + step) % k for step in range(sum(sizes))]
    firsts = [code.row(code.placement(worker)[0])[0] for worker in range(k)]
    assert sorted(firsts) == [(p,) for p in range(k)]


@pytest.mark.parametrize(("n", "k", "clusters"), [(6, 6, 2), (6, 12, 3), (4, 10, 2), (10, 10, 2)])
def test_levels_extend_one_another_in_cyclic_order(n, k, clusters):
    code = get("gc-mmc", n_workers=n, k=k, clusters=clusters, r=2)
    share, ell = k // clusters, n // clusters
    for worker in range(n):
        rows = [code.row(m)[0] for m in code.placement(worker)]
        assert rows[1][: len(rows[0])] == rows[0]
        own = range(worker // ell * share, (worker // ell + 1) * share)
        assert set(rows[1]) <= set(own)
    firsts = [p for worker in range(n) for p in code.row(code.placement(worker)[0])[0]]
    assert sorted(firsts) == list(range(k))


@given(n=st.integers(1, 30), k=st.integers(1, 8), r=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_lagrange_points_are_used_once_each_and_spread(n, k, r):
    if r > k or n * r < 2 * k - 1:
        return
    code = get("lcc-mmc", n_workers=n, k=k, r=r)
    points = [code.point(m) for m in range(n * r)]
    assert sorted(points) == list(range(n * r))
    for place in range(r):  # messages of one place are spread over the whole interval
        assert sorted(code.point(code.placement(i)[place]) for i in range(n)) == [i * r + place for i in range(n)]
    step = max(1, n // r)
    assert [code.point(m) for m in code.placement(0)] == [(j * step) % n * r + j for j in range(r)]


# -- trackers against the generic test -------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n", "k", "params"), SUMS, ids=ids)
def test_tracker_equals_the_running_error_in_every_state(name, n, k, params):
    code = get(name, n_workers=n, k=k, **params)
    states = list(prefixes(code))
    for state in states[:: max(1, len(states) // 400)]:
        arrived = messages_of(code, state)
        fast, slow = code.tracker(), GradientTracker(code.generator)
        for message in arrived:
            fast.add(message)
            slow.add(message)
        rows = code.generator[arrived]
        determined = bool(arrived) and np.allclose(np.linalg.pinv(rows) @ rows @ np.ones(k), 1, atol=1e-7)
        assert fast.decodable == slow.decodable == determined
        assert fast.missing() == slow.missing()


def test_any_arrivals_of_one_level_finish_a_cluster():
    code = get("gc-mmc", n_workers=5, k=5, clusters=1, r=5)
    for level in range(1, 6):
        for workers in combinations(range(5), 5 - level + 1):
            exact, counted = code.tracker(), code.level_tracker()
            verdicts = [(bool(exact.add(m)), bool(counted.add(m))) for w in workers for m in [w * 5 + level - 1]]
            assert verdicts[-1] == (True, True)
            assert (False, False) in verdicts or len(verdicts) == 1


def test_counting_levels_never_closes_before_the_exact_test():
    code = get("gc-mmc", n_workers=6, k=6, clusters=2, r=3)
    for state in list(prefixes(code))[::7]:
        exact, counted = code.tracker(), code.level_tracker()
        for message in messages_of(code, state):
            exact.add(message)
            counted.add(message)
        assert exact.decodable >= counted.decodable
        assert set(exact.missing()) <= set(counted.missing())


@pytest.mark.parametrize("name", ["uc-mmc", "cpgc", "gc-mmc", "lcc-mmc"])
def test_trackers_are_idempotent_monotone_and_independent_of_order(name):
    code = get(name, n_workers=6)
    rng = np.random.default_rng(3)
    arrived = rng.permutation(code.n_messages).tolist()
    first, seen = code.tracker(), []
    for message in arrived:
        seen.append(bool(first.add(message)))
        assert bool(first.add(message)) == seen[-1]
    assert seen == sorted(seen)
    assert seen[-1]
    needed = arrived[: seen.index(True) + 1]
    again = code.tracker()
    verdicts = [again.add(message) for message in sorted(needed)]
    assert verdicts[-1]
    assert again.missing() == verdicts[-1].missing == ()
    for wrong in (-1, code.n_messages):
        with pytest.raises(InputError, match="message id"):
            again.add(wrong)


# -- values ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n", "k", "params"), SUMS, ids=ids)
def test_sums_from_the_first_decodable_messages(name, n, k, params):
    code = get(name, n_workers=n, k=k, **params)
    rng = np.random.default_rng(1)
    parts = rng.normal(size=(k, 3, 2))
    sent = code.encode(parts)
    for _ in range(10):
        speed = rng.exponential(size=n)
        order = sorted((speed[w] * (j + 1), m) for w in range(n) for j, m in enumerate(code.placement(w)))
        tracker, values = code.tracker(), {}
        for _, message in order:
            values[message] = sent[message]
            if tracker.add(message):
                break
        total, certificate = code.decode(values)
        np.testing.assert_allclose(total, parts.sum(axis=0), rtol=1e-9, atol=1e-9)
        assert certificate.error <= 1e-12 * k
    with pytest.raises(NotDecodableError):
        code.decode({0: sent[0]})


def test_uncoded_blocks_are_copied():
    code = get("uc-mmc", k=5, r=3)
    blocks = np.arange(10.0).reshape(5, 2)
    values = {m: code.encode(blocks)[m] for m in (3, 1, 0, 2, 4)}
    decoded, certificate = code.decode(values)
    np.testing.assert_array_equal(decoded, blocks)
    assert (certificate.method, code.certify(range(5)).amplification) == ("copy", 1.0)
    assert code.guaranteed_threshold == 3
    assert as_linear(code).n_messages == 5
    with pytest.raises(NotDecodableError) as caught:
        code.decode({m: values[m] for m in (0, 1, 3)})
    assert caught.value.missing == (2, 4)


@pytest.mark.parametrize(("k", "r", "degree"), [(3, 2, 2), (4, 3, 2), (2, 2, 3), (5, 5, 1)])
def test_lagrange_sums_a_polynomial_from_any_threshold_of_messages(k, r, degree):
    code = get("lcc-mmc", n_workers=8, k=k, r=r, degree=degree)
    assert code.threshold == (k - 1) * degree + 1
    rng = np.random.default_rng(0)
    blocks = rng.normal(size=(k, 4))
    sent = code.encode(blocks) ** degree
    for extra in (0, 2):
        arrived = rng.permutation(code.n_messages)[: code.threshold + extra]
        total, certificate = code.decode({int(i): sent[i] for i in arrived})
        np.testing.assert_allclose(total, (blocks**degree).sum(axis=0), rtol=1e-7)
        assert certificate == code.certify(arrived.tolist())
    with pytest.raises(NotDecodableError, match=f"{code.threshold} messages are needed"):
        code.decode({int(i): sent[i] for i in arrived[: code.threshold - 1]})


def test_lagrange_gradient_of_least_squares():
    """The example of single-message coded regression: X_0 = [[1, 2]], X_1 = [[3, 4]], w = (1, 1)."""
    blocks, w = np.array([[[1.0, 2.0]], [[3.0, 4.0]]]), np.ones(2)
    code = get("lcc-mmc", n_workers=5, k=2, r=1)
    coded = code.encode(blocks)
    np.testing.assert_allclose(code.generator[0], [1.172498512, -0.172498512], atol=1e-9)
    sent = {i: coded[i].T @ (coded[i] @ w) for i in range(5)}
    for arrived in combinations(range(5), 3):
        total, _ = code.decode({i: sent[i] for i in arrived})
        np.testing.assert_allclose(total, [24, 34], rtol=1e-12)
    np.testing.assert_allclose(code.weights([0, 2, 4]), [0.5527864045, 0.8944271910, 0.5527864045], atol=1e-9)
    np.testing.assert_allclose(code.weights([0, 1, 2]), [2.8944271910, -4.6832815730, 3.7888543820], atol=1e-8)
    assert code.certify([0, 1, 2]).amplification == pytest.approx(6.683282, abs=1e-6)


def test_lagrange_accuracy_depends_on_the_surplus():
    """Error amplification for n=20, r=3, K=10: about 3e2 at exactly T messages, about 5 at 1.3 T (medians)."""
    code = get("lcc-mmc", n_workers=20, k=10, r=3)
    rng = np.random.default_rng(2)
    growth = {19: [], 25: []}
    for _ in range(60):
        times = np.outer(0.01 + rng.exponential(0.1, 20), np.arange(1, 4)).ravel()
        order = np.argsort(times).tolist()
        for count, found in growth.items():
            found.append(code.certify(order[:count]).amplification)
    assert 60 < np.median(growth[19]) < 2000
    assert 2 < np.median(growth[25]) < 15


# -- names, manifests, refusals --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["uc-mmc", "cpgc", "gc-mmc", "lcc-mmc"])
@pytest.mark.parametrize("sizes", [{}, {"n_workers": 5}, {"k": 4}, {"n_workers": 1}])
def test_names_have_defaults_and_manifests_rebuild_the_code(name, sizes):
    code = get(name, **sizes)
    info = next(i for i in available() if i.name == name)
    assert (code.name, code.kind, code.publish, info.kind) == (name, "multi-message", 1, "multi-message")
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert repr(again) == repr(code)
    np.testing.assert_array_equal(again.generator, code.generator)
    assert [again.placement(w) for w in range(code.n_workers)] == [code.placement(w) for w in range(code.n_workers)]
    assert get(name, n_workers=code.n_workers, k=code.k, **code.params()).params() == code.params()
    for worker in (-1, code.n_workers):
        with pytest.raises(InputError, match="worker must be"):
            code.placement(worker)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("uc-mmc", {"k": 4, "r": 0}, "r must be an integer of at least 1, got 0"),
        ("uc-mmc", {"k": 4, "r": 5}, "r must be at most k=4, got 5"),
        ("uc-mmc", {"k": 4, "r": 1.5}, "r must be an integer"),
        ("uc-mmc", {"n_workers": 4, "k": 3}, "n_workers must equal k=3"),
        ("cpgc", {"n_workers": 4, "k": 3}, "n_workers must equal k=3"),
        ("cpgc", {"k": 4, "sizes": ()}, "sizes must begin with 1"),
        ("cpgc", {"k": 4, "sizes": (2, 1)}, "sizes must begin with 1"),
        ("cpgc", {"k": 4, "sizes": (1, 0)}, "sizes must be an integer of at least 1, got 0"),
        ("cpgc", {"k": 4, "sizes": (1, 2, 2)}, r"sum\(sizes\) must be at most k=4, got 5"),
        ("gc-mmc", {"n_workers": 6, "clusters": 4}, "clusters must divide n_workers=6, got 4"),
        ("gc-mmc", {"n_workers": 6, "k": 7, "clusters": 2}, "clusters must divide k=7, got 2"),
        ("gc-mmc", {"n_workers": 6, "k": 2, "clusters": 2}, "k must be at least n_workers=6"),
        ("gc-mmc", {"n_workers": 6, "clusters": 2, "r": 4}, "r must be at most n_workers / clusters=3, got 4"),
        ("gc-mmc", {"n_workers": 6, "clusters": 2, "r": 0}, "r must be an integer of at least 1"),
        ("gc-mmc", {"n_workers": 6, "clusters": 0}, "clusters must be an integer of at least 1"),
        ("gc-mmc", {"n_workers": 6, "seed": -1}, "seed must be an integer of at least 0"),
        ("lcc-mmc", {"n_workers": 6, "k": 6, "r": 1}, "are fewer than the 11"),
        ("lcc-mmc", {"n_workers": 6, "k": 3, "r": 4}, "r must be at most k=3, got 4"),
        ("lcc-mmc", {"n_workers": 6, "k": 3, "r": 0}, "r must be an integer of at least 1"),
        ("lcc-mmc", {"n_workers": 6, "k": 3, "degree": 0}, "degree must be an integer of at least 1"),
        ("lcc-mmc", {"n_workers": 60, "k": 21}, "k must be at most 20, got 21"),
    ],
)
def test_refusals(name, given, words):
    with pytest.raises(InputError, match=words):
        get(name, **given)


def test_many_blocks_on_one_polynomial_are_warned_of_or_asked_for():
    code = get("lcc-mmc", n_workers=30, k=12)
    assert "k=12" in code.certify(range(code.n_messages)).warning
    assert get("lcc-mmc", n_workers=60, k=21, allow_unstable=True).threshold == 41
