"""The moves of this run, and the reason for which each other job stays.

From a situation, a policy and the memory of earlier runs, to moves in the order in which they are
made: each has room when its turn comes, and is worth its cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from stateshift.advise.rebalance.limits import (
    Flows,
    Movable,
    Worth,
    cost_of,
    gain_of,
    has_room,
    movable,
    rates_of,
)
from stateshift.advise.rebalance.memory import Memory, Moved, Trigger, judge_moves, triggers_of
from stateshift.advise.rebalance.placement import Placement, place
from stateshift.advise.rebalance.situation import (
    HOUR,
    Cluster,
    Policy,
    Situation,
    Unit,
    loads_of,
    units_of,
)

# This part of the jobs must have a load that can be told; else nothing is moved.
KNOWN_MIN = 0.95
# How often jobs are spread anew, where moves of the spread before were not worth it.
SPREADS_MAX = 5


@dataclass(frozen=True, slots=True)
class Loaded:
    """A cluster's load, now and after this run's moves. `capacity` is None if not known."""

    name: str
    capacity: float | None
    before: float
    after: float
    is_cordoned: bool = False


@dataclass(frozen=True, slots=True)
class JobMove:
    """Jobs that move to another cluster, or (by `parallelism`) to another width where they are."""

    jobs: tuple[str, ...]
    source: str
    target: str
    bytes: int
    downtime_seconds: float
    worth: Worth
    reason: str
    parallelism: Mapping[str, int] = field(default_factory=dict)


# A job stays for one of these reasons: its load, too many others' or a cluster's is not known;
# nothing was to be moved; a limit forbids it; no cluster has room; a later run may move it; it is
# not worth it; the clusters are even.
StayKind = Literal["unknown", "idle", "forbidden", "room", "later", "worth", "even"]


@dataclass(frozen=True, slots=True)
class Stay:
    """A job that stays, and the reason."""

    job: str
    cluster: str
    reason: str
    kind: StayKind


@dataclass(frozen=True, slots=True)
class Decision:
    """A run's decision. `bound`: no fullest cluster is below; `is_best`: no spread is better."""

    at: float
    reason: str
    clusters: tuple[Loaded, ...]
    triggers: tuple[Trigger, ...]
    moves: tuple[JobMove, ...]
    stays: tuple[Stay, ...]
    bound: float
    is_best: bool
    memory: Memory


@dataclass
class _Spreading:
    """Loads and rates as the moves of this run change them."""

    situation: Situation
    policy: Policy
    flows: Flows
    moves: list[JobMove] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    # The reason, by unit and target: moves of this spread or a better one that are not worth it.
    unworthy: dict[tuple[str, str], str] = field(default_factory=dict)

    @cached_property
    def clusters(self) -> Mapping[str, Cluster]:
        return {one.name: one for one in self.situation.clusters}

    def stay(self, unit: Unit, kind: StayKind, reason: str) -> None:
        self.stays += [Stay(job.name, job.cluster, reason, kind) for job in unit.jobs]


def decide(situation: Situation, policy: Policy, memory: Memory) -> Decision:
    """Return the moves of now. There are none while a cluster's capacity or too many loads are not
    known: the memory stays as it is then, and the next run that can tell goes on with it.
    """
    unknown, loads = _unknown(situation), loads_of(situation)
    if unknown:
        reason = f"cannot tell: {unknown}"
        stays = []
        for job in situation.jobs:
            own = job.why_unknown if job.load is None else reason
            stays.append(Stay(job.name, job.cluster, own, "unknown"))
        clusters = _loaded(situation, loads, loads)
        return Decision(
            situation.at, reason, clusters, (), (), tuple(stays), 0.0, is_best=False, memory=memory
        )
    memory = judge_moves(memory, situation.at, loads, policy)
    triggers = triggers_of(situation, loads, policy, memory)
    units = movable(situation, units_of(situation), policy, memory)
    placement = place(situation.clusters, units, loads, policy)
    run = _begun(situation, policy, loads)
    idle = _why_not(situation, triggers, policy)
    if not idle:
        run, placement = _worthwhile(run, units, placement, triggers)
    else:
        for one in units:
            if one.targets or one.is_light:
                run.stay(one.unit, "idle", idle)
            else:
                run.stay(one.unit, _kept_by(one), "; ".join(one.reasons))
    return Decision(
        at=situation.at,
        reason=idle or _in_a_line(run, triggers),
        clusters=_loaded(situation, loads, run.flows.loads),
        triggers=triggers,
        moves=tuple(run.moves),
        stays=tuple(run.stays),
        bound=placement.bound,
        is_best=placement.is_best,
        memory=_memory_after(memory, situation, triggers, run, loads),
    )


def _begun(situation: Situation, policy: Policy, loads: Mapping[str, float]) -> _Spreading:
    """Return a run that has moved nothing yet."""
    rates = rates_of(situation.jobs, situation.clusters)
    return _Spreading(situation, policy, Flows(dict(loads), rates))


