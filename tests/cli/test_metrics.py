"""`stateshift metrics`: what it says of runs, and that Prometheus can read it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.advise.advising import Advice
from stateshift.advise.evaluate.inputs import Circumstances, FlinkInputs, Inputs
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.verdicts import verdict_on
from stateshift.cli.commands.metrics import exposition, observe_run
from stateshift.clusters.protocol import StopRequest, Submission
from stateshift.documents.advice import advice_document
from stateshift.documents.metrics import (
    LABELS,
    METRICS,
    STATES,
    Family,
    ObservedRun,
    Sample,
    families,
    metrics_document,
)
from stateshift.errors import JOB_DOWN, ClusterError, StateshiftError
from tests.advise.making import sample, vertex
from tests.cli.support import said, submitting, with_checkpoint, write_spec
from tests.migration.test_warm import Timed
from tests.support.exposition import Metric, read
from tests.support.ground import SOURCE, TARGET, Ground, running_spec, spec_of

Metrics = dict[str, Metric]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return the value of a metric with these labels among others; None where there is none."""
    metric = metrics.get(f"stateshift_{name}")
    if metric is None:
        return None
    wanted = set(labels.items())
    values = [found for has, found in metric.samples.items() if wanted <= has]
    assert len(values) <= 1, f"{name} {labels} has several values"
    return values[0] if values else None


def measured(runs: list[ObservedRun], now: float) -> Metrics:
    """Return metrics by way of the text that Prometheus reads."""
    return read(exposition(families(runs, now)).encode())


def printed(*argv: str) -> Metrics:
    answer = said("metrics", *argv)
    assert (answer.code, answer.err) == (0, "")
    return read(answer.out.encode())


@pytest.mark.row("W-13")
def test_a_finished_run_has_the_figures_of_its_report(tmp_path: Path) -> None:
    outside = with_checkpoint()
    spec = write_spec(tmp_path, job_name="orders", **submitting())
    text = (
        Path(spec).read_text().replace('"jobs"', '"clusters": {"b": {"kind": "command"}}, "jobs"')
    )
    Path(spec).write_text(text)
    applied = outside.run("apply", spec, "--yes", "--json", "--workdir", str(tmp_path / "run"))
    (job,) = applied.document["report"]["jobs"]
    metrics = printed(str(tmp_path))
    assert value(metrics, "runs", state="finished") == 1
    assert value(metrics, "job_state", job="orders", state="finished") == 1
    assert value(metrics, "job_state", job="orders", state="failed") == 0
    assert value(metrics, "job_copied_bytes", job="orders") == job["bytes"] > 0
    assert value(metrics, "job_copied_files", job="orders") == job["files"] > 0
    assert value(metrics, "job_compared_entries", job="orders") == job["entries"] > 0
    assert value(metrics, "job_downtime_seconds", job="orders") == job["downtime_seconds"] > 0
    assert value(metrics, "job_down", job="orders") == 0
    assert value(metrics, "job_at_work", job="orders") == 0
    began = value(metrics, "job_began_timestamp_seconds", job="orders")
    success = value(metrics, "job_last_success_timestamp_seconds", job="orders")
    assert began is not None and success is not None
    assert success - began == pytest.approx(applied.document["report"]["seconds"], abs=0.01)
    run = applied.document["run"]
    assert value(metrics, "job_info", run=run, engine="spark", workdir=f"{tmp_path}/run") == 1
    assert value(metrics, "job_failure_exit_code", job="orders") is None


