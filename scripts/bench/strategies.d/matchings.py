"""What an edge colouring is held against: a maximum matching is a step, and taken out, until
nothing is left.

Each round goes by which pairs of workers still have a move between them, as Megaphone's plan writer
does, and not by how many: that is why it can end up with more steps than the busiest worker has
moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

Pair = tuple[int, int]


def matched_again_and_again(pairs: Sequence[Pair]) -> int:
    """How many rounds it takes."""
    left, rounds = Counter(pairs), 0
    while left:
        left -= Counter(_maximum(_targets(left)))
        rounds += 1
    return rounds


def _targets(pairs: Mapping[Pair, int]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for source, target in pairs:
        found.setdefault(source, set()).add(target)
    return found


def _maximum(targets: Mapping[int, Set[int]]) -> list[Pair]:
    """A maximum matching, by augmenting paths."""
    taken: dict[int, int] = {}

    def place(source: int, seen: set[int]) -> bool:
        for target in sorted(targets[source] - seen):
            seen.add(target)
            if target not in taken or place(taken[target], seen):
                taken[target] = source
                return True
        return False

    for source in sorted(targets):
        place(source, set())
    return [(source, target) for target, source in taken.items()]