def _worthwhile(
    run: _Spreading, units: tuple[Movable, ...], placement: Placement, triggers: tuple[Trigger, ...]
) -> tuple[_Spreading, Placement]:
    """Make the moves of the best spread whose moves are all worth their cost, also those that are
    left to later runs. Else a run would make a part of a spread that no run completes, and a later
    one would make good for it by moving the same job again. Among many jobs some are always not
    worth it: the others are moved.
    """
    loads, best = dict(run.flows.loads), placement
    are_few = sum(bool(one.targets) for one in units) <= run.policy.exact_units
    all_at_once = replace(run.policy, moves_max=len(units) + len(run.situation.resumed))
    for _ in range(SPREADS_MAX):
        whole = _begun(run.situation, all_at_once, loads)
        _move(whole, units, placement, triggers)
        if not whole.unworthy or (whole.moves and not are_few):
            break
        run.unworthy |= whole.unworthy
        worthy = []
        for one in units:
            name = one.unit.name
            left = tuple(each for each in one.targets if (name, each) not in whole.unworthy)
            worthy.append(replace(one, targets=left))
        units = tuple(worthy)
        placement = place(run.situation.clusters, units, loads, run.policy)
        placement = replace(placement, bound=best.bound, is_best=False)
    _move(run, units, placement, triggers)
    return run, placement


def _unknown(situation: Situation) -> str:
    """Return the clusters, or the number of jobs, that cannot be judged; "" if enough can."""
    clusters = [f"{one.name}: {one.unknown}" for one in situation.clusters if one.unknown]
    if clusters:
        return "; ".join(clusters)
    unknown = [job.name for job in situation.jobs if job.load is None]
    draining = any(cluster.is_draining for cluster in situation.clusters)
    if len(unknown) > (1 - KNOWN_MIN) * len(situation.jobs) and not draining:
        return f"of {len(unknown)} of {len(situation.jobs)} jobs the load is not known"
    return ""


def _why_not(situation: Situation, triggers: tuple[Trigger, ...], policy: Policy) -> str:
    """Return the reason for which nothing is moved, whatever could be; "" if something may be."""
    if not triggers:
        return "no cluster is too full"
    if situation.excluded:
        return situation.excluded
    if not any(trigger.is_due for trigger in triggers):
        first = triggers[0]
        return (
            f"{first.cluster}: {first.reason}, in {first.runs} of the {policy.runs} runs that it "
            f"takes{_too_soon(first, situation, policy)}"
        )
    return ""


def _too_soon(trigger: Trigger, situation: Situation, policy: Policy) -> str:
    """Return the reason for which this run, or the one before, does not count; "" if both do."""
    since = situation.at - trigger.counted_at
    if trigger.too_old is not None:
        hours = abs(situation.at - trigger.too_old) / HOUR
        within = policy.runs_within_seconds / HOUR
        return f": the one before it is {hours:.1f} h apart, of {within:g} h at most"
    if since <= 0:
        return ""
    return f": the last one was {since:.0f} s ago, of {policy.runs_apart_seconds:.0f} s at least"


def is_undecided(situation: Situation) -> bool:
    """Whether too little is known of a situation to decide anything."""
    return bool(_unknown(situation))


def _kept_by(one: Movable) -> StayKind:
    """Return the kind of reason that keeps a unit that may go nowhere."""
    if any(job.load is None for job in one.unit.jobs):
        return "unknown"
    return "worth" if one.is_light else "forbidden"


def _move(
    run: _Spreading, units: tuple[Movable, ...], placement: Placement, triggers: tuple[Trigger, ...]
) -> None:
    """Make the moves of a placement that this run can make, in an order in which each has room."""
    waiting = []
    for one, target in zip(units, placement.places, strict=True):
        if target != one.unit.cluster:
            waiting.append((one.unit, target))
        elif not _scale(run, one.unit, triggers):
            run.stay(one.unit, *_why_it_stays(run, one))
    loads, clusters = run.flows.loads, run.clusters
    waiting.sort(key=lambda pair: -loads[pair[0].cluster] / clusters[pair[0].cluster].capacity)
    reasons = {trigger.cluster: trigger.reason for trigger in triggers}
    while waiting:
        held_up = [pair for pair in waiting if not _try(run, *pair, reasons)]
        if len(held_up) == len(waiting):
            break
        waiting = held_up
    for unit, target in waiting:
        run.stay(unit, "later", f"there is no room on {target} yet: in a later run")


def _why_it_stays(run: _Spreading, one: Movable) -> tuple[StayKind, str]:
    unworthy = [why for (name, _), why in run.unworthy.items() if name == one.unit.name]
    if unworthy:
        return "worth", unworthy[0]
    if not one.targets:
        return _kept_by(one), "; ".join(one.reasons)
    clusters, loads = run.clusters, run.flows.loads
    load = one.unit.load
    with_room = [n for n in one.targets if has_room(clusters[n], loads[n] + load, run.policy)]
    if not with_room:
        no_room = (
            f"no other cluster has room: with it, each would be above {run.policy.load_max:.0%}"
        )
        return "room", "; ".join((*one.reasons, no_room))
    if clusters[one.unit.cluster].is_draining:
        return "room", f"the room on {', '.join(with_room)} goes to other jobs"
    return "even", "the clusters are even enough with it where it is"


