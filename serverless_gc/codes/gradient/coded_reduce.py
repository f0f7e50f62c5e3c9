"""CodedReduce: a gradient code at every parent of a regular tree, so that nobody receives more than a few messages."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Tracker, Verdict, check_message, stack_blocks
from serverless_gc.codes.gradient.base import GradientCode, Weights
from serverless_gc.codes.gradient.inner import Inner, inner_code, inner_from_manifest
from serverless_gc.codes.gradient.sizes import a_tenth, check_stragglers
from serverless_gc.codes.received import not_decodable
from serverless_gc.errors import InputError, NotDecodableError
from serverless_gc.types import Array, FloatArray

__all__ = ["ChildTracker", "CodedReduceCode"]


class ChildTracker(Tracker):
    """Decodable when enough children of one node arrived. Messages are node ids; other nodes change nothing."""

    __slots__ = ("_code", "_inner", "_node")

    def __init__(self, code: CodedReduceCode, node: int | None) -> None:
        self._code = code
        self._node = node
        self._inner = code.inner.tracker()

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, self._code.n_messages)
        children = self._code.children(self._node)
        if message in children:
            self._inner.add(message - children.start)
        return Verdict(self.decodable, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether enough children arrived."""
        return self._inner.decodable

    def missing(self) -> tuple[int, ...]:
        """Units of the node that the best weights of the children so far do not count exactly once."""
        return self._code.units_of(self._node, self._inner.missing())


