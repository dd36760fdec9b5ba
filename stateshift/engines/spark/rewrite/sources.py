"""The sources of a rewriting, checked and added up while they are read, and cut into tables. Pure.

    RowChecks   the entries as they are, until one of them is wrong, where there are rules for them
                (see `stores`; who plans loads those alone, and nothing that reads state)
    SourceSums  what they come to: a comparison then needs to read the target alone
    Straight    the entries of one that is read in the order of its keys, given to the target's
                tables as they come: none of them is held, and nothing is sorted

Sums are of the entries before anything is done to them, seen as the comparison would see them: by
the settings that it has for the source. Only a shard that was read to its end has a sum.

    tables of a target   | up to bounds[0] | up to bounds[1] | ... | all that is left |

Tables are asked for one after the other, and are cut from one pass over the entries. Whoever asks
for one again, or for a later one, has the entries before it read once more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from stateshift import plain
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.row_check import RowCheck
from stateshift.engines.spark.entries.store_views import Views
from stateshift.engines.spark.rewrite.comparison import compared_as
from stateshift.engines.spark.rewrite.stores import RowRule, of_stores
from stateshift.errors import FormatError
from stateshift.formats.blocks import Binary, RowBlock, count_upto, part
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
    ) -> Iterator[tuple[str, RowBlock]]:
        own = {}
        for store, rule in of_stores(self.rules, self.operator).items():
            own[store] = plain.from_plain(RowRule, rule)
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


def _refuse(rows: RowCheck) -> None:
    """Refuse a source from which no job could restart."""
    if not rows.are_refused:
        return
    first = next(finding for finding in rows.findings() if finding.level == "refuse")
    tells = "`stateshift verify --deep` tells of all that is wrong with the source"
    back = "take this run back: `stateshift rollback WORKDIR`"
    raise FormatError(first.message, hint=f"{tells}; {back}")


@dataclass
class SourceSums:
    """`settings` are the comparison's; where there are none, nothing is added up."""

    settings: Mapping[str, str] | None
    _sums: dict[ShardFiles, dict[str, int]] = field(default_factory=dict)
    _differing: set[ShardFiles] = field(default_factory=set)

    def watched(
        self, source: ShardFiles, entries: Iterable[tuple[str, RowBlock]]
    ) -> Iterator[tuple[str, RowBlock]]:
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


# Yields blocks in order, each with how many of its entries are Spark's own.
Entries = Callable[[], Iterator[tuple[RowBlock, int]]]

_NOWHERE = -1


class Straight:
    """The entries of one source and target; `bounds` are the last keys of tables but the last."""

    def __init__(self, entries: Entries, bounds: Sequence[bytes]) -> None:
        self._entries = entries
        self._bounds: list[bytes | None] = [*bounds, None]
        self._coming: Iterator[tuple[RowBlock, int]] | None = None
        self._rest: RowBlock | None = None
        self._next = 0
        self._internal = 0
        self._read_whole = False

    def blocks(self, target: int, table: int = 0, tables: int = 1) -> Iterator[RowBlock]:
        assert tables == len(self._bounds), "as many as were planned"
        if self._coming is None or table != self._next:
            self._begin()
            for bound in self._bounds[:table]:
                deque(self._upto(bound), maxlen=0)
        self._next = _NOWHERE  # until all of this one was taken
        yield from self._upto(self._bounds[table])
        self._next = table + 1

    def internal_of(self, target: int) -> int:
        """Return the number of the target's entries in Spark's own column families."""
        if not self._read_whole:
            self._begin()
            deque(self._upto(None), maxlen=0)
            self._next = len(self._bounds)
        return self._internal

    def _begin(self) -> None:
        self._coming, self._rest = self._entries(), None
        self._internal, self._read_whole = 0, False

    def _upto(self, bound: bytes | None) -> Iterator[RowBlock]:
        """Yield everything up to a key, this one included."""
        while (block := self._taken()) is not None:
            count = len(block) if bound is None else count_upto(block.keys, bound)
            is_cut = count < len(block)
            if is_cut:
                self._rest = part(block, count, len(block))
            if count:
                yield part(block, 0, count)
            if is_cut:
                return

    def _taken(self) -> RowBlock | None:
        """Return the rest of a block, or else the next block; None behind the last."""
        block, self._rest = self._rest, None
        if block is not None:
            return block
        assert self._coming is not None, "begun before"
        for block, internal in self._coming:
            self._internal += internal
            return block
        self._read_whole = True
        return None
