"""Latencies of records, by what was due when and what came out when.

    Latencies    of each record when it was due, and how late its row came; in the order of due times
    timeline     the worst of each 250 ms
    summary      p50, p99, the maximum, and the points of the CCDF
    over_rounds  one measurement for several of one case

Nothing here reads a clock or starts anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from open_loop import Rates

BUCKET_SECONDS = 0.25
# Before a move, looked at for as long as the longest move takes: the worst of less would be lower.
BEFORE_SECONDS = 30.0
# of the CCDF: which share of the records is later
SHARES = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0001, 0.0)
# of the histogram: a bar for each, four to a factor of ten
BARS = tuple(round(10 ** (power / 4), 4) for power in range(-8, 9))


@dataclass(frozen=True)
class Latencies:
    """When records were due, and how many seconds later their rows came."""

    due: Any  # arrays of numpy
    seconds: Any

    def between(self, begin: float, end: float) -> Latencies:
        """Return those of records that were due in a time."""
        chosen = (self.due >= begin) & (self.due < end)
        return Latencies(self.due[chosen], self.seconds[chosen])

    def __len__(self) -> int:
        return len(self.due)


def latencies(deliveries: Iterable[Any], rates: Rates) -> Latencies:
    """Return the latencies of all rows. A delivery is an array: when it came, in microseconds, then
    the numbers of its rows.
    """
    numbers, at = [np.empty(0, np.int64)], [np.empty(0)]
    for content in deliveries:
        numbers.append(content[1:])
        at.append(np.full(len(content) - 1, content[0] / 1e6))
    number, came = np.concatenate(numbers), np.concatenate(at)
    order = np.argsort(number, kind="stable")
    due = rates.dues(number[order])
    return Latencies(due, came[order] - due)


def summary(found: Latencies) -> dict[str, Any]:
    """Return the percentiles in seconds, and what the CCDF and the histogram are drawn by."""
    if not len(found):
        return {"rows": 0}
    seconds = found.seconds
    quantiles = np.quantile(seconds, [1 - share for share in SHARES])
    counts, _ = np.histogram(np.clip(seconds, BARS[0], BARS[-1]), bins=BARS)
    return {
        "rows": len(found),
        "p50": rounded(np.quantile(seconds, 0.5)),
        "p90": rounded(np.quantile(seconds, 0.9)),
        "p99": rounded(np.quantile(seconds, 0.99)),
        "p99.9": rounded(np.quantile(seconds, 0.999)),
        "max": rounded(seconds.max()),
        "ccdf": [rounded(one) for one in quantiles],
        "histogram": counts.tolist(),
    }


def timeline(found: Latencies, since: float) -> list[list[float]]:
    """Return the worst latency of each 250 ms, by when they begin, from a time on."""
    buckets = np.floor((found.due - since) / BUCKET_SECONDS).astype(int)
    worst: dict[int, float] = {}
    for bucket, seconds in zip(buckets.tolist(), found.seconds.tolist(), strict=True):
        worst[bucket] = max(seconds, worst.get(bucket, 0.0))
    return [[bucket * BUCKET_SECONDS, rounded(worst[bucket])] for bucket in sorted(worst)]


def rounded(seconds: float) -> float:
    return round(float(seconds), 4)


# ------------------------------------------------------------------------------------ of a move

# An excess below this cannot be told from none: batches are that long, one time and another.
EXCESS_SECONDS_MIN = 0.1


def excess(move: Mapping[str, Any]) -> float:
    """Return what a move has added to the worst latency of the time before it."""
    if "excess" in move:
        return float(move["excess"])
    return float(move["during"]["max"] - move["before"]["max"])


def over_rounds(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one measurement for several of one case: the medians of what they have measured, and
    the rest of the first one.
    """
    one = _median_of(rounds)
    one["rounds"] = len(rounds)
    if "before" in one:
        one["excess"] = statistics.median(map(excess, rounds))
        one["exactly_once"] = all(each["exactly_once"] for each in rounds)
    return one


def _median_of(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in rounds[0].items():
        values = [each[name] for each in rounds]
        if isinstance(value, Mapping):
            found[name] = _median_of(values)
        elif isinstance(value, float):
            found[name] = statistics.median(values)
        else:
            found[name] = value
    return found


def counted_excess(move: Mapping[str, Any]) -> float:
    return max(excess(move), EXCESS_SECONDS_MIN)


def times_lower(once: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return how many times the excess of one move is that of another."""
    return counted_excess(once) / counted_excess(other)
