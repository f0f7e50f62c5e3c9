"""Frames come back as they were packed, and no damaged byte goes unnoticed."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from serverless_gc.wire import (
    CsrBlock,
    FrameError,
    Reply,
    Task,
    pack,
    pack_block,
    pack_parts,
    split,
    unpack,
    unpack_block,
)
from serverless_gc.wire.frame import ALIGNMENT

dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(sizes=(16, 32, 64), endianness="?"),
    hnp.complex_number_dtypes(sizes=(64, 128), endianness="?"),
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
headers = st.dictionaries(
    st.text(max_size=8).filter(lambda k: k not in {"arrays", "crc"}),
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8) | st.floats(allow_nan=False),
    max_size=4,
)


@given(headers, st.lists(arrays, max_size=3))
@settings(max_examples=150, deadline=None)
def test_frames_come_back(header, items):
    frame = unpack(pack(header, items))
    assert {k: v for k, v in frame.header.items() if k not in {"arrays", "crc"}} == header
    assert len(frame.arrays) == len(items)
    for got, item in zip(frame.arrays, items, strict=True):
        assert got.shape == item.shape
        assert got.dtype == item.dtype.newbyteorder("=")
        np.testing.assert_array_equal(got, item)


@given(arrays, st.data())
@settings(max_examples=100, deadline=None)
def test_views_of_any_layout_come_back(item, data):
    view = item.T
    for axis in range(view.ndim):
        step = data.draw(st.sampled_from([1, -1, 2]))
        view = view[(slice(None),) * axis + (slice(None, None, step),)]
    np.testing.assert_array_equal(unpack(pack({}, [view])).arrays[0], view)


@given(st.lists(arrays, min_size=1, max_size=2), st.data())
@settings(max_examples=300, deadline=None)
def test_any_single_damaged_byte_is_noticed(items, data):
    good = pack({"kind": "block", "x": 1}, items)
    where = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[where] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FrameError):
        unpack(bad)


def test_every_single_byte_of_one_frame_is_covered():
    good = pack({"k": "v"}, [np.arange(3.0), np.array(True)])
    for where in range(len(good)):
        bad = bytearray(good)
        bad[where] ^= 0x10
        with pytest.raises(FrameError):
            unpack(bad)


@given(arrays, st.data())
@settings(max_examples=150, deadline=None)
def test_any_truncation_or_extension_is_noticed(item, data):
    good = pack({}, [item])
    keep = data.draw(st.integers(0, len(good) - 1))
    for bad in (good[:keep], good[keep + 1 :], good + b"\0", b"\0" + good):
        with pytest.raises(FrameError):
            unpack(bad)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_foreign_bytes_are_refused(raw):
    with pytest.raises(FrameError):
        unpack(raw)


def forged(header: dict, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    start = -(-(24 + len(text)) // 64) * 64
    prefix = struct.pack("<4sHHIIQ", b"SGCF", 1, 0, len(text), zlib.crc32(text), start + len(body))
    return prefix + text + bytes(start - 24 - len(text)) + body


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"crc": 0, "arrays": [["<f8", [3], 0, 24]]},  # reaches beyond the body
        {"crc": 0, "arrays": [["|O", [1], 0, 8]]},
        {"crc": 0, "arrays": [["<M8[s]", [1], 0, 8]]},
        {"crc": 0, "arrays": [["<f8", [2], 0, 8]]},
        {"crc": 0, "arrays": [[]]},
        {"crc": 0, "arrays": 7},
        [1, 2],
    ],
)
def test_senseless_headers_are_refused_whatever_their_checksum(header):
    body = bytes(8)
    if isinstance(header, dict) and "crc" in header:
        header = header | {"crc": zlib.crc32(body)}
    with pytest.raises(FrameError) as caught:
        unpack(forged(header, body))
    assert caught.value.reason == "header"


def test_reasons_are_told_apart():
    good = pack({}, [np.arange(4.0)])
    damaged = {
        "magic": b"4000;chunk" + good,
        "version": good[:4] + b"\x07\x00" + good[6:],
        "length": good[:-8],
        "header": good[:26] + b"?" + good[27:],
        "checksum": good[:-1] + b"\x01",
    }
    for reason, raw in damaged.items():
        with pytest.raises(FrameError) as caught:
            unpack(raw)
        assert caught.value.reason == reason


@given(st.lists(st.binary(max_size=200), max_size=5), st.binary(max_size=30))
def test_frames_in_a_row_are_told_apart(bodies, rest):
    frames = [pack({"n": n}, [np.frombuffer(body, np.uint8)]) for n, body in enumerate(bodies)]
    cut = [bytes(frame) for frame in split(b"".join(frames))]
    assert cut == frames
    damaged = [bytes(frame) for frame in split(b"".join(frames) + rest)]
    assert damaged[: len(frames)] == frames
    assert b"".join(damaged[len(frames) :]) == rest  # and `unpack` refuses it


def test_unpacking_copies_nothing_and_arrays_are_aligned_and_read_only():
    raw = pack({}, [np.arange(5.0), np.arange(7, dtype=np.int8)])
    buffer = np.frombuffer(raw, np.uint8)
    for array in unpack(raw).arrays:
        assert np.shares_memory(array, buffer)
        assert not array.flags.writeable
        start = array.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]
        assert start % ALIGNMENT == 0


def test_packing_copies_no_array():
    block = np.arange(1000.0)
    parts = pack_parts({}, [block])
    assert np.shares_memory(np.frombuffer(parts[1], np.uint8), block)


@pytest.mark.parametrize(
    "bad",
    [np.array(["a"]), np.array([None]), np.array([1], "M8[s]"), np.array([b"a"]), np.ones(1, "g"), np.ones(1, "G")],
)
def test_other_kinds_of_arrays_are_refused(bad):
    with pytest.raises(TypeError, match="dtype"):
        pack({}, [bad])


def test_blocks_say_what_they_are():
    csr = CsrBlock(np.array([1.0, 2.0]), np.array([0, 2], np.int32), np.array([0, 1, 1, 2], np.int32), (3, 4))
    back = unpack_block(b"".join(pack_block(csr, {"id": 3})))
    assert isinstance(back, CsrBlock)
    assert back.shape == (3, 4)
    np.testing.assert_array_equal(back.data, csr.data)
    np.testing.assert_array_equal(back.indices, csr.indices)
    np.testing.assert_array_equal(back.indptr, csr.indptr)
    with pytest.raises(FrameError, match="expected a block"):
        unpack_block(pack({"kind": "reply"}))


names = st.text(max_size=6)


@given(names, st.integers(0, 9), names, st.integers(0, 99), st.none() | arrays, st.lists(names, max_size=3))
@settings(max_examples=50, deadline=None)
def test_tasks_and_replies_come_back(run, number, task_id, slot, value, blocks):
    task = Task(run, number, task_id, slot, 1, "matvec", tuple(blocks), "r", "memory://x", value, params={"a": [1]})
    again = Task.from_bytes(task.to_bytes())
    reply = Reply(run, number, task_id, slot, 1, "ok", value, "r", True, {"read": 0.5}, {}, {"cold": True})
    heard = Reply.from_bytes(reply.to_bytes())
    for sent, got in ((task, again), (reply, heard)):
        for name in type(sent).__slots__:
            if name not in {"operand", "value"}:
                assert getattr(got, name) == getattr(sent, name)
    for got in (again.operand, heard.value):
        if value is None:
            assert got is None
        else:
            np.testing.assert_array_equal(got, value)
    with pytest.raises(FrameError, match="expected a reply"):
        Reply.from_bytes(task.to_bytes())
    with pytest.raises(FrameError, match="expected a task"):
        Task.from_bytes(reply.to_bytes())