class CodedReduceCode(GradientCode):
    """A tree of ``N = n + n**2 + ... + n**L`` workers below the driver; data is cut into ``K`` equal units.

    Every node computes its own units; a node that is no leaf then adds the decoded sum of its children's messages and
    sends the result to its parent. Exact if every parent, the driver included, misses at most ``s`` children, where a
    child that cannot decode counts as missing.

    Nodes are numbered level by level, the driver's children ``0 ... n - 1`` first; None stands for the driver. A
    runtime goes through `levels` from the last to the first: it invokes each node with its own units and weights
    (`local`) and, unless it is a leaf, as soon as `child_tracker` says so, with the messages of its children that
    arrived and their weights (`combine`); `combine(None, ...)` gives the weights of the answer. `aggregate` is this
    without a network.

    As a flat code, the message of a node is the combination of all units that its subtree stands for (`row`), and only
    messages of the driver's children count.

    Parameters
    ----------
    n_workers
        ``N``; see `tree` for the number that belongs to a branching and a depth.
    k
        Number of units ``K``, which follows from the others: ``sum of n**l * (s + 1)**(L - l)``; checked if given.
    stragglers
        Tolerated missing children ``s`` of each parent; a tenth of the branching ``n``, at least 1, by default.
    depth
        Levels ``L`` below the driver. By default 2 where ``N = n + n**2`` for some ``n``, otherwise 1.
    inner
        The code at every parent: ``"cyclic"``, ``"frc"``, ``"auto"`` for the second where ``s + 1`` divides ``n``, or a
        code for ``n`` workers and partitions with ``s + 1`` partitions a worker.
    seed
        Of a cyclic inner code.

    Raises
    ------
    InputError
        If there is no such tree of ``n_workers`` nodes, ``depth`` is less than 1, ``k`` is not ``K``, ``stragglers`` is
        not less than the branching, or the inner code does not fit.

    References
    ----------
    A. Reisizadeh, S. Prakash, R. Pedarsani, A. S. Avestimehr, "CodedReduce: A Fast and Robust Framework for Gradient
    Aggregation in Distributed Learning", 2021, arXiv:1902.01981.

    Examples
    --------
    >>> code = CodedReduceCode.tree(branching=3, depth=2, stragglers=1)
    >>> code.n_workers, code.k, code.units_each, code.levels()
    (12, 15, 4, (range(0, 3), range(3, 12)))
    >>> [int(u) for u in code.local(0)[0]], code.children(0), code.parent(5)
    ([0, 1, 2, 3], range(3, 6), 0)
    >>> g = np.arange(1.0, 16.0)
    >>> round(float(code.aggregate(g, dead={0, 7, 9})), 9)
    120.0
    """

    name = "coded-reduce"

    def __init__(
        self,
        n_workers: int = 20,
        k: int | None = None,
        *,
        stragglers: int | None = None,
        depth: int | None = None,
        inner: Inner = "auto",
        seed: int = 0,
    ) -> None:
        total = check_whole("n_workers", n_workers, 1)
        self.branching, self.depth = _shape(total, depth)
        n = self.branching
        s = a_tenth(n) if stragglers is None else check_stragglers(stragglers, n, "the branching")
        units = sum(n**level * (s + 1) ** (self.depth - level) for level in range(1, self.depth + 1))
        if k is not None and k != units:
            raise InputError(
                f"k must be the {units} units of a tree of branching {n}, depth {self.depth}, stragglers={s}; got {k}"
            )
        super().__init__(total, units)
        self._stragglers = s
        self._seed = seed
        self.inner = inner_code(inner, n, s, seed)
        self.units_each = (s + 1) ** self.depth
        self._starts = [sum(n**i for i in range(1, level + 1)) for level in range(self.depth + 1)]
        self._vectors: list[tuple[Array, FloatArray]] = []
        self._grow()

    @classmethod
    def tree(cls, branching: int, depth: int = 2, **parameters: Any) -> CodedReduceCode:
        """Make the code of a tree with so many children a parent and so many levels below the driver.

        Raises
        ------
        InputError
            If ``branching`` or ``depth`` is less than 1, or a parameter is refused.
        """
        check_whole("branching", branching, 1)
        check_whole("depth", depth, 1)
        return cls(sum(branching**level for level in range(1, depth + 1)), depth=depth, **parameters)

    # -- the tree ------------------------------------------------------------------------------------

    def levels(self) -> tuple[range, ...]:
        """Return the node ids of each level, the driver's children first, the leaves last."""
        return tuple(range(a, b) for a, b in zip(self._starts, self._starts[1:], strict=False))

    def children(self, node: int | None) -> range:
        """Return the children of a node (None: of the driver) in the order of the inner code; empty for a leaf."""
        if node is None:
            return range(self.branching)
        check_message(node, self.n_workers)
        first = (node + 1) * self.branching
        return range(first, min(first + self.branching, self.n_workers)) if first < self.n_workers else range(0)

    def parent(self, node: int) -> int | None:
        """Return the parent of a node; None for the driver's children."""
        check_message(node, self.n_workers)
        return None if node < self.branching else node // self.branching - 1

    def local(self, node: int) -> tuple[Array, FloatArray]:
        """Return the units that a node computes itself, ascending, and their weights in its message."""
        units, weights = self._vector(node)
        return units[: self.units_each], weights[: self.units_each]

    def combine(self, node: int | None, arrived_children: Iterable[int]) -> dict[int, float]:
        """Return what the messages of a node's children are multiplied by, for those that are used.

        Raises
        ------
        InputError
            If one of them is no child of the node.
        NotDecodableError
            If too few children arrived.
        """
        children = self.children(node)
        places = []
        for child in arrived_children:
            if child not in children:
                raise InputError(f"node {node} has the children {children}, got {child}")
            places.append(child - children.start)
        tracker = self.inner.tracker()
        for place in places:
            tracker.add(place)
        if not tracker.decodable:
            units = self.units_of(node, tracker.missing())
            raise not_decodable(self.name, len(set(places)), units, "wait for more children")
        a = self.inner.weights(places).a
        return {children.start + int(place): float(a[place]) for place in np.flatnonzero(a)}

    def child_tracker(self, node: int | None) -> ChildTracker:
        """Make a fresh tracker that says when enough children of a node have arrived."""
        return ChildTracker(self, node)

    def sending(self, arrived: Collection[int]) -> tuple[int, ...]:
        """Return which of these nodes can send, ascending: leaves, and parents enough of whose children can.

        Raises
        ------
        InputError
            If one of them is no node.
        """
        able: set[int] = set()
        for node in sorted(set(arrived), reverse=True):  # children have higher numbers than their parent
            children = self.children(node)
            tracker = self.child_tracker(node)
            if not children or any(tracker.add(child) for child in children if child in able):
                able.add(node)
        return tuple(sorted(able))

    def units_of(self, node: int | None, parts: Collection[int]) -> tuple[int, ...]:
        """Return the units in these parts of what a node (None: the driver) leaves to its children."""
        units, _ = self._rest(node)
        cut = units.reshape(self.branching, -1)
        return tuple(int(u) for part in parts for u in cut[part])

    def aggregate(self, unit_gradients: Sequence[Array] | Array, dead: Collection[int] = ()) -> Array:
        """Run the whole tree on values, without a network: what the driver obtains if these nodes never answer.

        Parameters
        ----------
        unit_gradients
            ``k`` gradients of one shape.
        dead
            Nodes that send nothing.

        Raises
        ------
        NotDecodableError
            If the driver misses too many children, directly or because they could not decode.
        """
        gradients = stack_blocks(unit_gradients, self.k)
        sent: dict[int, Array] = {}
        for level in reversed(self.levels()):
            for node in level:
                if node not in dead:
                    self._send(node, gradients, sent)
        return self._gathered(None, sent)

    def _send(self, node: int, gradients: Array, sent: dict[int, Array]) -> None:
        """Add a node's message, unless it cannot decode."""
        units, weights = self.local(node)
        message: Array = np.tensordot(weights, gradients[units], axes=1)
        if self.children(node):
            try:
                message = message + self._gathered(node, sent)
            except NotDecodableError:
                return
        sent[node] = message

    def _gathered(self, node: int | None, sent: Mapping[int, Array]) -> Array:
        weights = self.combine(node, [child for child in self.children(node) if child in sent])
        total: Array = np.asarray(sum(a * sent[child] for child, a in weights.items()))
        return total

    # -- as a flat code ------------------------------------------------------------------------------

    def _vector(self, node: int | None) -> tuple[Array, FloatArray]:
        if node is None:
            return np.arange(self.k), np.ones(self.k)
        check_message(node, self.n_workers)
        return self._vectors[node]

    def _rest(self, node: int | None) -> tuple[Array, FloatArray]:
        """Units and weights that a node leaves to its children: all but its own."""
        units, weights = self._vector(node)
        own = 0 if node is None else self.units_each
        return units[own:], weights[own:]

    def _grow(self) -> None:
        """Append units, ascending, and weights of every node's message, parents before their children."""
        rows = []
        for i in range(self.branching):
            parts, coefficients = self.inner.row(i)
            order = np.argsort(parts)
            rows.append((np.array(parts)[order], coefficients[order]))
        for node in (None, *range(self._starts[-2])):
            units, weights = (part.reshape(self.branching, -1) for part in self._rest(node))
            for held, coefficients in rows:
                made = units[held].ravel(), (coefficients[:, None] * weights[held]).ravel()
                for array in made:
                    array.setflags(write=False)
                self._vectors.append(made)

    def _build_generator(self) -> FloatArray:
        matrix = np.zeros((self.n_workers, self.k))
        for node, (units, weights) in enumerate(self._vectors):
            matrix[node, units] = weights
        return matrix

    def row(self, message: int) -> tuple[tuple[int, ...], Array]:
        """Return the units that a node's subtree stands for, and their weights; `local` is what it computes itself."""
        units, weights = self._vector(message)
        return tuple(units.tolist()), weights

    def tracker(self) -> ChildTracker:
        """Make a fresh tracker of the driver's children; messages of other nodes change nothing."""
        return ChildTracker(self, None)

    @property
    def tolerated(self) -> int:
        """How many stragglers, whichever they are, leave the answer exact."""
        return self._stragglers

    def _by_method(self, arrived: Array, method: str) -> Weights:
        found = self.inner.weights(arrived[arrived < self.branching].tolist(), method)
        each = self.k // self.branching
        a = np.zeros(self.n_workers)
        a[: self.branching] = found.a
        alpha = np.repeat(found.alpha, each)
        for array in (a, alpha):
            array.setflags(write=False)
        return Weights(a, alpha, found.error * each, found.amplification, found.method)

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        parameters = {"stragglers": self._stragglers, "depth": self.depth, "inner": self.inner.name}
        return {**parameters, "seed": self._seed}

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs, the inner code included."""
        return {**super().manifest(), "inner": self.inner.manifest()}

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> CodedReduceCode:
        """Rebuild the code from its manifest alone, with the stored inner code."""
        params = {**manifest["params"], "inner": inner_from_manifest(manifest["inner"])}
        return cls(manifest["n_workers"], manifest["k"], **params)


def _shape(total: int, depth: int | None) -> tuple[int, int]:
    """Return branching and depth of the tree with so many nodes below its root."""
    if depth is None:
        root = (math.isqrt(4 * total + 1) - 1) // 2
        return (root, 2) if root > 1 and root + root**2 == total else (total, 1)
    check_whole("depth", depth, 1)
    branching, size = 0, 0
    before = 0
    while size < total:
        branching, before = branching + 1, size
        size = sum(branching**level for level in range(1, depth + 1))
    if size != total:
        near = f"{before} or {size}" if before else f"{size}"
        raise InputError(
            f"n_workers must be n + n**2{f' + ... + n**{depth}' if depth > 2 else ''} for a tree of depth {depth}, "
            f"got {total}: use {near}"
        )
    return branching, depth
