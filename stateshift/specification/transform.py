"""The changes to a job's state on its way, as `transform` of a spec asks for them.

    {"kind": "rewind", "batch": 41, "renumber": true}
    {"kind": "compact", "in_place": true, "keep_tables": true}
    {"kind": "repartition", "partitions": 17}
    {"kind": "convert", "provider": "rocksdb", "codec": "zstd", "checkpoint_format": "v1"}
                                                                            any of the three
    {"kind": "rename", "operators": {"0": "1"}, "sources": {"0": "1"}}      either, or both
    {"kind": "drop", "operators": ["1"], "sources": ["2"]}
    {"kind": "split", "by": 4, "part": 0}  or  {"kind": "split", "column": "country", "values":
                                               ["de", "fr"]}
    {"kind": "prune", "where": "key.country = 'de'", "operator": "0"}
    {"kind": "merge", "locations": ["/there"], "sum": ["count"]}
    {"kind": "evolve", "operator": "0", "store": "default",
     "add": [{"name": "last", "type": "long", "default": 0, "after": "count"}],
     "widen": {"count": "long"}, "rename": {"a": "b"}, "drop": ["c"], "widen_key": {"id": "long"},
     "rename_key": {"id": "number"}, "nullable": ["at"], "nullable_key": ["id"]}
    {"kind": "evolve", "operator": "count", "store": "order", "order": ["f1", "f0"]}  (Flink)
    {"kind": "reposition", "source": "0", "topics": {"orders": "shop-orders"}, "by": "records"}
    {"kind": "reposition", "source": "1", "table": "/lake/orders-2", "version": 1}
    {"kind": "reposition", "source": "clicks", "table": "catalog://lake/shop.clicks"}
    {"kind": "rescale", "parallelism": 3, "max_parallelism": 256}           either, or both (Flink)
    {"kind": "rescale", "max_parallelism": 256, "classes": ["job.jar"], "flink": "/opt/flink"}
    {"kind": "union", "operators": ["count"]}                               (Flink)
    {"kind": "repair", "files": ["/savepoints/savepoint-1"]}                (Flink)
    {"kind": "repair", "batch": 41, "leave": ["state/0/1/42.snapshot"],
     "take": {"state/0/2/41.delta": "s3://dr/orders"}, "rebuild": {"commits/41": "v1\n{…}"}}
                                                                            (Spark)
    {"kind": "import", "batch": 41, "take": {"state/0/2/42.snapshot": "/work/rows"}}
                                                                            (Spark)

Each kind stands once (`evolve` once for each store, `reposition` for each source, `rename` and
`drop` of Flink for each image that they are `of`). Several of them are one rewriting of the state,
so their order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

from stateshift.plain import JsonObject
from stateshift.specification.grammars import BY_FILE, BY_MIRROR, BY_RECORDS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rewind:
    """Go back to a committed batch."""

    kind: ClassVar[str] = "rewind"
    batch: int
    renumber: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """One snapshot for each shard in place of a chain of changes."""

    kind: ClassVar[str] = "compact"
    in_place: bool = False
    keep_tables: bool = False


@dataclass(frozen=True, slots=True)
class Repartition:
    """Another number of state partitions."""

    kind: ClassVar[str] = "repartition"
    partitions: int


@dataclass(frozen=True, slots=True)
class Convert:
    """Another provider, codec or format; or metadata for another Flink."""

    kind: ClassVar[str] = "convert"
    provider: str | None = None
    codec: str | None = None
    checkpoint_format: str | None = None
    flink: str | None = None


@dataclass(frozen=True, slots=True)
class Rename:
    """Other ids of operators and sources."""

    kind: ClassVar[str] = "rename"
    operators: Mapping[str, str] = field(default_factory=dict)
    of: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Drop:
    """Operators and sources whose state stays behind."""

    kind: ClassVar[str] = "drop"
    operators: tuple[str, ...] = ()
    of: str | None = None
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """A part of the state: some shards (`by`, `part`), or some values of a key column."""

    kind: ClassVar[str] = "split"
    by: int | None = None
    part: int | None = None
    column: str | None = None
    values: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Prune:
    """The entries of an operator of which a condition in SQL is true stay behind."""

    kind: ClassVar[str] = "prune"
    where: str
    operator: str | None = None
    store: str | None = None


@dataclass(frozen=True, slots=True)
class Merge:
    """The state of other checkpoints of the same query is added."""

    kind: ClassVar[str] = "merge"
    locations: tuple[str, ...]
    sum: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evolve:
    """`add` holds columns as the spec has them: name, type, default, after."""

    kind: ClassVar[str] = "evolve"
    operator: str
    store: str = "default"
    add: tuple[JsonObject, ...] = ()
    widen: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    nullable: tuple[str, ...] = ()
    widen_key: Mapping[str, str] = field(default_factory=dict)
    rename_key: Mapping[str, str] = field(default_factory=dict)
    nullable_key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The store as schemas name it."""
        return f"{self.operator}/{self.store}"


