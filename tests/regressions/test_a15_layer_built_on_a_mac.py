"""A15: the package is built on a Mac, and is Linux code for the chosen architecture all the same."""

import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from serverless_gc.limits import DEFAULT_LIMITS

ROOT = Path(__file__).parents[2]
MACHINES = {"arm64": 183, "x86_64": 62}

MAC = """
import platform, sysconfig
platform.system = lambda: "Darwin"
platform.machine = lambda: "arm64"
platform.mac_ver = lambda *args, **kwargs: ("11.0", ("", "", ""), "arm64")
sysconfig.get_platform = lambda: "macosx-11.0-arm64"
"""


@pytest.fixture(scope="module")
def mac(tmp_path_factory):
    """An environment whose Pythons believe that they run on macOS 11 on arm64, and whose cache of wheels is empty."""
    folder = tmp_path_factory.mktemp("mac")
    (folder / "sitecustomize.py").write_text(MAC)
    return {**os.environ, "PYTHONPATH": str(folder), "SERVERLESS_GC_CACHE_DIR": str(folder / "cache")}


def build(mac, output, arch):
    done = subprocess.run(
        [sys.executable, ROOT / "lambda" / "build.py", "--arch", arch, "--output", output],
        env=mac,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return output / f"function-python3.13-{arch}.zip", done.stdout


def test_pip_itself_would_take_a_wheel_for_macos(mac):
    """The disguise holds."""
    listed = [sys.executable, "-c", "from pip._vendor.packaging.tags import sys_tags; print(*sys_tags())"]
    done = subprocess.run(listed, env=mac, capture_output=True, text=True, check=True, timeout=60)
    assert "macosx_11_0_arm64" in done.stdout
    assert "manylinux" not in done.stdout


@pytest.mark.parametrize("arch", ["arm64", "x86_64"])
def test_every_shared_object_is_for_the_chosen_architecture(mac, tmp_path, arch):
    path, printed = build(mac, tmp_path / "one", arch)
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    again, _ = build({**mac, **offline}, tmp_path / "two", arch)
    assert path.read_bytes() == again.read_bytes()

    with zipfile.ZipFile(path) as opened:
        names = opened.namelist()
        shared = [name for name in names if ".so" in name]
        assert len(shared) >= 10
        for name in names:
            head = opened.read(name)[:20]
            assert head.startswith(b"\x7fELF") == (name in shared), name
            if name in shared:
                assert head[4:6] == b"\x02\x01"  # 64 bits, little endian
                assert struct.unpack("<H", head[18:20])[0] == MACHINES[arch], name
        unzipped = sum(info.file_size for info in opened.infolist())

    assert f"{unzipped / 2**20:.1f} MB unzipped" in printed
    assert unzipped < 60 * 2**20 < 0.8 * DEFAULT_LIMITS.code_bytes
    assert path.stat().st_size < 18 * 2**20 < DEFAULT_LIMITS.code_zip_bytes
    for unwanted in ("scipy/", "boto", "moto", "/tests/", ".pyi", "f2py/src", "RECORD", "darwin", "dylib"):
        assert not [name for name in names if unwanted in name], unwanted
    assert {name.split("/")[1] for name in names if name.startswith("serverless_gc/")} == {
        "__init__.py",
        *({"__pycache__"} if any(name.endswith(".pyc") for name in names) else ()),
        "wire",
        "worker",
    }
