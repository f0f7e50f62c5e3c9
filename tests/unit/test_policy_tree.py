"""A tree of workers under the engine: whoever fails, in whatever order results come."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serverless_gc.codes.gradient import CodedReduceCode
from serverless_gc.engine import AbortRound, Arrived, CloseRound, Engine, Failed, Issue, VirtualHost
from serverless_gc.errors import InputError, NotDecodableError
from serverless_gc.inject import Stragglers
from serverless_gc.policies import Deadline, UntilTree, approximate_policy, natural_policy
from serverless_gc.stragglers import Constant, Injected

TREES = {
    "cyclic": CodedReduceCode.tree(3, 2, stragglers=1, inner="cyclic"),
    "frc": CodedReduceCode.tree(4, 2, stragglers=1),
    "deep": CodedReduceCode.tree(2, 3, stragglers=1),
    "flat": CodedReduceCode.tree(5, 1, stragglers=2),
}


def play(code, policy, dead=(), seed=0, max_attempts=1):
    """Run a round whose tasks end in random order and compute; return its outcome, the values and all tasks."""
    rng = random.Random(seed)
    gradients = np.arange(1.0, code.k + 1)
    engine = Engine(policy, code.n_workers, max_attempts=max_attempts)
    tasks, values, flying = [], {}, []
    actions = engine.open(0.0)
    for t in range(1, 1000):
        for action in actions:
            if isinstance(action, Issue):
                flying.append(action.task)
                tasks.append(action.task)
            elif isinstance(action, (CloseRound, AbortRound)):
                return action.outcome, values, tasks
        task = flying.pop(rng.randrange(len(flying)))
        if task.slot in dead:
            actions = engine.handle(Failed(task, "function", "broken"), float(t))
            continue
        units, weights = code.local(task.slot)
        combined = task.payload.get("children", {})
        values[task.slot] = weights @ gradients[units] + sum(a * values[child] for child, a in combined.items())
        actions = engine.handle(Arrived(task), float(t))
    raise AssertionError("the round does not end")


@given(name=st.sampled_from(sorted(TREES)), seed=st.integers(0, 10**6), share=st.sampled_from([0.0, 0.1, 0.3, 0.6]))
@settings(max_examples=150, deadline=None)
def test_exact_whenever_the_tree_can_be_decoded_and_given_up_otherwise(name, seed, share):
    code = TREES[name]
    rng = np.random.default_rng(seed)
    dead = set(np.flatnonzero(rng.random(code.n_workers) < share).tolist())
    outcome, values, tasks = play(code, UntilTree(code), dead, seed)
    assert outcome.counts.balanced
    assert all(len(task.payload.get("children", ())) <= code.branching for task in tasks)
    assert len({task.slot for task in tasks}) == len(tasks)
    try:
        code.aggregate(np.ones(code.k), dead)
    except NotDecodableError:
        assert outcome.error == "starved"
        assert outcome.arrivals == ()
        return
    assert outcome.error is None
    here = [a.task.slot for a in outcome.arrivals if code.parent(a.task.slot) is None]
    total = sum(a * values[node] for node, a in code.combine(None, here).items())
    assert total == pytest.approx(code.k * (code.k + 1) / 2, rel=1e-9)


def test_used_are_those_that_reached_the_driver():
    code = TREES["cyclic"]
    for seed in range(20):
        outcome, _, tasks = play(code, UntilTree(code), seed=seed)
        combined = {task.slot: set(task.payload.get("children", ())) for task in tasks}
        used = {a.task.slot for a in outcome.arrivals}
        assert len([node for node in used if node < 3]) == 2
        for node in used:
            assert combined[node] <= used
            assert node < 3 or node in combined[code.parent(node)]
        counts = outcome.counts
        assert (counts.used, counts.issued) == (len(used), len(tasks))
        assert counts.used + counts.surplus + counts.voided == counts.issued


def test_a_parent_is_tried_again_with_the_same_children():
    code = TREES["cyclic"]
    engine = Engine(UntilTree(code), 12, max_attempts=2)
    leaves = {action.task.slot: action.task for action in engine.open(0.0)}
    assert sorted(leaves) == list(range(3, 12))
    assert engine.handle(Arrived(leaves[4]), 1.0) == []
    [first] = engine.handle(Arrived(leaves[3]), 2.0)
    assert first.task.slot == 0
    assert first.task.payload["children"] == code.combine(0, [3, 4])
    [again] = [a for a in engine.handle(Failed(first.task, "timeout"), 3.0) if isinstance(a, Issue)]
    assert (again.task.attempt, again.task.payload) == (1, first.task.payload)


def test_slow_nodes_are_not_waited_for_on_any_level():
    code = TREES["frc"]
    slow = {0, 4, 8, 12, 16}  # one child of the driver, one of each node
    model = Injected(Constant(1.0), Stragglers(fraction=slow, slowdown=1e6, persistent=True))
    [outcome] = VirtualHost(model).simulate(Engine(UntilTree(code), 20), rounds=1)
    assert outcome.t_close == 2.0
    model = Injected(Constant(1.0), Stragglers(fraction={4, 5, 8, 9}, slowdown=100.0, persistent=True))
    cyclic = CodedReduceCode.tree(4, 2, stragglers=1, inner="cyclic")
    [outcome] = VirtualHost(model).simulate(Engine(UntilTree(cyclic), 20), rounds=1)
    assert outcome.t_close == 101.0  # two children lack a child too many: one of them has to be waited for


def test_it_says_who_waits_for_whom():
    code = TREES["cyclic"]
    outcome, _, _ = play(code, UntilTree(code), dead={3, 4, 6, 7, 9})
    assert outcome.error == "starved"
    assert "node 0 has 1 of 3, node 1 has 1 of 3" in outcome.reason
    engine = Engine(Deadline(UntilTree(code), 5.0), 12)
    [outcome] = VirtualHost(Constant(10.0)).simulate(engine, rounds=1)
    assert outcome.error == "deadline"
    assert "node 0 has 0 of 3" in outcome.reason


def test_approximate_answers_count_the_children_of_the_driver():
    code = TREES["cyclic"]
    outcome, _, _ = play(code, approximate_policy(code, wait=1))
    assert [a.task.slot for a in outcome.arrivals if a.task.slot < 3] == [a.task.slot for a in outcome.arrivals][-1:]
    outcome, _, _ = play(code, approximate_policy(code, max_error=1.0))
    assert outcome.error is None
    assert isinstance(natural_policy(code), UntilTree)


@pytest.mark.parametrize(("options", "words"), [({"wait": 4}, "children in the tree, 3, got 4"), ({"wait": 0}, "wait")])
def test_refusals(options, words):
    with pytest.raises(InputError, match=words):
        UntilTree(TREES["cyclic"], **options)
    with pytest.raises(InputError, match="slots"):
        Engine(UntilTree(TREES["cyclic"]), 11).open(0.0)
