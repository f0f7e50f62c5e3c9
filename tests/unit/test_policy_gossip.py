"""When nodes may go on, which mail they take, and that all hosts agree on it."""

import asyncio

import pytest

from serverless_gc.engine import (
    AioHost,
    Arrived,
    CloseRound,
    Completion,
    Engine,
    Failed,
    Issue,
    VirtualHost,
)
from serverless_gc.errors import InputError, InvokeError
from serverless_gc.inject import draw
from serverless_gc.policies import GossipReady, LocallyAsync
from serverless_gc.stragglers import Constant, Exponential
from serverless_gc.testing.jump_loop import run_virtually
from serverless_gc.topologies import Complete, DirectedRing, LayerPeers, OnePeerExponential, RandomOut, Ring
from serverless_gc.types import Timing, WaitPolicy


class Driven:
    """An engine fed by hand: what is in flight, by node."""

    def __init__(self, policy, n, **options):
        self.engine = Engine(policy, n, **options)
        self.flying, self.time, self.closed = {}, 0.0, 0
        self.take(self.engine.open(0.0))

    def take(self, actions):
        issued = []
        for action in actions:
            if isinstance(action, Issue):
                self.flying[action.task.slot] = action.task
                issued.append((action.task.slot, action.task.payload["round"]))
            elif isinstance(action, CloseRound):
                self.closed += 1
        if not self.engine.is_open:
            issued += self.take(self.engine.open(self.time))
        return issued

    def arrive(self, node):
        self.time += 1.0
        return self.take(self.engine.handle(Arrived(self.flying.pop(node)), self.time))

    def mail(self, node):
        return list(self.flying[node].payload["mail"])


def test_a_node_waits_for_its_senders_alone():
    run = Driven(GossipReady(DirectedRing(4), every=3), 4)
    assert {node: t.payload for node, t in run.flying.items()} == {i: {"round": 1, "mail": ()} for i in range(4)}
    assert run.arrive(1) == []  # node 0 sends to node 1 and has not
    assert run.arrive(0) == [(1, 2)]
    assert run.mail(1) == [(0, 1)]
    assert run.arrive(1) == []  # two rounds ahead of node 3, which it does not hear
    assert run.arrive(2) == [(2, 2)]
    assert run.mail(2) == [(1, 1)]  # and not the mail of round 2, which is there
    assert run.arrive(3) == [(3, 2), (0, 2)]
    assert run.closed == 0


def test_overlap_lets_mail_be_late_but_never_skips_it():
    run = Driven(GossipReady(DirectedRing(3), 1, every=9), 3)
    assert run.arrive(0) == [(0, 2)]
    assert run.mail(0) == []
    assert run.arrive(0) == []  # round 3 must have the mail of round 1
    assert run.arrive(2) == [(2, 2), (0, 3)]
    assert run.mail(0) == [(2, 1)]
    run.arrive(2)
    run.arrive(0)
    assert run.flying[0].payload == {"round": 4, "mail": ((2, 2),)}


@pytest.mark.parametrize("tau", [0, 1, 3])
@pytest.mark.parametrize("topology", [OnePeerExponential(6), RandomOut(6, 2, seed=1)], ids=lambda t: type(t).__name__)
def test_all_mail_is_taken_once_and_in_time(topology, tau):
    host, engine = VirtualHost(Exponential(1.0), seed=tau), Engine(GossipReady(topology, tau, every=10), 6)
    taken, finished = {}, [0] * 6
    for outcome in host.simulate(engine, rounds=3):
        for a in outcome.arrivals:
            k = a.task.payload["round"]
            finished[a.task.slot] = k
            assert list(a.task.payload["mail"]) == sorted(a.task.payload["mail"], key=lambda m: (m[1], m[0]))
            for src, sent in a.task.payload["mail"]:
                assert (a.task.slot, src, sent) not in taken
                assert k - 1 - tau <= sent <= k - 1
                taken[a.task.slot, src, sent] = k
        assert min(finished) == outcome.version * 10 + 10
    for src, k in enumerate(finished):
        for sent in range(1, k + 1):
            for dst, _ in topology.out(src, sent):
                if dst != src and sent <= finished[dst] - 1 - tau:
                    assert (dst, src, sent) in taken


