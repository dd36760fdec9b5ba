"""The sums of the sources of a rewriting, added up while they are read: a comparison then needs to
read the target alone.

The entries are those that the reader gives, before anything is done to them, seen as the comparison
would see them: by the settings that it has for the source. Only a shard that was read to its end
has a sum. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stateshift.engines.spark.rewrite.comparison import compared_as
from stateshift.step.images import add_entries, no_entries
from stateshift.survey import ShardFiles
from stateshift.world import Pairs, ShardRead

if TYPE_CHECKING:
    from stateshift.formats.blocks import Block


@dataclass
class SourceSums:
    """`settings` are the comparison's; where there are none, nothing is added up."""

    settings: Mapping[str, str] | None
    _sums: dict[ShardFiles, dict[str, int]] = field(default_factory=dict)
    _differing: set[ShardFiles] = field(default_factory=set)

    def watched(
        self, source: ShardFiles, entries: Iterable[tuple[str, Block]]
    ) -> Iterator[tuple[str, Block]]:
        """Yield the entries of a source as they are, and add them up."""
        if self.settings is None:
            yield from entries
            return
        view = compared_as(source, self.settings)
        sums = no_entries()
        for store, block in entries:
            add_entries(sums, store, view(store, block))
            yield store, block
        self._keep(source, sums)

    def add_rows(self, source: ShardFiles, rows: Mapping[bytes, bytes]) -> None:
        """Add up a source that was read row by row, and that a comparison sees as it is."""
        if self.settings is not None:
            sums = no_entries()
            pairs: Pairs = list(rows.items())
            add_entries(sums, source.store, pairs)
            self._keep(source, sums)

    def shards_read(self) -> list[ShardRead]:
        """Return the sources that were read to their ends, and were the same each time."""
        if self.settings is None:
            return []
        return [
            ShardRead(source, self.settings, sums)
            for source, sums in self._sums.items()
            if source not in self._differing
        ]

    def _keep(self, source: ShardFiles, sums: dict[str, int]) -> None:
        if self._sums.setdefault(source, sums) != sums:
            self._differing.add(source)
