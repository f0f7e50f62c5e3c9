"""Hold what is deployed and what the driver needs against published advisories.

``python .ci/audit.py`` asks the advisories of PyPI, through pip-audit. Where these cannot be reached it says so:
nothing was audited, and why. ``--advisories CLONE`` reads a clone of https://github.com/pypa/advisory-database instead.

Exit status 1 if an advisory names a version in use. It needs the package installed: ``pip install -e ".[audit]"``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES = ("arm64", "x86_64")
PIN = re.compile(
    r'(?P<name>\S+?)==(?P<version>\S+?)(?: ; python_version == "(?P<python>[\d.]+)")? --hash=sha256:[0-9a-f]{64}'
)


@dataclass(frozen=True, order=True)
class Finding:
    """An advisory that names a version in use; ``who`` uses it."""

    package: str
    version: str
    advisory: str
    who: str


def pinned(architecture: str) -> dict[str, dict[str, str]]:
    """Return what is deployed: Python version of the function to package to version.

    Raises
    ------
    ValueError
        If a line is neither a comment nor a pin by hash.
    """
    path = ROOT / "lambda" / f"requirements-{architecture}.txt"
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    pins = [PIN.fullmatch(line) for line in lines]
    if not all(pins):
        raise ValueError(f"{path} has a line that is no pin by hash: {lines[pins.index(None)]}")
    found = [pin for pin in pins if pin]
    pythons = sorted({pin["python"] for pin in found if pin["python"]})
    return {
        python: {pin["name"]: pin["version"] for pin in found if pin["python"] in {None, python}} for python in pythons
    }


def asked_for() -> list[Requirement]:
    """Return what the package asks for, without its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(text) for text in project["dependencies"]]


def installed(requirements: Iterable[Requirement]) -> dict[str, str]:
    """Return what is installed for these requirements, with all that those need: package to version."""
    found: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(requirement, frozenset[str]()) for requirement in requirements]
    while waiting:
        requirement, extras = waiting.pop()
        wanted = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        applies = requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in {"", *extras})
        if wanted in seen or not applies:
            continue
        seen.add(wanted)
        found[wanted[0]] = importlib.metadata.version(requirement.name)
        waiting += [(Requirement(text), wanted[1]) for text in importlib.metadata.requires(requirement.name) or []]
    return found


def in_use() -> dict[str, dict[str, str]]:
    """Return who uses what: the driver, and a function of each Python version."""
    functions: dict[str, dict[str, str]] = {}
    for architecture in ARCHITECTURES:
        for python, versions in pinned(architecture).items():
            functions[f"function-python{python}-{architecture}"] = versions
    return {"driver": installed(asked_for()), **functions}


# -- a clone of the database -----------------------------------------------------------------------------


def affects(advisory: Mapping[str, Any], package: str, version: str) -> bool:
    """Whether an advisory in OSV's format names this version, in its list of versions or by a range of them.

    Ranges of commits are passed over: what is installed are releases.
    """
    if "withdrawn" in advisory:
        return False
    mine = [
        affected
        for affected in advisory.get("affected", ())
        if affected["package"]["ecosystem"] == "PyPI" and canonicalize_name(affected["package"]["name"]) == package
    ]
    here = Version(version)
    return any(
        here in _versions(affected.get("versions", ()))
        or any(_within(here, r["events"]) for r in affected.get("ranges", ()) if r["type"] == "ECOSYSTEM")
        for affected in mine
    )


def _versions(texts: Iterable[str]) -> Iterator[Version]:
    for text in texts:
        try:
            yield Version(text)
        except InvalidVersion:  # releases older than the rules of versions; nothing that can be installed today
            continue


def _within(version: Version, events: Iterable[Mapping[str, str]]) -> bool:
    """Follow the events of a range in the order of their versions, up to this version."""
    inside = False
    told = [(kind, Version(at)) for event in events for kind, at in event.items()]
    for kind, at in sorted(told, key=lambda event: event[1]):
        if kind == "introduced" and at <= version:
            inside = True
        elif (kind == "fixed" and at <= version) or (kind == "last_affected" and at < version):
            inside = False
    return inside


