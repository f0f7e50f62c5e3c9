"""The function's code: which it holds, and giving it other."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from serverless_gc.deploy.clients import Aws, code_of, explained
from serverless_gc.errors import ConfigError, InputError
from serverless_gc.limits import DEFAULT_LIMITS

__all__ = ["DIRECT_BYTES", "HANDLER", "Package", "Zip", "current_hash", "megabytes", "upload_code"]

HANDLER = "handler.py"

DIRECT_BYTES = DEFAULT_LIMITS.code_zip_bytes
"""Largest zip that Lambda takes in a request; a larger one goes through the bucket."""


class Package(Protocol):
    """A built zip, and its SHA-256 in base64 as Lambda states it."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def code_sha256(self) -> str:
        """Its hash."""
        ...


@dataclass(frozen=True, slots=True)
class Zip:
    """A zip that was built before."""

    path: Path
    code_sha256: str

    @classmethod
    def read(cls, path: Path) -> Zip:
        """Read a zip and compute its hash.

        Raises
        ------
        InputError
            If it is not a zip with the worker's handler.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"zip must be a worker's zip, made by 'serverless-gc build': {path}: {error}") from error
        if HANDLER not in names:
            raise InputError(f"zip must hold {HANDLER} at its top, {path} does not: make it by 'serverless-gc build'")
        return cls(path, base64.b64encode(hashlib.sha256(path.read_bytes()).digest()).decode())


def megabytes(code: Package) -> str:
    """Return the size of a zip in words."""
    return f"{code.path.stat().st_size / 1e6:.1f} MB"


def current_hash(aws: Aws, function: str) -> str:
    """Return the hash of a function's code; empty if there is no such function."""
    from botocore.exceptions import ClientError

    with explained(f"looking at function {function!r} in {aws.region}"):
        try:
            return str(aws.client("lambda").get_function_configuration(FunctionName=function)["CodeSha256"])
        except ClientError as error:
            if code_of(error) == "ResourceNotFoundException":
                return ""
            raise


def upload_code(aws: Aws, function: str, code: Package, *, bucket: str, prefix: str) -> bool:
    """Give a function its code, unless it has it already, and wait until it runs it.

    Returns
    -------
    bool
        Whether anything was sent.

    Raises
    ------
    ConfigError
        If Lambda refuses the code, or holds other code afterwards.
    """
    if current_hash(aws, function) == code.code_sha256:
        return False
    client = aws.client("lambda")
    with explained(f"uploading {code.path} to function {function!r}"):
        client.get_waiter("function_active_v2").wait(FunctionName=function)
        client.get_waiter("function_updated_v2").wait(FunctionName=function)
        if code.path.stat().st_size <= DIRECT_BYTES:
            client.update_function_code(FunctionName=function, ZipFile=code.path.read_bytes())
        else:
            key = f"{prefix}/runs/code/{code.path.name}"
            s3 = aws.client("s3")
            s3.upload_file(str(code.path), bucket, key)
            try:
                client.update_function_code(FunctionName=function, S3Bucket=bucket, S3Key=key)
            finally:
                s3.delete_object(Bucket=bucket, Key=key)
        client.get_waiter("function_updated_v2").wait(FunctionName=function)
    held = current_hash(aws, function)
    if held != code.code_sha256:
        raise ConfigError(
            f"function {function} holds code {held} after {code.code_sha256} was uploaded: somebody else deployed at "
            "the same time. Agree on one version and run 'serverless-gc deploy' again"
        )
    return True
