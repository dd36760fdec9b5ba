"""What the driver of a query says of its application, as one value. Pure.

A checkpoint tells none of it. Who knows the cores of a query, in the order in which they are
believed:

    option    whoever runs the command (`--cores`)
    driver    the page of the driver
    query     the query itself, where its job runs it with `stateshift.job`
    spec      `conf` of the submission in the spec: what was asked for
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CoresSource = Literal["option", "driver", "query", "spec"]


@dataclass(frozen=True, slots=True)
class DriverReport:
    """A look at a driver. Rates are records a second, over the last trigger; they and the figures
    behind them are None unless `spark.sql.streaming.metricsEnabled` is true.
    """

    application: str
    executors: int
    cores: int
    input_rate: float | None = None
    processing_rate: float | None = None
    batch_seconds: float | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
