"""S3 and Lambda on this machine: the whole of backend ``"aws"`` without an account, a network or a patched client.

S3 is moto's server; Lambda is `serverless_gc.testing.lambda_endpoint`, which runs the real worker in a process of its
own. Clients find both by the variables that AWS defines for it.
"""

from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from serverless_gc.errors import InputError
from serverless_gc.testing.lambda_endpoint import WORKER, Counts, LambdaEndpoint, Step
from serverless_gc.testing.moto_server import MOTO_ENVIRONMENT, moto_server

__all__ = ["OfflineAws", "offline_aws"]


@dataclass(frozen=True, slots=True)
class OfflineAws:
    """Running stand-ins for S3 and Lambda.

    Attributes
    ----------
    s3_url
        Where S3 listens, on 127.0.0.1.
    bucket, function
        The bucket and the function that exist.
    endpoint
        The stand-in for Lambda.
    """

    s3_url: str
    bucket: str
    function: str
    endpoint: LambdaEndpoint

    @property
    def lambda_url(self) -> str:
        """Where Lambda listens, on 127.0.0.1."""
        return self.endpoint.url

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables by which AWS clients and ``Session("aws")`` find everything."""
        return {
            **_client_environment(self.s3_url),
            "AWS_ENDPOINT_URL_LAMBDA": self.lambda_url,
            "SERVERLESS_GC_BUCKET": self.bucket,
            "SERVERLESS_GC_FUNCTION": self.function,
        }

    @contextlib.contextmanager
    def activated(self) -> Iterator[None]:
        """Put `environment` in place of this process's AWS and serverless_gc variables while the block runs."""
        saved = _taken_out(self.environment)
        try:
            os.environ.update(self.environment)
            yield
        finally:
            _taken_out(self.environment)
            os.environ.update(saved)

    def counts(self) -> Counts:
        """Read how often the function was asked for and ran."""
        return self.endpoint.counts(self.function)

    def script(self, *steps: Step) -> None:
        """Say what happens to the function's next requests, in place of what was said before."""
        self.endpoint.script(self.function, *steps)


@contextlib.contextmanager
def offline_aws(
    *,
    bucket: str = "offline",
    function: str = "serverless-gc",
    handler: str = WORKER,
    concurrency: int = 1000,
    timeout: float = 900.0,
    threads: int = 2,
    activate: bool = True,
) -> Iterator[OfflineAws]:
    """Run S3 and Lambda on this machine while the block runs.

    Inside, ``Session("aws")`` uses them, in this process and in its children. Both servers end with the block, and
    also when this process dies. Each call has servers of its own, so test processes may run side by side.

    Parameters
    ----------
    bucket
        A bucket to make.
    function
        Name of the function.
    handler
        What the function runs, ``"module:function"``; the real worker by default.
    concurrency
        Invocations that the account admits at once; more are answered 429.
    timeout
        Seconds that the function may run.
    threads
        How many invocations really run at once; more are needed where workers sleep on purpose.
    activate
        Whether to set the environment (see `OfflineAws.activated`); otherwise nothing of this process is changed.

    Yields
    ------
    OfflineAws

    Raises
    ------
    RuntimeError, ConfigError
        If a server does not start; it needs the packages of ``pip install serverless-gc[test]``.

    Examples
    --------
    >>> import numpy as np, serverless_gc as sgc
    >>> X, w = np.arange(12.0).reshape(6, 2), np.ones(2)
    >>> with offline_aws() as aws, sgc.Session("aws") as s:
    ...     g = s.encode(X, np.zeros(6), code="uncoded", n_workers=3).gradient(w)
    ...     print(np.allclose(g, X.T @ (X @ w)), aws.counts().runs)
    True 6
    """
    with moto_server() as s3_url:
        _make_bucket(s3_url, bucket)
        endpoint = LambdaEndpoint(
            {function: handler},
            concurrency=concurrency,
            timeout=timeout,
            threads=threads,
            environment=_client_environment(s3_url),
        )
        with endpoint, contextlib.ExitStack() as stack:
            aws = OfflineAws(s3_url, bucket, function, endpoint)
            if activate:
                stack.enter_context(aws.activated())
            yield aws


def _make_bucket(s3_url: str, bucket: str) -> None:
    with contextlib.closing(http.client.HTTPConnection(urlsplit(s3_url).netloc, timeout=30.0)) as connection:
        connection.request("PUT", f"/{bucket}")
        status = connection.getresponse().status
    if status != 200:
        raise InputError(f"bucket must be a name that S3 accepts, got {bucket!r} (answer {status})")


def _taken_out(names: Collection[str]) -> dict[str, str]:
    """Take these variables, and all that configure AWS clients or this package, out of the environment."""
    configuring = ("AWS_", "SERVERLESS_GC_")
    taken = [name for name in os.environ if name.startswith(configuring) or name in names]
    return {name: os.environ.pop(name) for name in taken}


def _client_environment(s3_url: str) -> dict[str, str]:
    return {
        **MOTO_ENVIRONMENT,
        "AWS_ENDPOINT_URL_S3": s3_url,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "SERVERLESS_GC_CONFIG": os.devnull,
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1"),
    }
