"""From an empty account to a training run and back, by the commands alone: the real template, zip and worker."""

import platform
import re
import subprocess
import sys

import pytest

from serverless_gc.cli.demo import METHODS
from serverless_gc.testing.rig import Rig

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
ARCH = "arm64" if platform.machine() in {"aarch64", "arm64"} else "x86_64"


@pytest.fixture(scope="module")
def account():
    with Rig() as rig, rig.activated():
        yield rig


def command(*arguments, status=0):
    done = subprocess.run(
        [sys.executable, "-c", "from serverless_gc.cli import main; main()", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_deploy_doctor_demo_clean_destroy(account):
    assert "No stack" in command("status", status=1)
    planned = command("deploy", "--python", PYTHON, "--arch", ARCH, "--dry-run")
    assert "Nothing was changed" in planned
    assert "No stack" in command("status", status=1)

    assert "Deployed." in command("deploy", "--python", PYTHON, "--arch", ARCH)
    assert "up to date" in command("deploy", "--python", PYTHON, "--arch", ARCH)

    report = command("doctor")
    assert "fail" not in report
    assert re.search(r"^ok +cold start", report, re.MULTILINE)
    assert re.search(r"^ok +concurrency +1000 of 1000 executions", report, re.MULTILINE)
    assert report.rstrip().endswith("Ready.")  # without a warning

    table = command(
        "demo", "--backend", "aws", "--rows", "1500", "--iterations", "1", "--blocks", "6", "--service", "0.005"
    )
    errors = [float(line.split()[-3]) for line in table.splitlines() if re.match(r" ?(wait|spec|repl|MDS|polar)", line)]
    assert len(errors) == 5
    assert max(errors) < 1e-10
    assert account.admin.counts("serverless-gc").runs > 60

    assert "0 objects" in command("status")
    assert "nothing to delete" in command("clean")
    assert "nothing is left" in command("destroy", "--yes")
    assert "No stack" in command("status", status=1)


def test_offline_says_how_far_it_is_and_advises_nothing_that_will_be_gone():
    said = command("demo", "--backend", "aws", "--offline", *("--rows", "1000", "--iterations", "1", "--blocks", "4"))
    assert "gone when the command ends" in said
    assert "Try it" not in said
    assert "Settings are in" not in said
    assert re.findall(r"^(.*) \.\.\.$", said, re.MULTILINE)[1:] == [method.title for method in METHODS]


def test_offline_needs_the_aws_backend():
    assert "--backend aws" in command("demo", "--rows", "1000", "--offline", status=1)
