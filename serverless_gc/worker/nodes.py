"""A round of a node of a decentralized scheme, done by one task: state and mail in, state and mail out.

The state is written first, once: it is what makes the round done. Whoever finds it written takes it as what happened
and sends the mail that follows from it. Hence a repeated task, a simultaneous one, and one that ended between the two
change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serverless_gc.wire import Block, Frame, FrameError, Task, Turn, pack_parts, unpack
from serverless_gc.wire.turn import Share, mail_key, state_key
from serverless_gc.worker import schemes
from serverless_gc.worker.blobs import Blobs
from serverless_gc.worker.functions import FunctionError, load
from serverless_gc.worker.node_gradient import NodeGradient
from serverless_gc.worker.schemes import Arrays, Mail, Scheme

__all__ = ["NodeRound", "OtherRun"]

Array = NDArray[Any]


class OtherRun(Exception):
    """The round was done before with other mail."""

    kind = "bad-reply"


class NodeRound:
    """One round of one node.

    The task's blocks are the node's partitions: ``X``, labels and row weights of each, then the loss if it is a
    function, then the scheme if it is one of the user's. Its operand is the model to begin with, in the first round.

    Parameters
    ----------
    task
        Its parameters: ``"scheme"``, name and parameters, or the stamp of the last block; and those of
        `serverless_gc.worker.node_gradient.NodeGradient`.
    turn
        Which round of which node.
    blobs
        Where the objects are.
    """

    def __init__(self, task: Task, turn: Turn, blobs: Blobs) -> None:
        self.task = task
        self.turn = turn
        self.counts = {"gets": 0, "puts": 0, "bytes_read": 0, "bytes_written": 0, "rebuilt": 0, "resumed": 0}
        self.slope = 0.0
        self._blobs = blobs
        self._after: Arrays | None = None
        self._scheme: Scheme
        self._before: Arrays | None = None
        self._seen: dict[str, int] = {}
        self._mail: list[Mail] = []

    # -- reading -------------------------------------------------------------------------------------

    def read(self, blocks: list[Block], start: Array | None) -> None:
        """Read state and mail, or the state after the round if an earlier attempt left it; takes the scheme off blocks.

        Raises
        ------
        KeyError
            If the node's last state, or the state from which lost mail would be made again, is not there.
        FrameError
            If an object is damaged.
        OtherRun
            If the round was done with other mail.
        """
        turn, named = self.turn, self.task.params["scheme"]
        if "digest" in named:
            self._scheme = _own_scheme(blocks.pop(), named)
        else:
            self._scheme = schemes.get(named["name"], named["params"])
        if self.task.attempt and self._finished():
            self.counts["resumed"] = 1
            return
        if turn.before_key:
            frame = self._get(turn.before_key)
            self._before, self._seen = frame.arrays, frame.header["seen"]
        elif start is None:
            raise FrameError("the first round of a node needs a model, the task brings none", "header")
        else:
            self._before = self._scheme.start(start.reshape(-1))
        self._mail = [self._receive(*message) for message in turn.mail]

    def _receive(self, src: int, k: int, share: Share) -> Mail:
        """Read mail; if it is not there make it again, from its sender's state."""
        turn = self.turn
        try:
            arrays = self._get(mail_key(turn.prefix, turn.node, k, src)).arrays
        except KeyError:
            state = self._get(state_key(turn.prefix, src, k)).arrays
            arrays = self._scheme.share(state, share)
            self.counts["rebuilt"] += 1
        return Mail(src, k, arrays)

    def _finished(self) -> bool:
        """Look whether the state after the round is there, and take it."""
        try:
            frame = self._get(self.turn.state_key)
        except KeyError:
            return False
        self._take(frame)
        return True

    def _take(self, frame: Frame) -> None:
        stored = [tuple(origin) for origin in frame.header["consumed"]]
        if stored != self._consumed:
            turn = self.turn
            raise OtherRun(
                f"round {turn.k} of node {turn.node} was done before with other mail, {stored} instead of "
                f"{self._consumed}: does another run write below {turn.prefix!r}?"
            )
        self._after, self.slope = frame.arrays, frame.header["slope"]

    @property
    def _consumed(self) -> list[tuple[int, int]]:
        return [(src, k) for src, k, _ in self.turn.mail]

    # -- computing -----------------------------------------------------------------------------------

    def compute(self, blocks: Sequence[Block]) -> None:
        """Make the round's steps.

        Raises
        ------
        FunctionError
            If a function raises, or the model is no longer finite.
        """
        if self._after is not None:
            return
        assert self._before is not None  # noqa: S101 - read has been here
        turn = self.turn
        gradient = NodeGradient(blocks, self.task.params)
        with np.errstate(all="ignore"):  # what overflows is looked for below
            after = self._scheme.step(turn, self._before, self._mail, gradient)
        if not (np.isfinite(gradient.slope) and all(np.isfinite(part).all() for part in after)):
            raise FunctionError(
                f"the model of node {turn.node} is not finite after its round {turn.k}, or its last gradient was not: "
                "try a smaller lr"
            )
        self._after, self.slope = after, gradient.slope

    # -- writing -------------------------------------------------------------------------------------

    def write(self) -> bool:
        """Store the state, once, then the mail; False if another attempt had stored the state.

        Raises
        ------
        OtherRun
            If that was done with other mail.
        """
        assert self._after is not None  # noqa: S101 - computed or found
        turn, fresh = self.turn, False
        if not self.counts["resumed"]:
            latest = {str(src): k for src, k in sorted(self._consumed, key=lambda origin: origin[1])}
            head = {
                "kind": "node-state",
                "node": turn.node,
                "round": turn.k,
                "consumed": self._consumed,
                "seen": self._seen | latest,
                "slope": self.slope,
            }
            fresh = self._put(turn.state_key, head, self._after)
            if not fresh:  # another attempt was first: what it wrote is what happened
                self._take(self._get(turn.state_key))
        for dst, share in turn.out:
            arrays = self._scheme.share(self._after, share)
            self._put(mail_key(turn.prefix, dst, turn.k, turn.node), _mail_head(turn), arrays)
        return fresh

    # -- objects -------------------------------------------------------------------------------------

    def _get(self, key: str) -> Frame:
        data = self._blobs.get(key)
        self.counts["gets"] += 1
        self.counts["bytes_read"] += len(data)
        try:
            return unpack(data)
        except FrameError as error:
            raise FrameError(f"stored object {key!r} is damaged: {error}", error.reason) from error

    def _put(self, key: str, head: Mapping[str, Any], arrays: Arrays) -> bool:
        parts = pack_parts(head, arrays)
        self.counts["puts"] += 1
        self.counts["bytes_written"] += sum(memoryview(part).nbytes for part in parts)
        return self._blobs.put(key, parts, if_absent=True)


def _mail_head(turn: Turn) -> dict[str, Any]:
    return {"kind": "mail", "src": turn.node, "round": turn.k}


def _own_scheme(block: Block, stamp: Mapping[str, str]) -> Scheme:
    loaded: Any = load(block, stamp)
    return loaded  # type: ignore[no-any-return]
