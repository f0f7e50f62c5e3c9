"""Small wheels that are named NumPy, and an environment in which pip sees nothing else."""

import os
import struct
import zipfile

MACHINES = {"x86_64": 62, "aarch64": 183}


def elf(machine="aarch64", *, bits=2, order=1):
    """The first bytes of a shared object."""
    numbers = struct.pack("<HH" if order == 1 else ">HH", 3, MACHINES.get(machine, machine))
    return b"\x7fELF" + bytes([bits, order, 1]) + bytes(9) + numbers + bytes(44)


def contents(machine="aarch64", *, version="9.9.9", extra=None):
    """What a NumPy wheel has of each kind."""
    info = f"numpy-{version}.dist-info"
    return {
        "numpy/__init__.py": f"__version__ = {version!r}\n".encode(),
        "numpy/linalg/__init__.py": b"",
        "numpy/linalg/tests/test_linalg.py": b"raise RuntimeError\n",
        "numpy/testing/__init__.py": b"import unittest\n",
        "numpy/testing/_private/utils.py": b"",
        "numpy/f2py/__init__.py": b"",
        "numpy/f2py/src/fortranobject.c": b"/* */",
        "numpy/conftest.py": b"",
        "numpy/__init__.pyi": b"...",
        "numpy/py.typed": b"",
        "numpy/_core/include/numpy/arrayobject.h": b"/* */",
        "numpy/_core/lib/libnpymath.a": b"!<arch>",
        f"numpy/_core/_simd.cpython-313-{machine}-linux-gnu.so": elf(machine),
        f"numpy/_core/_umath_tests.cpython-313-{machine}-linux-gnu.so": elf(machine),
        f"numpy/_core/_multiarray_umath.cpython-313-{machine}-linux-gnu.so": elf(machine),
        "numpy.libs/libscipy_openblas64_-1234.so": elf(machine),
        "numpy/random/_examples/cffi/parse.py": b"",
        "numpy/random/LICENSE.md": b"terms",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: numpy\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\n",
        f"{info}/RECORD": b"",
        f"{info}/entry_points.txt": b"[console_scripts]\nf2py = numpy.f2py:main\n",
        f"{info}/licenses/LICENSE.txt": b"terms",
        **(extra or {}),
    }


def write_wheel(folder, machine="aarch64", *, version="9.9.9", abi="cp313", platform="manylinux_2_28", files=None):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"numpy-{version}-{abi}-{abi}-{platform}_{machine}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in (contents(machine, version=version) if files is None else files).items():
            wheel.writestr(zipfile.ZipInfo(name), data)
    return path


def only(folder, cache):
    """The environment of a build whose pip sees one folder of wheels, and whose cache is its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return {
        **kept,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "SERVERLESS_GC_CACHE_DIR": str(cache),
    }
