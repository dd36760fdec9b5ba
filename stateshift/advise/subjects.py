"""The jobs to look at, where they run: those of a spec, of a Flink by its URL, of a checkpoint.

    of_spec(spec, only, outside)           each job of a spec, where it runs at present
    of_flink(url, only, outside)           the jobs that run on a Flink
    of_checkpoint(location, outside)       the queries of a checkpoint

A job of a spec is at its source or, once `apply` has moved it, at its target:

    Flink   on its target cluster, if its source cluster has no such job, or does not answer
    Spark   in its target's checkpoint, if the source is fenced, is not there, or has been
            standing still while the target went on

A fork leaves its source where it is: nobody looks for that elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from stateshift.advise.advising import JobFacts, Subject
from stateshift.advise.evaluate.inputs import FreeSlots, RestartCost
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.measuring import Where, where_on
from stateshift.advise.metrics.driver import Driver
from stateshift.advise.metrics.flink import FlinkJob, restart_of
from stateshift.advise.metrics.spark import (
    AskTopics,
    Brokers,
    Checkpoint,
    SparkQuery,
    queries_below,
)
from stateshift.clusters.flink.calls import FlinkCalls
from stateshift.clusters.flink.jobs import slots_of
from stateshift.clusters.http import Unanswered
from stateshift.clusters.kind import check_cluster
from stateshift.engines.spark.layout import number_of_log
from stateshift.errors import ClusterError, SpecError, StateshiftError
from stateshift.formats.marks import fence_owner
from stateshift.specification.model import ClusterSpec, JobSpec, KafkaSpec, Spec, SubmitSpec
from stateshift.storage.protocol import Storage
from stateshift.suggestion import BRACKETED, did_you_mean
from stateshift.survey import FileInfo
from stateshift.world import Clock

FLINK_REST: Final = "flink_rest"
_TELL_LOAD: Final = (FLINK_REST, "flink_yarn", "flink_operator")
# Ways out where a job is found at neither end.
ASK_FLINK = "name the Flink where it runs, stateshift advise URL, or start it"
ASK_CHECKPOINT = "name the checkpoint that it writes to now: stateshift advise LOCATION"


@dataclass(frozen=True)
class Outside:
    """The ways to the outside, and the caller's knowledge: restart times that our own runs have
    measured, by job; of a Spark job its `cores`, the page of its driver, and the authority of that
    page's certificate; `notes` on where jobs run, `since` the times of their moves there.
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
            raise SpecError.of("--job", message, hint=f"--job {names[0]!r}")
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
        running = tuple((id, name) for id, name, state in calls.jobs() if state == "RUNNING")
    except ClusterError as error:
        return [Subject(url, "flink", trouble=str(error))]

    def subject(name: str, id: str) -> Subject:
        return _flink_subject(name, _FlinkPlace(url, lambda *_: (calls, id), (id,)), outside)

    if not only:
        return [subject(name, id) for id, name in running]
    by_name = {name: (name, id) for id, name in running}
    by_word = by_name | {id: (name, id) for id, name in running}
    subjects = []
    for word in only:
        if word in by_word:
            subjects.append(subject(*by_word[word]))
        else:
            trouble = f"no job of this name or id runs at {calls.url}"
            subjects.append(Subject(word, "flink", trouble=trouble))
    return subjects


def of_checkpoint(location: str, outside: Outside) -> list[Subject]:
    """Return the queries of a checkpoint of Spark."""
    driver = _driver(outside.driver_ui, outside.driver_ca_file)
    return _queries(location, location, _Around(outside, driver=driver))


# ---- Flink


