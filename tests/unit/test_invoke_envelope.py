import base64
import binascii
import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serverless_gc.errors import InvokeError
from serverless_gc.invoke.envelope import check_reply, check_request, decode_reply, encode_request, encoded_size
from serverless_gc.types import TaskSpec


@pytest.fixture(params=["installed", "standard library"], autouse=True, scope="module")
def base64_of(request):
    """The decoder that is installed, and the one that is always there."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "standard library":
            patch.setattr("serverless_gc.invoke.envelope._encode", base64.b64encode)
            patch.setattr("serverless_gc.invoke.envelope._decode", partial(binascii.a2b_base64, strict_mode=True))
        yield


TASK = TaskSpec(task_id="t7", slot=7, version=0)


@given(st.binary(max_size=400))
def test_size_is_that_of_the_envelope_and_it_decodes(frame):
    request = encode_request(frame)
    assert encoded_size(frame) == encoded_size(memoryview(frame)) == len(request)
    assert json.loads(request) == {"sgc": base64.b64encode(frame).decode()}
    assert decode_reply(TASK, request) == frame
    assert decode_reply(TASK, json.dumps(json.loads(request)).encode()) == frame  # as a Python function replies
    assert decode_reply(TASK, b' {"more": 1, ' + request[1:].replace(b"/", rb"\/") + b"\n") == frame


@pytest.mark.parametrize("limit", [100, 6 * 2**20])
def test_limit_is_the_last_size_that_passes(limit):
    """Trial A12 for this piece: the check measures encoded bytes, and the limit is a parameter."""
    fits = (limit - len(b'{"sgc":""}')) // 4 * 3
    check_request(TASK, bytes(fits), limit)
    check_reply(TASK, bytes(fits), limit)
    for check, ran in ((check_request, False), (check_reply, True)):
        with pytest.raises(InvokeError, match=rf"t7: .*{encoded_size(bytes(fits + 1))} bytes .*{limit}") as caught:
            check(TASK, bytes(fits + 1), limit)
        assert caught.value.kind == "too-large"
        assert caught.value.may_have_run is ran
        assert not caught.value.retryable


def test_size_counts_bytes_not_items():
    view = memoryview(bytes(800)).cast("d")
    assert encoded_size(view) == encoded_size(bytes(800))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"null", "empty reply"),
        (b"", "empty reply"),
        (b"  \n", "empty reply"),
        (b"[1, 2]", "no envelope"),
        (b'"sgc"', "no envelope"),
        (b'{"result": 1}', "no envelope"),
        (b'{"sgc": 5}', "no envelope"),
        (b"<html>", "no envelope"),
        (b"\xff\xfe", "no envelope"),
        (b'{"sgc": "!!!"}', "undecodable base64"),
        (b'{"sgc": "YWJ"}', "undecodable base64"),
        ('{"sgc": "\u00e9"}'.encode(), "undecodable base64"),
    ],
)
def test_what_is_not_a_reply_is_told_apart(body, reason):
    with pytest.raises(InvokeError, match=reason) as caught:
        decode_reply(TASK, body, "request-1")
    assert (caught.value.kind, caught.value.reason, caught.value.request_id) == ("bad-reply", reason, "request-1")
    assert caught.value.may_have_run
