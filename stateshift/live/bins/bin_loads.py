"""What each bin has: its keys, its bytes, how many of them change, and its rows; and which bins are
hot.

    loads(bins)  of each bin, in all operators
    hot(loads)   those that have far more than the others

Rates are of the last commits of each part. A commit counts the rows of those bins alone that had
many; the other bins of the part share the rest of its rows alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stateshift.live.bins.commits import Commit
from stateshift.live.bins.watch import Bins, Part

HOT = 4.0  # times the mean of all bins

ByBin = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Load:
    """What a bin has, in all operators. `times` is how much more that is than the mean: by keys, by
    bytes, by bytes that change, or by rows, whichever is most.
    """

    bin: int
    worker: str
    keys: int
    size: int
    changed_per_second: float
    times: float = 0.0
    rows_per_second: float = 0.0


def loads(bins: Bins) -> tuple[Load, ...]:
    """Return what every bin has, by its number."""
    keys, sizes = [0] * bins.count, [0] * bins.count
    changed, rows = [0.0] * bins.count, [0.0] * bins.count
    for part in bins.parts:
        if bins.count_at(part) != bins.count:
            continue
        for bin, kept in part.ledger.here.items():
            keys[bin] += kept.keys
            sizes[bin] += kept.size
        recent = _recent(bins, part)
        if len(recent) > 1 and recent[-1].at > recent[0].at:
            seconds = recent[-1].at - recent[0].at
            _add(changed, _changed(recent[1:]), seconds)
            _add(rows, _rows(part, recent[1:]), seconds)
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


def _add(sums: list[float], values: ByBin, seconds: float) -> None:
    for bin, value in values.items():
        sums[bin] += value / seconds


def _recent(bins: Bins, part: Part) -> list[Commit]:
    """Return a part's last commits that count bins by the number that there is."""
    return [each for each in part.recent if (each.bins or bins.begun) == bins.count]


def _changed(commits: Sequence[Commit]) -> ByBin:
    """Return how many bytes of each bin commits have changed; a bin that is written as a whole says
    nothing of that.
    """
    found: dict[int, float] = {}
    for commit in commits:
        for each in commit.changed:
            if not each.is_whole:
                found[each.bin] = found.get(each.bin, 0) + each.piece.size
    return found


def _rows(part: Part, commits: Sequence[Commit]) -> ByBin:
    """Return how many rows of each bin of a part commits have folded."""
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
    """Return how many times the mean each is."""
    mean = sum(values) / len(values)
    return [value / mean if mean else 0.0 for value in values]
