"""Build the deployment package from a clone, without installing anything: needs Python 3.11 and pip.

Functions given as losses need cloudpickle in the package: it is taken along where it is installed.

The same as ``serverless-gc build``; see ``python lambda/build.py --help``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from serverless_gc.deploy.bundle import build_bundle
from serverless_gc.errors import ServerlessGCError


def main() -> int:
    """Build, say what was built, and return the exit status."""
    parser = argparse.ArgumentParser(description="Build the worker's deployment package for AWS Lambda.")
    parser.add_argument("--output", type=Path, default=Path("build"), help="folder for the zip (build)")
    parser.add_argument("--python", default="3.13", help="Python version of the function (3.13)")
    parser.add_argument("--arch", default="arm64", help="arm64 (default) or x86_64")
    parser.add_argument("--layer", action="store_true", help="put NumPy into a layer of its own")
    parser.add_argument("--numpy", help="NumPy's version; by default the pinned one")
    given = parser.parse_args()
    try:
        bundle = build_bundle(
            given.output, python=given.python, arch=given.arch, numpy=given.numpy, as_layer=given.layer
        )
    except ServerlessGCError as exc:
        sys.stderr.write(f"build: {exc}\n")
        return 1
    sys.stdout.write(bundle.summary() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
