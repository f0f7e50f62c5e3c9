"""A benchmark that misses its target fails, and says by how much; one that meets it after all passes."""

import subprocess
import sys
from pathlib import Path

import pytest
from measured import fastest, goal_in_additions, goal_in_copies, goal_in_products, ratio, seconds_of_an_addition

CONFTEST = Path(__file__).parents[1] / "benchmarks" / "conftest.py"
BENCHMARKS = """
figures = {figures}

def test_figure(benchmark, hold):
    benchmark.pedantic(int, rounds=1)
    hold("thing", lambda: figures.pop(0), {goal})
"""


@pytest.fixture
def outcome(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())

    def run(figures, goal):
        (tmp_path / "test_one.py").write_text(BENCHMARKS.format(figures=figures, goal=goal))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-only", "."]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    ("figures", "goal", "said"),
    [
        ([2.0], "at_most=3", "2 <= 3         thing"),
        ([9.0, 5.0, 3.3], "at_most=3", "3.3 <= 3         thing  within tolerance"),
        ([0.5, 0.7], "at_least=0.6, tolerance=1", "0.7 >= 0.6       thing"),
    ],
)
def test_target_that_is_met(outcome, figures, goal, said):
    done = outcome(figures, goal)
    assert done.returncode == 0, done.stdout
    assert said in [line.strip() for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("figures", "goal", "factor"),
    [
        ([9.0, 6.0, 7.0], "at_most=3", "2.00"),
        ([0.3, 0.2, 0.1], "at_least=0.6", "2.00"),
        ([3.1] * 3, "at_most=3, tolerance=1", "1.03"),
    ],
)
def test_target_that_is_missed(outcome, figures, goal, factor):
    done = outcome(figures, goal)
    assert done.returncode == 1
    assert f"{factor} times the target" in done.stdout
    assert "thing  MISSED" in done.stdout


def test_ratios_and_what_goals_amount_to():
    def spin():
        return [sum(range(2000)) for _ in range(20)]

    assert 1 < ratio(lambda: [spin() for _ in range(4)], spin, 20) < 16
    assert 0 < seconds_of_an_addition() < fastest(spin)
    assert goal_in_additions(19) == pytest.approx(1000)
    assert goal_in_copies(2, 11_500_000) == pytest.approx(2)
    assert goal_in_products(1, 500, 500, 204) == pytest.approx(1)
