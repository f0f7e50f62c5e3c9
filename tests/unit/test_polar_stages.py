"""Partial polarization: the first stages of the transform only, short polar codes side by side."""

import itertools

import numpy as np
import pytest
from arrival_laws import verdicts_of
from gradient_sets import fed
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.linear import as_linear
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.polar.code import PolarCode
from serverless_gc.codes.polar.design import channel_erasures
from serverless_gc.codes.polar.unknowns import expand
from serverless_gc.codes.registry import from_manifest
from serverless_gc.codes.threshold import arrivals_needed
from serverless_gc.errors import DecodeError, InputError, NotDecodableError

MODES = ("sc", "peel", "rank")


def part(code, group):
    """Return the code of one group by itself."""
    size = 2**code.stages
    own = [i % size for i in code.information_set if i // size == group]
    options = {"systematic": code.systematic, "kernel": code.kernel, "mode": code.mode}
    return PolarCode(size, len(own), information_set=own, **options)


@pytest.mark.parametrize(
    ("stages", "k", "multiple"),
    [
        (4, 512, 1.71),
        (6, 512, 1.47),
        (8, 512, 1.32),
        (10, 512, 1.20),
        (4, 768, 1.28),
        (6, 768, 1.21),
        (8, 768, 1.15),
        (10, 768, 1.10),
    ],
)
def test_average_thresholds_of_a_thousand_workers(stages, k, multiple):
    """The table has two decimals of a multiple of ``k``."""
    found = arrivals_needed(PolarCode(1024, k, stages=stages, mode="sc"), trials=100, seed=3)
    assert found.never == 0
    assert abs(found.mean / k - multiple) < 3 * np.hypot(found.standard_error / k, 0.005)


@pytest.mark.parametrize(("n", "k", "stages"), [(8, 4, 2), (8, 6, 2), (12, 6, 2), (12, 9, 2), (6, 3, 1), (32, 20, 3)])
def test_plain_generator_by_its_definition(n, k, stages):
    """Position ``j`` sums those of its group whose index contains its bits; nothing else, at most ``2**stages``."""
    code = PolarCode(n, k, stages=stages, systematic=False)
    rows = [[i >> stages == j >> stages and i & j == j for i in code.information_set] for j in range(n)]
    np.testing.assert_array_equal(code.generator, np.array(rows, dtype=float))
    assert code.growth <= 2**stages
    assert (code.stages, code.length) == (stages, n)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("systematic", [True, False])
@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@pytest.mark.parametrize(("n", "k", "stages"), [(8, 4, 2), (8, 4, 1), (6, 3, 1), (4, 4, 0), (1, 1, 0)])
def test_every_subset_against_the_dense_code(n, k, stages, kernel, systematic, mode):
    code = PolarCode(n, k, stages=stages, kernel=kernel, systematic=systematic, mode=mode)
    dense = as_linear(code)
    blocks = np.random.default_rng(0).standard_normal((k, 2))
    coded = code.encode(blocks)
    np.testing.assert_allclose(coded, dense.encode(blocks), atol=1e-14)
    sources = {w: code.source_of(w) for w in range(n) if code.source_of(w) is not None}
    assert all(dense.source_of(worker) == block for worker, block in sources.items())
    assert sorted(sources.values()) == list(range(k)) or not systematic
    size = 2**stages
    parts = [part(code, group) for group in range(n // size)]
    for subset in itertools.chain.from_iterable(itertools.combinations(range(n), s) for s in range(n + 1)):
        tracker, slow = fed(code, subset), fed(dense, subset)
        if mode == "rank":
            assert (tracker.decodable, set(tracker.missing())) == (slow.decodable, set(slow.missing()))
        each = [fed(p, [w % size for w in subset if w // size == g]) for g, p in enumerate(parts)]
        assert tracker.decodable == all(t.decodable for t in each)
        values = {worker: coded[worker] for worker in subset}
        if tracker.decodable:
            np.testing.assert_allclose(code.decode(values)[0], blocks, atol=1e-12)
            np.testing.assert_allclose(dense.decode(values)[0], blocks, atol=1e-12)
        else:
            with pytest.raises(NotDecodableError) as caught:
                code.decode(values)
            assert caught.value.missing == tracker.missing() != ()
            assert set(slow.missing()) <= set(tracker.missing())


@pytest.mark.parametrize("kernel", ["binary", "hadamard"])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 1), (8, 4), (64, 48)])
def test_all_stages_are_the_whole_transform(n, k, kernel):
    whole = PolarCode(n, k, kernel=kernel)
    code = PolarCode(n, k, kernel=kernel, stages=n.bit_length() - 1)
    assert code.information_set == whole.information_set
    assert (code.stages, code.length) == (whole.stages, whole.length)
    assert (code.design_epsilon, code.guaranteed_threshold) == (whole.design_epsilon, whole.guaranteed_threshold)
    np.testing.assert_array_equal(code.generator, whole.generator)
    assert "stages" not in whole.params(), "what was stored before there were stages keeps its name"


@pytest.mark.parametrize(("n", "k", "stages"), [(1024, 512, 4), (1024, 768, 6), (96, 48, 5), (12, 9, 2)])
def test_the_channels_of_all_groups_together_fail_with_probability_one_half(n, k, stages):
    code = PolarCode(n, k, stages=stages)
    z = np.tile(channel_erasures(code.design_epsilon, 2**stages), n >> stages)
    assert z[list(code.information_set)].sum() == pytest.approx(0.5)
    groups = n >> stages
    best = np.sort(z[: 2**stages])[: k // groups]
    assert sorted(z[list(code.information_set)]) == pytest.approx(sorted(np.tile(best, groups)))


def test_a_design_of_one_number_a_worker_is_that_of_each_group():
    rng = np.random.default_rng(1)
    erasures = rng.uniform(0.05, 0.6, 32)
    code = PolarCode(32, 20, stages=3, design=erasures)
    for group in range(4):
        own = tuple(i % 8 for i in code.information_set if i // 8 == group)
        assert own == PolarCode(8, 5, design=erasures[8 * group : 8 * group + 8]).information_set
    assert code.design_epsilon is None
    reed_muller = PolarCode(32, 16, stages=3, design="reed-muller")
    assert reed_muller.information_set == tuple(8 * g + i for g in range(4) for i in (3, 5, 6, 7))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_laws(data):
    stages, groups = data.draw(st.integers(0, 4)), data.draw(st.integers(1, 5))
    n, k = groups << stages, groups * data.draw(st.integers(1, 2**stages))
    code = PolarCode(
        n,
        k,
        stages=stages,
        mode=data.draw(st.sampled_from(MODES)),
        kernel=data.draw(st.sampled_from(["binary", "hadamard"])),
        systematic=data.draw(st.booleans()),
        design=data.draw(st.sampled_from(["auto", "reed-muller", 0.2])),
    )
    order = data.draw(st.permutations(range(n)))
    needed = verdicts_of(code, order).index(True) + 1
    arrived = order[: needed + data.draw(st.integers(0, 3))]
    blocks = np.random.default_rng(0).standard_normal((k, 3))
    coded = code.encode(blocks)
    values = {worker: coded[worker] for worker in arrived}
    answer, certificate = code.decode(values)
    ids = sorted(arrived)
    np.testing.assert_allclose(answer, np.linalg.lstsq(code.generator[ids], coded[ids], rcond=None)[0], atol=1e-9)
    assert certificate.surplus_checked == len(arrived) - k
    again, _ = code.decode(dict(sorted(values.items())))
    assert answer.tobytes() == again.tobytes()


def test_the_guaranteed_threshold_is_tight():
    """Losing the support of the weakest data index of one group is fatal."""
    for n, k, stages in ((16, 8, 3), (64, 48, 4), (24, 12, 3)):
        code = PolarCode(n, k, stages=stages)
        low = 2**stages - 1
        weakest = min(code.information_set, key=lambda i: (i & low).bit_count())
        lost = {j for j in range(n) if j >> stages == weakest >> stages and j & weakest & low == j & low}
        assert n - len(lost) == code.guaranteed_threshold - 1
        assert not fed(code, set(range(n)) - lost).decodable


def test_messages_are_encoded_in_any_order():
    code = PolarCode(24, 15, stages=3)
    blocks = np.random.default_rng(2).standard_normal((15, 4, 2))
    coded = code.encode(blocks)
    some = [5, 5]
    some += np.random.default_rng(3).permutation(24)[:17].tolist()
    out = np.empty((19, 4, 2), dtype=np.complex128)
    assert code.encode(list(blocks), out, messages=some) is out
    np.testing.assert_array_equal(out, coded[some])
    for worker in range(24):
        if (block := code.source_of(worker)) is not None:
            assert coded[worker].tobytes() == blocks[block].tobytes()


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_result_of_any_group_is_caught(mode):
    code = PolarCode(16, 8, stages=3, mode=mode)
    coded = code.encode(np.random.default_rng(1).normal(size=(8, 3)))
    for wrong in range(16):
        values = dict(enumerate(coded.copy()))
        values[wrong] += 1e-3
        with pytest.raises(DecodeError, match="contradict"):
            code.decode(values)


def test_the_dense_solve_reads_only_groups_that_need_it():
    """Sets on which sequential decoding stops in some of eight groups: the others contribute no equation."""
    code = PolarCode(512, 384, stages=6, design="reed-muller")
    layout = code._layout
    rng = np.random.default_rng(6)
    blocks = rng.standard_normal((384, 8))
    coded = code.encode(blocks)
    solved = partly = 0
    for _ in range(6):
        order = rng.permutation(512).tolist()
        arrived = order[: verdicts_of(code, order).index(True) + 1]
        answer, certificate = code.decode({worker: coded[worker] for worker in arrived})
        error = np.linalg.norm(answer - blocks) / np.linalg.norm(blocks)
        assert error <= certificate.predicted_error < 1e-12
        present = code._mask(arrived)
        unresolved = layout.info_mask & ~layout.recoverable(present)
        stopped = {i // 64 for i in range(512) if unresolved >> i & 1}
        assert {check // 64 for check in expand(layout, present).checks} == stopped
        assert certificate.unknowns == unresolved.bit_count()
        solved += bool(stopped)
        partly += 0 < len(stopped) < 8
    assert solved
    assert partly


@pytest.mark.parametrize(
    "code",
    [
        PolarCode(12, 6, stages=2),
        PolarCode(8, 4, stages=1, kernel="hadamard", systematic=False, mode="sc"),
        PolarCode(16, 8, stages=2, design=np.linspace(0.1, 0.4, 16)),
        PolarCode(8, 4, stages=2, information_set=[3, 5, 6, 7]),
    ],
    ids=str,
)
def test_manifest_round_trip_through_bytes(code):
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert again.information_set == code.information_set
    assert (again.stages, again.guaranteed_threshold) == (code.stages, code.guaranteed_threshold)
    np.testing.assert_array_equal(again.generator, code.generator)
    assert PolarCode(code.n_workers, code.k, **code.params()).params() == code.params()


@pytest.mark.parametrize(
    ("n", "k", "options", "words"),
    [
        (12, 6, {"stages": 3}, r"stages must .* divisor of n_workers=12, 0 to 2, .* got 3"),
        (7, 7, {"stages": 1}, r"stages must .* n_workers=7, 0 to 0"),
        *[(8, 4, {"stages": s}, "stages must be an integer") for s in (-1, 4, 2.0, True, "2")],
        (8, 3, {"stages": 2}, r"k must be a multiple of n_workers / 2\*\*stages = 2, .* got 3 with stages=2"),
        (8, 4, {"stages": 2, "design": [0.1] * 7}, "design"),
        (8, 4, {"stages": 2, "information_set": [4, 5, 6, 7]}, "information_set"),  # nothing for the first group
        (8, 4, {"stages": 2, "information_set": [1, 3, 5, 8]}, "information_set"),
        (8, 4, {"stages": 2, "information_set": [2, 1, 6, 7]}, "information_set"),  # without 3, which holds both
    ],
)
def test_refusals(n, k, options, words):
    with pytest.raises(InputError, match=words):
        PolarCode(n, k, **options)
