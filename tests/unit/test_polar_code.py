"""Encoding, decoding, certificates and manifests of polar codes."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.polar.code import PolarCode, butterfly
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

MODES = ("sc", "peel", "rank")
G8 = np.array([[int(i & j == j) for i in range(8)] for j in range(8)], dtype=float)


def first_decodable(code, rng):
    """Random order, cut where the code's own tracker says it is enough."""
    tracker = code.tracker()
    arrived = []
    for worker in rng.permutation(code.n_workers).tolist():
        arrived.append(worker)
        if tracker.add(worker):
            break
    return arrived


def dense_solution(code, values):
    ids = sorted(values)
    stacked = np.stack([np.asarray(values[i]) for i in ids])
    flat = stacked.reshape(len(ids), -1)
    solved = np.linalg.lstsq(code.generator[ids], flat, rcond=None)[0]
    return solved.reshape(code.k, *stacked.shape[1:])


# -- encoding ---------------------------------------------------------------------------------------------


def test_plain_generators_are_kronecker_powers():
    kernel = np.array([[1, 1], [0, 1]])
    g4 = np.kron(kernel, kernel)
    assert g4.tolist() == [[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    np.testing.assert_array_equal(PolarCode(4, 4, systematic=False).generator, g4)
    np.testing.assert_array_equal(PolarCode(8, 8, systematic=False).generator, np.kron(kernel, g4))
    np.testing.assert_array_equal(PolarCode(8, 4, systematic=False).generator, G8[:, [3, 5, 6, 7]])
    np.testing.assert_array_equal(PolarCode(6, 4, systematic=False).generator, G8[:6, [2, 3, 4, 5]])


def test_hadamard_generator_is_orthonormal():
    for n in (1, 2, 8, 64):
        g = PolarCode(n, n, systematic=False, kernel="hadamard").generator
        np.testing.assert_allclose(g @ g.T, np.eye(n), atol=1e-14)
        np.testing.assert_allclose(np.abs(g), n**-0.5)


@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@pytest.mark.parametrize(("n", "k"), [(8, 4), (8, 6), (7, 4), (10, 8), (16, 9), (129, 77), (64, 48)])
def test_systematic_generator_spans_the_plain_code(n, k, kernel):
    code = PolarCode(n, k, kernel=kernel)
    plain = PolarCode(n, k, kernel=kernel, systematic=False)
    g = code.generator
    np.testing.assert_array_equal(g, np.rint(g))
    sources = {w: code.source_of(w) for w in range(n) if code.source_of(w) is not None}
    assert sorted(sources.values()) == list(range(k))
    for worker, block in sources.items():
        np.testing.assert_array_equal(g[worker], np.eye(k)[block])
    # Same column space: each plain codeword follows from its own data rows.
    np.testing.assert_allclose(g @ plain.generator[sorted(sources)], plain.generator, atol=1e-9)


def test_systematic_hadamard_is_the_binary_code_up_to_signs():
    binary, hadamard = PolarCode(32, 20), PolarCode(32, 20, kernel="hadamard")
    signs = np.array([(-1.0) ** i.bit_count() for i in range(32)])
    data = signs[list(binary.information_set)]
    np.testing.assert_array_equal(hadamard.generator, signs[:, None] * binary.generator * data)


def test_worked_plain_codeword():
    code = PolarCode(8, 4, systematic=False, mode="peel")
    x = code.encode(np.array([1.0, 2.0, 3.0, 4.0]))
    assert x.tolist() == [10, 7, 8, 5, 9, 6, 7, 4]
    answer, certificate = code.decode({j: x[j] for j in (0, 5, 6, 7)})
    assert answer.tolist() == [1, 2, 3, 4]
    assert certificate.method == "peel"
    assert certificate.used == (0, 5, 6, 7)
    answer, certificate = code.decode({j: x[j] for j in (3, 5, 6, 7)})
    assert answer.tolist() == [1, 2, 3, 4]
    assert certificate.method == "sc"


@pytest.mark.parametrize("systematic", [True, False])
@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13, 32])
def test_encode_is_the_generator(n, kernel, systematic):
    rng = np.random.default_rng(n)
    for k in {1, (n + 1) // 2, n}:
        code = PolarCode(n, k, kernel=kernel, systematic=systematic)
        blocks = rng.standard_normal((k, 3, 2))
        expected = np.tensordot(code.generator, blocks, axes=1)
        np.testing.assert_allclose(code.encode(blocks), expected, atol=1e-10)
        some = rng.permutation(n)[: (n + 1) // 2].tolist()
        out = np.empty((len(some), 3, 2))
        assert code.encode(list(blocks), out, messages=some) is out
        np.testing.assert_allclose(out, expected[some], atol=1e-10)


def test_systematic_encoding_copies_data_bit_by_bit():
    code = PolarCode(64, 48)
    blocks = np.random.default_rng(0).standard_normal((48, 7)) * 1e8
    coded = code.encode(blocks)
    for worker in range(64):
        block = code.source_of(worker)
        if block is not None:
            assert coded[worker].tobytes() == blocks[block].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_encode_keeps_the_type_and_promotes_integers(dtype):
    code = PolarCode(8, 5)
    blocks = (np.arange(10).reshape(5, 2) + 1).astype(dtype)
    assert code.encode(blocks).dtype == dtype
    assert code.encode(np.arange(10).reshape(5, 2)).dtype == np.float64
    into = np.empty((8, 2), dtype=np.complex128)
    np.testing.assert_allclose(code.encode(blocks, into), code.generator @ blocks)


def test_encode_refuses_wrong_shapes():
    code = PolarCode(8, 4)
    with pytest.raises(InputError, match="k=4"):
        code.encode(np.zeros((5, 2)))
    with pytest.raises(InputError, match="shape"):
        code.encode(np.zeros((4, 2)), np.zeros((8, 3)))
    with pytest.raises(InputError, match="message id"):
        code.encode(np.zeros((4, 2)), messages=[8])


def test_butterfly_writes_the_rows_asked_for():
    blocks = np.array([[1.0], [2.0], [3.0], [4.0]])
    out = np.empty((3, 1))
    butterfly.encode(blocks, (3, 5, 6, 7), 8, out, [7, 0, 4], kernel="binary", systematic=False)
    assert out.ravel().tolist() == [4, 10, 9]
    butterfly.encode(blocks, (3, 5, 6, 7), 8, out, [5, 3, 7], kernel="hadamard", systematic=True)
    assert out.ravel().tolist() == [2, 1, 4]


# -- decoding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("systematic", [True, False])
@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (4, 3), (5, 3), (6, 4), (7, 4), (8, 1), (8, 4), (8, 8)])
def test_every_subset_decodes_exactly_when_the_tracker_says_so(n, k, kernel, systematic, mode):
    code = PolarCode(n, k, kernel=kernel, systematic=systematic, mode=mode)
    blocks = np.random.default_rng(0).standard_normal((k, 2))
    coded = code.encode(blocks)
    for size in range(n + 1):
        for subset in itertools.combinations(range(n), size):
            tracker = code.tracker()
            for worker in subset:
                tracker.add(worker)
            values = {worker: coded[worker] for worker in subset}
            if tracker.decodable:
                answer, _ = code.decode(values)
                np.testing.assert_allclose(answer, blocks, atol=1e-10)
            else:
                with pytest.raises(NotDecodableError) as caught:
                    code.decode(values)
                assert caught.value.missing == tracker.missing() != ()


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_decode_equals_the_dense_least_squares_solution(data):
    n = data.draw(st.integers(1, 70))
    k = data.draw(st.integers(1, n))
    code = PolarCode(
        n,
        k,
        kernel=data.draw(st.sampled_from(["binary", "hadamard"])),
        systematic=data.draw(st.booleans()),
        mode=data.draw(st.sampled_from(MODES)),
        design=data.draw(st.sampled_from(["auto", "reed-muller", 0.2])),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    arrived = first_decodable(code, rng)
    arrived += [w for w in range(n) if w not in arrived][: data.draw(st.integers(0, 3))]
    coded = code.encode(rng.standard_normal((k, 3)))
    values = {w: coded[w] for w in arrived}
    answer, certificate = code.decode(values)
    np.testing.assert_allclose(answer, dense_solution(code, values), atol=1e-8)
    assert set(certificate.used) <= set(arrived)
    assert certificate.surplus_checked == len(arrived) - k
    assert (certificate.residual is None) == (len(arrived) == k)


@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@pytest.mark.parametrize("systematic", [True, False])
def test_inactivation_decodes_large_reed_muller_codes(systematic, kernel):
    rng = np.random.default_rng(1)
    code = PolarCode(256, 163, design="reed-muller", systematic=systematic, kernel=kernel)
    blocks = rng.standard_normal((163, 5))
    coded = code.encode(blocks)
    decoded = 0
    for _ in range(8):
        values = {w: coded[w] for w in rng.permutation(256)[:163].tolist()}
        try:
            answer, certificate = code.decode(values)
        except NotDecodableError:
            continue
        decoded += 1
        assert certificate.method == "inactivation"
        assert certificate.unknowns > 0
        assert certificate.amplification > 1
        error = np.linalg.norm(answer - blocks) / np.linalg.norm(blocks)
        assert error < 1e-8
        assert error < certificate.predicted_error
    assert decoded >= 6


def test_accuracy_at_a_thousand_workers():
    rng = np.random.default_rng(2)
    for kwargs, count, limit in (
        ({"mode": "sc"}, None, 1e-12),
        ({"mode": "sc", "kernel": "hadamard"}, None, 1e-12),
        ({"design": "reed-muller"}, 768, 1e-8),
    ):
        code = PolarCode(1024, 768, **kwargs)
        blocks = rng.standard_normal((768, 4))
        coded = code.encode(blocks)
        for _ in range(3):
            arrived = first_decodable(code, rng)
            if count:
                assert len(arrived) <= count + 1
            answer, certificate = code.decode({w: coded[w] for w in arrived})
            error = np.linalg.norm(answer - blocks) / np.linalg.norm(blocks)
            assert error < limit
            assert error < certificate.predicted_error
            assert certificate.predicted_error < limit * 100


def test_float32_prediction_is_honest_and_the_hadamard_kernel_helps():
    rng = np.random.default_rng(3)
    errors = {}
    for kernel in ("binary", "hadamard"):
        code = PolarCode(1024, 512, mode="sc", kernel=kernel, systematic=False)
        blocks = rng.standard_normal((512, 4)).astype(np.float32)
        coded = code.encode(blocks)
        answer, certificate = code.decode({w: coded[w] for w in first_decodable(code, rng)})
        assert answer.dtype == np.float32
        errors[kernel] = np.linalg.norm(answer - blocks) / np.linalg.norm(blocks)
        assert errors[kernel] < certificate.predicted_error < 100 * errors[kernel]
    assert errors["hadamard"] < 5e-6
    assert errors["hadamard"] < errors["binary"] < 5e-4


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.int64])
@pytest.mark.parametrize("mode", MODES)
def test_types_and_shapes(mode, dtype):
    rng = np.random.default_rng(4)
    for shape in ((), (1,), (3, 2), (0,), (2, 0, 3)):
        code = PolarCode(16, 9, mode=mode)
        blocks = rng.integers(-50, 50, size=(9, *shape)).astype(dtype)
        if np.dtype(dtype).kind == "c":
            blocks = blocks + 1j * rng.integers(-50, 50, size=blocks.shape)
        coded = code.encode(blocks)
        answer, _ = code.decode({w: coded[w] for w in first_decodable(code, rng)})
        assert answer.shape == blocks.shape
        assert answer.dtype == (np.float64 if dtype is np.int64 else coded.dtype)
        np.testing.assert_allclose(answer, blocks, atol=1e-3 if np.finfo(answer.dtype).bits == 32 else 1e-9)


