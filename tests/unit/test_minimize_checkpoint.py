"""Checkpoints: intact or ignored, of the same settings or refused, and never half replaced."""

import itertools
import logging
from dataclasses import replace

import numpy as np
import pytest

import serverless_gc as sgc
from serverless_gc.engine import VirtualHost
from serverless_gc.errors import InputError, StoreError
from serverless_gc.fitting.saved import Place, random_states, restore_random_states
from serverless_gc.optim.checkpoint import Checkpoint, read_file, write_file
from serverless_gc.stragglers import Exponential
from serverless_gc.wire import FrameError, pack

SAVED = Checkpoint(
    7,
    np.array([1.0, np.nextafter(2.0, 3.0)]),
    (np.zeros((0, 2)), np.array([np.pi])),
    (np.ones(2),),
    {"values": np.arange(8.0), "seconds": np.zeros(8)},
    {"method": "'nesterov'", "l2": "0.1"},
    {"bound": 0.1 + 0.2, "random": {"state": 2**127 + 1}},
)


def same(a, b):
    assert (a.step, a.settings, a.meta) == (b.step, b.settings, b.meta)
    assert list(a.history) == list(b.history)
    for left, right in zip(
        [a.x, *a.state, *a.known, *a.history.values()], [b.x, *b.state, *b.known, *b.history.values()], strict=True
    ):
        np.testing.assert_array_equal(left, right)
        assert left.dtype == right.dtype


def test_everything_comes_back_to_the_last_bit():
    same(Checkpoint.from_bytes(SAVED.to_bytes()), SAVED)


def test_every_cut_and_every_flipped_byte_of_the_header_is_noticed():
    data = SAVED.to_bytes()
    for length in range(0, len(data), 61):
        with pytest.raises(FrameError):
            Checkpoint.from_bytes(data[:length])
    for place in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[place] ^= 0x40
        with pytest.raises(FrameError):
            Checkpoint.from_bytes(damaged)


def test_other_frames_are_not_checkpoints():
    with pytest.raises(FrameError, match="no checkpoint"):
        Checkpoint.from_bytes(pack({"kind": "block"}, [np.zeros(2)]))


def test_other_settings_are_refused_by_name_with_both_values():
    SAVED.check({"l2": "0.1", "method": "'nesterov'"}, "here")
    with pytest.raises(InputError, match=r"checkpoint here is of .*: l2 was 0.1, is 0.2. Give those.*resume=False"):
        SAVED.check({"method": "'nesterov'", "l2": "0.2"}, "here")
    with pytest.raises(InputError, match=r"l2 was 0.1, is not given; lr was not given, is 3"):
        SAVED.check({"method": "'nesterov'", "lr": "3"}, "here")


def test_a_write_that_fails_leaves_the_old_file_and_no_scrap(tmp_path, monkeypatch):
    path = tmp_path / "run"
    write_file(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("serverless_gc.optim.checkpoint.os.fsync", full)
    with pytest.raises(StoreError, match=r"cannot be written to .*run: No space left"):
        write_file(path, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
    assert read_file(path) == b"old"


def test_what_cannot_be_read_is_an_error_and_what_is_absent_is_none(tmp_path):
    assert read_file(tmp_path / "absent") is None
    with pytest.raises(StoreError, match="cannot be read"):
        read_file(tmp_path)


@pytest.mark.parametrize("url", [False, True])
async def test_a_place_keeps_one_checkpoint_and_ignores_a_damaged_one(tmp_path, url, caplog):
    place = Place(f"file://{tmp_path}/run" if url else tmp_path / "run")
    assert await place.read() is None
    for step in (1, 2):
        await place.write(replace(SAVED, step=step))
    found = await place.read()
    same(found, replace(SAVED, step=2))
    data = (tmp_path / "run").read_bytes()
    (tmp_path / "run").write_bytes(data[: len(data) // 2])
    with caplog.at_level(logging.WARNING):
        assert await place.read() is None
    assert "is damaged and is ignored" in caplog.text
    await place.close()


async def test_a_place_in_a_bucket(s3_bucket):
    endpoint, bucket = s3_bucket
    place = Place(f"s3://{bucket}/trainings/run?endpoint={endpoint}&region=us-east-1")
    assert await place.read() is None
    for step in (1, 2):
        await place.write(replace(SAVED, step=step))
    same(await place.read(), replace(SAVED, step=2))
    await place.close()


@pytest.mark.parametrize("where", ["memory://run", "s3://bucket", "s3://bucket/", "file:///"])
def test_a_url_that_names_no_object_is_refused(where):
    with pytest.raises(InputError, match="checkpoint must be a path"):
        Place(where)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"there is no folder for the checkpoint .*: make it first"):
        Place(tmp_path / "absent" / "run")


class Lent:
    """The two parts of a session's resources that are looked at."""

    def __init__(self, seed, first=1):
        self.rounds = itertools.count(first)
        self.host = VirtualHost(Exponential(1.0), seed=seed)


def test_rounds_and_delays_go_on_where_they_were():
    lent = Lent(seed=3, first=5)
    lent.host.now = 12.5
    lent.host._rng.random(3)
    states = random_states(lent)
    assert next(lent.rounds) == 5
    expected = lent.host._rng.random(4)
    other = Lent(seed=99)
    restore_random_states(other, states)
    assert (next(other.rounds), other.host.now) == (5, 12.5)
    np.testing.assert_array_equal(other.host._rng.random(4), expected)


def test_a_session_that_is_farther_goes_on_as_it_is():
    states = random_states(Lent(seed=3))
    ahead = Lent(seed=4, first=9)
    expected = Lent(seed=4).host._rng.random()
    restore_random_states(ahead, states)
    assert next(ahead.rounds) == 9
    assert ahead.host._rng.random() == expected


@pytest.mark.parametrize("content", [b"my notes", b"x", b"# a script\n" * 100])
@pytest.mark.parametrize("resume", [True, False])
def test_what_is_no_checkpoint_is_never_replaced(tmp_path, content, resume):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    X = np.random.default_rng(0).normal(size=(20, 3))
    with sgc.Session("simulated") as s:
        data = s.encode(X, X @ np.ones(3), code="uncoded", n_workers=2)
        with pytest.raises(sgc.InputError, match=r"notes\.txt is there and is no checkpoint"):
            sgc.minimize(data, np.zeros(3), max_rounds=2, checkpoint=path, resume=resume)
    assert path.read_bytes() == content