def test_a_run_that_failed_while_its_job_is_down_says_so_and_the_last_success_stays(
    tmp_path: Path,
) -> None:
    ground = Ground(tmp_path)
    ground.write()
    ground.apply(spec_of(), "first")
    success = ground.clock.now()

    def refuse(_: object) -> None:
        raise ClusterError("the queue is full")

    ground.rollback("first", discard_progress=True)
    first = observe_run(str(tmp_path / "first"))
    assert value(measured([first], success), "job_state", state="rolled-back") == 1
    ground.cluster.run("orders", SOURCE)
    ground.cluster._on_start = refuse
    ground.clock.time += 1000
    with pytest.raises(StateshiftError):
        ground.apply(running_spec(), "second")
    runs = [observe_run(str(tmp_path / name)) for name in ("second", "first")]
    metrics = measured(runs, ground.clock.now() + 60)
    assert value(metrics, "job_state", job="orders", state="failed") == 1, "of the newest run"
    assert value(metrics, "job_failure_exit_code", job="orders") == JOB_DOWN
    assert value(metrics, "job_down", job="orders") == 1
    down = value(metrics, "job_downtime_seconds", job="orders")
    assert down is not None and down >= 60, "it is counted on"
    assert value(metrics, "runs", state="failed") == 1
    assert value(metrics, "runs", state="rolled-back") == 1


def test_a_warm_run_at_work_says_how_far_behind_its_copy_is(tmp_path: Path) -> None:
    seen: list[Metrics] = []
    ground: Timed

    def look(_: object) -> None:
        run = observe_run(str(ground.workdir().path))
        seen.append(measured([run], ground.clock.now()))

    ground = Timed(tmp_path, (80.0, look), (90.0, lambda steering: steering.ask_cutover(False)))
    ground.warm(cutover="manual")
    (metrics,) = seen
    assert value(metrics, "job_at_work", job="orders") == 1
    assert value(metrics, "job_paused", job="orders") == 0
    assert value(metrics, "job_state", job="orders", state="running") == 1
    assert value(metrics, "job_down", job="orders") == 0
    assert value(metrics, "job_downtime_seconds", job="orders") is None
    rounds = value(metrics, "job_warm_rounds", job="orders")
    assert rounds is not None and rounds >= 1
    copied = value(metrics, "job_warm_copied_timestamp_seconds", job="orders")
    now = ground.clock.now()
    assert copied is not None and now - 200 < copied <= now
    left = value(metrics, "job_warm_left_bytes", job="orders")
    assert left is not None and left > 0
    assert value(metrics, "job_warm_left_seconds", job="orders") is not None
    assert value(metrics, "job_warm_written_bytes_per_second", job="orders") is not None
    assert value(metrics, "job_run_seconds", job="orders") == pytest.approx(80, abs=2)
    after = measured([observe_run(str(ground.workdir().path))], now)
    assert value(after, "job_warm_left_bytes", job="orders") is None, "nobody is at work"


def test_a_step_under_way_has_an_age(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write()
    ground.cluster.run("orders", SOURCE)
    seen: list[Metrics] = []

    def stop(_: StopRequest) -> None:
        run = observe_run(str(ground.workdir().path))
        seen.append(measured([run], ground.clock.now() + 45))

    def start(_: Submission) -> None:
        ground.put(f"{TARGET}/commits/3", b'v1\n{"nextBatchWatermarkMs":0}')

    ground.cluster._on_stop, ground.cluster._on_start = stop, start
    ground.apply(running_spec())
    (metrics,) = seen
    age = value(metrics, "job_step_age_seconds", job="orders", phase="halt")
    assert age is not None and 45 <= age < 60


def test_a_run_that_was_killed_is_interrupted_and_a_damaged_one_is_counted(
    tmp_path: Path,
) -> None:
    ground = Ground(tmp_path)
    ground.write()
    ground.apply(spec_of())
    journal = tmp_path / "run" / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:3]))
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "journal").write_bytes(b'{"kind": "step-started"}\n')
    metrics = printed(str(tmp_path))
    assert value(metrics, "runs", state="interrupted") == 1
    assert value(metrics, "runs", state="damaged") == 1
    assert value(metrics, "job_state", job="orders", state="interrupted") == 1
    assert value(metrics, "job_step_age_seconds", job="orders") is None


