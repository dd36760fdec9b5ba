"""Which jobs to look at, and where: those of a spec, of a Flink by its URL, of a checkpoint.

of_spec(spec, only, outside)           each job of a spec, where it runs at present
of_flink(url, only, outside)           the jobs that run on a Flink
of_checkpoint(location, outside)       the queries of a checkpoint
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from stateshift.advise.advising import Known, Subject
from stateshift.advise.evaluate.inputs import FreeSlots, RestartCost
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.metrics.driver import Driver
from stateshift.advise.metrics.flink import FlinkJob, restart_of, running_jobs
from stateshift.advise.metrics.spark import (
    AskTopics,
    Brokers,
    Checkpoint,
    SparkQuery,
    queries_below,
)
from stateshift.advise.relocation import (
    ASK_CHECKPOINT,
    fenced_by,
    is_left_behind,
    on_neither,
    target_cluster_of,
    target_of,
)
from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.cluster import FlinkRest
from stateshift.clusters.flink.jobs import jobs_of_name
from stateshift.clusters.http.rest import Unanswered
from stateshift.clusters.opening import check_cluster
from stateshift.clusters.protocol import JobState
from stateshift.errors import ClusterError, Complaint, SpecError, StateshiftError
from stateshift.specification.model import ClusterSpec, JobSpec, KafkaSpec, Spec, SubmitSpec
from stateshift.storage.protocol import Storage
from stateshift.suggestion import BRACKETED, did_you_mean
from stateshift.world import Clock

FLINK_REST: Final = "flink_rest"


@dataclass(frozen=True)
class Outside:
    """How the outside is reached, and what the caller knows: restart times that our own runs have
    measured, by job; of a Spark job its `cores`, where the page of its driver is, and whose
    authority the certificate of that is of; `notes` on where jobs run, `since` when they were moved
    there.
    """

    open_storage: Callable[[str], Storage]
    ask_topics: AskTopics
    clock: Clock
    settings: Settings
    restarts: Mapping[str, float] = field(default_factory=dict)
    cores: int | None = None
    driver_ui: str | None = None
    driver_ca_file: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)
    since: Mapping[str, float | None] = field(default_factory=dict)


def of_spec(spec: Spec, only: Collection[str], outside: Outside) -> list[Subject]:
    """Return the jobs of a spec, or those of the names in `only`.

    Raises:
        SpecError: a name is none of the spec's jobs, or a cluster's options are not valid.
    """
    names = [job.name for job in spec.jobs]
    asked = only or names
    for name in only:
        if name not in names:
            message = f"the spec has no job {name!r}{did_you_mean(name, names, BRACKETED)}"
            raise SpecError((Complaint("--job", message),), hint=f"--job {names[0]!r}")
    subjects: list[Subject] = []
    for job in spec.jobs:
        if job.name not in asked:
            continue
        if spec.engine == "flink":
            of_job = [_flink_job(spec, job, outside)]
        else:
            of_job = _spark_job(job, outside)
        note, since = outside.notes.get(job.name, ""), outside.since.get(job.name)
        subjects += [replace(each, note=note or each.note, since=since) for each in of_job]
    return subjects


def of_flink(url: str, only: Collection[str], outside: Outside) -> list[Subject]:
    """Return the jobs that run on a Flink, or those of the names or ids in `only`."""
    options = check_cluster(ClusterSpec(url, FLINK_REST, {"url": url}))
    calls = FlinkCalls(url, url, options)
    try:
        running = running_jobs(calls)
    except ClusterError as error:
        return [Subject(url, "flink", trouble=str(error))]
    if not only:
        return [_flink_subject(name, _FlinkPlace(calls, (id,)), outside) for id, name in running]
    by_word = {
        **{name: (name, id) for id, name in running},
        **{id: (name, id) for id, name in running},
    }
    return [_asked_for(word, by_word, calls, outside) for word in only]


def _asked_for(
    word: str,
    by_word: Mapping[str, tuple[str, str]],
    calls: FlinkCalls,
    outside: Outside,
) -> Subject:
    if word not in by_word:
        return Subject(word, "flink", trouble=f"no job of this name or id runs at {calls.url}")
    name, id = by_word[word]
    return _flink_subject(name, _FlinkPlace(calls, (id,)), outside)


def of_checkpoint(location: str, outside: Outside) -> list[Subject]:
    """Return the queries of a checkpoint of Spark."""
    driver = _driver(outside.driver_ui, outside.driver_ca_file)
    return _queries(location, location, _Around(outside, driver=driver))


# ---- Flink


@dataclass(frozen=True)
class _FlinkPlace:
    """A Flink where a job may run, and by which ids it would be known there."""

    calls: FlinkCalls
    ids: tuple[str, ...] = ()

    def find(self, name: str, outside: Outside) -> FlinkJob:
        """Return the job of this name, or of the last id."""
        id = self.ids[-1] if self.ids else _running_id(self.calls, name)
        return FlinkJob(self.calls, id, outside.clock)

    def find_alive(self, name: str, outside: Outside) -> FlinkJob:
        """Return the same; one of an id is asked for whether it is over.

        Raises:
            ClusterError: it has ended, or Flink does not know it, or does not answer.
        """
        job = self.find(name, outside)
        if self.ids:
            job.refuse_ended()
        return job

    def name_of_ended(self, name: str) -> str:
        """Return what the job of the last id is called here, while its cluster knows it; else the
        name that the spec has.
        """
        if not self.ids:
            return name
        try:
            page = self.calls.page(self.ids[-1])
            with self.calls.reading(f"/jobs/{self.ids[-1]}"):
                return name if page is None else str(page["name"])
        except ClusterError:
            return name


def _flink_job(spec: Spec, job: JobSpec, outside: Outside) -> Subject:
    """Return a job of a spec, as its source cluster knows it, or its target cluster does by now."""
    if job.source_cluster is None:
        return Subject(
            job.name,
            "flink",
            trouble='the spec does not say where it runs: give it a "source_cluster"',
        )
    cluster = spec.cluster(job.source_cluster)
    if cluster.kind != FLINK_REST:
        trouble = f"{cluster.name} is of kind {cluster.kind}: only {FLINK_REST} tells of load"
        return Subject(job.name, "flink", trouble=trouble)
    ids = [*job.ids_on_cluster, *job.stop.get("job_ids", ())]
    if "job_id" in job.stop:
        ids.append(job.stop["job_id"])
    name = str(job.stop.get("job_name", job.name))
    source = _FlinkPlace(_calls_of(cluster), tuple(map(str, ids)))
    target = None
    name_of_target = target_cluster_of(job)
    if name_of_target is not None and spec.cluster(name_of_target).kind == FLINK_REST:
        target = _FlinkPlace(_calls_of(spec.cluster(name_of_target)))
    subject = _flink_subject(name, source, outside, target)
    return replace(subject, job=job.name, location=job.source)


def _calls_of(cluster: ClusterSpec) -> FlinkCalls:
    return FlinkCalls(cluster.name, str(cluster.options.get("url")), check_cluster(cluster))


def _flink_subject(
    name: str, source: _FlinkPlace, outside: Outside, target: _FlinkPlace | None = None
) -> Subject:
    def find() -> FlinkJob:
        if target is None:
            return source.find(name, outside)
        try:
            return source.find_alive(name, outside)
        except ClusterError as not_here:
            try:
                return target.find_alive(source.name_of_ended(name), outside)
            except ClusterError as not_there:
                raise on_neither(name, not_here, not_there) from not_there

    def ask() -> Known:
        calls = find().calls
        note = ""
        if target is not None and calls is target.calls:
            note = f"it was looked at on {calls.cluster}, its target: it runs there, and no more "
            note += f"on {source.calls.cluster}, its source"
        return Known(_restart(name, calls, find, outside), _slots(calls), note)

    return Subject(name, "flink", find, ask)


def _running_id(calls: FlinkCalls, name: str) -> str:
    """Return the id of the job of this name that runs."""
    alive = [job for job in jobs_of_name(calls, name) if job.state is JobState.RUNNING]
    if len(alive) == 1:
        return alive[0].id
    if not alive:
        raise ClusterError(f"no job called {name!r} runs there", cluster=calls.cluster, job=name)
    ids = ", ".join(job.id for job in alive)
    fact = f"{len(alive)} jobs called {name!r} run there: {ids}"
    raise ClusterError(fact, cluster=calls.cluster, job=name)


def _restart(
    name: str, calls: FlinkCalls, find: Callable[[], FlinkJob], outside: Outside
) -> RestartCost:
    """Return what a restart costs: as our own runs have measured it, else as Flink remembers it."""
    if name in outside.restarts:
        return RestartCost(outside.restarts[name], "runs")
    try:
        return restart_of(calls, find().id) or RestartCost()
    except Unanswered:
        return RestartCost()


def _slots(calls: FlinkCalls) -> FreeSlots | None:
    slots = FlinkRest(calls.cluster, Path(), calls.options).slots()
    return None if slots is None else FreeSlots(slots.all, slots.free, slots.on_demand)


# ---- Spark


@dataclass(frozen=True)
class _Around:
    """What the queries of one job have in common."""

    outside: Outside
    kafka: KafkaSpec | None = None
    driver: Driver | None = None
    cores_asked_for: int | None = None


def _spark_job(job: JobSpec, outside: Outside) -> list[Subject]:
    """Return the queries of a job at its source, or at its target by now."""
    target = target_of(job)
    why = "" if target is None else _why_not_at_source(job, target, outside)
    if target is None or not why:
        return _queries(job.name, job.source, _of_spark_job(job, outside))
    queries = _queries(job.name, target, _of_moved_job(job, outside))
    trouble = queries[0].trouble
    if trouble is not None:
        return [Subject(job.name, "spark", trouble=f"{why}, and {trouble}: {ASK_CHECKPOINT}")]
    note = f"it was looked at in {target}, its target: {why}"
    return [replace(query, note=note) for query in queries]


def _why_not_at_source(job: JobSpec, target: str, outside: Outside) -> str:
    """Return why the checkpoint at its source is not the one that a job writes to; "" if it may
    be.
    """
    try:
        source = _checkpoints(job.source, outside)
        owner = fenced_by(source)
    except StateshiftError as error:
        return f"{job.source}, its source, cannot be read ({error.fact})"
    if not source:
        return f"there is no checkpoint at {job.source}, its source"
    if owner is not None:
        return f"run {owner} has moved it away from {job.source}, its source"
    now, silent = outside.clock.now(), outside.settings.sample_age_max
    try:
        is_behind = is_left_behind(source, _checkpoints(target, outside), now, silent)
    except StateshiftError:
        return ""
    if is_behind:
        return f"{job.source}, its source, stands still, and its target has later batches"
    return ""


def _checkpoints(location: str, outside: Outside) -> list[Checkpoint]:
    storage = outside.open_storage(location)
    return [Checkpoint(storage, prefix) for prefix in queries_below(storage)]


def _of_spark_job(job: JobSpec, outside: Outside) -> _Around:
    url = outside.driver_ui or job.driver_ui
    driver = _driver(url, outside.driver_ca_file or job.driver_ca_file)
    cores = _cores_asked_for(job.source_submit or job.submit)
    return _Around(outside, _kafka(job), driver, cores)


def _of_moved_job(job: JobSpec, outside: Outside) -> _Around:
    """Return the same of a job at its target: it has other brokers there, and another driver."""
    driver = _driver(outside.driver_ui, outside.driver_ca_file)
    return _Around(outside, job.kafka, driver, _cores_asked_for(job.submit))


def _driver(url: str | None, ca_file: str | None) -> Driver | None:
    return None if url is None else Driver(url, ca_file)


def _queries(name: str, location: str, around: _Around) -> list[Subject]:
    """Return the queries of a job: one where its location is a checkpoint itself."""
    try:
        storage = around.outside.open_storage(location)
        prefixes = queries_below(storage)
    except StateshiftError as error:
        return [Subject(name, "spark", trouble=str(error))]
    if not prefixes:
        return [Subject(name, "spark", trouble=f"there is no checkpoint at {location}")]
    return [_query(name, Checkpoint(storage, prefix), around) for prefix in prefixes]


def _query(name: str, checkpoint: Checkpoint, around: _Around) -> Subject:
    outside, prefix = around.outside, checkpoint.prefix

    def find() -> SparkQuery:
        brokers = None if around.kafka is None else Brokers(around.kafka, outside.ask_topics)
        window = outside.settings.metrics_window
        return SparkQuery(checkpoint, outside.clock, window, brokers, around.driver)

    def ask() -> Known:
        seconds = outside.restarts.get(name)
        return Known() if seconds is None else Known(RestartCost(seconds, "runs"))

    return Subject(
        job=f"{name}/{prefix}" if prefix else name,
        engine="spark",
        open=find,
        ask=ask,
        location=checkpoint.location,
        cores=outside.cores,
        cores_asked_for=around.cores_asked_for,
    )


def _kafka(job: JobSpec) -> KafkaSpec | None:
    """Return the brokers from which the job reads at present."""
    kafka = job.kafka
    if kafka is None or kafka.source_bootstrap_servers is None:
        return kafka
    return KafkaSpec(kafka.source_bootstrap_servers, kafka.source_properties)


def _cores_asked_for(submit: SubmitSpec | None) -> int | None:
    """Return how many cores a job is started with, as far as its submission says."""
    conf = {} if submit is None else submit.options.get("conf", {})
    if not isinstance(conf, Mapping):
        return None
    if "spark.cores.max" in conf:
        return _count(conf["spark.cores.max"])
    executors = _count(conf.get("spark.executor.instances"))
    if executors is None:
        return None
    return executors * (_count(conf.get("spark.executor.cores")) or 1)


def _count(value: object) -> int | None:
    word = str(value)
    return int(word) if word.isdecimal() and int(word) > 0 else None
