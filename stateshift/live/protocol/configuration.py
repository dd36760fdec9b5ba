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
from stateshift.live.protocol.bins import BINS_MAX, bin_of, is_count, not_a_count

Time = int
BEGIN: Time = -1  # what a job begins with was so before its first time, which is 0


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
        """From when on nothing changes any more, as far as is known."""
        return max(history[-1].time for history in self.history)

    def worker(self, time: Time, bin: int) -> int:
        return _worker(self.history[bin], time)

    def bin_of(self, hashed: int) -> int:
        """The bin of a key, by its hash."""
        return bin_of(hashed, self.bins)

    def worker_of(self, time: Time, hashed: int) -> int:
        """Where a key is at a time, by its hash."""
        return self.worker(time, self.bin_of(hashed))

    def at(self, time: Time) -> tuple[int, ...]:
        """The worker of every bin at a time."""
        return tuple(_worker(history, time) for history in self.history)

    def moved(self, time: Time) -> tuple[tuple[int, int, int], ...]:
        """What moves at exactly this time: (bin, from worker, to worker)."""
        older = (
            (bin, history) for bin, history in enumerate(self.history) if history[0].time < time
        )
        found = (
            (bin, _worker(history, time - 1), _worker(history, time)) for bin, history in older
        )
        return tuple((bin, before, after) for bin, before, after in found if before != after)


def configured(assigned: Sequence[int], workers: int, since: Time = BEGIN) -> Configuration:
    """The configuration that begins with a worker for each bin."""
    found = _assignment_complaints(assigned, workers)
    if found:
        raise SpecError(tuple(found), hint="a power of two of bins, each at a worker from 0 on")
    return Configuration(workers, tuple((Since(since, worker),) for worker in assigned), since)


def evenly(bins: int, workers: int) -> Configuration:
    """Bins dealt out to the workers in turn."""
    if workers < 1 or not is_count(bins):
        raise SpecError(
            tuple(_count_complaints(bins, workers)),
            hint="a power of two of bins, and a worker for them",
        )
    return configured([bin % workers for bin in range(bins)], workers)


def updated(
    configuration: Configuration, updates: Iterable[Update], bins: int | None = None
) -> Configuration:
    """With these updates; refused with all that is wrong with any of them. Updates that speak of
    more `bins` than there are split them; those that speak of fewer hold for all bins that theirs
    have been split into.
    """
    updates, bins = tuple(updates), bins or configuration.bins
    if found := complaints(configuration, updates, bins):
        raise SpecError(found, hint=HINT)
    configuration = resized(configuration, max(configuration.bins, bins))
    history, parts = list(configuration.history), configuration.bins // bins
    for time, bin, worker in updates:
        for part in range(bin * parts, (bin + 1) * parts):
            history[part] = _with(history[part], Since(time, worker))
    return replace(configuration, history=tuple(history))


HINT = "updates go on from the configuration that there is, in the order of their times"


def retired(configuration: Configuration, frontier: Time) -> Configuration:
    """The same function for all times from the frontier on, and none before: what no time can need
    any more is let go of (M-1).
    """
    if frontier <= configuration.since:
        return configuration
    return replace(
        configuration,
        history=tuple(_from(h, frontier) for h in configuration.history),
        since=frontier,
    )


def split(configuration: Configuration) -> Configuration:
    """Every bin in halves, which are where it is. No key is elsewhere for it at any time: nobody
    has to agree on when.
    """
    if 2 * configuration.bins > BINS_MAX:
        raise SpecError(
            (Complaint("/bins", not_a_count(2 * configuration.bins), 2 * configuration.bins),)
        )
    return replace(
        configuration,
        history=tuple(h for history in configuration.history for h in (history, history)),
    )


