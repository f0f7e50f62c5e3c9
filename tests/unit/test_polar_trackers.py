"""Decodability tests of polar codes against their definitions, by brute force and by law."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from arrival_laws import verdicts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.polar.code import PolarCode
from serverless_gc.codes.polar.unknowns import PRIME, NullSpace, expand, rank_and_kernel, undetermined_positions
from serverless_gc.errors import InputError

MODES = ("sc", "peel", "rank")


def decodable(code, subset):
    tracker = code.tracker()
    for worker in subset:
        tracker.add(worker)
    return tracker.decodable


def genie(v):
    """The sequential test as it is defined."""
    if len(v) == 1:
        return v
    half = len(v) // 2
    a, b = v[:half], v[half:]
    both = [p and q for p, q in zip(a, b, strict=True)]
    either = [p or q for p, q in zip(a, b, strict=True)]
    return genie(both) + genie(either)


def peeled(code, subset):
    """Peeling as it is defined: apply the three rules anywhere until nothing changes."""
    n, info = code.length, set(code.information_set)
    q = n.bit_length() - 1
    offset = 0 if code.shortening == "shorten" else n - code.n_workers
    known = {(0, i) for i in range(n) if i not in info}
    known |= {(q, j) for j in range(offset + code.n_workers, n)} | {(q, offset + w) for w in subset}
    changed = True
    while changed:
        before = len(known)
        for level in range(q):
            half = 1 << level
            for t0 in (t for t in range(n) if not t & half):
                u0, x0, u1, x1 = (level, t0), (level + 1, t0), (level, t0 + half), (level + 1, t0 + half)
                if u1 in known or x1 in known or (u0 in known and x0 in known):
                    known |= {u1, x1}
                    if u0 in known or x0 in known:
                        known |= {u0, x0}
        changed = len(known) > before
    return all((0, i) in known for i in info)


def exact_rank(matrix):
    rows = [[Fraction(int(v)) for v in row] for row in matrix]
    rank = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((r for r in range(rank, len(rows)) if rows[r][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for r in range(rank + 1, len(rows)):
            factor = rows[r][column] / rows[rank][column]
            rows[r] = [x - factor * y for x, y in zip(rows[r], rows[rank], strict=True)]
        rank += 1
    return rank


def definition(code, subset):
    if code.mode == "rank":
        return exact_rank(code.generator[list(subset)]) == code.k
    if code.mode == "peel":
        return peeled(code, subset)
    offset = 0 if code.shortening == "shorten" else code.length - code.n_workers
    v = [j - offset in subset or j >= offset + code.n_workers for j in range(code.length)]
    recovered = genie(v)
    return all(recovered[i] for i in code.information_set)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (4, 2), (5, 3), (6, 4), (7, 4), (8, 3), (8, 4), (8, 6)])
def test_every_subset_matches_the_definition(n, k, mode):
    code = PolarCode(n, k, mode=mode)
    for size in range(n + 1):
        for subset in itertools.combinations(range(n), size):
            assert decodable(code, subset) == definition(code, subset), subset


@pytest.mark.parametrize("kwargs", [{"shortening": "puncture"}, {"design": "reed-muller"}, {"kernel": "hadamard"}])
@pytest.mark.parametrize("mode", ["sc", "rank"])
def test_every_subset_of_a_cut_code_matches_the_definition(mode, kwargs):
    code = PolarCode(7, 4, mode=mode, **kwargs)
    for size in range(8):
        for subset in itertools.combinations(range(7), size):
            assert decodable(code, subset) == definition(code, subset), subset


@pytest.mark.parametrize(("k", "mode"), [(8, "sc"), (8, "peel"), (12, "sc"), (12, "peel"), (11, "rank"), (5, "rank")])
def test_sixteen_workers_all_subsets(k, mode):
    """Mean number of results needed over all orders, from the share of decodable subsets of each size."""
    code = PolarCode(16, k, mode=mode, design="reed-muller" if mode == "rank" else "auto")
    layout = code._layout
    counts = dict.fromkeys(range(17), 0)
    for mask in range(1 << 16):
        size = mask.bit_count()
        if size < k:
            continue
        if mode == "sc":
            counts[size] += layout.recoverable(mask) & layout.info_mask == layout.info_mask
        elif mask % 37 == 0:
            subset = [w for w in range(16) if mask >> w & 1]
            assert decodable(code, subset) == definition(code, subset)
    if mode == "sc":
        shares = [counts[s] / len(list(itertools.combinations(range(16), s))) for s in range(17)]
        assert sum(1 - share for share in shares) == pytest.approx({8: 9.47, 12: 12.85}[k], abs=0.01)


@pytest.mark.parametrize(
    ("n", "k", "mode", "expected"),
    [
        (8, 4, "sc", {4: 48, 5: 56, 6: 28, 7: 8, 8: 1}),
        (8, 4, "peel", {4: 52, 5: 56, 6: 28, 7: 8, 8: 1}),
        (8, 4, "rank", {4: 58, 5: 56, 6: 28, 7: 8, 8: 1}),
        *[(8, 6, mode, {6: 16, 7: 8, 8: 1}) for mode in MODES],
        (8, 5, "peel", {5: 32, 6: 24, 7: 8, 8: 1}),
        (8, 3, "peel", {3: 32, 4: 64, 5: 56, 6: 28, 7: 8, 8: 1}),
        (4, 2, "peel", {2: 4, 3: 4, 4: 1}),
        (4, 3, "rank", {3: 4, 4: 1}),
        (5, 3, "peel", {3: 6, 4: 5, 5: 1}),
        (6, 4, "peel", {4: 9, 5: 6, 6: 1}),
        (7, 4, "peel", {4: 20, 5: 18, 6: 7, 7: 1}),
        (10, 8, "peel", {8: 25, 9: 10, 10: 1}),
    ],
)
def test_numbers_of_decodable_subsets(n, k, mode, expected):
    code = PolarCode(n, k, mode=mode)
    counts = {
        size: sum(decodable(code, subset) for subset in itertools.combinations(range(n), size)) for size in range(n + 1)
    }
    assert {size: count for size, count in counts.items() if count} == expected


def test_sets_that_separate_the_three_tests():
    sc, peel, rank = (PolarCode(8, 4, mode=mode) for mode in MODES)
    peel_only, rank_only = set(), set()
    for subset in itertools.combinations(range(8), 4):
        a, b, c = (decodable(code, subset) for code in (sc, peel, rank))
        assert a <= b <= c
        if b and not a:
            peel_only.add(subset)
        if c and not b:
            rank_only.add(subset)
    assert peel_only == {(0, 5, 6, 7), (1, 4, 6, 7), (2, 4, 5, 7), (3, 4, 5, 6)}
    assert rank_only == {(0, 1, 2, 7), (0, 1, 3, 6), (0, 2, 3, 5), (0, 3, 5, 6), (1, 2, 3, 4), (1, 2, 4, 7)}


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (range(8), (5, 5, 5)),
        (range(7, -1, -1), (5, 5, 5)),
        ((0, 5, 6, 7, 1, 2, 3, 4), (5, 4, 4)),
        ((0, 1, 2, 7, 3, 4, 5, 6), (5, 5, 4)),
        ((0, 3, 5, 6, 1, 2, 4, 7), (5, 5, 4)),
    ],
)
def test_arrival_traces(order, expected):
    for mode, threshold in zip(MODES, expected, strict=True):
        tracker = PolarCode(8, 4, mode=mode).tracker()
        verdicts = [bool(tracker.add(worker)) for worker in order]
        assert verdicts.index(True) + 1 == threshold
        assert all(verdicts[threshold - 1 :])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_laws(mode, kernel, data):
    n = data.draw(st.integers(1, 40))
    code = PolarCode(n, data.draw(st.integers(1, n)), mode=mode, kernel=kernel)
    order = data.draw(st.permutations(range(n)))
    verdicts = verdicts_of(code, order)
    cut = data.draw(st.integers(0, n))
    assert decodable(code, sorted(order[:cut])) == (cut > 0 and verdicts[cut - 1])


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_three_tests_are_nested(data):
    q = data.draw(st.integers(3, 7))
    k = data.draw(st.integers(1, 2**q))
    codes = [PolarCode(2**q, k, mode=mode) for mode in MODES]
    subset = data.draw(st.permutations(range(2**q)))[: data.draw(st.integers(k, 2**q))]
    a, b, c = (decodable(code, subset) for code in codes)
    assert a <= b <= c


@pytest.mark.parametrize("mode", MODES)
def test_guaranteed_threshold_is_tight(mode):
    """The codeword of the weakest data index vanishes everywhere else: losing its support is fatal."""
    for n, k in ((16, 8), (64, 48), (23, 11)):
        code = PolarCode(n, k, mode=mode, shortening="shorten")
        weakest = min(code.information_set, key=int.bit_count)
        survivors = [j for j in range(n) if j & weakest != j]
        assert len(survivors) == code.guaranteed_threshold - 1
        assert not decodable(code, survivors)


@pytest.mark.parametrize(
    ("n", "k", "mode", "mean", "table_error", "trials"),
    [
        (32, 16, "sc", 19.1, 0.05, 600),
        (64, 48, "sc", 52.8, 0.05, 600),
        (64, 48, "peel", 52.2, 0.05, 400),
        (64, 32, "rank", 35.9, 0.05, 400),
        (64, 56, "rank", 57.1, 0.05, 400),
        (256, 128, "sc", 156.1, 0.3, 300),
        (256, 192, "peel", 208.6, 0.5, 150),
        (256, 192, "rank", 202.0, 1.0, 60),
    ],
)
def test_average_thresholds(n, k, mode, mean, table_error, trials):
    code = PolarCode(n, k, mode=mode)
    rng = np.random.default_rng(7)
    needed = []
    for _ in range(trials):
        tracker = code.tracker()
        for count, worker in enumerate(rng.permutation(n).tolist(), 1):
            if tracker.add(worker):
                needed.append(count)
                break
    error = float(np.hypot(np.std(needed) / np.sqrt(trials), table_error))
    assert abs(np.mean(needed) - mean) < 3 * error


def test_reed_muller_sets_need_exactly_k_most_of_the_time():
    rng = np.random.default_rng(5)
    for n, k, low, trials in ((256, 163, 0.93, 60), (256, 192, 0.6, 60), (1024, 768, 0.98, 12)):
        code = PolarCode(n, k, design="reed-muller")
        good = sum(decodable(code, rng.permutation(n)[:k].tolist()) for _ in range(trials))
        assert good >= low * trials, (n, k, good)


def test_missing_blocks_shrink_to_none():
    for mode in MODES:
        for systematic in (True, False):
            code = PolarCode(16, 8, mode=mode, systematic=systematic)
            tracker = code.tracker()
            assert tracker.missing() == tuple(range(8))
            previous = set(range(8))
            for worker in np.random.default_rng(2).permutation(16).tolist():
                verdict = tracker.add(worker)
                missing = set(tracker.missing())
                assert missing <= previous
                assert (not missing) == bool(verdict) == tracker.decodable
                assert set(verdict.missing) == missing
                previous = missing


@pytest.mark.parametrize("systematic", [True, False])
@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
def test_missing_blocks_of_the_rank_test_are_exact(kernel, systematic):
    code = PolarCode(8, 4, kernel=kernel, systematic=systematic)
    g = code.generator
    for size in range(9):
        for subset in itertools.combinations(range(8), size):
            rows = g[list(subset)]
            rank = np.linalg.matrix_rank(rows) if size else 0
            open_ = [t for t in range(4) if np.linalg.matrix_rank(np.vstack([rows, np.eye(4)[t : t + 1]])) > rank]
            assert set(range(4)) - set(open_) == set(code.known_blocks(subset))


def test_systematic_blocks_are_known_as_they_arrive():
    code = PolarCode(64, 48, mode="sc")
    workers = [w for w in range(64) if code.source_of(w) is not None][:5]
    assert code.known_blocks(workers) == tuple(sorted(code.source_of(w) for w in workers))


def test_unknown_messages_are_refused():
    for mode in MODES:
        tracker = PolarCode(8, 4, mode=mode).tracker()
        for bad in (-1, 8):
            with pytest.raises(InputError, match=r"0\.\.7"):
                tracker.add(bad)


def test_numpy_ids_are_welcome():
    tracker = PolarCode(128, 64).tracker()
    for worker in np.arange(127, -1, -1):
        tracker.add(worker)
    assert tracker.decodable


@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_modular_rank_and_kernel(rows, columns, seed):
    rng = np.random.default_rng(seed)
    m = rng.integers(-2, 3, size=(rows, columns)) * (rng.random((rows, columns)) < 0.5)
    rank, kernel = rank_and_kernel(m)
    assert rank == exact_rank(m)
    assert kernel.shape == (columns, columns - rank)
    assert not np.any(m @ kernel % PRIME)


@pytest.mark.parametrize("n_arrived", [20, 32, 36])
def test_null_space_vanishes_on_arrivals_and_shrinks(n_arrived):
    code = PolarCode(64, 32)
    layout = code._layout
    order = np.random.default_rng(1).permutation(64).tolist()
    null = NullSpace(layout, code._mask(order[:n_arrived]))
    g = code.generator
    for count in range(n_arrived, 64):
        assert null.dimension == 32 - np.linalg.matrix_rank(g[order[:count]])
        null.add(order[count])
    assert null.dimension == 0


def test_exact_arithmetic_modulo_the_prime_agrees_with_float64():
    from serverless_gc.codes.polar.unknowns import Expansion

    code = PolarCode(64, 40, design="reed-muller")
    present = code._mask(np.random.default_rng(4).permutation(64)[:40].tolist())
    plain = expand(code._layout, present)
    modular = Expansion(code._layout, present, modular=True)
    assert plain.exact
    assert plain.symbols > 0
    np.testing.assert_array_equal(plain.values.astype(np.int64) % PRIME, modular.values % PRIME)
    np.testing.assert_array_equal(plain.equations.astype(np.int64) % PRIME, modular.equations % PRIME)
    assert len(plain.checks) == len(plain.equations)
    assert undetermined_positions(code._layout, present).shape == (64,)
