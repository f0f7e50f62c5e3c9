"""A benchmark that misses its target fails, and says by how much; one that meets it after all passes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from measured import fastest, goal_in_additions, goal_in_copies, goal_in_products, ratio, seconds_of_an_addition

CONFTEST = Path(__file__).parents[1] / "benchmarks" / "conftest.py"
BENCHMARKS = """
import pytest

@pytest.mark.parametrize(("name", "figures", "goal"), [
    ("met", [2.0], {"at_most": 3}),
    ("nearly met", [9.0, 5.0, 3.3], {"at_most": 3}),
    ("met at last", [0.5, 0.7], {"at_least": 0.6, "tolerance": 1}),
    ("missed", [9.0, 6.0, 7.0], {"at_most": 3}),
    ("never reached", [0.3, 0.2, 0.1], {"at_least": 0.6}),
    ("nearly met without tolerance", [3.1, 3.2, 3.1], {"at_most": 3, "tolerance": 1}),
    pytest.param("known to be missed", [4.0, 4.0, 4.0], {"at_most": 3}, marks=pytest.mark.xfail(strict=False)),
])
def test_figure(benchmark, hold, name, figures, goal):
    benchmark.pedantic(int, rounds=1)
    hold(name, lambda: figures.pop(0), **goal)
"""


def test_targets(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_one.py").write_text(BENCHMARKS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-only", "."]
    alone = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # nothing of xdist
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "3 failed, 3 passed, 1 xfailed" in done.stdout
    assert {line.strip() for line in done.stdout.split("targets: ")[1].splitlines()} >= {
        "2 <= 3         met",
        "3.3 <= 3         nearly met  within tolerance",
        "0.7 >= 0.6       met at last",
        "6 <= 3         missed  MISSED",
        "0.3 >= 0.6       never reached  MISSED",
        "3.1 <= 3         nearly met without tolerance  MISSED",
        "4 <= 3         known to be missed  MISSED",
    }
    for said in ("missed: 6, 2.00 times the target of 3", "never reached: 0.3, 2.00 times the target of 0.6"):
        assert said in done.stdout


def test_ratios_and_what_goals_amount_to():
    def spin():
        return [sum(range(2000)) for _ in range(20)]

    assert 1 < ratio(lambda: [spin() for _ in range(4)], spin, 20) < 16
    assert 0 < seconds_of_an_addition() < fastest(spin)
    assert goal_in_additions(19) == pytest.approx(1000)
    assert goal_in_copies(2, 11_500_000) == pytest.approx(2)
    assert goal_in_products(1, 500, 500, 204) == pytest.approx(1)
