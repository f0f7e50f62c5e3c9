"""Which scheme the nodes of a decentralized training follow, who their neighbours are, and what each of them knows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serverless_gc.encode.parts import Parts
from serverless_gc.errors import InputError
from serverless_gc.gossip import AET, LayUp, LinearSampleTrigger, PushSum, RowAverage, SchemeKernel
from serverless_gc.optim.schedules import Rate
from serverless_gc.policies import GossipReady
from serverless_gc.prepare import check_whole
from serverless_gc.refusals import unknown_name
from serverless_gc.topologies import (
    Complete,
    Digraph,
    DirectedRing,
    Groups,
    LayerPeers,
    OnePeerExponential,
    Ring,
    StaticExponential,
)
from serverless_gc.types import Array, Topology
from serverless_gc.worker.schemes import Scheme

__all__ = ["METHODS", "TOPOLOGIES", "NodePlan", "dealt", "grouping"]

TOPOLOGIES: Mapping[str, Callable[[int], Digraph]] = {
    "one-peer": OnePeerExponential,
    "exponential": StaticExponential,
    "ring": Ring,
    "directed-ring": DirectedRing,
    "complete": Complete,
}
"""Name -> topology of so many nodes."""


def _push_sum(topology: Topology, x0: Array, lr: Rate, *, debias: bool = True) -> SchemeKernel:
    return PushSum(topology, None, x0, lr, debias=debias)


def _row_average(topology: Topology, x0: Array, lr: Rate) -> SchemeKernel:
    return RowAverage(topology, None, x0, lr)


def _aet(topology: Topology, x0: Array, lr: Rate, *, a: int = 10, b: int = 10, cap: int | None = None) -> SchemeKernel:
    return AET(topology, None, x0, LinearSampleTrigger(a, b, cap), lr)


def _layup(topology: Topology, x0: Array, lr: Rate) -> SchemeKernel:
    if not isinstance(topology, LayerPeers):
        raise InputError(f"topology must be a LayerPeers, which says where each layer goes, got {topology!r}")
    return LayUp(topology, None, x0, lr)


METHODS: Mapping[str, Callable[..., SchemeKernel]] = {
    "push-sum": _push_sum,
    "row-average": _row_average,
    "aet": _aet,
    "layup": _layup,
}
"""Name -> kernel from topology, start and step length."""

_AHEAD = frozenset({"aet", "layup"})  # mail of rounds that the receiver has not finished is as good as any


@dataclass(frozen=True, slots=True)
class NodePlan:
    """A scheme on so many nodes.

    Attributes
    ----------
    name
        The method's.
    n
        Number of nodes.
    kernel
        Scheme, topology and schedule.
    policy
        Whose turn it is.
    """

    name: str
    n: int
    kernel: SchemeKernel
    policy: GossipReady

    @classmethod
    def of(
        cls,
        method: str | Scheme,
        topology: str | Topology | None,
        partitions: int,
        x0: Array,
        lr: Rate,
        tau: int | None,
        rounds: int,
        seed: int,
        params: dict[str, Any],
    ) -> NodePlan:
        """Choose; by default there is one node for each partition.

        Raises
        ------
        InputError
            If a name is unknown, or a parameter is wrong or none of the method's.
        """
        if isinstance(topology, str) and topology not in TOPOLOGIES:
            raise InputError(f"topology must be one of {', '.join(TOPOLOGIES)} or an object, got {topology!r}")
        if method == "layup" and topology is None:
            layers = check_whole("layers", params.pop("layers", min(4, x0.size)), 1)
            topology = LayerPeers(partitions, layers, seed=seed)
        elif topology is None or isinstance(topology, str):
            topology = TOPOLOGIES[topology or "one-peer"](partitions)
        n = len(topology.matrix(1))
        if not isinstance(method, str):
            if not isinstance(method, Scheme):
                raise InputError(f"method must be a name or have the methods start, step, share, model; got {method!r}")
            if params:
                raise InputError(f"{min(params)}= is a parameter of methods by name; an object brings its own")
            name, kernel, ahead = type(method).__name__, SchemeKernel(method, topology, None, x0, lr), False
        else:
            name, kernel = method, _made(method, topology, x0, lr, params)
            ahead = method in _AHEAD and tau != 0
        return cls(name, n, kernel, GossipReady(topology, tau, ahead=ahead, last=rounds))


def _made(method: str, topology: Topology, x0: Array, lr: Rate, params: dict[str, Any]) -> SchemeKernel:
    if method not in METHODS:
        raise InputError(unknown_name("method", method, [*METHODS, "lasgd"]))
    make = METHODS[method]
    _check_known(
        method, params, [p.name for p in inspect.signature(make).parameters.values() if p.kind == p.KEYWORD_ONLY]
    )
    return make(topology, x0, lr, **params)


def _check_known(method: str, params: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := params.keys() - set(known):
        takes = f"takes {', '.join(known)}" if known else "takes none here"
        raise InputError(f"{min(unknown)}= is no parameter of method {method!r}, which {takes}")


def grouping(topology: Any, partitions: int, tau: int | None, params: Mapping[str, Any]) -> tuple[Groups, int]:
    """Return groups and period of LASGD: groups of four, averages after eight updates unless said otherwise.

    Raises
    ------
    InputError
        If a parameter is wrong or none of the method's.
    """
    _check_known("lasgd", params, ["group_size", "period"])
    if tau != 0:
        raise InputError("tau= does not go with 'lasgd': a gradient counts whenever it comes; period= says how long")
    if topology is None:
        topology = Groups(partitions, params.get("group_size", 4))
    elif "group_size" in params:
        raise InputError("group_size and topology both say what the groups are: give one of them")
    if not isinstance(topology, Groups):
        raise InputError(f"topology must be a Groups with 'lasgd', got {topology!r}")
    return topology, check_whole("period", params.get("period", 8), 1)


def dealt(parts: Parts, n: int) -> list[list[int]]:
    """Deal partitions to nodes, in order; those without rows are left out.

    Raises
    ------
    InputError
        If a node would get no rows.

    Examples
    --------
    >>> dealt(Parts(100, 6), 3)
    [[0, 1], [2, 3], [4, 5]]
    """
    filled = set(parts.filled)
    hands = Parts(parts.k, n) if n <= parts.k else None
    nodes = [[part for part in range(*hands.range(i)) if part in filled] for i in range(n)] if hands else []
    if not nodes or not all(nodes):
        raise InputError(
            f"{n} nodes cannot share {len(filled)} partitions that hold rows: encode with more partitions (larger "
            "n_workers or k), or take a topology with fewer nodes"
        )
    return nodes
