"""Zips that depend on their content alone."""

import base64
import hashlib
import zipfile

import pytest

from serverless_gc.deploy.archive import write_archive
from serverless_gc.errors import ConfigError

FILES = {"b/two.py": b"2" * 5000, "a.py": b"1", "numpy.libs/lib.so": bytes(range(256)) * 9}


def test_same_files_in_another_order_and_at_another_place_give_the_same_bytes(tmp_path):
    one = write_archive(tmp_path / "one.zip", FILES)
    two = write_archive(tmp_path / "deep" / "down" / "two.zip", dict(reversed(FILES.items())))
    assert one.path.read_bytes() == two.path.read_bytes()
    assert one.sha256 == two.sha256 == hashlib.sha256(one.path.read_bytes()).hexdigest()
    assert one.code_sha256 == base64.b64encode(hashlib.sha256(one.path.read_bytes()).digest()).decode()
    assert one.sha256 != write_archive(tmp_path / "c.zip", {**FILES, "a.py": b"2"}).sha256


def test_what_the_zip_says_of_its_files(tmp_path):
    archive = write_archive(tmp_path / "one.zip", FILES)
    with zipfile.ZipFile(archive.path) as opened:
        infos = opened.infolist()
        assert {info.filename: opened.read(info) for info in infos} == FILES
    assert [info.filename for info in infos] == sorted(FILES)
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    assert {info.external_attr >> 16 for info in infos} == {0o100644}  # readable for Lambda's user
    assert {(info.create_system, info.compress_type) for info in infos} == {(3, zipfile.ZIP_DEFLATED)}
    assert archive.unzipped_bytes == sum(map(len, FILES.values()))
    assert archive.zipped_bytes == archive.path.stat().st_size < archive.unzipped_bytes
    assert archive.n_files == 3


def test_an_older_zip_is_replaced_and_nothing_else_is_left(tmp_path):
    (tmp_path / "one.zip").write_bytes(b"older")
    write_archive(tmp_path / "one.zip", FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["one.zip"]


def test_an_output_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"cannot write .*file.one\.zip: .*; choose another output folder"):
        write_archive(tmp_path / "file" / "one.zip", FILES)
