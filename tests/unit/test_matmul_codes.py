"""Matrix-matrix codes: worked values, every subset of small codes, accuracy, refusals."""

from itertools import combinations

import matmul_cases as cases
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.base import Certifier
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.matmul import (
    ComplexPolynomialCode,
    EntangledCode,
    KhatriRaoCode,
    MatDotCode,
    OrthoMatDotCode,
    PolynomialCode,
)
from serverless_gc.codes.matmul.sizes import complete_grid
from serverless_gc.codes.registry import from_manifest, get
from serverless_gc.codes.threshold import arrivals_needed
from serverless_gc.errors import DecodeError, InputError, NotDecodableError
from serverless_gc.rounds.collect import Collector


class TestUnknownsAreKroneckerRows:
    @pytest.mark.parametrize(
        "name", ["khatri-rao", "polynomial", "polynomial-complex", "polar-matmul", "product-matmul"]
    )
    def test_generator(self, name):
        code = get(name, **cases.MATMUL[name])
        for worker in range(code.n_workers):
            i, j = code.operands(worker)
            row = np.kron(code.left.generator[i], code.right.generator[j])
            if name.startswith("polynomial"):  # the unknowns are in the order of the powers, b * p + a
                row = row.reshape(code.split.p, code.split.q).T.reshape(-1)
            np.testing.assert_allclose(code.generator[worker], row, atol=1e-14)


def scalars(code, A, B):
    return cases.multiplied(code, *(np.array(x, float).reshape(-1, 1, 1) for x in (A, B)))[:, 0, 0]


def test_polynomial_code_over_integers():
    code = PolynomialCode(5, p=2, q=2, points=[-2, -1, 0, 1, 2])
    sent = scalars(code, (1, 2), (3, 5))
    assert sent.tolist() == [-69, -8, 3, 24, 115]
    for four in combinations(range(5), 4):
        answer, _ = code.decode({i: sent[i] for i in four})
        np.testing.assert_allclose(answer, [3, 5, 6, 10], atol=1e-12)
    np.testing.assert_allclose(code.generator[4] @ [3, 6, 5, 10], 115)


def test_matdot_over_integers():
    code = MatDotCode(4, 2, points=[-1, 0, 1, 2])
    sent = scalars(code, (1, 2), (3, 5))
    assert sent.tolist() == [-2, 5, 24, 55]
    for three in combinations(range(4), 3):
        answer, _ = code.decode({i: sent[i] for i in three})
        assert answer == pytest.approx(13)
        np.testing.assert_allclose(np.linalg.solve(code.generator[list(three)], sent[list(three)]), [5, 13, 6])


def test_the_mean_of_the_orthonormal_basis_is_gauss_quadrature():
    k = 4
    code = OrthoMatDotCode(9, k)
    nodes = np.cos(np.pi * (np.arange(k) + 0.5) / k)
    basis = np.cos(np.arange(k) * np.arccos(nodes)[:, None]) * np.where(np.arange(k), 2**0.5, 1)
    A, B = cases.operands(code)
    products = [np.tensordot(row, A, 1).T @ np.tensordot(row, B, 1) for row in basis]
    np.testing.assert_allclose(np.mean(products, axis=0), cases.wanted(code, A, B), atol=1e-12)
    for worker in range(9):
        i, _ = code.operands(worker)
        x = code.points[worker]
        np.testing.assert_allclose(
            code.left.generator[i], np.cos(np.arange(k) * np.arccos(x)) * np.where(np.arange(k), 2**0.5, 1), atol=1e-12
        )


def test_entangled_exponents():
    code = EntangledCode(9, p=2, q=2, inner=2, points=np.arange(9) - 4)
    x = code.points[6]
    assert code.guaranteed_threshold == 9
    i, j = code.operands(6)
    # blocks (s, a): x**(s + 2 a); blocks (s, b): x**(1 - s + 4 b)
    np.testing.assert_allclose(code.left.generator[i], [1, x**2, x, x**3])
    np.testing.assert_allclose(code.right.generator[j], [x, x**5, 1, x**4])


@pytest.mark.parametrize(
    ("n", "p", "q", "median", "p95"), [(20, 4, 4, 26, 310), (60, 6, 6, 110, 1200), (130, 10, 10, 190, 1300)]
)
def test_condition_of_systematic_khatri_rao(n, p, q, median, p95):
    rng = np.random.default_rng(n)
    conditions = []
    for seed in range(3):
        code = KhatriRaoCode(n, p=p, q=q, seed=seed)
        conditions += [np.linalg.cond(code.generator[rng.choice(n, p * q, replace=False)]) for _ in range(40)]
    assert median / 3 < np.median(conditions) < 3 * median
    assert np.quantile(conditions, 0.95) < 10 * p95


