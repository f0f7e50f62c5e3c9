"""LDPC codes: graphs, encoding, decoding as far as it goes, moment encoding, density evolution."""

import json

import numpy as np
import pytest

from serverless_gc.codes import from_manifest, get
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.peeling.density import density_evolution, erasure_threshold
from serverless_gc.codes.peeling.ldpc import LDPCCode
from serverless_gc.codes.peeling.ldpc_graph import balanced_rows
from serverless_gc.codes.peeling.moment import deinterleave, interleave, partial_gradient
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

TOY = [(0, 1, 3), (1, 2, 3, 4), (0, 2, 4, 5)]


def parity_check(code):
    h = np.zeros((code.n_workers - code.k, code.n_workers))
    for row, members in enumerate(code.checks):
        h[row, list(members)] = 1
    return h


def test_toy_code():
    code = LDPCCode(6, 3, checks=TOY)
    assert code.encode(np.array([1.0, 2.0, 3.0])).tolist() == [1, 2, 3, -3, -2, -2]
    assert code.checks == tuple(TOY)
    assert [code.source_of(i) for i in range(6)] == [0, 1, 2, None, None, None]
    with pytest.raises(InputError, match="message id"):
        code.source_of(6)


@pytest.mark.parametrize(("n", "k", "weight"), [(30, 20, 3), (40, 10, 5), (12, 8, 4), (1000, 750, 3), (9, 4, 1)])
def test_staircase(n, k, weight):
    code = LDPCCode(n, k, column_weight=weight, seed=3)
    h = parity_check(code)
    assert (h[:, :k].sum(axis=0) == weight).all()
    loads = h[:, :k].sum(axis=1)
    assert loads.max() - loads.min() <= 1
    assert np.array_equal(h[:, k:], np.eye(n - k) + np.eye(n - k, k=-1))
    g = code.generator
    assert np.array_equal(g[:k], np.eye(k))
    assert np.abs(h @ g).max() < 1e-12
    np.testing.assert_allclose(code.equations.energy, np.square(g).sum(axis=1))


def test_staircase_parities_grow_like_a_random_walk():
    code = LDPCCode(1024, 512)
    rms = np.sqrt(code.equations.energy[512:])
    assert 15 < rms.mean() < 30


@pytest.mark.parametrize(("n", "k", "weight"), [(24, 12, 3), (100, 50, 3), (40, 10, 3), (64, 48, 3)])
def test_regular_ensemble(n, k, weight):
    code = LDPCCode(n, k, ensemble="regular", column_weight=weight)
    h = parity_check(code)
    assert (h.sum(axis=0) == weight).all()
    assert (h.sum(axis=1) == n * weight / (n - k)).all()
    assert np.linalg.matrix_rank(h[:, k:]) == n - k
    assert np.abs(h @ code.generator).max() < 1e-7
    blocks = np.random.default_rng(0).normal(size=(k, 3))
    coded = code.encode(blocks)
    np.testing.assert_allclose(code.decode({i: coded[i] for i in range(1, n)})[0], blocks, atol=1e-8)


@pytest.mark.parametrize(("n", "rows", "weight"), [(1, 1, 1), (7, 3, 3), (50, 7, 5), (5, 40, 4)])
def test_dealing_rows(n, rows, weight):
    dealt = balanced_rows(n, rows, weight, np.random.default_rng(0))
    assert all(len(set(hand)) == weight for hand in dealt.tolist())
    loads = np.bincount(dealt.ravel(), minlength=rows)
    assert loads.max() - loads.min() <= 1


