"""Clusters and jobs, measured: the situation that is decided on. Reads only.

Nothing that is wrong with a job or a cluster ends a run: it is "cannot tell", with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from stateshift import migration
from stateshift.advise import subjects
from stateshift.advise.advising import Adviser, Subject
from stateshift.advise.measuring import (
    Capacity,
    Needs,
    capacity_of,
    needs_of,
    size_of_checkpoint,
    size_on_flink,
)
from stateshift.advise.rebalance.outcome import Cordon
from stateshift.advise.rebalance.situation import Cluster, Job, Situation
from stateshift.advise.subjects import Outside
from stateshift.api.rebalancing.folder import Absence, Folder
from stateshift.api.rebalancing.memory_needs import memory_of_job, memory_of_slots
from stateshift.api.rebalancing.past import Past
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.api.rebalancing.whereabouts import (
    Listed,
    Whereabouts,
    absence_of,
    jobs_now,
    list_jobs,
    move_times,
    name_there,
    notes_on,
    refuse_lost_clusters,
)
from stateshift.api.restarts import restarts_below
from stateshift.errors import Complaint, SpecError
from stateshift.estimating import PREPARED_RESTART_SECONDS, RESTART_SECONDS
from stateshift.migration import Adapters
from stateshift.specification import JobSpec, RebalancedCluster
from stateshift.specification.excluded import excluding
from stateshift.specification.rebalancing import matches

# The most jobs that a note names.
NAMED_MAX = 5


@dataclass(frozen=True)
class Surveyed:
    """The situation, and what moves are made from beside it: the jobs as they are now, where each
    is, whose downtime was measured, and how many bytes of memory each takes. `restarts` is how long
    moves of ours kept jobs down, `absence` which jobs run nowhere.
    """

    situation: Situation
    jobs: Mapping[str, JobSpec]
    whereabouts: Mapping[str, Whereabouts]
    needs: Mapping[str, Needs]
    capacities: Mapping[str, Capacity]
    memory: Mapping[str, int | None]
    restarts: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    absence: Absence = field(default_factory=Absence)


def survey(request: RebalanceRequest, folder: Folder, past: Past, adapters: Adapters) -> Surveyed:
    """Return the situation of all jobs and clusters.

    Raises:
        SpecError: the section names no time zone, or a cluster's options are not valid.
        StorageError: the samples cannot be read or written.
    """
    names = [cluster.name for cluster in request.clusters]
    refuse_lost_clusters(request.spec.jobs, past.places, names)
    zone = _zone(request)
    clusters = _listed(request, folder, adapters)
    present, where = jobs_now(request.spec.jobs, clusters, past.places)
    before_absence = folder.memory().absence
    absence = absence_of(where, before_absence, adapters.clock.now())
    in_spec = [job.name for job in request.spec.jobs]
    ended = tuple(notes_on(absence, before_absence, in_spec))
    present = {name: job for name, job in present.items() if name not in absence.ended}
    where = {name: where[name] for name in present}
    restarts = restarts_below(folder.runs)
    needs = _Measuring(request, folder, adapters, restarts).needs(
        present, move_times(where, adapters.clock.now())
    )
    now = adapters.clock.now()
    needs = _estimate_moved(request, folder, past, needs, now)
    capacities = {}
    for each in request.clusters:
        if each.capacity is not None and each.other_load is not None:  # nothing is asked
            capacities[each.name] = Capacity(each.capacity, memory=each.memory)
        else:
            capacities[each.name] = capacity_of(request.spec.cluster(each.name))
    # The slots or cores that our own jobs have on each cluster, and the memory of each job.
    taken: dict[str, float] = {}
    memory: dict[str, int | None] = {}
    for name, job in present.items():
        cluster, width = where[name].place.cluster, needs[name].width
        taken[cluster] = taken.get(cluster, 0.0) + width
        if job.flink is None:
            memory[name] = memory_of_job(job)
        else:
            memory[name] = memory_of_slots(width, capacities.get(cluster))
    capacities = _with_our_memory(capacities, where, memory)
    period = excluding(request.section.excluded, datetime.fromtimestamp(now, zone))
    excluded = f"nothing is moved at this time: {period} ({zone.key}) is excluded"
    together: list[tuple[str, ...]] = []
    for patterns in request.section.together:
        together.append(tuple(name for name in present if _named(name, patterns)))
    together += [tuple(cut.jobs) for cut in migration.cuts_of(request.spec)]
    closed = cordons_of(request, folder)
    situation = Situation(
        at=now,
        clusters=tuple(
            replace(
                _cluster(each, request, capacities[each.name], clusters[each.name], taken),
                is_cordoned=each.name in closed,
            )
            for each in request.clusters
        ),
        jobs=tuple(
            _job(request, adapters, job, where[job.name], needs[job.name])
            for job in present.values()
        ),
        together=tuple(together),
        excluded="" if period is None else excluded,
    )
    return Surveyed(
        situation=situation,
        jobs=present,
        whereabouts=where,
        needs=needs,
        capacities=capacities,
        memory=memory,
        restarts=tuple(restarts.values()),
        notes=(
            *(f"{name}: {each.note}" for name, each in where.items() if each.note),
            *ended,
            *_estimates(needs),
            *_of_others(request, situation, clusters, present),
            *_notes(request, memory),
        ),
        absence=absence,
    )


def cordons_of(request: RebalanceRequest, folder: Folder) -> dict[str, Cordon]:
    """Return the clusters that nothing moves to, by their names: the spec's, and the drained."""
    kept = {each.cluster: each for each in folder.cordons()}
    names = [each.name for each in request.clusters]
    by_spec = {name: Cordon(name) for name in request.section.cordon}
    return {name: cordon for name, cordon in {**kept, **by_spec}.items() if name in names}