@pytest.mark.parametrize(
    ("n", "barrier", "neighbours"), [(16, 3.38, (2.29, 2.14, 1.60, 1.33)), (32, 4.06, (2.34, 2.21, 1.68, 1.36))]
)
def test_waiting_for_neighbours_is_bounded_and_for_all_grows_like_the_logarithm(n, barrier, neighbours):
    assert Exponential(1.0).mean_order_stat(n, n) == pytest.approx(barrier, abs=5e-3)
    rounds = 300
    graphs = [(Ring(n), 0), (OnePeerExponential(n), 0), (OnePeerExponential(n), 1), (OnePeerExponential(n), 3)]
    for (topology, tau), expected in zip(graphs, neighbours, strict=True):
        engine = Engine(GossipReady(topology, tau, every=rounds, last=rounds), n, keep_records=False)
        [outcome] = VirtualHost(Exponential(1.0), seed=1).simulate(engine, 1)
        assert outcome.duration / rounds == pytest.approx(expected, rel=0.04)


def test_bounded_delay_of_event_triggered_nodes():
    """AET-SGD: round i = k - 1 may start if every in-neighbour has done i - d_max; newer models are averaged too."""
    d_max = 3
    run = Driven(GossipReady(Complete(2), d_max - 1, every=99, ahead=True), 2)
    done = 0
    while 0 in run.flying:
        run.arrive(0)
        done += 1
    assert done == d_max  # round 4 needs round 1 of the other
    assert (0, 4) in run.arrive(1)
    assert run.mail(1) == [(0, 1), (0, 2), (0, 3)]  # ahead of the node's own round 2


def test_without_a_bound_nobody_waits():
    run = Driven(GossipReady(LayerPeers(3, 2), None, ahead=True), 3)
    assert [run.arrive(0) for _ in range(5)] == [[(0, k)] for k in range(2, 7)]
    assert run.closed == 0
    run.arrive(1)
    assert run.arrive(2)[-1] == (2, 2)
    assert run.closed == 1  # every node has finished a round
    assert len(run.engine.last.arrivals) == 7


def test_work_grows_with_the_round():
    engine, host = Engine(GossipReady(Complete(2), every=3, work=lambda k: 10.0 * k), 2), VirtualHost(Constant(1.0))
    [outcome] = host.simulate(engine, rounds=1)
    assert [a.task.work for a in outcome.arrivals] == [10.0, 10.0, 20.0, 20.0, 30.0, 30.0]
    assert outcome.duration == 60.0


def test_a_retry_takes_the_same_mail_and_a_lost_node_ends_the_round():
    run = Driven(GossipReady(DirectedRing(2), every=4), 2, max_attempts=2)
    run.arrive(0)
    run.arrive(1)
    first = run.flying[0]
    [retry] = [a.task for a in run.engine.handle(Failed(first, "lost"), 3.0) if isinstance(a, Issue)]
    assert (retry.payload, retry.seed, retry.task_id) == (first.payload, first.seed, first.task_id)
    assert retry.attempt == 1
    run.engine.handle(Failed(retry, "timeout", "too slow"), 4.0)
    last = run.engine.last
    assert last.error == "starved"
    assert "node 0 did not finish its round 2" in last.reason
    assert "timeout: too slow" in last.reason
    again = {a.task.slot: a.task for a in run.engine.open(5.0)}
    assert again[0].payload == first.payload == {"round": 2, "mail": ((1, 1),)}
    assert again[1].payload == {"round": 2, "mail": ((0, 1),)}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GossipReady(Complete(2), -1), "tau must be an integer of at least 0"),
        (lambda: GossipReady(Complete(2), every=0), "every must be an integer of at least 1"),
        (lambda: Driven(GossipReady(Complete(2)), 3), "topology must have one node per slot, 3, it has 2"),
        (lambda: LocallyAsync([[0], [1]], 0), "period must be an integer of at least 1"),
        (lambda: LocallyAsync([[0], [2]], 1), "groups must hold each of the slots"),
        (lambda: LocallyAsync([], 1), "groups must hold each of the slots"),
        (
            lambda: Engine(LocallyAsync([[0], [1]], 1), 3).open(0.0),
            "groups must hold one slot of the engine each, 3, got 2",
        ),
    ],
)
def test_bad_parameters_are_named(make, words):
    with pytest.raises(InputError, match=words):
        make()


# -- groups ----------------------------------------------------------------------------------------------


