"""A run for the collectors that the environment names: spans and metrics of OpenTelemetry (`otel`),
events of OpenLineage (`lineage`). Nothing is imported for it, and nothing is sent, unless it names
one.

All send in the background, and get SECONDS_AT_END at the end. A collector that is slow, wrong or
not there makes one warning, as an error of ours does here; the run is the same.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Literal

from stateshift.journal import Record, decode_records
from stateshift.logs import clean
from stateshift.migration.context import RunContext
from stateshift.migration.lineage import RunLineage, collector_of

if TYPE_CHECKING:
    from stateshift.migration.otel import RunMetrics, RunSpans

Signal = Literal["TRACES", "METRICS"]

SECONDS_AT_END = 4.0
HTTP = "http/protobuf"
_OF_RUN = re.compile(rb'"kind":"(?:run|rollback)-')

_log = logging.getLogger(__name__)


class Telemetry:
    """Sends what happens in a run meanwhile, and its end. An error ends the sender that has it."""

    def __init__(self, context: RunContext) -> None:
        self._run, self._failed = context, set[str]()
        self._senders = list["RunSpans | RunMetrics | RunLineage"]()
        self._spans = list["RunSpans"]()
        self._unsaid: list[str] = []

    def __enter__(self) -> None:
        self._guard("traces", self.open_spans)
        self._guard("metrics", self.open_metrics)
        self._guard("lineage events", self.open_lineage)
        self._warn()
        self._run.journal.followers.append(self.follow)

    def __exit__(self, _kind: object, ended_by: BaseException | None, _trace: object) -> None:
        self._run.journal.followers.clear()
        until = time.monotonic() + SECONDS_AT_END
        for each in self._senders:
            self._guard(each.name, partial(each.close, ended_by))
        for each in self._senders:
            self._guard(each.name, partial(each.unsent, max(0.0, until - time.monotonic())))
        self._warn()

    def follow(self, record: Record) -> None:
        for each in self._spans:
            self._guard(each.name, partial(each.follow, record))

    def _guard(self, name: str, call: Callable[[], str | None]) -> None:
        if name in self._failed:
            return
        try:
            why = call()
        except Exception as error:
            why = clean(str(error)) or type(error).__name__
            _log.debug("an error ends the %s", name, exc_info=True)
        if why:
            self._failed.add(name)
            self._unsaid.append(f"not all {name} are sent: {why}")

    def _warn(self) -> None:
        """Warn, but never while the journal waits: whoever hears it may block, or raise."""
        while self._unsaid:
            with suppress(Exception):
                self._run.say(self._unsaid.pop(0))

    def open_spans(self) -> None:
        if is_asked("TRACES", os.environ):
            with _sdk_needed():
                from stateshift.migration.otel import RunSpans
            self._spans.append(RunSpans(self._run, self._records()))
            self._senders += self._spans

    def open_metrics(self) -> None:
        if is_asked("METRICS", os.environ):
            with _sdk_needed():
                from stateshift.migration.otel import RunMetrics
            self._senders.append(RunMetrics(self._run))

    def open_lineage(self) -> None:
        collector = collector_of(os.environ)
        if collector is not None and not self._run.progress.rehearses:
            self._senders.append(RunLineage(collector, self._run, self._records()))

    def _records(self) -> list[Record]:
        """Return the records of the run itself: those of 100,000 steps take seconds to read."""
        lines = self._run.workdir.lines.read().splitlines(keepends=True)
        return decode_records(b"".join(filter(_OF_RUN.search, lines)))[0]


@contextmanager
def _sdk_needed() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ValueError("its SDK is missing: pip install 'stateshift[otel]'") from error


def is_asked(signal: Signal, environment: Mapping[str, str]) -> bool:
    """Whether the environment asks for a signal, by the variables that OpenTelemetry documents. It
    is a ValueError if it asks for what is not sent here.
    """
    given = {name: value.strip() for name, value in environment.items() if value.strip()}
    endpoints = {"OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"}
    unset = "none" if endpoints.isdisjoint(given) else "otlp"
    exporters = given.get(f"OTEL_{signal}_EXPORTER", unset).replace(" ", "")
    if given.get("OTEL_SDK_DISABLED", "").lower() == "true" or exporters == "none":
        return False
    if "otlp" not in exporters.split(","):
        raise ValueError(f"OTEL_{signal}_EXPORTER is {exporters}; otlp alone is known here")
    protocol = given.get("OTEL_EXPORTER_OTLP_PROTOCOL", HTTP)
    protocol = given.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", protocol)
    if protocol != HTTP:
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}; {HTTP} alone is known here")
    return True