def test_condition_of_the_alternatives():
    rng = np.random.default_rng(4)
    for code, low, high in (
        (PolynomialCode(20, p=4, q=4, allow_unstable=True), 1e5, 1e7),
        (ComplexPolynomialCode(20, p=4, q=4), 3, 50),
        (ComplexPolynomialCode(60, p=6, q=6), 300, 1e5),
        (MatDotCode(20, 5), 1e3, 3e4),
        (OrthoMatDotCode(20, 5), 20, 500),
        (MatDotCode(30, 10, allow_unstable=True), 5e6, 5e8),
        (OrthoMatDotCode(30, 10), 60, 3000),
    ):
        size = code.guaranteed_threshold
        sets = [rng.choice(code.n_workers, size, replace=False) for _ in range(60)]
        assert low < np.median([np.linalg.cond(code.generator[s]) for s in sets]) < high, code


@pytest.mark.parametrize(
    ("code", "accuracy"),
    [
        (KhatriRaoCode(60, p=6, q=6), 1e-11),
        (ComplexPolynomialCode(20, p=4, q=4), 1e-12),
        (PolynomialCode(12, p=2, q=4), 1e-11),
        (EntangledCode(16, p=2, q=2, inner=2), 1e-9),
        (MatDotCode(16, 5), 1e-9),
        (OrthoMatDotCode(30, 8), 1e-7),
        (get("polar-matmul", n_workers=64), 1e-13),
        (get("product-matmul", n_workers=121), 1e-13),
    ],
    ids=lambda x: getattr(x, "name", None),
)
def test_accuracy_at_the_threshold_is_predicted(code, accuracy):
    A, B = cases.operands(code, shape=(8, 5, 4))
    sent, exact = cases.multiplied(code, A, B), cases.wanted(code, A, B)
    rng = np.random.default_rng(8)
    for _ in range(25):
        order = rng.permutation(code.n_workers).tolist()
        tracker, ids = code.tracker(), []
        for i in order:
            ids.append(i)
            if tracker.add(i):
                break
        answer, certificate = code.decode({i: sent[i] for i in ids})
        error = cases.relative_error(answer, exact)
        assert error < accuracy
        assert error < 6 * certificate.predicted_error + 1e-15
        assert code.certify(ids).predicted_error == pytest.approx(certificate.predicted_error)
        assert code.certify(ids).residual is None


@pytest.mark.parametrize("name", sorted(cases.MATMUL))
@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int16])
def test_dtypes_of_both_operands(name, dtype):
    code = get(name, **cases.MATMUL[name])
    A, B = cases.operands(code, dtype=dtype)
    sent = cases.multiplied(code, A, B)
    answer, _ = code.decode(dict(enumerate(sent)))
    complex_answer = name == "polynomial-complex" or dtype is np.complex128
    assert answer.dtype.kind == ("c" if complex_answer else "f")
    assert answer.dtype.itemsize == (8 if dtype is np.float32 else 16) // (1 if complex_answer else 2)
    assert cases.relative_error(answer, cases.wanted(code, A, B)) < (1e-3 if dtype is np.float32 else 1e-10)


@pytest.mark.parametrize("name", sorted(cases.MATMUL))
def test_a_decoder_rebuilt_from_the_manifest(name):
    code = get(name, **cases.MATMUL[name])
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert (type(again), repr(again), again.left.of, again.right.of) == (
        type(code),
        repr(code),
        code.left.of,
        code.right.of,
    )
    for mine, other in ((code.left, again.left), (code.right, again.right)):
        assert np.array_equal(mine.generator, other.generator)
        assert not mine.generator.flags.writeable
    assert isinstance(code, Certifier)
    with pytest.raises(InputError, match="encode_left"):
        code.encode(np.ones((code.k, 2)))


