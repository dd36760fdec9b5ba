"""The metrics of the runs in workdirs, of what `advise` said of jobs, and of what `rebalance` did:
the facts that all views share, and their document. Pure.

METRICS        every metric: its name, and what it says
LABELS         the labels of each
ObservedRun    a workdir as it was read; without progress where its journal cannot be
Family         one metric with its samples

Metrics are kept by job, not by run: the series of a job go on from run to run, and those of runs
long past do not pile up. A job's series show its newest run, but for the last success, and its
newest verdict of `advise`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict, get_args

from stateshift import __version__
from stateshift.advise.evaluate.verdicts import Verdict, Word
from stateshift.advise.rebalance.decision import Decision, StayKind
from stateshift.documents.run import lag_of, shown_state
from stateshift.documents.shape import At, documents_of
from stateshift.journal import Progress, Rehearsed, State
from stateshift.report import JobReport, Report
from stateshift.steering import Live
from stateshift.survey import Left

Labels = tuple[tuple[str, str], ...]

DAMAGED = "damaged"
STATES: tuple[str, ...] = (*get_args(State), DAMAGED)
VERDICTS: tuple[str, ...] = get_args(Word)

METRICS: Mapping[str, str] = {
    "stateshift_build_info": "The version that wrote this, as a label. Always 1.",
    "stateshift_runs": "Runs in the workdirs by state. A damaged one cannot be read.",
    "stateshift_job_info": "The job's newest run, as labels. Always 1.",
    "stateshift_job_state": "1 for the state of the job's newest run, 0 for all others.",
    "stateshift_job_at_work": "Whether a process works on the run.",
    "stateshift_job_paused": "Whether somebody has paused the run.",
    "stateshift_job_began_timestamp_seconds": "When the run began.",
    "stateshift_job_run_seconds": "How long the run took, or has taken so far.",
    "stateshift_job_last_success_timestamp_seconds": "When a run of the job was last finished.",
    "stateshift_job_failure_exit_code": "The exit code with which the run has failed.",
    "stateshift_job_down": "Whether the run has stopped the job, and nobody saw it go on.",
    "stateshift_job_may_be_down": "Whether a stop of the job has no known end: it runs, or not.",
    "stateshift_job_down_since_timestamp_seconds": "Since when the job is down.",
    "stateshift_job_downtime_seconds": "How long the run kept the job down, or has so far.",
    "stateshift_job_copied_bytes": "Bytes of the image that the run has copied.",
    "stateshift_job_copied_files": "Files of the image that the run has copied.",
    "stateshift_job_compared_entries": "Entries that the run has compared on both sides.",
    "stateshift_job_step_age_seconds": "Age of the oldest step that is under way in a phase.",
    "stateshift_job_warm_rounds": "Rounds that have copied while the job ran.",
    "stateshift_job_warm_copied_timestamp_seconds": "When the last round was over.",
    "stateshift_job_source_lost_timestamp_seconds": "Since when a standby has lost its source.",
    "stateshift_job_warm_left_bytes": "Bytes that are still to be copied while the job runs.",
    "stateshift_job_warm_left_seconds": "How long the job would be down if it stopped now.",
    "stateshift_job_warm_written_bytes_per_second": "How fast the job writes what is to be copied.",
    "stateshift_standby_epoch": "The batch or checkpoint that the standby can be started from.",
    "stateshift_standby_published_timestamp_seconds": "When its last image was published.",
    "stateshift_standby_committed_timestamp_seconds": "When the source had committed that.",
    "stateshift_standby_rpo_bound_seconds": "How much of its work may be lost at most.",
    "stateshift_standby_rpo_kept": "Whether no more than that would be lost.",
    "stateshift_standby_drill_timestamp_seconds": "When its last drill ended.",
    "stateshift_standby_drill_success": "Whether the job went on in its last drill.",
    "stateshift_standby_drill_success_timestamp_seconds": "When it last went on in a drill.",
    "stateshift_standby_drill_seconds": "From plan to first batch, in its last good drill.",
    "stateshift_advice_timestamp_seconds": "When advise looked at the job.",
    "stateshift_advice_verdict": "1 for what advise says of the job, 0 for all other verdicts.",
    "stateshift_advice_headroom_ratio": "Part of its capacity that the job has left, or lacks.",
    "stateshift_advice_lag_records": "Records that wait for the job.",
    "stateshift_advice_drain_seconds": "Until they are read, at the job's capacity.",
    "stateshift_advice_parallelism": "The job's parallelism; of Spark its cores.",
    "stateshift_advice_wanted_parallelism": "The parallelism that is advised.",
    "stateshift_advice_restart_seconds": "How long a restart of the job takes.",
    "stateshift_rebalance_damaged": "Whether something that rebalance has kept cannot be read.",
    "stateshift_rebalance_timestamp_seconds": "When rebalance last decided.",
    "stateshift_rebalance_planned_moves": "Moves of its last decision, made or not.",
    "stateshift_rebalance_moves": "Moves that it has begun in all, by what has become of them.",
    "stateshift_rebalance_stays": "Jobs that its last decision leaves where they are, by why.",
    "stateshift_rebalance_load_ratio": "Load of the cluster when it decided, by its capacity.",
    "stateshift_rebalance_cordoned": "Whether the cluster was cordoned when it decided.",
}

_FURTHER_LABELS: Mapping[str, tuple[str, ...]] = {
    "stateshift_job_info": ("engine", "run", "workdir"),
    "stateshift_job_state": ("state",),
    "stateshift_job_step_age_seconds": ("phase",),
    "stateshift_advice_verdict": ("verdict",),
}
LABELS: Mapping[str, tuple[str, ...]] = {
    **{name: ("job", *_FURTHER_LABELS.get(name, ())) for name in METRICS},
    "stateshift_build_info": ("version",),
    "stateshift_runs": ("state",),
    "stateshift_rebalance_damaged": ("rebalance",),
    "stateshift_rebalance_timestamp_seconds": ("rebalance",),
    "stateshift_rebalance_planned_moves": ("rebalance",),
    "stateshift_rebalance_moves": ("rebalance", "state"),
    "stateshift_rebalance_stays": ("rebalance", "reason"),
    "stateshift_rebalance_load_ratio": ("rebalance", "cluster"),
    "stateshift_rebalance_cordoned": ("rebalance", "cluster"),
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric."""

    value: float
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples. All metrics are gauges."""

    name: str
    samples: tuple[Sample, ...]
    type: Literal["gauge"] = "gauge"

    @property
    def help(self) -> str:
        """The description of the metric."""
        return METRICS[self.name]


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A workdir. `held` says whether a process works on it, and `live` what that is at."""

    workdir: str
    progress: Progress | None = None
    report: Report | None = None
    held: bool = False
    live: Live | None = None

    @property
    def state(self) -> str:
        """The state of the run as it is shown."""
        if self.progress is None:
            return DAMAGED
        return shown_state(self.progress.state, self.held)

    @property
    def began(self) -> float:
        """When the run began; 0 of a damaged one."""
        return 0.0 if self.progress is None else self.progress.began


