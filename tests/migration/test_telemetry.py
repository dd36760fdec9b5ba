"""Spans and metrics of OpenTelemetry and events of OpenLineage, as a collector on this machine gets them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from referencing import Registry, Resource

from stateshift import api
from stateshift.cli.commands.metrics import observe_run
from stateshift.documents.metrics import LABELS, families
from stateshift.errors import ClusterError, StateshiftError
from stateshift.journal import Progress, Record, StepStarted, decode_records
from stateshift.migration import calls, lineage, telemetry
from stateshift.migration.adapters import measure_nothing
from stateshift.migration.context import RunContext
from stateshift.migration.stages import run_wave
from stateshift.migration.telemetry import Signal, is_asked
from stateshift.migration.wave_order import Wave
from stateshift.report import Report, summarize
from stateshift.specification import Spec, parse_spec
from stateshift.workdir import Workdir
from tests.support.ground import SOURCE, TARGET, Ground, running_spec, spec_of
from tests.support.listening import listening
from tests.support.living import LivingGround

pytestmark = pytest.mark.row("W-32")

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "spark-4.3.0" / "window-hdfs" / "checkpoint"
# Copied from OpenLineage's repository at 8f02abfb (Apache 2.0): spec/ and spec/facets/.
SCHEMAS = [
    json.loads(path.read_text()) for path in (Path(__file__).parent / "openlineage").iterdir()
]
TRACE, CI_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CI_SPAN}-01"
OL_PARENT = "airflow://prod/nightly.move/3f5e83fa-3480-44ff-99c5-ff943904e5e8"


@dataclass
class Collector:
    """Whatever was sent to it; `status` is its answer, 0 is none."""

    status: int = 200
    url: str = ""
    spans: list[Span] = field(default_factory=list)
    resources: list[dict[str, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    figures: list[dict[tuple[str, ...], float]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    bodies: bytes = b""
    stolen: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def take(self, path: str, body: bytes) -> None:
        self.bodies += body
        if path == "/api/v1/lineage":
            self.events.append(json.loads(body))
            return
        if path == "/v1/metrics":
            self.figures.append({})
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                pairs = {each.key: each.value.string_value for each in measured.resource.attributes}
                self.resources.append(pairs)
                for metric in (each for scope in measured.scope_metrics for each in scope.metrics):
                    for point in metric.gauge.data_points:
                        labels = (each.value.string_value for each in point.attributes)
                        assert all(each.key.startswith("stateshift.") for each in point.attributes)
                        key = (metric.name.removeprefix("stateshift_job_"), *labels)
                        assert key not in self.figures[-1]
                        self.figures[-1][key] = point.as_double
            return
        assert path == "/v1/traces", path
        for sent in ExportTraceServiceRequest.FromString(body).resource_spans:
            pairs = {each.key: each.value.string_value for each in sent.resource.attributes}
            self.resources.append(pairs)
            for scope in sent.scope_spans:
                self.spans += scope.spans

    def span(self, name: str) -> Span:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def path(self, span: Span) -> tuple[str, ...]:
        """Return the names from the root to a span."""
        by_id = {each.span_id: each for each in self.spans}
        names = [span.name]
        while span.parent_span_id in by_id:
            span = by_id[span.parent_span_id]
            names.insert(0, span.name)
        return tuple(names)

    def told(self) -> list[tuple[str, str]]:
        return [(event["eventType"], event["run"]["runId"]) for event in self.events]


def warnings(ground: Ground) -> list[str]:
    return [line for line in ground.said if " are sent: " in line]


def attributes_of(span: Any) -> dict[str, Any]:
    return {
        each.key.removeprefix("stateshift."): getattr(each.value, each.value.WhichOneof("value"))
        for each in span.attributes
    }


@pytest.fixture
def collector() -> Iterator[Collector]:
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/elsewhere":
                kept.stolen.append(str(self.headers))
            if kept.status == 200:
                kept.take(self.path, body)
                kept.keys.add(self.headers.get("Authorization"))
            if kept.status == 0:
                kept.over.wait(60)
                return
            self.send_response(kept.status)
            self.send_header("Content-Length", "0")
            self.send_header("Location", f"{kept.url}/elsewhere")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with listening(Handler) as address:
        kept.url = f"http://{address}"
        yield kept
        kept.over.set()


@pytest.fixture(autouse=True)
def environment(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith(("OTEL_", "OPENLINEAGE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OPENLINEAGE_URL", collector.url)
    return monkeypatch


def check_events(events: list[dict[str, Any]]) -> None:
    """Hold events, and each facet in them, against OpenLineage's own schemas."""
    resources = [(schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS]
    registry: Any = Registry().with_resources(resources)

    def check(value: object, url: str) -> None:
        schema = {"$ref": url}
        checker = jsonschema.Draft202012Validator(
            schema, registry=registry, format_checker=jsonschema.FormatChecker()
        )
        checker.validate(value)

    for event in events:
        check(event, event["schemaURL"])
        for holder in (event["run"], *event["outputs"]):
            for facet in (holder.get("facets") or holder.get("outputFacets") or {}).values():
                check(facet, facet["_schemaURL"])


def test_a_move_is_a_tree_of_spans_below_the_step_of_ci_that_runs_it(
    tmp_path: Path, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("TRACEPARENT", PARENT)
    environment.setenv("OTEL_SERVICE_NAME", "night-shift")
    environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=dr")
    report = LivingGround(tmp_path).warm()
    assert collector.resources[0]["service.name"] == "night-shift"
    assert collector.resources[0]["deployment.environment.name"] == "dr"
    root, job = collector.span("stateshift apply"), collector.span("orders")
    assert root.parent_span_id.hex() == CI_SPAN
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    paths = {collector.path(span) for span in collector.spans}
    top = ("stateshift apply", "wave 1", "orders")
    assert {(*top, phase.name) for phase in report.phases if " " not in phase.name} <= paths
    records, _ = decode_records(Workdir(tmp_path / "run").lines.read())
    begun = [record for record in records if isinstance(record, StepStarted)]
    steps = [path for path in map(collector.path, collector.spans) if len(path) == 5]
    assert sorted(path[3:] for path in steps) == sorted((each.phase, each.step) for each in begun)
    for span in collector.spans:
        assert span.status.code == Status.STATUS_CODE_UNSET, collector.path(span)
        for other in collector.spans:
            if other.span_id == span.parent_span_id:
                assert other.start_time_unix_nano <= span.start_time_unix_nano
                assert span.end_time_unix_nano <= other.end_time_unix_nano
    (moved,) = report.jobs
    said = attributes_of(job)
    assert said["bytes"] == moved.bytes > 0
    assert said["files"] == moved.files
    assert said.get("entries") == moved.entries
    assert (said["source"], said["target"], said["engine"]) == (SOURCE, TARGET, "spark")
    begins, ends = job.events
    assert (begins.name, ends.name) == ("downtime begins", "downtime ends")
    down = (ends.time_unix_nano - begins.time_unix_nano) / 1e9
    assert down == pytest.approx(moved.downtime_seconds) == pytest.approx(said["downtime_seconds"])
    stop = next(
        span for span in collector.spans if collector.path(span)[3:] == ("halt", "halt/stop")
    )
    assert attributes_of(stop)["repeated"] is False
    assert attributes_of(stop)["job"] == "orders"
    assert attributes_of(root)["run"] == "run-run"


def test_a_step_that_fails_is_an_error_up_to_the_run_and_no_secret_leaves(
    ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("QUEUE_TOKEN", "hunter2hunter2")
    ground.write()
    ground.cluster.run("orders", SOURCE)

    def refuse(_: object) -> None:
        raise ClusterError("the queue takes no hunter2hunter2, nor --password sesame")

    ground.cluster._on_start = refuse
    with pytest.raises(StateshiftError) as caught:
        ground.apply(running_spec())
    failed = [span for span in collector.spans if span.status.code == Status.STATUS_CODE_ERROR]
    *above, path = sorted(map(collector.path, failed), key=len)
    assert path[:4] == ("stateshift apply", "wave 1", "orders", "submit")
    assert above == [path[:depth] for depth in range(1, 5)]
    assert "the queue takes no ***, nor --password ***" in collector.span("submit").status.message
    root = attributes_of(collector.span("stateshift apply"))
    assert root["exit_code"] == caught.value.exit_code
    assert root["state"] == "failed"
    begins = [event.name for event in collector.span("orders").events]
    assert begins == ["downtime begins"]
    check_events(collector.events)
    assert [kind for kind, _ in collector.told()] == ["START", "FAIL"]
    facets = collector.events[1]["run"]["facets"]
    assert "the queue takes no ***, nor" in facets["errorMessage"]["message"]
    assert b"hunter2" not in collector.bodies
    assert b"sesame" not in collector.bodies


def test_the_figures_of_a_move_are_those_of_its_report_by_the_names_of_prometheus(
    tmp_path: Path, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=dr")
    environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "5")
    report = LivingGround(tmp_path).warm()
    first, last = collector.figures[0], collector.figures[-1]
    assert first["at_work", "orders"] == 1
    assert first["state", "orders", "running"] == 1
    assert first["began_timestamp_seconds", "orders"] == last["began_timestamp_seconds", "orders"]
    assert last["at_work", "orders"] == 0
    assert last["state", "orders", "finished"] == 1
    assert last["state", "orders", "running"] == 0
    (moved,) = report.jobs
    assert last["copied_bytes", "orders"] == moved.bytes > 0
    assert last["copied_files", "orders"] == moved.files
    assert last["downtime_seconds", "orders"] == pytest.approx(moved.downtime_seconds)
    assert last["run_seconds", "orders"] == pytest.approx(report.seconds)
    assert last["info", "orders", "spark", "run-run", str(tmp_path / "run")] == 1
    assert [key for key in last if key[0] == "stateshift_runs"] == []  # of one run they are none
    assert len(collector.figures) > 2
    assert all(each["deployment.environment.name"] == "dr" for each in collector.resources)


def test_prometheus_reads_the_same_from_the_workdir_as_the_collector_was_sent(
    ground: Ground, collector: Collector
) -> None:
    ground.write()
    ground.apply(spec_of())
    found = families([observe_run(str(ground.workdir().path))], ground.clock.now())
    read = {}
    for family in found:
        for sample in family.samples:
            if "job" in LABELS[family.name]:
                labels = (text for _, text in sample.labels)
                key = (family.name.removeprefix("stateshift_job_"), *labels)
                read[key] = float(sample.value)
    assert collector.figures[-1] == read


def test_a_program_sends_the_figures_of_its_runs(
    ground: Ground, collector: Collector, tmp_path: Path
) -> None:
    ground.write()
    job = {"name": "orders", "checkpoint_location": SOURCE, "remote_location": TARGET}
    plain = {"version": 1, "engine": "spark", "jobs": [job]}
    adapters = replace(ground.adapters, measure=measure_nothing)
    assert api.apply(plain, workdir=tmp_path / "run", adapters=adapters).state == "finished"
    assert collector.figures[-1]["state", "orders", "finished"] == 1


def test_no_figure_has_a_secret_in_its_attributes(
    ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("QUEUE_TOKEN", "hunter2hunter2")
    environment.setenv("OPENLINEAGE_DISABLED", "true")  # its datasets are locations, as they are
    source = "file:///here/hunter2hunter2"
    ground.write(location=source)
    job = {"name": "hunter2hunter2", "checkpoint_location": source, "remote_location": TARGET}
    plain = {"version": 1, "engine": "spark", "jobs": [job]}
    assert ground.apply(parse_spec(json.dumps(plain))).state == "finished"
    assert collector.figures[-1]["copied_bytes", "***"] > 0
    assert b"hunter2" not in collector.bodies


@pytest.mark.parametrize("interval", ["soon", "0", "-5"])
def test_an_interval_that_is_none_ends_the_metrics_alone(
    interval: str, ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", interval)
    ground.write()
    assert ground.apply(spec_of()).state == "finished"
    (warning,) = warnings(ground)
    assert warning.startswith("not all metrics are sent: ")
    assert interval in warning
    assert (len(collector.figures), len(collector.events)) == (0, 2)
    assert collector.span("stateshift apply")


def test_figures_that_fail_once_are_no_matter_if_the_last_ones_are_sent(
    ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    calls = iter([KeyError("of ours")])

    def once(*given: Any) -> Any:
        for error in calls:
            raise error
        return families(*given)

    environment.setattr("stateshift.documents.metrics.families", once)
    environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    LivingGround(ground.folder / "living").warm()
    assert collector.figures[-1]["state", "orders", "finished"] == 1
    assert next(calls, None) is None


def test_lineage_of_a_move_goes_from_its_source_to_its_target(
    ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OPENLINEAGE_API_KEY", "key-of-ours")
    environment.setenv("OPENLINEAGE_NAMESPACE", "streams")
    environment.setenv("OPENLINEAGE_PARENT_ID", OL_PARENT)
    ground.write()
    report = ground.apply(spec_of())
    check_events(collector.events)
    assert collector.keys == {None, "Bearer key-of-ours"}  # the first of the spans
    (start, first), (complete, last) = collector.told()
    assert (start, complete, first) == ("START", "COMPLETE", last)
    event = collector.events[1]
    assert event["job"] == {"namespace": "streams", "name": "stateshift.orders"}
    assert event["inputs"] == [{"namespace": "file", "name": "/here/orders"}]
    (output,) = event["outputs"]
    assert (output["namespace"], output["name"]) == ("file", "/there/orders")
    statistics = output["outputFacets"]["outputStatistics"]
    assert statistics["size"] == report.jobs[0].bytes
    parent = event["run"]["facets"]["parent"]
    assert parent["job"] == {"namespace": "airflow://prod", "name": "nightly.move"}
    assert parent["run"]["runId"] == OL_PARENT.rpartition("/")[2]


def test_a_run_that_failed_and_one_that_is_taken_back_end_in_lineage_once_each(
    ground: Ground, collector: Collector
) -> None:
    ground.write()
    ground.cluster.run("orders", SOURCE)
    ground.cluster._on_start = lambda _: (_ for _ in ()).throw(ClusterError("no room"))
    with pytest.raises(StateshiftError):
        ground.apply(running_spec())
    with pytest.raises(StateshiftError):
        ground.resume()
    (_, first), (_, same), (start, second), (fail, again) = collector.told()
    assert first == same != second == again
    assert (start, fail) == ("START", "FAIL")
    ground.rollback()
    assert len(collector.events) == 4  # its end was told
    root = collector.span("stateshift rollback")
    undone = {span.trace_id for span in collector.spans if span.name.startswith("undo ")}
    assert root.trace_id in undone
    assert [link.trace_id for link in root.links] == [collector.span("stateshift resume").trace_id]
    check_events(collector.events)


@pytest.mark.parametrize(
    "answer",
    [
        "hangs",
        "answers 404",
        "redirects",
        "is not there",
        pytest.param("answers 500", marks=pytest.mark.slow),
    ],
)
def test_a_collector_that_is_no_good_changes_nothing_of_a_run(
    answer: str,
    ground: Ground,
    collector: Collector,
    environment: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ground.write()
    statuses = {"hangs": 0, "answers 500": 500, "answers 404": 404, "redirects": 307}
    collector.status = statuses.get(answer, 200)
    environment.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team hunter2hunter2,x-key=sesame%20open")
    environment.setenv("OPENLINEAGE_API_KEY", "key-of-ours")
    if answer == "is not there":
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
        environment.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    began = time.monotonic()
    report = ground.apply(spec_of())
    assert time.monotonic() - began < telemetry.SECONDS_AT_END + 2
    assert report.state == "finished"
    said = [line.partition(" are sent: ")[0] for line in warnings(ground)]
    assert said == ["not all traces", "not all metrics", "not all lineage events"]
    assert capfd.readouterr() == ("", "")
    log = (ground.workdir().path / "log").read_text()
    assert answer == "hangs" or "opentelemetry." in log
    assert "Header format invalid" in log
    assert not any(secret in log for secret in ("hunter2", "sesame", "key-of-ours"))
    assert collector.stolen == []


def test_a_run_that_fails_does_so_as_without_a_collector(
    tmp_path: Path, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    collector.status = 404
    failures = []
    for name in ("with", "without"):
        ground = Ground(tmp_path / name)
        ground.write()
        ground.cluster.run("orders", SOURCE)
        ground.cluster._on_start = lambda _: (_ for _ in ()).throw(ClusterError("no room"))
        with pytest.raises(StateshiftError) as caught:
            ground.apply(running_spec())
        failures.append((type(caught.value), caught.value.fact, caught.value.exit_code))
        assert bool(warnings(ground)) == (name == "with")
        environment.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
        environment.delenv("OPENLINEAGE_URL", raising=False)
    assert failures[0] == failures[1]


def test_who_hears_that_the_traces_end_cannot_end_the_run(
    ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    from stateshift.migration.otel import RunSpans

    def broken(*_: object) -> None:
        raise KeyError("of ours")

    def say(line: str) -> None:
        if "traces" in line:
            raise BrokenPipeError

    environment.setattr(RunSpans, "follow", broken)
    environment.setattr(ground.meter, "say", say)
    ground.write()
    assert ground.apply(spec_of()).state == "finished"


def jobs_of(*names: str, waves: list[list[str]]) -> Spec:
    ends = [(f"file:///here/{name}", f"file:///there/{name}") for name in names]
    jobs = [
        {"name": name, "checkpoint_location": source, "remote_location": target}
        for name, (source, target) in zip(names, ends, strict=True)
    ]
    plain = {"version": 1, "engine": "spark", "jobs": jobs, "waves": waves}
    return parse_spec(json.dumps(plain))


def test_each_job_of_a_wave_is_summed_up_once_at_its_end(
    ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    from stateshift.migration import otel

    counts = []

    def summed_up(progress: Progress) -> Report:
        counts.append(len(progress.jobs))
        return summarize(progress)

    environment.setenv("OTEL_METRICS_EXPORTER", "none")
    environment.setattr(otel, "summarize", summed_up)
    for name in "abcd":
        ground.write(location=f"file:///here/{name}")
    assert ground.apply(jobs_of(*"abcd", waves=[["a", "b"], ["c", "d"]])).state == "finished"
    assert sum(counts) == 4 + 4  # those of the run are its own
    tree = {collector.path(span)[1:3] for span in collector.spans if len(collector.path(span)) > 2}
    assert tree == {("wave 1", "a"), ("wave 1", "b"), ("wave 2", "c"), ("wave 2", "d")}
    said = [attributes_of(collector.span(name)) for name in "abcd"]
    assert [each["state"] for each in said] == ["finished"] * 4
    assert [each["target"] for each in said] == [f"file:///there/{name}" for name in "abcd"]


def test_a_job_that_was_moved_before_a_kill_is_complete_in_lineage_after_it(
    ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def run_first(context: RunContext, wave: Wave) -> None:
        if wave[0].name == "b":
            raise Killed
        run_wave(context, wave)

    for name in "ab":
        ground.write(location=f"file:///here/{name}")
    with environment.context() as killing:
        killing.setattr(calls, "run_wave", run_first)
        killing.delenv("OPENLINEAGE_URL")
        with pytest.raises(Killed):
            ground.apply(jobs_of(*"ab", waves=[["a"], ["b"]]))
    read: list[bytes] = []

    def decoded(content: bytes) -> tuple[list[Record], int]:
        read.append(content)
        return decode_records(content)

    environment.setattr(telemetry, "decode_records", decoded)
    assert ground.resume().state == "finished"
    told = [(event["eventType"], event["job"]["name"]) for event in collector.events]
    jobs = ("stateshift.a", "stateshift.b")
    assert told == [(kind, job) for kind in ("RUNNING", "COMPLETE") for job in jobs]
    assert b"run-resumed" in read[0]
    assert not any(b'"step-' in content for content in read)  # they take seconds, of 100,000 steps


def test_an_error_of_ours_ends_the_traces_and_not_the_run(
    ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    from stateshift.migration.otel import RunSpans

    def broken(*_: object) -> None:
        raise KeyError("of ours")

    environment.setattr(RunSpans, "_begin_job", broken)
    environment.setenv("OPENLINEAGE_DISABLED", "true")
    ground.write()
    assert ground.apply(spec_of()).state == "finished"
    (warning,) = warnings(ground)
    assert warning.startswith("not all traces are sent: ")
    assert collector.events == []


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, None),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, None),
        ({"OTEL_SDK_DISABLED": "True", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, None),
        ({"OTEL_SERVICE_NAME": "x", "OTEL_RESOURCE_ATTRIBUTES": "a=b"}, None),
        ({"OTEL_TRACES_EXPORTER": "console"}, "otlp alone is known"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "http/protobuf alone is known",
        ),
    ],
)
@pytest.mark.parametrize("signal", ["TRACES", "METRICS"])
def test_the_standard_variables_ask_for_a_signal(
    signal: Signal, variables: dict[str, str], said: Any
) -> None:
    given = {name.replace("TRACES", signal): value for name, value in variables.items()}
    if isinstance(said, str):
        with pytest.raises(ValueError, match=said):
            is_asked(signal, given)
    else:
        assert is_asked(signal, given) is bool(said)


def test_one_signal_may_be_asked_for_without_the_other() -> None:
    given = {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/v1/metrics"}
    assert (is_asked("METRICS", given), is_asked("TRACES", given)) == (True, False)
    both = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}
    assert (is_asked("METRICS", both), is_asked("TRACES", both)) == (False, True)


def test_without_the_extra_a_run_says_once_how_to_get_it(
    ground: Ground, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    environment.delitem(sys.modules, "stateshift.migration.otel", raising=False)
    environment.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    ground.write()
    assert ground.apply(spec_of()).state == "finished"
    for_traces, for_metrics = warnings(ground)
    assert for_traces.startswith("not all traces are sent: its SDK is missing")
    assert for_metrics.startswith("not all metrics are sent: its SDK is missing")
    assert for_metrics.endswith("pip install 'stateshift[otel]'")
    assert collector.spans == []


def test_a_run_that_nobody_traces_imports_nothing_for_it(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from tests.support.ground import Ground, spec_of\n"
        f"ground = Ground(Path({str(tmp_path)!r})); ground.write(); ground.apply(spec_of())\n"
        "print([n for n in sys.modules if n.startswith(('opentelemetry', 'requests'))])"
    )
    quiet = {name: value for name, value in os.environ.items() if "://" not in value}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=quiet, capture_output=True, check=True
    )
    assert done.stdout.strip() == b"[]", done.stdout


def test_a_killed_run_and_its_resume_are_two_traces_that_link_and_one_run_of_lineage(
    tmp_path: Path, collector: Collector
) -> None:
    size = sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file())
    job = {
        "name": "window",
        "checkpoint_location": str(GOLDEN),
        "mode": "fork",
        "waive": ["paths-stay"],
    }
    job["remote_location"] = str(tmp_path / "there")
    throttle = {"bytes_per_second": size // 6}
    spec = {"version": 1, "engine": "spark", "throttle": throttle}
    (tmp_path / "spec.json").write_text(json.dumps({**spec, "jobs": [job]}))
    command = [sys.executable, "-m", "stateshift"]
    environment = {**os.environ, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    apply = subprocess.Popen(
        [*command, "apply", "spec.json", "--yes", "--workdir", "run"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until = time.monotonic() + 60
    while not any(span.name.startswith("copy") for span in collector.spans):
        assert time.monotonic() < until
        assert apply.poll() is None, apply.communicate()
        time.sleep(0.05)
    apply.send_signal(signal.SIGKILL)
    apply.communicate()
    before = {span.trace_id for span in collector.spans}
    assert len(before) == 1
    subprocess.run(
        [*command, "resume", "run"],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        timeout=120,
    )
    root = collector.span("stateshift resume")
    assert {link.trace_id for link in root.links} == before
    assert root.trace_id not in before
    again = [span for span in collector.spans if attributes_of(span).get("repeated")]
    assert {span.trace_id for span in again} == {root.trace_id}
    check_events(collector.events)
    assert collector.figures[-1]["state", "window", "finished"] == 1
    assert collector.figures[-1]["copied_bytes", "window"] > 0
    kinds, runs = zip(*collector.told(), strict=True)
    assert kinds == ("START", "RUNNING", "COMPLETE")
    assert len(set(runs)) == 1


def test_the_variables_of_its_clients_name_the_collector_of_lineage() -> None:
    simple = {"OPENLINEAGE_URL": "https://m:5000", "OPENLINEAGE_API_KEY": "k"}
    expected = lineage.Collector("https://m:5000/api/v1/lineage", "k", "default", {})
    assert lineage.collector_of(simple) == expected
    assert lineage.collector_of({**simple, "OPENLINEAGE_DISABLED": "TRUE"}) is None
    assert lineage.collector_of({"OPENLINEAGE_NAMESPACE": "n"}) is None
    with pytest.raises(ValueError, match="not of HTTP"):
        lineage.collector_of({"OPENLINEAGE_URL": "kafka://m:9092"})


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/data/ck", "file", "/data/ck"),
        ("hdfs://nn:8020/ck/orders", "hdfs://nn:8020", "/ck/orders"),
        ("s3a://bucket/ck/orders/", "s3://bucket", "ck/orders"),
        ("s3://key:secret@bucket/ck", "s3://bucket", "ck"),
        ("gs://bucket/ck", "gs://bucket", "ck"),
        ("abfs://box@acc.dfs.core.windows.net/ck", "abfss://box@acc.dfs.core.windows.net", "ck"),
        ("hdfs://me:secret@nn:8020/ck", "hdfs://nn:8020", "/ck"),
    ],
)
def test_a_location_is_a_dataset_by_the_rules_of_naming(
    location: str, namespace: str, name: str
) -> None:
    assert lineage.dataset_of(location) == {"namespace": namespace, "name": name}
