"""Which worker has a bin at which time: a function of (time, bin), changed by updates that are values.

    Update(45, 3, 1)                    from time 45 on bin 3 is at worker 1, until an update of a later time
    configuration.worker(45, 3)         1
    updated(configuration, updates)     with more of them
    retired(configuration, frontier)    without what no time from the frontier on can need
    split(configuration)                each bin cut in halves; the function of a *key* stays the same
    merged(configuration)               two halves made one bin again, where they are together at all times

    history   per bin, ascending in time:   ((0, 0),), ((0, 1), (45, 0)), …
                                                        worker 1 first, worker 0 from time 45 on
Several operators may share one configuration and its updates: then they move together (M-1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import NamedTuple

from stateshift.errors import Complaint, SpecError
from stateshift.strategies.bins import BINS_MAX, bin_of, is_count, not_a_count

Time = int


class Update(NamedTuple):
    """From `time` on, `bin` is at `worker`."""

    time: Time
    bin: int
    worker: int


class Since(NamedTuple):
    time: Time
    worker: int


History = tuple[Since, ...]


@dataclass(frozen=True, slots=True)
class Configuration:
    """`history` has for each bin at least one entry, the first of them at or before `since`."""

    workers: int
    history: tuple[History, ...]
    since: Time = 0

    @property
    def bins(self) -> int:
        return len(self.history)

    @property
    def last(self) -> Time:
        """From when on nothing changes any more, as far as is known."""
        return max(history[-1].time for history in self.history)

    def worker(self, time: Time, bin: int) -> int:
        return _worker(self.history[bin], time)

    def worker_of(self, time: Time, hashed: int) -> int:
        """Where a key is at a time, by its hash."""
        return self.worker(time, bin_of(hashed, self.bins))

    def at(self, time: Time) -> tuple[int, ...]:
        """The worker of every bin at a time."""
        return tuple(_worker(history, time) for history in self.history)

    def moved(self, time: Time) -> tuple[tuple[int, int, int], ...]:
        """What moves at exactly this time: (bin, from worker, to worker)."""
        older = ((bin, history) for bin, history in enumerate(self.history) if history[0].time < time)
        found = ((bin, _worker(history, time - 1), _worker(history, time)) for bin, history in older)
        return tuple((bin, before, after) for bin, before, after in found if before != after)


def configured(assigned: Sequence[int], workers: int, since: Time = 0) -> Configuration:
    """The configuration that begins with a worker for each bin."""
    found = _assignment_complaints(assigned, workers)
    if found:
        raise SpecError(tuple(found), hint="a power of two of bins, each at a worker from 0 on")
    return Configuration(workers, tuple((Since(since, worker),) for worker in assigned), since)


def evenly(bins: int, workers: int) -> Configuration:
    """Bins dealt out to the workers in turn."""
    if workers < 1 or not is_count(bins):
        raise SpecError(tuple(_count_complaints(bins, workers)), hint="a power of two of bins, and a worker for them")
    return configured([bin % workers for bin in range(bins)], workers)


def updated(configuration: Configuration, updates: Iterable[Update]) -> Configuration:
    """With these updates; refused with all that is wrong with any of them."""
    updates = tuple(updates)
    found = tuple(chain.from_iterable(_complaints(configuration, updates)))
    if found:
        raise SpecError(found, hint="updates go on from the configuration that there is, in the order of their times")
    history = list(configuration.history)
    for time, bin, worker in updates:
        history[bin] = _with(history[bin], Since(time, worker))
    return replace(configuration, history=tuple(history))


def retired(configuration: Configuration, frontier: Time) -> Configuration:
    """The same function for all times from the frontier on, and none before: what no time can need any more is let go
    of (M-1)."""
    if frontier <= configuration.since:
        return configuration
    return replace(configuration, history=tuple(_from(h, frontier) for h in configuration.history), since=frontier)


def split(configuration: Configuration) -> Configuration:
    """Every bin in halves, which are where it is. No key is elsewhere for it at any time: nobody has to agree on when.
    """
    if 2 * configuration.bins > BINS_MAX:
        raise SpecError((Complaint("/bins", not_a_count(2 * configuration.bins), 2 * configuration.bins),))
    return replace(configuration, history=tuple(h for history in configuration.history for h in (history, history)))


def merged(configuration: Configuration) -> Configuration:
    """Two halves as one bin again. Refused where they are apart at a time that can still be asked for."""
    halves = configuration.history[::2], configuration.history[1::2]
    if configuration.bins == 1:
        raise SpecError((Complaint("/bins", "one bin has no half", 1),))
    apart = [bin for bin, (low, high) in enumerate(zip(*halves, strict=True)) if _plain(low) != _plain(high)]
    if apart:
        found = tuple(
            Complaint(f"/bins/{2 * b}", f"bins {2 * b} and {2 * b + 1} are at different workers", [2 * b, 2 * b + 1])
            for b in apart
        )
        raise SpecError(found, hint="move the halves together first, and merge when the older times are retired")
    return replace(configuration, history=tuple(_plain(low) for low in halves[0]))


def _worker(history: History, time: Time) -> int:
    index = bisect_right(history, time, key=lambda entry: entry.time) - 1
    assert index >= 0, "a time that is retired"
    return history[index].worker


def _with(history: History, entry: Since) -> History:
    """The last one of a time holds."""
    return (*(earlier for earlier in history if earlier.time < entry.time), entry)


def _from(history: History, frontier: Time) -> History:
    index = bisect_right(history, frontier, key=lambda entry: entry.time) - 1
    return (Since(frontier, history[index].worker), *history[index + 1 :])


def _plain(history: History) -> History:
    """Without entries that change nothing, so that equal functions are equal values."""
    return history[:1] + tuple(b for a, b in pairwise(history) if a.worker != b.worker)


def _complaints(configuration: Configuration, updates: Sequence[Update]) -> Iterable[list[Complaint]]:
    latest, said = [h[-1].time for h in configuration.history], configuration.since
    told: dict[tuple[Time, int], int] = {}
    for index, (time, bin, worker) in enumerate(updates):
        found = []
        if time < said:
            found.append(Complaint(f"/{index}/time", f"time runs backwards, from {said} to {time}", time))
        elif 0 <= bin < configuration.bins and time < latest[bin]:
            message = f"bin {bin} has an update of time {latest[bin]} already, and time runs backwards to {time}"
            found.append(Complaint(f"/{index}/time", message, time))
        if not 0 <= bin < configuration.bins:
            found.append(Complaint(f"/{index}/bin", f"there is no bin {bin} among {configuration.bins}", bin))
        if not 0 <= worker < configuration.workers:
            found.append(unknown_worker(f"/{index}/worker", worker, configuration.workers))
        if told.setdefault((time, bin), worker) != worker:
            message = f"bin {bin} is at worker {told[time, bin]} at time {time} already"
            found.append(Complaint(f"/{index}/worker", message, worker))
        said = max(said, time)
        yield found


def unknown_worker(pointer: str, worker: int, workers: int) -> Complaint:
    return Complaint(pointer, f"there is no worker {worker} among {workers}", worker, f"from 0 to {workers - 1}")


def _assignment_complaints(assigned: Sequence[int], workers: int) -> list[Complaint]:
    found = _count_complaints(len(assigned), workers)
    unknown = ((bin, worker) for bin, worker in enumerate(assigned) if not 0 <= worker < max(workers, 1))
    return found + [unknown_worker(f"/bins/{bin}", worker, workers) for bin, worker in unknown]


def _count_complaints(bins: int, workers: int) -> list[Complaint]:
    found = [] if is_count(bins) else [Complaint("/bins", not_a_count(bins), bins, "a power of two")]
    return found + ([] if workers >= 1 else [Complaint("/workers", "there is no worker", workers, "at least 1")])