def test_khatri_rao_shares_blocks_and_copies_products():
    code = KhatriRaoCode(12, p=3, q=3)
    assert (code.left.n_coded, code.right.n_coded) == (6, 6)
    assert [code.operands(t) for t in (0, 5, 8, 9, 11)] == [(0, 0), (1, 2), (2, 2), (3, 3), (5, 5)]
    assert [code.source_of(i) for i in (0, 4, 8, 9)] == [0, 4, 8, None]
    for operand in (code.left, code.right):
        np.testing.assert_allclose(np.linalg.norm(operand.generator, axis=1), 1)
    A, B = cases.operands(code)
    sent = cases.multiplied(code, A, B)
    answer, certificate = code.decode({i: sent[i] for i in (0, 1, 2, 3, 4, 5, 6, 9, 11)})
    assert certificate.unknowns == 2
    assert np.array_equal(answer[:7], sent[:7])
    with pytest.raises(NotDecodableError, match="khatri-rao"):
        code.decode({i: sent[i] for i in range(8)})


def test_the_point_zero_carries_the_first_block():
    code = PolynomialCode(9, p=2, q=3)
    assert [code.source_of(i) for i in range(9)] == [None, None, None, None, 0, None, None, None, None]
    A, B = cases.operands(code)
    sent = cases.multiplied(code, A, B)
    out = np.empty((6, *sent[0].shape))
    out[0] = sent[4]
    before = out[0].copy()
    answer, _ = code.decode({**{i: sent[i] for i in (0, 1, 2, 6, 8)}, 4: out[0]}, out=out)
    assert answer is out
    assert np.array_equal(out[0], before), "what arrived in its place stays as it is"
    assert cases.relative_error(out, cases.wanted(code, A, B)) < 1e-12
    assert PolynomialCode(3, p=1, q=1).source_of(2) == 0
    assert MatDotCode(3, 1).source_of(2) is None


SPECIAL = [
    ("polar-matmul", {"n_left": 4, "n_right": 4, "p": 3, "q": 1}),
    ("khatri-rao", {"n_workers": 6, "p": 3, "q": 1}),
    ("khatri-rao", {"n_workers": 4, "p": 1, "q": 1}),
    ("polynomial", {"n_workers": 5, "p": 1, "q": 1}),
    ("matdot", {"n_workers": 3, "k": 1}),
    ("product-matmul", {"n_left": 3, "n_right": 4, "p": 1, "q": 3}),
    ("product-matmul", {"n_left": 4, "n_right": 5, "p": 2, "q": 3}),
    ("product-matmul", {"n_left": 1, "n_right": 5, "p": 1, "q": 3}),
]
"""Where a worker may happen to have what is a source block elsewhere."""


@pytest.mark.parametrize(("name", "sizes"), [*sorted(cases.MATMUL.items()), *SPECIAL])
def test_messages_collected_in_the_memory_of_the_answer(name, sizes):
    code = get(name, **sizes)
    A, B = cases.operands(code)
    sent, exact = cases.multiplied(code, A, B), cases.wanted(code, A, B)
    rng = np.random.default_rng(6)
    for _ in range(40):
        collector = Collector(code, sent[0].shape, sent.dtype)
        tracker, ids = code.tracker(), []
        for i in rng.permutation(code.n_workers).tolist():
            ids.append(i)
            collector.file(i, sent[i])
            if tracker.add(i):
                break
        answer, _ = collector.decode(ids, None, 0.0)
        assert cases.relative_error(answer, exact) < 1e-9
        for i in ids:
            assert np.array_equal(collector.values[i], sent[i]), "a message was overwritten"


def test_symmetric_points_share_even_powers():
    code = PolynomialCode(8, p=2, q=2)
    assert (code.left.n_coded, code.right.n_coded) == (8, 4)


@pytest.mark.parametrize(
    ("name", "sizes", "mean"),
    [
        ("polar-matmul", {"n_left": 4, "n_right": 4, "p": 3, "q": 3}, 1.13 * 9),
        ("polar-matmul", {"n_left": 8, "n_right": 8, "p": 6, "q": 6}, 1.33 * 36),
        ("polar-matmul", {"n_left": 16, "n_right": 16, "p": 14, "q": 14}, 1.17 * 196),
        ("product-matmul", {"n_left": 4, "n_right": 4}, 10.0),
        ("product-matmul", {"n_left": 11, "n_right": 11}, 106.8),
    ],
)
def test_results_needed_on_average(name, sizes, mean):
    code = get(name, **sizes, **({"mode": "peel"} if name == "polar-matmul" else {}))
    found = arrivals_needed(code, trials=120)
    assert abs(found.mean - mean) < 3 * found.standard_error + 0.005 * code.k + 0.05


