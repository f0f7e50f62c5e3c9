"""Targets of benchmarks: a missed one fails its benchmark, and all are listed at the end."""

import sys
from dataclasses import dataclass

import pytest

TOLERANCE = 1.15
"""How far beside its target a figure may be: ratios of the best of several runs differed by up to a tenth."""

ATTEMPTS = 3
"""How often to measure what misses its target before it has missed it: other processes use the machine, too."""

_ROWS = pytest.StashKey[list]()


@dataclass(frozen=True)
class _Row:
    what: str
    value: float
    target: float
    at_most: bool
    tolerance: float

    @property
    def beside(self):
        """How much worse than the target, as a factor."""
        return self.value / self.target if self.at_most else self.target / max(self.value, 1e-12)

    @property
    def met(self):
        return self.beside <= self.tolerance

    def __str__(self):
        verdict = "MISSED" if not self.met else "" if self.beside <= 1 else "within tolerance"
        sign = "<=" if self.at_most else ">="
        return f"{_short(self.value):>10} {sign} {_short(self.target):<9} {self.what}  {verdict}".rstrip()


def _short(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


@pytest.fixture
def hold(benchmark, capsys, pytestconfig):
    """Hold a ratio to its target, ``hold(what, measure, at_most=...)``; it fails if the best of `ATTEMPTS` misses it.

    ``measure`` returns a ratio to a bound measured in the same run; a figure that cannot be measured again may be given
    as a number. ``tolerance=1`` is for promises with a margin of their own. Call it after `benchmark` has run.
    """

    def hold_to(what, measure, *, at_most=None, at_least=None, tolerance=TOLERANCE):
        attempts = (measure() for _ in range(ATTEMPTS)) if callable(measure) else iter([measure])
        rows = []
        for value in attempts:
            rows.append(_Row(what, value, *((at_least, False) if at_most is None else (at_most, True)), tolerance))
            if rows[-1].met:
                break
        best = min(rows, key=lambda row: row.beside)
        pytestconfig.stash.setdefault(_ROWS, []).append(best)
        benchmark.extra_info[what] = {"ratio": round(best.value, 4), "target": round(best.target, 4)}
        with capsys.disabled():
            sys.stdout.write(f"\n{best}\n")
        assert best.met, f"{what}: {best.value:.4g}, {best.beside:.2f} times the target of {best.target:.4g}"

    return hold_to


def pytest_terminal_summary(terminalreporter, config):
    rows = config.stash.get(_ROWS, [])
    if rows:
        terminalreporter.section("targets: ratio, target, of what")
        for row in sorted(rows, key=lambda row: row.what):
            terminalreporter.write_line(str(row))