def _zone(request: RebalanceRequest) -> ZoneInfo:
    name = request.section.timezone
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, ZoneInfoNotFoundError) as error:
        message = f"this machine knows no time zone {name!r}"
        expected = "a name such as Europe/Athens"
        complaint = Complaint("/rebalance/timezone", message, expected=expected)
        raise SpecError((complaint,), hint="timedatectl list-timezones") from error


def _listed(request: RebalanceRequest, folder: Folder, adapters: Adapters) -> dict[str, Listed]:
    spec = request.spec
    opened = {}
    for each in request.clusters:
        opened[each.name] = adapters.open_cluster(spec.cluster(each.name), folder.place)
    return list_jobs(opened)


# ---- jobs


@dataclass(frozen=True)
class _Measuring:
    """The settings by which jobs are measured. `restarts` is how long our moves kept them down."""

    request: RebalanceRequest
    folder: Folder
    adapters: Adapters
    restarts: Mapping[str, float]

    def needs(
        self, jobs: Mapping[str, JobSpec], since: Mapping[str, float | None]
    ) -> dict[str, Needs]:
        """Return the needs of each job since it was moved. All of them are measured at once."""
        request, adapters, restarts = self.request, self.adapters, self.restarts
        settings = replace(request.settings, sample_age_max=request.section.age_max)
        outside = Outside(
            adapters.open_storage,
            adapters.ask_topics,
            adapters.clock,
            settings,
            restarts,
            since=since,
        )
        watched: list[Subject] = []
        parts: dict[str, list[int]] = {}
        for name, job in jobs.items():
            spec = replace(request.spec, jobs=(job,))
            found = subjects.of_spec(spec, (), outside)
            parts[name] = list(range(len(watched), len(watched) + len(found)))
            watched += found
        samples = self.folder.samples if request.history is None else Path(request.history)
        adviser = Adviser(
            lambda: watched, settings, adapters.clock, request.sample_seconds, samples
        )
        verdicts = [advice.verdict for advice in adviser.round()]
        needs: dict[str, Needs] = {}
        for name, numbers in parts.items():
            needed = needs_of([verdicts[number] for number in numbers])
            needs[name] = _with_restart(needed, name, restarts, request.section.warm)
        return needs


def _with_restart(needs: Needs, name: str, restarts: Mapping[str, float], warm: bool) -> Needs:
    """Return the needs with the downtime that our own runs have measured, if they have: of the job,
    or else what is usual among the others. If nobody has measured any, it is the least that a
    plan assumes: the plan of a move that seems worth it tells the rest, and one that is not worth
    the least is not worth more.
    """
    if name in restarts:
        return replace(needs, downtime_seconds=restarts[name], is_measured=True)
    if needs.is_measured:
        return needs
    if restarts:
        return replace(needs, downtime_seconds=median(restarts.values()))
    least = PREPARED_RESTART_SECONDS if warm else RESTART_SECONDS
    return replace(needs, downtime_seconds=least)


def _estimate_moved(
    request: RebalanceRequest, folder: Folder, past: Past, needs: Mapping[str, Needs], now: float
) -> dict[str, Needs]:
    """Return the needs; of a job that we have moved within its cool-down and that cannot be
    measured yet, what they were before. Else one move would keep all jobs where they are until the
    next look or two.
    """
    before: dict[str, Job] = {}
    for move in past.finished:
        record = folder.decision(move.decision)
        if record is None or abs(now - move.at) >= request.section.cool_down:
            continue
        moved = [job for job in record.situation.jobs if job.name in move.jobs]
        before.update({job.name: job for job in moved})
    estimated = dict(needs)
    for name, each in needs.items():
        was = before.get(name)
        if each.unknown and was is not None and was.load is not None:
            estimated[name] = replace(
                each,
                load=was.load,
                width=was.width,
                rate=was.rate,
                capacity_rate=was.capacity_rate,
                unknown="",
                estimated_because=each.unknown,
            )
    return estimated


