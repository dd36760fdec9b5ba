"""A run for OpenTelemetry: its records as spans, each sent soon after the journal has its end, and
its figures as metrics, sent every minute and at the end.

    stateshift apply              the work of one process on the run
      wave 1
        orders                    a job: bytes, files, entries; events for its downtime
          copy                    a phase of one of its plans
            copy-0001             a step: bytes, files

A span covers its children and ends with the last of them. A process that is killed sends no end of
what it was at; the trace of its resume links to the span that trace.json of the workdir names.

The metrics are those of `stateshift metrics`, by the same names and from the same function, as far
as they are of jobs. Their labels are attributes as those of spans are: `stateshift.job`. Without
that a collector would take `job` for the service.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, Span, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from stateshift import __version__, journal
from stateshift.clusters.redaction import secret_values
from stateshift.errors import StateshiftError
from stateshift.journal import PlanProgress, Record
from stateshift.logs import clean
from stateshift.migration.context import RunContext
from stateshift.migration.wave_order import waves
from stateshift.report import summarize

INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
TRACE = "trace.json"
# Wave, job, plan, phase, step: one, two, four or all of them; the run's own is empty.
Key = tuple[int | str, ...]
WAVE, JOB, PHASE, STEP = 1, 2, 4, 5

_log = logging.getLogger(__name__)
_traceparent = TraceContextTextMapPropagator()


class _Exporter(OTLPSpanExporter):
    """OTLP, as the environment says; counts the spans that the collector took."""

    taken = 0

    def __init__(self) -> None:
        super().__init__(session=_session())

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is SpanExportResult.SUCCESS:
            self.taken += len(spans)
        return result


def _session() -> requests.Session:
    session = requests.Session()
    session.max_redirects = 0  # else the SDK takes a redirect for success
    return session


class _ToOurLog(logging.Handler):
    """Keeps the SDK's complaints off a terminal, and in the log of the run."""

    def emit(self, record: logging.LogRecord) -> None:
        said, ours = unquote(self.format(record)), "OTEL_EXPORTER_OTLP_"
        values = [value for name, value in os.environ.items() if name.startswith(ours)]
        for part in re.split(r"[,=\s]+", unquote(" ".join(values))):
            if len(part) > 3:  # of a header, or a URL: it quotes what it cannot use
                said = said.replace(part, "***")
        _log.debug("%s: %s", record.name, said)


logging.getLogger("opentelemetry").addHandler(_ToOurLog())


def _resource() -> Resource:
    ours = Resource.create({"service.name": "stateshift", "service.version": __version__})
    return ours.merge(OTELResourceDetector().detect())  # the environment comes before that


def _without_secrets(secrets: Collection[str], text: str) -> str:
    """Return a text without secrets, which UTF-8 can hold: names of files need not."""
    for value in secrets:
        text = text.replace(value, "***")
    return clean(text).encode("utf-8", "backslashreplace").decode()