@dataclass(frozen=True, slots=True)
class Reposition:
    """A source reads on from elsewhere: other topics or brokers, another table, or files in another
    folder, `root` in the place of `from_root`.

    `source` is None where the job has one source of that kind. `syncs` is a topic of MirrorMaker's,
    and `timeout` how many seconds a mirror that lags is waited for; `commit` a consumer group that
    gets the new offsets. `version` is the first one of a
    Delta table that is read; `snapshot` the one of an Iceberg table up to which the job has read,
    `as_of` its time in milliseconds. `accept_again` and `accept_skipped` are how many records,
    versions or snapshots may be read again or skipped.
    """

    kind: ClassVar[str] = "reposition"
    source: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    by: str | None = None
    offsets: str | None = None
    window: int = 20_000
    syncs: str | None = None
    timeout: float = 60.0
    commit: str | None = None
    table: str | None = None
    version: int | None = None
    snapshot: int | None = None
    as_of: int | None = None
    from_table: str | None = None
    compare_rows: bool = False
    root: str | None = None
    from_root: str | None = None
    accept_again: int = 0
    accept_skipped: int = 0

    @property
    def turned(self) -> Reposition:
        """The way back: by the records. MirrorMaker copies one way, and a file is of one way."""
        back = {new: old for old, new in self.topics.items()}
        by = BY_RECORDS if self.by in (BY_MIRROR, BY_FILE) else self.by
        turned = replace(self, topics=back, by=by, syncs=None, accept_again=0, accept_skipped=0)
        return replace(turned, root=self.from_root, from_root=self.root)

    @property
    def at_standby(self) -> Reposition:
        """The same, where MirrorMaker's syncs may be lost: by the records that were kept. Nothing
        that only watches the job keeps it from being started: no offsets are committed.
        """
        by = BY_RECORDS if self.by == BY_MIRROR else self.by
        return replace(self, by=by, syncs=None, commit=None)


@dataclass(frozen=True, slots=True)
class Rescale:
    """Another parallelism, or number of key groups. `classes` are jars with the `hashCode` of keys,
    and `flink` a distribution in whose JVM they run.
    """

    kind: ClassVar[str] = "rescale"
    parallelism: int | None = None
    max_parallelism: int | None = None
    classes: tuple[str, ...] = ()
    flink: str | None = None


@dataclass(frozen=True, slots=True)
class Union:
    """Operators of several Flink images that become one."""

    kind: ClassVar[str] = "union"
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """Folders with files that a Flink image lacks (`files`). Of a Spark checkpoint: the batch to go
    back to, the damaged files to leave out, the copies that others are taken from, and the text of
    logs that follow from others.
    """

    kind: ClassVar[str] = "repair"
    files: tuple[str, ...] = ()
    batch: int | None = None
    leave: tuple[str, ...] = ()
    take: Mapping[str, str] = field(default_factory=dict)
    rebuild: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Import(Repair):
    """Files of state that were made of rows, in place of the template's (`take`)."""

    kind: ClassVar[str] = "import"


Change = (
    Rewind
    | Compact
    | Repartition
    | Convert
    | Rename
    | Drop
    | Split
    | Prune
    | Merge
    | Evolve
    | Reposition
    | Rescale
    | Union
    | Repair
    | Import
)


def find_change(changes: Iterable[Change], kind: type[T]) -> T | None:
    """Return the change of a kind that stands once."""
    return next((change for change in changes if isinstance(change, kind)), None)


def locations_merged(changes: Iterable[Change]) -> list[str]:
    """Return the locations whose state is added to the job's."""
    merge = find_change(changes, Merge)
    return [] if merge is None else list(merge.locations)