@dataclass(frozen=True, slots=True)
class TimedVerdict:
    """A verdict of `advise` on a job, and its time."""

    verdict: Verdict
    at: float


@dataclass(frozen=True, slots=True)
class RebalanceRecord:
    """The record of `rebalance` in a folder: the last decision, None before the first; and how many
    moves of all runs have come how far. `damaged` is whether some of it cannot be read; the rest is
    told then.
    """

    name: str
    decision: Decision | None
    moves: Mapping[str, int]
    damaged: bool = False


def families(
    runs: Sequence[ObservedRun],
    now: float,
    judged: Iterable[TimedVerdict] = (),
    rebalanced: Iterable[RebalanceRecord] = (),
) -> list[Family]:
    """Return every metric that has a value, in the order of METRICS."""
    samples: dict[str, list[Sample]] = {name: [] for name in METRICS}
    samples["stateshift_build_info"].append(Sample(1, (("version", __version__),)))
    counts = Counter(run.state for run in runs)
    for state in STATES:
        samples["stateshift_runs"].append(Sample(counts[state], (("state", state),)))
    for name, sample in _of_jobs(runs, now):
        samples[f"stateshift_{name}"].append(sample)
    for name, sample in _of_drills(runs):
        samples[f"stateshift_standby_{name}"].append(sample)
    oldest_first = sorted(judged, key=lambda judged: judged.at)
    verdicts = {each.verdict.job: each for each in oldest_first}
    for _, newest in sorted(verdicts.items()):
        for name, value in _of_verdict(newest):
            samples[f"stateshift_advice_{name}"].append(value)
    for each in rebalanced:
        for name, value in _of_rebalance(each):
            samples[f"stateshift_rebalance_{name}"].append(value)
    return [Family(name, tuple(found)) for name, found in samples.items() if found]


