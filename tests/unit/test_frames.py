"""Frames of encoded optimization: tightness, angles, worked values, and the guarantee on the worked numbers."""

from itertools import combinations

import numpy as np
import pytest

from serverless_gc.codes.encoded.frames import FRAMES, Frame, HadamardFrame, deviation, make_frame, suboptimality
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.errors import InputError

TIGHT = sorted(set(FRAMES) - {"gaussian"})


@pytest.mark.parametrize("name", TIGHT)
@pytest.mark.parametrize("n", [1, 3, 6, 11])
def test_tight_frames_are_tight(name, n):
    frame = make_frame(name, n, 1)
    s = frame.matrix
    assert s.shape == (frame.n_coded, n)
    np.testing.assert_allclose(s.T @ s, frame.beta * np.eye(n), atol=1e-12)


def test_a_gaussian_frame_is_tight_on_average():
    frame = make_frame("gaussian", 400, 4)
    gram = frame.matrix.T @ frame.matrix
    assert frame.n_coded == 800
    assert np.trace(gram) / 400 == pytest.approx(2, abs=3 * 2 * np.sqrt(2 / (800 * 400)))


def test_paley_worked_values():
    frame = make_frame("paley", 3, 2)
    s = frame.matrix
    assert s.shape == (6, 3)
    products = np.abs(s @ s.T)[~np.eye(6, dtype=bool)]
    np.testing.assert_allclose(products, 0.4472136, atol=1e-7)
    np.testing.assert_allclose(np.linalg.norm(s, axis=1), 1)


def test_steiner_worked_values():
    frame = make_frame("steiner", 6, 2)
    s = frame.matrix
    assert s.shape == (16, 6)
    np.testing.assert_allclose(s.T @ s, 8 / 3 * np.eye(6), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(s, axis=1), 1)
    assert set(np.abs(s @ s.T)[~np.eye(16, dtype=bool)].round(9)) <= {0.0, round(1 / 3, 9)}
    assert (np.count_nonzero(s, axis=0) == 8).all()


def test_hadamard_worked_eigenvalues():
    frame = HadamardFrame(4, 4, columns=[1, 2, 4, 7], order=range(8))
    np.testing.assert_allclose(np.abs(frame.matrix), 0.5)

    def eigenvalues(lost):
        rows = np.concatenate([frame.matrix[frame.part(i)] for i in range(4) if i not in lost])
        return np.linalg.eigvalsh(rows.T @ rows * 4 / ((4 - len(lost)) * frame.beta)).round(9).tolist()

    for i in range(4):
        assert eigenvalues({i}) == pytest.approx([2 / 3, 2 / 3, 4 / 3, 4 / 3])
    for lost in combinations(range(4), 2):
        expected = [0, 0, 2, 2] if lost in {(0, 3), (1, 2)} else [1, 1, 1, 1]
        assert eigenvalues(set(lost)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", sorted(FRAMES))
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int16])
def test_encoding_is_the_product_with_the_matrix(name, dtype):
    frame = make_frame(name, 13, 3, seed=4)
    rows = (np.random.default_rng(1).normal(size=(13, 2, 3)) * 9).astype(dtype)
    coded = frame.encode(rows)
    expected = np.tensordot(frame.matrix, rows, axes=1)
    np.testing.assert_allclose(coded, expected, rtol=2e-4 if dtype == np.float32 else 1e-12, atol=1e-4)
    again = Frame.from_manifest(manifest_from_bytes(manifest_to_bytes(frame.manifest())))
    assert np.array_equal(again.encode(rows), coded)


@pytest.mark.parametrize("name", sorted(FRAMES))
def test_the_parts_of_the_workers_are_all_rows_and_nearly_equal(name):
    frame = make_frame(name, 13, 5)
    parts = [range(frame.n_coded)[frame.part(i)] for i in range(5)]
    assert [i for part in parts for i in part] == list(range(frame.n_coded))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("name", "q", "worst"),
    [("hadamard", 24, 1.011), ("haar", 24, 1.018), ("replication", 24, 1.021), ("uncoded", 24, 1.032)],
)
def test_the_minimizer_without_the_stragglers_obeys_the_guarantee(name, q, worst):
    # n=512, p=20, beta=2, m=32, noisy data, as in the table of the specification.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(512, 20))
    y = X @ rng.normal(size=20) + rng.normal(size=512)
    frame = make_frame(name, 512, 32, seed=1)
    SX, Sy = frame.encode(X), frame.encode(y)
    best = np.sum((X @ np.linalg.lstsq(X, y, rcond=None)[0] - y) ** 2)
    data = np.c_[X, y]
    ratios = []
    for _ in range(30):
        chosen = rng.permutation(32)[:q]
        rows = np.concatenate([np.arange(frame.n_coded)[frame.part(i)] for i in chosen])
        w = np.linalg.lstsq(SX[rows], Sy[rows], rcond=None)[0]
        ratios.append(np.sum((X @ w - y) ** 2) / best)
        assert ratios[-1] <= suboptimality(deviation(frame, chosen, data)) * (1 + 1e-9)
    assert 1 <= max(ratios) < 1 + 2 * (worst - 1)


def test_a_tight_frame_never_exceeds_the_bound_that_makes_a_step_safe():
    frame = make_frame("hadamard", 20, 8)
    for q in (5, 7):
        for chosen in combinations(range(8), q):
            rows = np.concatenate([frame.matrix[frame.part(i)] for i in chosen])
            largest = np.linalg.eigvalsh(rows.T @ rows * 8 / (q * frame.beta))[-1]
            assert largest <= 8 / q + 1e-9


def test_bad_parameters_are_named():
    for bad, match in [
        ({"beta": 0.5}, "beta must be at least 1, got 0.5"),
        ({"n_workers": 99}, "n_workers must be at most the number of coded rows 16, got 99"),
        ({"n": 0}, "n must be an integer of at least 1, got 0"),
        ({"name": "fourier"}, "frame must be one of hadamard, haar"),
        ({"name": "paley", "beta": 3}, "beta must be at most 2 for a Paley frame"),
        ({"name": "steiner", "beta": 3}, "beta must be at most 2.667 for a Steiner frame"),
        ({"name": "replication", "beta": 1.5}, "whole number of copies"),
    ]:
        with pytest.raises(InputError, match=match):
            make_frame(**{"name": "hadamard", "n": 5, "n_workers": 4} | bad)
    frame = make_frame("haar", 5, 4)
    with pytest.raises(InputError, match="the frame is for n=5 rows, got 4"):
        frame.encode(np.ones(4))
    with pytest.raises(InputError, match="worker must be in"):
        frame.part(4)
    with pytest.raises(InputError, match="at least one worker"):
        deviation(frame, [])
