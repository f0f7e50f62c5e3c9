"""The sentence of a function that was deployed to the wrong runtime."""

import importlib.util
import json
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "lambda" / "handler.py"
STAMP = {"python": "3.13", "arch": "arm64", "layer": False}


@pytest.fixture(scope="module")
def shim():
    spec = importlib.util.spec_from_file_location("shim_of_lambda", PATH)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            patch.setenv(name, "1")  # what the shim sets does not outlive this fixture
        spec.loader.exec_module(module)
    return module


def test_in_the_right_place_there_is_nothing_to_say(shim):
    assert shim.wrong_place(STAMP, "linux", "aarch64", "3.13") == ""
    assert shim.wrong_place({**STAMP, "arch": "x86_64"}, "linux", "x86_64", "3.13") == ""


@pytest.mark.parametrize(
    ("place", "layer", "sentence"),
    [
        (
            ("linux", "x86_64", "3.13"),
            False,
            (
                "this function was built for Python 3.13 on Linux arm64, but runs on Python 3.13 on Linux x86_64: set "
                "its runtime to python3.13 and its architecture to arm64, or build again with: "
                "serverless-gc build --python 3.13 --arch x86_64"
            ),
        ),
        (
            ("linux", "aarch64", "3.12"),
            True,
            (
                "this function was built for Python 3.13 on Linux arm64, but runs on Python 3.12 on Linux arm64: set "
                "its runtime to python3.13 and its architecture to arm64, or build again with: "
                "serverless-gc build --python 3.12 --arch arm64 --layer"
            ),
        ),
        (
            ("darwin", "arm64", "3.13"),
            False,
            (
                "this function was built for Python 3.13 on Linux arm64, but runs on Python 3.13 on macOS arm64: set "
                "its runtime to python3.13 and its architecture to arm64; it runs on AWS Lambda only"
            ),
        ),
    ],
)
def test_elsewhere_one_sentence_says_both_places_and_what_to_do(shim, place, layer, sentence):
    assert shim.wrong_place({**STAMP, "layer": layer}, *place) == sentence


def test_a_stamp_is_read_where_there_is_one(shim, tmp_path):
    assert shim.read_stamp(str(tmp_path)) is None
    (tmp_path / "bundle.json").write_text(json.dumps(STAMP))
    assert shim.read_stamp(str(tmp_path)) == STAMP
