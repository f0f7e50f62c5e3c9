"""`Session` owns the resources; `CodedData` is an encoded data set, reusable for many products and gradients."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import uuid
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc import background, config
from serverless_gc.backends import Backend, open_backend
from serverless_gc.codes.base import Code
from serverless_gc.data.sets import AnyData, DataSets, Request
from serverless_gc.encode import Kept
from serverless_gc.encode.kept import check_name, delete_kept, list_kept
from serverless_gc.errors import InputError, ServerlessGCError
from serverless_gc.inject import Faults, Injection, Stragglers, check_seed
from serverless_gc.invoke.base import Invoker
from serverless_gc.invoke.warm import HOLD, Warmth, warm
from serverless_gc.leaving import close_at_exit, needs_no_closing
from serverless_gc.limits import DEFAULT_LIMITS, Limits
from serverless_gc.observe import Progress
from serverless_gc.policies import Deadline, natural_policy
from serverless_gc.policies.waiting import PolicyFactory, as_factory, asked_policy
from serverless_gc.prepare import check_option, check_seconds, refuse_unknown
from serverless_gc.refusals import Uncopied
from serverless_gc.rounds.resources import Resources
from serverless_gc.store.base import Store
from serverless_gc.store.region import check_region
from serverless_gc.types import StragglerModel, WaitPolicy

__all__ = ["Session", "current_session", "default_session"]

ATTEMPT_MARGIN = 5.0
"""Seconds by which the client outwaits the longest function: giving up earlier would lose replies already paid for."""

CLOSED = "this session is closed; make a new one"

_BLOCKS: contextvars.ContextVar[tuple[Session, ...]] = contextvars.ContextVar("serverless_gc_sessions", default=())
"""Sessions whose ``with`` block was begun in this context, innermost last."""


class Session(Uncopied):
    """Owns a backend: where coded blocks are stored and where tasks run.

    Use it as a context manager; on exit everything it stored is removed. Inside the ``with`` block it is also what
    `coded_gradient` and `coded_matvec` use.

    Parameters
    ----------
    backend
        ``"local"``, ``"processes"``, ``"aws"`` or ``"simulated"``; by default what the settings say, else local.
    inject
        Stragglers and faults to inject, `serverless_gc.inject`; one or several.
    deadline
        Seconds from its start after which a round fails with `DeadlineExceeded`; 300 by default.
    policy
        When to stop waiting: a `WaitPolicy`, or a function from code to one, such as
        ``lambda code: sgc.FirstK(code.n_workers - 2)``; rounds that run at the same time want a function.
        By default a round closes as soon as what arrived is decodable, with an approximate gradient code after as many
        results as the code says.
    max_attempts
        How often a task that failed is run in all.
    tolerance
        Largest acceptable predicted relative error of an answer: a round waits for further results while it is exceeded
        and any can come, and raises `DecodeError` if it still is. None for 1e-3 (1e-1 in single precision), with an
        `AccuracyWarning` above 1e-6 (1e-3).
    bucket, function, region
        Of the deployed stack, for backend ``"aws"``; by default from the settings.
    delay
        For backend ``"simulated"``: the law of the delay of one task, `serverless_gc.stragglers`.
    store, invoker
        Replace the backend's own, for instance by one of yours.
    presigned
        Give each task presigned URLs of what it reads and writes, so that the function needs no right to the bucket.
        Needs S3. URLs are good for twice the function's longest run and end with the driver's credentials.
    limits
        Service limits to enforce.
    progress
        Show a bar for each round on a terminal or in a notebook, and a plain line every few seconds elsewhere.
    seed
        Seed of the simulated clock.

    Notes
    -----
    Workers remember the blocks that they have read. All those of a local or simulated session together remember at most
    a quarter of the machine's memory, and forget what is deleted; all processes together 256 MiB; each environment of
    a function a quarter of its memory. The variable ``SERVERLESS_GC_CACHE_MB`` sets another number of MiB, 0 for none.

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> X, w = np.arange(12.0).reshape(6, 2), np.ones(2)
    >>> with sgc.Session(inject=sgc.inject.Stragglers(fraction=0.1, slowdown=10)) as s:
    ...     data = s.encode(X, y=np.zeros(6), code="mds", n_workers=6, k=4)
    ...     gradient, report = data.gradient(w, with_report=True)
    >>> np.allclose(gradient, X.T @ (X @ w))
    True
    >>> report.issued == report.used + report.surplus + report.failed + report.voided
    True
    """

    def __init__(
        self,
        backend: str | None = None,
        *,
        inject: Injection | Sequence[Injection] = (),
        deadline: float | None = None,
        policy: WaitPolicy | PolicyFactory | None = None,
        max_attempts: int = 3,
        tolerance: float | None = None,
        bucket: str | None = None,
        function: str | None = None,
        region: str | None = None,
        concurrency: int | None = None,
        delay: StragglerModel | None = None,
        store: Store | None = None,
        invoker: Invoker | None = None,
        presigned: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        progress: bool = False,
        seed: int = 0,
    ) -> None:
        given = {
            "backend": backend,
            "deadline": deadline,
            "bucket": bucket,
            "function": function,
            "region": region,
            "concurrency": concurrency,
        }
        self.settings = {name: setting.value for name, setting in config.resolve(given).items()}
        check_seconds("deadline", self.settings["deadline"])
        if max_attempts < 1:
            raise InputError(f"max_attempts must be at least 1, got {max_attempts}")
        self.backend: str = self.settings["backend"]
        self._injections = tuple(inject) if isinstance(inject, Sequence) else (inject,)
        for injection in self._injections:
            check_option("inject", injection, Stragglers | Faults, "Stragglers or Faults of serverless_gc.inject")
        check_option("store", store, Store, "a Store")
        check_option("invoker", invoker, Invoker, "an Invoker")
        check_option("delay", delay, StragglerModel, "a law of serverless_gc.stragglers")
        self._policy = as_factory(policy)
        self._max_attempts = max_attempts
        self._tolerance = tolerance
        self._limits = limits
        self._progress = Progress() if progress else None
        self._options: dict[str, Any] = {"delay": delay, "seed": check_seed(seed), "store": store, "invoker": invoker}
        self._options["presigned"] = presigned
        self._data = DataSets(self, limits, lasting=store is not None or self.backend == "aws")
        self.late: dict[int, frozenset[int]] = {}
        self._opened: tuple[Resources, Backend, int] | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        self._running = False
        self._make_backend()
        close_at_exit(self)

    # -- life ----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._leave()
        try:
            self.close()
        except ServerlessGCError as failed:
            _second(exc, failed)

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._leave()
        try:
            await self.close_async()
        except ServerlessGCError as failed:
            _second(exc, failed)

    def _enter(self) -> None:
        if self._closed:
            raise ServerlessGCError(CLOSED)
        if self._running:
            raise ServerlessGCError("this session's with block is already running; use the session in it as it is")
        self._running = True
        _BLOCKS.set((*_BLOCKS.get(), self))

    def _leave(self) -> None:
        # No token: blocks may end out of order, or in another context than they began in (fixtures, exit stacks).
        self._running = False
        _BLOCKS.set(tuple(session for session in _BLOCKS.get() if session.running))

    def __repr__(self) -> str:
        return f"Session(backend={self.backend!r}, {'closed' if self._closed else f'{len(self._data)} data sets'})"

    @background.homed
    async def close_async(self) -> None:
        """Remove everything this session stored, and stop its threads, processes and connections.

        Raises
        ------
        StoreError
            If objects could not be deleted; the message names them.
        """
        if self._closed:
            return
        self._closed = True
        needs_no_closing(self)
        self._data.clear()
        opened, self._opened = self._opened, None
        if opened is None:
            self._backend.release()
            return
        res, backend, pid = opened
        if self._progress is not None:
            self._progress.close()
        try:
            if pid == os.getpid():
                await res.settle()
                await backend.invoker.close()
                await res.sweep()
        finally:
            await backend.store.close()
            backend.release()

    close = background.blocking(close_async)

    async def resources(self) -> Resources:
        """Return the open store, invoker and host; opens them on first use, and again in a forked child."""
        if self._closed:
            raise ServerlessGCError(CLOSED)
        if self._opened is not None and self._opened[2] != os.getpid():
            # A forked child: threads, connections and locks did not come along, objects did.
            self._opening = asyncio.Lock()
            self._make_backend(store=self._opened[0].store)
            self._opened = None
        async with self._opening:
            if self._opened is None:
                self._opened = (await self._open(), self._backend, os.getpid())
            return self._opened[0]

    async def _open(self) -> Resources:
        run = uuid.uuid4().hex[:12]
        backend = self._backend
        await check_region(backend.store.url)
        await backend.invoker.open()
        return Resources(
            run=run,
            prefix=f"runs/{run}",
            store=backend.store,
            invoker=backend.invoker,
            host=backend.host,
            limits=self._limits,
            attempt_timeout=self._limits.function_timeout + ATTEMPT_MARGIN,
            max_attempts=self._max_attempts,
            tolerance=self._tolerance,
            logs_hint=backend.logs_hint,
            store_stats=backend.store_stats,
            progress=self._progress,
            presign=backend.presign,
        )

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._closed

    @property
    def opened_by(self) -> int | None:
        """Process in which its store and workers were opened; None if they are not."""
        return None if self._opened is None else self._opened[2]

    @property
    def running(self) -> bool:
        """Whether its ``with`` block is running."""
        return self._running

    def policy_for(
        self,
        code: Code,
        deadline: float | None,
        *,
        inner: WaitPolicy | None = None,
        on_expire: Literal["abort", "close"] = "abort",
        dtype: DTypeLike = np.float64,
    ) -> WaitPolicy:
        """Make the waiting policy of one round, within the deadline: the given one, the caller's, or the session's.

        Unless there is one, a code's natural rule for messages of this dtype.
        """
        seconds = self.settings["deadline"] if deadline is None else check_seconds("deadline", deadline)
        chosen = inner or asked_policy(code) or (self._policy and self._policy(code))
        return Deadline(chosen or natural_policy(code, self._tolerance, dtype), seconds, on_expire)

    def _make_backend(self, store: Store | None = None) -> None:
        options = {**self._options, "store": store} if store is not None else self._options
        self._backend = open_backend(
            self.backend, injections=self._injections, limits=self._limits, settings=self.settings, **options
        )
        weakref.finalize(self, self._backend.release)  # a session that is dropped or never used leaves no folder either

    # -- data ----------------------------------------------------------------------------------------

    @background.homed
    async def encode_async(
        self,
        X: Any,
        y: Any = None,
        *,
        code: str | Code = "auto",
        n_workers: int | None = None,
        k: int | None = None,
        dtype: Any = np.float64,
        allow_fill: bool = False,
        publish: int | None = None,
        name: str = "",
        **params: Any,
    ) -> AnyData:
        """Encode a matrix and store its coded blocks, or for a gradient code its partitions.

        Encoding the same content with the same code again stores nothing: it is recognized by its fingerprint. All
        gradient codes with as many partitions share them.

        Parameters
        ----------
        X
            ``(n_rows, n_cols)``: array of any layout and numeric dtype, ``np.memmap``, CSR or CSC, or a data frame.
        y
            ``(n_rows,)`` or ``(n_rows, c)`` targets or labels. Needed for losses, not for products. Stays local with a
            data code; a gradient code stores it beside ``X``.
        code
            A name of `serverless_gc.codes.available`, a code object, or ``"auto"``: polar for dense data, for
            sparse data a code that does not fill the blocks in. Data codes serve products and losses of ``X @ w``,
            gradient codes any loss.
        n_workers, k
            Number of workers and of source blocks; by default 16 workers at rate 3/4.
        dtype
            ``np.float64`` (default) or ``np.float32``: in what the blocks are stored and multiplied.
        allow_fill
            Encode sparse data even where the coded blocks hold many times more non-zeros.
        publish
            A worker with several messages publishes them after so many each, so that those of a slow one count; 0 for
            all at the end. By default what the code says, `Code.publish`: 1 for multi-message codes, else 0.
        name
            Keep the data set under this name when the session closes, for `open`, in a store that lasts: S3, or one
            given as ``store=``. What is stored under it already is not stored again, be it all or what a killed process
            managed. It stays until ``data.delete()``, `delete` or ``serverless-gc data delete``. For least squares
            (``"encoded"``, ``"lcc-mmc"``) it holds ``X.T y`` too.
        **params
            Further parameters of the code.

        Returns
        -------
        CodedData, GradientData, EncodedData or PolynomialData
            The second for a gradient code, the third for encoded optimization, the fourth for ``"lcc-mmc"``; all
            compute gradients in the same way, the first also products.

        Raises
        ------
        InputError
            If the data hold NaN or Inf, are not numeric, or do not fit ``y``, or the name is that of other data or of
            the same under another code; nothing has been stored.
        LimitError
            If a block with its operand would not fit a function's memory, an object or its time; nor then.
        """
        refuse_unknown("encode", code, params, self.encode_async)
        request = Request(X, y, code, n_workers, k, dtype, allow_fill, publish, name, params)
        return await self._data.encode(request)

    @background.homed
    async def open_async(self, name: str, y: Any = None, *, publish: int | None = None) -> AnyData:
        """Open a data set that was encoded with ``name=``, in this process or in another one; ``X`` is not needed.

        Parameters
        ----------
        name
            Its name.
        y
            Targets or labels, as for `encode`; not stored with a data code, so give them again. With a gradient code
            the same ones are not stored again. Data for least squares (``"encoded"``, ``"lcc-mmc"``) know theirs.
        publish
            As for `encode`.

        Returns
        -------
        CodedData, GradientData, EncodedData or PolynomialData
            Whichever `encode` returned. ``strategy="gram"`` needs ``X`` and is not there.

        Raises
        ------
        InputError
            If no such data set is kept, or it was not stored to the end, or ``y`` does not fit.
        ObjectNotFound, CorruptObject
            If an object of it is gone or another one.

        Examples
        --------
        >>> import numpy as np, serverless_gc as sgc
        >>> from serverless_gc.store import MemoryStore
        >>> X, y, shelf = np.arange(12.0).reshape(6, 2), np.ones(6), MemoryStore()  # an S3Store outlives the process
        >>> with sgc.Session(store=shelf) as s:
        ...     data = s.encode(X, y, code="mds", n_workers=6, k=4, name="numbers")
        >>> with sgc.Session(store=shelf) as s:
        ...     g = s.open("numbers", y).gradient(np.ones(2))
        ...     s.delete("numbers")
        >>> np.allclose(g, X.T @ (X @ np.ones(2) - y))
        True
        """
        return await self._data.open(name, y, publish)

    @background.homed
    async def kept_async(self) -> list[Kept]:
        """List the data sets that are kept under names in this session's store, whole or not."""
        return [kept async for kept in list_kept((await self.resources()).store)]

    @background.homed
    async def delete_async(self, name: str) -> None:
        """Delete a data set that is kept under a name, whole or not, whoever made it.

        Raises
        ------
        InputError
            If there is none.
        StoreError
            If an object could not be deleted.
        """
        await self._data.let_go(check_name(name))
        await delete_kept((await self.resources()).store, name)

    encode = background.blocking(encode_async)
    open = background.blocking(open_async)
    kept = background.blocking(kept_async)
    delete = background.blocking(delete_async)

    @background.homed
    async def warm_async(self, n: int, *, timeout: float = 60.0) -> Warmth:
        """Open connections and start environments before work waits for them: ``n`` no-op invocations at once.

        Lambda bills them; the report of the next call counts them as ``warmed``.

        Parameters
        ----------
        n
            How many, at most the invoker's concurrency; the number of workers of the code to come is a good one.
        timeout
            Seconds after which one is given up.

        Returns
        -------
        Warmth
            How many were answered, by how many environments, and what failed.

        Raises
        ------
        ConfigError
            If function or credentials are refused.
        """
        res = await self.resources()
        warmth = await warm(res.invoker, n, timeout=timeout, hold=HOLD if self.backend == "aws" else 0.0)
        res.warmed += warmth.asked
        return warmth

    warm = background.blocking(warm_async)

    async def keep(self, most: int) -> None:
        """Forget the data sets used longest ago, of those that nobody holds, until at most ``most`` are left."""
        await self._data.forget(most)


def current_session() -> Session | None:
    """Return the session of the innermost ``with`` block that is still running, or None."""
    return next((session for session in reversed(_BLOCKS.get()) if session.running), None)


_DEFAULTS: dict[str, Session] = {}
_DEFAULTS_LOCK = threading.Lock()
background.guarded_at_fork(_DEFAULTS_LOCK)


def default_session(backend: str | None) -> Session:
    """Return the session that calls without one share, one per backend; closed at exit."""
    name = config.resolve({"backend": backend})["backend"].value
    with _DEFAULTS_LOCK:
        session = _DEFAULTS.get(name)
        if session is None or session.closed:
            session = _DEFAULTS[name] = Session(name)
        return session


def _second(first: BaseException | None, error: ServerlessGCError) -> None:
    """Let what went wrong in the ``with`` block stand: what closing met, often for the same reason, is its note."""
    if first is None:
        raise error
    first.add_note(f"Closing the session failed as well: {error}")
