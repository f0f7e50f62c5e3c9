"""Options that cannot be are refused before AWS is asked for anything."""

import pytest

from serverless_gc.cli.deploy import deploy
from serverless_gc.errors import InputError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arch": "arm"}, "arch must be one of arm64, x86_64"),
        ({"python": "2.7"}, "python must be one of"),
        ({"layer": ["foo"]}, "--layer must be the ARN"),
        ({"kms_key": "foo"}, "--kms-key must be none, create or the ARN"),
    ],
)
def test_what_cannot_be_is_said_before_the_missing_region(options, message, monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(InputError, match=message):
        deploy(**options)


def test_a_missing_zip_too(tmp_path):
    with pytest.raises(InputError, match="made by 'serverless-gc build'"):
        deploy(package=tmp_path / "nothere.zip")
