"""What earlier runs did, and whether it brought what it promised.

    counts   in how many runs in a row a cluster was too full
    counted  when that was last counted
    moves    what was moved, and the load that its old cluster was to have afterwards
    failed   moves that did not bring it: not repeated for a day (Dhalion)

One value, kept between runs as JSON beside the samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stateshift.advise.rebalance.policy import Policy

# Of what was promised, a move must have brought this part.
BROUGHT_MIN = 0.5


@dataclass(frozen=True, slots=True)
class Moved:
    """A move of an earlier run, and the load of its old cluster: before it, and as promised."""

    jobs: tuple[str, ...]
    source: str
    target: str
    at: float
    load_before: float
    load_promised: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What is kept from run to run."""

    counts: Mapping[str, int] = field(default_factory=dict)
    moves: tuple[Moved, ...] = ()
    failed: tuple[Moved, ...] = ()
    counted: Mapping[str, float] = field(default_factory=dict)

    def forbids(self, jobs: tuple[str, ...], target: str) -> Moved | None:
        """Return the failed move that this one would repeat."""
        for moved in self.failed:
            if moved.target == target and set(moved.jobs) & set(jobs):
                return moved
        return None


def judged(memory: Memory, at: float, loads: Mapping[str, float], policy: Policy) -> Memory:
    """Return the memory with earlier moves judged by today's loads, and old ones forgotten.

    A move is judged once, by the first run after it. One that is as long ahead was made by a clock
    that was set back since: it is forgotten, too.
    """
    failed = [moved for moved in memory.failed if abs(at - moved.at) < policy.remembered_seconds]
    for moved in memory.moves:
        brought = moved.load_before - loads.get(moved.source, moved.load_promised)
        promised = moved.load_before - moved.load_promised
        if brought < BROUGHT_MIN * promised:
            failed.append(moved)
    return replace(memory, moves=(), failed=tuple(failed))
