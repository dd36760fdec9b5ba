"""Another number of bins: advice on it, and checks against splitting or merging all of them.

    advise_count(…)   the number of bins that their loads speak for, and why
    check_count(…)    the refusal of a number, before anybody is told
    CountCarrier      proposes it, and waits until all workers have redistributed their bins

Asked again after whoever has carried it has died, it waits for those that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stateshift.errors import Complaint, Incompatible, PlanError, SpecError
from stateshift.live.bins.files import Proposal
from stateshift.live.bins.hashing import encoders_of
from stateshift.live.bins.migration import Carrier, MoveEndedError
from stateshift.live.bins.move_request import (
    evicted_error,
    hint_if_gone,
    refuse_not_dealt,
    refuse_past,
    refuse_under_way,
    refuse_without_rows,
)
from stateshift.live.bins.parts import KeyHashing
from stateshift.live.bins.watch import HOT, Bins, Load, hot
from stateshift.live.protocol.configuration import (
    BEGIN,
    BINS_MAX,
    Time,
    Update,
    is_count,
    not_a_count,
    related_bins,
)
from stateshift.live.values import live_command

EMPTY_SHARE = 0.5  # of the bins, beyond which half as many would do

KeyedBy = Mapping[tuple[str, str], KeyHashing]  # by operator and worker


@dataclass(frozen=True, slots=True)
class Advice:
    """The number of bins that their loads speak for, and why."""

    count: int
    reason: str


def advise_count(bins: Bins, found: Sequence[Load]) -> Advice:
    """Return the number of bins that their loads speak for: twice as many where one is hot, half as
    many where most are empty and every two that would be one are at one worker.
    """
    count = len(found)
    hottest = next(iter(hot(found)), None)
    if hottest is not None and count < BINS_MAX and hottest.keys > 1:
        reason = f"bin {hottest.bin} has {hottest.times:.1f} times as much as the mean"
        return Advice(2 * count, reason)
    empty = sum(each.keys == 0 for each in found)
    if empty > EMPTY_SHARE * count and count > 1 and not apart_in(bins, count // 2):
        return Advice(count // 2, f"{empty} of {count} bins are empty")
    return Advice(count, f"no bin has {HOT:g} times as much as the mean")


def check_count(bins: Bins, count: int, at: Time | None, keyed: KeyedBy) -> None:
    """Refuse a number of bins that cannot be had, before anybody is told."""
    if not is_count(count):
        complaint = Complaint("--to", not_a_count(count), count, "a power of two")
        raise SpecError((complaint,), hint=f"the group has {bins.count}")
    if count == bins.count:
        return
    refuse_under_way(bins)
    refuse_not_dealt(bins)
    refuse_without_rows(bins)
    _refuse_moving(bins)
    for part in bins.parts:
        runs = part.runs
        known = keyed.get((runs.operator, runs.worker))
        if known is None or known.at < runs.at:
            raise Incompatible(
                f"{part.name} does not say how its keys are hashed: it is of a version that cannot "
                "split bins, or has had no batch since it started",
                hint="let it do a batch; or start it with this version of stateshift",
            )
        encoders_of(known.kinds, runs.key)
    if at is not None:
        refuse_past(bins, at)
    _refuse_apart(bins, count)


def _refuse_moving(bins: Bins) -> None:
    last = bins.moves.configuration.last
    behind = [part for part in bins.parts if part.passed <= last]
    for part in behind:
        if part.is_evicted:  # others may wait for what it has to give
            raise evicted_error(part.runs.worker)
    if behind:
        first = behind[0]
        raise PlanError(
            f"bins are on their way: {first.name} has not made the moves of time {last}",
            hint=f"wait until it has; {hint_if_gone(bins.location, first.runs.worker)}",
        )


def _refuse_apart(bins: Bins, count: int) -> None:
    """Refuse to merge bins that are at different workers; say how the first come together."""
    apart = apart_in(bins, count)
    if not apart:
        return
    first = [*apart[0]]
    target = bins.assigned[first[0]]
    elsewhere = ",".join(str(bin) for bin in first if bins.assigned[bin] != target)
    way = ("--to", bins.names[target], "--bins", elsewhere)
    others = f", and so are {len(apart) - 1} more" if len(apart) > 1 else ""
    raise PlanError(
        f"bins {', '.join(map(str, first))} would be one, and are at different workers{others}",
        hint=f"bring together what becomes one: {live_command('move', bins.location, *way)}",
    )


def apart_in(bins: Bins, count: int) -> list[range]:
    """Return the bins that would become one if there were so many, and are at different workers."""
    assigned = bins.assigned
    found: list[range] = []
    for merged in range(min(count, bins.count)):
        parts = related_bins(merged, count, bins.count)
        if len({assigned[bin] for bin in parts}) > 1:
            found.append(parts)
    return found


@dataclass
class CountCarrier(Carrier):
    """Another number of bins on its way. In `moved`, `complete` counts the parts that have it."""

    count: int = 0

    def _carry(self) -> None:
        if self._look().count != self.count:
            self._is_proposed((), 0)
        self._wait_until(self._have_redistributed)

    def proposal(self, bins: Bins, updates: Sequence[Update]) -> Proposal:
        since = BEGIN if self.manner.at is None else self.manner.at
        return replace(super().proposal(bins, updates), ahead=(), bins=self.count, since=since)

    def _have_redistributed(self, bins: Bins) -> MoveEndedError | None:
        left = bins.not_dealt
        running = len(bins.running)
        self._tell(state="moving", parts=running, complete=running - len(left))
        if not left:
            return None
        names = ", ".join(part.name for part in left)
        seconds = f"{self.manner.wait_seconds:g} s"
        return MoveEndedError("applied", f"{names} did not deal bins anew within {seconds}")
