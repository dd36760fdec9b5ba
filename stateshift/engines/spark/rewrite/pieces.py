"""Which shards of an image become which others, and what those will be called. Pure.

    ShardPiece      sources    shards of one store, read once
               targets    shards of it, as they will be written

A repartition from N to M moves entries only between shards whose numbers leave the same remainder
by gcd(N, M), so that many groups are independent of each other: each is a piece. Its state may be
of any size, for what does not fit in memory is put aside in a scratch file; but one that is larger
than PIECE_BYTES_MAX is cut into several pieces, each read from the same shards and written to some
of the targets: so much is read again, and can be done beside each other.

A shard's tables are named before it is known what is in them: as many as the files it comes from
promise, TABLE_BYTES each. Instead of three, or five to seven, there are four, or eight: tables are
made beside each other, by whom there is (see `state`), and those who make them have as many each.
Those of shards that entries move to are several where they have LITTLE_TABLE_BYTES each.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import gcd

from stateshift.engines.spark import layout
from stateshift.engines.spark.layout import HDFS
from stateshift.engines.spark.rewrite.request import Request, other_format
from stateshift.engines.spark.rewrite.stores import StoreState, partitions_of
from stateshift.formats.rocksdb.manifest import FIRST_TABLE
from stateshift.formats.spark.names import DEFAULT_STORE
from stateshift.formats.spark.offset_conf import CODEC
from stateshift.survey import ShardFiles

# Bytes of files: decoded, and put aside, it is several times as much.
PIECE_BYTES_MAX = 8 * 1024 * 1024 * 1024

TABLE_BYTES = 64 * 1024 * 1024  # as RocksDB makes them, by default
LITTLE_TABLE_BYTES = 8 * 1024 * 1024
LITTLE_TABLES_MAX = 8

_ID_VERSION = 5  # of a UUID that is made of a name, as `_id` does


@dataclass(frozen=True, slots=True)
class ShardPiece:
    """Shards of a store that become others, or get one more table where it `keeps_tables`."""

    sources: tuple[ShardFiles, ...]
    targets: tuple[ShardFiles, ...]
    partitions: tuple[int, int] | None
    size: int
    keeps_tables: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(shard.files for shard in self.sources))


def pieces_of(
    request: Request, store: StoreState, bytes_max: int = PIECE_BYTES_MAX
) -> Iterator[ShardPiece]:
    """Yield everything of the store that is rewritten."""
    if request.joining is not None:
        for shard in store.shards:
            sources = tuple(request.joining.shards((store.operator, store.store), shard.shard))
            yield _alone(request, store, shard.shard, sources)
    elif moves(request, store):
        yield from _moved(request, store, bytes_max)
    else:
        for shard in store.shards:
            if keeps_tables(request, shard):
                made = _made(request, store, shard.shard, 1)
                kept = [path for path in shard.files if path.endswith(".sst")]
                own_zip, table = made.files
                target = replace(made, files=(own_zip, *kept, table))
                size = request.size((without_tables(shard),))
                yield ShardPiece((shard,), (target,), None, size, keeps_tables=True)
            elif is_rewritten(request, store, shard):
                yield _alone(request, store, shard.shard, (shard,))


def is_rewritten(request: Request, store: StoreState, shard: ShardFiles) -> bool:
    """Whether a shard is rewritten, rather than copied."""
    zips = [path for path in shard.files if path.endswith(".zip")]
    versions = [request.place(path).version for path in zips]
    if request.change.in_place and request.version in versions:
        return False  # its own zip would be overwritten
    change = request.change
    rewrites_all = any(
        (
            change.renumber,
            request.other_provider,
            CODEC in request.conf,
            request.part,
            request.joining,
            change.rewrites_state and other_format(request.image, request.facts),
        )
    )
    if rewrites_all or moves(request, store) or request.evolves(store):
        return True
    if request.change.keep_tables:
        is_compacted = any(path.endswith(".changelog") for path in shard.files)
    else:
        is_compacted = request.change.compact and not is_settled(shard, request.size((shard,)))
    if is_compacted:
        return True
    # Under checkpoint format 2, state files have an id in their names.
    has_ids = any("_" in path.rpartition("/")[2] for path in shard.files)
    return request.change.checkpoint_format is not None and has_ids != request.uuids


def keeps_tables(request: Request, shard: ShardFiles) -> bool:
    """Whether a shard's tables stay, and its changelogs become one more table."""
    endings = {path.rpartition(".")[2] for path in shard.files}
    is_asked = request.change.keep_tables and endings >= {"zip", "changelog"}
    return is_asked and request.size((without_tables(shard),)) <= TABLE_BYTES


def without_tables(shard: ShardFiles) -> ShardFiles:
    """Return a shard as its snapshot and its changes alone."""
    return replace(shard, files=tuple(path for path in shard.files if not path.endswith(".sst")))


def with_new_table(piece: ShardPiece) -> ShardFiles:
    """Return the target of a piece that keeps its tables as the files that are written for it."""
    (source,), (target,) = piece.sources, piece.targets
    return replace(target, files=tuple(path for path in target.files if path not in source.files))


