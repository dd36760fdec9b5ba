"""The files of an image's state that are rewritten where more is asked for than a copy. Pure.

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from stateshift import plain
from stateshift.engines.bundles import DECODED_BYTES_MAX, PIECES_MAX, bundle_items
from stateshift.engines.spark import layout
from stateshift.engines.spark.entries.keys import is_session, key_rule
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.layout import ROCKSDB
from stateshift.engines.spark.rewrite import comparison
from stateshift.engines.spark.rewrite.logs import (
    LogChange,
    first_offsets_of,
    keep_files,
    logs_of,
    operators_of,
    paths_of,
    schemas_of,
)
from stateshift.engines.spark.rewrite.move import Move
from stateshift.engines.spark.rewrite.pieces import (
    PIECE_BYTES_MAX,
    ShardPiece,
    is_rewritten,
    keeps_tables,
    pieces_of,
    whole,
    with_new_table,
    without_tables,
    written_files,
)
from stateshift.engines.spark.rewrite.request import Request, seems_4_0, zip_format
from stateshift.engines.spark.rewrite.stores import RowRule, of_stores
from stateshift.engines.spark.rewrite.sums import cannot_add
from stateshift.formats.spark.offset_conf import codec_in, has_row_checksums
from stateshift.formats.spark.types import decode_struct
from stateshift.plain import JsonObject
from stateshift.step import ROWS_CHECKED, CompareImages, TransformShard
from stateshift.survey import ShardFiles

REWRITE_STATE = "spark.rewrite-state"
KEEP_TABLES = "spark.keep-tables"


@dataclass(frozen=True, slots=True)
class Reshaping:
    """The files that a job's changes write, compare, leave out and put under other paths."""

    steps: tuple[TransformShard, ...] = ()
    replaced: frozenset[str] = frozenset()
    shards: tuple[ShardFiles, ...] = ()
    compares: tuple[CompareImages, ...] = ()
    logs: Mapping[str, LogChange] = field(default_factory=dict)
    operators: Mapping[str, JsonObject] = field(default_factory=dict)
    paths: Mapping[str, str | None] = field(default_factory=dict)

    def __add__(self, other: Reshaping) -> Reshaping:
        return Reshaping(
            steps=self.steps + other.steps,
            replaced=self.replaced | other.replaced,
            shards=self.shards + other.shards,
            compares=self.compares + other.compares,
            logs={**self.logs, **other.logs},
            operators={**self.operators, **other.operators},
            paths={**self.paths, **other.paths},
        )


def reshaping_of(move: Move, piece_bytes_max: int = PIECE_BYTES_MAX) -> Reshaping:
    """Return the reshaping of all images together; empty where the job asks for no change."""
    whole = Reshaping()
    if not move.change.is_more_than_a_copy:
        return whole
    images = move.facts.source.images
    for number, image in enumerate(images):
        whole += _reshaped(Request(move, image, number), piece_bytes_max)
        planned = move.planned_image(image)
        if planned is not None:
            request = Request(move, planned, number + len(images))
            reshaped = _reshaped(request, piece_bytes_max)
            of_state = tuple(step for step in reshaped.steps if step.transform == REWRITE_STATE)
            own = []
            for path in request.image.needed:
                # The checksum of a file that is replaced is of no use.
                if path.removesuffix(".crc") not in reshaped.replaced:
                    own.append(path)
            whole += Reshaping(
                steps=of_state,
                replaced=reshaped.replaced,
                compares=reshaped.compares,
                paths={path: request.path(path) for path in own},
            )
    return whole


def _reshaped(request: Request, piece_bytes_max: int) -> Reshaping:
    pieces: list[ShardPiece] = []
    for store in request.stores:
        pieces += pieces_of(request, store, piece_bytes_max)
    taken, same = _taken_and_same(request)
    shards = _targets([*pieces, *same])
    kept = [piece for piece in pieces if piece.keeps_tables]
    anew = [piece for piece in pieces if not piece.keeps_tables]
    schemas = list(schemas_of(request))
    first_offsets = list(first_offsets_of(request))
    taken |= {step.inputs[0].path for step in (*schemas, *first_offsets)}
    paths = {path: new for path, new in paths_of(request).items() if path not in taken}
    logs = dict(request.joining.logs()) if request.joining else {}
    files = map(request.info, sorted(logs))
    return Reshaping(
        steps=(
            *_steps(request, anew),
            *_steps_of_kept(request, kept),
            *keep_files("joined", files, logs, (request.above, request.target)),
            *schemas,
            *first_offsets,
        ),
        replaced=taken | frozenset(paths),
        shards=shards,
        compares=(*_compares(request, anew, same), *_compares_of_kept(request, kept)),
        logs=dict(logs_of(request, shards)),
        operators=dict(operators_of(request)),
        paths=paths,
    )


