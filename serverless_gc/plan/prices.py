"""What AWS charges, in one table with a source for every number. Dollars before tax, on demand, without the free tier.

Sources are the files of AWS's own price list. They were not fetched for this table: the numbers are those that public
documents, found in December 2026, quote from them, with the date that these give. `Source.confirmed` is False where no
such quotation was found and the number is from memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from serverless_gc.errors import InputError

__all__ = ["AS_OF", "PRICES", "SOURCES", "Prices", "Source", "prices_of", "sources_of"]

AS_OF = "2026-12"
"""Month of the table. Prices change: look at `SOURCES`, and give a `Prices` of your own where they differ."""

_NAMES = ("gb_second", "invocation", "put", "get", "gb_month", "transfer_gb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of one region in dollars.

    Attributes
    ----------
    gb_second
        One gibibyte of function memory for one second, billed by the millisecond; of the first tier, as the others.
    invocation
        One Lambda request.
    put, get
        One S3 request that writes or lists, and any other one; deletions are free.
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
        for name in _NAMES:
            if not getattr(self, name) >= 0:
                raise InputError(f"price {name} must be at least 0 dollars, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a price can be looked up.

    Attributes
    ----------
    address
        Of AWS's price list for the service and region.
    date
        When the list was published or read, by whoever quotes it; when the number was looked for if it is not
        confirmed, or the quotation is not dated.
    confirmed
        Whether the number was found.
    """

    address: str
    date: str
    confirmed: bool = True


_LOOKED = "2026-12-01"
_LIST = "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/{offer}/current/{region}/index.json"
_OFFERS = {"lambda": "AWSLambda", "s3": "AmazonS3", "transfer": "AWSDataTransfer"}
_READ: dict[str, dict[str, str]] = {
    "us-east-1": {
        **dict.fromkeys(("arm64", "x86_64", "invocation"), "2026-09-19"),
        "s3": "2026-09-28",
        "transfer": "2026-09-16",
    },
    "us-east-2": {
        **dict.fromkeys(("arm64", "x86_64", "invocation"), "2026-08-11"),
        "s3": "2026-09-26",
        "transfer": "2026-09-16",
    },
    "us-west-2": {"arm64": _LOOKED, **dict.fromkeys(("x86_64", "invocation"), "2026-10-04"), "s3": "2026-09-21"},
    "eu-west-1": dict.fromkeys(("x86_64", "invocation", "s3"), "2026-09-11"),
    "eu-central-1": {
        **dict.fromkeys(("arm64", "x86_64"), "2026-10-09"),
        "invocation": "2026-09-11",
        **dict.fromkeys(("s3", "transfer"), "2026-08-31"),
    },
}
"""Region to what was found of it, and the date given; what is missing was not found."""

_ASKED = {"invocation": "lambda", "put": "s3", "get": "s3", "gb_month": "s3", "transfer_gb": "transfer"}


def _source(region: str, name: str, architecture: str) -> Source:
    service = _ASKED.get(name, "lambda")
    item = architecture if name == "gb_second" else name if name == "invocation" else service
    date = _READ[region].get(item)
    address = _LIST.format(offer=_OFFERS[service], region=region)
    return Source(address, date or _LOOKED, confirmed=date is not None)


_SECOND = {"arm64": 1.33334e-5, "x86_64": 1.66667e-5}
_MOST = {"invocation": 0.2e-6, "put": 5e-6, "get": 0.4e-6, "gb_month": 0.023, "transfer_gb": 0.09}
_FRANKFURT = {"invocation": 0.2e-6, "put": 5.4e-6, "get": 0.43e-6, "gb_month": 0.0245, "transfer_gb": 0.09}

SOURCES: dict[tuple[str, str], Mapping[str, Source]] = {
    (region, architecture): {name: _source(region, name, architecture) for name in _NAMES}
    for region in _READ
    for architecture in _SECOND
}
"""Region and architecture to the source of each price, by its name in `Prices`."""


PRICES: dict[tuple[str, str], Prices] = {
    (region, architecture): Prices(
        gb_second=_SECOND[architecture],
        **(_FRANKFURT if region == "eu-central-1" else _MOST),
    )
    for region, architecture in SOURCES
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
            "and x86_64. Give prices=Prices(...) from https://aws.amazon.com/lambda/pricing/ and "
            "https://aws.amazon.com/s3/pricing/"
        )
    return found


def sources_of(region: str, architecture: str = "arm64") -> Mapping[str, Source]:
    """Return where each price of a region is from; errors as for `prices_of`.

    Examples
    --------
    >>> sources_of("eu-central-1")["put"].date
    '2026-08-31'
    >>> sources_of("eu-west-1")["transfer_gb"].confirmed
    False
    """
    prices_of(region, architecture)
    return SOURCES[region, architecture]
