"""Bins, and which worker has a bin at which time: a function of (time, bin), changed by updates
that are values.

    hash   1011 0110 …   64 bits; a bin is a class of keys, by the leading bits of their hashes
    bins   8             a power of two
    bin    101           = 5; split it is 1010 and 1011, and with 100 it merges into 10

    Update(45, 3, 1)                  from time 45 on bin 3 is at worker 1, until a later update
    configuration.worker(45, 3)       1
    apply_updates(configuration, …)   with more of them
    retire(configuration, frontier)   without what no time from the frontier on can need
    resize(configuration, bins)       split or merged; the function of a *key* stays the same
    resize_settled(…)                 the same from its last move on
    moves_between(before, after)      the difference between two assignments

    history   per bin, ascending in time: ((0, 0),), ((0, 1), (45, 0)), …
              of the second bin: worker 1 first, worker 0 from time 45 on

The leading bits and not the last ones: a hash table inside a bin goes by the last ones, and would
fill only a part of its slots (Megaphone, 4.2). The parts of a split bin are therefore neighbours.

Several operators may share one configuration and its updates: then they move together (M-1).

    frontier_without_bins   own, or that of the slowest worker with bins, as far as none is its own
    next_move               the first time from one on at which a worker gives or takes a bin
    is_settled              whether a worker may agree to another number of bins

A row is folded by the worker that has its bin at its time. A worker has nothing to do before the
first time at which it has a bin, and counts as having come so far, whatever it has read: one that
starts from nothing holds up nobody. From its first bin on its frontier is again what its source
promises.

Bins are split or merged while workers run, all of them, to another power of two. No key is
elsewhere for it at any time, so no two workers have to change their number at one moment. But each
names bins to the others, in what it gives and takes. Two rules keep these names apart:

    is_settled   a worker agrees to another number once every move that it knows is made: it has
                 passed the last one, awaits nothing, and all that it gave was taken
    and then     it agrees to no move by the new number before its own bins are redistributed

What was given by the old number was therefore taken by it, and nothing is given by the new number
to somebody who still counts by the old one. In between a worker may take as long as it likes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from stateshift.dataflow.move_steps import BinMove, Step
from stateshift.errors import Complaint, SpecError

HASH_BITS = 64
# From 2^16 on the routing table costs noticeable latency, at 2^20 more than a second of it
# (Megaphone, figure 13).
BINS_MAX = 1 << 20

Time = int
Moment: TypeAlias = Any  # a number in the model, a tuple where it runs; compared, and nothing else
BEGIN: Time = -1  # what a job begins with was so before its first time, which is 0
HINT = "updates go on from the configuration that there is, in the order of their times"


# -------------------------------------------------------------------------------- bins


def bin_of(hashed: int, bins: int) -> int:
    """Return the bin of a key, by its hash of 64 bits."""
    assert 0 <= hashed < 1 << HASH_BITS, "a hash of 64 bits"
    return hashed >> (HASH_BITS - bits_of(bins))


def bits_of(bins: int) -> int:
    """Return the number of leading bits that distinguish so many bins."""
    assert is_count(bins), "a power of two"
    return bins.bit_length() - 1


def related_bins(bin: int, bins: int, others: int) -> range:
    """Return a bin's parts, if there were so many others; or the one that it is a part of."""
    parts = others // bins
    if parts:
        return range(bin * parts, (bin + 1) * parts)
    whole = bin // (bins // others)
    return range(whole, whole + 1)


def groups_to_resize(here: Iterable[int], before: int, after: int) -> Iterator[tuple[int, ...]]:
    """Yield the bins, of those `before`, that are split alone, or merge into one."""
    together: dict[int, list[int]] = {}
    for bin in sorted(here):
        first = related_bins(bin, before, after)[0]
        together.setdefault(first, []).append(bin)
    for bins in together.values():
        yield tuple(bins)


def is_count(bins: int) -> bool:
    """Whether there can be so many bins."""
    return 0 < bins <= BINS_MAX and not bins & (bins - 1)


def not_a_count(bins: int) -> str:
    """Return the complaint about a number of bins that there cannot be."""
    if bins > BINS_MAX:
        return (
            f"{bins:,} bins are more than {BINS_MAX:,}: each record would wait for the routing "
            "table"
        )
    near = 1 << max(bins.bit_length() - 1, 0)
    return f"{bins} bins are no power of two" + (
        f": take {near} or {2 * near}" if 0 < bins < BINS_MAX else ""
    )


# -------------------------------------------------------------------------------- workers


class Update(NamedTuple):
    """The fact that `bin` is at `worker` from `time` on."""

    time: Time
    bin: int
    worker: int


class Since(NamedTuple):
    """The fact that one bin, whose history has this, is at `worker` from `time` on."""

    time: Time
    worker: int