def _targets(pieces: Iterable[ShardPiece]) -> tuple[ShardFiles, ...]:
    return tuple(chain.from_iterable(piece.targets for piece in pieces))


def _steps(request: Request, pieces: list[ShardPiece]) -> Iterator[TransformShard]:
    """Yield the steps that rewrite pieces. A source that is read once is compared as read."""
    job = request.job_move.job
    compared: dict[str, object] = {}
    source_settings = _target_view(request) | _source_view(request)
    if job.verify not in ("none", "twice") and comparison.SUMS not in source_settings:
        compared["compared"] = source_settings
    checks = job.mode == "fork" and job.verify_source == "deep"
    rules = request.row_rules if checks else {}
    for number, bundle in enumerate(bundle_items(pieces, PIECES_MAX, DECODED_BYTES_MAX)):
        inputs = chain.from_iterable(piece.files for piece in bundle)
        step = TransformShard(
            name=f"transform/state-{request.number}-{number}",
            transform=REWRITE_STATE,
            options=_options(request, bundle),
            source=request.above,
            inputs=tuple(map(request.info, inputs)),
            target=request.target,
            outputs=tuple(chain.from_iterable(map(written_files, _targets(bundle)))),
        )
        checked = _rows(rules, bundle)
        yield replace(step, options={**step.options, **compared, **checked})


def _rows(rules: Mapping[str, RowRule], pieces: list[ShardPiece]) -> dict[str, object]:
    """Return the rules by which the rows of some pieces are checked, if all of them are."""
    own: dict[str, RowRule] = {}
    for operator in {piece.sources[0].operator for piece in pieces}:
        of_operator = of_stores(rules, operator)
        if not of_operator:
            return {}
        own |= {f"{operator}/{store}": rule for store, rule in of_operator.items()}
    return {ROWS_CHECKED: plain.to_plain(own)}


def _taken_and_same(request: Request) -> tuple[frozenset[str], list[ShardPiece]]:
    """Return the files of rewritten shards, without kept tables; and the other shards."""
    taken: set[str] = set()
    same = []
    for store in request.stores:
        for shard in store.shards:
            if keeps_tables(request, shard):
                taken.update(without_tables(shard).files)
            elif is_rewritten(request, store, shard):
                taken.update(shard.files)
            else:
                # The shard keeps its operator's old id, by which it is compared.
                renamed = replace(shard, files=tuple(filter(None, map(request.path, shard.files))))
                same.append(ShardPiece((shard,), (renamed,), None, request.size((shard,))))
    return frozenset(taken), same


def _steps_of_kept(request: Request, kept: list[ShardPiece]) -> Iterator[TransformShard]:
    """Yield the steps that write a table more beside the kept ones: see `kept_tables`."""
    for number, bundle in enumerate(bundle_items(kept, PIECES_MAX, DECODED_BYTES_MAX)):
        inputs = chain.from_iterable(piece.files for piece in bundle)
        added = list(map(with_new_table, bundle))
        shards: list[dict[str, object]] = []
        for piece, written in zip(bundle, added, strict=True):
            (shard,), (table,) = piece.sources, _tables(written)
            shards.append({**plain.to_plain(shard), "table": table})
        yield TransformShard(
            name=f"transform/kept-{request.number}-{number}",
            transform=KEEP_TABLES,
            options={"shards": shards, "settings": request.reading()},
            source=request.above,
            inputs=tuple(map(request.info, inputs)),
            target=request.target,
            outputs=tuple(chain.from_iterable(map(written_files, added))),
        )


def _options(request: Request, pieces: list[ShardPiece]) -> dict[str, object]:
    settings = request.image.settings
    options: dict[str, object] = {
        "pieces": list(map(_plain, pieces)),
        "settings": request.reading(),
        "provider": request.provider,
        "codec": codec_in({**settings, **request.conf}),
        "checksums": has_row_checksums(settings),
    }
    moved = {piece.sources[0].operator for piece in pieces if piece.partitions}
    if moved:
        options["rules"] = plain.to_plain(
            request.key_rules(store for store in request.stores if store.operator in moved)
        )
    if request.part:
        options["part"] = request.part
    if request.evolved:
        options["evolve"] = plain.to_plain(request.evolved)
        schemas = spark_image(request.image).schemas
        framed = request.provider == ROCKSDB
        operators = {operator.id: operator.name for operator in request.image.operators}
        rules = {}
        for name, evolution in request.evolved.items():
            if evolution.rekeyed:
                operator = operators.get(name.partition("/")[0])
                schema = {**schemas[name], "key": evolution.new_key}
                rules[name] = key_rule(operator, name, schema, framed)
        options["rules_after"] = plain.to_plain(rules)
    sessions = _sessions(request)
    if sessions:
        options["sessions"] = sessions
    if request.joining:
        options["sums"] = _sums(request)
    options["format"] = zip_format(request)
    options["format_without_zip"] = 2 if seems_4_0(request.image, request.facts) else 1
    return options


