"""Clusters and jobs, measured: the situation that is decided on. Reads only.

Nothing that is wrong with a job or a cluster ends a run: it is "cannot tell", with the reason.

The memory of a job:

    Spark   its executors', as far as its submission says
    Flink   that of the slots which it has taken where it is now
"""

from __future__ import annotations

from collections import defaultdict
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
from stateshift.advise.subjects import Outside, count_of
from stateshift.api.rebalancing.folder import Absence, RebalanceFolder
from stateshift.api.rebalancing.past import Past, restarts_below
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.api.rebalancing.whereabouts import (
    JobList,
    Whereabouts,
    absence_of,
    jobs_now,
    list_jobs,
    move_times,
    name_there,
    notes_on,
    refuse_lost_clusters,
)
from stateshift.errors import Complaint, SpecError
from stateshift.estimating import PREPARED_RESTART_SECONDS, RESTART_SECONDS
from stateshift.migration import Adapters
from stateshift.specification import JobSpec, RebalancedCluster
from stateshift.specification.grammars import excluding
from stateshift.specification.rebalancing import matches
from stateshift.specification.values import size_of

# The most jobs that a note names.
NAMED_MAX = 5


@dataclass(frozen=True)
class SurveyResult:
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


def survey(
    request: RebalanceRequest, folder: RebalanceFolder, past: Past, adapters: Adapters
) -> SurveyResult:
    """Return the situation of all jobs and clusters.

    Raises:
        SpecError: the section names no time zone, or a cluster's options are not valid.
        StorageError: the samples cannot be read or written.
    """
    spec, section, clock = request.spec, request.section, adapters.clock
    names = [cluster.name for cluster in request.clusters]
    refuse_lost_clusters(spec.jobs, past.places, names)
    zone = _zone(section.timezone)
    clusters = list_jobs(spec, names, adapters, folder.place)
    present, where = jobs_now(spec.jobs, clusters, past.places)
    before = folder.memory().absence
    absence = absence_of(where, before, clock.now())
    present = {name: job for name, job in present.items() if name not in absence.ended}
    where = {name: where[name] for name in present}
    outside = Outside(
        adapters.open_storage,
        adapters.ask_topics,
        clock,
        replace(request.settings, sample_age_max=section.age_max),
        restarts_below(folder.runs),
        since=move_times(where, clock.now()),
    )
    needs = _needs(request, present, outside, folder.samples)
    now = clock.now()
    needs = _estimate_moved(needs, request, folder, past, now)
    capacities: dict[str, Capacity] = {}
    for each in request.clusters:
        if each.capacity is not None and each.other_load is not None:  # there is nothing to ask
            capacities[each.name] = Capacity(each.capacity, memory=each.memory)
        else:
            capacities[each.name] = capacity_of(spec.cluster(each.name))
    memory: dict[str, int | None] = {}
    memory_of_ours: defaultdict[str, int] = defaultdict(int)
    width_of_ours: defaultdict[str, float] = defaultdict(float)
    for name, job in present.items():
        cluster = where[name].place.cluster
        if job.flink is None:
            memory[name] = memory_of_job(job)
        else:
            memory[name] = memory_of_slots(needs[name].width, capacities.get(cluster))
        memory_of_ours[cluster] += memory[name] or 0
        width_of_ours[cluster] += needs[name].width
    for name, told in capacities.items():
        # A cluster whose memory only the spec tells does not say how much of it is taken.
        used = max(told.memory_used, memory_of_ours[name])
        capacities[name] = replace(told, memory_used=used)
    closed = cordons_of(request, folder)
    period = excluding(section.excluded, datetime.fromtimestamp(now, zone))
    excluded = f"nothing is moved at this time: {period} ({zone.key}) is excluded"
    situation = Situation(
        at=now,
        clusters=tuple(
            replace(
                _cluster(
                    each, clusters[each.name], capacities[each.name], width_of_ours[each.name]
                ),
                is_draining=each.name in request.draining,
                is_cordoned=each.name in closed,
            )
            for each in request.clusters
        ),
        jobs=tuple(
            _job(request, adapters, job, where[job.name], needs[job.name])
            for job in present.values()
        ),
        together=tuple(_together(request, tuple(present))),
        excluded="" if period is None else excluded,
    )
    return SurveyResult(
        situation=situation,
        jobs=present,
        whereabouts=where,
        needs=needs,
        capacities=capacities,
        memory=memory,
        restarts=tuple(outside.restarts.values()),
        notes=(
            *(f"{name}: {each.note}" for name, each in where.items() if each.note),
            *notes_on(absence, before, [job.name for job in spec.jobs]),
            *(
                f"{name}: its load is taken to be what it was before its move: {each.load:.2f}"
                for name, each in needs.items()
                if each.estimated_because
            ),
            *_notes_on_others(request, situation, clusters, present),
            *_notes_on_memory(request, memory),
        ),
        absence=absence,
    )


def cordons_of(request: RebalanceRequest, folder: RebalanceFolder) -> dict[str, Cordon]:
    """Return the clusters that nothing moves to, by their names: the spec's, and the drained."""
    kept = {each.cluster: each for each in folder.cordons()}
    names = [each.name for each in request.clusters]
    by_spec = {name: Cordon(name) for name in request.section.cordon}
    return {name: cordon for name, cordon in {**kept, **by_spec}.items() if name in names}


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, ZoneInfoNotFoundError) as error:
        message = f"this machine knows no time zone {name!r}"
        expected = "a name such as Europe/Athens"
        complaint = Complaint("/rebalance/timezone", message, expected=expected)
        raise SpecError((complaint,), hint="timedatectl list-timezones") from error


# ---- jobs


