"""Projective derivative codes: union-find against rank, decoding against least squares, the choice of lines."""

from itertools import combinations

import numpy as np
import pytest

from serverless_gc.codes import get
from serverless_gc.codes.projective import Line, ProjectiveCode, ProjectiveTracker, _choose_lines, _Walk
from serverless_gc.errors import DecodeError, InputError


def vector(line, k):
    v = np.zeros(k)
    v[line.a] = 1
    if not line.is_anchor:
        v[line.b] = line.sign
    return v / np.linalg.norm(v)


def test_four_blocks_have_twelve_lines_and_315_bases():
    lines = _choose_lines(12, 4, systematic=False)
    assert len(set(lines)) == 12
    matrix = np.array([vector(line, 4) for line in lines])
    np.testing.assert_allclose(matrix.T @ matrix / 12, np.eye(4) / 4, atol=1e-15)
    full = sum(np.linalg.matrix_rank(matrix[list(s)]) == 4 for s in combinations(range(12), 4))
    assert full == 315
    for size in range(1, 6):
        for chosen in combinations(range(12), size):
            tracker = ProjectiveTracker(lines, 4)
            for i in chosen:
                tracker.add(i)
            assert tracker.decodable == (np.linalg.matrix_rank(matrix[list(chosen)]) == 4)


def test_tracker_agrees_with_rank_on_random_instances():
    rng = np.random.default_rng(0)
    for _ in range(600):
        k = int(rng.integers(1, 9))
        lines = []
        for _ in range(int(rng.integers(1, 2 * k + 2))):
            a, b = sorted(rng.integers(0, k, 2).tolist())
            lines.append(Line(a) if a == b else Line(a, b, int(rng.choice([-1, 1]))))
        matrix = np.array([vector(line, k) for line in lines])
        tracker = ProjectiveTracker(lines, k)
        for i in range(len(lines)):
            tracker.add(i)
            assert tracker.decodable == (np.linalg.matrix_rank(matrix[: i + 1]) == k)
        rank = np.linalg.matrix_rank(matrix)
        known = {j for j in range(k) if np.linalg.matrix_rank(np.vstack([matrix, np.eye(k)[j]])) == rank}
        assert set(tracker.missing()) == set(range(k)) - known
        assert _Walk(lines, k, range(len(lines))).missing == tracker.missing()


def test_the_trap_of_lines_that_never_decode():
    k = 6
    lines = [(a, (a + 1) % k, 1) for a in range(k)] + [(a, (a + 2) % k, -1) for a in range(k)]
    with pytest.raises(InputError, match="a cycle whose signs contradict"):
        ProjectiveCode(2 * k, k, lines=lines)
    code = ProjectiveCode(2 * k, k, lines=[*lines[1:], (3,)])
    assert np.linalg.matrix_rank(code.generator) == k
    assert np.linalg.matrix_rank(code.generator[:-1]) == k - 1
    assert get("lwpd", n_workers=2 * k, k=k, **code.params()).lines == code.lines


@pytest.mark.parametrize(("n", "k", "systematic"), [(9, 5, True), (20, 5, False), (25, 5, True), (12, 4, False)])
def test_decodes_every_decodable_set_as_least_squares_does(n, k, systematic):
    code = ProjectiveCode(n, k, systematic=systematic)
    rng = np.random.default_rng(2)
    blocks = rng.normal(size=(k, 3, 2))
    sent = code.encode(blocks)
    tried = 0
    for _ in range(150):
        chosen = rng.permutation(n)[: int(rng.integers(k, n + 1))].tolist()
        if np.linalg.matrix_rank(code.generator[chosen]) == k:
            answer, certificate = code.decode({i: sent[i] for i in chosen})
            np.testing.assert_allclose(answer, blocks, atol=1e-13)
            assert certificate.surplus_checked == len(chosen) - len(certificate.used)
            tried += 1
    assert tried > 30


def test_lines_are_far_apart_and_use_blocks_evenly():
    code = ProjectiveCode(12, 6)
    gram = np.abs(code.generator @ code.generator.T)
    assert gram[6:, 6:][~np.eye(6, dtype=bool)].max() < 0.5 + 1e-12
    usage = np.count_nonzero(code.generator[6:], axis=0)
    assert usage.max() - usage.min() <= 1
    first = ProjectiveCode(8, 4, systematic=True).lines[4:]
    assert [{line.a, line.b} for line in first[:2]] == [{0, 1}, {2, 3}]


def test_a_wrong_surplus_message_is_noticed():
    code = ProjectiveCode(8, 4)
    sent = dict(enumerate(code.encode(np.ones((4, 5)))))
    sent[7] = sent[7] + 1
    with pytest.raises(DecodeError, match="contradict"):
        code.decode(sent)


def test_bad_parameters_are_named():
    for n, k, systematic, match in [
        (3, 4, True, "n_workers must be between k=4 and the 16 lines"),
        (17, 4, True, "n_workers must be between k=4 and the 16 lines"),
        (13, 4, False, "n_workers must be between k=4 and the 12 lines"),
    ]:
        with pytest.raises(InputError, match=match):
            ProjectiveCode(n, k, systematic=systematic)
    for line in [(4,), (0, 1), (0, 0, 1), (0, 1, 2), (0, 1, 2, 3), ()]:
        with pytest.raises(InputError, match=r"a line must be \(a,\) or"):
            ProjectiveCode(5, 4, lines=[(0,), (1,), (2,), (3,), line])
    with pytest.raises(InputError, match="lines must have one for each of n_workers=5, got 1"):
        ProjectiveCode(5, 4, lines=[(0,)])
    with pytest.raises(InputError, match="k must be an integer of at least 1"):
        ProjectiveCode(4, 0)