def test_assemble_puts_blocks_in_place():
    code = KhatriRaoCode(8, p=2, q=3)
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(5, 8)), rng.normal(size=(5, 9))
    sent = cases.multiplied(code, np.array(np.hsplit(A, 2)), np.array(np.hsplit(B, 3)))
    np.testing.assert_allclose(code.assemble(code.decode({i: sent[i] for i in range(1, 8)})[0]), A.T @ B, atol=1e-12)
    dot = OrthoMatDotCode(9, 5)
    sent = cases.multiplied(dot, A.reshape(5, 1, 8), B.reshape(5, 1, 9))
    np.testing.assert_allclose(dot.assemble(dot.decode(dict(enumerate(sent)))[0]), A.T @ B, atol=1e-12)


def test_surplus_results_expose_a_wrong_one():
    for name in sorted(set(cases.MATMUL) - {"polar-matmul"}):
        code = get(name, **cases.MATMUL[name])
        sent = cases.multiplied(code, *cases.operands(code))
        assert (code.decode(dict(enumerate(sent)))[1].residual or 0.0) < 1e-13
        sent[-1] += 1e-3
        ids = [i for i in range(code.n_workers) if i != 1]
        with pytest.raises(DecodeError, match="contradict"):
            code.decode({i: sent[i] for i in ids})


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_any_p_q_results_of_khatri_rao(p, q, spare, seed):
    code = KhatriRaoCode(p * q + spare, p=p, q=q)
    A, B = cases.operands(code, seed)
    sent = cases.multiplied(code, A, B)
    ids = np.random.default_rng(seed).permutation(code.n_workers)[: p * q].tolist()
    answer, certificate = code.decode({i: sent[i] for i in ids})
    assert cases.relative_error(answer, cases.wanted(code, A, B)) < 10 * certificate.predicted_error + 1e-15


