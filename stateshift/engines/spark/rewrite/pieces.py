"""Which shards of an image become which others, and what those will be called. Pure.

    Piece      sources    shards of one store, read once
               targets    shards of it, as they will be written

A repartition from N to M moves entries only between shards whose numbers leave the same remainder
by gcd(N, M), so that many groups are independent of each other: each is a piece. Its state may be
of any size, for what does not fit in memory is put aside in a scratch file; but one that is larger
than PIECE_BYTES_MAX is cut into several pieces, each read from the same shards and written to some
of the targets: so much is read again, and can be done beside each other.

A shard's tables are named before it is known what is in them: as many as the files it comes from
promise, TABLE_BYTES each.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd

from stateshift.engines.spark import layout
from stateshift.engines.spark.entries.settings import CODEC
from stateshift.engines.spark.layout import HDFS
from stateshift.engines.spark.rewrite.request import Asked
from stateshift.engines.spark.rewrite.stores import StoreState, partitions_of
from stateshift.engines.spark.rewrite.zip_format import other_format
from stateshift.formats.rocksdb.manifest import FIRST_TABLE
from stateshift.formats.spark.names import DEFAULT_STORE
from stateshift.survey import ShardFiles

# Of files: decoded, and put aside, it is several times as much.
PIECE_BYTES_MAX = 8 * 1024 * 1024 * 1024

TABLE_BYTES = 64 * 1024 * 1024  # as RocksDB makes them, by default


@dataclass(frozen=True, slots=True)
class Piece:
    """Shards of one store that become other shards of it."""

    sources: tuple[ShardFiles, ...]
    targets: tuple[ShardFiles, ...]
    partitions: tuple[int, int] | None
    size: int

    @property
    def files(self) -> tuple[str, ...]:
        paths: list[str] = []
        for shard in self.sources:
            paths.extend(shard.files)
        return tuple(paths)


def pieces_of(asked: Asked, store: StoreState, bytes_max: int = PIECE_BYTES_MAX) -> Iterator[Piece]:
    """Everything of the store that is written anew."""
    if asked.joining is not None:
        for shard in store.shards:
            sources = tuple(asked.joining.shards((store.operator, store.store), shard.shard))
            yield _alone(asked, store, shard.shard, sources)
    elif moves(asked, store):
        yield from _moved(asked, store, bytes_max)
    else:
        for shard in store.shards:
            if is_rewritten(asked, store, shard):
                yield _alone(asked, store, shard.shard, (shard,))


def is_rewritten(asked: Asked, store: StoreState, shard: ShardFiles) -> bool:
    """Whether a shard is written anew, rather than copied."""
    everything = (
        asked.wishes.renumber
        or asked.other_provider
        or CODEC in asked.conf
        or asked.part
        or asked.joining
    )
    if asked.wishes.in_place and any(
        path.endswith(".zip") and asked.is_of_version(path) for path in shard.files
    ):
        return False  # its own zip would be overwritten
    other = asked.wishes.of_state and other_format(asked.image, asked.facts)
    if everything or moves(asked, store) or asked.evolves(store) or other:
        return True
    uuids = asked.wishes.format_1 and any("_" in path.rpartition("/")[2] for path in shard.files)
    return (asked.wishes.compact and not is_settled(shard, asked.size((shard,)))) or uuids


def moves(asked: Asked, store: StoreState) -> bool:
    """Whether entries change their shard."""
    after = asked.wishes.partitions
    other = after is not None and after != partitions_of(asked.image)
    return (other or _is_rekeyed(asked, store)) and not store.single


def _is_rekeyed(asked: Asked, store: StoreState) -> bool:
    return any(one.rekeyed for one in asked.evolves(store))


def is_settled(shard: ShardFiles, size: int) -> bool:
    """Nothing is left to compact: a snapshot alone, or as few tables as its bytes need without a
    changelog behind them.
    """
    endings = [path.rpartition(".")[2] for path in shard.files]
    if "zip" not in endings:
        return endings == ["snapshot"]
    return "changelog" not in endings and endings.count("sst") <= table_count(size)


def table_count(size: int) -> int:
    return -(-size // TABLE_BYTES) or 1


def components(before: int, after: int) -> Iterator[tuple[range, range]]:
    """Groups of source and target shards between which entries can move."""
    step = gcd(before, after)
    return ((range(rest, before, step), range(rest, after, step)) for rest in range(step))


def whole(pieces: list[Piece]) -> list[Piece]:
    """Pieces that are read from the same shards, as one: only together do they hold what those
    hold.
    """
    found: dict[tuple[ShardFiles, ...], Piece] = {}
    for piece in pieces:
        known = found.get(piece.sources)
        found[piece.sources] = (
            replace(piece, targets=known.targets + piece.targets) if known else piece
        )
    return list(found.values())


def written(shard: ShardFiles) -> tuple[str, ...]:
    """The files of a shard in the order in which they are written: what names others after them."""
    return tuple(sorted(shard.files, key=lambda path: path.endswith(".zip")))


def _alone(asked: Asked, store: StoreState, shard: int, sources: tuple[ShardFiles, ...]) -> Piece:
    size = asked.size(sources)
    return Piece(sources, (_made(asked, store, shard, size),), None, size)


def _moved(asked: Asked, store: StoreState, bytes_max: int) -> Iterator[Piece]:
    before = partitions_of(asked.image)
    assert before is not None, "the findings have asked"
    after = asked.wishes.partitions or before
    by_number = {shard.shard: shard for shard in store.shards}
    everywhere = [(range(before), range(after))]  # another key's hash says nothing of where it was
    for here, there in everywhere if _is_rekeyed(asked, store) else components(before, after):
        sources = tuple(by_number[number] for number in here)
        size = asked.size(sources)
        passes = min(len(there), -(-size // bytes_max) or 1)
        for start in range(passes):
            targets = tuple(
                _made(asked, store, number, size // len(there)) for number in there[start::passes]
            )
            yield Piece(sources, targets, (before, after), size)


def _made(asked: Asked, store: StoreState, shard: int, size: int) -> ShardFiles:
    """The shard as it will be written, from so many bytes."""
    operator = asked.wishes.operators.get(store.operator, store.operator)
    folder = f"state/{operator}/{shard}" + (
        "" if store.store == DEFAULT_STORE else f"/{store.store}"
    )
    folder = layout.under(asked.image.path, folder)
    own = f"{folder}/{asked.version_after}"
    if asked.provider == HDFS:
        names = [f"{own}.snapshot"]
    else:
        numbers = range(FIRST_TABLE, FIRST_TABLE + table_count(size))
        tables = [f"{folder}/SSTs/{n:06}-{_id(asked, f'{own} {n}')}.sst" for n in numbers]
        unique = asked.uuid_of(store, shard) or _id(asked, own)
        names = [f"{own}_{unique}.zip" if asked.uuids else f"{own}.zip", *tables]
    return ShardFiles(store.operator, store.store, shard, tuple(names))


def _id(asked: Asked, place: str) -> uuid.UUID:
    """An id for a file: the same file gets the same."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{asked.image.identity} {asked.target} {place}")
