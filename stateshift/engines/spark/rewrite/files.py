"""What becomes of an image's state where more is asked for than a copy: which files are written
anew, and how. Pure.

Reshaping
  steps      state, in the transform phase: TransformShard over pieces of it, and files that get
             another path
  replaced   paths of the source that are not copied as they are
  shards     the state as it lies at the target afterwards
  compares   source and target shards whose entries must be the same
  logs       what happens to offsets and commits on their way, by path
  operators  what happens to the operators' metadata, by path
  paths      files that get another path, or none, because their operator or source does
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from stateshift import plain
from stateshift.engines.bundles import PIECES_MAX, bundled
from stateshift.engines.spark import layout
from stateshift.engines.spark.entries.keys import key_rule
from stateshift.engines.spark.entries.settings import CODEC, ROW_CHECKSUM
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.rewrite.comparison import (
    EVOLVE,
    PART,
    PLAIN_ROWS,
    ROWS,
    SESSIONS,
    SUMS,
)
from stateshift.engines.spark.rewrite.logs import (
    Change,
    joined_logs,
    logs_of,
    operators_of,
    paths_of,
    schemas_of,
)
from stateshift.engines.spark.rewrite.pieces import (
    PIECE_BYTES_MAX,
    Piece,
    is_rewritten,
    pieces_of,
    whole,
    written,
)
from stateshift.engines.spark.rewrite.request import Asked
from stateshift.engines.spark.rewrite.session_keys import sessions_of
from stateshift.engines.spark.rewrite.sums import cannot_add
from stateshift.engines.spark.rewrite.wishes import wishes_of
from stateshift.engines.spark.rewrite.zip_format import zip_format, zip_format_guessed
from stateshift.specification import JobSpec
from stateshift.step import CompareImages, TransformShard
from stateshift.survey import Facts, ShardFiles

REWRITE_STATE = "spark.rewrite-state"


@dataclass(frozen=True, slots=True)
class Reshaping:
    steps: tuple[TransformShard, ...] = ()
    replaced: frozenset[str] = frozenset()
    shards: tuple[ShardFiles, ...] = ()
    compares: tuple[CompareImages, ...] = ()
    logs: Mapping[str, Change] = field(default_factory=dict)
    operators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paths: Mapping[str, str | None] = field(default_factory=dict)


def reshaping_of(job: JobSpec, facts: Facts, piece_bytes_max: int = PIECE_BYTES_MAX) -> Reshaping:
    """Of every image, added up; empty where the job asks for no change."""
    wishes = wishes_of(job.transform)
    if not wishes.any:
        return Reshaping()
    images = enumerate(facts.source.images)
    made = [
        _reshaped(Asked(wishes, image, facts, number), piece_bytes_max) for number, image in images
    ]
    logs: dict[str, Change] = {}
    operators: dict[str, Mapping[str, Any]] = {}
    paths: dict[str, str | None] = {}
    for one in made:
        logs.update(one.logs)
        operators.update(one.operators)
        paths.update(one.paths)
    return Reshaping(
        steps=tuple(chain.from_iterable(one.steps for one in made)),
        replaced=frozenset().union(*(one.replaced for one in made)),
        shards=tuple(chain.from_iterable(one.shards for one in made)),
        compares=tuple(chain.from_iterable(one.compares for one in made)),
        logs=logs,
        operators=operators,
        paths=paths,
    )


def _reshaped(asked: Asked, piece_bytes_max: int) -> Reshaping:
    pieces: list[Piece] = []
    for store in asked.stores:
        pieces += pieces_of(asked, store, piece_bytes_max)
    both: dict[bool, list[ShardFiles]] = {True: [], False: []}
    for store in asked.stores:
        for shard in store.shards:
            both[is_rewritten(asked, store, shard)].append(shard)
    taken = frozenset(chain.from_iterable(shard.files for shard in both[True]))
    same = [
        Piece((shard,), (_renamed(asked, shard),), None, asked.size((shard,)))
        for shard in both[False]
    ]
    all_shards: list[ShardFiles] = []
    for piece in (*pieces, *same):
        all_shards.extend(piece.targets)
    shards = tuple(all_shards)
    schemas = list(schemas_of(asked))
    taken |= {step.inputs[0].path for step in schemas}
    paths = {path: new for path, new in paths_of(asked).items() if path not in taken}
    steps = [
        _step(asked, number, bundle) for number, bundle in enumerate(bundled(pieces, PIECES_MAX))
    ]
    return Reshaping(
        steps=(*steps, *joined_logs(asked), *schemas),
        replaced=taken | frozenset(paths),
        shards=shards,
        compares=tuple(_compares(asked, pieces, same)),
        logs=dict(logs_of(asked, shards)),
        operators=dict(operators_of(asked)),
        paths=paths,
    )


def _renamed(asked: Asked, shard: ShardFiles) -> ShardFiles:
    """The same shard under its new path. It keeps its operator's old id, by which it is
    compared.
    """
    return replace(
        shard, files=tuple(new for path in shard.files if (new := asked.path(path)) is not None)
    )


def _step(asked: Asked, number: int, pieces: list[Piece]) -> TransformShard:
    moved = {piece.sources[0].operator for piece in pieces if piece.partitions}
    rules = {}
    for store in asked.stores:
        for name, rule in (store.rules or {}).items():
            if store.operator in moved:
                rules[f"{store.operator}/{name}"] = rule
    settings = asked.image.settings
    options = {
        "pieces": [_plain(piece) for piece in pieces],
        "settings": asked.reading(),
        "provider": asked.provider,
        "codec": asked.conf.get(CODEC, settings.get(CODEC, "lz4")),
        "checksums": settings.get(ROW_CHECKSUM) == "true",
        **({"rules": plain.to_plain(rules)} if moved else {}),
        **({"part": asked.part} if asked.part else {}),
        **_evolution(asked),
        **({"sessions": sessions} if (sessions := _sessions(asked)) else {}),
        **({"sums": _sums(asked)} if asked.joining else {}),
        "format": zip_format(asked),
        "format_without_zip": zip_format_guessed(asked),
    }
    step = []
    for piece in pieces:
        for path in piece.files:
            step.append(asked.info(path))
    return TransformShard(
        name=f"transform/state-{asked.number}-{number}",
        transform=REWRITE_STATE,
        options=options,
        source=asked.above,
        inputs=tuple(step),
        target=asked.target,
        outputs=tuple(
            path for piece in pieces for shard in piece.targets for path in written(shard)
        ),
    )


def _plain(piece: Piece) -> dict[str, Any]:
    first = piece.sources[0]
    tables = [
        [path.rpartition("/")[2] for path in shard.files if path.endswith(".sst")]
        for shard in piece.targets
    ]
    return {
        "operator": first.operator,
        "store": first.store,
        "sources": [[shard.shard, list(shard.files)] for shard in piece.sources],
        "targets": [shard.shard for shard in piece.targets],
        **({"tables": tables} if any(tables) else {}),
        **({"partitions": list(piece.partitions)} if piece.partitions else {}),
    }


def _as_one(sources: tuple[ShardFiles, ...]) -> ShardFiles:
    paths: list[str] = []
    for source in sources:
        paths.extend(source.files)
    return replace(sources[0], files=tuple(paths))


def _evolution(asked: Asked) -> dict[str, Any]:
    """Rows that become others, and where their keys then belong."""
    if not asked.evolved:
        return {}
    schemas = spark_image(asked.image).schemas
    framed = asked.provider == ROCKSDB
    names = {operator.id: operator.name for operator in asked.image.operators}
    after = {
        name: key_rule(
            names.get(name.partition("/")[0]), name, {**schemas[name], "key": one.new_key}, framed
        )
        for name, one in asked.evolved.items()
        if one.rekeyed
    }
    return {"evolve": plain.to_plain(asked.evolved), "rules_after": plain.to_plain(after)}


def _sessions(asked: Asked) -> dict[str, str]:
    return sessions_of(asked.stores) if asked.other_provider else {}


def _sums(asked: Asked) -> dict[str, Any]:
    """How values of one key are added, for the stores that have the columns to add."""
    columns = list((asked.wishes.merge or {}).get("sum", ()))
    schemas = spark_image(asked.image).schemas
    sums = {}
    for store, schema in schemas.items():
        if columns and cannot_add(schema, columns) is None:
            sums[store] = {
                "schema": schema["value"],
                "columns": columns,
                "framed": asked.provider == ROCKSDB,
            }
    return sums


def _compares(asked: Asked, pieces: list[Piece], same: list[Piece]) -> Iterator[CompareImages]:
    settings = asked.reading() | ({ROWS: PLAIN_ROWS} if asked.other_provider else {})
    if sessions := _sessions(asked):
        settings |= {SESSIONS: json.dumps(sessions, sort_keys=True)}
    part = {PART: json.dumps(asked.part, sort_keys=True)} if asked.part else {}
    evolved = (
        {EVOLVE: json.dumps(_evolution(asked)["evolve"], sort_keys=True)} if asked.evolved else {}
    )
    compared = [*whole(pieces), *(piece for piece in same if piece.sources != piece.targets)]
    sums: dict[str, str] = {}
    if asked.joining and (asked.wishes.merge or {}).get("sum"):
        # What was added is in no source alone.
        sums = {
            SUMS: json.dumps(
                {"sums": _sums(asked), "places": list(asked.joining.places)}, sort_keys=True
            )
        }
        compared = [replace(piece, sources=(_as_one(piece.sources),)) for piece in compared]
    seen = {**settings, **part, **evolved, **sums}
    for number, bundle in enumerate(bundled(compared)):
        shards: list[ShardFiles] = []
        for piece in bundle:
            shards.extend(piece.sources)
        yield CompareImages(
            f"compare/state-{asked.number}-{number}",
            layout.ENGINE,
            asked.above,
            asked.target,
            tuple(shards),
            tuple(chain.from_iterable(piece.targets for piece in bundle)),
            (),
            seen,
            sum(piece.size for piece in bundle),
            None if seen == settings else settings,
        )
