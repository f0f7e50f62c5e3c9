"""``.ci/audit.py``: what is deployed and what the driver needs, held against advisories."""

import importlib.util
import json
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from cfn_template import ROOT, load_template


def load_audit():
    spec = importlib.util.spec_from_file_location("dependency_audit", ROOT / ".ci" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


audit = load_audit()


def numpy_pins(arch):
    return {python: versions["numpy"] for python, versions in audit.pinned(arch).items()}


def test_both_architectures_get_the_same_versions_for_every_runtime_that_can_be_deployed():
    assert audit.pinned("arm64") == audit.pinned("x86_64")
    assert set(load_template()["Parameters"]["Python"]["AllowedValues"]) <= set(audit.pinned("arm64"))


def test_the_pinned_versions_are_within_what_the_package_asks_for():
    wanted = {asked.name: asked.specifier for asked in audit.asked_for()}
    for versions in audit.pinned("arm64").values():
        assert versions.keys() == {"numpy", "cloudpickle"}
        assert all(version in wanted[name] for name, version in versions.items())


def test_what_is_audited_is_all_that_is_deployed_and_all_that_a_driver_needs():
    use = audit.in_use()
    assert {"driver", "function-python3.11-x86_64", "function-python3.14-arm64"} <= use.keys()
    assert {"numpy", "aiobotocore", "botocore", "aiohttp", "urllib3", "typer"} <= use["driver"].keys()
    assert not {"pytest", "moto", "matplotlib"} & use["driver"].keys()  # extras


def advisory(name="numpy", ecosystem="PyPI", **affected):
    return {"id": "PYSEC-0", "affected": [{"package": {"name": name, "ecosystem": ecosystem}, **affected}]}


def ranged(*events, kind="ECOSYSTEM"):
    return {"ranges": [{"type": kind, "events": [dict([event]) for event in events]}]}


TWICE = ranged(("introduced", "2.0"), ("fixed", "2.1"), ("introduced", "2.3"), ("fixed", "2.3.5"))


@pytest.mark.parametrize(
    ("affected", "version", "said"),
    [
        (ranged(("introduced", "0"), ("fixed", "1.19.0")), "1.18.5", True),
        (ranged(("introduced", "0"), ("fixed", "1.19.0")), "1.19.0rc1", True),
        (ranged(("introduced", "0"), ("fixed", "1.19.0")), "1.19", False),
        (ranged(("introduced", "0")), "99", True),
        (ranged(("introduced", "1.10"), ("last_affected", "1.12")), "1.9", False),
        (ranged(("introduced", "1.10"), ("last_affected", "1.12")), "1.12.0", True),
        (ranged(("introduced", "1.10"), ("last_affected", "1.12")), "1.12.1", False),
        (TWICE, "2.0.4", True),
        (TWICE, "2.2", False),
        (TWICE, "2.3", True),
        ({"versions": ["not a version", "1.0", "1.2"]}, "1.0.0", True),
        ({"versions": ["1.0", "1.2"]}, "1.1", False),
        ({"versions": ["1.0"], **ranged(("introduced", "2"))}, "2.1", True),
        (ranged(("introduced", "0"), kind="GIT"), "1.0", False),
        (ranged(("introduced", "0")) | {"name": "other"}, "1.0", False),
        (ranged(("introduced", "0")) | {"name": "NumPy"}, "1.0", True),
        (ranged(("introduced", "0")) | {"ecosystem": "npm"}, "1.0", False),
    ],
)
def test_an_advisory_names_versions_as_the_format_says(affected, version, said):
    told = advisory(**affected)
    assert audit.affects(told, "numpy", version) is said
    assert audit.affects({**told, "withdrawn": "2024-01-01T00:00:00Z"}, "numpy", version) is False


def git(path, *words):
    command = [shutil.which("git"), "-C", str(path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path):
    """Make a database with one advisory on a package that nobody here has, and the given one on NumPy."""

    def make(told):
        for name, text in {"absent": advisory("absent", **ranged(("introduced", "0"))), "numpy": told}.items():
            path = tmp_path / "vulns" / name / "PYSEC-0.yaml"
            path.parent.mkdir(parents=True)
            path.write_text(yaml.safe_dump(text))
        git(tmp_path, "init", "--quiet")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "-m", "advisories")
        return tmp_path

    return make


def test_a_clone_that_names_a_pinned_version_fails_the_audit(clone, capsys):
    version = numpy_pins("arm64")["3.11"]
    path = clone(advisory(versions=[version]))
    assert audit.main(["--advisories", str(path)]) == 1
    assert f"numpy {version} (function-python3.11-arm64): PYSEC-0" in capsys.readouterr().out


def test_a_clone_that_names_none_passes_and_its_date_is_told(clone, capsys):
    path = clone(advisory(**ranged(("introduced", "0"), ("fixed", "1.20"))))
    assert audit.main(["--advisories", str(path)]) == 0
    assert f"last changed on {git(path, 'log', '-1', '--format=%cs')}: no findings" in capsys.readouterr().out


def test_a_folder_that_is_no_clone_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="cannot be read as a clone"):
        audit.main(["--advisories", str(tmp_path)])


@contextmanager
def osv_service(told):
    """The service of osv.dev, as far as pip-audit asks it: package to its advisories."""

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            vulns = told.get(asked["package"]["name"], [])
            body = json.dumps({"vulns": vulns} if vulns else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def with_pip_audit(monkeypatch):
    """pip-audit, asking a service of our own: (URL) -> None."""
    if importlib.util.find_spec("pip_audit") is None:
        pytest.skip("pip-audit is not installed: pip install serverless-gc[audit]")

    def ask(url):
        monkeypatch.setenv("PIP_AUDIT_VULNERABILITY_SERVICE", "osv")
        monkeypatch.setenv("PIP_AUDIT_OSV_URL", url)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)

    return ask


def test_what_the_service_finds_fails_the_audit(with_pip_audit, capsys):
    finding = {**advisory("aiohttp", **ranged(("introduced", "0"))), "modified": "2024-01-01T00:00:00Z"}
    with osv_service({"aiohttp": [finding]}) as url:
        with_pip_audit(url)
        assert audit.main([]) == 1
    assert "(driver): PYSEC-0" in capsys.readouterr().out


def test_a_service_that_finds_nothing_passes(with_pip_audit, capsys):
    with osv_service({}) as url:
        with_pip_audit(url)
        assert audit.main([]) == 0
    assert "held against the advisories of PyPI: no findings" in capsys.readouterr().out


def test_offline_it_says_that_nothing_was_audited_and_passes(with_pip_audit, capsys):
    with_pip_audit("http://127.0.0.1:9/v1/query")
    assert audit.main([]) == 0
    said = capsys.readouterr().out
    assert said.startswith("not audited: ")
    assert "findings" not in said