@pytest.mark.parametrize(
    ("sizes", "n", "k", "weight"),
    [
        ({}, 16, 12, 3),
        ({"n_workers": 2}, 2, 1, 1),
        ({"n_workers": 8}, 8, 6, 1),
        ({"n_workers": 64}, 64, 48, 3),
        ({"k": 1}, 2, 1, 1),
        ({"k": 9}, 12, 9, 2),
        ({"k": 100}, 134, 100, 3),
    ],
)
def test_sizes(sizes, n, k, weight):
    code = get("ldpc", **sizes)
    assert (code.n_workers, code.k, code.column_weight) == (n, k, weight)
    assert code.placement(0) == (0,)
    assert (np.abs(code.generator[k:]).sum(axis=1) > 0).all(), "no parity is useless"
    blocks = np.random.default_rng(0).normal(size=(k, 2))
    coded = code.encode(blocks)
    for lost in range(n):
        decoded, _ = code.decode({i: coded[i] for i in range(n) if i != lost})
        np.testing.assert_allclose(decoded, blocks, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "k", "given_parameters", "words"),
    [
        (3, 3, {}, "k must be less than n_workers=3"),
        (1, 1, {}, "k must be less than n_workers=1"),
        (3, 0, {}, "k must be an integer of at least 1"),
        (6, 3, {"column_weight": 0}, "column_weight must be an integer of at least 1, got 0"),
        (6, 3, {"column_weight": 4}, "column_weight must be at most n_workers - k = 3, got 4"),
        (6, 3, {"ensemble": "repeat"}, "ensemble must be 'staircase' or 'regular', got 'repeat'"),
        (7, 4, {"ensemble": "regular", "column_weight": 2}, "must be a multiple of n_workers - k = 3"),
        (4, 2, {"ensemble": "regular", "column_weight": 2}, "invertible parity part"),
        (6, 3, {"seed": 1.5}, "seed must be an integer"),
        (6, 3, {"checks": TOY[:2]}, "checks must be n_workers - k = 3 lists, got 2"),
        (6, 3, {"checks": [*TOY[:2], (0, 0, 5)]}, "check 2"),
        (6, 3, {"checks": [*TOY[:2], (0, 6)]}, "check 2"),
        (6, 3, {"checks": [*TOY[:2], (0, 1)]}, "parity part is singular"),
        (6, 3, {"checks": [*TOY[:2], [[0]]]}, "checks must be lists of integers"),
        (6, 3, {"order": "random"}, "order must be"),
    ],
)
def test_parameter_refusals(n, k, given_parameters, words):
    with pytest.raises(InputError, match=words):
        LDPCCode(n, k, **given_parameters)


@pytest.mark.parametrize("ensemble", ["staircase", "regular"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int32])
@pytest.mark.parametrize("trailing", [(), (3, 2), (2100,)])
def test_round_trip(ensemble, dtype, trailing):
    rng = np.random.default_rng(0)
    code = LDPCCode(32, 24, ensemble=ensemble, seed=1)
    blocks = (rng.normal(size=(24, *trailing)) * 9).astype(dtype)
    coded = code.encode(blocks)
    single = dtype is np.float32
    np.testing.assert_allclose(coded, np.tensordot(code.generator, blocks, 1), atol=1e-3 if single else 1e-10)
    assert np.array_equal(coded[:24], blocks)
    for _ in range(5):
        order = rng.permutation(32).tolist()
        tracker = code.tracker()
        count = next(c for c, i in enumerate(order, 1) if tracker.add(i))
        decoded, certificate = code.decode({i: coded[i] for i in order[: min(count + 1, 32)]})
        assert decoded.dtype == coded.dtype
        np.testing.assert_allclose(decoded, blocks, atol=2e-2 if single else 1e-8)
        for j in set(order[:count]) & set(range(24)):
            assert np.array_equal(decoded[j], blocks[j]), "what arrived is bit-identical"
        assert certificate.predicted_error > 0 or certificate.method == "systematic"


@pytest.mark.parametrize("ensemble", ["staircase", "regular"])
@pytest.mark.parametrize("length", [5, 3000])
def test_encode_into_out_lists_and_parts(ensemble, length):
    code = LDPCCode(16, 8, ensemble=ensemble)
    blocks = np.random.default_rng(1).normal(size=(8, length))
    whole = code.encode(blocks)
    out = np.full((16, length), np.nan)
    assert code.encode(list(blocks), out) is out
    np.testing.assert_allclose(out, whole, atol=1e-12)
    np.testing.assert_allclose(code.encode(blocks, messages=[12, 2, 9, 12]), whole[[12, 2, 9, 12]], atol=1e-12)
    out[:8] = blocks
    np.testing.assert_allclose(code.encode(out[:8], out), whole, atol=1e-12)
    with pytest.raises(InputError, match="message id"):
        code.encode(blocks, messages=[16])


def test_nothing_is_solved_when_all_blocks_arrived():
    code = LDPCCode(20, 15)
    blocks = np.random.default_rng(0).normal(size=(15, 4))
    coded = code.encode(blocks)
    out = coded[:15].copy()
    decoded, certificate = code.decode({**{i: out[i] for i in range(15)}, 17: coded[17]}, out=out)
    assert decoded is out
    assert np.array_equal(out, blocks)
    assert (certificate.method, certificate.predicted_error, certificate.surplus_checked) == ("systematic", 0.0, 1)
    assert certificate.residual < 1e-14
    with pytest.raises(DecodeError, match="contradict"):
        code.decode({**{i: out[i] for i in range(15)}, 17: coded[17] + 1})