def test_workdirs_come_from_arguments_else_from_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground = Ground(tmp_path / "a b")
    ground.write()
    ground.apply(spec_of())
    monkeypatch.chdir(tmp_path)
    assert value(printed(), "runs", state="finished") == 0
    assert value(printed("--workdirs", "a b"), "runs", state="finished") == 1
    assert value(printed("a b", "a b/run", str(tmp_path / "a b")), "runs", state="finished") == 1
    monkeypatch.setenv("STATESHIFT_WORKDIRS", str(tmp_path / "a b"))
    assert value(printed(), "runs", state="finished") == 1
    (tmp_path / "stateshift.toml").write_text('workdirs = "nowhere"\n')
    assert value(printed(), "runs", state="finished") == 1


def test_moves_that_rebalance_made_are_found_in_its_folder(tmp_path: Path) -> None:
    ground = Ground(tmp_path / "rebalance-clusters" / "runs")
    ground.write()
    ground.apply(spec_of())
    assert value(printed(str(tmp_path)), "runs", state="finished") == 0
    (tmp_path / "rebalance-clusters" / "moves").mkdir()
    assert value(printed(str(tmp_path)), "runs", state="finished") == 1
    assert value(printed(str(tmp_path)), "job_down", job="orders") == 0


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    answer = said("metrics", str(tmp_path / "none"))
    assert answer.code == 2
    assert "there is no directory" in answer.err


def test_a_file_is_written_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    out = tmp_path / "out" / "stateshift.prom"
    out.parent.mkdir()
    out.write_text("what was there")
    os.link(out, tmp_path / "reader")  # as if a collector had it open
    answer = said("metrics", str(tmp_path / "runs"), "--to", str(out))
    assert (answer.code, answer.out, answer.err) == (0, "", "")
    assert value(read(out.read_bytes()), "runs", state="finished") == 0
    assert (tmp_path / "reader").read_text() == "what was there"
    assert os.listdir(out.parent) == ["stateshift.prom"]


def test_a_file_that_cannot_be_written_ends_with_code_6(tmp_path: Path) -> None:
    answer = said("metrics", "--to", str(tmp_path / "none" / "stateshift.prom"))
    assert answer.code == 6


def test_the_document_says_the_same_as_the_text(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write()
    ground.apply(spec_of())
    document = said("metrics", str(tmp_path), "--json").document
    assert document["output"] is None
    text = printed(str(tmp_path))
    assert [metric["name"] for metric in document["metrics"]] == list(text)
    for metric in document["metrics"]:
        found = text[metric["name"]]
        assert (metric["help"], metric["type"]) == (found.help, found.type)
        samples = {frozenset(each["labels"].items()): each["value"] for each in metric["samples"]}
        assert samples == found.samples


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))
def test_any_label_is_read_as_it_was(text: str) -> None:
    found = read(exposition([_family(text)]).encode())
    assert found["stateshift_runs"].samples == {frozenset({("state", text)}): 1.5}


def test_bytes_that_are_no_text_are_spelled_out() -> None:
    found = read(exposition([_family("a\udcff")]).encode())
    assert list(found["stateshift_runs"].samples) == [frozenset({("state", "a\\udcff")})]
    document: Any = metrics_document([_family("a")], "out")
    assert document["output"] == "out"


def _family(label: str) -> Family:
    return Family("stateshift_runs", (Sample(1.5, (("state", label),)),))


