"""From a design to data positions: which set, and how the transform is cut to the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from serverless_gc.codes.polar.design import (
    Cut,
    auto_epsilon,
    erasure_profile,
    information_set,
    is_closed,
    reed_muller_set,
    split_groups,
    support_sizes,
    transform_length,
)
from serverless_gc.codes.polar.layout import Kernel
from serverless_gc.errors import InputError
from serverless_gc.types import FloatArray

__all__ = ["CUTS", "CheckedDesign", "Design", "check_design", "choose_positions", "count_groups"]

Design: TypeAlias = Literal["auto", "reed-muller"] | float | Sequence[float] | FloatArray
CheckedDesign: TypeAlias = Literal["auto", "reed-muller"] | float | tuple[float, ...]

CUTS: dict[str, tuple[Cut, ...]] = {
    "auto": ("shorten", "puncture"),
    "shorten": ("shorten",),
    "puncture": ("puncture",),
}
"""What each value of ``shortening`` tries, in order."""


def check_design(design: Design, n: int) -> CheckedDesign:
    """Validate a design; vectors become tuples."""
    if isinstance(design, str):
        if design not in {"auto", "reed-muller"}:
            raise InputError(
                f"design must be 'auto', 'reed-muller', a number in (0, 1) or one a worker, got {design!r}"
            )
        return design
    e = np.asarray(design, dtype=np.float64)
    if e.ndim == 0:
        if not 0 < e < 1:
            raise InputError(f"design must lie in (0, 1), got {design}")
        return float(e)
    erasure_profile(n, "shorten", e)
    return tuple(e.tolist())


def count_groups(n: int, k: int, stages: int | None) -> int:
    """Return how many polar codes lie side by side when only the first ``stages`` stages are used.

    Raises
    ------
    InputError
        If groups of ``2**stages`` workers do not come out even, or would hold different numbers of blocks.
    """
    if stages is None:
        return 1
    most = (n & -n).bit_length() - 1
    # True == 1: a Boolean is a slip.
    if isinstance(stages, bool) or not hasattr(stages, "__index__") or not 0 <= stages <= most:
        raise InputError(
            f"stages must be an integer with 2**stages a divisor of n_workers={n}, 0 to {most}, or None for all, "
            f"got {stages!r}"
        )
    groups = n >> int(stages)
    if k % groups:
        raise InputError(
            f"k must be a multiple of n_workers / 2**stages = {groups}, one share a group, got {k} with stages={stages}"
        )
    return groups


def choose_positions(
    n: int,
    k: int,
    kernel: Kernel,
    design: CheckedDesign,
    shortening: str,
    explicit: Sequence[int] | None,
    groups: int = 1,
) -> tuple[tuple[int, ...], Cut]:
    """Choose data positions and how to cut the transform to ``n`` workers.

    With several groups each has as many of either, and ``"auto"`` is where their channels together fail.
    """
    if groups > 1 and explicit is None:
        size = n // groups
        if design == "auto":
            design = auto_epsilon(size, k // groups, groups=groups)
        parts = [design[at : at + size] if isinstance(design, tuple) else design for at in range(0, n, size)]
        chosen = [choose_positions(size, k // groups, kernel, part, shortening, None) for part in parts]
        return tuple(g * size + i for g, (info, _) in enumerate(chosen) for i in info), chosen[0][1]
    length = groups * transform_length(n // groups)
    cuts = CUTS[shortening]
    if kernel == "hadamard" and n < length:
        if shortening == "shorten":
            raise InputError(
                f"shortening must be 'auto' or 'puncture' for the Hadamard kernel, n_workers={n} is no power of two"
            )
        cuts = ("puncture",)
    if explicit is not None:
        return _explicit(n, k, cuts, explicit, groups)
    for cut in cuts:
        if design == "reed-muller":
            info = reed_muller_set(n, k, cut)
        else:
            info = information_set(n, k, cut, auto_epsilon(n, k, cut) if design == "auto" else design)
        if _all_busy(info, n, cut) or cut == cuts[-1]:
            break
    if not _all_busy(info, n, cut):
        raise InputError(f"shortening='shorten' leaves a worker of n_workers={n} with zeros only at k={k}; use 'auto'")
    return info, cut


def _all_busy(info: Sequence[int], n: int, cut: Cut) -> bool:
    """Whether every worker holds something."""
    length = transform_length(n)
    sizes = support_sizes(info, length)
    return bool(np.all(sizes[:n] > 0)) if cut == "shorten" else True


def _explicit(n: int, k: int, cuts: tuple[Cut, ...], given: Sequence[int], groups: int) -> tuple[tuple[int, ...], Cut]:
    info = tuple(sorted({int(i) for i in given}))
    size = n // groups
    length = groups * transform_length(size)
    if len(info) != k or len(given) != k:
        raise InputError(f"information_set must hold k={k} different positions, got {len(info)} in {len(given)}")
    for cut in cuts:
        low, high = (0, n) if cut == "shorten" else (length - n, length)
        if not (low <= info[0] and info[-1] < high):
            continue
        each = split_groups(info, groups, length // groups)
        if all(local and is_closed(local, size, cut) and _all_busy(local, size, cut) for local in each):
            return info, cut
    raise InputError(
        f"information_set must lie within the {n} usable positions of {length} and hold, with an index, every "
        "usable index that contains its bits (otherwise a worse channel is used before a better one, and no systematic "
        f"code exists); got {info}"
    )
