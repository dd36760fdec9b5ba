"""Large shards rewritten in parts: the files that name the tables, or hold the entries, come last.

RocksDB's tables, each made by somebody; the zips that name them are written once all are there.

    bounds   ──▶ the keys at which tables end; null where the shards are not cut
    tables   between some of those keys     ──▶ TablesWritten
    version  the known facts of all tables  ──▶ the zips, written

One shard becomes one, or several become others among which their entries are dealt out. A part
reads the keys between its bounds, of every source, and writes the tables of these keys, of every
target. Tables are those of the plan, and their bytes those that one process gives them: the keys at
which they end follow from the shards' files alone. The sums of the parts of a shard are added up,
and are those of one process.

An HDFS-backed shard has no order by which it could be cut: each process would have to read all of
it. On one machine, some processes read the old shards, others write the new ones.

    deal    some of the old shards ──▶ a file of the machine: their entries by new shard, in order
    gather  all those files ──▶ some of the new shards, written

Each is read once, and each written by one. The bytes are those that one process writes, and the
sums of the old shards are made where they are read. The files are removed once all is written, or
has failed; those of a lost process go with the directory of all.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from stateshift.engines.spark.layout import HDFS, ROCKSDB
from stateshift.engines.spark.rewrite.files import REWRITE_STATE
from stateshift.fleet.cutting import spans
from stateshift.fleet.orders import AskAll, Json, Order
from stateshift.plain import from_plain, to_plain
from stateshift.step import TransformShard
from stateshift.step.evidence import FilesWritten, OperatorFold
from stateshift.step.images import as_evidence, fold_together, sums_in
from stateshift.step.protocol import Evidence, FileEvidence
from stateshift.world import World

if TYPE_CHECKING:
    from stateshift.formats.sorting import Run, SortedPile


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
    if len(step.options["pieces"]) != 1 or step.options["provider"] != ROCKSDB:
        return 1
    (piece,) = step.options["pieces"]
    if len(piece["sources"]) != 1 and not piece.get("partitions"):
        return 1
    tables = min(len(names) for names in piece["tables"])
    return max(1, min(tables, round(step.bytes / part_bytes)))


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


@dataclass(frozen=True, slots=True)
class DealtFile:
    """Dealt entries in a file whose last bytes are their index, and the sums of their shards."""

    file: str
    index_bytes: int
    read: dict[str, OperatorFold]


def can_be_dealt_out(step: TransformShard) -> bool:
    """Whether a step deals out the entries of several HDFS-backed shards among others."""
    if step.transform != REWRITE_STATE or step.options["provider"] != HDFS:
        return False
    if len(step.options["pieces"]) != 1:
        return False
    (piece,) = step.options["pieces"]
    return bool(piece.get("partitions")) and len(piece["sources"]) > 1


def redistribute_shards(step: TransformShard, count: int, ask_all: AskAll) -> Evidence:
    """Distribute a step's entries anew by as many orders of each kind."""
    (piece,) = step.options["pieces"]
    plain = to_plain(step)
    orders: list[Order] = []
    for span in spans(len(piece["sources"]), count):
        orders.append({"step": plain, "span": span})
    answers = ask_all("deal", orders)
    dealt = [from_plain(DealtFile, done) for done, _ in answers]
    try:
        orders = []
        for span in spans(len(piece["targets"]), count):
            orders.append({"step": plain, "span": span, "dealt": to_plain(dealt)})
        written = ask_all("gather", orders)
    finally:
        for each in dealt:
            with contextlib.suppress(OSError):
                os.unlink(each.file)
    files: list[FileEvidence] = []
    for done, _ in written:
        files += from_plain(tuple[FileEvidence, ...], done)
    read = dict(chain.from_iterable(each.read.items() for each in dealt))
    return FilesWritten(tuple(files), read, repeated=any(again for _, again in written))


def deal_here(order: Order, world: World) -> Json:
    """Deal out some shards, in a process."""
    # Loads Arrow.
    from stateshift.engines.spark.rewrite.state import deal_out
    from stateshift.formats.sorting import SortedPiles, index_of, put_aside

    step: TransformShard = from_plain(TransformShard, order["step"])
    (piece,) = step.options["pieces"]
    inputs, places = step.opened(world), slice(*order["span"])
    handle, path = tempfile.mkstemp()
    try:
        with open(handle, "w+b") as file:
            piles = SortedPiles(lambda: file)
            read = deal_out(step.options, inputs, places, piles, world.check_interrupted)
            piles.put_aside()
            index = index_of({target: piles.pile(target) for target in piece["targets"]})
            put_aside(file, file.seek(0, os.SEEK_END), index)
    except BaseException:
        os.unlink(path)
        raise
    return DealtFile(path, len(index), step.sums_of(read))


def gather_here(order: Order, world: World) -> Json:
    """Write some of the new shards, in a process."""
    # Loads Arrow.
    from stateshift.engines.spark.rewrite.state import rewrite_dealt

    step: TransformShard = from_plain(TransformShard, order["step"])
    (piece,) = step.options["pieces"]
    places = slice(*order["span"])
    with ExitStack() as opened:
        dealt = from_plain(tuple[DealtFile, ...], order["dealt"])
        piles = _piles(dealt, piece["targets"][places], opened)
        contents = rewrite_dealt(step.options, step.opened(world), piles)
        return step.written(world, list(zip(step.outputs[places], contents, strict=True)))


def _piles(
    dealt: Sequence[DealtFile], targets: Sequence[int], files: ExitStack
) -> dict[int, SortedPile]:
    """Return the piles that all have dealt out for some targets."""
    # Loads Arrow.
    from stateshift.formats.sorting import SortedPile, open_piles

    runs: dict[int, list[Run]] = {target: [] for target in targets}
    for each in dealt:
        file = files.enter_context(open(each.file, "rb"))  # noqa: SIM115 - the stack closes it
        file.seek(-each.index_bytes, os.SEEK_END)
        piles = open_piles(file.read(), file)
        for target in targets:
            runs[target] += piles[target].runs
    return {target: SortedPile(tuple(own)) for target, own in runs.items()}
