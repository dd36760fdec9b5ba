"""A request to move bins, in steps; checked before anything changes.

    moves_to(bins, "east", [0, 1, 2])   to one worker
    moves_even(bins, 0.25)              to wherever there is least, at most a quarter of all state,
                                        or of all rows
    steps_planned(bins, text)           as a plan file has it (`protocol.plan_file`)
    check(bins, steps, manner)          the refusal of them

Or another number of bins: all of them are split, or merged.

    advise_count(bins, loads)           the number of bins that their loads speak for, and why
    check_count(bins, count, …)         the refusal of a number

Nothing is asked for that is so already: asked again after a controller has died, only the rest
moves.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from stateshift.dataflow.move_steps import AllAtOnce, BinMove, Step, in_steps, strategy_of
from stateshift.errors import Complaint, Incompatible, PlanError, SpecError
from stateshift.live.bins.hashing import encoders_of
from stateshift.live.bins.parts import KeyHashing
from stateshift.live.bins.watch import HOT, Bins, Load, WorkerPart, hot, loads
from stateshift.live.member import is_gone
from stateshift.live.protocol.configuration import (
    BINS_MAX,
    Time,
    is_count,
    not_a_count,
    related_bins,
)
from stateshift.live.protocol.plan_file import decode_plan_file, steps_of_plan
from stateshift.live.values import live_command

WARM = "warm"
HINT_PLAN = "the plan begins where the bins are, or where one of its steps has left them"
EMPTY_SHARE = 0.5  # of the bins, beyond which half as many would do

KeyedBy = Mapping[tuple[str, str], KeyHashing]  # by operator and worker


@dataclass(frozen=True, slots=True)
class Manner:
    """The way in which bins are moved.

    Args:
        strategy: all-at-once, fluid, batched(k), optimised; warm copies ahead, then moves at once.
        gap_seconds: the pause after a step, in which waiting rows are worked off.
        lead_seconds: how far ahead of the furthest worker a step is proposed.
        at: the logical time before which nothing moves; the first step of a plan file is then.
        prepared: propose all steps together, each for its own time.
        timeout_seconds: what is not decided by then is aborted.
        wait_seconds: how long to wait for a step to be complete.
        any_code: move bins between workers of other code or another Python, too.
    """

    strategy: str = "all-at-once"
    gap_seconds: float = 0.0
    lead_seconds: float = 2.0
    at: Time | None = None
    prepared: bool = False
    timeout_seconds: float = 30.0
    wait_seconds: float = 60.0
    any_code: bool = False

    @property
    def is_warm(self) -> bool:
        """Whether bins are copied ahead."""
        return self.strategy == WARM


@dataclass(frozen=True, slots=True)
class TimedStep:
    """Moves that are made at one time, not before the one that is given."""

    moves: Step
    earliest: Time = 0


Steps = tuple[TimedStep, ...]


def moves_to(bins: Bins, worker: str, numbers: Sequence[int]) -> tuple[BinMove, ...]:
    """Return the moves of bins to a worker, of those that are not there yet."""
    if worker not in bins.names:
        known = ", ".join(bins.names)
        raise PlanError(f"there is no worker {worker!r}", hint=f"workers of the group: {known}")
    target = bins.names.index(worker)
    count = bins.moves.configuration.bins
    wrong: list[Complaint] = []
    for bin, often in Counter(numbers).items():
        if not 0 <= bin < count:
            wrong.append(Complaint("--bins", f"there is no bin {bin} among {count}", bin))
        if often > 1:
            wrong.append(Complaint("--bins", f"bin {bin} moves {often} times at one time", bin))
    if wrong:
        raise SpecError(tuple(wrong), hint=f"the group has bins 0 to {count - 1}")
    assigned = bins.assigned
    return tuple(
        BinMove(bin, assigned[bin], target) for bin in sorted(numbers) if assigned[bin] != target
    )


def moves_even(bins: Bins, share: float, by_rows: bool = False) -> tuple[BinMove, ...]:
    """Return moves that even the state out, or the rows, of at most such a share of it: from the
    worker with the most to the one with the least, the largest bin that makes both more alike.
    """
    workers = sorted({part.number for part in bins.running} - bins.evicted)
    if not workers:
        raise PlanError("nobody runs whom bins could go to", hint="start a worker first")
    weights: list[float] = [1 + weight for weight in bins.weights()]  # where all are 0, by count
    if by_rows:
        weights = [0.01 + load.rows_per_second for load in loads(bins)]
    at = list(bins.assigned)
    totals = dict.fromkeys(workers, 0.0)
    for bin, worker in enumerate(at):
        if worker in totals:
            totals[worker] += weights[bin]
    budget = share * sum(weights)
    moved: dict[int, BinMove] = {}
    while True:
        most, least = max(totals, key=totals.__getitem__), min(totals, key=totals.__getitem__)
        limit = min(budget, (totals[most] - totals[least]) / 2)
        fitting = []
        for bin, worker in enumerate(at):
            if worker == most and bin not in moved and weights[bin] <= limit:
                fitting.append(bin)
        if not fitting:
            return tuple(moved[bin] for bin in sorted(moved))
        largest = max(fitting, key=weights.__getitem__)
        moved[largest] = BinMove(largest, most, least)
        at[largest] = least
        totals[most] -= weights[largest]
        totals[least] += weights[largest]
        budget -= weights[largest]


def steps_of(moves: Sequence[BinMove], manner: Manner) -> Steps:
    """Return moves in the steps of a strategy."""
    try:
        strategy = AllAtOnce() if manner.is_warm else strategy_of(manner.strategy, "--strategy")
    except SpecError as error:
        complaints = [
            replace(each, expected=f"{each.expected}, or warm") for each in error.complaints
        ]
        raise SpecError(tuple(complaints), hint=error.hint) from None
    earliest = manner.at or 0
    return tuple(TimedStep(step, earliest) for step in in_steps(strategy, moves))


def steps_planned(bins: Bins, text: str, at: Time | None = None) -> Steps:
    """Return the steps of a plan file that are left, by the present workers of bins."""
    configuration = bins.moves.configuration
    lines = decode_plan_file(text, None, len(bins.workers))
    begin, steps = steps_of_plan(lines, len(bins.workers))
    if begin.bins != configuration.bins:
        complaint = Complaint(
            "line 1", f"{begin.bins} bins, but the group has {configuration.bins}", begin.bins
        )
        raise SpecError((complaint,), hint="make the plan for as many bins as there are")
    shift = 0 if at is None or not steps else at - steps[0][0]
    timed = [TimedStep(step, time + shift) for time, step in steps]
    first = begin.at(begin.last)
    assigned, now = list(first), list(bins.assigned)
    done = [0] if assigned == now else []
    for number, step in enumerate(timed, start=1):
        for move in step.moves:
            assigned[move.bin] = move.target
        if assigned == now:
            done.append(number)
    if not done:
        bin, planned_worker = next(
            (bin, worker) for bin, worker in enumerate(first) if worker != now[bin]
        )
        names = bins.names
        raise PlanError(
            f"the plan begins elsewhere: bin {bin} is at {names[now[bin]]}, the plan has it at "
            f"{names[planned_worker]}",
            hint=HINT_PLAN,
        )
    return tuple(timed[done[-1] :])


def check(bins: Bins, steps: Steps, manner: Manner) -> None:
    """Refuse steps that cannot be moved as asked, before anybody is told."""
    if not steps:
        return
    for step in steps:
        for bin, often in Counter(move.bin for move in step.moves).items():
            if often > 1:
                complaint = Complaint("--bins", f"bin {bin} moves {often} times at one time", bin)
                raise SpecError((complaint,), hint="name each bin once in a step")
    refuse_under_way(bins)
    refuse_not_dealt(bins)
    refuse_without_rows(bins)
    _refuse_not_running(bins, steps)
    if not manner.any_code:
        _refuse_other_code(bins)
    for step in steps:
        if step.earliest > 0:
            refuse_past(bins, step.earliest)


def refuse_under_way(bins: Bins) -> None:
    """Refuse while somebody who lives, as far as is known, has proposed, and it is not overdue."""
    open_ = bins.moves.open
    if open_ is not None and time.time() < open_.expires and not is_gone(open_.by):
        raise PlanError(
            f"move {open_.number} is under way since {max(0.0, time.time() - open_.at):.0f} s",
            hint=f"wait for it, or: {live_command('abort', bins.location)}",
        )


def refuse_not_dealt(bins: Bins) -> None:
    """Refuse while somebody knows the bins by other numbers: it has not redistributed them."""
    for part in bins.not_dealt:
        raise PlanError(
            f"worker {part.runs.worker} has {bins.count_at(part)} bins still, of the group's "
            f"{bins.count}: it redistributes them by its next batch, or at the time that was named",
            hint=f"wait until it has; {hint_if_gone(bins.location, part.runs.worker)}",
        )


def refuse_without_rows(bins: Bins) -> None:
    """Refuse where somebody who has to answer has read nothing."""
    for part in bins.running:
        if part.frontier is None:
            raise PlanError(
                f"worker {part.runs.worker} has read no rows yet",
                hint=f"wait until it has; {hint_if_gone(bins.location, part.runs.worker)}",
            )


def _refuse_not_running(bins: Bins, steps: Steps) -> None:
    """Refuse moves whose giver or taker does not run."""
    running = {part.number for part in bins.running}
    for move in chain.from_iterable(step.moves for step in steps):
        for worker in (move.source, move.target):
            name = bins.names[worker]
            if worker in bins.evicted:
                raise evicted_error(name)
            if worker not in running:
                raise PlanError(f"worker {name} has not started yet", hint="start its job first")


def evicted_error(worker: str) -> PlanError:
    """Return the refusal of what needs a worker that is evicted."""
    return PlanError(
        f"worker {worker} is evicted, and nobody has started under its name",
        hint=f"start an application as live.Worker(GROUP, {worker!r}, …) first",
    )


def _refuse_other_code(bins: Bins) -> None:
    """Refuse workers that run other code or Python: one's state may not fit the other."""
    first: dict[str, WorkerPart] = {}
    for part in bins.parts:
        one = first.setdefault(part.runs.operator, part)
        pairs = (
            ("Python", one.runs.python, part.runs.python),
            ("code", one.runs.code[:12], part.runs.code[:12]),
        )
        for what, here, there in pairs:
            if here != there:
                raise Incompatible(
                    f"{part.runs.operator} has {what} {here} at {one.runs.worker}, and {there} at "
                    f"{part.runs.worker}",
                    hint="start both from one environment, or add --any-code",
                )


def refuse_past(bins: Bins, time: Time) -> None:
    """Refuse a time that somebody has come to already."""
    furthest = bins.furthest
    assert furthest is not None, "somebody runs"
    if time <= furthest.at:
        raise PlanError(
            f"time {time} is past: {furthest.name} is at {furthest.at}",
            hint=f"name a later time: --at {bins.ahead(10.0)} is some 10 s ahead",
        )


def hint_if_gone(location: str, worker: str) -> str:
    """Return the hint of an error that waits for a worker: it may be dead."""
    evict = live_command("evict", location, worker)
    return f"if {worker} is dead, start it again; if it never comes back: {evict}"


# ------------------------------------------------------------------------------------ their number


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