def merged(configuration: Configuration) -> Configuration:
    """Two halves as one bin again. Refused where they are apart at a time that can still be
    asked for.
    """
    halves = configuration.history[::2], configuration.history[1::2]
    if configuration.bins == 1:
        raise SpecError((Complaint("/bins", "one bin has no half", 1),))
    apart = [
        bin
        for bin, (low, high) in enumerate(zip(*halves, strict=True))
        if _plain(low) != _plain(high)
    ]
    if apart:
        found = tuple(
            Complaint(
                f"/bins/{2 * b}",
                f"bins {2 * b} and {2 * b + 1} are at different workers",
                [2 * b, 2 * b + 1],
            )
            for b in apart
        )
        raise SpecError(
            found, hint="move the halves together first, and merge when the older times are retired"
        )
    return replace(configuration, history=tuple(_plain(low) for low in halves[0]))


def resized(configuration: Configuration, bins: int) -> Configuration:
    """Split or merged until there are so many bins."""
    if not is_count(bins):
        raise SpecError((Complaint("/bins", not_a_count(bins), bins, "a power of two"),))
    while configuration.bins != bins:
        configuration = split(configuration) if configuration.bins < bins else merged(configuration)
    return configuration


def complaints(
    configuration: Configuration, updates: Sequence[Update], bins: int, frontier: Time = 0
) -> tuple[Complaint, ...]:
    """What is wrong with updates in terms of `bins` that come at a frontier."""
    if not is_count(bins):
        return (Complaint("/bins", not_a_count(bins), bins, "a power of two"),)
    parts = max(1, configuration.bins // bins)
    latest = [h[-1].time for h in resized(configuration, max(configuration.bins, bins)).history]
    coarse = [max(latest[first : first + parts]) for first in range(0, len(latest), parts)]
    earliest = max(configuration.since + 1, frontier)
    return tuple(chain.from_iterable(_complaints(configuration, updates, coarse, earliest)))


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


def _complaints(
    configuration: Configuration, updates: Sequence[Update], latest: Sequence[Time], said: Time
) -> Iterable[list[Complaint]]:
    """`latest` has the time of each bin's last update, `said` the earliest that there may be."""
    told: dict[tuple[Time, int], int] = {}
    for index, (time, bin, worker) in enumerate(updates):
        found = []
        if time < said:
            found.append(
                Complaint(f"/{index}/time", f"time runs backwards, from {said} to {time}", time)
            )
        elif 0 <= bin < len(latest) and time < latest[bin]:
            message = (
                f"bin {bin} has an update of time {latest[bin]} already, and time runs "
                f"backwards to {time}"
            )
            found.append(Complaint(f"/{index}/time", message, time))
        if not 0 <= bin < len(latest):
            found.append(
                Complaint(f"/{index}/bin", f"there is no bin {bin} among {len(latest)}", bin)
            )
        if not 0 <= worker < configuration.workers:
            found.append(unknown_worker(f"/{index}/worker", worker, configuration.workers))
        if told.setdefault((time, bin), worker) != worker:
            message = f"bin {bin} is at worker {told[time, bin]} at time {time} already"
            found.append(Complaint(f"/{index}/worker", message, worker))
        said = max(said, time)
        yield found


def unknown_worker(pointer: str, worker: int, workers: int) -> Complaint:
    return Complaint(
        pointer, f"there is no worker {worker} among {workers}", worker, f"from 0 to {workers - 1}"
    )


def _assignment_complaints(assigned: Sequence[int], workers: int) -> list[Complaint]:
    found = _count_complaints(len(assigned), workers)
    unknown = (
        (bin, worker) for bin, worker in enumerate(assigned) if not 0 <= worker < max(workers, 1)
    )
    return found + [unknown_worker(f"/bins/{bin}", worker, workers) for bin, worker in unknown]


def _count_complaints(bins: int, workers: int) -> list[Complaint]:
    found = (
        [] if is_count(bins) else [Complaint("/bins", not_a_count(bins), bins, "a power of two")]
    )
    return found + (
        [] if workers >= 1 else [Complaint("/workers", "there is no worker", workers, "at least 1")]
    )
