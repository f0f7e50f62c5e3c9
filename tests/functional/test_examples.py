"""The numbered examples run as they stand, warnings being errors; the pages' snippets are part of them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("[0-9]*.py"))
NEEDS = {"11_pytorch": "torch"}
PAGES = {
    "testing.md": "05_offline_aws.py",
    "losses.md": "07_any_loss.py",
    "which-code.md": "13_which_code.py",
    "waiting.md": "14_waiting.py",
    "how-exact.md": "15_how_exact.py",
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(script):
    if script.stem in NEEDS:
        pytest.importorskip(NEEDS[script.stem], reason=f"needs {NEEDS[script.stem]}, which is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout


def test_there_are_examples():
    assert [path.stem[:2] for path in SCRIPTS] == [f"{i:02d}" for i in range(1, len(SCRIPTS) + 1)]
    assert len(SCRIPTS) >= 5


@pytest.mark.parametrize(("page", "script"), PAGES.items())
def test_every_snippet_of_a_page_is_part_of_its_script(page, script):
    text = (EXAMPLES / script).read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", (EXAMPLES / "guide" / page).read_text(encoding="utf-8"), re.DOTALL)
    assert len(snippets) >= 4
    for snippet in snippets:
        assert snippet in text