def test_bad_results_are_refused():
    code = LDPCCode(20, 15)
    coded = code.encode(np.ones((15, 4)))
    values = {i: coded[i] for i in range(1, 18)}
    lost_by = code.decode(values)[1].used
    parity = next(i for i in lost_by if i >= 15)
    with pytest.raises(InputError, match=rf"messages \[{parity}\] hold NaN"):
        code.decode({**values, parity: coded[parity] * np.nan})
    with pytest.raises(NotDecodableError, match="wait for more results"):
        code.decode({i: coded[i] for i in range(14)})
    with pytest.raises(InputError, match="one shape"):
        code.decode({**values, 4: np.ones(3)})
    with pytest.raises(DecodeError, match="tolerance"):
        code.decode(values, tolerance=1e-20)


@pytest.mark.parametrize("given_parameters", [{}, {"ensemble": "regular", "seed": 4}, {"checks": TOY}])
def test_manifest_alone_decodes(given_parameters):
    code = LDPCCode(6, 3, inactivation=5, order="minimum-variance", **given_parameters)
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert again.checks == code.checks
    assert again.params() == code.params() == json.loads(json.dumps(code.params()))
    assert np.array_equal(again.generator, code.generator)
    assert get("ldpc", n_workers=6, k=3, **code.params()).checks == code.checks


# -- as far as it goes ---------------------------------------------------------------------------------


def test_anytime_takes_round_by_round():
    code = LDPCCode(6, 3, checks=TOY)
    blocks = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    coded = code.encode(blocks)
    values = {i: coded[i] for i in (0, 3, 4)}  # block 1 from check 0, block 2 from check 1, parity 5 from check 2
    expected = [(1, 2), (2,), (), ()]
    for rounds, unknown in enumerate(expected):
        answer = code.decode_anytime(values, rounds=rounds)
        assert answer.unknown == unknown == code.unknown_after(values, rounds)
        assert answer.rounds == min(rounds, 3)
        assert answer.known_fraction == pytest.approx(1 - len(unknown) / 3)
        wanted = blocks.copy()
        wanted[list(unknown)] = 0
        np.testing.assert_allclose(answer.blocks, wanted, atol=1e-14)
    out = np.full((3, 2), np.nan)
    assert code.decode_anytime({5: coded[5]}, out=out).blocks is out
    assert np.array_equal(out, np.zeros((3, 2)))
    assert code.decode_anytime(values).unknown == ()
    with pytest.raises(InputError, match="rounds must be an integer of at least 0, got -1"):
        code.decode_anytime(values, rounds=-1)
    with pytest.raises(NotDecodableError, match="no message"):
        code.decode_anytime({})
    with pytest.raises(InputError, match="NaN"):
        code.decode_anytime({**values, 3: coded[3] * np.inf})


@pytest.mark.parametrize(
    ("erasure", "expected"),
    [(0.2, [0.197, 0.042, 0.007, 0.001, 0.0002, 0.0]), (0.3, [0.305, 0.137, 0.066, 0.028, 0.011, 0.004])],
)
def test_unknown_blocks_round_by_round(erasure, expected):
    rng = np.random.default_rng(7)
    code = LDPCCode(1000, 500)
    unknown = []
    for _ in range(40):
        arrived = np.flatnonzero(rng.random(1000) >= erasure).tolist()
        unknown.append([len(code.unknown_after(arrived, d)) / 500 for d in range(6)])
    mean, error = np.mean(unknown, axis=0), np.std(unknown, axis=0, ddof=1) / 40**0.5
    # The table's own figures carry an error of about the same size.
    assert (np.abs(mean - expected) < 3 * 2**0.5 * error + 0.001).all(), (mean, error)


