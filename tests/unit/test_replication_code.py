"""Copies: thresholds in closed form, trackers against brute force, decoding."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.base import Certifier
from serverless_gc.codes.linear import as_linear
from serverless_gc.codes.manifests import manifest_from_bytes, manifest_to_bytes
from serverless_gc.codes.registry import from_manifest
from serverless_gc.codes.replication import ReplicationCode
from serverless_gc.codes.uncoded import UncodedCode
from serverless_gc.errors import DecodeError, InputError, NotDecodableError


@pytest.mark.parametrize(
    ("n", "k", "mean"),
    [
        (4, 2, 7 / 3),
        (6, 3, 3.8),
        (6, 2, 2.5),
        (64, 32, 54.934),
        (100, 50, 88.436),
        (1024, 512, 984.88),
        (90, 30, 65.039),
        (7, 7, 7.0),
    ],
)
def test_average_threshold(n, k, mean):
    assert ReplicationCode(n, k).average_threshold == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize(("n", "k"), [(5, 2), (7, 3), (7, 4), (6, 3)])
def test_average_threshold_equals_enumeration_also_when_uneven(n, k):
    code = ReplicationCode(n, k, allow_uneven=True)
    counts = []
    for order in permutations(range(n)):
        tracker = code.tracker()
        counts.append(next(i for i, j in enumerate(order, 1) if tracker.add(j)))
    assert code.average_threshold == pytest.approx(np.mean(counts), rel=1e-12)


@pytest.mark.parametrize(("n", "k"), [(6, 3), (6, 2), (4, 4), (7, 3), (5, 1)])
def test_guaranteed_threshold_is_tight_and_tracker_equals_rank(n, k):
    code = ReplicationCode(n, k, allow_uneven=True)
    reference = as_linear(code)
    worst = 0
    for size in range(n + 1):
        for subset in combinations(range(n), size):
            fast, slow = code.tracker(), reference.tracker()
            for i in subset:
                fast.add(i)
                slow.add(i)
            assert fast.decodable == slow.decodable
            assert fast.missing() == slow.missing()
            if not fast.decodable:
                worst = max(worst, size)
    assert code.guaranteed_threshold == worst + 1


def test_copies_of_a_block_are_launched_apart():
    code = ReplicationCode(6, 3)
    assert [code.source_of(j) for j in range(6)] == [0, 1, 2, 0, 1, 2]
    assert code.generator.tolist() == (np.eye(3).tolist() * 2)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128, np.int64])
def test_round_trip_is_exact(dtype):
    blocks = (np.arange(24).reshape(3, 4, 2) * 3).astype(dtype)
    code = ReplicationCode(6, 3)
    coded = code.encode(blocks)
    decoded, certificate = code.decode({i: coded[i] for i in (5, 0, 4)})
    assert np.array_equal(decoded, blocks)
    assert certificate.method == "copy"
    assert certificate.used == (0, 4, 5)
    assert certificate.residual is None
    _, certificate = code.decode(dict(enumerate(coded)))
    assert (certificate.residual, certificate.surplus_checked) == (0.0, 3)
    assert certificate.used == (0, 1, 2)
    assert np.array_equal(code.encode(list(blocks), messages=[4]), blocks[1:2])


def test_scalars_are_blocks_too():
    code = ReplicationCode(4, 2)
    coded = code.encode([1.5, 2.5])
    decoded, _ = code.decode({2: coded[2], 1: coded[1]})
    assert decoded.tolist() == [1.5, 2.5]


def test_copies_that_differ_are_refused():
    code = ReplicationCode(4, 2)
    values = {0: np.ones(3), 1: np.ones(3), 3: np.array([1.0, 1.0, 1.5])}
    with pytest.raises(DecodeError, match="contradict"):
        code.decode(values)
    values[3] = np.array([1.0, 1.0, 1.0 + 1e-12])
    _, certificate = code.decode(values)
    assert 0 < certificate.residual < 1e-11


def test_nothing_is_copied_where_it_is_there_already():
    code = UncodedCode(2, 2)
    out = np.arange(6.0).reshape(2, 3)
    values = {0: out[0], 1: out[1]}
    out.setflags(write=False)
    decoded, _ = code.decode(values, out=out)
    assert decoded is out
    assert code.encode(out, out) is out


def test_undecodable_names_the_missing():
    code = ReplicationCode(6, 3)
    with pytest.raises(NotDecodableError) as caught:
        code.decode({0: np.ones(2), 3: np.ones(2)})
    assert caught.value.missing == (1, 2)
    with pytest.raises(NotDecodableError):
        code.certify([0, 3])
    assert isinstance(code, Certifier)
    assert code.certify([0, 4, 5]).amplification == 1.0


def test_refusals():
    with pytest.raises(InputError, match="multiple of k=2"):
        ReplicationCode(5, 2)
    with pytest.raises(InputError, match="at least k=3"):
        ReplicationCode(2, 3, allow_uneven=True)
    with pytest.raises(InputError, match="equal k=3"):
        UncodedCode(4, 3)
    for n, k in [(0, 1), (2, 0), (2.0, 1), (True, 1)]:
        with pytest.raises(InputError):
            ReplicationCode(n, k)
    with pytest.raises(InputError, match="message id"):
        ReplicationCode(4, 2).tracker().add(4)
    with pytest.raises(InputError, match="message id"):
        ReplicationCode(4, 2).encode(np.ones((2, 1)), messages=[4])
    with pytest.raises(InputError, match="k=2 blocks"):
        ReplicationCode(4, 2).encode(np.ones((3, 1)))
    with pytest.raises(InputError, match="one shape"):
        ReplicationCode(4, 2).encode([np.ones(1), np.ones(2)])


@pytest.mark.parametrize("code", [ReplicationCode(7, 3, allow_uneven=True), ReplicationCode(6, 3), UncodedCode(4, 4)])
def test_manifest_round_trip_through_bytes(code):
    again = from_manifest(manifest_from_bytes(manifest_to_bytes(code.manifest())))
    assert type(again) is type(code)
    assert np.array_equal(again.generator, code.generator)
    assert repr(again) == repr(code)


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), max_size=15))
def test_tracker_laws(arrivals):
    code = ReplicationCode(6, 3)
    forward, backward = code.tracker(), code.tracker()
    done = False
    for i in arrivals:
        assert bool(forward.add(i)) or not done
        done = forward.decodable
        assert bool(forward.add(i)) == done
    for i in reversed(arrivals):
        backward.add(i)
    assert backward.decodable == done
    assert backward.missing() == forward.missing()
