"""Which worker has a bin at which time: a function of (time, bin), changed by updates that are
values.

    Update(45, 3, 1)                  from time 45 on bin 3 is at worker 1, until an update of a
                                      later time
    configuration.worker(45, 3)       1
    updated(configuration, updates)   with more of them
    retired(configuration, frontier)  without what no time from the frontier on can need
    split(configuration)              each bin cut in halves; the function of a *key* stays the same
    merged(configuration)             two halves made one bin again, where they are together at all
                                      times
    resized(configuration, bins)      as often as it takes

    history   per bin, ascending in time: ((0, 0),), ((0, 1), (45, 0)), …
              of the second bin: worker 1 first, worker 0 from time 45 on

Several operators may share one configuration and its updates: then they move together (M-1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from stateshift.errors import Complaint, SpecError
from stateshift.live.protocol.bins import BINS_MAX, bin_of, is_count, not_a_count

Time = int
BEGIN: Time = -1  # what a job begins with was so before its first time, which is 0


class Update(NamedTuple):
    """The fact that `bin` is at `worker` from `time` on."""

    time: Time
    bin: int
    worker: int


class Since(NamedTuple):
    """The fact that one bin, whose history this stands in, is at `worker` from `time` on."""

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

    def bin_of(self, hashed: int) -> int:
        """Return the bin of a key, by its hash."""
        return bin_of(hashed, self.bins)

    def at(self, time: Time) -> tuple[int, ...]:
        """Return the worker of every bin at a time."""
        return tuple(_worker(history, time) for history in self.history)

    def moved(self, time: Time) -> tuple[tuple[int, int, int], ...]:
        """Return what moves at exactly this time: (bin, from worker, to worker)."""
        moves = []
        for bin, history in enumerate(self.history):
            if history[0].time < time:
                before, after = _worker(history, time - 1), _worker(history, time)
                if before != after:
                    moves.append((bin, before, after))
        return tuple(moves)


def configured(assigned: Sequence[int], workers: int, since: Time = BEGIN) -> Configuration:
    """Return the configuration that begins with a worker for each bin."""
    wrong = _assignment_complaints(assigned, workers)
    if wrong:
        raise SpecError(tuple(wrong), hint="a power of two of bins, each at a worker from 0 on")
    return Configuration(workers, tuple((Since(since, worker),) for worker in assigned), since)


def updated(
    configuration: Configuration, updates: Iterable[Update], bins: int | None = None
) -> Configuration:
    """Return the configuration with these updates, which are refused with all that is wrong with
    any of them. Updates that speak of more `bins` than there are split them; those that speak of
    fewer hold for all bins that theirs have been split into.
    """
    updates, bins = tuple(updates), bins or configuration.bins
    wrong = complaints(configuration, updates, bins)
    if wrong:
        raise SpecError(wrong, hint=HINT)
    configuration = resized(configuration, max(configuration.bins, bins))
    history, parts = list(configuration.history), configuration.bins // bins
    for time, bin, worker in updates:
        for part in range(bin * parts, (bin + 1) * parts):
            history[part] = _with(history[part], Since(time, worker))
    return replace(configuration, history=tuple(history))


HINT = "updates go on from the configuration that there is, in the order of their times"


def retired(configuration: Configuration, frontier: Time) -> Configuration:
    """Return the same function for all times from the frontier on, and none before: what no time
    can need any more is let go of (M-1).
    """
    if frontier <= configuration.since:
        return configuration
    histories = tuple(_from(history, frontier) for history in configuration.history)
    return replace(configuration, history=histories, since=frontier)


def split(configuration: Configuration) -> Configuration:
    """Return every bin in halves, which are where it is. No key is elsewhere for it at any time:
    nobody has to agree on when.
    """
    bins = 2 * configuration.bins
    if bins > BINS_MAX:
        raise SpecError((Complaint("/bins", not_a_count(bins), bins),))
    histories: list[History] = []
    for history in configuration.history:
        histories += (history, history)
    return replace(configuration, history=tuple(histories))


def merged(configuration: Configuration) -> Configuration:
    """Return two halves as one bin again. Refused if they are apart at a time that can still be
    asked for.
    """
    if configuration.bins == 1:
        raise SpecError((Complaint("/bins", "one bin has no half", 1),))
    low_halves = tuple(map(_plain, configuration.history[::2]))
    high_halves = tuple(map(_plain, configuration.history[1::2]))
    apart = tuple(_halves_apart(low_halves, high_halves))
    if apart:
        hint = "move the halves together first, and merge when the older times are retired"
        raise SpecError(apart, hint=hint)
    return replace(configuration, history=low_halves)


def _halves_apart(
    low_halves: Sequence[History], high_halves: Sequence[History]
) -> Iterator[Complaint]:
    """Yield a complaint about each pair of halves that are at different workers at some time."""
    for number, (low, high) in enumerate(zip(low_halves, high_halves, strict=True)):
        if low != high:
            yield _apart(2 * number)


def _apart(low: int) -> Complaint:
    """Return the complaint about two halves that are at different workers."""
    high = low + 1
    message = f"bins {low} and {high} are at different workers"
    return Complaint(f"/bins/{low}", message, [low, high])


def resized(configuration: Configuration, bins: int) -> Configuration:
    """Return the configuration split or merged until there are so many bins."""
    if not is_count(bins):
        raise SpecError((Complaint("/bins", not_a_count(bins), bins, "a power of two"),))
    while configuration.bins != bins:
        configuration = split(configuration) if configuration.bins < bins else merged(configuration)
    return configuration


def complaints(
    configuration: Configuration, updates: Sequence[Update], bins: int, frontier: Time = 0
) -> tuple[Complaint, ...]:
    """Return what is wrong with updates in terms of `bins` that come at a frontier."""
    if not is_count(bins):
        return (Complaint("/bins", not_a_count(bins), bins, "a power of two"),)
    parts = max(1, configuration.bins // bins)
    fine = resized(configuration, max(configuration.bins, bins))
    latest = _latest_times(fine)
    coarse = [max(latest[first : first + parts]) for first in range(0, len(latest), parts)]
    earliest = max(configuration.since + 1, frontier)
    return tuple(_complaints(configuration, updates, coarse, earliest))


def _latest_times(configuration: Configuration) -> list[Time]:
    """Return the time of each bin's last update."""
    return [history[-1].time for history in configuration.history]