@dataclass(frozen=True)
class _FlinkPlace:
    """A cluster where a job may run, the way to it, and its ids there."""

    cluster: str
    where: Where
    ids: tuple[str, ...] = ()

    def find(self, name: str, outside: Outside) -> FlinkJob:
        """Return the job of this name, or of the last id."""
        calls, id = self.where(self.ids[-1], True) if self.ids else self.where(name, False)
        return FlinkJob(calls, id, outside.clock)

    def find_alive(self, name: str, outside: Outside) -> FlinkJob:
        """Return the same, and ask for one of an id whether it is over.

        Raises:
            ClusterError: it has ended, or Flink does not know it, or does not answer.
        """
        job = self.find(name, outside)
        if self.ids:
            job.refuse_ended()
        return job

    def name_of_ended(self, name: str) -> str:
        """Return the name of the last id's job, if its cluster knows it; else the spec's."""
        if not self.ids:
            return name
        try:
            calls, id = self.where(self.ids[-1], True)
            page = calls.page(id)
            with calls.read(f"/jobs/{id}"):
                return name if page is None else str(page["name"])
        except ClusterError:
            return name


def _flink_job(spec: Spec, job: JobSpec, outside: Outside) -> Subject:
    """Return a job of a spec, as its source cluster knows it, or its target cluster does by now."""
    if job.source_cluster is None:
        trouble = 'the spec does not say where it runs: give it a "source_cluster"'
        return Subject(job.name, "flink", trouble=trouble)
    cluster = spec.cluster(job.source_cluster)
    if cluster.kind not in _TELL_LOAD:
        which = ", ".join(_TELL_LOAD)
        trouble = f"{cluster.name} is of kind {cluster.kind}: only {which} tell of load"
        return Subject(job.name, "flink", trouble=trouble)
    ids = [*job.ids_on_cluster, *job.stop.get("job_ids", ())]
    if "job_id" in job.stop:
        ids.append(job.stop["job_id"])
    name = str(job.stop.get("job_name") or job.stop.get("resource") or job.name)
    source = _place_of(cluster, tuple(map(str, ids)))
    target, elsewhere = None, job.target_cluster
    if elsewhere is not None and job.moves and elsewhere != job.source_cluster:
        to = spec.cluster(elsewhere)
        there = () if job.submit is None else (job.submit.options.get("resource"),)
        named = tuple(str(resource) for resource in there if resource is not None)
        target = _place_of(to, named) if to.kind in _TELL_LOAD else None
    subject = _flink_subject(name, source, outside, target)
    return replace(subject, job=job.name, location=job.source)


def _place_of(cluster: ClusterSpec, ids: tuple[str, ...] = ()) -> _FlinkPlace:
    return _FlinkPlace(cluster.name, where_on(cluster), ids)


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
                fact = (
                    f"it runs neither at its source ({not_here.fact}) nor at its target "
                    f"({not_there.fact}): {ASK_FLINK}"
                )
                raise ClusterError(fact, job=name) from not_there

    def ask() -> JobFacts:
        job = find()
        calls, note = job.calls, ""
        if target is not None and calls.cluster == target.cluster:
            note = f"it was looked at on {calls.cluster}, its target: it runs there, and no more "
            note += f"on {source.cluster}, its source"
        if name in outside.restarts:
            restart = RestartCost(outside.restarts[name], "runs")
        else:
            try:
                restart = restart_of(calls, job.id) or RestartCost()
            except Unanswered:
                restart = RestartCost()
        slots = slots_of(calls)
        free = None if slots is None else FreeSlots(slots.all, slots.free, slots.on_demand)
        return JobFacts(restart, free, note)

    return Subject(name, "flink", find, ask)


# ---- Spark


@dataclass(frozen=True)
class _Around:
    """The facts that the queries of one job have in common."""

    outside: Outside
    kafka: KafkaSpec | None = None
    driver: Driver | None = None
    cores_asked_for: int | None = None


