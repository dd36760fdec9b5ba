"""Which jobs run, and on which cluster. A job that runs twice, or not at all, is never moved:
somebody else is at work on it, or it needs somebody. One that somebody has moved by hand is where
it runs, if it brings its image itself, as Flink's do; nobody tells where another's image is.

Jobs that run nowhere, and have ended, are left out of a decision:

    finished or canceled, as its cluster says    it has ended
    failed, or its cluster does not know it      it may come back, and is waited for; a day without
                                                 a trace of it counts as an end

One that has ended stays so until it runs again: its cluster forgets it after a while.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Protocol, TypeVar, cast

from stateshift.api.rebalancing.folder import Absence
from stateshift.api.rebalancing.past import JobPlace
from stateshift.clusters.protocol import Cluster, JobState, RunningJob, StopRequest
from stateshift.errors import Complaint, SpecError, StateshiftError
from stateshift.migration import Adapters
from stateshift.specification import JobSpec, Spec
from stateshift.specification.rebalancing import JOB, is_pattern, matches
from stateshift.workdir import Workdir

T = TypeVar("T")
# The kind of cluster that sees processes, whichever cluster of the spec has started them.
OF_THIS_MACHINE = "spark_submit"
# The number of a move that was none of ours.
BY_HAND = 0
# For so long a job may be without a trace before it counts as ended.
ABSENT_SECONDS_MAX = 86400.0
# The words of a cluster for an end that somebody wanted.
WANTED_ENDS = ("finished", "canceled")


class JobLister(Protocol):
    """A cluster that tells which jobs run there."""

    def alive(self) -> tuple[RunningJob, ...]: ...

    def ended_as(self, name: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class JobList:
    """A cluster's list of its jobs: (id, name) of each; None where it does not list them.
    `trouble` is why it cannot be asked.
    """

    cluster: Cluster
    jobs: tuple[tuple[str, str], ...] | None = None
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The place where a job runs, as far as that is known. `id` is what its cluster calls it;
    `unknown` says why it is not to be moved, `note` what else should be known. `is_absent` is
    whether all clusters answer and it runs on none, `ended` how it has ended as its own one says.
    """

    place: JobPlace
    id: str | None = None
    unknown: str = ""
    note: str = ""
    is_absent: bool = False
    ended: str = ""


def list_jobs(
    spec: Spec, names: Iterable[str], adapters: Adapters, place: Workdir
) -> dict[str, JobList]:
    """Return the jobs that the spec's clusters of these names list, by the clusters' names. `place`
    is the workdir of clusters that are only asked.
    """
    clusters = {name: adapters.open_cluster(spec.cluster(name), place) for name in names}
    listed: dict[str, JobList] = {}
    for name, cluster in clusters.items():
        listed[name] = JobList(cluster)
        if hasattr(cluster, "alive"):
            try:
                running = cast(JobLister, cluster).alive()
            except StateshiftError as error:
                listed[name] = JobList(cluster, trouble=error.fact)
            else:
                listed[name] = JobList(cluster, tuple((job.id, job.name) for job in running))
    return listed


# ---- patterns


def jobs_meant(
    jobs: Iterable[JobSpec], clusters: Mapping[str, JobList], places: Mapping[str, JobPlace]
) -> tuple[JobSpec, ...]:
    """Return the jobs of a spec: those of a pattern are found by the names that run where it says,
    and by those that we have moved from there.
    """
    jobs = tuple(jobs)
    meant = {job.name: job for job in jobs if not is_pattern(job.name)}
    for job in jobs:
        if not is_pattern(job.name):
            continue
        here = clusters.get(job.source_cluster or "")
        running = [] if here is None else [name for _, name in here.jobs or ()]
        for name in sorted({*running, *places}):
            if matches(name, job.name):
                meant.setdefault(name, replace(_filled(job, name), name=name))
    return tuple(meant.values())


