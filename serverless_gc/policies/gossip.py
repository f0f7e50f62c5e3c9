"""Rounds of single nodes: each goes on when its own neighbours let it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from serverless_gc.checks import check_whole
from serverless_gc.errors import InputError
from serverless_gc.policies.words import given_up
from serverless_gc.types import Abort, Act, Arrival, Close, TaskSpec, Topology, View, Wait

__all__ = ["GossipProgress", "GossipReady"]


@dataclass(frozen=True, slots=True)
class GossipProgress:
    """How far the nodes of an interrupted run are, see `serverless_gc.gossip.StoredNodes.progress`.

    Attributes
    ----------
    done
        Rounds that each node has finished.
    taken
        For each node: sender to the last of its rounds whose mail the node took.
    """

    done: tuple[int, ...]
    taken: tuple[Mapping[int, int], ...]


class GossipReady:
    """Issue a node's round ``k`` when it finished ``k - 1`` and its in-neighbours finished ``k - 1 - tau``.

    A slot is a node. The engine's round is the time between two evaluations: it closes, consuming everything, when
    every node has finished ``every`` more rounds of its own; other nodes may be further. A task's payload holds the
    node's ``"round"``, counted from 1, and the ``"mail"`` to take, ``(sender, round)`` of each by round and sender. So
    every attempt at a task takes the same mail, and mail that is not there is known to be lost.

    Parameters
    ----------
    topology
        Who sends to whom in which round; one node per slot.
    tau
        How many rounds mail may be late; None if a node never waits for others.
    every
        Rounds of each node between two evaluations.
    ahead
        Whether mail of rounds that the node itself has not finished is taken as well.
    last
        Round after which a node rests; None if there is always another.
    work
        Units of work of round ``k``, 1 by default.
    progress
        Where an interrupted run goes on; by default all nodes start.

    Raises
    ------
    InputError
        If ``tau``, ``every`` or ``last`` is out of range.

    Notes
    -----
    Stochastic Gradient Push (Assran and others, ICML 2019) with ``tau`` as overlap; AET-SGD (Nguyen and Han, 2021) with
    ``tau = d_max - 1`` and ``ahead``; LayUp (Fokam and others) with ``tau=None`` and ``ahead``.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import Constant
    >>> from serverless_gc.topologies import Ring
    >>> engine, host = Engine(GossipReady(Ring(3), every=2), n_slots=3), VirtualHost(Constant(1.0))
    >>> [outcome] = host.simulate(engine, rounds=1)
    >>> len(outcome.arrivals), outcome.duration, outcome.arrivals[-1].task.payload
    (6, 2.0, {'round': 2, 'mail': ((0, 1), (2, 1))})
    """

    leftover: Literal["cancel", "keep"] = "keep"

    def __init__(
        self,
        topology: Topology,
        tau: int | None = 0,
        *,
        every: int = 1,
        ahead: bool = False,
        last: int | None = None,
        work: Callable[[int], float] | None = None,
        progress: GossipProgress | None = None,
    ) -> None:
        self.topology = topology
        self.tau = None if tau is None else check_whole("tau", tau, 0)
        self.every = check_whole("every", every, 1)
        self.ahead = ahead
        self.last = None if last is None else check_whole("last", last, 1)
        self.work = work
        n = len(topology.matrix(1))
        start = progress or GossipProgress((0,) * n, ({},) * n)
        self._done = list(start.done)  # rounds that each node has finished
        self._inbox: list[list[tuple[int, int]]] = [[] for _ in start.done]  # mail no task takes yet, (round, sender)
        for src, finished in enumerate(start.done):
            for k in range(1, finished + 1):
                for j in self._receivers(src, k):
                    if k > start.taken[j].get(src, 0):
                        self._inbox[j].append((k, src))
        self._payloads: dict[int, dict[str, Any]] = {}  # of the nodes' tasks that have not arrived
        self._senders: dict[int, list[list[int]]] = {}
        self._target = self._behind = 0

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Issue the rounds of all idle nodes that are ready.

        Raises
        ------
        InputError
            If the topology has another number of nodes than there are slots.
        """
        if len(self._done) != view.n_slots:
            raise InputError(f"topology must have one node per slot, {view.n_slots}, it has {len(self._done)}")
        least = min(self._done)
        self._target = least + self.every if self.last is None else min(least + self.every, self.last)
        self._behind = sum(done < self._target for done in self._done)
        for k in [k for k in self._senders if k < least - (self.tau or 0)]:
            del self._senders[k]
        # A node whose last task came to nothing does that one again.
        return [self._task(view, i) for i in view.idle_slots() if i in self._payloads or self._ready(i)]

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Deliver the node's mail, and issue what it makes possible."""
        node, k = arrival.task.slot, int(arrival.task.payload["round"])
        del self._payloads[node]
        self._done[node] = k
        receivers = self._receivers(node, k)
        for j in receivers:
            self._inbox[j].append((k, node))
        if k == self._target:
            self._behind -= 1
            if not self._behind:
                return Close()
        waiting = (i for i in (node, *receivers) if i not in self._payloads and self._ready(i))
        return Wait(tuple([self._task(view, i) for i in waiting]))

    def on_failure(self, view: View, task: TaskSpec) -> Act:
        """Give up: its neighbours could go on for a few rounds only."""
        return Abort(f"node {task.slot} did not finish its round {task.payload['round']}: {given_up(view)}", "starved")

    def timer(self, view: View) -> float | None:  # noqa: ARG002 - part of the protocol
        """No timer."""
        return None

    def on_timer(self, view: View) -> Act:  # noqa: ARG002
        """Nothing to do."""
        return Wait()

    def _receivers(self, node: int, k: int) -> list[int]:
        return [j for j, _ in self.topology.out(node, k) if j != node]

    def _ready(self, node: int) -> bool:
        """Whether all mail that the node's next round must take has been sent."""
        if self.last is not None and self._done[node] >= self.last:
            return False
        if self.tau is None:
            return True
        k = self._done[node] - self.tau
        return k < 1 or all(self._done[j] >= k for j in self._senders_of(node, k))

    def _senders_of(self, node: int, k: int) -> Iterable[int]:
        if k not in self._senders:
            senders: list[list[int]] = [[] for _ in self._done]
            for i in range(len(senders)):
                for j in self._receivers(i, k):
                    senders[j].append(i)
            self._senders[k] = senders
        return self._senders[k][node]

    def _task(self, view: View, node: int) -> TaskSpec:
        payload = self._payloads.get(node)
        if payload is None:
            last, inbox = self._done[node], self._inbox[node]
            taken = sorted(mail for mail in inbox if self.ahead or mail[0] <= last)
            self._inbox[node] = [mail for mail in inbox if not self.ahead and mail[0] > last]
            payload = {"round": last + 1, "mail": tuple([(src, k) for k, src in taken])}
            self._payloads[node] = payload
        work = 1.0 if self.work is None else self.work(payload["round"])
        return view.new_task(node, payload=payload, work=work)
