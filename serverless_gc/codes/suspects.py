"""Which message is wrong, when surplus messages contradict the others."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from serverless_gc.types import Array, FloatArray

__all__ = ["locate"]

_PROBES = 8
"""Random combinations of a message's entries that stand for it: a wrong message differs in all but unlucky ones."""


def locate(generator: FloatArray, values: Mapping[int, Array]) -> tuple[int, ...]:
    """Name the message that alone explains a contradiction.

    Parameters
    ----------
    generator
        ``(n_messages, k)``.
    values
        Message id to its value, all of one shape.

    Returns
    -------
    tuple
        The id of the one message without which all others agree; empty if there is none, or more than one would do:
        a code names a wrong message only if at least two messages more arrived than the answer needs.

    Examples
    --------
    >>> G = np.array([[1.0, 0], [0, 1], [1, 1], [1, -1]])
    >>> sent = dict(enumerate(G @ np.array([[3.0, 4.0], [5.0, 6.0]])))
    >>> sent[2] = sent[2] + 0.5
    >>> locate(G, sent)
    (2,)
    """
    ids = sorted(values)
    rows = generator[ids]
    left, singular, _ = np.linalg.svd(rows)
    rank = int(np.count_nonzero(singular > singular[0] * len(ids) * np.finfo(float).eps)) if len(singular) else 0
    parity = left[:, rank:]  # combinations of the messages that vanish if all are right
    if parity.shape[1] < 2:
        return ()
    shape = values[ids[0]].shape
    rng = np.random.default_rng(0)
    probes = rng.choice([-1.0, 1.0], size=(int(np.prod(shape)), _PROBES))
    seen = np.array([np.ravel(values[i]) @ probes for i in ids])
    syndrome = parity.conj().T @ seen
    size = float(np.linalg.norm(syndrome))
    if size == 0:
        return ()
    # A single wrong message leaves a syndrome along its own row of the parity.
    lengths = np.linalg.norm(parity, axis=1)
    directions = parity / np.where(lengths > 0, lengths, 1.0)[:, None]
    explained = np.linalg.norm(directions @ syndrome, axis=1)
    rest = np.sqrt(np.maximum(size**2 - explained**2, 0.0)) / size
    single = values[ids[0]].dtype in (np.float32, np.complex64)
    candidates = np.flatnonzero((rest < (1e-2 if single else 1e-5)) & (lengths > np.finfo(float).eps))
    return (ids[candidates[0]],) if len(candidates) == 1 else ()
