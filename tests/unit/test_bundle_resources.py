"""Files that are deployed are found in a clone, in an editable installation and in a wheel."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from serverless_gc.deploy.resources import resource_path
from serverless_gc.errors import ConfigError

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "lambda").iterdir() if path.is_file())

ASK = """
import sys
from serverless_gc.deploy.resources import resource_path
for name in sys.argv[1:]:
    print(resource_path(name))
"""


def test_in_a_clone_they_are_the_repositorys_own():
    assert {"lambda/handler.py", "lambda/requirements-arm64.txt", "lambda/requirements-x86_64.txt"} <= set(NAMES)
    assert [resource_path(name) for name in NAMES] == [ROOT / name for name in NAMES]


def test_one_that_is_not_there_is_named_with_both_places():
    with pytest.raises(ConfigError, match=r"lambda/nothing\.py is neither in .*data nor in .*: the installation"):
        resource_path("lambda/nothing.py")


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(request, tmp_path_factory):
    """A Python that has this package and nothing else, and how the package got there."""
    folder = tmp_path_factory.mktemp(request.param)
    run(sys.executable, "-m", "venv", "--without-pip", "--symlinks", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    what = ["--editable", ROOT] if request.param == "editable" else [wheel_of(folder)]
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", *what)
    return request.param, python


def wheel_of(folder):
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("serverless_gc-*.whl")
    return wheel


def run(*command, **options):
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=300, env=environ, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_in_an_installation_they_are_found_and_are_the_same_files(installed, tmp_path):
    how, python = installed
    found = [Path(line) for line in run(python, "-I", "-c", ASK, *NAMES, cwd=tmp_path).splitlines()]
    assert len(found) == len(NAMES)
    for name, path in zip(NAMES, found, strict=True):
        assert path.read_bytes() == (ROOT / name).read_bytes()
        assert path.is_relative_to(ROOT) == (how == "editable")


def test_the_dockerfile_copies_what_is_there():
    text = (ROOT / "lambda" / "Dockerfile").read_text()
    copies = re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)
    sources = [source for copy in copies for source in copy.split()]
    assert {"lambda/handler.py", "serverless_gc/worker", "serverless_gc/wire"} <= set(sources)
    assert [source for source in sources if not (ROOT / source).exists()] == []
    for source in sources:  # the build leaves them out of no context
        assert not source.startswith(("/", ".."))


def test_the_dockerfile_uses_a_python_and_files_that_are_pinned():
    text = (ROOT / "lambda" / "Dockerfile").read_text()
    python = re.search(r"^ARG PYTHON=(\S+)$", text, re.MULTILINE)[1]
    assert re.search(r"^FROM public\.ecr\.aws/lambda/python:\$\{PYTHON\}$", text, re.MULTILINE)
    for arch in ("arm64", "x86_64"):
        assert f'python_version == "{python}"' in (ROOT / "lambda" / f"requirements-{arch}.txt").read_text()
    assert re.search(r'^CMD \["handler\.handler"\]$', text, re.MULTILINE)


def test_the_build_configuration_packs_the_folder():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["force-include"]["lambda"] == "serverless_gc/deploy/data/lambda"
    assert "/lambda" in build["sdist"]["include"]
