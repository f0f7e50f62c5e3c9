"""Whether an answer is accurate enough to be given: no wrong one without a word."""

from __future__ import annotations

import warnings

from numpy.typing import DTypeLike

from serverless_gc.codes.base import Certificate, Code
from serverless_gc.codes.received import doubtful_error, largest_error
from serverless_gc.errors import AccuracyWarning, DecodeError

__all__ = ["check_accuracy"]


def check_accuracy(code: Code, certificate: Certificate, n_messages: int, dtype: DTypeLike) -> None:
    """Refuse an answer that has lost its digits, warn of one that has lost many; for callers without a tolerance.

    Parameters
    ----------
    code
        Of the round.
    certificate
        Of the answer.
    n_messages
        How many messages it was decoded from.
    dtype
        The coarser of the precisions of the stored blocks and of the messages.

    Warns
    -----
    AccuracyWarning
        If the predicted relative error is above 1e-6, or 1e-3 in single precision.

    Raises
    ------
    DecodeError
        If it is above 1e-3, or 1e-1 in single precision.

    Examples
    --------
    >>> from serverless_gc.codes import get
    >>> code = get("matdot", n_workers=50)
    >>> check_accuracy(code, code.certify(range(9)), 9, "f8")
    Traceback (most recent call last):
        ...
    serverless_gc.errors.DecodeError: matdot: ...
    """
    predicted, most = certificate.predicted_error, largest_error(dtype)
    if predicted <= doubtful_error(dtype):
        return
    missing = code.n_messages - n_messages
    remedies = [
        *(["wait for more results"] if missing else []),
        "take fewer workers or fewer blocks (k=)",
        *([] if doubtful_error(dtype) < doubtful_error("f4") else ["encode with dtype=np.float64"]),
        "take a well-conditioned code such as polar or mds (for matrix products khatri-rao)",
        "or accept the error with Session(tolerance=...)",
    ]
    said = (
        f"{code.name}, {code.n_workers} workers: from {n_messages} of {code.n_messages} messages the answer has a "
        f"relative error of about {predicted:.0e}"
    )
    if predicted <= most:
        # Digits of the figure that change from round to round would make a new warning of each.
        warnings.warn(f"{said}: {', '.join(remedies)}", AccuracyWarning, stacklevel=2)
        return
    raise DecodeError(
        f"{said}, above {most:.0e}, and is not given: {', '.join(remedies)}", predicted=predicted, tolerance=most
    )