def audit_clone(clone: Path, use: Mapping[str, Mapping[str, str]]) -> tuple[str, list[Finding]]:
    """Return the date of the clone's newest change, and what it says of the versions in use."""

    def git(*words: str) -> str:
        done = subprocess.run(  # noqa: S603 - git, with arguments made here
            ["git", "-C", str(clone), *words],  # noqa: S607 - the user's git
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{clone} cannot be read as a clone of the advisories: {done.stderr.strip()}")
        return done.stdout

    advisories: dict[str, list[dict[str, Any]]] = {}
    packages = {canonicalize_name(name) for versions in use.values() for name in versions}
    for path in git("ls-tree", "-r", "--name-only", "HEAD", "vulns/").splitlines():
        package = canonicalize_name(path.split("/")[1])
        if package in packages and path.endswith(".yaml"):
            advisories.setdefault(package, []).append(yaml.safe_load(git("show", f"HEAD:{path}")))
    found = {
        Finding(package, version, advisory["id"], who)
        for who, versions in use.items()
        for name, version in versions.items()
        for package in (canonicalize_name(name),)
        for advisory in advisories.get(package, ())
        if affects(advisory, package, version)
    }
    return git("log", "-1", "--format=%cs").strip(), sorted(found)


# -- the service -----------------------------------------------------------------------------------------


def audit_online(use: Mapping[str, Mapping[str, str]]) -> tuple[str, list[Finding]]:
    """Ask the advisories through pip-audit: return why something could not be asked, if so, and what they say."""
    if importlib.util.find_spec("pip_audit") is None:
        return 'pip-audit is not installed: pip install "serverless-gc[audit]"', []
    sets = {tuple(sorted(versions.items())): who for who, versions in reversed(use.items())}
    found: set[Finding] = set()
    unasked = ""
    for versions, who in sets.items():
        why, answers = _ask(versions)
        for one in answers:
            if "skip_reason" in one:
                why = f"{one['name']}: {one['skip_reason']}"
            found |= {Finding(one["name"], one["version"], vuln["id"], who) for vuln in one.get("vulns", ())}
        unasked = unasked or why
    return unasked, sorted(found)


def _ask(versions: Iterable[tuple[str, str]]) -> tuple[str, list[dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in versions), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(listed), "--no-deps", "--disable-pip"]
        command += ["--format", "json", "--progress-spinner", "off", "--timeout", "5"]
        done = subprocess.run(  # noqa: S603 - pip-audit, with arguments made here
            command, check=False, capture_output=True, text=True
        )
    if not done.stdout:
        return next(reversed(done.stderr.strip().splitlines()), "pip-audit said nothing"), []
    return "", json.loads(done.stdout)["dependencies"]


def main(arguments: list[str] | None = None) -> int:
    """Audit, say what was found, and return the exit status."""
    parser = argparse.ArgumentParser(description="Hold what is deployed and installed against published advisories.")
    parser.add_argument("--advisories", type=Path, metavar="CLONE", help="a clone of pypa/advisory-database")
    given = parser.parse_args(arguments)
    use = in_use()
    unasked = ""
    if given.advisories is None:
        source = "the advisories of PyPI"
        unasked, found = audit_online(use)
    else:
        date, found = audit_clone(given.advisories, use)
        source = f"the advisories of {given.advisories}, last changed on {date}"
    for one in found:
        print(f"{one.package} {one.version} ({one.who}): {one.advisory}")
    if unasked:
        print(f"not audited: {unasked}")
    else:
        count = len({one for versions in use.values() for one in versions.items()})
        print(f"{count} versions in use held against {source}: {len(found) or 'no'} finding{'s' * (len(found) != 1)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
