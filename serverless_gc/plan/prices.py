"""What AWS charges, in one dated table. Dollars before tax, on demand, without the free tier."""

from __future__ import annotations

from dataclasses import dataclass

from serverless_gc.errors import InputError

__all__ = ["AS_OF", "PRICES", "SOURCES", "Prices", "prices_of"]

AS_OF = "2026-11"
"""Month of the table. Prices change: look at `SOURCES`, and give a `Prices` of your own where they differ.

Compared with AWS's price lists of 2026-08 and 2026-09 as others quote them (S3: usage types ``TimedStorage-ByteHrs``,
``Requests-Tier1`` and ``Requests-Tier2`` of us-east-1 and eu-central-1; Lambda: the first tier of either architecture;
transfer: the first 10 TB). Volume discounts are left out. The lists themselves are at
``https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonS3/current/region_index.json``.
"""

SOURCES = {
    "lambda": "https://aws.amazon.com/lambda/pricing/",
    "s3": "https://aws.amazon.com/s3/pricing/",
    "transfer": "https://aws.amazon.com/ec2/pricing/on-demand/#Data_Transfer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of one region in dollars.

    Attributes
    ----------
    gb_second
        One gibibyte of function memory for one second, billed by the millisecond.
    invocation
        One Lambda request.
    put, get
        One S3 request that writes or lists, and one that reads.
    gb_month
        A gibibyte kept in S3 Standard for a month.
    transfer_gb
        A gibibyte sent from the region to the internet: to a driver that runs elsewhere.
    """

    gb_second: float
    invocation: float
    put: float
    get: float
    gb_month: float
    transfer_gb: float

    def __post_init__(self) -> None:
        for name in ("gb_second", "invocation", "put", "get", "gb_month", "transfer_gb"):
            if not getattr(self, name) >= 0:
                raise InputError(f"price {name} must be at least 0 dollars, got {getattr(self, name)}")


_ARM, _X86 = 1.33334e-5, 1.66667e-5
_MOST = {"invocation": 0.2e-6, "put": 5e-6, "get": 0.4e-6, "gb_month": 0.023, "transfer_gb": 0.09}
_FRANKFURT = {"invocation": 0.2e-6, "put": 5.4e-6, "get": 0.43e-6, "gb_month": 0.0245, "transfer_gb": 0.09}

PRICES: dict[tuple[str, str], Prices] = {
    (region, architecture): Prices(gb_second=second, **rest)
    for region, rest in {
        "us-east-1": _MOST,
        "us-east-2": _MOST,
        "us-west-2": _MOST,
        "eu-west-1": _MOST,
        "eu-central-1": _FRANKFURT,
    }.items()
    for architecture, second in {"arm64": _ARM, "x86_64": _X86}.items()
}
"""Region and architecture to prices."""


def prices_of(region: str, architecture: str = "arm64") -> Prices:
    """Return the prices of a region.

    Raises
    ------
    InputError
        If the table has none; says which it has.

    Examples
    --------
    >>> prices_of("us-east-1", "x86_64").gb_second
    1.66667e-05
    """
    found = PRICES.get((region, architecture))
    if found is None:
        known = sorted({region for region, _ in PRICES})
        raise InputError(
            f"no prices are known for {region!r} and {architecture!r}; there are {', '.join(known)}, each for arm64 "
            f"and x86_64. Give prices=Prices(...) from {SOURCES['lambda']} and {SOURCES['s3']}"
        )
    return found
