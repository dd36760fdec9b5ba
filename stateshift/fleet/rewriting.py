"""Large shards of RocksDB's rewritten in parts: each makes some of the tables. The zips that name
them come last: nothing of the shards is seen before all of it is there.

    bounds   ──▶ the keys at which tables end; null where the shards are not cut
    tables   between some of those keys     ──▶ TablesWritten
    version  the known facts of all tables  ──▶ the zips, written

One shard becomes one, or several become others among which their entries are dealt out. A part
reads the keys between its bounds, of every source, and writes the tables of these keys, of every
target.

Tables are those of the plan, and their bytes those that one process gives them: the keys at which
they end follow from the shards' files alone. The sums of the parts of a shard are added up, and are
those of one process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.rewrite.files import REWRITE_STATE
from stateshift.fleet.cutting import spans
from stateshift.fleet.orders import AskAll, Json, Order
from stateshift.plain import JsonObject, from_plain, to_plain
from stateshift.step import TransformShard
from stateshift.step.evidence import FilesWritten, OperatorFold
from stateshift.step.images import as_evidence, fold_together, sums_in
from stateshift.step.protocol import Evidence, FileEvidence
from stateshift.world import World


class KnownTable(NamedTuple):
    """The facts of a table in the zip; keys in hexadecimal."""

    size: int
    records: int
    smallest: str
    largest: str


@dataclass(frozen=True, slots=True)
class TargetWritten:
    """The result of a part for a target. `internal` are entries of Spark's own column families."""

    files: tuple[FileEvidence, ...]
    tables: tuple[KnownTable, ...]
    internal: int


@dataclass(frozen=True, slots=True)
class TablesWritten:
    """The result of a part, for every target in their order."""

    targets: tuple[TargetWritten, ...]
    read: Mapping[str, OperatorFold]


def count_of_parts(step: TransformShard, part_bytes: int) -> int:
    """Return the number of parts of a step: no part has less than one table of a target."""
    if step.transform != REWRITE_STATE or step.bytes < 2 * part_bytes:
        return 1
    return max(1, min(_count_of_tables(step.options), round(step.bytes / part_bytes)))


def _count_of_tables(options: JsonObject) -> int:
    """Return the number of tables of each target, if the step may be done in parts; else 0."""
    if len(options["pieces"]) != 1 or options["provider"] != ROCKSDB:
        return 0
    (piece,) = options["pieces"]
    is_moved = bool(piece.get("partitions"))
    if len(piece["sources"]) != 1 and not is_moved:
        return 0
    return min(len(names) for names in piece["tables"])


def rewrite_shards(step: TransformShard, count: int, ask_all: AskAll) -> Evidence | None:
    """Rewrite shards in as many parts; return None, and write nothing, where they are not cut."""
    plain = to_plain(step)
    ((bounds, _),) = ask_all("bounds", [{"step": plain}])
    if bounds is None:
        return None
    ends = [None, *bounds, None]
    tables = len(ends) - 1
    orders = []
    for first, last in spans(tables, count):
        orders.append({"step": plain, "first": first, "ends": ends[first : last + 1]})
    answers = list(ask_all("tables", orders))
    parts: list[TablesWritten] = [from_plain(TablesWritten, done) for done, _ in answers]
    targets = []
    for of_target in zip(*(part.targets for part in parts), strict=True):
        written = tuple(chain.from_iterable(part.files for part in of_target))
        tables_of_target = tuple(chain.from_iterable(part.tables for part in of_target))
        internal = sum(part.internal for part in of_target)
        targets.append(TargetWritten(written, tables_of_target, internal))
    ((done, again),) = ask_all("version", [{"step": plain, "targets": to_plain(targets)}])
    zips: tuple[FileEvidence, ...] = from_plain(tuple[FileEvidence, ...], done)
    files: list[FileEvidence] = []
    for target, zipped in zip(targets, zips, strict=True):
        files += [*target.files, zipped]
    sums = [{name: sums_in(fold) for name, fold in part.read.items()} for part in parts]
    whole = fold_together(sums)
    # Only of shards of which every part was read.
    names = [name for name in whole if all(name in part.read for part in parts)]
    read = {name: as_evidence(whole[name]) for name in names}
    repeated = again or any(repeated for _, repeated in answers)
    return FilesWritten(tuple(files), read, repeated=repeated)


def bounds_here(order: Order, world: World) -> Json:
    """Return the keys at which tables end, on an executor; None where shards are not cut."""
    # Loads Arrow.
    from stateshift.engines.spark.rewrite.state import bounds_of_tables

    step: TransformShard = from_plain(TransformShard, order["step"])
    bounds = bounds_of_tables(step.options, step.opened(world))
    return None if bounds is None else [key.hex() for key in bounds]


def tables_here(order: Order, world: World) -> Json:
    """Write the tables between some keys, on an executor."""
    # Loads Arrow.
    from stateshift.engines.spark.rewrite.state import rewrite_tables

    step: TransformShard = from_plain(TransformShard, order["step"])
    ends = [None if key is None else bytes.fromhex(key) for key in order["ends"]]
    part = rewrite_tables(step.options, step.opened(world), ends, tempfile.TemporaryFile)
    first, last = order["first"], order["first"] + len(ends) - 1
    targets = []
    for names, (target, tables) in zip(_outputs(step), part.targets.items(), strict=True):
        files = step.written(world, list(zip(names[first:last], tables, strict=True)))
        known = []
        for facts in (table.known() for table in tables):
            keys = facts.smallest.hex(), facts.largest.hex()
            known.append(KnownTable(facts.size, facts.records, *keys))
        targets.append(TargetWritten(files, tuple(known), part.entries.internal_of(target)))
    return TablesWritten(tuple(targets), step.sums_of(part.sums.shards_read()))


def version_here(order: Order, world: World) -> Json:
    """Write the zips that name the tables of every target, on an executor."""
    # Loads Arrow.
    from stateshift.engines.spark.rewrite.state import rewrite_zips
    from stateshift.formats.rocksdb.manifest import TableFacts

    step: TransformShard = from_plain(TransformShard, order["step"])
    versions = []
    for plain in order["targets"]:
        target: TargetWritten = from_plain(TargetWritten, plain)
        tables = []
        for known in target.tables:
            keys = bytes.fromhex(known.smallest), bytes.fromhex(known.largest)
            tables.append(TableFacts(known.size, known.records, *keys))
        versions.append((tables, target.internal))
    zips = rewrite_zips(step.options, step.opened(world), versions)
    paths = [outputs[-1] for outputs in _outputs(step)]
    return step.written(world, list(zip(paths, zips, strict=True)))


def _outputs(step: TransformShard) -> Iterator[tuple[str, ...]]:
    """Yield the files of each target: its tables, and the zip after them."""
    (piece,) = step.options["pieces"]
    start = 0
    for names in piece["tables"]:
        end = start + len(names) + 1
        yield step.outputs[start:end]
        start = end
