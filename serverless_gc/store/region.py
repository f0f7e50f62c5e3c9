"""In which region a bucket is, asked before anything is written."""

from __future__ import annotations

import os
from urllib.parse import parse_qs, quote, urlsplit

from serverless_gc.errors import ConfigError

__all__ = ["bucket_region", "check_region"]

_SECONDS = 5.0


async def bucket_region(bucket: str, region: str, endpoint: str = "") -> str:
    """Return the region that S3 names for a bucket, or an empty string if it does not say.

    S3 puts it into the header of any answer to anybody, so the request needs neither rights nor a signature.
    """
    import aiohttp

    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    url = f"{endpoint.rstrip('/') or f'https://s3.{region}.{suffix}'}/{quote(bucket)}"
    try:
        async with (
            aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(_SECONDS)) as session,
            session.head(url, allow_redirects=False) as answer,
        ):
            return answer.headers.get("x-amz-bucket-region", "")
    except (aiohttp.ClientError, TimeoutError, OSError):
        return ""  # whatever is wrong, the first request that matters says it better


async def check_region(store_url: str) -> None:
    """Refuse a store whose bucket is elsewhere: every block would cross regions, slowly and for money.

    Parameters
    ----------
    store_url
        `Store.url`; those that are not ``s3://`` pass.

    Raises
    ------
    ConfigError
        If the bucket is in another region than the URL says.
    """
    parts = urlsplit(store_url)
    fields = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    region = fields.get("region", "")
    if parts.scheme != "s3" or not region:
        return
    own = fields.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    found = await bucket_region(parts.netloc, region, own)
    if found and found != region:
        raise ConfigError(
            f"bucket {parts.netloc} is in {found}, but function and session are in {region}: nothing was uploaded. "
            f"Set SERVERLESS_GC_REGION={found} if the function is there as well, or make a bucket and function in "
            f"{region} with: serverless-gc deploy --region {region}"
        )
