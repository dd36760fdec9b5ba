"""A large shard of RocksDB's rewritten in parts: each makes some of its tables, and the zip that
names them comes last, so that nothing of the shard is seen before all of it is there.

    tables   from one number up to another  ──▶ TablesWritten; null where the shard is not cut
    version  what is known of all tables    ──▶ the zip, written

Tables are those of the plan, and their bytes those that one process gives them: what a part is cut
off by, the keys at which tables end, follows from the shard's files alone. What the parts read of
the shard is added up, and is what one process reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.rewrite.files import REWRITE_STATE
from stateshift.fleet.orders import Json, Order
from stateshift.plain import JsonObject, from_plain, to_plain
from stateshift.step import TransformShard
from stateshift.step.evidence import FilesWritten, OperatorFold
from stateshift.step.images import as_evidence, fold_together, sums_in
from stateshift.step.protocol import Evidence, FileEvidence
from stateshift.world import World

# Sends orders of one kind out at once; returns their answers in the same order, each with whether
# an attempt before may have done some of it.
AskAll = Callable[[str, Sequence[Order]], Sequence[tuple[Json, bool]]]


class KnownTable(NamedTuple):
    """What the zip says of a table; keys in hexadecimal."""

    size: int
    records: int
    smallest: str
    largest: str


@dataclass(frozen=True, slots=True)
class TablesWritten:
    """What came of a part. `internal` are entries of Spark's own column families."""

    files: tuple[FileEvidence, ...]
    tables: tuple[KnownTable, ...]
    internal: int
    read: Mapping[str, OperatorFold]


def count_of_parts(step: TransformShard, part_bytes: int) -> int:
    """Return in how many parts a step may be done: no part has less than one table."""
    if step.transform != REWRITE_STATE or step.bytes < 2 * part_bytes:
        return 1
    return max(1, min(_count_of_tables(step.options), round(step.bytes / part_bytes)))


def _count_of_tables(options: JsonObject) -> int:
    """Return how many tables become of a shard that has a step of its own; 0 of any other."""
    if len(options["pieces"]) != 1 or options["provider"] != ROCKSDB:
        return 0
    (piece,) = options["pieces"]
    if len(piece["sources"]) != 1 or len(piece["targets"]) != 1:
        return 0
    return len(piece["tables"][0])


def rewritten(step: TransformShard, count: int, ask_all: AskAll) -> Evidence | None:
    """Rewrite a shard in so many parts; return None, and write nothing, where it cannot be cut."""
    tables = len(step.outputs) - 1  # the last is the zip
    ends = [tables * number // count for number in range(count + 1)]
    plain = to_plain(step)
    orders = [{"step": plain, "first": first, "end": end} for first, end in pairwise(ends)]
    answers = list(ask_all("tables", orders))
    if any(done is None for done, _ in answers):
        return None
    parts: list[TablesWritten] = [from_plain(TablesWritten, done) for done, _ in answers]
    known = list(chain.from_iterable(part.tables for part in parts))
    internal = sum(part.internal for part in parts)
    order = {"step": plain, "tables": to_plain(known), "internal": internal}
    ((done, again),) = ask_all("version", [order])
    zipped: tuple[FileEvidence, ...] = from_plain(tuple[FileEvidence, ...], done)
    files = tuple(chain.from_iterable(part.files for part in parts))
    repeated = again or any(repeated for _, repeated in answers)
    return FilesWritten((*files, *zipped), _read_together(parts), repeated=repeated)


def _read_together(parts: Sequence[TablesWritten]) -> dict[str, OperatorFold]:
    """Return what shards came to of which every part was read."""
    whole = fold_together(
        {name: sums_in(fold) for name, fold in part.read.items()} for part in parts
    )
    names = [name for name in whole if all(name in part.read for part in parts)]
    return {name: as_evidence(whole[name]) for name in names}


def tables_here(order: Order, world: World) -> Json:
    """Write some tables of a shard, on an executor; None where it cannot be cut."""
    # Loads Arrow.
    from stateshift.engines.spark.rewrite.state import rewrite_tables

    step, first, end = from_plain(TransformShard, order["step"]), order["first"], order["end"]
    part = rewrite_tables(step.options, step.opened(world), first, end)
    if part is None:
        return None
    made = zip(step.outputs[first:end], part.tables, strict=True)
    files = step.written(world, list(made))
    known = []
    for table in part.tables:
        facts = table.known()
        keys = facts.smallest.hex(), facts.largest.hex()
        known.append(KnownTable(facts.size, facts.records, *keys))
    return TablesWritten(
        files=files,
        tables=tuple(known),
        internal=part.internal,
        read=step.sums_of(part.sums.shards_read()),
    )


def version_here(order: Order, world: World) -> Json:
    """Write the zip that names a shard's tables, on an executor."""
    # Loads Arrow.
    from stateshift.engines.spark.rewrite.state import rewrite_zip
    from stateshift.formats.rocksdb.manifest import TableFacts

    step: TransformShard = from_plain(TransformShard, order["step"])
    tables = []
    for plain in order["tables"]:
        known = from_plain(KnownTable, plain)
        keys = bytes.fromhex(known.smallest), bytes.fromhex(known.largest)
        tables.append(TableFacts(known.size, known.records, *keys))
    zipped = rewrite_zip(step.options, step.opened(world), tables, order["internal"])
    return step.written(world, [(step.outputs[-1], zipped)])
