"""The load of each bin: its keys, its bytes, those that change, and its rows; and the hot bins.

    loads(bins)  of each bin, in all operators
    hot(loads)   those that have far more than the others

Rates are of the last commits of each part. A commit counts the rows of those bins alone that had
many; the other bins of the part share the rest of its rows alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stateshift.live.bins.commits import Commit
from stateshift.live.bins.watch import Bins, WorkerPart

HOT = 4.0  # times the mean of all bins


@dataclass(frozen=True, slots=True)
class Load:
    """The load of a bin, in all operators. `times` is its largest multiple of a mean."""

    bin: int
    worker: str
    keys: int
    size: int
    changed_per_second: float
    times: float = 0.0
    rows_per_second: float = 0.0


def loads(bins: Bins) -> tuple[Load, ...]:
    """Return the load of every bin, by its number."""
    keys, sizes = [0] * bins.count, [0] * bins.count
    changed, rows = [0.0] * bins.count, [0.0] * bins.count
    for part in bins.parts:
        if bins.count_at(part) != bins.count:
            continue
        for bin, kept in part.ledger.here.items():
            keys[bin] += kept.keys
            sizes[bin] += kept.size
        recent = [each for each in part.recent if (each.bins or bins.begun) == bins.count]
        if len(recent) > 1 and recent[-1].at > recent[0].at:
            seconds = recent[-1].at - recent[0].at
            sizes_changed: Counter[int] = Counter()
            for commit in recent[1:]:
                for each in commit.changed:
                    if not each.is_whole:  # a whole one tells nothing of its changes
                        sizes_changed[each.bin] += each.piece.size
            for bin, size in sizes_changed.items():
                changed[bin] += size / seconds
            for bin, count in _rows(part, recent[1:]).items():
                rows[bin] += count / seconds
    measures = (_times(keys), _times(sizes), _times(changed), _times(rows))
    times = [max(each) for each in zip(*measures, strict=True)]
    return tuple(
        Load(
            bin=bin,
            worker=bins.names[worker],
            keys=keys[bin],
            size=sizes[bin],
            changed_per_second=changed[bin],
            times=times[bin],
            rows_per_second=rows[bin],
        )
        for bin, worker in enumerate(bins.assigned)
    )


def hot(found: Sequence[Load]) -> tuple[Load, ...]:
    """Return the bins that have far more than the others, the hottest first; none where there are
    fewer keys than bins: a single key is far more than the mean then.
    """
    if sum(load.keys for load in found) < len(found):
        return ()
    hottest = [load for load in found if load.times >= HOT]
    return tuple(sorted(hottest, key=lambda load: (-load.times, load.bin)))


def _rows(part: WorkerPart, commits: Sequence[Commit]) -> Mapping[int, float]:
    """Return the rows of each bin of a part that commits have folded."""
    busy: dict[int, float] = {}
    for commit in commits:
        for bin, count in commit.busy.items():
            busy[int(bin)] = busy.get(int(bin), 0) + count
    rest = sum(commit.counts.folded for commit in commits) - sum(busy.values())
    found = dict.fromkeys(part.ledger.here, rest / max(1, len(part.ledger.here)))
    for number, many in busy.items():
        if number in found:
            found[number] += many
    return found


def _times(values: Sequence[float]) -> list[float]:
    """Return each value as a multiple of the mean."""
    mean = sum(values) / len(values)
    return [value / mean if mean else 0.0 for value in values]
