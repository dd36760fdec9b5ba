"""A look at the driver of a query of Spark, over its page (http://driver:4040).

    /api/v1/applications                    [{"id": APP, …}]: a driver has one
    /api/v1/applications/APP/executors      [{"id", "totalCores", …}]; with a local master, the
                                            driver is its only executor
    /api/v1/applications/APP/jobs           [{"description":
                                              "NAME\\nid = QUERY\\nrunId = …\\nbatch = N"}]
    /metrics/json/                          {"gauges": {PREFIX.GAUGE: {"value": …}}}, where PREFIX
                                            ends in .driver.spark.streaming.<NAME or QUERY>

The id of the query is in its checkpoint. A driver that knows no such query is another one's: a port
is soon taken again. One that has run it lists its jobs for long. The query runs elsewhere once a
batch was committed that is later than all of these. Its gauges are there with
`spark.sql.streaming.metricsEnabled` alone.

Source: Spark 3.3 to 4.3, MetricsReporter, StreamExecution.getDescriptionString, api.scala.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from stateshift.advise.evaluate.spark_batches import DriverReport
from stateshift.clusters.http import Json, Service
from stateshift.clusters.redaction import redact
from stateshift.errors import ClusterError

REQUEST_SECONDS: Final = 10.0
_WORDS, _EXAMPLE = "a Spark driver's page", "http://driver:4040"
# Without the slash at its end, a driver answers with a redirect.
METRICS: Final = "/metrics/json/"
# Spark counts cores by an Int.
CORES_MAX: Final = 2**31 - 1
_PREFIX: Final = ".driver.spark.streaming."


@dataclass(frozen=True)
class Driver:
    """The page of a driver. `ca_file` holds the authority of its certificate, if it is https."""

    url: str
    ca_file: str | None = None

    def report(self, query: str, committed: int) -> DriverReport:
        """Return the driver's report on the query of this id, and on its application. `committed`
        is the newest batch that the checkpoint has committed.

        Raises:
            ClusterError: it does not answer as a driver does, or it runs no such query.
        """
        application = self._application()
        below = f"/api/v1/applications/{quote(application)}"
        try:
            metrics = self._service.json("GET", f"{self.url.rstrip('/')}{METRICS}")
        except ClusterError:  # their page is switched off, or somewhere else
            metrics = {}
        gauges = gauges_of(query, metrics)
        if not gauges:
            name = self._name_of(query, committed, self._list(f"{below}/jobs"))
            gauges = gauges_of(name, metrics)
        executors = self._list(f"{below}/executors")
        cores: list[int] = []
        for executor in executors:
            count = _number(executor.get("totalCores"))
            if count is None or count > CORES_MAX:
                raise self._odd("lists executors in a way that Spark does not")
            cores.append(int(count))
        cores = [count for count in cores if count > 0]
        took_ms = gauges.get("latency")
        return DriverReport(
            application=application,
            executors=len(cores),
            cores=sum(cores),
            input_rate=gauges.get("inputRate-total"),
            processing_rate=gauges.get("processingRate-total"),
            batch_seconds=None if took_ms is None else took_ms / 1000,
            state_rows=_count(gauges.get("states-rowsTotal")),
            state_bytes=_count(gauges.get("states-usedBytes")),
        )

    def _application(self) -> str:
        applications = self._list("/api/v1/applications")
        if len(applications) != 1:
            raise self._odd(f"tells of {len(applications)} applications, and a driver has one")
        id = str(applications[0].get("id"))
        if not id.isprintable():
            raise self._odd("tells of an application that no Spark names so")
        return id

    def _name_of(self, query: str, committed: int, jobs: list[Json]) -> str:
        """Return the name of a query, by the description of its jobs; empty if it has none."""
        id, batch = re.escape(query), r"batch = ([0-9]{1,18})\b"
        described = re.compile(rf"(?:(.*?)(?:\n|<br/>))?id = {id}\b(?:.*{batch})?", re.DOTALL)
        matches = [described.match(str(job.get("description"))) for job in jobs]
        of_query = [match for match in matches if match is not None]
        driver = f"the driver at {redact(self.url)}"
        if not of_query:
            raise self._error(f"{driver}: none of the jobs that it still lists is of query {query}")
        last = max((int(match[2]) for match in of_query if match[2]), default=committed)
        if last < committed:
            fact = f"has run no batch of query {query} since {last}, and {committed} is committed"
            raise self._error(f"{driver} {fact}")
        return of_query[0][1] or ""

    def _list(self, path: str) -> list[Json]:
        listed = self._service.listed("GET", f"{self.url.rstrip('/')}{path}")
        if not all(isinstance(item, dict) for item in listed):
            raise self._odd(f"lists in {path} what Spark does not")
        return listed

    @property
    def _service(self) -> Service:
        options: dict[str, object] = {"request_seconds": REQUEST_SECONDS}
        if self.ca_file is not None:
            options["ca_file"] = self.ca_file
        return Service(self.url, _WORDS, _EXAMPLE, "message", {}, options, {}, option="driver_ui")

    def _odd(self, fact: str) -> ClusterError:
        return self._service.odd(self.url, fact)

    def _error(self, fact: str) -> ClusterError:
        return ClusterError(fact, cluster=self.url)


def gauges_of(name: str, metrics: Json) -> dict[str, float]:
    """Return the gauges of the query of this name or id that are numbers."""
    gauges = metrics.get("gauges")
    if not name or not isinstance(gauges, Mapping):
        return {}
    numbers = {}
    for key, gauge in gauges.items():
        prefix, _, what = str(key).rpartition(".")
        value = _number(gauge.get("value")) if isinstance(gauge, Mapping) else None
        if prefix.endswith(f"{_PREFIX}{name}") and value is not None:
            numbers[what] = value
    return numbers


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def _number(value: object) -> float | None:
    """Return a number, if it is one: Spark writes "NaN" as a text."""
    if not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
