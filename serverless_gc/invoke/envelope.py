"""The JSON envelope of a frame on Lambda, ``{"sgc": "<base64>"}``, and its size limits.

The local invokers put nothing into an envelope, but they measure it: what runs offline must run deployed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
from functools import partial

from serverless_gc.errors import InvokeError
from serverless_gc.types import Buffer, TaskSpec

try:
    import pybase64
except ImportError:  # without the extra "fast"
    _encode, _decode = base64.b64encode, partial(binascii.a2b_base64, strict_mode=True)
else:  # 3 microseconds for 64 KB, binascii takes 100: a third of what an invocation costs the driver
    _encode, _decode = pybase64.b64encode, partial(pybase64.b64decode, validate=True)

__all__ = ["check_reply", "check_request", "decode_reply", "encode_request", "encoded_size"]

_OPENING, _CLOSING = b'{"sgc":"', b'"}'
_REPLY = re.compile(rb'\{\s*"sgc"\s*:\s*"')
_FRAMING = len(_OPENING) + len(_CLOSING)


def size_of(frame: Buffer) -> int:
    """Bytes of a frame, whatever the kind of buffer."""
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)


def encoded_size(frame: Buffer) -> int:
    """Bytes of the envelope of a frame, computed without building it.

    Examples
    --------
    >>> encoded_size(b"abcd") == len(encode_request(b"abcd"))
    True
    """
    return 4 * -(-size_of(frame) // 3) + _FRAMING


def encode_request(frame: Buffer) -> bytes:
    """Put a frame into its envelope."""
    return _OPENING + _encode(frame) + _CLOSING


def check_request(task: TaskSpec, payload: Buffer, limit: int) -> None:
    """Refuse a request that the service would refuse.

    Raises
    ------
    InvokeError
        Of kind ``"too-large"``, with size and limit in bytes.
    """
    size = encoded_size(payload)
    if size > limit:
        raise InvokeError(
            f"task {task.task_id}: the request is {size} bytes as base64 JSON, Lambda takes {limit}; "
            "nothing was sent. Put the operand into the store (operand_key) or use more, smaller blocks",
            kind="too-large",
            reason="request too large",
            may_have_run=False,
        )


def check_reply(task: TaskSpec, reply: Buffer, limit: int) -> None:
    """Refuse a reply that the service would not deliver.

    Raises
    ------
    InvokeError
        Of kind ``"too-large"``; the function ran, so its result may be in the store.
    """
    size = encoded_size(reply)
    if size > limit:
        raise reply_too_large(task, f"the reply is {size} bytes as base64 JSON, Lambda delivers {limit}")


def reply_too_large(task: TaskSpec, what: str, request_id: str = "") -> InvokeError:
    """Make the error of a reply above the limit; the stored result is still good."""
    return InvokeError(
        f"task {task.task_id}: {what}. Lower the task's inline_limit so that the result goes through the store",
        kind="too-large",
        reason="reply too large",
        may_have_run=True,
        request_id=request_id,
    )


def decode_reply(task: TaskSpec, body: bytes, request_id: str = "") -> bytes:
    """Take the frame out of a function's reply.

    Raises
    ------
    InvokeError
        Of kind ``"bad-reply"`` with the reason ``"empty reply"``, ``"no envelope"`` or ``"undecodable base64"``.
    """

    def bad(reason: str, detail: str) -> InvokeError:
        return InvokeError(
            f"task {task.task_id}: {reason}: {detail}. Is this function the deployed worker? "
            "Compare with `serverless-gc doctor`",
            kind="bad-reply",
            reason=reason,
            request_id=request_id,
        )

    if body.strip() in {b"", b"null"}:
        raise bad("empty reply", f"the function answered {body[:8].decode('ascii', 'replace') or 'nothing'!r}")
    if (opening := _REPLY.match(body)) and body.endswith(_CLOSING):
        # The usual case, without a pass of JSON over megabytes: strict base64 admits nothing JSON would read otherwise.
        with contextlib.suppress(binascii.Error):
            return bytes(_decode(memoryview(body)[opening.end() : -len(_CLOSING)]))
    try:
        envelope = json.loads(body)
    except ValueError:
        raise bad("no envelope", f"{len(body)} bytes that are not JSON") from None
    text = envelope.get("sgc") if isinstance(envelope, dict) else None
    if not isinstance(text, str):
        raise bad("no envelope", f'JSON of type {type(envelope).__name__} without a string "sgc"')
    try:
        return bytes(_decode(text))
    except (binascii.Error, ValueError) as error:
        raise bad("undecodable base64", str(error)) from None