def moves(request: Request, store: StoreState) -> bool:
    """Whether entries change their shard."""
    if store.single:
        return False
    after = request.change.partitions
    if after is not None and after != partitions_of(request.image):
        return True
    return _is_rekeyed(request, store)


def _is_rekeyed(request: Request, store: StoreState) -> bool:
    return any(evolution.rekeyed for evolution in request.evolves(store))


def is_settled(shard: ShardFiles, size: int) -> bool:
    """Whether nothing is left to compact: a snapshot alone, or without a changelog behind them as
    few tables as its bytes need, or those that were written here.
    """
    endings = [path.rpartition(".")[2] for path in shard.files]
    if "zip" not in endings:
        return endings == ["snapshot"]
    if "changelog" in endings:
        return False
    if endings.count("sst") <= table_count(size):
        return True
    # Tables that one rewriting gave it do not overlap, and hold nothing that is deleted. Their
    # names are told from Spark's, which are random, by the kind of id.
    numbers = []
    for path in shard.files:
        if path.endswith(".sst"):
            number, _, unique = path.rpartition("/")[2].removesuffix(".sst").partition("-")
            try:
                is_ours = uuid.UUID(unique).version == _ID_VERSION
            except ValueError:
                is_ours = False
            if not is_ours:
                return False
            numbers.append(number)
    return len(set(numbers)) == len(numbers)


def table_count(size: int) -> int:
    """Return the number of tables for so many bytes: one at least, and of a few a power of two."""
    least = -(-size // TABLE_BYTES) or 1
    if least > LITTLE_TABLES_MAX:
        return least
    return 1 << (least - 1).bit_length()


def count_of_little_tables(size: int) -> int:
    """Return the number of tables for several makers, up to LITTLE_TABLES_MAX."""
    return max(table_count(size), min(LITTLE_TABLES_MAX, size // LITTLE_TABLE_BYTES))


def components(before: int, after: int) -> Iterator[tuple[range, range]]:
    """Yield groups of source and target shards between which entries can move."""
    step = gcd(before, after)
    return ((range(rest, before, step), range(rest, after, step)) for rest in range(step))


def whole(pieces: list[ShardPiece]) -> list[ShardPiece]:
    """Return pieces of the same sources as one: only together do they hold all entries."""
    by_sources: dict[tuple[ShardFiles, ...], ShardPiece] = {}
    for piece in pieces:
        known = by_sources.get(piece.sources)
        if known is not None:
            piece = replace(piece, targets=known.targets + piece.targets)
        by_sources[piece.sources] = piece
    return list(by_sources.values())


def written_files(shard: ShardFiles) -> tuple[str, ...]:
    """Return a shard's files in the order of writing: a zip is last, as it names others."""
    return tuple(sorted(shard.files, key=lambda path: path.endswith(".zip")))


def _alone(
    request: Request, store: StoreState, shard: int, sources: tuple[ShardFiles, ...]
) -> ShardPiece:
    size = request.size(sources)
    return ShardPiece(sources, (_made(request, store, shard, table_count(size)),), None, size)


def _moved(request: Request, store: StoreState, bytes_max: int) -> Iterator[ShardPiece]:
    before = partitions_of(request.image)
    assert before is not None, "the findings have asked"
    after = request.change.partitions or before
    by_number = {shard.shard: shard for shard in store.shards}
    groups: Iterable[tuple[range, range]] = components(before, after)
    if _is_rekeyed(request, store):  # another key's hash says nothing of where it was
        groups = [(range(before), range(after))]
    for source_numbers, target_numbers in groups:
        sources = tuple(by_number[number] for number in source_numbers)
        size = request.size(sources)
        passes = min(len(target_numbers), -(-size // bytes_max) or 1)
        tables = count_of_little_tables(size // len(target_numbers))
        made = partial(_made, request, store, tables=tables)
        for start in range(passes):
            targets = tuple(map(made, target_numbers[start::passes]))
            yield ShardPiece(sources, targets, (before, after), size)


def _made(request: Request, store: StoreState, shard: int, tables: int) -> ShardFiles:
    """Return the shard as it will be written, as so many tables."""
    operator = request.change.operators.get(store.operator, store.operator)
    folder = layout.under(request.image.path, f"state/{operator}/{shard}")
    if store.store != DEFAULT_STORE:
        folder = f"{folder}/{store.store}"
    own = f"{folder}/{request.version_after}"
    if request.provider == HDFS:
        return ShardFiles(store.operator, store.store, shard, (f"{own}.snapshot",))
    files = [f"{own}.zip"]
    if request.uuids:
        files = [f"{own}_{request.uuid_of(store, shard) or _id(request, own)}.zip"]
    for number in range(FIRST_TABLE, FIRST_TABLE + tables):
        files.append(f"{folder}/SSTs/{number:06}-{_id(request, f'{own} {number}')}.sst")
    return ShardFiles(store.operator, store.store, shard, tuple(files))


def _id(request: Request, place: str) -> uuid.UUID:
    """Return an id for a file: the same file gets the same."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{request.image.identity} {request.target} {place}")