def test_integers_decode_exactly():
    rng = np.random.default_rng(5)
    for mode in ("sc", "peel"):
        code = PolarCode(64, 40, mode=mode)
        blocks = rng.integers(-1000, 1000, size=(40, 6)).astype(float)
        coded = code.encode(blocks)
        answer, _ = code.decode({w: coded[w] for w in first_decodable(code, rng)})
        np.testing.assert_array_equal(answer, blocks)


def test_tiles_do_not_change_the_answer():
    rng = np.random.default_rng(6)
    code = PolarCode(32, 22)
    blocks = rng.standard_normal((22, 40_000))
    coded = code.encode(blocks)
    for surplus in (0, 2):
        arrived = first_decodable(code, rng)
        arrived += [w for w in range(32) if w not in arrived][:surplus]
        answer, _ = code.decode({w: coded[w] for w in arrived})
        np.testing.assert_allclose(answer, blocks, atol=1e-11)


def test_the_same_set_gives_the_same_bits_in_any_order():
    rng = np.random.default_rng(7)
    for mode in MODES:
        code = PolarCode(64, 48, mode=mode)
        coded = code.encode(rng.standard_normal((48, 5)))
        arrived = first_decodable(code, rng)
        one, _ = code.decode({w: coded[w] for w in arrived})
        other, _ = code.decode({w: coded[w] for w in reversed(arrived)})
        assert one.tobytes() == other.tobytes()


