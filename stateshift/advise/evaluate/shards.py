"""How evenly the bytes of a query's state lie over its partitions. Pure.

A partition is the work of one task: while one of them has most of the state, more cores wait for
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateShards:
    """The bytes of the operator with the largest state, and of its largest partition."""

    operator: str
    partitions: int
    bytes: int
    largest: int
    largest_bytes: int

    @property
    def skew(self) -> float:
        """Return how many times the mean the largest partition has."""
        return self.largest_bytes * self.partitions / self.bytes


def shards_of(files: Iterable[tuple[str, int, int]]) -> StateShards | None:
    """Return how the state is spread, by the operator, the partition and the bytes of each of its
    files; None of a query without state.
    """
    by_operator: dict[str, dict[int, int]] = {}
    for operator, partition, size in files:
        sizes = by_operator.setdefault(operator, {})
        sizes[partition] = sizes.get(partition, 0) + size
    if not by_operator:
        return None
    operator, sizes = max(by_operator.items(), key=_bytes_of)
    largest = max(sizes, key=lambda partition: sizes[partition])
    total = sum(sizes.values())
    return StateShards(operator, len(sizes), total, largest, sizes[largest]) if total else None


def _bytes_of(operator: tuple[str, dict[int, int]]) -> int:
    return sum(operator[1].values())
