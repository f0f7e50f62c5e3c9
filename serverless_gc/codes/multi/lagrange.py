"""Lagrange coded multi-message: any ``2 k - 1`` messages give the least-squares gradient, whoever sent them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.checks import check_whole
from serverless_gc.codes.base import Certificate, Tracker, Verdict, check_message
from serverless_gc.codes.blocks import promoted
from serverless_gc.codes.lagrange.interpolation import GUARD, shortest_weights
from serverless_gc.codes.multi.order import ConsecutiveMessages, check_load
from serverless_gc.codes.received import accuracy_warning, not_decodable, receive, refuse_inaccurate, unit_roundoff
from serverless_gc.codes.threads import single_blas_thread
from serverless_gc.errors import InputError
from serverless_gc.types import Array, FloatArray

__all__ = ["CountTracker", "LagrangeMultiMessage"]

_COMFORTABLE = 10
_MOST = 20
"""Largest ``k`` without a warning, and without ``allow_unstable``."""


class LagrangeMultiMessage(ConsecutiveMessages):
    """Data blocks on a polynomial curve; each message is a polynomial of the coded block at one point of it.

    The coded block at point ``beta`` is ``sum_j X_j ell_j(beta)``, ``ell_j`` the Lagrange basis on Chebyshev points. A
    worker applies a polynomial ``F`` of total degree ``degree`` to its blocks, such as ``F(X) = X.T @ (X @ w)``, and
    sends each result as it is done. Wanted is ``sum_j F(X_j)``: one weighted sum of any ``T = (k - 1) degree + 1``
    messages.

    Parameters
    ----------
    n_workers, k
        Number of workers and of data blocks.
    r
        Coded blocks for each worker; by default as few as give 1.3 times the messages needed, at least 2.
    degree
        Of the polynomial in the entries of a block; 2 for least squares.
    allow_unstable
        Accept ``k`` above 20, where rounding makes the answer useless more often than not.

    Raises
    ------
    InputError
        If ``r`` is not in ``1..k``, ``degree`` is below 1, ``n_workers * r`` messages are fewer than ``T``, or ``k`` is
        above 20.

    Notes
    -----
    S. Li et al., "Polynomially Coded Regression" (2018); E. Ozfatura, D. Gunduz, S. Ulukus, "Speeding Up Distributed
    Gradient Descent by Utilizing Non-persistent Stragglers" (ISIT 2019). Slot ``j`` of worker ``i`` has the point of
    index ``((i + j s) mod n) r + j`` among ``n r`` Chebyshev points, ``s = max(1, n // r)``: those that arrive are
    spread over the interval, which decides accuracy. At exactly ``T`` messages rounding may grow 1e5 times, at
    ``1.3 T`` hardly at all: wait for more with ``UntilDecodable(code, tolerance=...)``.

    Examples
    --------
    >>> import numpy as np
    >>> code = LagrangeMultiMessage(4, 2, r=2)
    >>> code.threshold, code.placement(1)
    (3, (2, 3))
    >>> sent = code.encode(np.array([[1.0], [2.0]])) ** 2
    >>> total, certificate = code.decode({i: sent[i] for i in (0, 3, 5)})
    >>> total.round(12)
    array([5.])
    """

    name = "lcc-mmc"
    guard = GUARD

    def __init__(
        self, n_workers: int, k: int, *, r: int | None = None, degree: int = 2, allow_unstable: bool = False
    ) -> None:
        super().__init__(n_workers, k)
        self.degree = check_whole("degree", degree, 1)
        self.threshold = (self.k - 1) * self.degree + 1
        fewest = max(2, math.ceil(1.3 * self.threshold / self.n_workers))
        self.r = min(self.k, fewest) if r is None else check_load(r, self.k)
        self.allow_unstable = bool(allow_unstable)
        if self.n_messages < self.threshold:
            raise InputError(
                f"n_workers * r = {self.n_messages} messages are fewer than the {self.threshold} that k={self.k} "
                f"blocks at degree={self.degree} need: raise r or n_workers, or lower k"
            )
        if self.k > _MOST and not self.allow_unstable:
            raise InputError(
                f"k must be at most {_MOST}, got {self.k}: interpolation at more points loses all digits; "
                "allow_unstable=True takes it all the same"
            )

    @property
    def target(self) -> Literal["blocks", "sum"]:
        """The sum over the blocks is wanted."""
        return "sum"

    @property
    def guaranteed_threshold(self) -> int:
        """Workers after which every set decodes, if each sent all its messages: ``T / r``, rounded up."""
        return -(-self.threshold // self.r)

    def point(self, message: int) -> int:
        """Index of a message's point among the ``n_messages`` Chebyshev points."""
        check_message(message, self.n_messages)
        worker, place = divmod(message, self.r)
        step = max(1, self.n_workers // self.r)
        return (worker + place * step) % self.n_workers * self.r + place

    def _angles(self, messages: Iterable[int]) -> FloatArray:
        return math.pi * (np.array([self.point(m) for m in messages], float) + 0.5) / self.n_messages

    def _build_generator(self) -> FloatArray:
        """Build the Lagrange basis on the data points, at the points of the messages."""
        alpha = np.cos(math.pi * (np.arange(self.k) + 0.5) / self.k)
        beta = np.cos(self._angles(range(self.n_messages)))
        g = np.ones((self.n_messages, self.k))
        for j in range(self.k):
            for m in range(self.k):
                if m != j:
                    g[:, j] *= (beta - alpha[m]) / (alpha[j] - alpha[m])
        return g

    def source_of(self, message: int) -> int | None:  # noqa: ARG002 - a sum is wanted: no message is part of the answer
        """No message is a part of the answer."""
        return None

    def tracker(self) -> CountTracker:
        """Make a fresh tracker."""
        return CountTracker(self.n_messages, self.k, self.threshold)

    def weights(self, messages: Iterable[int]) -> FloatArray:
        """Return the weights of least norm, in ascending order of the message ids.

        Raises
        ------
        NotDecodableError
            If the messages are fewer than the threshold.
        """
        ids = sorted(set(messages))
        for message in ids:
            check_message(message, self.n_messages)
        if len(ids) < self.threshold:
            hint = f"{self.threshold} messages are needed"
            raise not_decodable(self.name, len(ids), tuple(range(self.k)), hint)
        degrees = np.arange(self.threshold)
        system = np.cos(np.outer(degrees, self._angles(ids)))
        alpha = math.pi * (np.arange(self.k) + 0.5) / self.k
        wanted = np.cos(np.outer(degrees, alpha)).sum(axis=1)
        with single_blas_thread():
            weights: FloatArray = shortest_weights(wanted[np.newaxis], *np.linalg.qr(system.T))[0]
        return weights

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Return the certificate of a decode from these messages.

        Raises
        ------
        NotDecodableError
            If the messages are fewer than the threshold.
        """
        ids = sorted(set(messages))
        return self._certificate(ids, self.weights(ids), np.dtype(dtype))

    def _certificate(self, ids: list[int], weights: FloatArray, dtype: np.dtype[Any]) -> Certificate:
        growth = float(np.linalg.norm(weights))
        predicted = unit_roundoff(promoted(np.dtype(dtype))) * growth * math.sqrt(self.threshold)
        warning = accuracy_warning(predicted, promoted(np.dtype(dtype)))
        if not warning and self.k > _COMFORTABLE:
            warning = f"k={self.k} blocks on one polynomial: above {_COMFORTABLE} some arrivals lose many digits"
        return Certificate(
            "lstsq",
            used=tuple(ids),
            amplification=growth,
            predicted_error=predicted,
            unknowns=self.threshold,
            warning=warning,
            weights=dict(zip(ids, weights.tolist(), strict=True)),
        )

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,  # noqa: ARG002 - nothing is compared: surplus messages share the weight
    ) -> tuple[Array, Certificate]:
        """Sum ``F`` over the data blocks, from all messages given; see `Code.decode`."""
        got = receive(values, self.n_messages)
        weights = self.weights(got.ids)
        certificate = self._certificate(list(got.ids), weights, got.dtype)
        refuse_inaccurate(self.name, certificate.predicted_error, tolerance, got.ids)
        total = np.zeros(got.shape, got.dtype) if out is None else out
        total[...] = 0
        for weight, message in zip(weights.tolist(), got.ids, strict=True):
            total += weight * got.values[message]
        return total, certificate

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        return {"r": self.r, "degree": self.degree, "allow_unstable": self.allow_unstable}


class CountTracker(Tracker):
    """Decodable when a number of distinct messages is here, whichever they are."""

    __slots__ = ("_k", "_left", "_seen")

    def __init__(self, n_messages: int, k: int, threshold: int) -> None:
        self._k = k
        self._left = threshold
        self._seen = bytearray(n_messages)

    def add(self, message: int) -> Verdict:
        """Record one arrived message."""
        check_message(message, len(self._seen))
        if not self._seen[message]:
            self._seen[message] = 1
            self._left -= 1
        return Verdict(self.decodable, self.missing)

    @property
    def decodable(self) -> bool:
        """Whether enough messages are here."""
        return self._left <= 0

    def missing(self) -> tuple[int, ...]:
        """All blocks until enough messages are here: no fewer determine any of them."""
        return () if self.decodable else tuple(range(self._k))