def _plain(piece: ShardPiece) -> dict[str, object]:
    first = piece.sources[0]
    plain: dict[str, object] = {
        "operator": first.operator,
        "store": first.store,
        "sources": [[shard.shard, list(shard.files)] for shard in piece.sources],
        "targets": [shard.shard for shard in piece.targets],
    }
    tables = list(map(_tables, piece.targets))
    if any(tables):
        plain["tables"] = tables
    if piece.partitions:
        plain["partitions"] = list(piece.partitions)
    return plain


def _tables(shard: ShardFiles) -> list[str]:
    return [path.rpartition("/")[2] for path in shard.files if path.endswith(".sst")]


def _sessions(request: Request) -> dict[str, str]:
    """Return the schemas of stores whose keys a conversion cuts in two, or puts together."""
    schemas = {}
    for store in request.stores if request.other_provider else ():
        for name, rule in store.named_rules.items():
            if is_session(decode_struct(rule.schema)):
                schemas[name] = rule.schema
    return schemas


def _sums(request: Request) -> dict[str, object]:
    """Return the sums of values of one key, for the stores that have the columns to add."""
    columns = request.columns_added
    framed = request.provider == ROCKSDB
    sums: dict[str, object] = {}
    for store, schema in spark_image(request.image).schemas.items():
        if columns and cannot_add(schema, columns) is None:
            sums[store] = {"schema": schema["value"], "columns": columns, "framed": framed}
    return sums


def _compares(
    request: Request, pieces: list[ShardPiece], same: list[ShardPiece]
) -> Iterator[CompareImages]:
    compared = [*whole(pieces), *(piece for piece in same if piece.sources != piece.targets)]
    settings = _target_view(request)
    source_settings = settings | _source_view(request)
    if comparison.SUMS in source_settings:
        # What was added is in no source alone, but in the files of all.
        compared = [
            replace(piece, sources=(replace(piece.sources[0], files=piece.files),))
            for piece in compared
        ]
    for number, bundle in enumerate(bundle_items(compared, bytes_max=DECODED_BYTES_MAX)):
        yield CompareImages(
            f"compare/state-{request.number}-{number}",
            layout.ENGINE,
            request.above,
            request.target,
            tuple(chain.from_iterable(piece.sources for piece in bundle)),
            _targets(bundle),
            (),
            source_settings,
            sum(piece.size for piece in bundle),
            None if source_settings == settings else settings,
        )


def _compares_of_kept(request: Request, kept: list[ShardPiece]) -> Iterator[CompareImages]:
    settings = request.reading() | {comparison.CHANGES: "true"}
    for number, bundle in enumerate(bundle_items(kept, bytes_max=DECODED_BYTES_MAX)):
        changes = [without_tables(piece.sources[0]) for piece in bundle]
        yield CompareImages(
            name=f"compare/kept-{request.number}-{number}",
            engine=layout.ENGINE,
            source=request.above,
            target=request.target,
            source_shards=tuple(changes),
            target_shards=tuple(map(with_new_table, bundle)),
            paths=(),
            settings=settings,
            size=sum(piece.size for piece in bundle),
        )


def _target_view(request: Request) -> dict[str, str]:
    """Return the settings by which a comparison reads both sides."""
    settings = request.reading()
    if request.other_provider:
        settings[comparison.ROWS] = comparison.PLAIN_ROWS
    sessions = _sessions(request)
    if sessions:
        settings[comparison.SESSIONS] = json.dumps(sessions, sort_keys=True)
    return settings


def _source_view(request: Request) -> dict[str, str]:
    """Return the settings by which it sees a source as the target should be."""
    settings = {}
    if request.part:
        settings[comparison.PART] = json.dumps(request.part, sort_keys=True)
    if request.evolved:
        settings[comparison.EVOLVE] = json.dumps(plain.to_plain(request.evolved), sort_keys=True)
    if request.joining and request.columns_added:
        sums = {"sums": _sums(request), "places": list(request.joining.places)}
        settings[comparison.SUMS] = json.dumps(sums, sort_keys=True)
    return settings