def _try(run: _Spreading, unit: Unit, target: str, reasons: Mapping[str, str]) -> bool:
    """Move a unit, or say why it stays; False if it has to wait for room."""
    clusters = run.clusters
    source = clusters[unit.cluster]
    if not has_room(clusters[target], run.flows.loads[target] + unit.load, run.policy):
        return False
    made = [(move.source, move.target) for move in run.moves] + list(run.situation.resumed)
    if made.count((source.name, target)) >= run.policy.moves_max and not source.is_draining:
        some = "one move" if run.policy.moves_max == 1 else f"{run.policy.moves_max} moves"
        run.stay(unit, "later", f"{some} a run from {source.name} to {target}: in a later run")
        return True
    gain = gain_of(unit, source, clusters[target], run.flows, run.policy.horizon_seconds)
    worth = Worth(cost_of(unit), gain)
    if worth.ratio < run.policy.gain_min and not source.is_draining:
        why = (
            f"a move to {target} is not worth it: {worth.gain:,.0f} records less would wait, "
            f"{worth.cost:,.0f} for the move itself; it takes {run.policy.gain_min:g} times as many"
        )
        run.unworthy[unit.name, target] = why
        run.stay(unit, "worth", why)
        return True
    changes = {}  # of parallelism, on the way
    for job in unit.jobs:
        if job.wanted is not None and job.wanted != job.width:
            changes[job.name] = job.wanted
    run.flows.shift(unit, target)
    run.moves.append(
        JobMove(
            jobs=tuple(job.name for job in unit.jobs),
            source=source.name,
            target=target,
            bytes=unit.bytes,
            downtime_seconds=unit.downtime_seconds,
            worth=worth,
            reason=f"{source.name}: {reasons.get(source.name, 'to make room')}",
            parallelism=changes,
        )
    )
    return True


def _scale(run: _Spreading, unit: Unit, triggers: tuple[Trigger, ...]) -> bool:
    """Give a job more workers where it is, if that is worth a restart: one a run and cluster, after
    as many runs as a move. Fewer bring nothing; that waits for a move.
    """
    (job, *others), cluster = unit.jobs, run.clusters[unit.cluster]
    is_due = any(each.is_due and each.cluster == cluster.name for each in triggers)
    is_closed = cluster.is_draining or cluster.is_cordoned or cluster.name in job.forbidden
    cools = job.moved_at is not None and (
        abs(run.situation.at - job.moved_at) < run.policy.cool_down_seconds
    )
    if others or job.keeps_up or job.paused or cools or is_closed or not is_due:
        return False
    if job.load is None or not job.width or job.wanted is None or job.wanted <= job.width:
        return False
    if any(move.source == cluster.name == move.target for move in run.moves):
        return False
    taken = sum(each.width for each in run.situation.jobs if each.cluster == cluster.name)
    if cluster.other_load + taken + job.wanted - job.width > cluster.capacity:
        return False
    saved = job.rate * job.load * (1 / job.width - 1 / job.wanted)
    # It catches up with the workers that it has by then.
    fast = None if job.capacity_rate is None else job.capacity_rate * job.wanted / job.width
    cost = cost_of(Unit((replace(job, capacity_rate=fast),)))
    worth = Worth(cost, saved * run.policy.horizon_seconds)
    if worth.ratio < run.policy.gain_min:
        return False
    reason = f"{job.name} cannot keep up with {job.width:g} workers, and needs {job.wanted}"
    run.moves.append(
        JobMove(
            jobs=(job.name,),
            source=cluster.name,
            target=cluster.name,
            bytes=unit.bytes,
            downtime_seconds=unit.downtime_seconds,
            worth=worth,
            reason=reason,
            parallelism={job.name: job.wanted},
        )
    )
    return True


def _in_a_line(run: _Spreading, triggers: tuple[Trigger, ...]) -> str:
    due = next(trigger for trigger in triggers if trigger.is_due)
    what = f"{due.cluster}: {due.reason}"
    if run.moves:
        return what
    if run.unworthy:
        return f"{what}; no move is worth what it costs"
    return f"{what}; nothing can be moved"


def _loaded(
    situation: Situation, before: Mapping[str, float], after: Mapping[str, float]
) -> tuple[Loaded, ...]:
    return tuple(
        Loaded(one.name, one.capacity or None, before[one.name], after[one.name], one.is_cordoned)
        for one in situation.clusters
    )


def _memory_after(
    memory: Memory,
    situation: Situation,
    triggers: tuple[Trigger, ...],
    run: _Spreading,
    before: Mapping[str, float],
) -> Memory:
    """Return the memory for the next run, once the moves of this one are made."""
    if not run.moves:
        counts = {trigger.cluster: trigger.runs for trigger in triggers}
        counted = {trigger.cluster: trigger.counted_at for trigger in triggers}
        return Memory(counts, (), memory.failed, counted)
    moves = []
    for move in run.moves:
        loads = (before[move.source], run.flows.loads[move.source])
        moves.append(Moved(move.jobs, move.source, move.target, situation.at, *loads))
    return Memory({}, tuple(moves), memory.failed)