def _of_jobs(runs: Iterable[ObservedRun], now: float) -> Iterator[tuple[str, Sample]]:
    """Yield the values of each job's newest run, and its last success."""
    newest: dict[str, ObservedRun] = {}
    successes: dict[str, float] = {}
    for run in sorted(runs, key=lambda run: (run.began, run.workdir)):
        if run.progress is None or run.progress.rehearses:
            continue
        newest |= dict.fromkeys(run.progress.jobs, run)
        if run.progress.state == "finished":
            for job in run.progress.jobs:
                successes[job] = max(run.progress.ended, successes.get(job, 0.0))
    for job, run in sorted(newest.items()):
        job_run = _JobRun.of(job, run, now)
        for part in (_of_run, _of_downtime, _of_image, _of_steps, _of_rounds):
            for name, sample in part(job_run):
                yield f"job_{name}", sample
        for name, sample in _of_standby(job_run):
            yield f"standby_{name}", sample
    for job, at in sorted(successes.items()):
        yield "job_last_success_timestamp_seconds", Sample(at, (("job", job),))


def _of_drills(runs: Iterable[ObservedRun]) -> Iterator[tuple[str, Sample]]:
    """Yield the values of each job's last drill, and of the last one in which it went on."""
    last: dict[str, Rehearsed] = {}
    good: dict[str, Rehearsed] = {}
    for run in runs:
        ended = None if run.progress is None else run.progress.rehearsed
        if ended is None:
            continue
        latest = (last,) if ended.failure else (last, good)
        for drills in latest:
            before = drills.get(ended.job)
            if before is None or before.at < ended.at:
                drills[ended.job] = ended
    for job, ended in sorted(last.items()):
        yield "drill_timestamp_seconds", Sample(ended.at, (("job", job),))
        yield "drill_success", Sample(not ended.failure, (("job", job),))
    for job, ended in sorted(good.items()):
        yield "drill_success_timestamp_seconds", Sample(ended.at, (("job", job),))
        yield "drill_seconds", Sample(sum(ended.seconds.values()), (("job", job),))


@dataclass(frozen=True, slots=True)
class _JobRun:
    """A job, and its newest run."""

    job: str
    run: ObservedRun
    now: float
    progress: Progress
    report: Report
    done: JobReport | None = None
    left: Left | None = None

    @classmethod
    def of(cls, job: str, run: ObservedRun, now: float) -> _JobRun:
        assert run.progress is not None and run.report is not None, "it was read"
        done = next((each for each in run.report.jobs if each.job == job), None)
        live = run.live if run.held else None
        left = None if live is None else live.left.get(job)
        return cls(job, run, now, run.progress, run.report, done, left)

    def sample(self, value: float, **labels: str) -> Sample:
        """Return a value of this job."""
        return Sample(value, (("job", self.job), *labels.items()))


def _of_run(job: _JobRun) -> Iterator[tuple[str, Sample]]:
    run, report = job.run, job.report
    engine = report.engine if job.done is None else job.done.engine or report.engine
    yield "info", job.sample(1, engine=engine, run=report.run, workdir=run.workdir)
    for state in STATES:
        if state != DAMAGED:
            yield "state", job.sample(run.state == state, state=state)
    yield "at_work", job.sample(run.held)
    if run.held and run.live is not None:
        yield "paused", job.sample(run.live.paused)
    yield "began_timestamp_seconds", job.sample(job.progress.began)
    seconds = job.now - job.progress.began if run.held else report.seconds
    yield "run_seconds", job.sample(max(0.0, seconds))
    if report.failure is not None:
        yield "failure_exit_code", job.sample(report.failure.exit_code)


def _of_downtime(job: _JobRun) -> Iterator[tuple[str, Sample]]:
    done = job.done
    if done is None:
        yield "down", job.sample(0)
        return
    yield "down", job.sample(done.is_down)
    yield "may_be_down", job.sample(done.may_be_down and not job.run.held)
    if done.is_down and done.downtime_start is not None:
        since = job.progress.began + done.downtime_start
        yield "down_since_timestamp_seconds", job.sample(since)
    seconds = done.downtime_seconds
    if seconds is None and done.downtime_start is not None:
        seconds = max(0.0, job.now - job.progress.began - done.downtime_start)
    if seconds is not None:
        yield "downtime_seconds", job.sample(seconds)


def _of_image(job: _JobRun) -> Iterator[tuple[str, Sample]]:
    if job.done is None:
        return
    yield "copied_bytes", job.sample(job.done.bytes)
    yield "copied_files", job.sample(job.done.files)
    if job.done.entries is not None:
        yield "compared_entries", job.sample(job.done.entries)


def _of_steps(job: _JobRun) -> Iterator[tuple[str, Sample]]:
    """Yield the age of the oldest step under way, by phase."""
    ages: dict[str, float] = {}
    plans = job.progress.plans_of((job.job,)) if job.run.held else ()
    for plan in plans:
        for step in plan.steps.values():
            if step.state == "started":
                age = max(0.0, job.now - step.at)
                ages[step.phase] = max(age, ages.get(step.phase, 0.0))
    for phase, age in sorted(ages.items()):
        yield "step_age_seconds", job.sample(age, phase=phase)