def test_all_data_present_needs_no_arithmetic():
    code = PolarCode(16, 9)
    blocks = np.random.default_rng(8).standard_normal((9, 4))
    coded = code.encode(blocks)
    workers = [w for w in range(16) if code.source_of(w) is not None]
    answer, certificate = code.decode({w: coded[w] for w in workers})
    assert answer.tobytes() == blocks.tobytes()
    assert (certificate.method, certificate.predicted_error, certificate.amplification) == ("systematic", 0.0, 1.0)
    assert certificate.used == tuple(workers)


def test_results_already_in_place_are_not_copied():
    code = PolarCode(64, 48)
    blocks = np.random.default_rng(9).standard_normal((48, 100))
    coded = code.encode(blocks)
    out = np.full((48, 100), np.nan)
    values = {}
    for worker in first_decodable(code, np.random.default_rng(9)):
        block = code.source_of(worker)
        if block is None:
            values[worker] = coded[worker]
        else:
            out[block] = coded[worker]
            values[worker] = out[block]
            values[worker].setflags(write=False)
    kept = {w: v.copy() for w, v in values.items()}
    answer, _ = code.decode(values, out=out)
    assert answer is out
    np.testing.assert_allclose(out, blocks, atol=1e-11)
    for worker, value in values.items():
        np.testing.assert_array_equal(value, kept[worker])


