"""What becomes of an image's state where more is asked for than a copy: which files are written anew, and how. Pure.

    Reshaping
      steps       state, in the transform phase: TransformShard over pieces of it, and files that get another path
      replaced    paths of the source that are not copied as they are
      shards      the state as it lies at the target afterwards
      compares    source and target shards whose entries must be the same
      logs        what happens to offsets and commits on their way, by path
      operators   what happens to the operators' metadata, by path
      paths       files that get another path, or none, because their operator or source does

A repartition from N to M moves entries only between shards whose numbers leave the same remainder by gcd(N, M), so
that many groups are independent of each other. A group whose files are more than a piece should hold in memory is read
several times, each time for some of its targets.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

from stateshift import plain
from stateshift.engines.spark import chains, layout
from stateshift.engines.spark.bundles import bundled
from stateshift.engines.spark.comparing import PART, PLAIN_ROWS, ROWS
from stateshift.engines.spark.entries import MERGE_OPERATOR, ROW_CHECKSUM
from stateshift.engines.spark.joining import MERGE_COMMITS, MERGE_OFFSETS, joining_of
from stateshift.engines.spark.keys import KeyRule, key_rule
from stateshift.engines.spark.parts import shards_of
from stateshift.engines.spark.shards import HDFS, ROCKSDB
from stateshift.engines.spark.sums import cannot_add
from stateshift.engines.spark.wishes import (
    CODEC,
    PROVIDER,
    Wishes,
    path_after,
    settings_after,
    wishes_of,
)
from stateshift.errors import FormatError
from stateshift.formats.spark.names import DEFAULT_STORE, classify
from stateshift.formats.spark.types import decode_struct
from stateshift.spec import JobSpec
from stateshift.step import CompareImages, TransformShard
from stateshift.survey import Facts, FileInfo, Image, ShardFiles

REWRITE_STATE = "spark.rewrite-state"
REWRITE_OFFSETS = "spark.rewrite-offsets"
REWRITE_COMMIT = "spark.rewrite-commit"
KEEP = "spark.keep"

# Of files, compressed: decoded and in Python's memory it is several times as much.
PIECE_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Change:
    """A file of the source that another one is made from: by which transform, and where to (below the target). Where
    more than that file is needed, `source` and `inputs` say it."""

    transform: str
    options: Mapping[str, Any]
    path: str
    source: str | None = None
    inputs: tuple[FileInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class Reshaping:
    steps: tuple[TransformShard, ...] = ()
    replaced: frozenset[str] = frozenset()
    shards: tuple[ShardFiles, ...] = ()
    compares: tuple[CompareImages, ...] = ()
    logs: Mapping[str, Change] = field(default_factory=dict)
    operators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paths: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Piece:
    """Shards of one store that become other shards of it."""

    sources: tuple[ShardFiles, ...]
    targets: tuple[ShardFiles, ...]
    partitions: tuple[int, int] | None
    size: int

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for shard in self.sources for path in shard.files)


@dataclass(frozen=True, slots=True)
class StoreState:
    """One store of an operator, over all its shards, and how its keys are placed; None where that is not known, for the
    reason in `unknown`."""

    operator: str
    store: str
    shards: tuple[ShardFiles, ...]
    rules: Mapping[str, KeyRule] | None
    single: bool
    unknown: str | None = None

    @property
    def families(self) -> bool:
        return any("/" in name for name in self.rules or {})


def reshaping_of(job: JobSpec, facts: Facts, piece_bytes_max: int = PIECE_BYTES_MAX) -> Reshaping:
    """Of every image, added up; empty where the job asks for no change."""
    wishes = wishes_of(job.transform)
    if not wishes.any:
        return Reshaping()
    images = enumerate(facts.source.images)
    made = [_Image(wishes, image, facts, number, piece_bytes_max).reshaped() for number, image in images]
    return Reshaping(
        steps=tuple(step for one in made for step in one.steps),
        replaced=frozenset().union(*(one.replaced for one in made)),
        shards=tuple(shard for one in made for shard in one.shards),
        compares=tuple(step for one in made for step in one.compares),
        logs={path: change for one in made for path, change in one.logs.items()},
        operators={path: change for one in made for path, change in one.operators.items()},
        paths={path: new for one in made for path, new in one.paths.items()},
    )


def partitions_of(image: Image) -> int | None:
    return chains.partitions_of(image.settings)


def provider_of(image: Image) -> str | None:
    return image.operators[0].provider if image.operators else None


def stores_of(image: Image, framed: bool) -> tuple[StoreState, ...]:
    """The stores of the image, each with the rules for its keys (and those of its column families)."""
    schemas: Mapping[str, Mapping[str, Any]] = image.details.get("schemas", {})
    counts = {operator.id: operator.shards for operator in image.operators}
    groups: dict[tuple[str, str], list[ShardFiles]] = {}
    for shard in image.shards:
        groups.setdefault((shard.operator, shard.store), []).append(shard)
    found = []
    for (operator, store), shards in groups.items():
        whole = f"{operator}/{store}"
        own = {n[len(operator) + 1 :]: s for n, s in schemas.items() if n == whole or n.startswith(whole + "/")}
        rules, unknown = _rules(own, framed)
        single = counts[operator] == 1 and partitions_of(image) != 1
        single = single or (bool(rules) and all(rule.form == "single" for rule in rules.values()))
        found.append(StoreState(operator, store, tuple(shards), rules or None, single, unknown))
    return tuple(found)


def _rules(schemas: Mapping[str, Mapping[str, Any]], framed: bool) -> tuple[dict[str, KeyRule], str | None]:
    try:
        rules = {name: key_rule(name, schema, framed) for name, schema in schemas.items()}
    except FormatError as error:
        return {}, error.fact
    return rules, None if rules else "no schema tells its key"


def part_of(wishes: Wishes, image: Image, stores: tuple[StoreState, ...]) -> dict[str, Any] | None:
    """What of the entries belongs to the part that is asked for."""
    split = wishes.split
    if split is None:
        return None
    if "by" in split:
        return {"shards": shards_of(split["by"], split["part"], partitions_of(image) or 0)}
    rules = {f"{s.operator}/{name}": rule for s in stores for name, rule in (s.rules or {}).items()}
    return {"column": split["column"], "values": list(split["values"]), "rules": plain.to_plain(rules)}


def is_settled(shard: ShardFiles) -> bool:
    """Nothing is left to compact: a snapshot alone, or RocksDB's own tables without a changelog behind them."""
    endings = [path.rpartition(".")[2] for path in shard.files]
    return endings == ["snapshot"] or (bool(endings) and "changelog" not in endings and "zip" in endings)


