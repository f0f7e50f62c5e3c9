"""What S3 answered, in this package's words: which error, worth a repeat or not, and what to do next."""

from __future__ import annotations

from typing import Any

from serverless_gc.errors import ConfigError, ObjectNotFound, ServerlessGCError, StoreError

__all__ = ["RETRYABLE_CODES", "from_client_error", "from_transport_error"]

RETRYABLE_CODES = frozenset(
    {"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "OperationAborted", "Throttling"}
)
_RETRYABLE_STATUS = frozenset({429, 500, 502, 503, 504})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_BAD_CREDENTIALS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidClientTokenId"})
_DENIED = frozenset({"AccessDenied", "AllAccessDisabled", "403", "Forbidden"})
_ELSEWHERE = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "301", "TemporaryRedirect"})


def from_client_error(error: Any, *, operation: str, bucket: str, key: str) -> ServerlessGCError:
    """Translate botocore's ``ClientError``."""
    answer = error.response
    code = str(answer.get("Error", {}).get("Code", ""))
    metadata = answer.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    what = f"S3 answered {status} {code} to {operation} in bucket {bucket!r}"
    if key:
        what += f", key {key!r}"
    if code == "NoSuchKey" or (code == "404" and key):
        return ObjectNotFound(f"{what}: no such object", key=key, status=status)
    if code in {"NoSuchBucket", "404"}:
        return ConfigError(f"{what}: no such bucket; make it with 'aws s3 mb s3://{bucket}', or name another")
    if code in _EXPIRED:
        return ConfigError(f"{what}: the credentials have expired; renew them ('aws sso login') and run again")
    if code in _BAD_CREDENTIALS:
        return ConfigError(f"{what}: S3 does not accept the credentials; see 'aws sts get-caller-identity'")
    if code in _ELSEWHERE:
        region = metadata.get("HTTPHeaders", {}).get("x-amz-bucket-region", "")
        return ConfigError(
            f"{what}: the bucket is in {region or 'another region'}; give the store that region "
            f"(see 'aws s3api get-bucket-location --bucket {bucket}')"
        )
    if code in _DENIED:
        return ConfigError(
            f"{what}: not allowed; the policy must grant s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket "
            f"(see 'aws sts get-caller-identity' for who asks)"
        )
    retryable = status in _RETRYABLE_STATUS or code in RETRYABLE_CODES
    words = answer.get("Error", {}).get("Message", "")
    return StoreError(f"{what}: {words}", key=key, retryable=retryable, status=status)


def from_transport_error(error: Exception, *, operation: str, bucket: str, key: str) -> ServerlessGCError:
    """Translate what went wrong before or after S3 answered: credentials, name lookup, connection, body."""
    from botocore import exceptions

    what = f"{operation} in bucket {bucket!r}" + (f", key {key!r}" if key else "")
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return ConfigError(f"{what}: no AWS credentials found ({error}); run 'aws configure' or 'aws sso login'")
    if isinstance(error, exceptions.NoRegionError):
        return ConfigError(f"{what}: no region; give the store one or set AWS_REGION")
    network = (exceptions.HTTPClientError, exceptions.ConnectionError, exceptions.IncompleteReadError)
    if isinstance(error, exceptions.BotoCoreError) and not isinstance(error, network):
        return ConfigError(f"{what}: {text}")  # settings, parameters, credential providers
    return StoreError(f"{what}: {text}", key=key, retryable=not isinstance(error, exceptions.SSLError))