def test_out_may_be_strided_or_wider_than_the_results():
    code = PolarCode(8, 4)
    blocks = np.arange(8, dtype=np.float32).reshape(4, 2)
    coded = code.encode(blocks)
    values = {w: coded[w] for w in (0, 1, 2, 4, 5)}
    strided = np.zeros((4, 4), dtype=np.float32)[:, ::2]
    wide = np.zeros((4, 2))
    for out in (strided, wide):
        answer, _ = code.decode(values, out=out)
        assert answer is out
        np.testing.assert_allclose(out, blocks, atol=1e-5)
    with pytest.raises(InputError, match="out must hold"):
        code.decode({w: v.astype(complex) for w, v in values.items()}, out=wide)
    with pytest.raises(InputError, match="shape"):
        code.decode(values, out=np.zeros((4, 3)))


def test_surplus_results_expose_a_wrong_one():
    rng = np.random.default_rng(10)
    for mode in MODES:
        code = PolarCode(32, 20, mode=mode)
        coded = code.encode(rng.standard_normal((20, 500)))
        values = {w: coded[w] for w in range(32)}
        _, certificate = code.decode(values)
        assert certificate.surplus_checked == 12
        assert certificate.residual < 1e-12
        bad = next(w for w in range(32) if code.source_of(w) is not None)
        values[bad] = values[bad] + 1.0
        with pytest.raises(DecodeError, match="contradict"):
            code.decode(values)


def test_tolerance_is_enforced():
    code = PolarCode(64, 48)
    coded = code.encode(np.random.default_rng(11).standard_normal((48, 3)))
    values = {w: coded[w] for w in first_decodable(code, np.random.default_rng(11))}
    with pytest.raises(DecodeError) as caught:
        code.decode(values, tolerance=1e-30)
    assert caught.value.predicted > caught.value.tolerance == 1e-30


def test_undecodable_sets_raise_at_once():
    code = PolarCode(8, 4)
    coded = code.encode(np.ones((4, 2)))
    for lost in itertools.combinations(range(8), 5):
        with pytest.raises(NotDecodableError, match="wait for more") as caught:
            code.decode({w: coded[w] for w in range(8) if w not in lost})
        assert caught.value.missing
    rng = np.random.default_rng(12)
    code = PolarCode(64, 48)
    coded = code.encode(np.ones((48, 2)))
    code.tracker()
    durations = []
    for _ in range(200):
        values = {w: coded[w] for w in rng.permutation(64)[:47].tolist()}
        start = time.perf_counter()
        with pytest.raises(NotDecodableError) as caught:
            code.decode(values)
        durations.append(time.perf_counter() - start)
        assert 0 < len(caught.value.missing) <= 48
        assert not {code.source_of(w) for w in values} & set(caught.value.missing)
    # Not a speed test: nothing may spin or search. The median takes well under a millisecond.
    assert np.median(durations) < 0.1