def _of_rounds(job: _JobRun) -> Iterator[tuple[str, Sample]]:
    if job.done is not None and job.done.rounds:
        last = max(job.done.rounds, key=lambda copied: copied.number)
        over = job.progress.began + last.start + last.seconds
        yield "warm_rounds", job.sample(last.number)
        yield "warm_copied_timestamp_seconds", job.sample(over)
    if job.done is not None and job.done.source_lost is not None:
        yield "source_lost_timestamp_seconds", job.sample(job.done.source_lost.since)
    if job.left is not None:
        yield "warm_left_bytes", job.sample(job.left.bytes)
        yield "warm_left_seconds", job.sample(job.left.seconds)
        if job.left.written_per_second is not None:
            written = job.left.written_per_second
            yield "warm_written_bytes_per_second", job.sample(written)


def _of_standby(job: _JobRun) -> Iterator[tuple[str, Sample]]:
    """Yield the image that a standby has."""
    if job.done is None or job.done.standby is None:
        return
    kept = job.done.standby
    if kept.epoch is not None:
        yield "epoch", job.sample(kept.epoch)
    yield "published_timestamp_seconds", job.sample(kept.at)
    if kept.committed_at is not None:
        yield "committed_timestamp_seconds", job.sample(kept.committed_at)
    lag = lag_of(job.done, job.run.held, job.now)
    if lag is not None and lag.bound is not None and lag.is_kept is not None:
        yield "rpo_bound_seconds", job.sample(lag.bound)
        yield "rpo_kept", job.sample(lag.is_kept)


def _of_verdict(judged: TimedVerdict) -> Iterator[tuple[str, Sample]]:
    """Yield the values of a verdict, each with its metric; what cannot be told has none."""
    verdict = judged.verdict
    job = ("job", verdict.job)
    yield "timestamp_seconds", Sample(judged.at, (job,))
    for word in VERDICTS:
        yield "verdict", Sample(verdict.word == word, (job, ("verdict", word)))
    yield "restart_seconds", Sample(verdict.restart.seconds, (job,))
    values = {
        "headroom_ratio": verdict.headroom,
        "lag_records": verdict.lag,
        "drain_seconds": verdict.drain_seconds,
        "parallelism": verdict.parallelism,
        "wanted_parallelism": verdict.wanted,
    }
    for name, value in values.items():
        if value is not None:
            yield name, Sample(value, (job,))


def _of_rebalance(rebalanced: RebalanceRecord) -> Iterator[tuple[str, Sample]]:
    """Yield the values of a folder of rebalance, each with its metric."""
    folder, decision = ("rebalance", rebalanced.name), rebalanced.decision
    yield "damaged", Sample(rebalanced.damaged, (folder,))
    for state, count in rebalanced.moves.items():
        yield "moves", Sample(count, (folder, ("state", state)))
    if decision is None:
        return
    yield "timestamp_seconds", Sample(decision.at, (folder,))
    yield "planned_moves", Sample(len(decision.moves), (folder,))
    counts = Counter(stay.kind for stay in decision.stays)
    for kind in get_args(StayKind):
        yield "stays", Sample(counts[kind], (folder, ("reason", kind)))
    for cluster in decision.clusters:
        cordoned = (folder, ("cluster", cluster.name))
        yield "cordoned", Sample(cluster.is_cordoned, cordoned)
        if cluster.capacity:
            load = cluster.before / cluster.capacity
            yield "load_ratio", Sample(load, (folder, ("cluster", cluster.name)))


# ---- documents -----------------------------------------------------------------------------------


class SampleDocument(TypedDict):
    """One value of a metric."""

    labels: Annotated[dict[str, str], "the labels by name", At(lambda sample: dict(sample.labels))]
    value: Annotated[float, "the value", At(lambda sample: float(sample.value))]


class MetricDocument(TypedDict):
    """A metric with its values."""

    name: Annotated[str, "its name"]
    type: Annotated[Literal["gauge"], "its type, in Prometheus' words"]
    help: Annotated[str, "what it says"]
    samples: Annotated[list[SampleDocument], "its values"]


class MetricsDocument(TypedDict):
    """What `metrics` measures."""

    metrics: Annotated[list[MetricDocument], "every metric that has a value"]
    output: Annotated[str | None, "the file that was written"]


def metrics_document(families: Iterable[Family], output: str | None) -> MetricsDocument:
    """Return the document of all metrics."""
    return {"metrics": documents_of(MetricDocument, families), "output": output}