def _spark_job(job: JobSpec, outside: Outside) -> list[Subject]:
    """Return the queries of a job at its source, or at its target by now."""
    target, why = job.target, ""
    if job.moves and target is not None and target != job.source:
        why = _why_not_at_source(job, target, outside)
    if target is None or not why:
        url = outside.driver_ui or job.driver_ui
        driver = _driver(url, outside.driver_ca_file or job.driver_ca_file)
        cores = _cores_asked_for(job.source_submit or job.submit)
        kafka = job.kafka
        if kafka is not None and kafka.source_bootstrap_servers is not None:
            kafka = KafkaSpec(kafka.source_bootstrap_servers, kafka.source_properties)
        return _queries(job.name, job.source, _Around(outside, kafka, driver, cores))
    # It has other brokers at its target, and another driver.
    driver = _driver(outside.driver_ui, outside.driver_ca_file)
    around = _Around(outside, job.kafka, driver, _cores_asked_for(job.submit))
    queries = _queries(job.name, target, around)
    trouble = queries[0].trouble
    if trouble is not None:
        return [Subject(job.name, "spark", trouble=f"{why}, and {trouble}: {ASK_CHECKPOINT}")]
    note = f"it was looked at in {target}, its target: {why}"
    return [replace(query, note=note) for query in queries]


def _why_not_at_source(job: JobSpec, target: str, outside: Outside) -> str:
    """Return the reason for which a job does not write to its source's checkpoint, or ""."""
    try:
        source = _checkpoints(job.source, outside)
        owner = owner_of_fence(source)
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


def owner_of_fence(queries: Sequence[Checkpoint]) -> str | None:
    """Return the run that has moved the queries of a checkpoint away, by the fence that it has left
    there; None where there is none.

    Raises:
        StorageError: the checkpoint cannot be read.
    """
    for query in queries:
        for file in (_newest(query, "offsets"), _newest(query, "commits")):
            owner = None if file is None else fence_owner(query.storage.read(file.path))
            if owner is not None:
                return owner
    return None


def is_left_behind(
    queries: Sequence[Checkpoint], targets: Sequence[Checkpoint], now: float, seconds_max: float
) -> bool:
    """Whether queries stand still, and targets have later batches (no copied commits)."""
    last = _last_commits(queries)
    further = _last_commits(targets)
    if not last or set(last) != set(further):
        return False
    if any(now - file.modified < seconds_max for file in last.values()):
        return False
    pairs = [(last[prefix].path, further[prefix].path) for prefix in last]
    return all(number_of_log(later) > number_of_log(earlier) for earlier, later in pairs)


def _last_commits(queries: Sequence[Checkpoint]) -> dict[str, FileInfo]:
    commits: dict[str, FileInfo] = {}
    for query in queries:
        newest = _newest(query, "commits")
        if newest is not None:
            commits[query.prefix] = newest
    return commits


def _newest(query: Checkpoint, folder: str) -> FileInfo | None:
    """Return the last log of a folder."""
    logs = dict(query.logs(folder))
    return logs[max(logs)] if logs else None


def _checkpoints(location: str, outside: Outside) -> list[Checkpoint]:
    storage = outside.open_storage(location)
    return [Checkpoint(storage, prefix) for prefix in queries_below(storage)]


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

    def ask() -> JobFacts:
        seconds = outside.restarts.get(name)
        return JobFacts() if seconds is None else JobFacts(RestartCost(seconds, "runs"))

    return Subject(
        job=f"{name}/{prefix}" if prefix else name,
        engine="spark",
        open=find,
        ask=ask,
        location=checkpoint.location,
        cores=outside.cores,
        cores_asked_for=around.cores_asked_for,
    )


def _cores_asked_for(submit: SubmitSpec | None) -> int | None:
    """Return the number of cores that a job is started with, as far as its submission says."""
    conf = {} if submit is None else submit.options.get("conf", {})
    if not isinstance(conf, Mapping):
        return None
    if "spark.cores.max" in conf:
        return count_of(conf["spark.cores.max"])
    executors = count_of(conf.get("spark.executor.instances"))
    if executors is None:
        return None
    return executors * (count_of(conf.get("spark.executor.cores")) or 1)


def count_of(value: object) -> int | None:
    """Return a count that a setting of Spark gives as text; None for anything else."""
    word = str(value)
    return int(word) if word.isdecimal() and int(word) > 0 else None
