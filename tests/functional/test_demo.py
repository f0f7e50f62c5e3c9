"""The demo command, on a small part of the flights, with its picture; and what it prints into a file."""

import re
import subprocess
import sys

from matplotlib import image

COMMAND = [sys.executable, "-c", "from serverless_gc.cli import main; main()"]


def run(*arguments):
    return subprocess.run([*COMMAND, *arguments], check=False, capture_output=True, text=True, timeout=120)


def test_demo_on_a_few_flights(tmp_path):
    picture = tmp_path / "round.png"
    done = run(
        *("demo", "--rows", "4000", "--iterations", "3", "--blocks", "12", "--service", "0.005"),
        *("--plot", str(picture)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no bar in a file
    rows = re.findall(r"^ ?(wait for all|speculative|replication x2|MDS|polar) +(\d+) (.*)$", done.stdout, re.MULTILINE)
    assert [(method, int(n)) for method, n, _ in rows] == [
        ("wait for all", 12),
        ("speculative", 12),
        ("replication x2", 24),
        ("MDS", 16),
        ("polar", 16),
    ]
    for _, _, rest in rows:
        *_, error, loss, difference = rest.split()
        assert float(error) < 1e-10
        assert 0.4 < float(loss) < 0.7
        assert abs(float(difference)) < 1e-12
    assert image.imread(picture).shape[0] > 300
    assert "simulated" not in done.stdout


def test_simulated_demo_takes_virtual_time():
    done = run("demo", "--rows", "2000", "--iterations", "2", "--blocks", "12", "--backend", "simulated")
    assert done.returncode == 0, done.stderr
    assert "polar" in done.stdout
    assert "on a simulated clock" in " ".join(done.stdout.split())


def test_a_wrong_backend_is_one_readable_line():
    done = run("demo", "--rows", "1000", "--iterations", "1", "--backend", "cloud")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no backend is called 'cloud'; there are local, processes, aws, simulated" in done.stderr


def test_version():
    done = run("--version")
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", done.stdout)