class RunSpans:
    """The spans of one process's work on a run."""

    name = "traces"

    def __init__(self, context: RunContext, records: Sequence[Record]) -> None:
        self._run, self._last = context, context.now()
        self._clean = partial(_without_secrets, secret_values(os.environ))
        self._waves: dict[str, int] = {}
        for number, wave in enumerate(waves(context.spec, context.progress.jobs), 1):
            self._waves |= dict.fromkeys((job.name for job in wave), number)
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._exporter, self._ended = _Exporter(), 0
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("stateshift", __version__)
        self._sending = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        verb = "rollback"
        if context.progress.state != "rolling-back":
            is_resumed = any(isinstance(each, journal.RunResumed) for each in records)
            verb = "resume" if is_resumed else "apply"
        # The spans that have not ended, and the last times that were heard of them.
        self._open: dict[Key, Span] = {(): self._begin_run(verb)}
        self._until: dict[Key, float] = {(): self._last}

    def _begin_run(self, verb: str) -> Span:
        """Begin the span of the run, and leave it to the next attempt, which links to it."""
        workdir = self._run.workdir
        before: object = None
        with suppress(StateshiftError):
            before = workdir.read(TRACE)
        last = _traceparent.extract(before if isinstance(before, dict) else {}, Context())
        link = Link(get_current_span(last).get_span_context())
        above = {name.lower(): os.environ.get(name, "") for name in ("TRACEPARENT", "TRACESTATE")}
        root = self._tracer.start_span(
            f"stateshift {verb}",
            context=_traceparent.extract(above, Context()),
            attributes=self._attributes(
                run=self._run.progress.run,
                workdir=str(workdir.path.absolute()),
                host=self._run.adapters.host,
            ),
            links=[link] if link.context.is_valid else [],
            start_time=_nanoseconds(self._last),
        )
        carrier: dict[str, str] = {}
        _traceparent.inject(carrier, set_span_in_context(root))
        with suppress(StateshiftError):  # then the next attempt has no link
            workdir.write(TRACE, carrier)
        return root

    def follow(self, record: Record) -> None:
        """Begin and end spans as the record says."""
        plans = self._run.progress.plans
        match record:
            case journal.PlanAdopted():
                self._begin_job(plans[record.plan], record.at)
            case journal.StepStarted():
                self._begin_step(plans[record.plan], record.phase, record.step, record.at)
            case journal.StepFinished():
                plan = plans[record.plan]
                key = (*self._key(plan), plan.steps[record.step].phase, record.step)
                if key in self._open:
                    done = self._attributes(bytes=record.bytes, files=record.files)
                    self._open[key].set_attributes(done)
                self._end(key, record.at)
            case journal.StepUndone():  # one after the other, each since the record before
                phase = f"undo {plans[record.plan].steps[record.step].phase}"
                key = self._begin_step(plans[record.plan], phase, record.step, self._last)
                self._end(key, record.at)
            case journal.PlanFinished() | journal.PlanUndone():
                self._end(self._key(plans[record.plan]))
            case journal.WaveGivenUp():
                self._fail(record.at, record.step, self._clean(record.message), record.jobs)
            case journal.RunFailed():
                self._fail(record.at, record.step, self._clean(record.message))
        self._last = record.at

    def _key(self, plan: PlanProgress) -> Key:
        """Return the beginning of the keys of a plan, which has no span of its own."""
        return (self._waves[plan.job], plan.job, plan.plan)

    def _begin_job(self, plan: PlanProgress, at: float) -> None:
        wave, job, _ = self._key(plan)
        self._begin((wave,), f"wave {wave}", at)
        self._begin((wave, job), plan.job, at, job=plan.job, engine=plan.engine, source=plan.source)

    def _begin_step(self, plan: PlanProgress, phase: str, step: str, at: float) -> Key:
        self._begin_job(plan, at)
        key = (*self._key(plan), phase)
        self._begin(key, phase, at, job=plan.job, plan=plan.plan, purpose=plan.purpose)
        self._begin((*key, step), step, at, job=plan.job, repeated=plan.steps[step].repeated)
        return (*key, step)

    def _fail(self, at: float, failed: str | None, why: str, jobs: Sequence[str] = ()) -> None:
        """End the steps under way: one may have failed, and cut the others off."""
        for key in list(self._open):
            if len(key) == JOB and key[1] in jobs:
                self._mark(key, why)
            if len(key) != STEP:
                continue
            self._mark(key, "not finished")
            if key[-1] == failed:
                for depth in range(1, STEP + 1):
                    self._mark(key[:depth], why)
            self._end(key, at)

    def close(self, ended_by: BaseException | None) -> None:
        """End all spans, and begin to send what is left."""
        now, report = self._run.now(), summarize(self._run.progress)
        self._fail(now, None, "")
        root, down = self._open[()], report.downtime_seconds
        root.set_attributes(self._attributes(state=report.state, downtime_seconds=down))
        if ended_by is not None:
            code, why = 1, type(ended_by).__name__
            if isinstance(ended_by, StateshiftError):
                code, why = ended_by.exit_code, ended_by.fact
            root.set_attributes(self._attributes(exit_code=code))
            self._mark((), self._clean(why))
        self._end((), now)
        self._sending.start()

    def unsent(self, seconds: float) -> str:
        """Wait so long; return why not all of it was sent."""
        self._sending.join(seconds)
        if self._sending.is_alive():
            return "the collector takes too long"
        lost = self._ended - self._exporter.taken
        return f"{lost} of {self._ended} spans are lost, WORKDIR/log says why" if lost else ""

    def _begin(self, key: Key, name: str, at: float, **values: str | float | None) -> None:
        """Begin a span below the nearest one that is open, unless it is open itself."""
        if key in self._open:
            return
        if len(key) in (WAVE, PHASE):  # these follow each other
            for each in list(self._open):
                if each and each[:-1] == key[:-1]:
                    self._end(each)
        depth = max(depth for depth in range(len(key)) if key[:depth] in self._open)
        self._open[key] = self._tracer.start_span(
            self._clean(name),
            context=set_span_in_context(self._open[key[:depth]]),
            attributes=self._attributes(**values),
            start_time=_nanoseconds(at),
        )
        self._until[key] = at

    def _mark(self, key: Key, why: str) -> None:
        if key in self._open:
            self._open[key].set_status(StatusCode.ERROR, why)

    def _end(self, key: Key, at: float | None = None) -> None:
        """End a span and all below it, deepest first; without a time, with the last of them."""
        if key in self._open and at is not None:
            self._until[key] = max(at, self._until[key])
        below = [each for each in self._open if each[: len(key)] == key]
        self._describe_jobs([each for each in below if len(each) == JOB])
        for each in sorted(below, key=len, reverse=True):
            span, until = self._open.pop(each), self._until.pop(each)
            self._ended += span.is_recording()  # else nobody wants to have it
            span.end(_nanoseconds(until))
            for above in (each[:depth] for depth in range(len(each))):
                if above in self._until:
                    self._until[above] = max(until, self._until[above])

    def _describe_jobs(self, keys: Collection[Key]) -> None:
        """Describe the end of these jobs alone: a run may have a thousand, in as many waves."""
        spans = {str(key[1]): self._open[key] for key in keys}
        progress = replace(self._run.progress, jobs=tuple(spans))
        reports = summarize(progress).jobs if spans else ()
        for job in reports:
            span, down = spans[job.job], job.downtime_seconds
            done = self._attributes(bytes=job.bytes, files=job.files, entries=job.entries)
            ends = self._attributes(target=self._run.job(job.job).target, state=job.state)
            span.set_attributes(done | ends | self._attributes(downtime_seconds=down))
            if job.downtime_start is not None:
                began = progress.began + job.downtime_start
                span.add_event("downtime begins", timestamp=_nanoseconds(began))
                if down is not None:
                    span.add_event("downtime ends", timestamp=_nanoseconds(began + down))

    def _attributes(self, **values: str | float | None) -> dict[str, str | float]:
        """Return the known ones of these, by names of ours, without secrets."""
        known: dict[str, str | float] = {}
        for name, value in values.items():
            if value is not None:
                known[f"stateshift.{name}"] = (
                    self._clean(value) if isinstance(value, str) else value
                )
        return known


