"""The fast transform behind polar and Reed-Muller codes: ``x = G u`` for rows of numbers, in cache-sized tiles.

``G[j, i] = 1`` if ``(i & j) == j``: the Kronecker power of ``[[1, 1], [0, 1]]``, in natural index order. The Hadamard
kernel is the Kronecker power of ``[[1, 1], [1, -1]] / sqrt(2)``. Each column is transformed by itself, so columns are
cut into tiles, and threads take turns at them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from serverless_gc.checks import check_whole
from serverless_gc.codes.blocks import promoted
from serverless_gc.codes.polar.butterfly_program import Call, Program, stage_calls, systematic_program
from serverless_gc.errors import InputError
from serverless_gc.types import Array

__all__ = ["Engine", "Kernel", "encode"]

Kernel: TypeAlias = Literal["binary", "hadamard"]
Engine: TypeAlias = Literal["auto", "numpy", "numba"]

_TILE_BYTES = 2**22
"""Size of a tile: larger than the second-level cache, because more and narrower tiles cost more in calls."""

_UFUNC_BUFFER = 256
"""Elements in NumPy's buffer: with the default of 8192 it copies strided operands of shorter runs through it,
which makes the first stages up to three times slower."""

_COMPILED_TILE_BYTES = 2**18
_NARROWEST = 128
"""The compiled loop has no calls to spread: its tiles fit the second-level cache, of rows not too short to fetch."""

_LARGE = 2**27
"""Numbers that a process encodes before compiling the accelerator pays, in one call or in many."""

_SHARE = 2**17
"""Numbers in the code word worth a thread."""


@dataclass(frozen=True, slots=True)
class _Job:
    """One encoding: rows to read and where they go, rows without data, what to do, and rows to write."""

    blocks: Sequence[Array] | Array
    where: NDArray[np.int64]
    empty: NDArray[np.int64]
    out: Array
    rows: NDArray[np.int64]
    length: int
    kernel: Kernel
    program: Program | None
    dtype: np.dtype[Any]


def encode(
    blocks: Sequence[Array] | Array,
    positions: Sequence[int],
    length: int,
    out: Array,
    rows: Sequence[int],
    *,
    kernel: Kernel = "binary",
    systematic: bool = True,
    threads: int | None = None,
    engine: Engine = "auto",
) -> Array:
    """Encode blocks with the butterfly.

    Parameters
    ----------
    blocks
        Array of shape ``(k, L)``, or ``k`` arrays of length ``L``, which are not copied as a whole.
    positions
        Index of each block in ``0 .. length-1``; the other positions hold zeros.
    length
        Length of the transform, a power of two.
    out
        Where to write, shape ``(len(rows), L)``. Rows may be memory of ``blocks`` only where they are the same block
        of a systematic code word.
    rows
        Which entries of the code word to write.
    kernel
        ``"binary"``: additions only. ``"hadamard"``: orthonormal.
    systematic
        If true, entry ``positions[i]`` of the code word *is* block ``i``, bit for bit. If false, the code word is
        ``G u`` with the blocks at ``positions`` of ``u``.
    threads
        How many threads share the columns; the number of processors by default. The systematic form runs on one
        unless it is compiled.
    engine
        ``"numba"`` needs the extra ``fast`` and compiles for a second or two when first used; ``"auto"`` uses it, if
        it is installed, once this process has encoded a gigabyte. Both engines give the same numbers.

    Returns
    -------
    numpy.ndarray
        ``out``.

    Raises
    ------
    InputError
        If sizes do not fit, an index is out of range or repeated, or the positions have no systematic code.

    References
    ----------
    B. Bartan, M. Pilanci, Straggler Resilient Serverless Computing Based on Polar Codes, 2019. E. Arikan, Systematic
    Polar Coding, 2011.

    Examples
    --------
    >>> blocks = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> encode(blocks, [3, 5, 6, 7], 8, np.empty((8, 1)), range(8), systematic=False).ravel().tolist()
    [10.0, 7.0, 8.0, 5.0, 9.0, 6.0, 7.0, 4.0]
    >>> encode(blocks, [3, 5, 6, 7], 8, np.empty((4, 1)), [0, 1, 2, 4]).ravel().tolist()
    [-2.0, -1.0, 0.0, 1.0]
    """
    job = _prepare(blocks, positions, length, out, rows, kernel, systematic)
    accelerated = _accelerate(engine, job)
    run = _compiled_run(job) if accelerated else _run
    n_threads = (os.cpu_count() or 1) if threads is None else check_whole("threads", threads, 1)
    if systematic and not accelerated:
        # Its many short calls spend more time handing the interpreter lock to and fro than a second thread saves.
        n_threads = 1
    parts = min(n_threads, -(-length * out.shape[1] // _SHARE)) or 1
    bounds = [out.shape[1] * i // parts for i in range(parts + 1)]
    if parts == 1:
        run(job, 0, out.shape[1])
    else:
        with ThreadPoolExecutor(parts) as pool:
            for done in [pool.submit(run, job, *ends) for ends in pairwise(bounds)]:
                done.result()
    return out


def _prepare(
    blocks: Sequence[Array] | Array,
    positions: Sequence[int],
    length: int,
    out: Array,
    rows: Sequence[int],
    kernel: Kernel,
    systematic: bool,
) -> _Job:
    if kernel not in {"binary", "hadamard"}:
        raise InputError(f"kernel must be 'binary' or 'hadamard', got {kernel!r}")
    if check_whole("length", length, 1) & (length - 1):
        raise InputError(f"length must be a power of two, got {length}")
    where = _indices("positions", positions, length)
    if len(set(where.tolist())) < len(where):
        raise InputError("positions must differ from one another")
    wanted = _indices("rows", rows, length)
    dtype = _check_blocks(blocks, len(where), out, len(wanted))
    data = np.zeros(length, dtype=np.bool_)
    data[where] = True
    return _Job(
        blocks=blocks,
        where=where,
        empty=np.flatnonzero(~data),
        out=out,
        rows=wanted,
        length=length,
        kernel=kernel,
        program=_program(data.tobytes(), kernel) if systematic else None,
        dtype=dtype,
    )


@lru_cache(maxsize=32)
def _program(data: bytes, kernel: Kernel) -> Program:
    """Compile the systematic encoder once per code: a streaming encoder asks for it strip by strip."""
    return systematic_program(np.frombuffer(data, dtype=np.bool_), kernel)


class _Done:
    """How many numbers this process has encoded: a streaming encoder comes strip by strip."""

    def __init__(self) -> None:
        self.numbers = 0

    def pays(self, numbers: int) -> bool:
        """Add a job; return whether the accelerator pays by now."""
        self.numbers += numbers
        return self.numbers >= _LARGE


_DONE = _Done()


def _accelerate(engine: Engine, job: _Job) -> bool:
    if engine not in {"auto", "numpy", "numba"}:
        raise InputError(f"engine must be 'auto', 'numpy' or 'numba', got {engine!r}")
    if engine == "numpy" or (engine == "auto" and not _DONE.pays(job.length * job.out.shape[1])):
        return False
    if find_spec("numba") is None:
        if engine == "numba":
            raise InputError("engine='numba' needs Numba, which is not installed: pip install 'serverless-gc[fast]'")
        return False
    # The compiled loop reads and writes rows by address: they must be of one native type, aligned and without gaps.
    flags = [row.flags for row in (*job.blocks, *job.out) if row.dtype == job.dtype]
    return (
        job.dtype.char in "fdFD"
        and job.dtype.isnative
        and len(flags) == len(job.blocks) + len(job.out)
        and all(f.c_contiguous and f.aligned for f in flags)
    )


def _indices(name: str, values: Sequence[int], length: int) -> NDArray[np.int64]:
    indices = np.array(list(values), dtype=np.int64)
    if indices.size and (indices.min() < 0 or indices.max() >= length):
        raise InputError(f"{name} must be in 0..{length - 1}, got {indices.min()}..{indices.max()}")
    return indices


def _check_blocks(blocks: Sequence[Array] | Array, k: int, out: Array, n_rows: int) -> np.dtype[Any]:
    if len(blocks) != k or k == 0:
        raise InputError(f"there must be one block for each of the {k} positions, got {len(blocks)}")
    if not out.flags.writeable:
        raise InputError("out must be writable")
    if out.ndim != 2 or len(out) != n_rows:
        raise InputError(f"out must have one row for each of the {n_rows} rows wanted, its shape is {out.shape}")
    shapes = {blocks.shape[1:]} if isinstance(blocks, np.ndarray) else {b.shape for b in blocks}
    if shapes != {out.shape[1:]}:
        raise InputError(f"blocks must have the length of a row of out, {out.shape[1]}, got shapes {sorted(shapes)}")
    dtypes = {blocks.dtype} if isinstance(blocks, np.ndarray) else {b.dtype for b in blocks}
    dtype = np.result_type(*map(promoted, dtypes))
    if not np.can_cast(dtype, out.dtype, "same_kind"):
        raise InputError(f"out must hold {dtype}, its dtype is {out.dtype}")
    return dtype


def _cut(indices: NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """Cut ``indices`` where they do not ascend by one: ``(first index, its place, how many)``."""
    cuts = np.flatnonzero(np.diff(indices) != 1) + 1
    bounds = [0, *cuts.tolist(), len(indices)]
    return [(int(indices[a]), a, b - a) for a, b in pairwise(bounds) if b > a]


@contextmanager
def _small_ufunc_buffer() -> Iterator[None]:
    before = np.setbufsize(_UFUNC_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)


def _run(job: _Job, first: int, last: int) -> None:
    """Encode columns ``first .. last-1``; one thread's share."""
    width = max(1, min(last - first, _TILE_BYTES // (job.dtype.itemsize * job.length)))
    memory = np.empty(2 * job.length * width, job.dtype)
    load, store = _cut(job.where), _cut(job.rows)
    calls: list[Call] = []
    bound_to = 0
    with _small_ufunc_buffer():
        for start in range(first, last, width):
            stop = min(start + width, last)
            tile = memory[: 2 * job.length * (stop - start)].reshape(2 * job.length, stop - start)
            if stop - start != bound_to:  # the last tile may be narrower
                bound_to = stop - start
                calls = _bind(job, tile)
            _load(job, load, tile, start, stop)
            for function, arguments in calls:
                function(*arguments)
            for row, place, count in store:
                job.out[place : place + count, start:stop] = tile[row : row + count]


def _bind(job: _Job, tile: Array) -> list[Call]:
    if job.program is not None:
        return job.program.calls(tile)
    return stage_calls(tile, job.length, job.kernel)


def _load(job: _Job, load: list[tuple[int, int, int]], tile: Array, start: int, stop: int) -> None:
    if job.program is None:
        tile[job.empty] = 0
    if isinstance(job.blocks, np.ndarray):
        tile[job.where] = job.blocks[:, start:stop]
        return
    for row, place, count in load:
        # One call for many rows: a Python loop over them would take as long as the transform.
        pieces = [block[start:stop] for block in job.blocks[place : place + count]]
        np.concatenate(pieces, out=tile[row : row + count].reshape(-1))


def _compiled_run(job: _Job) -> Callable[[_Job, int, int], None]:
    from serverless_gc.codes.polar import fast

    real = np.dtype(job.dtype.type(0).real.dtype)
    per_entry = job.dtype.itemsize // real.itemsize
    table = np.empty((0, 5), np.int64) if job.program is None else job.program.table()
    sources, targets = (np.array([r.ctypes.data for r in rows], np.int64) for rows in (job.blocks, job.out))
    if job.program is not None:
        stages, clear = fast.NO_STAGES, job.empty[:0]
    else:
        stages, clear = fast.BINARY_STAGES if job.kernel == "binary" else fast.HADAMARD_STAGES, job.empty
    width = max(_NARROWEST, _COMPILED_TILE_BYTES // (real.itemsize * job.length))

    def run(job: _Job, first: int, last: int) -> None:
        memory = np.empty(2 * job.length * width, real)
        columns = (first * per_entry, last * per_entry, width)
        fast.transform_columns(sources, job.where, clear, table, stages, job.length, targets, job.rows, memory, columns)

    return run