def test_every_metric_has_the_labels_that_the_page_says(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.write()
    ground.apply(spec_of())
    metrics = printed(str(tmp_path))
    assert set(metrics) <= set(METRICS)
    for name, metric in metrics.items():
        assert metric.type == "gauge"
        for labels in metric.samples:
            assert sorted(key for key, _ in labels) == sorted(LABELS[name])
    assert {dict(labels)["state"] for labels in metrics["stateshift_runs"].samples} == set(STATES)


def advised(folder: Path, name: str, *inputs: Inputs) -> str:
    """A file as `advise --json` writes it."""
    document = [advice_document(Advice(each, verdict_on(each))) for each in inputs]
    file = folder / name
    file.write_text(json.dumps(document))
    return str(file)


def looked_at(job: str, at: float, busy: float) -> FlinkInputs:
    """Two looks at a job of four subtasks, the last one at this time."""
    looks = tuple(sample(when, vertex(when, 1000, busy, lag=70.0)) for when in (at - 60, at))
    return FlinkInputs(Circumstances(job, at, Settings(stabilization_interval=0.0)), looks)


def test_what_advise_said_of_a_job_is_among_the_metrics(tmp_path: Path) -> None:
    silent = FlinkInputs(Circumstances("audit", 600.0, trouble="it does not answer"))
    file = advised(tmp_path, "advice.json", looked_at("orders", 600.0, 0.95), silent)
    metrics = printed(str(tmp_path), "--advice", file)
    assert value(metrics, "advice_headroom_ratio", job="orders") == pytest.approx(0.05)
    assert value(metrics, "advice_verdict", job="orders", verdict="fits") == 1
    assert value(metrics, "advice_verdict", job="orders", verdict="scale") == 0
    assert value(metrics, "advice_timestamp_seconds", job="orders") == 600
    assert value(metrics, "advice_lag_records", job="orders") == 70
    assert value(metrics, "advice_parallelism", job="orders") == 4
    assert value(metrics, "advice_restart_seconds", job="orders") == 300
    assert value(metrics, "advice_verdict", job="audit", verdict="unknown") == 1
    assert value(metrics, "advice_headroom_ratio", job="audit") is None
    for name, metric in metrics.items():
        for labels in metric.samples:
            assert sorted(key for key, _ in labels) == sorted(LABELS[name])


def test_of_several_files_the_newest_verdict_on_a_job_counts(tmp_path: Path) -> None:
    new = advised(tmp_path, "new.json", looked_at("orders", 900.0, 0.5))
    old = advised(tmp_path, "old.json", looked_at("orders", 600.0, 0.9))
    metrics = printed(str(tmp_path), "--advice", new, "--advice", old)
    assert value(metrics, "advice_headroom_ratio", job="orders") == pytest.approx(0.5)


def test_the_runs_have_metrics_before_advise_has_run_for_the_first_time(tmp_path: Path) -> None:
    missing, out = tmp_path / "advice.json", tmp_path / "stateshift.prom"
    (tmp_path / "runs").mkdir()
    words = ("--advice", str(missing), "--to", str(out))
    answer = said("metrics", str(tmp_path / "runs"), *words)
    assert answer.code == 0
    assert answer.err == f"no advice yet: {missing} is not there\n"
    assert "stateshift_runs" in out.read_text()


def test_a_file_that_holds_no_advice_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('[{"job": "orders", "inp')
    out = tmp_path / "stateshift.prom"
    answer = said("metrics", "--advice", str(tmp_path / "half.json"), "--to", str(out))
    assert answer.code == 2
    assert "no verdict with its inputs" in answer.err
    assert not out.exists()


@pytest.mark.parametrize(
    "text",
    [
        "# TYPE a gauge\na 1",
        "a 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\na 2\n",
        '# HELP a x\n# TYPE a gauge\na{b="\\x"} 1\n',
        '# HELP a x\n# TYPE a gauge\na{b="c" 1\n',
        "# HELP a x\n# TYPE a gauge\n# HELP b x\n# TYPE b gauge\na 1\n",
        "# HELP a x\n# TYPE a gauge\na one\n",
        "# HELP a x\n# TYPE a gauge\n\n",
    ],
)
def test_the_reader_refuses_what_is_not_of_the_format(text: str) -> None:
    with pytest.raises(AssertionError):
        read(text.encode())
