"""LT codes: degrees, symbols, round trips, refusals."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes import from_manifest, get
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.peeling.lt import LTCode, recommended_alpha
from serverless_gc.codes.peeling.soliton import draw_symbols, robust_soliton
from serverless_gc.errors import DecodeError, InputError, NotDecodableError


def test_worked_values_of_the_distribution():
    mu = robust_soliton(10, 0.1, 0.5)
    assert mu.sum() == pytest.approx(1)
    assert mu[[0, 1, 2, 9]] == pytest.approx([0.146577, 0.412007, 0.149220, 0.053931], abs=1e-6)
    assert mu @ np.arange(1, 11) == pytest.approx(3.302097, abs=1e-6)
    mu = robust_soliton(100, 0.03, 0.5)
    assert mu[[0, 1, 61]] == pytest.approx([0.023691, 0.464715, 0.017061], abs=1e-6)
    assert mu @ np.arange(1, 101) == pytest.approx(6.675705, abs=1e-6)
    # beta and R, from mu: the ideal part at degree 2 is 1/2, and only it is left beyond the spike.
    beta = 1 / (70 * 69) / mu[69]
    assert beta == pytest.approx(1.093030, abs=1e-6)
    assert (mu[1] * beta - 0.5) * 2 * 100 == pytest.approx(1.589495, abs=1e-6)
    assert robust_soliton(1).tolist() == [1.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0,), "k must be at least 1, got 0"),
        ((5, 0.0), r"c must be positive, got 0\.0"),
        ((5, float("nan")), "c must be positive"),
        ((5, 0.1, 0.0), "delta must be between 0 and 1"),
        ((5, 0.1, 1.0), "delta must be between 0 and 1"),
    ],
)
def test_distribution_refusals(arguments, words):
    with pytest.raises(InputError, match=words):
        robust_soliton(*arguments)


def test_draws_follow_the_degrees_and_treat_sources_alike():
    k, n = 12, 60_000
    mu = robust_soliton(k, 0.2)
    indptr, indices = draw_symbols(k, n, mu, np.random.default_rng(0))
    degrees = np.diff(indptr)
    observed = np.bincount(degrees, minlength=k + 1)[1:]
    assert (np.abs(observed - n * mu) < 4 * np.sqrt(n * mu) + 1).all()
    owner = np.repeat(np.arange(n), degrees)
    inside = np.diff(indices)[np.diff(owner) == 0]
    assert (inside > 0).all(), "distinct and ascending"
    for d in (1, 2, 5, 9):
        chosen = indices[degrees[owner] == d]
        expected = len(chosen) / k
        assert (np.abs(np.bincount(chosen, minlength=k) - expected) < 4.5 * np.sqrt(expected)).all()


@pytest.mark.parametrize(
    ("given_sizes", "n_workers", "k", "n_messages"),
    [
        ({}, 16, 128, 256),
        ({"n_workers": 3}, 3, 24, None),
        ({"n_workers": 1}, 1, 8, None),
        ({"k": 100}, 13, 100, None),
        ({"k": 3}, 1, 3, None),
        ({"n_workers": 7, "k": 500}, 7, 500, 7 * 130),
    ],
)
def test_sizes(given_sizes, n_workers, k, n_messages):
    code = get("lt", **given_sizes)
    assert (code.n_workers, code.k) == (n_workers, k)
    assert code.n_messages % n_workers == 0
    assert code.n_messages >= recommended_alpha(k) * k
    if n_messages is not None:
        assert code.n_messages == n_messages
    runs = [code.placement(w) for w in range(n_workers)]
    assert [i for run in runs for i in run] == list(range(code.n_messages))
    assert len({len(run) for run in runs}) == 1
    with pytest.raises(InputError, match="worker must be in"):
        code.placement(n_workers)


def test_recommended_redundancy():
    assert [recommended_alpha(k) for k in (1, 200, 1000, 10_000)] == [2.0, 2.0, 1.5, 1.5]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.complex64, np.int64, np.float16, np.bool_])
@pytest.mark.parametrize("trailing", [(), (3,), (2, 2), (2500,)])
def test_round_trip(dtype, trailing):
    rng = np.random.default_rng(0)
    code = LTCode(4, 40, seed=2)
    blocks = (rng.normal(size=(40, *trailing)) * 8).astype(dtype)
    if np.dtype(dtype).kind == "c":
        blocks = blocks + 1j * blocks[::-1]
    coded = code.encode(blocks)
    exact = np.tensordot(code.generator, blocks.astype(np.result_type(dtype, np.float64)), 1)
    single = np.dtype(dtype).name in {"float32", "complex64"}
    np.testing.assert_allclose(coded, exact, rtol=1e-5 if single else 1e-12, atol=1e-4 if single else 1e-12)
    assert coded.dtype == (dtype if np.dtype(dtype).kind in "fc" and dtype != np.float16 else np.float64)
    order = rng.permutation(code.n_messages).tolist()
    tracker = code.tracker()
    values = {}
    for i in order:
        values[i] = coded[i]
        if tracker.add(i):
            break
    decoded, certificate = code.decode(values)
    assert decoded.dtype == coded.dtype
    error = np.linalg.norm(decoded - blocks.astype(decoded.dtype)) / np.linalg.norm(blocks.astype(decoded.dtype))
    assert error < (1e-4 if single else 1e-12)
    assert set(certificate.used) <= set(values)


def test_integers_stay_exact():
    code = LTCode(2, 30)
    blocks = np.random.default_rng(0).integers(-1000, 1000, size=(30, 4))
    coded = code.encode(blocks)
    decoded, _ = code.decode(dict(enumerate(coded)))
    assert np.array_equal(decoded, blocks)


@pytest.mark.parametrize("length", [5, 3000])
def test_encode_into_out_lists_and_parts(length):
    code = LTCode(4, 30, seed=1)
    blocks = np.random.default_rng(1).normal(size=(30, length))
    whole = code.encode(blocks)
    np.testing.assert_allclose(whole, code.generator @ blocks, atol=1e-12)
    out = np.full((code.n_messages, length), np.nan)
    assert code.encode(list(blocks), out) is out
    assert np.array_equal(out, whole)
    chosen = [7, 3, 3, 50]
    assert np.array_equal(code.encode(blocks, messages=chosen), whole[chosen])
    wide = np.full((4, 2 * length), np.nan)
    code.encode(blocks, wide[:, ::2], messages=chosen)
    assert np.array_equal(wide[:, ::2], whole[chosen])
    assert code.encode(blocks, messages=[]).shape == (0, length)
    assert code.encode(np.zeros((30, 0))).shape == (code.n_messages, 0)
    with pytest.raises(InputError, match="message id"):
        code.encode(blocks, messages=[code.n_messages])
    with pytest.raises(InputError, match="k=30"):
        code.encode(blocks[:-1])


def test_dense_generator_is_built_on_demand_only():
    code = LTCode(10, 10_000, seed=1)
    assert code._cache.generator == []
    tracker = code.tracker()
    blocks = np.random.default_rng(0).normal(size=(10_000, 2))
    coded = code.encode(blocks)
    values = {}
    for i in np.random.default_rng(1).permutation(code.n_messages).tolist():
        values[i] = coded[i]
        if tracker.add(i):
            break
    decoded, certificate = code.decode(values)
    assert np.linalg.norm(decoded - blocks) / np.linalg.norm(blocks) < 1e-9
    assert [code.source_of(i) for i in range(3)] == [s[0] if len(s) == 1 else None for s in map(code.sources, range(3))]
    assert code.sparse_generator.shape == (code.n_messages, 10_000)
    assert certificate.surplus_checked == len(values) - 10_000
    assert len(manifest_to_bytes(code.manifest())) < 3_000_000
    assert code._cache.generator == []


def test_manifest_alone_decodes():
    code = LTCode(4, 50, alpha=1.5, c=0.05, delta=0.3, seed=9, inactivation=7, order="minimum-variance")
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert np.array_equal(again.generator, code.generator)
    assert again.params() == code.params()
    assert again.placement(3) == code.placement(3)
    coded = code.encode(np.eye(50))
    np.testing.assert_allclose(again.decode(dict(enumerate(coded)))[0], np.eye(50), atol=1e-12)
    explicit = LTCode(2, 2, symbols=[(0,), (0, 1)])
    rebuilt = from_manifest(explicit.manifest())
    assert rebuilt.params() == explicit.params() == json.loads(json.dumps(explicit.params()))
    assert np.array_equal(get("lt", n_workers=2, k=2, **explicit.params()).generator, explicit.generator)
    assert np.array_equal(get("lt", n_workers=4, k=50, **code.params()).generator, code.generator)


def test_the_draw_is_a_function_of_the_seed():
    assert np.array_equal(LTCode(4, 60, seed=5).generator, LTCode(4, 60, seed=5).generator)
    assert not np.array_equal(LTCode(4, 60, seed=5).generator, LTCode(4, 60, seed=6).generator)


@pytest.mark.parametrize("inactivation", [0, 128])
def test_symbols_are_appended_until_all_of_them_decode(inactivation):
    lengths = set()
    for seed in range(10):
        code = LTCode(5, 20, alpha=1.0, seed=seed, inactivation=inactivation)
        tracker = code.tracker()
        for i in range(code.n_messages):
            tracker.add(i)
        assert tracker.decodable
        assert code.n_messages % 5 == 0
        lengths.add(code.n_messages)
    assert max(lengths) > 20


@pytest.mark.parametrize(
    ("given_parameters", "words"),
    [
        ({"alpha": 0.9}, "alpha must be at least 1, got 0.9"),
        ({"alpha": float("inf")}, "alpha must be at least 1"),
        ({"c": 0}, "c must be positive"),
        ({"delta": 1}, "delta must be between 0 and 1"),
        ({"seed": -1}, "seed must be an integer"),
        ({"seed": True}, "seed must be an integer"),
        ({"inactivation": -1}, "inactivation must be an integer of at least 0"),
        ({"order": "depth-first"}, "order must be 'breadth-first' or 'minimum-variance', got 'depth-first'"),
        ({"symbols": []}, "multiple of n_workers=2"),
        ({"symbols": [(0,)] * 3}, "multiple of n_workers=2, got 3"),
        ({"symbols": [(0,), ()]}, "symbol 1"),
        ({"symbols": [(0,), (0.5,)]}, r"symbols must be lists of integers, got \(0.5,\)"),
        ({"symbols": [(0,), (1, 1)]}, "symbol 1"),
        ({"symbols": [(0,), (3,)]}, "symbol 1"),
        ({"symbols": [(0,), (1, 2)]}, "do not decode even if all 2 arrive"),
    ],
)
def test_parameter_refusals(given_parameters, words):
    with pytest.raises(InputError, match=words):
        LTCode(2, 3, **given_parameters)
    with pytest.raises(InputError, match="k must be an integer of at least 1"):
        LTCode(2, 0)


def test_a_hopeless_draw_is_refused():
    with pytest.raises(InputError, match="gave no code that decodes"):
        LTCode(2, 40, c=1e-9, delta=0.999, inactivation=0, seed=4)


def test_single_block():
    code = LTCode(3, 1)
    assert code.n_messages == 3
    assert [code.source_of(i) for i in range(3)] == [0, 0, 0]
    coded = code.encode(np.array([[1.0, 2.0]]))
    decoded, certificate = code.decode({2: coded[2]})
    assert decoded.tolist() == [[1.0, 2.0]]
    assert certificate.method == "systematic"


def test_messages_may_lie_in_the_answer():
    code = LTCode(4, 40, seed=3)
    blocks = np.random.default_rng(0).normal(size=(40, 6))
    coded = code.encode(blocks)
    out = np.zeros((40, 6))
    values = {}
    for i in range(code.n_messages):
        j = code.source_of(i)
        if j is None:
            values[i] = coded[i]
        else:
            out[j] = coded[i]
            values[i] = out[j]
    decoded, _ = code.decode(values, out=out)
    assert decoded is out
    np.testing.assert_allclose(out, blocks, atol=1e-12)


def test_wrong_results_are_noticed():
    code = LTCode(4, 60, seed=1)
    blocks = np.random.default_rng(0).normal(size=(60, 5))
    coded = code.encode(blocks)
    good = dict(enumerate(coded))
    _, certificate = code.decode(good)
    assert certificate.residual < 1e-13
    assert certificate.surplus_checked == code.n_messages - 60
    with pytest.raises(DecodeError, match="contradict"):
        code.decode({**good, 11: coded[11] + 1e-3})
    for i in [i for i in certificate.used if code.source_of(i) is None][:5]:
        with pytest.raises(InputError, match=rf"messages \[{i}\] hold NaN or infinity"):
            code.decode({j: good[j] * (np.nan if j == i else 1) for j in certificate.used})
    with pytest.raises(InputError, match="one shape"):
        code.decode({**good, 3: coded[3][:2]})
    with pytest.raises(DecodeError, match="tolerance"):
        code.decode(good, tolerance=1e-18)
    with pytest.raises(NotDecodableError, match="wait for more results") as caught:
        code.decode({0: coded[0]})
    assert len(caught.value.missing) >= 59
    with pytest.raises(NotDecodableError, match="no message"):
        code.decode({})


@settings(max_examples=25, deadline=None)
@given(k=st.integers(1, 30), n_workers=st.integers(1, 6), seed=st.integers(0, 1000))
def test_any_sizes_make_a_code_that_decodes(k, n_workers, seed):
    code = LTCode(n_workers, k, seed=seed)
    blocks = np.random.default_rng(seed).normal(size=(k, 2))
    decoded, _ = code.decode(dict(enumerate(code.encode(blocks))))
    np.testing.assert_allclose(decoded, blocks, atol=1e-9)
