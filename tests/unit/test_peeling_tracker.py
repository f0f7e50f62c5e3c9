"""The peeling tracker against the definition of peeling, and against the rank, on all subsets."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.base import Certifier
from serverless_gc.codes.linear import LinearCode
from serverless_gc.codes.peeling.equations import gather, pack
from serverless_gc.codes.peeling.ldpc import LDPCCode
from serverless_gc.codes.peeling.lt import LTCode
from serverless_gc.codes.peeling.schedule import make_schedule
from serverless_gc.errors import InputError, NotDecodableError

TOY = [(0, 1, 3), (1, 2, 3, 4), (0, 2, 4, 5)]
LISTS = [(0,), (0, 1), (1, 2), (2, 3), (0, 2, 3), (1, 3), (0, 1, 2, 3), (3,)]


def closure(code, arrived):
    """Source blocks that peeling knows, straight from the definition."""
    e = code.equations
    sets = [set(e.members(i).tolist()) for i in [*arrived, *range(e.n_messages, len(e))]]
    known = set()
    while True:
        new = {v for s in sets for v in s if len(s - known) == 1 and v not in known}
        if not new:
            return known & set(range(code.k))
        known |= new


def subsets(n):
    return (s for size in range(n + 1) for s in combinations(range(n), size))


CODES = [
    LTCode(4, 4, symbols=LISTS, inactivation=0),
    LTCode(1, 3, seed=3, alpha=3.0, inactivation=0),
    LTCode(2, 1, inactivation=0),
    LDPCCode(6, 3, checks=TOY, inactivation=0),
    LDPCCode(10, 6, inactivation=0, seed=2),
    LDPCCode(8, 4, ensemble="regular", column_weight=2, inactivation=0, seed=5),
    LDPCCode(2, 1, inactivation=0),
    LDPCCode(5, 1, inactivation=0),
]


@pytest.mark.parametrize("code", CODES, ids=repr)
def test_peeling_equals_its_definition_on_all_subsets(code):
    for arrived in subsets(code.n_messages):
        tracker = code.tracker()
        for i in arrived:
            verdict = tracker.add(i)
        known = closure(code, arrived)
        missing = tuple(j for j in range(code.k) if j not in known)
        assert tracker.decodable == (not missing)
        assert tracker.missing() == missing
        assert code.known_blocks(arrived) == tuple(sorted(known))
        if arrived:
            assert (bool(verdict), verdict.missing) == (not missing, missing)


@pytest.mark.parametrize("code", CODES, ids=repr)
def test_inactivation_reaches_the_rank_on_all_subsets(code):
    full = type(code).from_manifest({**code.manifest(), "params": {**code.manifest()["params"], "inactivation": 64}})
    reference = LinearCode(full.generator)
    blocks = np.random.default_rng(0).normal(size=(code.k, 3))
    coded = full.encode(blocks)
    for arrived in subsets(code.n_messages):
        tracker, slow = full.tracker(), reference.tracker()
        for i in arrived:
            tracker.add(i)
            slow.add(i)
        assert tracker.decodable == slow.decodable, arrived
        assert tracker.missing() == slow.missing()
        values = {i: coded[i] for i in arrived}
        if not slow.decodable:
            with pytest.raises(NotDecodableError) as caught:
                full.decode(values)
            assert caught.value.missing == (slow.missing() if arrived else ())
            continue
        decoded, certificate = full.decode(values)
        np.testing.assert_allclose(decoded, blocks, rtol=1e-9, atol=1e-11)
        assert (certificate.method == "inactivation") == (len(closure(code, arrived)) < code.k)
        assert full.certify(arrived).used == certificate.used


def test_toy_ldpc_counts():
    peeling, rank = LDPCCode(6, 3, checks=TOY, inactivation=0), LDPCCode(6, 3, checks=TOY)
    counts = {}
    for name, code in (("peel", peeling), ("rank", rank)):
        for size in (3, 4, 5, 6):
            decodable = 0
            for arrived in combinations(range(6), size):
                tracker = code.tracker()
                for i in arrived:
                    tracker.add(i)
                decodable += tracker.decodable
            counts[name, size] = decodable
    assert [counts["peel", size] for size in (3, 4, 5, 6)] == [8, 13, 6, 1]
    assert counts["rank", 3] == 12


CASES = {
    "lt": LTCode(4, 24, seed=1, inactivation=0),
    "lt with inactivation": LTCode(4, 24, seed=1, inactivation=16),
    "ldpc": LDPCCode(30, 20, inactivation=0),
    "ldpc with inactivation": LDPCCode(30, 20),
    "regular": LDPCCode(24, 12, ensemble="regular", inactivation=6),
}


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_laws(name, data):
    code = CASES[name]
    everything = range(code.n_messages)
    least = data.draw(st.sampled_from([0, code.k, code.n_messages * 3 // 4]))
    arrived = data.draw(st.lists(st.sampled_from(everything), min_size=least, max_size=code.n_messages, unique=True))
    other = data.draw(st.permutations(arrived))
    first, second = code.tracker(), code.tracker()
    before = False
    missing = set(range(code.k))
    for i in arrived:
        verdict = bool(first.add(i))
        assert verdict >= before, "once decodable, always decodable"
        assert set(first.missing()) <= missing, "what is known stays known"
        before, missing = verdict, set(first.missing())
        again = first.add(i)
        assert (bool(again), set(again.missing)) == (verdict, missing), "twice is once"
    for i in other:
        second.add(i)
    assert (second.decodable, second.missing()) == (first.decodable, first.missing()), "in any order"
    coded = code.encode(np.arange(code.k, dtype=float)[:, None] + 1)
    values = {i: coded[i] for i in arrived}
    if first.decodable:
        decoded, _ = code.decode(values)
        np.testing.assert_allclose(decoded[:, 0], np.arange(code.k) + 1, rtol=1e-8)
        assert np.array_equal(decoded, code.decode({i: coded[i] for i in other})[0]), "bit by bit the same"
    else:
        with pytest.raises(NotDecodableError):
            code.decode(values)


@pytest.mark.parametrize("order", ["breadth-first", "minimum-variance"])
@pytest.mark.parametrize("code", [LTCode(8, 200, inactivation=0), LDPCCode(60, 40, inactivation=0)], ids=repr)
def test_schedules_derive_every_variable_from_earlier_rounds(code, order):
    rng = np.random.default_rng(0)
    e = code.equations
    for size in (code.k // 2, code.k, int(1.3 * code.k)):
        arrived = rng.choice(code.n_messages, min(size, code.n_messages), replace=False).tolist()
        schedule = make_schedule(e, e.present(arrived), order)
        known = set()
        for first, last in zip(schedule.bounds, schedule.bounds[1:], strict=False):
            variables = schedule.variables[first:last].tolist()
            for equation, variable in zip(schedule.equations[first:last].tolist(), variables, strict=True):
                assert equation in arrived or equation >= e.n_messages
                assert set(e.members(equation).tolist()) - known == {variable}
            assert not known.intersection(variables)
            assert len(set(variables)) == len(variables)
            known.update(variables)
        assert known & set(range(code.k)) == closure(code, arrived)
        assert set(np.flatnonzero(schedule.known).tolist()) == known


def test_breadth_first_takes_the_first_equation_and_counts_rounds():
    code = LTCode(1, 3, symbols=[(0,), (0,), (0, 1), (0, 1), (1, 2)])
    e = code.equations
    schedule = make_schedule(e, e.present(range(5)), "breadth-first")
    assert schedule.equations.tolist() == [0, 2, 4]
    assert schedule.bounds == (0, 1, 2, 3)
    assert make_schedule(e, e.present(range(5)), "breadth-first", 1).variables.tolist() == [0, 1]


@pytest.mark.parametrize("message", [-1, 8])
def test_unknown_messages_are_refused(message):
    code = CODES[0]
    for call in (code.tracker().add, lambda i: code.certify([i]), lambda i: code.decode({i: np.zeros(1)})):
        with pytest.raises(InputError, match=r"message id must be in 0\.\.7"):
            call(message)


@pytest.mark.parametrize("code", [CODES[0], CODES[3]], ids=repr)
def test_a_policy_can_ask_for_more_until_the_prediction_is_good(code):
    assert isinstance(code, Certifier)
    everything = code.certify(range(code.n_messages))
    assert 0 <= everything.predicted_error < 1e-14
    assert everything.residual is None
    with pytest.raises(NotDecodableError, match="do not determine"):
        code.certify([])


def test_packing():
    indptr, indices = pack([[3, 1], [], [2]])
    where, counts = gather(indptr, np.array([2, 0, 1]))
    assert indices[where].tolist() == [2, 3, 1]
    assert counts.tolist() == [1, 2, 0]
    empty, none = pack([])
    assert (empty.tolist(), none.tolist()) == ([0], [])