def test_density_evolution():
    evolution = density_evolution(0.3, 3, 6, 6)
    expected = [0.3, 0.207632, 0.141861, 0.085752, 0.039154, 0.009831, 0.000697]
    np.testing.assert_allclose(evolution.messages, expected, atol=1e-6)
    np.testing.assert_allclose(evolution.symbols[:6], [0.3, 0.1727, 0.0976, 0.0458, 0.0141, 0.0018], atol=1e-4)
    thresholds = [erasure_threshold(3, r) for r in (6, 4, 12)]
    np.testing.assert_allclose(thresholds, [0.42944, 0.64743, 0.21048], atol=1e-5)
    for l, r in ((3, 6), (3, 4), (4, 8)):  # noqa: E741  # the letter of the field
        at = erasure_threshold(l, r)
        assert density_evolution(at - 0.002, l, r, 3000).messages[-1] < 1e-9
        assert density_evolution(at + 0.002, l, r, 3000).messages[-1] > 0.1
    for bad in ((0.3, 0, 6, 1), (0.3, 3, 1, 1), (1.1, 3, 6, 1), (0.3, 3, 6, -1)):
        with pytest.raises(InputError, match="must be"):
            density_evolution(*bad)


def test_regular_ensemble_follows_density_evolution():
    rng = np.random.default_rng(1)
    code = LDPCCode(1000, 500, ensemble="regular")
    unknown = []
    for _ in range(30):
        arrived = np.flatnonzero(rng.random(1000) >= 0.3).tolist()
        unknown.append([len(code.unknown_after(arrived, d)) / 500 for d in range(6)])
    mean, error = np.mean(unknown, axis=0), np.std(unknown, axis=0, ddof=1) / 30**0.5
    np.testing.assert_array_less(np.abs(mean - [0.300, 0.174, 0.100, 0.048, 0.019, 0.006]), 4 * error + 0.003)
    evolution = density_evolution(0.3, 3, 6, 3).symbols
    np.testing.assert_array_less(np.abs(mean[:4] - evolution), 4 * error[:4] + 0.006)


# -- moment encoding ---------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [8, 7, 5, 1])
def test_interleaving(p):
    matrix = np.arange(p * 3.0).reshape(p, 3)
    blocks = interleave(matrix, 4)
    assert blocks.shape == (4, -(-p // 4), 3)
    for row in range(blocks.shape[1] * 4):
        assert np.array_equal(blocks[row % 4, row // 4], matrix[row] if row < p else np.zeros(3))
    assert np.array_equal(deinterleave(blocks, p), matrix)
    assert np.shares_memory(blocks, matrix) == (p % 4 == 0)


def test_moment_encoding_gives_the_gradient_or_a_part_of_it():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(50, 10)), rng.normal(size=50), rng.normal(size=10)
    M, b = X.T @ X, X.T @ y
    exact = X.T @ (X @ w - y)
    code = LDPCCode(8, 4, seed=2)
    coded = code.encode(interleave(M, 4))
    assert coded.shape == (8, 3, 10)
    results = {j: coded[j] @ w for j in range(8)}
    del results[0], results[2], results[5]
    decoded, _ = code.decode(results)
    np.testing.assert_allclose(partial_gradient(decoded, b), exact, atol=1e-9)
    few = {j: results[j] for j in (1, 4)}
    answer = code.decode_anytime(few, rounds=1)
    gradient = partial_gradient(answer.blocks, b, answer.unknown)
    lost = [i for i in range(10) if i % 4 in answer.unknown]
    kept = [i for i in range(10) if i % 4 not in answer.unknown]
    assert lost
    assert kept
    assert (gradient[lost] == 0).all()
    np.testing.assert_allclose(gradient[kept], exact[kept], atol=1e-9)


def test_anytime_descent_converges():
    rng = np.random.default_rng(0)
    X, w_true = rng.normal(size=(200, 20)), rng.normal(size=20)
    y = X @ w_true
    M, b = X.T @ X, X.T @ y
    code = LDPCCode(10, 5, seed=1)
    coded = code.encode(interleave(M, 5))
    w = np.zeros(20)
    step = 1 / np.linalg.norm(M, 2)
    incomplete = 0
    for _ in range(150):
        arrived = np.flatnonzero(rng.random(10) >= 0.4).tolist() or [0]
        answer = code.decode_anytime({j: coded[j] @ w for j in arrived}, rounds=2)
        incomplete += bool(answer.unknown)
        w -= step * partial_gradient(answer.blocks, b, answer.unknown)
    assert incomplete > 50
    assert np.linalg.norm(w - w_true) < 1e-6


def test_moment_refusals():
    with pytest.raises(InputError, match="k must be at least 1"):
        interleave(np.eye(3), 0)
    with pytest.raises(InputError, match="rows"):
        interleave(np.empty((0, 3)), 2)
    with pytest.raises(InputError, match="p must be between 1"):
        deinterleave(np.zeros((2, 3)), 7)