def _worker(history: History, time: Time) -> int:
    index = bisect_right(history, time, key=lambda entry: entry.time) - 1
    assert index >= 0, "a time that is retired"
    return history[index].worker


def _with(history: History, entry: Since) -> History:
    """Return a history with an entry more. The last one of a time holds."""
    return (*(earlier for earlier in history if earlier.time < entry.time), entry)


def _from(history: History, frontier: Time) -> History:
    index = bisect_right(history, frontier, key=lambda entry: entry.time) - 1
    return (Since(frontier, history[index].worker), *history[index + 1 :])


def _plain(history: History) -> History:
    """Return a history without entries that change nothing: equal functions are equal values."""
    changes = (later for earlier, later in pairwise(history) if earlier.worker != later.worker)
    return (*history[:1], *changes)


def _complaints(
    configuration: Configuration, updates: Sequence[Update], latest: Sequence[Time], earliest: Time
) -> Iterable[Complaint]:
    """Yield what is wrong with each update. `latest` has the time of each bin's last update,
    `earliest` is the first time that there may be.
    """
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


def unknown_worker(pointer: str, worker: int, workers: int) -> Complaint:
    """Return the complaint about a worker that is none of so many."""
    return Complaint(
        pointer, f"there is no worker {worker} among {workers}", worker, f"from 0 to {workers - 1}"
    )


def _assignment_complaints(assigned: Sequence[int], workers: int) -> list[Complaint]:
    wrong = _count_complaints(len(assigned), workers)
    known = range(max(workers, 1))
    for bin, worker in enumerate(assigned):
        if worker not in known:
            wrong.append(unknown_worker(f"/bins/{bin}", worker, workers))
    return wrong


def _count_complaints(bins: int, workers: int) -> list[Complaint]:
    wrong = []
    if not is_count(bins):
        wrong.append(Complaint("/bins", not_a_count(bins), bins, "a power of two"))
    if workers < 1:
        wrong.append(Complaint("/workers", "there is no worker", workers, "at least 1"))
    return wrong