def _needs(
    request: RebalanceRequest, jobs: Mapping[str, JobSpec], outside: Outside, samples: Path
) -> dict[str, Needs]:
    """Return the needs of each job since it was moved. All of them are measured at once."""
    watched: list[Subject] = []
    parts: dict[str, range] = {}
    for name, job in jobs.items():
        of_job = subjects.of_spec(replace(request.spec, jobs=(job,)), (), outside)
        parts[name] = range(len(watched), len(watched) + len(of_job))
        watched += of_job
    if request.history is not None:
        samples = Path(request.history)
    adviser = Adviser(
        lambda: watched, outside.settings, outside.clock, request.sample_seconds, samples
    )
    verdicts = [advice.verdict for advice in adviser.round()]
    needs: dict[str, Needs] = {}
    for name, numbers in parts.items():
        needed = needs_of([verdicts[number] for number in numbers])
        needs[name] = _with_restart(needed, name, outside.restarts, request.section.warm)
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
    needs: Mapping[str, Needs],
    request: RebalanceRequest,
    folder: RebalanceFolder,
    past: Past,
    now: float,
) -> dict[str, Needs]:
    """Return the needs; of jobs that cannot be measured yet after a move, what they were before it,
    within the cool-down. Else one move would keep all jobs where they are until the next look.
    """
    before: dict[str, Job] = {}
    for move in past.finished:
        record = folder.decision(move.decision)
        if record is not None and abs(now - move.at) < request.section.cool_down:
            before |= {job.name: job for job in record.situation.jobs if job.name in move.jobs}
    estimated = dict(needs)
    for name, job in before.items():
        each = needs.get(name)
        if each is not None and each.unknown and job.load is not None:
            estimated[name] = replace(
                each,
                load=job.load,
                width=job.width,
                rate=job.rate,
                capacity_rate=job.capacity_rate,
                unknown="",
                estimated_because=each.unknown,
            )
    return estimated


def _job(
    request: RebalanceRequest, adapters: Adapters, job: JobSpec, where: Whereabouts, needs: Needs
) -> Job:
    """Return a job of the situation."""
    spec, section = request.spec, request.section
    unknown = where.unknown or needs.unknown
    size, wanted = 0, None
    if not unknown and spec.engine != "flink":
        size = size_of_checkpoint(adapters.open_storage, job.source)
    elif not unknown and where.id is not None:
        size = size_on_flink(spec.cluster(where.place.cluster), where.id)
    if not unknown and section.scale and needs.wanted is not None:
        most = needs.wanted if section.parallelism_max is None else section.parallelism_max
        wanted = max(section.parallelism_min, min(needs.wanted, most))
    return Job(
        name=job.name,
        cluster=where.place.cluster,
        load=None if unknown else needs.load,
        rate=needs.rate,
        capacity_rate=needs.capacity_rate,
        bytes=size,
        downtime_seconds=needs.downtime_seconds,
        keeps_up=needs.keeps_up,
        pinned=_matches_any(job.name, section.pinned),
        paused=_matches_any(job.name, section.paused),
        moved_at=where.place.at,
        unknown=unknown,
        width=needs.width,
        wanted=wanted,
    )


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(matches(name, pattern) for pattern in patterns)


def _together(request: RebalanceRequest, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the groups of jobs that move together: the spec's, and those of one cut."""
    for patterns in request.section.together:
        yield tuple(name for name in names if _matches_any(name, patterns))
    for cut in migration.cuts_of(request.spec):
        yield tuple(cut.jobs)


# ---- clusters


def _cluster(cluster: RebalancedCluster, jobs: JobList, told: Capacity, ours: float) -> Cluster:
    """Return a cluster of the situation. The share of others is what is taken and not ours."""
    capacity, unknown = told.all, jobs.trouble or told.unknown
    if cluster.capacity is not None:
        capacity, unknown = cluster.capacity, jobs.trouble
    others = max(0.0, told.used - ours)
    return Cluster(
        name=cluster.name,
        capacity=0.0 if unknown else capacity,
        other_load=others if cluster.other_load is None else cluster.other_load,
        unknown=unknown,
    )


def _notes_on_others(
    request: RebalanceRequest,
    situation: Situation,
    clusters: Mapping[str, JobList],
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


def _notes_on_memory(request: RebalanceRequest, memory: Mapping[str, int | None]) -> Iterator[str]:
    """Yield notes on memory that is not judged, and could be."""
    if not any(cluster.memory for cluster in request.clusters):
        return
    unknown = [name for name, needed in memory.items() if needed is None]
    if unknown:
        yield f"memory is not judged for {', '.join(unknown)}: nothing tells how much they need"


# Spark's own default.
EXECUTOR_MEMORY = "1g"


def memory_of_job(job: JobSpec) -> int | None:
    """Return the bytes of a Spark job's executors; None where the number of them is not told."""
    conf = {} if job.submit is None else job.submit.options.get("conf", {})
    if not isinstance(conf, Mapping):
        return None
    count = _count(conf)
    each = size_of(str(conf.get("spark.executor.memory", EXECUTOR_MEMORY)))
    if count is None or each is None:
        return None
    return count * each


def _count(conf: Mapping[str, object]) -> int | None:
    instances = count_of(conf.get("spark.executor.instances"))
    if instances is not None:
        return instances
    cores = count_of(conf.get("spark.cores.max"))
    each = count_of(conf.get("spark.executor.cores"))
    if cores is None or each is None:
        return None
    return -(-cores // each)


def memory_of_slots(width: float, told: Capacity | None) -> int | None:
    """Return the bytes of so many slots of a cluster; None where it does not tell its memory."""
    each = None if told is None else told.memory_of_worker
    return None if each is None or width <= 0 else int(width) * each
