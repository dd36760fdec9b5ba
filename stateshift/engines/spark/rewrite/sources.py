"""The sources of a rewriting, checked and added up while they are read. Pure.

    RowChecks   the entries as they are, until one of them is wrong, where there are rules for them
                (see `stores`; who plans loads those alone, and nothing that reads state)
    SourceSums  what they come to: a comparison then needs to read the target alone

Sums are of the entries before anything is done to them, seen as the comparison would see them: by
the settings that it has for the source. Only a shard that was read to its end has a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from stateshift import plain
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.row_check import RowCheck
from stateshift.engines.spark.entries.store_views import Views
from stateshift.engines.spark.rewrite.comparison import compared_as
from stateshift.engines.spark.rewrite.stores import RowRule, of_stores
from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, Block
from stateshift.plain import JsonObject
from stateshift.step.images import add_entries, no_entries
from stateshift.survey import ShardFiles
from stateshift.world import Pairs, ReadFrom, ShardRead


@dataclass(frozen=True)
class RowChecks:
    """The reader of the sources of one operator's piece, which checks rows by their rules."""

    rules: Mapping[str, JsonObject]
    operator: str
    read: ReadFrom

    def fold_shard(
        self, source: ShardFiles, settings: Mapping[str, str]
    ) -> Iterator[tuple[str, Block]]:
        """Yield the entries of a source."""
        own = self._rules
        if not own:
            yield from fold_shard(self.read, source, settings)
            return
        views = Views({(self.operator, store): rule.view(store) for store, rule in own.items()})
        first = next(iter(own.values()))
        rows = RowCheck(self.read, source, first.strict, first.shards)

        def deleted(store: str, keys: Binary) -> None:
            rows.check_deleted(views.of(self.operator, store), keys)

        for store, block in fold_shard(self.read, source, settings, deleted=deleted):
            rows.sound(views.of(self.operator, store), block)
            _refuse(rows)
            yield store, block
        _refuse(rows)

    @cached_property
    def _rules(self) -> dict[str, RowRule]:
        plain_rules = of_stores(self.rules, self.operator).items()
        return {store: plain.from_plain(RowRule, rule) for store, rule in plain_rules}


def _refuse(rows: RowCheck) -> None:
    """Refuse a source from which no job could restart."""
    if not rows.are_refused:
        return
    first = next(finding for finding in rows.findings() if finding.level == "refuse")
    raise FormatError(
        first.message,
        hint="`stateshift verify --deep` tells of all that is wrong with the source; take this run "
        "back: `stateshift rollback WORKDIR`",
    )


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