@pytest.mark.parametrize(
    ("name", "sizes", "expected"),
    [
        ("khatri-rao", {}, (16, 3, 4, 1)),
        ("khatri-rao", {"n_workers": 20}, (20, 3, 5, 1)),
        ("khatri-rao", {"n_workers": 20, "p": 4, "q": 4}, (20, 4, 4, 1)),
        ("khatri-rao", {"n_workers": 20, "p": 4}, (20, 4, 3, 1)),
        ("khatri-rao", {"n_workers": 20, "q": 2}, (20, 7, 2, 1)),
        ("khatri-rao", {"k": 12, "q": 2}, (16, 6, 2, 1)),
        ("khatri-rao", {"k": 12, "p": 2}, (16, 2, 6, 1)),
        ("khatri-rao", {"k": 7}, (10, 1, 7, 1)),
        ("khatri-rao", {"n_workers": 1}, (1, 1, 1, 1)),
        ("polynomial", {}, (16, 2, 4, 1)),
        ("polynomial-complex", {}, (16, 3, 4, 1)),
        ("entangled", {}, (16, 2, 2, 2)),
        ("entangled", {"k": 6}, (8, 2, 3, 1)),
        ("entangled", {"n_workers": 1}, (1, 1, 1, 1)),
        ("matdot", {}, (16, 1, 1, 5)),
        ("matdot", {"k": 4}, (10, 1, 1, 4)),
        ("ortho-matdot", {}, (16, 1, 1, 6)),
        ("ortho-matdot", {"n_workers": 100}, (100, 1, 1, 10)),
        ("polar-matmul", {}, (16, 3, 3, 1)),
        ("polar-matmul", {"n_workers": 12}, (12, 2, 3, 1)),
        ("polar-matmul", {"n_workers": 13}, (13, 9, 1, 1)),
        ("polar-matmul", {"n_workers": 16, "k": 10}, (16, 5, 2, 1)),
        ("product-matmul", {}, (16, 3, 3, 1)),
        ("product-matmul", {"n_workers": 12}, (12, 2, 3, 1)),
        ("product-matmul", {"n_workers": 13}, (13, 1, 12, 1)),
        ("product-matmul", {"n_workers": 1}, (1, 1, 1, 1)),
        ("product-matmul", {"k": 20}, (30, 4, 5, 1)),
        ("product-matmul", {"p": 3, "q": 2}, (12, 3, 2, 1)),
        ("product-matmul", {"n_workers": 30, "k": 12}, (30, 3, 4, 1)),
        ("product-matmul", {"n_left": 5, "n_right": 4}, (20, 4, 3, 1)),
        ("polar-matmul", {"k": 6}, (12, 2, 3, 1)),
        ("polar-matmul", {"p": 6, "q": 6}, (64, 6, 6, 1)),
        ("polar-matmul", {"n_workers": 32, "n_left": 4}, (32, 3, 6, 1)),
    ],
)
def test_sizes(name, sizes, expected):
    code = get(name, **sizes)
    assert (code.n_workers, code.split.p, code.split.q, code.split.inner) == expected
    assert code.kind == "matmul"


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        ("khatri-rao", {"n_workers": 3, "p": 2, "q": 2}, ["n_workers", "p * q = 4", "3"]),
        ("khatri-rao", {"k": 6, "p": 4}, ["k must be p * q", "p=4"]),
        ("khatri-rao", {"p": 0}, ["p must be", "0"]),
        ("khatri-rao", {"q": 1.5}, ["q must be", "1.5"]),
        ("khatri-rao", {"seed": -1}, ["seed", "-1"]),
        ("khatri-rao", {"n_workers": 6, "p": 2, "q": 2, "left": np.ones((2, 2))}, ["right", "(2, 2)"]),
        ("polynomial", {"n_workers": 20, "p": 3, "q": 3}, ["p, q", "9", "allow_unstable"]),
        ("polynomial", {"n_workers": 3, "p": 2, "q": 2}, ["n_workers", "4"]),
        ("polynomial", {"n_workers": 5, "p": 2, "q": 2, "points": [0, 1, 2, 3, 3]}, ["points", "different"]),
        ("polynomial", {"n_workers": 5, "p": 2, "q": 2, "points": [0, 1, 2]}, ["points", "5"]),
        ("entangled", {"n_workers": 30, "p": 3, "q": 2, "inner": 2}, ["13", "9"]),
        ("entangled", {"n_workers": 8, "p": 2, "q": 2, "inner": 2}, ["n_workers", "9", "8"]),
        ("entangled", {"inner": 0}, ["inner", "0"]),
        ("matdot", {"n_workers": 30, "k": 6}, ["k must be at most 5", "6"]),
        ("matdot", {"n_workers": 4, "k": 3}, ["2 k - 1 = 5", "4"]),
        ("ortho-matdot", {"n_workers": 30, "k": 11}, ["k must be at most 10", "11"]),
        ("ortho-matdot", {"n_workers": 3, "k": 2, "points": [0, 0.5, 1.5]}, ["points", "1.5"]),
        ("polar-matmul", {"n_left": 4, "n_right": 3}, ["n_right", "power of two", "3"]),
        ("polar-matmul", {"n_workers": 16, "n_left": 3}, ["n_left * n_right", "16"]),
        ("polar-matmul", {"n_workers": 16, "k": 19}, ["p must be at most n_left", "k=19"]),
        ("polar-matmul", {"k": 6, "p": 4}, ["k must be p * q"]),
        ("product-matmul", {"n_workers": 12, "p": 13}, ["p must be at most n_left", "p=13"]),
        ("product-matmul", {"n_left": 3, "n_right": 3, "p": 2, "q": 2, "seed": -1}, ["seed"]),
        ("product-matmul", {"n_workers": 9, "parities": [np.ones((1, 2))]}, ["parities", "1"]),
        ("product-matmul", {"n_workers": 9, "parities": [np.ones((1, 2)), np.ones((2, 2))]}, ["(1, 2)", "(2, 2)"]),
        ("polar-matmul", {"kernel": "cubic"}, ["kernel", "cubic"]),
    ],
)
def test_refusals(name, sizes, words):
    with pytest.raises(InputError) as caught:
        get(name, **sizes)
    for word in words:
        assert word in str(caught.value)


def test_messages_and_blocks_that_do_not_fit():
    code = KhatriRaoCode(6, p=2, q=2)
    for wrong in (np.ones((3, 2, 2)), [np.ones(2), np.ones(3)]):
        with pytest.raises(InputError):
            code.encode_left(wrong)
    with pytest.raises(InputError, match="worker must be"):
        code.operands(6)
    with pytest.raises(InputError, match="message id"):
        code.source_of(-1)


@given(st.integers(1, 200))
@settings(max_examples=50, deadline=None)
def test_chosen_sizes_always_leave_room(n):
    workers, p, q = complete_grid(n, None, None, None)
    assert workers == n
    assert 1 <= p * q <= max(1, 3 * n // 4)
