"""What S3 answered, in this package's words: which error, worth a repeat or not, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from serverless_gc.aws.identity import EXPIRED_CODES
from serverless_gc.errors import ConfigError, ObjectNotFound, ServerlessGCError, StoreError

__all__ = ["RETRYABLE_CODES", "Refused", "from_refusal", "from_transport_error", "refusals"]

RETRYABLE_CODES = frozenset(
    {"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "OperationAborted", "Throttling"}
)
_RETRYABLE_STATUS = frozenset({429, 500, 502, 503, 504})
_BAD_CREDENTIALS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId"})
_DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "403", "Forbidden"})
_ELSEWHERE = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "301", "TemporaryRedirect"})


class Refused(Exception):
    """S3 answered with an error; ``region`` is the bucket's, if it said so."""

    def __init__(self, status: int, code: str, message: str, region: str = "") -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code, self.message, self.region = status, code, message, region

    @classmethod
    def of(cls, response: Mapping[str, Any]) -> Refused:
        """Make it of what botocore parsed."""
        about, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
        return cls(
            int(metadata.get("HTTPStatusCode", 0)),
            str(about.get("Code", "")),
            str(about.get("Message", "")),
            str(metadata.get("HTTPHeaders", {}).get("x-amz-bucket-region", "")),
        )


@contextmanager
def refusals() -> Iterator[None]:
    """Raise `Refused` where botocore raises its ``ClientError``."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        raise Refused.of(error.response) from error


def from_refusal(refused: Refused, *, operation: str, bucket: str, key: str) -> ServerlessGCError:
    """Translate an answer that is an error."""
    code, status = refused.code, refused.status
    what = f"S3 answered {status} {code} to {operation} in bucket {bucket!r}"
    if key:
        what += f", key {key!r}"
    if code == "NoSuchKey" or (code == "404" and key):
        return ObjectNotFound(f"{what}: no such object", key=key, status=status)
    if code in {"NoSuchBucket", "404"}:
        return ConfigError(f"{what}: no such bucket; make it with 'aws s3 mb s3://{bucket}', or name another")
    if code in EXPIRED_CODES:
        return ConfigError(
            f"{what}: the credentials have expired; they were asked for again and are no newer: renew them "
            "('aws sso login', a new session token) and run again"
        )
    if code in _BAD_CREDENTIALS:
        return ConfigError(f"{what}: S3 does not accept the credentials; see 'aws sts get-caller-identity'")
    if code in _ELSEWHERE:
        return ConfigError(
            f"{what}: the bucket is in {refused.region or 'another region'}; give the store that region "
            f"(see 'aws s3api get-bucket-location --bucket {bucket}')"
        )
    if code in _DENIED:
        return ConfigError(
            f"{what}: not allowed; the policy must grant s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket "
            f"(see 'aws sts get-caller-identity' for who asks)"
        )
    retryable = status in _RETRYABLE_STATUS or code in RETRYABLE_CODES
    return StoreError(f"{what}: {refused.message}", key=key, retryable=retryable, status=status)


def from_transport_error(error: Exception, *, operation: str, bucket: str, key: str) -> ServerlessGCError:
    """Translate what went wrong before or after S3 answered: credentials, name lookup, connection, body."""
    from aiohttp import ClientSSLError
    from botocore import exceptions

    what = f"{operation} in bucket {bucket!r}" + (f", key {key!r}" if key else "")
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return ConfigError(f"{what}: no AWS credentials found ({error}); run 'aws configure' or 'aws sso login'")
    network = (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError)
    if isinstance(error, exceptions.BotoCoreError) and not isinstance(error, network):
        return ConfigError(f"{what}: {text}")  # settings, parameters, credential providers
    refused_for_good = (exceptions.SSLError, ClientSSLError)  # a certificate that is refused once is refused again
    return StoreError(f"{what}: {text}", key=key, retryable=not isinstance(error, refused_for_good))
