"""How late the rows of a group's bins are final, by what its workers have committed.

Every 250 ms of the clock is a slot: the events that are due until its end. A bin has done a slot
once all of its events before that are folded, by whichever worker has it. Its latency is how much
later that is committed. So the latency of a bin is what a row of it has at most.

    steps(commits)                          when which bin has come how far
    slots(steps, market, began, ...)        by slot, the latencies of all bins
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from events import BASE, SECOND, Market

from stateshift.live.bins.commits import Commit, Ledger

SLOT_SECONDS = 0.25

Steps = Mapping[int, Sequence[tuple[float, int]]]  # by bin: when it had come how far, in order


@dataclass
class Progress:
    """How far every bin has come, by commits that are handed over in the order of their times."""

    ledgers: dict[str, Ledger]
    done: dict[int, int] = field(default_factory=dict)
    steps: dict[int, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))

    def take(self, worker: str, commit: Commit) -> None:
        """Note how far the bins of a worker are after a commit."""
        ledger = self.ledgers[worker] = self.ledgers[worker].plus(commit)
        for given in commit.given:
            self._has_done(given.bin, given.time, commit.at)
        if commit.frontier is None:
            return
        at = math.floor(commit.frontier[0])
        awaited = {held.bin for held in ledger.held.values() if held.since is not None}
        for bin in ledger.here.keys() - awaited:
            self._has_done(bin, at, commit.at)

    def _has_done(self, bin: int, time: int, at: float) -> None:
        if time > self.done.get(bin, -1):
            self.done[bin] = time
            self.steps[bin].append((at, time))


def steps(first: Mapping[str, Ledger], commits: Iterable[tuple[str, Commit]]) -> Steps:
    """Return when each bin has come how far, from the commits of all workers."""
    progress = Progress(dict(first))
    for worker, commit in sorted(commits, key=lambda each: each[1].at):
        progress.take(worker, commit)
    return progress.steps


def slots(
    steps: Steps, market: Market, began: float, since: float, until: float
) -> dict[float, list[float]]:
    """Return the latencies of all bins, by the end of each slot from one time to another."""
    ends: list[float] = []
    while since + SLOT_SECONDS * (len(ends) + 1) <= until:
        ends.append(since + SLOT_SECONDS * (len(ends) + 1))
    found: dict[float, list[float]] = {end: [] for end in ends}
    for of_bin in steps.values():
        number = 0
        for end in ends:
            due = BASE + int((end - began) * market.rate) * market.dilation * SECOND // market.rate
            while number < len(of_bin) and of_bin[number][1] < due:
                number += 1
            if number < len(of_bin):
                found[end].append(max(0.0, of_bin[number][0] - end))
    return found