def _estimates(needs: Mapping[str, Needs]) -> Iterator[str]:
    for name, each in needs.items():
        if each.estimated_because:
            yield f"{name}: its load is taken to be what it was before its move: {each.load:.2f}"


def _job(
    request: RebalanceRequest, adapters: Adapters, job: JobSpec, where: Whereabouts, needs: Needs
) -> Job:
    """Return a job of the situation."""
    section = request.section
    unknown = where.unknown or needs.unknown
    bytes_ = 0
    if not unknown and request.spec.engine != "flink":
        bytes_ = size_of_checkpoint(adapters.open_storage, job.source)
    elif not unknown and where.id is not None:
        bytes_ = size_on_flink(request.spec.cluster(where.place.cluster), where.id)
    wanted = None if unknown or not section.scale else needs.wanted
    if wanted is not None:  # the parallelism, within the spec's bounds
        most = wanted if section.parallelism_max is None else section.parallelism_max
        wanted = max(section.parallelism_min, min(wanted, most))
    return Job(
        name=job.name,
        cluster=where.place.cluster,
        load=None if unknown else needs.load,
        rate=needs.rate,
        capacity_rate=needs.capacity_rate,
        bytes=bytes_,
        downtime_seconds=needs.downtime_seconds,
        keeps_up=needs.keeps_up,
        pinned=_named(job.name, section.pinned),
        paused=_named(job.name, section.paused),
        moved_at=where.place.at,
        unknown=unknown,
        width=needs.width,
        wanted=wanted,
    )


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(matches(name, pattern) for pattern in patterns)


# ---- clusters


def _with_our_memory(
    capacities: Mapping[str, Capacity],
    where: Mapping[str, Whereabouts],
    memory: Mapping[str, int | None],
) -> dict[str, Capacity]:
    """Return the capacities of clusters, with at least the memory in use that our own jobs there
    take: one whose memory only the spec tells does not say how much of it is taken.
    """
    ours: dict[str, int] = {}
    for name, each in where.items():
        cluster = each.place.cluster
        ours[cluster] = ours.get(cluster, 0) + (memory[name] or 0)
    used = {name: max(told.memory_used, ours.get(name, 0)) for name, told in capacities.items()}
    return {name: replace(told, memory_used=used[name]) for name, told in capacities.items()}


def _cluster(
    cluster: RebalancedCluster,
    request: RebalanceRequest,
    told: Capacity,
    jobs: Listed,
    taken: Mapping[str, float],
) -> Cluster:
    """Return a cluster of the situation. The share of others is what is taken and not ours."""
    capacity = told.all if cluster.capacity is None else cluster.capacity
    others = max(0.0, told.used - taken.get(cluster.name, 0.0))
    unknown = jobs.trouble
    if not unknown and cluster.capacity is None:
        unknown = told.unknown
    return Cluster(
        name=cluster.name,
        capacity=0.0 if unknown else capacity,
        other_load=others if cluster.other_load is None else cluster.other_load,
        is_draining=cluster.name in request.draining,
        unknown=unknown,
    )


def _of_others(
    request: RebalanceRequest,
    situation: Situation,
    clusters: Mapping[str, Listed],
    present: Mapping[str, JobSpec],
) -> Iterator[str]:
    """Yield the share of each cluster that other jobs have, unless the spec gives it. As long as
    nobody can tell how much jobs of the spec have taken there, it may be theirs.
    """
    asked = [each.name for each in request.clusters if each.other_load is None]
    workers = "slots" if request.spec.engine == "flink" else "cores"
    for cluster in situation.clusters:
        if cluster.other_load <= 0 or cluster.name not in asked:
            continue
        jobs = [job for job in situation.jobs if job.cluster == cluster.name]
        unmeasured = [job.name for job in jobs if job.width <= 0]
        names = ", ".join(unmeasured[:NAMED_MAX])
        if len(unmeasured) > NAMED_MAX:
            names += f" and {len(unmeasured) - NAMED_MAX} more"
        running = clusters[cluster.name].jobs
        ours = {name_there(present[job.name]) for job in jobs}
        if not unmeasured:
            who = "jobs that the spec does not have take"
        elif running is not None and ours.issuperset(called for _, called in running):
            who = f"jobs whose load is not known yet ({names}) take"
        else:
            who = f"{names}, whose load is not known yet, or jobs that the spec does not have take"
        yield (
            f"{cluster.name}: {who} {cluster.other_load:g} {workers}, which count as busy all the "
            "time"
        )


def _notes(request: RebalanceRequest, memory: Mapping[str, int | None]) -> Iterator[str]:
    """Yield notes on memory that is not judged, and could be."""
    if not any(cluster.memory for cluster in request.clusters):
        return
    unknown = [name for name, needed in memory.items() if needed is None]
    if unknown:
        yield f"memory is not judged for {', '.join(unknown)}: nothing tells how much they need"
