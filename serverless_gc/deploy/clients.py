"""boto3 clients for control calls, and what AWS's refusals mean in this package's words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from serverless_gc.errors import ConfigError

__all__ = ["Aws", "advice_for", "code_of", "explained", "message_of"]

_STALE = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
_UNKNOWN = frozenset({"InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "AuthFailure"})
_SIGNATURE = frozenset({"SignatureDoesNotMatch", "InvalidSignatureException", "RequestTimeTooSkewed"})
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"})


class Aws:
    """One account in one region; clients are made when first asked for.

    Parameters
    ----------
    region
        By default what the profile or ``AWS_DEFAULT_REGION`` says, or ``AWS_REGION``.

    Raises
    ------
    ConfigError
        If there is no region, or the named profile does not exist.
    """

    def __init__(self, region: str | None = None) -> None:
        import boto3
        from botocore.exceptions import BotoCoreError

        try:
            self._session: Any = boto3.session.Session()
            found = region or self._session.region_name or os.environ.get("AWS_REGION")
        except BotoCoreError as error:
            raise ConfigError(f"the AWS configuration cannot be used: {error}. See 'aws configure list'") from error
        if not found:
            raise ConfigError("no region: pass --region, or set AWS_REGION or 'aws configure set region eu-west-1'")
        self.region: str = found
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """Return the client of one service."""
        if service not in self._clients:
            from botocore.config import Config

            # An endpoint on this machine has no host per bucket, and no certificate for one.
            own = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
            config = Config(
                connect_timeout=10,
                retries={"mode": "standard", "total_max_attempts": 4},
                s3={"addressing_style": "path"} if own else None,
            )
            self._clients[service] = self._session.client(service, region_name=self.region, config=config)
        return self._clients[service]

    def close(self) -> None:
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def code_of(error: Exception) -> str:
    """Return the service's own code of an error, such as ``AccessDenied``; empty if it has none."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def message_of(error: Exception) -> str:
    """Return what the service said, in one line."""
    said = str(getattr(error, "response", {}).get("Error", {}).get("Message", "") or error)
    first = said.strip().partition("\n")[0]
    return first.rstrip(".") or type(error).__name__


def advice_for(error: Exception) -> str:
    """Return the next step after an error of credentials, rights or network; empty where none is known."""
    from botocore import exceptions

    code = code_of(error)
    if code in _STALE:
        return "The credentials have expired: renew them ('aws sso login') and run again"
    if code in _UNKNOWN:
        return "AWS does not know the credentials: see 'aws sts get-caller-identity'"
    if code in _SIGNATURE:
        return "The secret key is wrong, or this machine's clock is"
    if code in _DENIED:
        return "Ask an administrator for this right; infra/README.md lists what each command needs"
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return "Run 'aws configure' or 'aws sso login'"
    if isinstance(error, (exceptions.EndpointConnectionError, exceptions.ConnectTimeoutError)):
        return "Check the network, the region's name, HTTPS_PROXY and AWS_ENDPOINT_URL"
    return ""


@contextmanager
def explained(doing: str) -> Iterator[None]:
    """Turn what boto3 raises into a `ConfigError` that says what was being done and what to do.

    Raises
    ------
    ConfigError
        If the block meets an error of AWS or of the network.
    """
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError  # something else answered in AWS's place

    try:
        yield
    except (BotoCoreError, ClientError, Boto3Error, ResponseParserError) as error:
        code = code_of(error)
        answer = f"{code}: {message_of(error)}" if code else message_of(error)
        advice = advice_for(error)
        raise ConfigError(f"{doing}: {answer}." + (f" {advice}." if advice else "")) from error
