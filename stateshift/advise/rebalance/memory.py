"""The memory of earlier runs, and the triggers, which count runs in a row.

    counts   the number of runs in a row for which a cluster was too full
    counted  the time at which that was last counted
    moves    the moves, and the load that the old cluster was to have afterwards
    failed   moves that did not bring it: not repeated for a day (Dhalion)

One value, kept between runs as JSON beside the samples.

Something is done when a cluster is too full run after run, or is to be emptied. Two bounds keep it
calm: the trigger is wider than the aim, and it must hold in several runs in a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stateshift.advise.rebalance.situation import Policy, Situation, mean_of

# A move must have brought this part of the promised relief.
BROUGHT_MIN = 0.5


@dataclass(frozen=True, slots=True)
class Moved:
    """A move of an earlier run, and the load of its old cluster: before it, and as promised."""

    jobs: tuple[str, ...]
    source: str
    target: str
    at: float
    load_before: float
    load_promised: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The facts that are kept from run to run."""

    counts: Mapping[str, int] = field(default_factory=dict)
    moves: tuple[Moved, ...] = ()
    failed: tuple[Moved, ...] = ()
    counted: Mapping[str, float] = field(default_factory=dict)

    def forbids(self, jobs: tuple[str, ...], target: str) -> Moved | None:
        """Return the failed move that this one would repeat."""
        for moved in self.failed:
            if moved.target == target and set(moved.jobs) & set(jobs):
                return moved
        return None


def judge_moves(memory: Memory, at: float, loads: Mapping[str, float], policy: Policy) -> Memory:
    """Return the memory with earlier moves judged once by today's loads, and old ones forgotten."""
    failed = [moved for moved in memory.failed if abs(at - moved.at) < policy.remembered_seconds]
    for moved in memory.moves:
        brought = moved.load_before - loads.get(moved.source, moved.load_promised)
        promised = moved.load_before - moved.load_promised
        if brought < BROUGHT_MIN * promised:
            failed.append(moved)
    return replace(memory, moves=(), failed=tuple(failed))


@dataclass(frozen=True, slots=True)
class Trigger:
    """The reason for which a cluster is too full, and the number of runs in a row. `counted_at` is
    the time of the last of them; `too_old` that of one that is too long ago to count, if there is.
    """

    cluster: str
    reason: str
    runs: int
    is_due: bool
    counted_at: float = 0.0
    too_old: float | None = None


def triggers_of(
    situation: Situation, loads: Mapping[str, float], policy: Policy, memory: Memory
) -> tuple[Trigger, ...]:
    """Return the clusters that are too full now. `memory` has the counts of earlier runs."""
    mean = mean_of(situation.clusters, loads)
    late = {job.cluster: job.name for job in situation.jobs if not job.keeps_up}
    found = []
    for cluster in situation.clusters:
        name = cluster.name
        reason = _reason(loads[name] / cluster.capacity, mean, policy, late.get(name))
        if cluster.is_draining:
            found.append(Trigger(name, "it is to be emptied", 1, is_due=True))
        elif reason:
            found.append(_counted(name, reason, situation.at, policy, memory))
    return tuple(found)


def _counted(cluster: str, reason: str, at: float, policy: Policy, memory: Memory) -> Trigger:
    """Return the trigger with its number of runs. A run shortly after another one is no other run:
    somebody has called it twice. One long after is none in a row. A clock may be set back.
    """
    runs, counted_at, too_old = memory.counts.get(cluster, 0), at, None
    last = memory.counted.get(cluster)
    if runs > 0 and last is not None and abs(at - last) > policy.runs_within_seconds:
        runs, too_old = 0, last
    if runs > 0 and last is not None and 0 <= at - last < policy.runs_apart_seconds:
        counted_at = last
    else:
        runs += 1
    return Trigger(cluster, reason, runs, runs >= policy.runs, counted_at, too_old)


def _reason(ratio: float, mean: float, policy: Policy, late: str | None) -> str:
    if ratio > policy.load_max:
        return f"its load is {ratio:.0%}, above {policy.load_max:.0%}"
    if ratio > policy.trigger * mean and ratio > policy.idle_below:
        return f"its load is {ratio:.0%}, above {policy.trigger:g} times the mean of {mean:.0%}"
    if late is not None:
        return f"{late} cannot keep up there"
    return ""
