"""What is deployed and what the driver needs, held against the published advisories, where they can be reached.

Needs ``pip install serverless-gc[audit]`` and a network; without either it says so and audits nothing.
"""

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tomllib

import pytest
from cfn_template import ROOT, load_template
from packaging.requirements import Requirement

PINS = {arch: ROOT / "lambda" / f"requirements-{arch}.txt" for arch in ("arm64", "x86_64")}
PIN = re.compile(r'numpy==(\S+) ; python_version == "([\d.]+)" --hash=sha256:[0-9a-f]{64}')
EVERYWHERE = re.compile(r"cloudpickle==\S+ --hash=sha256:[0-9a-f]{64}")


def pinned(arch):
    """Runtime -> version of NumPy; every line but comments must be a pin by hash."""
    lines = [line for line in PINS[arch].read_text().splitlines() if line and not line.startswith("#")]
    found = {line: PIN.fullmatch(line) for line in lines if not EVERYWHERE.fullmatch(line)}
    assert all(found.values()), lines
    return {match[2]: match[1] for match in found.values()}


def test_both_architectures_get_the_same_versions_for_every_runtime_that_can_be_deployed():
    assert pinned("arm64") == pinned("x86_64")
    assert set(load_template()["Parameters"]["Python"]["AllowedValues"]) <= set(pinned("arm64"))


def test_the_pinned_versions_are_within_what_the_package_asks_for():
    (wanted,) = [asked for asked in asked_for() if asked.name == "numpy"]
    assert all(version in wanted.specifier for version in pinned("arm64").values())


def asked_for():
    """What the package asks for, without its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in project["dependencies"]]


def needed(requirements, seen):
    """What is installed for these requirements, with all that those need: name -> version."""
    for requirement in requirements:
        if requirement.name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen[requirement.name] = importlib.metadata.version(requirement.name)
        needed(map(Requirement, importlib.metadata.requires(requirement.name) or []), seen)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("what", ["worker", "driver"])
def test_no_advisory_names_what_we_use(what, tmp_path):
    if importlib.util.find_spec("pip_audit") is None:
        pytest.skip("pip-audit is not installed: pip install serverless-gc[audit]")
    versions = needed(asked_for(), {}) if what == "driver" else {"numpy": max(pinned("arm64").items())[1]}
    listed = tmp_path / "requirements.txt"
    listed.write_text("".join(f"{name}=={version}\n" for name, version in sorted(versions.items())))
    command = ["-m", "pip_audit", "--requirement", str(listed), "--no-deps", "--disable-pip", "--format", "json"]
    done = subprocess.run(
        [sys.executable, *command, "--progress-spinner", "off", "--timeout", "5"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if not done.stdout:
        pytest.skip(f"the advisories cannot be reached: {done.stderr.strip().splitlines()[-1]}")
    audited = json.loads(done.stdout)["dependencies"]
    unknown = [one["skip_reason"] for one in audited if "skip_reason" in one]
    if unknown:
        pytest.skip(f"{len(unknown)} of {len(audited)} packages could not be audited, the first: {unknown[0]}")
    assert {one["name"]: [v["id"] for v in one["vulns"]] for one in audited if one["vulns"]} == {}
