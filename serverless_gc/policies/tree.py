"""Close when a tree of workers can be decoded at its root; a node begins as soon as enough of its children are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from serverless_gc.codes.base import Tracker
from serverless_gc.codes.gradient.coded_reduce import CodedReduceCode
from serverless_gc.errors import InputError
from serverless_gc.policies.error import UntilError
from serverless_gc.types import Act, Arrival, Close, TaskSpec, View, Wait

__all__ = ["UntilTree"]


class UntilTree(UntilError):
    """Go up a tree of workers: leaves first, a parent when its children suffice, and close when the driver's do.

    Parameters
    ----------
    code
        The code; slot ``i`` is node ``i``.
    max_error, wait
        As for `UntilError`; ``wait`` counts the driver's children.

    Raises
    ------
    InputError
        If ``max_error`` is negative or ``wait`` is more than the driver has children.

    Notes
    -----
    The task of a parent carries in its payload, under ``"children"``, what each child's message is multiplied by. A
    child that was given up counts as missing, and so does one whose own children cannot suffice any more; when all the
    driver's children are here or missing and the answer is not determined, the round is aborted. Results whose parent
    had begun without them, and those of parents that are not used, are surplus.

    Examples
    --------
    >>> from serverless_gc.engine import Engine, VirtualHost
    >>> from serverless_gc.stragglers import Constant
    >>> code = CodedReduceCode.tree(branching=3, depth=2, stragglers=1)
    >>> engine = Engine(UntilTree(code), n_slots=12)
    >>> leaves = [action.task.slot for action in engine.open(now=0.0)]
    >>> leaves
    [3, 4, 5, 6, 7, 8, 9, 10, 11]
    >>> [outcome] = VirtualHost(Constant(2.0)).simulate(Engine(UntilTree(code), n_slots=12), rounds=1)
    >>> outcome.t_close, [a.task.slot for a in outcome.arrivals if code.parent(a.task.slot) is None]
    (4.0, [0, 1])
    """

    code: CodedReduceCode

    def __init__(self, code: CodedReduceCode, *, max_error: float | None = None, wait: int | None = None) -> None:
        if wait is not None and wait > code.branching:
            raise InputError(
                f"wait must be at most the number of the driver's children in the tree, {code.branching}, got {wait}"
            )
        super().__init__(code, max_error=max_error, wait=wait)

    def open(self, view: View) -> Sequence[TaskSpec]:
        """Give every leaf its task; errors as for `UntilDecodable.open`."""
        super().open(view)
        self._outstanding = set(self.code.children(None))
        self._trackers: dict[int, Tracker] = {}
        self._here: dict[int, list[int]] = {}  # parent -> children that arrived
        self._begun: dict[int, dict[int, float]] = {}  # parent -> weights of the children that it combines
        self._lost: set[int] = set()
        return [view.new_task(leaf) for leaf in self.code.levels()[-1]]

    def on_arrival(self, view: View, arrival: Arrival) -> Act:
        """Begin with the parent, or close, if that is possible now."""
        node = arrival.task.slot
        parent = self.code.parent(node)
        if parent is None:
            return self._ended(view, super().on_arrival(view, arrival))
        self._here.setdefault(parent, []).append(node)
        tracker = self._trackers.setdefault(parent, self.code.child_tracker(parent))
        if parent in self._begun or not tracker.add(node):
            return Wait()
        weights = self._begun[parent] = self.code.combine(parent, self._here[parent])
        return Wait((view.new_task(parent, payload={"children": weights}),))

    def on_failure(self, view: View, task: TaskSpec) -> Act:
        """Count the node as missing, and every ancestor that cannot decode any more."""
        lost = task.slot
        while True:
            self._lost.add(lost)
            parent = self.code.parent(lost)
            if parent is None:
                self._outstanding.discard(lost)
                return self._ended(view, self._decide(view))
            if parent in self._begun or self._may_suffice(parent):
                return Wait()
            lost = parent

    def explain(self) -> str:
        """Say which parents still wait for how many children."""
        short = [
            f"node {node} has {len(self._here.get(node, ()))} of {self.code.branching}"
            for level in self.code.levels()[:-1]
            for node in level
            if node not in self._begun
        ]
        waiting = f"; children that are here: {', '.join(short[:10])}{', ...' if len(short) > 10 else ''}"
        return super().explain() + (waiting if short else "")

    def _may_suffice(self, parent: int) -> bool:
        tracker = self.code.child_tracker(parent)
        return any(tracker.add(child) for child in self.code.children(parent) if child not in self._lost)

    def _ended(self, view: View, act: Act) -> Act:
        """Leave out what did not reach the driver."""
        if not isinstance(act, Close):
            return act
        used: set[int] = set()
        below = [a.task.slot for a in view.buffer if self.code.parent(a.task.slot) is None]
        while below:
            used.update(below)
            below = [child for node in below for child in self._begun.get(node, ())]
        return replace(act, consume=tuple(a for a in view.buffer if a.task.slot in used))
