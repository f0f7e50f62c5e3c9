"""Every error the package raises, in one tree.

::

    ServerlessGCError
    ├── InputError (ValueError)            an argument is wrong; nothing was stored or billed
    │   └── LimitError                     a documented limit (payload, memory, time) would be exceeded
    ├── ConfigError                        a setting, a credential or a deployed object is missing or wrong
    ├── NotDecodableError                  too few results arrived to reconstruct the answer
    │   └── DeadlineExceeded (TimeoutError)    ... because the time given ran out
    ├── DecodeError (ArithmeticError)      enough results, but the answer would not be accurate
    │   └── WrongResult                    ... because results contradict one another: one of them is wrong
    ├── StoreError                         an object could not be read or written
    │   ├── ObjectNotFound (KeyError)      no object under that key
    │   └── CorruptObject                  length or checksum of a stored object is wrong
    ├── InvokeError                        one invocation failed; ``kind`` says how
    └── ProtocolMismatch                   driver and deployed worker speak different versions

and one warning, ``AccuracyWarning (UserWarning)``: an answer is given although it lost many digits.

Each message says what happened, how often, the likely cause, and what to do next.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AccuracyWarning",
    "ConfigError",
    "CorruptObject",
    "DeadlineExceeded",
    "DecodeError",
    "FailureKind",
    "InputError",
    "InvokeError",
    "LimitError",
    "NotDecodableError",
    "ObjectNotFound",
    "ProtocolMismatch",
    "ServerlessGCError",
    "StoreError",
    "WrongResult",
]

FailureKind = Literal[
    "throttled",  # 429: the account's or the function's concurrency is used up; the function did not run
    "unavailable",  # 5xx, connection refused or reset before the function ran
    "timeout",  # no reply within the client's own limit; the function may have run
    "lost",  # the connection broke after the request was sent; the function may have run
    "function",  # the function raised, was killed or ran out of time or memory
    "bad-reply",  # a reply arrived but it is not a valid answer to this task
    "corrupt",  # the worker found a stored block damaged
    "denied",  # credentials missing, expired or not allowed; never retried
    "missing",  # no such function, bucket or stored object; never retried
    "too-large",  # request above the service's payload limit; never retried
]


class ServerlessGCError(Exception):
    """Base of all errors of this package."""


class InputError(ServerlessGCError, ValueError):
    """An argument is wrong. Raised before anything is stored or billed."""


class LimitError(InputError):
    """A documented limit of the service would be exceeded; the message gives size and limit."""


class ConfigError(ServerlessGCError):
    """A setting, a credential or a deployed object is missing or wrong."""


class NotDecodableError(ServerlessGCError):
    """The results that arrived do not determine the answer.

    Attributes
    ----------
    missing
        Indices of the source blocks that cannot be reconstructed.
    failures
        Message id -> why its task did not deliver, in words.
    """

    def __init__(
        self,
        message: str,
        *,
        missing: tuple[int, ...] = (),
        failures: dict[int, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.missing = missing
        self.failures = failures or {}


class DeadlineExceeded(NotDecodableError, TimeoutError):
    """The deadline passed before enough results arrived."""


class DecodeError(ServerlessGCError, ArithmeticError):
    """Enough results arrived but the decoded answer would miss the tolerance.

    Attributes
    ----------
    predicted
        Predicted relative error of the answer.
    tolerance
        The tolerance it misses.
    """

    def __init__(self, message: str, *, predicted: float = float("nan"), tolerance: float = 0.0) -> None:
        super().__init__(message)
        self.predicted = predicted
        self.tolerance = tolerance


class AccuracyWarning(UserWarning):
    """An answer has a predicted relative error above 1e-6 (1e-3 in single precision), and no tolerance was given."""


class WrongResult(DecodeError):
    """More results arrived than the answer needs, and they contradict one another: at least one is wrong."""


class StoreError(ServerlessGCError):
    """An object could not be read or written.

    Attributes
    ----------
    key
        The object's key, or an empty string.
    retryable
        Whether the same request may succeed later (503 SlowDown, time-outs, resets).
    status
        HTTP status of the answer; 0 if there was none.
    """

    def __init__(self, message: str, *, key: str = "", retryable: bool = False, status: int = 0) -> None:
        super().__init__(message)
        self.key = key
        self.retryable = retryable
        self.status = status


class ObjectNotFound(StoreError, KeyError):
    """No object is stored under that key."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class CorruptObject(StoreError):
    """Length or checksum of a stored object is wrong; it was not used."""


class InvokeError(ServerlessGCError):
    """One invocation failed.

    Attributes
    ----------
    kind
        What went wrong, one of the `FailureKind` words.
    retryable
        Whether another attempt makes sense.
    may_have_run
        Whether the function may have run, so that a stored result is worth looking for.
    request_id
        The service's request id when known.
    reason
        A short phrase without names or numbers, for counting: it tells failures of one kind apart
        ("empty reply", "no envelope"). The kind itself unless given.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        reason: str = "",
        retryable: bool | None = None,
        may_have_run: bool | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = kind not in {"denied", "missing", "too-large"} if retryable is None else retryable
        self.may_have_run = kind in {"timeout", "lost", "bad-reply"} if may_have_run is None else may_have_run
        self.request_id = request_id
        self.reason = reason or kind


class ProtocolMismatch(ServerlessGCError):
    """Driver and worker speak different versions of the wire protocol."""
