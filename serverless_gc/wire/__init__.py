"""What crosses the network: frames of a JSON header and raw arrays. NumPy and the standard library only."""

from serverless_gc.wire.block import Block, CsrBlock, pack_block, unpack_block
from serverless_gc.wire.frame import STAMP_BYTES, Frame, FrameError, pack, pack_parts, split, stamp, unpack
from serverless_gc.wire.reply import Reply, mismatch
from serverless_gc.wire.task import Task
from serverless_gc.wire.turn import Turn
from serverless_gc.wire.version import PROTOCOL

__all__ = [
    "PROTOCOL",
    "STAMP_BYTES",
    "Block",
    "CsrBlock",
    "Frame",
    "FrameError",
    "Reply",
    "Task",
    "Turn",
    "mismatch",
    "pack",
    "pack_block",
    "pack_parts",
    "split",
    "stamp",
    "unpack",
    "unpack_block",
]
