"""The template as cfn-lint sees it: types, ranges, references, in each region's own specification."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cfn_template import TEMPLATE

BESIDE = Path(sys.executable).with_name("cfn-lint")
LINTER = str(BESIDE) if BESIDE.is_file() else shutil.which("cfn-lint")
pytestmark = pytest.mark.skipif(LINTER is None, reason="cfn-lint is not installed; it comes with moto[server]")


def lint(path):
    done = subprocess.run([LINTER, "--format", "json", str(path)], capture_output=True, text=True, check=False)
    assert not done.stderr
    found = [(entry["Rule"]["Id"], entry["Message"]) for entry in json.loads(done.stdout or "[]")]
    assert bool(found) == (done.returncode != 0)
    return found


def test_the_template_is_clean():
    assert lint(TEMPLATE) == []


def test_the_linter_would_find_a_wrong_memory_size(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text(TEMPLATE.read_text().replace("MemorySize: !Ref Memory", "MemorySize: 99999"))
    assert any(rule == "E3034" for rule, _ in lint(bad))