def test_results_of_a_finished_group_are_held_back_until_the_others_are_ready():
    policy = LocallyAsync([[0, 1], [2, 3]], period=1)
    assert isinstance(policy, WaitPolicy)

    class Table:
        def sample_task(self, task, rng):  # noqa: ARG002 - stands in for a straggler model
            return Timing(compute={0: 1.0, 1: 2.0, 2: 3.5, 3: 9.0}[task.slot])

    host, engine = VirtualHost(Table()), Engine(policy, 4)
    log = [
        (o.t_close, [(a.task.slot, a.task.payload["version"]) for a in o.arrivals]) for o in host.simulate(engine, 5)
    ]
    assert log == [
        (1.0, [(0, 0)]),
        (3.5, [(2, 0)]),  # slot 1 arrived at 2.0, when its group had made its update
        (3.5, [(1, 0)]),  # computed before the average, applied after it; slot 0 got its next task at 3.5 only
        (7.0, [(2, 1)]),
        (7.0, [(0, 1)]),  # held since 4.5
    ]


def test_a_group_without_tasks_ends_the_round():
    engine = Engine(LocallyAsync([[0], [1]], period=2), 2, max_attempts=1)
    first, second = [a.task for a in engine.open(0.0)]
    engine.handle(Failed(second, "function", "boom"), 1.0)
    assert engine.last.error == "starved"
    assert "group 1 has no task left" in engine.last.reason
    pair = Engine(LocallyAsync([[0, 1]], period=2), 2, max_attempts=1)
    first, second = [a.task for a in pair.open(0.0)]
    assert pair.handle(Failed(second, "function", "boom"), 1.0) == []
    assert pair.handle(Arrived(first), 2.0)[0].arrivals[0].task.slot == 0


# -- hosts -----------------------------------------------------------------------------------------------


def seconds(task):
    """Injected delay: by slot and what the task is, the same on every host."""
    return 0.1 + draw(7, "delay", task.slot, str(sorted(task.payload.items())), task.attempt)


class Injected:
    def sample_task(self, task, rng):  # noqa: ARG002 - stands in for a straggler model
        return Timing(compute=seconds(task))


def fails(task):
    return task.attempt == 0 and draw(8, "fail", task.slot, str(task.payload)) < 0.1


async def attempt(task):
    if fails(task):
        raise InvokeError("injected", kind="lost")
    return Completion()


async def sleeping(task):
    await asyncio.sleep(seconds(task))
    return await attempt(task)


POLICIES = {
    "sgp": lambda: GossipReady(OnePeerExponential(6), every=4),
    "overlap": lambda: GossipReady(RandomOut(6, 2, seed=3), 2, every=3),
    "aet": lambda: GossipReady(DirectedRing(6), 1, every=3, ahead=True),
    "layup": lambda: GossipReady(LayerPeers(6, 3), None, every=3, ahead=True),
    "lasgd": lambda: LocallyAsync([[0, 1, 2], [3, 4, 5]], 4),
}


@pytest.mark.parametrize("name", POLICIES)
def test_hosts_decide_alike(name):
    async def run(host, execute):
        engine, log = Engine(POLICIES[name](), 6, seed=5), []

        def note(what, at):
            if isinstance(what, (Issue, Arrived, Failed, CloseRound)):
                task = getattr(what, "task", None)
                log.append(
                    (type(what).__name__, task and (task.task_id, task.attempt, dict(task.payload)), round(at, 9))
                )

        for _ in range(60 if name == "lasgd" else 6):
            outcome = await host.run(engine, execute, on_event=note)
            assert outcome.error is None
            assert outcome.counts.balanced
        await host.close(engine)
        return log

    virtual = asyncio.run(run(VirtualHost(Injected()), attempt))
    real = run_virtually(run(AioHost(), sleeping))
    assert sum(kind == "Failed" for kind, *_ in virtual) > 0
    assert virtual == real


@pytest.mark.parametrize("tau", [0, 2, None])
def test_nodes_rest_after_their_last_round(tau):
    policy = GossipReady(OnePeerExponential(6), tau, every=4, last=10)
    engine, host = Engine(policy, 6), VirtualHost(Exponential(1.0), seed=3)
    outcomes = list(host.simulate(engine, rounds=3))
    rounds = [(a.task.slot, a.task.payload["round"]) for outcome in outcomes for a in outcome.arrivals]
    assert sorted(rounds) == [(node, k) for node in range(6) for k in range(1, 11)]
    assert outcomes[-1].counts.outstanding == 0
    assert not engine.view.in_flight()