History = tuple[Since, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """`history` has for each bin at least one entry, the first of them at or before `since`: the
    earliest time that can be asked for. Updates lie after it, so that it is always known where a
    bin moves from.
    """

    workers: int
    history: tuple[History, ...]
    since: Time = BEGIN

    @property
    def bins(self) -> int:
        return len(self.history)

    @property
    def last(self) -> Time:
        """The time from which nothing changes any more, as far as is known."""
        return max([history[-1].time for history in self.history])

    def worker(self, time: Time, bin: int) -> int:
        return _worker(self.history[bin], time)

    def at(self, time: Time) -> tuple[int, ...]:
        return tuple(_worker(history, time) for history in self.history)


def initial_configuration(
    assigned: Sequence[int], workers: int, since: Time = BEGIN
) -> Configuration:
    """Return the configuration that begins with a worker for each bin."""
    wrong: list[Complaint] = []
    if not is_count(len(assigned)):
        message = not_a_count(len(assigned))
        wrong.append(Complaint("/bins", message, len(assigned), "a power of two"))
    if workers < 1:
        wrong.append(Complaint("/workers", "there is no worker", workers, "at least 1"))
    for bin, worker in enumerate(assigned):
        if worker not in range(max(workers, 1)):
            wrong.append(unknown_worker(f"/bins/{bin}", worker, workers))
    if wrong:
        raise SpecError(tuple(wrong), hint="a power of two of bins, each at a worker from 0 on")
    return Configuration(workers, tuple((Since(since, worker),) for worker in assigned), since)


def unknown_worker(pointer: str, worker: int, workers: int) -> Complaint:
    """Return the complaint about a worker that is none of so many."""
    return Complaint(
        pointer, f"there is no worker {worker} among {workers}", worker, f"from 0 to {workers - 1}"
    )


def apply_updates(
    configuration: Configuration, updates: Iterable[Update], bins: int | None = None
) -> Configuration:
    """Return the configuration with these updates, or refuse them with all that is wrong with any.
    Updates that speak of more `bins` than there are split them; those that speak of fewer hold for
    all bins that theirs have been split into.
    """
    updates, bins = tuple(updates), bins or configuration.bins
    wrong = complaints(configuration, updates, bins)
    if wrong:
        raise SpecError(wrong, hint=HINT)
    configuration = resize(configuration, max(configuration.bins, bins))
    histories, parts = list(configuration.history), configuration.bins // bins
    for time, bin, worker in updates:
        for part in range(bin * parts, (bin + 1) * parts):
            earlier = (since for since in histories[part] if since.time < time)
            histories[part] = (*earlier, Since(time, worker))  # the last one of a time holds
    return replace(configuration, history=tuple(histories))


def retire(configuration: Configuration, frontier: Time) -> Configuration:
    """Return the same function for all times from the frontier on, and none before (M-1)."""
    if frontier <= configuration.since:
        return configuration
    histories: list[History] = []
    for history in configuration.history:
        index = bisect_right(history, frontier, key=lambda entry: entry.time) - 1
        histories.append((Since(frontier, history[index].worker), *history[index + 1 :]))
    return replace(configuration, history=tuple(histories), since=frontier)


def resize(configuration: Configuration, bins: int) -> Configuration:
    """Return the configuration split or merged until there are so many bins."""
    if not is_count(bins):
        raise SpecError((Complaint("/bins", not_a_count(bins), bins, "a power of two"),))
    while configuration.bins != bins:
        configuration = split(configuration) if configuration.bins < bins else merge(configuration)
    return configuration


def resize_settled(configuration: Configuration, bins: int) -> Configuration:
    """Return the configuration by another number of bins, for workers that are all settled: no time
    before its last move can be asked for any more. Refuse halves that are at different workers.
    """
    return resize(retire(configuration, configuration.last), bins)


def split(configuration: Configuration) -> Configuration:
    """Return every bin in halves, where it is: nobody has to agree on when."""
    bins = 2 * configuration.bins
    if bins > BINS_MAX:
        raise SpecError((Complaint("/bins", not_a_count(bins), bins),))
    histories: list[History] = []
    for history in configuration.history:
        histories += (history, history)
    return replace(configuration, history=tuple(histories))


def merge(configuration: Configuration) -> Configuration:
    """Return two halves as one bin again; refuse those that are apart at some time."""
    if configuration.bins == 1:
        raise SpecError((Complaint("/bins", "one bin has no half", 1),))
    histories = []
    for history in configuration.history:  # equal functions have to be equal values
        changes = [later for earlier, later in pairwise(history) if earlier.worker != later.worker]
        histories.append((*history[:1], *changes))
    apart: list[Complaint] = []
    for low in range(0, configuration.bins, 2):
        if histories[low] != histories[low + 1]:
            message = f"bins {low} and {low + 1} are at different workers"
            apart.append(Complaint(f"/bins/{low}", message, [low, low + 1]))
    if apart:
        hint = "move the halves together first, and merge when the older times are retired"
        raise SpecError(tuple(apart), hint=hint)
    return replace(configuration, history=tuple(histories[::2]))


def _worker(history: History, time: Time) -> int:
    index = bisect_right(history, time, key=lambda entry: entry.time) - 1
    assert index >= 0, "a time that is retired"
    return history[index].worker


def complaints(
    configuration: Configuration, updates: Sequence[Update], bins: int, frontier: Time = 0
) -> tuple[Complaint, ...]:
    """Return the complaints about updates in terms of `bins` that come at a frontier."""
    if not is_count(bins):
        return (Complaint("/bins", not_a_count(bins), bins, "a power of two"),)
    parts = max(1, configuration.bins // bins)
    fine = resize(configuration, max(configuration.bins, bins))
    times = [history[-1].time for history in fine.history]
    latest = [max(times[first : first + parts]) for first in range(0, len(times), parts)]
    earliest = max(configuration.since + 1, frontier)
    return tuple(_complaints(configuration, updates, latest, earliest))


def _complaints(
    configuration: Configuration, updates: Sequence[Update], latest: Sequence[Time], earliest: Time
) -> Iterator[Complaint]:
    """Yield each update's complaints; `latest` has each bin's last time, `earliest` the first."""
    workers: dict[tuple[Time, int], int] = {}
    for index, (time, bin, worker) in enumerate(updates):
        is_known = 0 <= bin < len(latest)
        if time < earliest:
            message = f"time runs backwards, from {earliest} to {time}"
            yield Complaint(f"/{index}/time", message, time)
        elif is_known and time < latest[bin]:
            message = (
                f"bin {bin} has an update of time {latest[bin]} already, and time runs "
                f"backwards to {time}"
            )
            yield Complaint(f"/{index}/time", message, time)
        if not is_known:
            yield Complaint(f"/{index}/bin", f"there is no bin {bin} among {len(latest)}", bin)
        if not 0 <= worker < configuration.workers:
            yield unknown_worker(f"/{index}/worker", worker, configuration.workers)
        before = workers.setdefault((time, bin), worker)
        if before != worker:
            message = f"bin {bin} is at worker {before} at time {time} already"
            yield Complaint(f"/{index}/worker", message, worker)
        earliest = max(earliest, time)


# -------------------------------------------------------------------------------- moves


def moves_between(before: Sequence[int], after: Sequence[int]) -> tuple[BinMove, ...]:
    """Return the moves from one assignment to another, in the order of the bins that move."""
    wrong: list[Complaint] = []
    for name, bins in (("before", len(before)), ("after", len(after))):
        if not is_count(bins):
            wrong.append(Complaint(f"/{name}", not_a_count(bins), bins))
    if len(before) != len(after):
        message = f"{len(after)} bins, but {len(before)} before"
        wrong.append(Complaint("/after", message, len(after)))
    if wrong:
        hint = "split or merge bins first: both sides need as many of them"
        raise SpecError(tuple(wrong), hint=hint)
    pairs = enumerate(zip(before, after, strict=True))
    return tuple(
        BinMove(bin, source, target) for bin, (source, target) in pairs if source != target
    )


def updates_of(step: Step, time: Time) -> tuple[Update, ...]:
    """Return the step as updates of the configuration."""
    return tuple(Update(time, move.bin, move.target) for move in step)


# -------------------------------------------------------------------------------- frontiers


def frontier_without_bins(
    configuration: Configuration, worker: int, own: Moment | None, others: Iterable[Moment]
) -> Moment | None:
    """Return the frontier that a worker may take; `own` is None where it has read nothing, `others`
    are those of the workers with bins. The configuration was read after the others' frontiers: they
    have passed no time of a move that it does not know.
    """
    slowest = min(others, default=None)
    if slowest is None or (own is not None and slowest <= own):
        return own
    at = configuration.since if own is None else max(configuration.since, own[0])
    if worker in configuration.at(at):
        return own
    first: Time | None = None  # after `at`, at which it has a bin
    for history in configuration.history:
        for entry in history:
            if entry.worker == worker and entry.time > at:
                first = entry.time if first is None else min(first, entry.time)
    if first is not None and slowest >= (first,):
        slowest = (first - 1,)
    return slowest if own is None or slowest > own else own


def next_move(configuration: Configuration, worker: int, since: Time) -> Time | None:
    """Return the first time from `since` on at which a worker gives or takes a bin, or None."""
    times: list[Time] = []
    for history in configuration.history:
        for before, after in pairwise(history):
            is_its_own = before.worker != after.worker and worker in (before.worker, after.worker)
            if is_its_own and after.time >= since:
                times.append(after.time)
    return min(times, default=None)


@dataclass(frozen=True, slots=True)
class WorkerMoves:
    """A worker's moves: those before `frontier` are made. None where it has read nothing."""

    frontier: Moment | None
    awaits: int  # bins that have not come yet
    unclaimed: int  # bins that were given, and not taken yet


def is_settled(configuration: Configuration, moves: WorkerMoves) -> bool:
    """Whether a worker has made every move that is decided."""
    if moves.frontier is None or moves.frontier < (configuration.last,):
        return False
    return moves.awaits == 0 and moves.unclaimed == 0