class RunMetrics:
    """The figures of one process's work on a run, sent by a thread of their own."""

    name = "metrics"

    def __init__(self, context: RunContext) -> None:
        self._run = context
        self._clean = partial(_without_secrets, secret_values(os.environ))
        self._every = int(os.environ.get(INTERVAL, "").strip() or 60_000) / 1000
        if self._every <= 0:
            raise ValueError(f"{INTERVAL} is {os.environ[INTERVAL]}; it is more than 0")
        self._exporter = OTLPMetricExporter(session=_session())
        self._resource, self._scope = _resource(), InstrumentationScope("stateshift", __version__)
        self._over, self._why = threading.Event(), ""
        self._sending = threading.Thread(target=self._send_often, name="metrics", daemon=True)
        self._sending.start()

    def close(self, _ended_by: BaseException | None) -> None:
        """Begin to send the last figures."""
        self._over.set()

    def unsent(self, seconds: float) -> str:
        """Wait so long; return why the last figures were not sent."""
        self._sending.join(seconds)
        return "the collector takes too long" if self._sending.is_alive() else self._why

    def _send_often(self) -> None:
        is_over, why = False, ""
        lost = "the last ones are lost, WORKDIR/log says why"
        while not is_over:
            is_over = self._over.wait(self._every)
            try:
                result = self._exporter.export(self._measured(is_over))
            except Exception as error:  # the next ones may do better
                _log.debug("an error of the metrics", exc_info=True)
                why = self._clean(str(error)) or type(error).__name__
                continue
            why = "" if result is sdk.MetricExportResult.SUCCESS else lost
        self._why = why

    def _measured(self, is_over: bool) -> sdk.MetricsData:
        """Return the figures of now. Once it is over, no process is at work any more."""
        now, points = self._run.now(), dict[tuple[str, str], list[sdk.NumberDataPoint]]()
        measure, workdir = self._run.adapters.measure, self._run.workdir
        for gauge in measure(workdir, self._run.progress, not is_over, now):
            labels = {f"stateshift.{name}": self._clean(text) for name, text in gauge.labels}
            point = sdk.NumberDataPoint(labels, 0, _nanoseconds(now), gauge.value)
            points.setdefault((gauge.name, gauge.help), []).append(point)
        metrics = []
        for (name, about), values in points.items():
            # Without a unit: collectors append it to names, and these have theirs already.
            metrics.append(sdk.Metric(name, about, "", sdk.Gauge(values)))
        scope = sdk.ScopeMetrics(self._scope, metrics, "")
        return sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], "")])


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