def _filled(value: T, name: str) -> T:
    """Return a value of the model with a name wherever `{job}` stands in a text of it."""
    filled: object = value
    if isinstance(value, str):
        filled = value.replace(JOB, name)
    elif isinstance(value, tuple | list):
        filled = type(value)(_filled(item, name) for item in value)
    elif isinstance(value, Mapping):
        filled = {key: _filled(item, name) for key, item in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        filled = replace(value, **{key: _filled(item, name) for key, item in parts.items()})
    return cast(T, filled)


# ---- where each is


def jobs_now(
    jobs: Iterable[JobSpec], clusters: Mapping[str, JobList], places: Mapping[str, JobPlace]
) -> tuple[dict[str, JobSpec], dict[str, Whereabouts]]:
    """Return the jobs of a spec as they are where they are now, and where that is, by name."""
    present, where = {}, {}
    for job in jobs_meant(jobs, clusters, places):
        place = places.get(job.name) or JobPlace(job.source_cluster or "")
        where[job.name] = whereabouts_of(at_place(job, place), place, clusters)
        present[job.name] = at_place(job, where[job.name].place)
    return present, where


def move_times(where: Mapping[str, Whereabouts], now: float) -> dict[str, float | None]:
    """Return the time at which each job was moved to where it is; None of one that never was, or
    whose move is still to come by a clock that was set back: nothing would count until then.
    """
    times: dict[str, float | None] = {}
    for name, each in where.items():
        at = each.place.at
        times[name] = at if at is not None and at <= now else None
    return times


# The keys of the spec's `stop` that hold for the job as somebody else has started it, and of no
# later one; so does its `driver_ui`.
_OF_THE_FIRST = (
    "app_name",
    "application_id",
    "pod",
    "driver",
    "pid_file",
    "batch",
    "batch_name",
    "job_id",
    "job_ids",
)


def at_place(job: JobSpec, place: JobPlace) -> JobSpec:
    """Return a job as it is where it is now: one that we have moved is one that we have started."""
    if place.number is None:
        return replace(job, source_cluster=place.cluster)
    stop = {key: value for key, value in job.stop.items() if key not in _OF_THE_FIRST}
    source = place.image or job.source
    at = replace(job, source_cluster=place.cluster, source=source, stop=stop, driver_ui=None)
    return at if place.parallelism is None else with_parallelism(at, place.parallelism)


def with_parallelism(job: JobSpec, count: int) -> JobSpec:
    """Return a job that is started with another parallelism."""
    if job.submit is None:
        return job
    options = {**job.submit.options, "parallelism": count}
    return replace(job, submit=replace(job.submit, options=options))


def refuse_lost_clusters(
    jobs: Iterable[JobSpec], places: Mapping[str, JobPlace], names: Collection[str]
) -> None:
    """Refuse a spec that has lost a cluster to which jobs of it were moved. A job that it no longer
    means may be anywhere.

    Raises:
        SpecError: it says which cluster, and whose.
    """
    patterns = [job.name for job in jobs]
    for job, place in places.items():
        if place.cluster not in names and any(matches(job, pattern) for pattern in patterns):
            message = f"{place.cluster!r} is missing: move {place.number} has brought {job} there"
            expected = f"the clusters with {place.cluster!r}"
            raise SpecError((Complaint("/rebalance/clusters", message, expected=expected),))


def whereabouts_of(job: JobSpec, place: JobPlace, clusters: Mapping[str, JobList]) -> Whereabouts:
    """Return the place where a job is, beginning with the one where it is thought to be."""
    found: dict[str, list[str]] = {}
    for name, each in clusters.items():
        try:
            ids = ids_of(job, each)
        except StateshiftError as error:
            return Whereabouts(place, unknown=f"{name} does not tell whether it runs: {error.fact}")
        if ids is None and name == place.cluster:
            return Whereabouts(place)  # it cannot tell: what was measured shows whether it runs
        if ids:
            found[name] = ids
    if found:
        return _judge(job, place, _tell_apart(place, found, clusters))
    # It may be where a cluster gives no answer.
    fact = f"it does not run on {place.cluster}, nor elsewhere"
    if any(each.trouble for each in clusters.values()):
        return Whereabouts(place, unknown=fact)
    ended, listed = "", clusters.get(place.cluster)
    if listed is not None and listed.jobs is not None:
        with suppress(StateshiftError):
            ended = cast(JobLister, listed.cluster).ended_as(name_there(job)) or ""
    if ended:
        fact = f"it has ended on {place.cluster} ({ended}), and does not run elsewhere"
    return Whereabouts(place, unknown=fact, is_absent=True, ended=ended)


def name_there(job: JobSpec) -> str:
    """Return the name of a job on a cluster."""
    return str(job.stop.get("job_name", job.name))


def _tell_apart(
    place: JobPlace, found: Mapping[str, list[str]], clusters: Mapping[str, JobList]
) -> dict[str, list[str]]:
    """Return the place where a job was found, without a process of this machine that several
    clusters see.
    """
    here = set(found.get(place.cluster, ()))
    apart = {}
    for name, ids in found.items():
        of_this_machine = clusters[name].cluster.kind == OF_THIS_MACHINE
        if name == place.cluster or not (of_this_machine and here.issuperset(ids)):
            apart[name] = ids
    return apart


def ids_of(job: JobSpec, listed: JobList) -> list[str] | None:
    """Return the ids under which a job runs on a cluster; None where the cluster cannot tell."""
    if listed.trouble:
        return []
    if listed.jobs is not None:
        return [id for id, called in listed.jobs if called == name_there(job)]
    status = listed.cluster.find_source(StopRequest(job.name, job.source, options=job.stop))
    if status.state is JobState.UNKNOWN:
        return None
    return [status.id or ""] if status.state.alive else []


def _judge(job: JobSpec, place: JobPlace, found: Mapping[str, list[str]]) -> Whereabouts:
    names = list(found)
    count = sum(map(len, found.values()))
    if count > 1:
        where = " and ".join(names) if len(names) > 1 else f"{names[0]}, {count} times"
        return Whereabouts(place, unknown=f"it runs more than once: on {where}")
    id = found[names[0]][0] or None
    if names[0] == place.cluster:
        return Whereabouts(place, id)
    fact = f"it runs on {names[0]}, and not on {place.cluster}, where it was left"
    if job.writes_at_source:
        return Whereabouts(place, unknown=fact)
    return Whereabouts(JobPlace(names[0], number=BY_HAND), id, note=fact)


# ---- jobs that run nowhere


def absence_of(where: Mapping[str, Whereabouts], before: Absence, now: float) -> Absence:
    """Return the jobs that run nowhere now. `before` is the absence that the last run recorded."""
    since: dict[str, float] = {}
    ended: dict[str, str] = {}
    for name, each in where.items():
        if not each.is_absent:
            continue
        since[name] = min(now, before.since.get(name, now))
        why = before.ended.get(name, "")
        if each.ended in WANTED_ENDS:
            why = f"it has ended on {each.place.cluster} ({each.ended})"
        elif now - since[name] >= ABSENT_SECONDS_MAX:
            why = "it has not run anywhere for a day"
        if why:
            ended[name] = why
    return Absence(since, ended)


def notes_on(absence: Absence, before: Absence, in_spec: Collection[str]) -> Iterator[str]:
    """Yield the jobs that are left out: each time if the spec names it, once if by a pattern."""
    for name, why in absence.ended.items():
        if name in in_spec or name not in before.ended:
            yield f"{name}: {why}, and is left out until it runs again"
