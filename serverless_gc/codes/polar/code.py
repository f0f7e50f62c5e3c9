"""Polar codes over the reals: butterfly encoding, decoding by row additions.

References
----------
B. Bartan and M. Pilanci, *Straggler Resilient Serverless Computing Based on Polar Codes*, Allerton 2019 (arXiv
1901.06811). E. Arikan, *Channel polarization*, IEEE Trans. Inf. Theory, 2009, and *Systematic polar coding*, IEEE Comm.
Letters, 2011. M. Soleymani, M. V. Jamali and H. Mahdavifar, *Coded Computing via Binary Linear Codes: Designs and
Performance Limits*, 2021 (arXiv 2103.01503; Reed-Muller sets).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Code, Tracker, check_message, stack_blocks
from serverless_gc.codes.blocks import promoted
from serverless_gc.codes.polar import butterfly
from serverless_gc.codes.polar.decode import Plan, Received, mismatch, plan_decode, sample_columns
from serverless_gc.codes.polar.design import Cut, auto_epsilon, guaranteed_threshold, support_sizes
from serverless_gc.codes.polar.layout import Kernel, Layout
from serverless_gc.codes.polar.rehearsal import Probe, refuse_inaccurate, refuse_mismatch
from serverless_gc.codes.polar.sets import CUTS, Design, check_design, choose_positions, count_groups
from serverless_gc.codes.polar.trackers import Mode, make_tracker, missing_blocks
from serverless_gc.codes.received import GUARD, with_residual
from serverless_gc.errors import InputError, NotDecodableError
from serverless_gc.types import Array, FloatArray

__all__ = ["PolarCode"]


class PolarCode(Code):
    """Polar code: data on the reliable channels of a butterfly transform, zeros on the others.

    Worker ``j`` stores ``sum_i G[j, i] A_i`` with coefficients from ``(N/2) log2 N`` block additions. The set of
    data positions ``I`` is closed under domination (with an index it holds every index that contains its bits), so
    the *systematic* code exists over the reals: transform back, zero the frozen rows, transform forth. Then worker
    ``I[t]`` stores block ``t`` itself, only ``n_workers - k`` parity blocks are written, and blocks that arrive
    need no decoding.

    Parameters
    ----------
    n_workers, k
        Numbers of workers and of source blocks. Any numbers: a length that is no power of two is shortened or
        punctured.
    systematic
        Whether ``k`` of the workers store source blocks unchanged.
    kernel
        ``"binary"`` (additions only), or ``"hadamard"``, whose sequential decoder keeps errors near rounding level:
        for float32 results with many workers. A Hadamard code whose length is no power of two is always punctured.
    design
        Where the data goes. ``"auto"``: the channels best at the erasure level where the code operates
        (`auto_epsilon`). A number: that erasure probability; a vector: one a worker, from telemetry.
        ``"reed-muller"``: the heaviest indices; with ``mode="rank"`` and 256 workers or more it comes close to an
        MDS code, best at the ``k`` of `reed_muller_dimensions`.
    mode
        Which sets of results decode. ``"rank"`` (what ``"auto"`` means): every set that determines the data. It
        needs the fewest results, and costs nothing where less suffices: the sequential program runs whenever it
        can, a dense solve only for what it leaves open. ``"sc"``: sequential decoding alone, the fastest and most
        accurate. ``"peel"``: peeling on the butterfly graph, between the two, without dense solves.
    shortening
        ``"shorten"``, ``"puncture"``, or ``"auto"``: shorten unless a worker would be left with nothing but zeros.
    information_set
        Explicit data positions instead of a design; block ``t`` goes to the ``t``-th smallest.
    stages
        Partial polarization: only so many stages of the transform, which makes polar codes of ``2**stages``
        neighbouring workers side by side, with as many blocks in each. Encoding takes ``stages`` additions per pair of
        workers, and a plain coded block sums at most ``2**stages`` blocks, which keeps sparse data sparse; the price is
        that more results are needed. ``n_workers`` must be a multiple of ``2**stages`` and ``k`` of
        ``n_workers / 2**stages``. None: all stages.

    Examples
    --------
    >>> import numpy as np
    >>> code = PolarCode(8, 4)
    >>> code.information_set
    (3, 5, 6, 7)
    >>> coded = code.encode(np.array([[1.0], [2.0], [3.0], [4.0]]))
    >>> answer, certificate = code.decode({i: coded[i] for i in (0, 5, 6, 7)})
    >>> answer.ravel(), certificate.method
    (array([1., 2., 3., 4.]), 'inactivation')
    """

    name: ClassVar[str] = "polar"
    guard: ClassVar[float | None] = GUARD

    def __init__(
        self,
        n_workers: int,
        k: int,
        *,
        systematic: bool = True,
        kernel: Kernel = "binary",
        design: Design = "auto",
        mode: Literal["auto", "sc", "peel", "rank"] = "auto",
        shortening: Literal["auto", "shorten", "puncture"] = "auto",
        information_set: Sequence[int] | None = None,
        stages: int | None = None,
    ) -> None:
        super().__init__(n_workers, k)
        if self.k > self.n_workers:
            raise InputError(f"k must not exceed n_workers={n_workers}, got {k}")
        for label, value, allowed in (
            ("kernel", kernel, ("binary", "hadamard")),
            ("mode", mode, ("auto", "sc", "peel", "rank")),
            ("shortening", shortening, tuple(CUTS)),
        ):
            if value not in allowed:
                raise InputError(f"{label} must be one of {', '.join(allowed)}, got {value!r}")
        self._design = check_design(design, self.n_workers)
        self._mode: Mode = "rank" if mode == "auto" else mode
        groups = count_groups(self.n_workers, self.k, stages)
        info, cut = choose_positions(self.n_workers, self.k, kernel, self._design, shortening, information_set, groups)
        self._explicit = information_set is not None
        self._given_stages = None if stages is None else int(stages)
        self._layout = Layout(self.n_workers, info, cut, kernel, bool(systematic), groups)

    # -- structure -----------------------------------------------------------------------------------

    @property
    def information_set(self) -> tuple[int, ...]:
        """Data positions among the ``length`` positions of the transform, ascending."""
        return self._layout.info

    @property
    def systematic(self) -> bool:
        """Whether blocks are stored unchanged on ``k`` workers."""
        return self._layout.systematic

    @property
    def kernel(self) -> Kernel:
        """Name of the kernel."""
        return self._layout.kernel

    @property
    def mode(self) -> Mode:
        """Which sets of results decode: ``"sc"``, ``"peel"`` or ``"rank"``."""
        return self._mode

    @property
    def shortening(self) -> Cut:
        """How the transform was cut to the number of workers; for a power of two it was not."""
        return self._layout.cut

    @property
    def length(self) -> int:
        """Number of positions: the next power of two, or ``n_workers`` for several groups."""
        return self._layout.length

    @property
    def stages(self) -> int:
        """Stages of the transform: neighbouring groups of ``2**stages`` positions are codes of their own."""
        return len(self._layout.stages)

    @property
    def guaranteed_threshold(self) -> int:
        """Number of results of which every set decodes, in every mode."""
        layout = self._layout
        size = self.n_workers // layout.groups
        return self.n_workers - size + max(guaranteed_threshold(i, size, layout.cut) for i in layout.group_info)

    @cached_property
    def design_epsilon(self) -> float | None:
        """Erasure probability the code was designed for; None for a vector, a Reed-Muller or an explicit set."""
        if self._explicit or not (self._design == "auto" or isinstance(self._design, float)):
            return None
        if isinstance(self._design, float):
            return self._design
        groups = self._layout.groups
        return auto_epsilon(self.n_workers // groups, self.k // groups, self._layout.cut, groups)

    @cached_property
    def _sources(self) -> dict[int, int]:
        """Message to the block it carries unchanged."""
        layout = self._layout
        if layout.systematic:
            return {i - layout.offset: t for t, i in enumerate(layout.info)}
        if layout.kernel == "hadamard" and layout.stages:
            return {}
        sources: dict[int, int] = {}
        first = 0  # block of the group
        for group, info in enumerate(layout.group_info):
            sizes = support_sizes(info, layout.group_length)
            for at in range(layout.offset, layout.group_length):
                if sizes[at] == 1 and at - layout.offset < self.n_workers:
                    block = next(t for t, i in enumerate(info) if i & at == at)
                    sources[group * layout.group_length + at - layout.offset] = first + block
            first += len(info)
        return sources

    def source_of(self, message: int) -> int | None:
        """Index of the source block that ``message`` carries unchanged, or None if it is a combination."""
        check_message(message, self.n_workers)
        return self._sources.get(message)

    def _build_generator(self) -> FloatArray:
        g: FloatArray = self.encode(np.eye(self.k))
        return g if self.kernel == "hadamard" and not self.systematic else np.rint(g)

    # -- the three jobs ------------------------------------------------------------------------------

    def encode(
        self,
        blocks: Sequence[Array] | Array,
        out: Array | None = None,
        *,
        messages: Sequence[int] | None = None,
    ) -> Array:
        """Encode blocks by the butterfly; see `Code.encode`.

        A message that carries a block unchanged is a bit by bit copy of it.
        """
        stacked = stack_blocks(blocks, self.k)
        ids = list(range(self.n_workers)) if messages is None else [int(m) for m in messages]
        for message in ids:
            check_message(message, self.n_workers)
        shape = (len(ids), *stacked.shape[1:])
        if out is not None and out.shape != shape:
            raise InputError(f"out must have shape {shape}, got {out.shape}")
        direct = out is not None and out.dtype == stacked.dtype and out.flags.c_contiguous
        target = out if direct and out is not None else np.empty(shape, dtype=stacked.dtype)
        layout = self._layout
        if stacked.size:
            sources, targets = stacked.reshape(self.k, -1), target.reshape(len(ids), -1)
            firsts = list(accumulate(map(len, layout.group_info), initial=0))
            done = 0
            for group, run in groupby((layout.offset + m for m in ids), lambda i: i // layout.group_length):
                rows = [i % layout.group_length for i in run]
                butterfly.encode(
                    sources[firsts[group] : firsts[group + 1]],
                    layout.group_info[group],
                    layout.group_length,
                    targets[done : done + len(rows)],
                    rows,
                    kernel=layout.kernel,
                    systematic=layout.systematic,
                    # A pool of threads for each short code takes longer than what it shares out.
                    threads=None if layout.groups == 1 else 1,
                )
                done += len(rows)
        if out is not None and not direct:
            out[...] = target
        return target if out is None else out

    def tracker(self) -> Tracker:
        """Make a fresh tracker for the code's mode."""
        return make_tracker(self._layout, self._mode)

    def known_blocks(self, messages: Iterable[int]) -> tuple[int, ...]:
        """Source blocks that these messages already determine."""
        missing = set(missing_blocks(self._layout, self._mask(messages), self._mode))
        return tuple(t for t in range(self.k) if t not in missing)

    def _mask(self, messages: Iterable[int]) -> int:
        bits, present = self._layout.bits, self._layout.known_mask
        for message in messages:
            if not 0 <= message < self.n_workers:
                check_message(message, self.n_workers)
            present |= bits[message]
        return present

    def decode(
        self,
        values: Mapping[int, Array],
        *,
        out: Array | None = None,
        tolerance: float | None = None,
        scale: float = 0.0,
    ) -> tuple[Array, Certificate]:
        """Reconstruct the source blocks; see `Code.decode`.

        Only what the lost blocks need is computed, in place in ``out``. The certificate's ``predicted_error`` comes
        from running the same operations on unit rounding errors. With more results than needed, a sample of columns
        is encoded again and compared: results that contradict the answer raise `WrongResult`.

        Raises
        ------
        NotDecodableError
            If the messages do not determine every source block in the code's mode.
        DecodeError
            If the predicted error or the mismatch of surplus results exceeds ``tolerance``.
        InputError
            If a message id is unknown or shapes differ.
        """
        present = self._mask(values)
        received = Received(values, out, self.k, self._sources)
        plan = self._plan(present, received.lost, len(values))
        certificate = self._probe.certificate(plan, received.lost, received.direct.values(), received.dtype)
        refuse_inaccurate(self._label, certificate, tolerance, received.dtype)
        plan.run(received.inputs(self.n_workers), [received.rows[t] for t in received.lost], received.dtype)
        received.copy_direct()
        surplus = len(values) - self.k
        if surplus > 0:
            residual = self._residual(received, set(certificate.used), scale)
            certificate = with_residual(certificate, residual, surplus)
            refuse_mismatch(self._label, certificate, tolerance, received.dtype)
        return received.result(), certificate

    def certify(self, messages: Iterable[int], dtype: DTypeLike = np.float64) -> Certificate:
        """Say how far an answer from these messages could be trusted, without their values.

        The operations of the decode are run on a few columns of known data: rounding errors grow in them as they will
        in the answer. Two results more than are needed improve single precision by one to three digits.

        Raises
        ------
        NotDecodableError
            If the messages do not determine every source block in the code's mode.
        """
        ids = sorted(set(messages))
        present = self._mask(ids)
        direct = {block: message for message in reversed(ids) if (block := self._sources.get(message)) is not None}
        lost = [t for t in range(self.k) if t not in direct]
        plan = self._plan(present, lost, len(ids))
        return self._probe.certificate(plan, lost, direct.values(), promoted(np.dtype(dtype)))

    def _plan(self, present: int, lost: Sequence[int], arrived: int) -> Plan:
        plan = plan_decode(self._layout, self._mode, present, lost)
        if plan is None:
            raise self._not_decodable(present, arrived)
        return plan

    def _residual(self, received: Received, used: set[int], scale: float) -> float:
        """Encode a sample of columns again and compare with the results that are not simply copied."""
        compared = [m for m in received.vectors if m not in used] or [
            m for m in received.vectors if m not in self._sources
        ]
        columns = sample_columns(received.rows.shape[1])
        expected = self.encode(np.ascontiguousarray(received.rows[:, columns]), messages=compared)
        return mismatch(expected, np.stack([received.vectors[m][columns] for m in compared]), scale)

    @property
    def _label(self) -> str:
        """Name for messages; the full parameters may hold a thousand numbers."""
        return f"polar code of {self.n_workers} workers and {self.k} blocks, mode {self._mode!r}"

    def _not_decodable(self, present: int, arrived: int) -> NotDecodableError:
        missing = missing_blocks(self._layout, present, self._mode)
        shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        return NotDecodableError(
            f"{self._label}: {arrived} of {self.n_workers} results leave {len(missing)} of {self.k} blocks open "
            f"({shown}); wait for more results, {self.guaranteed_threshold} are always enough",
            missing=missing,
        )

    @cached_property
    def _probe(self) -> Probe:
        return Probe.of(self.encode, self.k)

    # -- identity ------------------------------------------------------------------------------------

    def params(self) -> dict[str, Any]:
        """Keyword parameters that rebuild this code."""
        design = self._design if isinstance(self._design, (str, float)) else list(self._design)
        params: dict[str, Any] = {
            "systematic": self.systematic,
            "kernel": self.kernel,
            "design": design,
            "mode": self._mode,
            "shortening": self.shortening,
        }
        if self._given_stages is not None:
            params["stages"] = self._given_stages
        if self._explicit:
            params["information_set"] = list(self.information_set)
        return params

    def manifest(self) -> dict[str, Any]:
        """Everything a decoder needs; the information set is stored, never derived again."""
        manifest = super().manifest()
        manifest["params"]["information_set"] = list(self.information_set)
        return manifest