def test_bad_values_are_refused():
    code = PolarCode(8, 4)
    ones = np.ones(3)
    with pytest.raises(InputError, match="message id"):
        code.decode({8: ones})
    with pytest.raises(InputError, match="one shape"):
        code.decode({0: ones, 1: np.ones(4)})
    with pytest.raises(InputError, match="numeric"):
        code.decode({w: np.array(["a"]) for w in range(8)})
    with pytest.raises(NotDecodableError):
        code.decode({})


# -- parameters and manifests -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((0, 1), {}, "n_workers"),
        ((4, 0), {}, "k must"),
        ((4, 5), {}, "k must not exceed"),
        ((4, 2.0), {}, "k must be an integer"),
        ((8, 4), {"kernel": "ternary"}, "kernel"),
        ((8, 4), {"mode": "ml"}, "mode"),
        ((8, 4), {"shortening": "no"}, "shortening"),
        ((8, 4), {"design": "best"}, "design"),
        ((8, 4), {"design": 0.0}, "design"),
        ((8, 4), {"design": 1.0}, "design"),
        ((8, 4), {"design": [0.1] * 7}, "design"),
        ((8, 4), {"design": [0.1] * 7 + [1.5]}, "design"),
        ((8, 4), {"information_set": [5, 6, 7]}, "information_set must hold k=4"),
        ((8, 4), {"information_set": [5, 6, 7, 7]}, "information_set must hold k=4"),
        ((8, 4), {"information_set": [5, 6, 7, 8]}, "usable positions"),
        ((8, 2), {"information_set": [0, 7]}, "contains its bits"),
        ((7, 4), {"kernel": "hadamard", "shortening": "shorten"}, "shortening"),
    ],
)
def test_bad_parameters_name_themselves(args, kwargs, message):
    with pytest.raises(InputError, match=message):
        PolarCode(*args, **kwargs)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"systematic": False, "mode": "peel"},
        {"kernel": "hadamard", "mode": "sc"},
        {"design": "reed-muller"},
        {"design": 0.25},
        {"design": np.linspace(0.05, 0.4, 13)},
        {"information_set": (5, 7, 8, 9, 10, 11, 12)},
        {"shortening": "puncture"},
    ],
)
def test_a_stored_manifest_alone_decodes(kwargs):
    code = PolarCode(13, 7, **kwargs)
    rng = np.random.default_rng(13)
    blocks = rng.standard_normal((7, 4))
    coded = code.encode(blocks)
    again = PolarCode.from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert again.information_set == code.information_set
    assert (again.shortening, again.mode, again.kernel) == (code.shortening, code.mode, code.kernel)
    np.testing.assert_array_equal(again.generator, code.generator)
    answer, _ = again.decode({w: coded[w] for w in first_decodable(code, rng)})
    np.testing.assert_allclose(answer, blocks, atol=1e-10)


def test_params_rebuild_the_code():
    for kwargs in ({}, {"design": 0.3, "mode": "sc"}, {"information_set": (3, 5, 6, 7)}):
        code = PolarCode(8, 4, **kwargs)
        assert PolarCode(8, 4, **code.params()).information_set == code.information_set
    assert PolarCode(8, 4, design=0.3).design_epsilon == 0.3
    assert PolarCode(8, 4, design="reed-muller").design_epsilon is None
    assert "mode='rank'" in repr(PolarCode(8, 4))


def test_one_block_is_a_repetition_code():
    for n in (1, 2, 3, 7, 8, 12):
        for systematic in (True, False):
            code = PolarCode(n, 1, systematic=systematic)
            for worker in range(n):
                assert code.tracker().add(worker)
                answer, _ = code.decode({worker: code.encode(np.array([[7.0, 8.0]]))[worker]})
                np.testing.assert_allclose(answer, [[7.0, 8.0]])


def test_codes_can_be_pickled_with_their_caches():
    import pickle

    code = PolarCode(16, 9)
    coded = code.encode(np.ones((9, 2)))
    code.decode({w: coded[w] for w in range(1, 16)})
    again = pickle.loads(pickle.dumps(code))  # noqa: S301  # our own bytes
    assert again.information_set == code.information_set
    assert again.tracker().add(0).missing
