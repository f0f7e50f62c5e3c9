"""What the laws of `CodeSuite` ask of a test class: an instance, and what differs for codes of other shapes."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from serverless_gc.codes.base import Certificate, Code, Tracker
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["TRIED", "CodeHooks", "filled", "first_messages", "messages_of", "near", "refused"]

TRIED = 400
"""Sets of messages tried where all would be too many."""


class CodeHooks:
    """What a test class says of its code; all but `make_code` has a default. See `CodeSuite` for the attributes."""

    accuracy: float = 1e-9
    dtypes: Sequence[Any] = (np.float64, np.float32, np.complex128, np.int32, bool)
    rank_exact: bool = True
    tight: bool = True
    whole_numbers: bool = False
    sparse: bool = True

    @abstractmethod
    def make_code(self) -> Code:
        """Return a small instance."""

    # -- what codes of other shapes replace ----------------------------------------------------------

    def blocks(self, code: Code, seed: int = 0, shape: tuple[int, ...] = (3, 4)) -> Array:
        """Return source blocks."""
        return np.random.default_rng(seed).normal(size=(code.k, *shape))

    def sent(self, code: Code, blocks: Array) -> Array:
        """Return what the workers send, one message a row."""
        return code.encode(blocks)

    def wanted(self, code: Code, blocks: Array) -> Array:
        """Return what a decode should give."""
        if code.target == "blocks":
            return blocks
        total, fold = blocks.sum(axis=0), _fold(code)
        return total if fold == 1 else np.pad(total.reshape(-1), (0, -total.size % fold))

    def follows(self, code: Code, messages: Sequence[int]) -> bool:
        """Say by dense linear algebra whether these messages determine the answer."""
        if not len(messages):
            return False
        rows = code.generator[list(messages)]
        wanted = np.eye(code.k) if code.target == "blocks" else np.tile(np.eye(_fold(code)), code.k)
        solution = np.linalg.lstsq(rows.T, wanted.T.astype(rows.dtype), rcond=1e-11)[0]
        return bool(np.abs(rows.T @ solution - wanted.T).max() < 1e-7)

    def enough(self, code: Code, messages: Sequence[int]) -> bool | None:
        """Say by the code's own rule, worked out without its tracker, whether these messages suffice.

        By default the rule is `follows`; of a code that is not ``rank_exact`` the suite knows none (None), and checks
        only that its tracker promises no more than there is.
        """
        return self.follows(code, messages) if self.rank_exact else None

    def threshold(self, code: Code) -> int | None:
        """Return how many workers always suffice, whichever they are; None if the code promises nothing."""
        threshold: int | None = getattr(code, "guaranteed_threshold", None)
        return threshold

    def promise(self, code: Code, blocks: Array, certificate: Certificate) -> float:  # noqa: ARG002 - others need the code
        """Return how far from what is wanted an answer from these blocks may be, rounding aside."""
        return math.sqrt(certificate.error) * float(np.linalg.norm(blocks.reshape(len(blocks), -1), 2))

    def edges(self) -> Iterable[Code]:
        """Return instances at the bounds of the parameters, and nothing for a code without sizes.

        By default one worker, one block, and as many blocks as workers, unless the constructor refuses them, which it
        has to do by name.
        """
        code = self.make_code()
        if not _takes_sizes(code):
            return
        n = code.n_workers
        for sizes in dict.fromkeys(((1, 1), (n, 1), (n, n))):
            try:
                yield _sized(code, *sizes)
            except InputError as error:
                if not any(_names(error, name) for name in inspect.signature(type(code)).parameters):
                    pytest.fail(f"{sizes} workers and blocks are refused without naming a parameter: {error}")

    def too_far(self) -> Iterable[tuple[str, Callable[[], object]]]:
        """Return constructions one step beyond each bound, with the parameter that the refusal has to name.

        By default no worker, no block, and sizes that are no integers.
        """
        code = self.make_code()
        n, k = code.n_workers, code.k
        if not _takes_sizes(code):
            return
        try:
            _sized(code, n, k)
        except InputError:  # this size is one for other parameters
            return
        for bad in (0, -1, 2.5, True):
            yield "n_workers", lambda bad=bad: _sized(code, bad, k)  # type: ignore[misc]
            yield "k", lambda bad=bad: _sized(code, n, bad)  # type: ignore[misc]

    # -- helpers -------------------------------------------------------------------------------------

    def _right(
        self, answer: Array, code: Code, blocks: Array, certificate: Certificate, accuracy: float | None = None
    ) -> None:
        """Check an answer; an approximate one is as near as the error of its weights promises."""
        wanted = self.wanted(code, blocks)
        assert answer.shape == wanted.shape
        near(
            answer,
            wanted,
            promised=self.promise(code, blocks, certificate),
            accuracy=self.accuracy if accuracy is None else accuracy,
        )

    def _sets(self, code: Code) -> Iterator[tuple[int, ...]]:
        """Yield sets of messages: all of at most ten messages, else some at random."""
        n = code.n_messages
        if n <= 10:
            for size in range(n + 1):
                yield from itertools.combinations(range(n), size)
            return
        rng = np.random.default_rng(7)
        yield ()
        yield tuple(range(n))
        for _ in range(TRIED):
            size = int(rng.integers(1, n + 1))
            yield tuple(sorted(rng.permutation(n)[:size].tolist()))


def near(answer: Array, wanted: Array, *, promised: float, accuracy: float) -> None:
    """Check that an answer misses what is wanted by no more than was promised and rounding explains."""
    rounding = accuracy * (float(np.linalg.norm(wanted)) or 1.0)
    miss = float(np.linalg.norm(answer - wanted))
    assert miss <= promised + rounding, f"off by {miss:.1e}, promised {promised:.1e} and rounding {rounding:.1e}"


def filled(code: Code, messages: Iterable[int]) -> Tracker:
    """Return a tracker to which these messages were added."""
    tracker = code.tracker()
    for message in messages:
        tracker.add(int(message))
    return tracker


def messages_of(code: Code, workers: Iterable[int]) -> list[int]:
    """Return all messages of these workers."""
    return [message for worker in workers for message in code.placement(int(worker))]


def first_messages(code: Code, order: Iterable[int]) -> list[int]:
    """Return messages in this order up to the first decodable moment; all of them if it does not come."""
    tracker, arrived = code.tracker(), list[int]()
    for message in order:
        arrived.append(int(message))
        if tracker.add(int(message)):
            break
    return arrived


def refused(name: str, make: Callable[[], object]) -> None:
    """Check that a construction is refused by an error that names the parameter."""
    try:
        made = make()
    except InputError as error:
        if not _names(error, name):
            pytest.fail(f"the refusal does not name {name}: {error}")
    else:
        pytest.fail(f"{name} is out of its bounds, but this was made: {made!r}")


def _names(error: InputError, parameter: str) -> bool:
    return re.search(rf"\b{parameter}\b", str(error)) is not None


def _fold(code: Code) -> int:
    """How many coordinates of a block share one number of a message."""
    return int(getattr(code, "fold", 1))


def _takes_sizes(code: Code) -> bool:
    """Whether the class can be made from its sizes alone."""
    parameters = inspect.signature(type(code)).parameters
    needed = {name for name, parameter in parameters.items() if parameter.default is parameter.empty}
    return needed <= {"n_workers", "k"} <= set(parameters)


def _sized(code: Code, n_workers: Any, k: Any) -> Code:
    return type(code)(n_workers=n_workers, k=k)
