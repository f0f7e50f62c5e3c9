"""Writing settings: what is there stays, what is wrong is refused, and what was written is read."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serverless_gc.config import DEFAULTS, read_settings, write_settings
from serverless_gc.errors import ConfigError


def at(path):
    return {"SERVERLESS_GC_CONFIG": str(path)}


def test_other_lines_and_comments_stay(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('# mine\nbackend = "aws"  # always\nbucket = "old"\n\n# end\n')
    write_settings({"bucket": "new", "region": "eu-west-1"}, at(path))
    expected = '# mine\nbackend = "aws"  # always\nbucket = "new"\n\n# end\nregion = "eu-west-1"\n'
    assert path.read_text() == expected
    write_settings({"bucket": None, "region": None}, at(path))
    assert path.read_text() == '# mine\nbackend = "aws"  # always\n\n# end\n'


def test_the_folder_is_made_and_nothing_else_is_left_in_it(tmp_path):
    path = write_settings({"bucket": "b"}, at(tmp_path / "a" / "b" / "config.toml"))
    assert [p.name for p in path.parent.iterdir()] == ["config.toml"]
    assert read_settings(at(path))["bucket"].value == "b"
    assert read_settings(at(path))["bucket"].origin == str(path)


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="\x7f"), min_size=1))
def test_any_text_is_read_as_it_was_written(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("settings") / "config.toml"
    write_settings({"prefix": text}, at(path))
    assert read_settings(at(path))["prefix"].value == text


def test_unknown_settings_and_broken_files_are_refused_and_left_alone(tmp_path):
    path = tmp_path / "config.toml"
    with pytest.raises(ConfigError, match=f"unknown setting 'buckett'.*{min(DEFAULTS)}"):
        write_settings({"buckett": "b"}, at(path))
    assert not path.exists()
    path.write_text("bucket = \n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        write_settings({"bucket": "b"}, at(path))
    assert path.read_text() == "bucket = \n"


def test_a_file_that_cannot_be_written_is_a_readable_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="SERVERLESS_GC_CONFIG names another"):
        write_settings({"bucket": "b"}, at(tmp_path / "file" / "config.toml"))


def test_a_device_is_refused_and_stays_a_device(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), os.devnull):
        with pytest.raises(ConfigError, match="no regular file"):
            write_settings({"bucket": "b"}, {"SERVERLESS_GC_CONFIG": path})
    assert pipe.is_fifo()
    assert Path(os.devnull).is_char_device()