def components(before: int, after: int) -> Iterator[tuple[range, range]]:
    """Groups of source and target shards between which entries can move."""
    step = gcd(before, after)
    return ((range(rest, before, step), range(rest, after, step)) for rest in range(step))


class _Image:
    """One image being planned."""

    def __init__(self, wishes: Wishes, image: Image, facts: Facts, number: int, piece_bytes_max: int) -> None:
        self.wishes, self.image, self.number, self.piece_bytes_max = wishes, image, number, piece_bytes_max
        self.source, self.target = facts.source.location, facts.target.location
        self.infos = {file.path: file for file in facts.source.files}
        self.version = (image.epoch or 0) + 1
        self.provider = wishes.provider or provider_of(image) or HDFS
        names = (classify(_inside(image, path)) for shard in image.shards for path in shard.files)
        self.format_2 = any(place.uuid for place in names if place.kind in ("zip", "changelog"))
        self.uuids = self.format_2 and not wishes.format_1 and self.provider == ROCKSDB
        self.conf = settings_after(wishes, image.settings)
        stores = stores_of(image, self.provider == ROCKSDB)
        self.stores = tuple(store for store in stores if store.operator not in wishes.dropped_operators)
        self.joining = joining_of(facts) if wishes.merge else None
        self.part = part_of(wishes, image, self.stores)

    def reshaped(self) -> Reshaping:
        pieces = [piece for store in self.stores for piece in self._pieces(store)]
        kept = [shard for store in self.stores for shard in store.shards if not self._rewritten(store, shard)]
        taken = frozenset(
            path
            for store in self.stores
            for shard in store.shards
            if self._rewritten(store, shard)
            for path in shard.files
        )
        paths = {path: new for path, new in self._paths().items() if path not in taken}
        same = [Piece((shard,), (self._renamed(shard),), None, self._size((shard,))) for shard in kept]
        shards = tuple(target for piece in (*pieces, *same) for target in piece.targets)
        compared = [*_whole(pieces), *(piece for piece in same if piece.sources != piece.targets)]
        name = f"state-{self.number}"
        steps = [self._step(f"transform/{name}-{n}", bundle) for n, bundle in enumerate(bundled(pieces))]
        steps += self._joined_logs()
        if self.wishes.merge and self.wishes.merge.get("sum"):
            compared = []  # what was added is in no source
        compares = [self._compare(f"compare/{name}-{n}", bundle) for n, bundle in enumerate(bundled(compared))]
        return Reshaping(
            steps=tuple(steps),
            replaced=taken | frozenset(paths),
            shards=shards,
            compares=tuple(compares),
            logs=dict(self._logs(shards)),
            operators=dict(self._operators()),
            paths=paths,
        )

    # -- what is called otherwise, or left behind

    def _path(self, path: str) -> str | None:
        new = path_after(self.wishes, _inside(self.image, path))
        return None if new is None else layout.under(self.image.path, new)

    def _paths(self) -> dict[str, str | None]:
        return {path: new for path in self.image.needed if (new := self._path(path)) != path}

    def _renamed(self, shard: ShardFiles) -> ShardFiles:
        """The same shard under its new path. It keeps its operator's old id, by which it is compared."""
        return replace(shard, files=tuple(new for path in shard.files if (new := self._path(path)) is not None))

    # -- which shards become which

    def _rewritten(self, store: StoreState, shard: ShardFiles) -> bool:
        if self._moves(store) or _provider_changes(self.conf) or CODEC in self.conf or self.part or self.joining:
            return True
        uuids = self.wishes.format_1 and any("_" in path.rpartition("/")[2] for path in shard.files)
        return (self.wishes.compact and not is_settled(shard)) or uuids

    def _moves(self, store: StoreState) -> bool:
        """Whether entries change their shard."""
        after = self.wishes.partitions
        return after is not None and after != partitions_of(self.image) and not store.single

    def _pieces(self, store: StoreState) -> Iterator[Piece]:
        if self.joining is not None:
            for shard in store.shards:
                sources = tuple(self.joining.shards((store.operator, store.store), shard.shard))
                yield Piece(sources, (self._made(store, shard.shard),), None, self._size(sources))
            return
        if not self._moves(store):
            for shard in store.shards:
                if self._rewritten(store, shard):
                    yield Piece((shard,), (self._made(store, shard.shard),), None, self._size((shard,)))
            return
        before, after = partitions_of(self.image), self.wishes.partitions
        assert before is not None and after is not None, "the findings have asked"
        by_number = {shard.shard: shard for shard in store.shards}
        for here, there in components(before, after):
            sources = tuple(by_number[number] for number in here)
            size = self._size(sources)
            passes = min(len(there), -(-size // self.piece_bytes_max) or 1)
            for start in range(passes):
                targets = tuple(self._made(store, number) for number in there[start::passes])
                yield Piece(sources, targets, (before, after), size)

    def _made(self, store: StoreState, shard: int) -> ShardFiles:
        """The shard as it will be written."""
        operator = self.wishes.operators.get(store.operator, store.operator)
        folder = f"state/{operator}/{shard}" + ("" if store.store == DEFAULT_STORE else f"/{store.store}")
        folder = layout.under(self.image.path, folder)
        if self.provider == HDFS:
            names = [f"{self.version}.snapshot"]
        else:
            base, own = (self._suffix(f"{folder}/{version}") for version in (self.version - 1, self.version))
            before = [f"{self.version - 1}{base}.zip"] if self.version > 1 else []
            names = [*before, f"{self.version}{own}.changelog"]
        return ShardFiles(store.operator, store.store, shard, tuple(f"{folder}/{name}" for name in names))

    def _suffix(self, place: str) -> str:
        """Under checkpoint format 2, an id for a file: the same file gets the same."""
        name = f"{self.image.identity} {self.target} {place}"
        return f"_{uuid.uuid5(uuid.NAMESPACE_URL, name)}" if self.uuids else ""

    def _size(self, shards: Iterable[ShardFiles]) -> int:
        return sum(self._info(path).size for shard in shards for path in shard.files)

    # -- steps

    def _step(self, name: str, pieces: list[Piece]) -> TransformShard:
        moved = {piece.sources[0].operator for piece in pieces if piece.partitions}
        rules = {
            f"{store.operator}/{name}": rule
            for store in self.stores
            for name, rule in (store.rules or {}).items()
            if store.operator in moved
        }
        options = {
            "pieces": [self._plain(piece) for piece in pieces],
            "version": self.version,
            "settings": self._reading(),
            "provider": self.provider,
            "codec": self.conf.get(CODEC, self.image.settings.get(CODEC, "lz4")),
            "checksums": self.image.settings.get(ROW_CHECKSUM) == "true",
            **({"rules": plain.to_plain(rules)} if moved else {}),
            **({"part": self.part} if self.part else {}),
            **({"sums": self._sums()} if self.joining else {}),
        }
        return TransformShard(
            name=name,
            transform=REWRITE_STATE,
            options=options,
            source=self._above,
            inputs=tuple(self._info(path) for piece in pieces for path in piece.files),
            target=self.target,
            outputs=tuple(path for piece in pieces for shard in piece.targets for path in shard.files),
        )

    def _info(self, path: str) -> FileInfo:
        infos = self.joining.infos if self.joining else self.infos
        return infos.get(path) or FileInfo(path, 0)

    @property
    def _above(self) -> str:
        """Where pieces are read from."""
        return self.joining.root if self.joining else self.source

    def _plain(self, piece: Piece) -> dict[str, Any]:
        first = piece.sources[0]
        uuids = [[classify(_inside(self.image, path)).uuid for path in shard.files] for shard in piece.targets]
        return {
            "operator": first.operator,
            "store": first.store,
            "sources": [[shard.shard, list(shard.files)] for shard in piece.sources],
            "targets": [shard.shard for shard in piece.targets],
            **({"partitions": list(piece.partitions)} if piece.partitions else {}),
            **({"uuids": uuids} if self.uuids else {}),
        }

    def _reading(self) -> dict[str, str]:
        """The settings that say how rows are read."""
        return {key: self.image.settings[key] for key in (ROW_CHECKSUM, MERGE_OPERATOR) if key in self.image.settings}

    def _compare(self, name: str, pieces: list[Piece]) -> CompareImages:
        settings = self._reading() | ({ROWS: PLAIN_ROWS} if _provider_changes(self.conf) else {})
        seen = {**settings, PART: json.dumps(self.part, sort_keys=True)} if self.part else settings
        return CompareImages(
            name, layout.ENGINE, self._above, self.target,
            tuple(shard for piece in pieces for shard in piece.sources),
            tuple(shard for piece in pieces for shard in piece.targets), (), seen,
            sum(piece.size for piece in pieces), settings if self.part else None,
        )  # fmt: skip

    # -- logs and metadata

    def _sums(self) -> dict[str, Any]:
        """How values of one key are added, for the stores that have the columns to add."""
        columns = list((self.wishes.merge or {}).get("sum", ()))
        schemas: Mapping[str, Mapping[str, Any]] = self.image.details.get("schemas", {})
        return {
            store: {"schema": schema["value"], "columns": columns, "framed": self.provider == ROCKSDB}
            for store, schema in schemas.items()
            if columns and cannot_add(decode_struct(schema["value"]), columns) is None
        }

    def _joined_logs(self) -> Iterator[TransformShard]:
        """The other checkpoints' source logs, under the numbers they have in the merged one."""
        logs = dict(self.joining.logs()) if self.joining else {}
        for number, bundle in enumerate(bundled(self._info(path) for path in sorted(logs))):
            yield TransformShard(f"transform/joined-{number}", KEEP, {}, self._above, tuple(bundle), self.target,
                                 tuple(logs[file.path] for file in bundle))  # fmt: skip

    def _joined(self, inside: str, shards: tuple[ShardFiles, ...]) -> Change:
        """A log of all the checkpoints together."""
        assert self.joining is not None, "asked of merges only"
        if inside.startswith("commits/"):
            options = {"state_ids": self._ids(shards) if self.uuids else None, "format_2": self.format_2}
            return Change(MERGE_COMMITS, options, inside, self._above, tuple(map(self._info, self.joining.commits())))
        back = (self.image.epoch or 0) - int(inside.rpartition("/")[2])
        inputs = tuple(map(self._info, self.joining.offsets(back)))
        return Change(MERGE_OFFSETS, {"conf": self.conf}, inside, self._above, inputs)

    def _logs(self, shards: tuple[ShardFiles, ...]) -> Iterator[tuple[str, Change]]:
        for path in self.image.first_read:
            inside = _inside(self.image, path)
            if self.joining is not None:
                if inside != layout.METADATA:
                    yield path, self._joined(inside, shards)
                continue
            sources, dropped = self.wishes.sources, self.wishes.dropped_sources
            if inside.startswith("offsets/") and (self.conf or sources or dropped):
                options = {"conf": self.conf, "sources": dict(sources), "dropped": list(dropped)}
                yield path, Change(REWRITE_OFFSETS, options, path)
            if inside.startswith("commits/") and self.format_2:
                ids = self._ids(shards) if self.uuids else None
                yield path, Change(REWRITE_COMMIT, {"state_ids": ids}, path)

    def _ids(self, shards: tuple[ShardFiles, ...]) -> dict[str, list[list[str]]]:
        """Which file of the version is the right one, by operator, shard and store."""
        found: dict[str, dict[int, list[str]]] = {}
        for shard in sorted(shards, key=lambda shard: (shard.operator, shard.shard, shard.store)):
            own = [path for path in shard.files if path.endswith((".zip", ".changelog"))]
            uuid = classify(_inside(self.image, own[-1])).uuid if own else None
            operator = self.wishes.operators.get(shard.operator, shard.operator)
            found.setdefault(operator, {}).setdefault(shard.shard, []).append(uuid or "")
        return {operator: [stores for _, stores in sorted(numbered.items())] for operator, numbered in found.items()}

    def _operators(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        folders = {f"state/{old}": f"state/{new}" for old, new in self.wishes.operators.items()}
        under = {layout.under(self.image.path, a): layout.under(self.image.path, b) for a, b in folders.items()}
        for path in self.image.needed:
            place = classify(_inside(self.image, path))
            if place.area != "state-metadata":
                continue
            new = self.wishes.operators.get(place.operator or "")
            changes = {
                **({"partitions": self.wishes.partitions} if self.wishes.partitions else {}),
                **({"operator": int(new), "folders": under} if new is not None else {}),
            }
            if changes:
                yield path, changes


def _whole(pieces: list[Piece]) -> list[Piece]:
    """Pieces that are read from the same shards, as one: only together do they hold what those hold."""
    found: dict[tuple[ShardFiles, ...], Piece] = {}
    for piece in pieces:
        known = found.get(piece.sources)
        found[piece.sources] = replace(piece, targets=known.targets + piece.targets) if known else piece
    return list(found.values())


def _provider_changes(conf: Mapping[str, str]) -> bool:
    return PROVIDER in conf


def _inside(image: Image, path: str) -> str:
    return path[len(image.path) + 1 :] if image.path else path
