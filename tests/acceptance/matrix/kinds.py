"""What is combined: kinds of state, providers and changes, by Spark version. Pure values.

    Kind      a query of jobs/shapes.py with its settings
    Provider  where Spark keeps the state, and how
    Base      one of each: a job that is run, changed and carried on
    Cell      a base and a change of it

What Spark itself does not have is told with the reason (`missing`); everything else is a cell of
the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

VERSIONS = ("3.5.9", "4.3.0")
NEWEST = VERSIONS[-1]

PREFIX = "spark.sql.streaming."
STATE = f"{PREFIX}stateStore."
PARTITIONS = "spark.sql.shuffle.partitions"
_ROCKSDB = {
    f"{STATE}providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
}
_CHANGELOG = {**_ROCKSDB, f"{STATE}rocksdb.changelogCheckpointing.enabled": "true"}
_FORMAT_2 = {f"{STATE}checkpointFormatVersion": "2"}
_CHECKED = {f"{STATE}rowChecksum.enabled": "true"}
# Snapshots are written by maintenance, at times of its own: what a base looks like must not depend
# on them.
_STILL = {f"{STATE}maintenanceInterval": "1h"}
_AGGREGATION, _JOIN = f"{PREFIX}aggregation.stateFormatVersion", f"{PREFIX}join.stateFormatVersion"


@dataclass(frozen=True)
class Provider:
    name: str
    conf: Mapping[str, str] = field(default_factory=dict)
    since: str = VERSIONS[0]
    kinds: tuple[str, ...] = ()  # only with these; with all, where there are none

    @property
    def rocksdb(self) -> bool:
        return self.name.startswith("rocksdb")

    @property
    def format_2(self) -> bool:
        return _FORMAT_2.items() <= self.conf.items()


@dataclass(frozen=True)
class Kind:
    """`families`: its state is in column families, which only RocksDB has. `keyed`: by the word,
    among others.
    """

    name: str
    query: str
    conf: Mapping[str, str] = field(default_factory=dict)
    since: str = VERSIONS[0]
    until: str = NEWEST
    families: bool = False
    keyed: bool = True


@dataclass(frozen=True)
class Change:
    """What is asked of the command line. `after` is the query that goes on, where it is another
    one.
    """

    name: str
    command: tuple[str, ...]
    partitions: int | None = None
    batch: int = 2  # the last that is in the image
    numbered: int | None = None  # which number it has at the target, where that is another
    after: str | None = None
    swapped: bool = False  # the job afterwards reads its two inputs in the other order


@dataclass(frozen=True)
class Base:
    version: str
    kind: str
    provider: str
    partitions: int = 3

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.provider}" + (
            f".{self.partitions}" if self.partitions != 3 else ""
        )

    @property
    def conf(self) -> dict[str, str]:
        settings = {**_STILL, **PROVIDERS[self.provider].conf, **KINDS[self.kind].conf}
        return {**settings, PARTITIONS: str(self.partitions)}

    @property
    def query(self) -> str:
        return KINDS[self.kind].query


@dataclass(frozen=True)
class Cell:
    base: Base
    change: str

    @property
    def name(self) -> str:
        return f"{self.base.version}/{self.base.name}/{self.change}"


PROVIDERS = {
    provider.name: provider
    for provider in (
        Provider("hdfs"),
        Provider("rocksdb", _ROCKSDB),
        Provider("rocksdb-changelog", _CHANGELOG),
        Provider("rocksdb-format2", {**_ROCKSDB, **_FORMAT_2}, "4.3.0"),
        Provider("rocksdb-changelog-format2", {**_CHANGELOG, **_FORMAT_2}, "4.3.0"),
        Provider("hdfs-checksums", _CHECKED, "4.3.0", ("window-2", "join-2")),
        Provider(
            "rocksdb-checksums",
            {**_CHANGELOG, **_CHECKED},
            "4.3.0",
            ("window-2", "join-3", "join-4"),
        ),
    )
}

KINDS = {
    kind.name: kind
    for kind in (
        Kind("window-1", "window", {_AGGREGATION: "1"}),
        Kind("window-2", "window", {_AGGREGATION: "2"}),
        Kind("totals", "totals", keyed=False),
        Kind("session", "session"),
        Kind("unique", "unique"),
        Kind("distinct", "distinct"),
        Kind("join-1", "inner", {_JOIN: "1"}),
        Kind("join-2", "join", {_JOIN: "2"}),
        Kind("join-3", "join", {_JOIN: "3"}, "4.3.0", families=True),
        Kind("join-4", "join", {_JOIN: "4"}, "4.3.0", families=True),
        Kind("pandas", "pandas"),
        Kind("timed", "timed", since="4.3.0", families=True),
        Kind("expiring", "expiring", since="4.3.0", families=True),
        Kind("limit", "first", keyed=False),
        Kind("limited", "limited", keyed=False),
        Kind("chained", "chained"),
    )
}

# As the table calls them.
TITLES = {
    "window-1": "windowed aggregation, state format 1",
    "window-2": "windowed aggregation, state format 2",
    "totals": "aggregation without a key",
    "session": "session window",
    "unique": "dropDuplicates",
    "distinct": "dropDuplicatesWithinWatermark",
    "join-1": "stream-stream join, state format 1 (inner)",
    "join-2": "stream-stream join, state format 2 (outer)",
    "join-3": "stream-stream join, state format 3 (outer)",
    "join-4": "stream-stream join, state format 4 (outer)",
    "pandas": "applyInPandasWithState, with timeouts",
    "timed": "transformWithState in Python: value, list, map, timers",
    "expiring": "transformWithState in Python: value, list, map, TTL",
    "limit": "global limit",
    "limited": "two stateful operators: dropDuplicatesWithinWatermark, limit",
    "chained": "two stateful operators: dropDuplicates, windowed aggregation",
}

_SWAP = ("--source", "0=1", "--source", "1=0")

CHANGES = {
    change.name: change
    for change in (
        Change("compact", ("compact",)),
        Change("repartition 200 to 17", ("repartition", "--partitions", "17"), 17),
        Change("repartition 7 to 64", ("repartition", "--partitions", "64"), 64),
        Change("repartition 3 to 5", ("repartition", "--partitions", "5"), 5),
        Change("convert provider", ("convert", "--provider")),
        Change("split", ("split",)),
        Change("merge", ("merge",)),
        Change("rewind", ("rewind", "--batch", "1", "--waive", "repeated-batches"), batch=1),
        Change("renumber", ("rewind", "--batch", "1", "--renumber"), batch=1, numbered=2),
        Change(
            "rename and drop operators",
            ("rename", "--operator", "1=0", "--drop-operator", "0"),
            after="distinct",
        ),
        Change("fork", ("fork",)),
        Change("convert checkpoint format", ("convert", "--checkpoint-format", "v1")),
        Change("convert codec", ("convert", "--codec", "zstd")),
        Change("rename sources", ("rename", *_SWAP), swapped=True),
        Change("repartition 3 to 2", ("repartition", "--partitions", "2"), 2),
        Change("import", ("import",)),
    )
}

# No rows of the table: test_transforms runs it with every kind of state on the newest Spark.
APART = frozenset({"renumber", "import"})
WIDE = {"repartition 200 to 17": 200, "repartition 7 to 64": 7}
_WIDE_BASES = [
    (kind, provider)
    for provider in ("hdfs", "rocksdb-changelog")
    for kind in (
        "window-2",
        "join-2" if provider == "hdfs" else "join-4",
        "unique",
        "session",
        "pandas",
        "timed",
    )
]


def missing(version: str, kind: Kind, provider: Provider) -> str | None:
    """Why Spark does not have the two together; None where it does."""
    if _older(version, kind.since):
        what = (
            "state format 3 and 4 of joins"
            if kind.name.startswith("join")
            else "transformWithState"
        )
        return f"{what} came after Spark {version}"
    if _older(version, provider.since):
        what = "checkpoint format 2" if provider.format_2 else "row checksums"
        return f"{what} came after Spark {version}"
    if kind.families and not provider.rocksdb:
        return (
            "the state of this operator needs column families, which HDFS-backed state does "
            "not have"
        )
    return REFUSED.get((version, kind.name, provider.name))


# What Spark was seen to refuse when it was tried: version, kind, provider -> in which words.
REFUSED: dict[tuple[str, str, str], str] = {
    (
        "4.3.0",
        "join-1",
        provider,
    ): "Spark 4.3.0 starts no join of state format 1 (Unsupported schema writer version: 1)"
    for provider in (
        "hdfs",
        "rocksdb",
        "rocksdb-changelog",
        "rocksdb-format2",
        "rocksdb-changelog-format2",
    )
}


def every_base() -> Iterator[Base]:
    """Every kind with every provider, whether or not Spark has them together."""
    for version in VERSIONS:
        for kind in KINDS.values():
            for provider in PROVIDERS.values():
                if not provider.kinds or kind.name in provider.kinds:
                    yield Base(version, kind.name, provider.name)


def every_cell() -> Iterator[Cell]:
    for base in every_base():
        if missing(base.version, KINDS[base.kind], PROVIDERS[base.provider]) is None:
            listed = (change for change in CHANGES if change not in WIDE and change not in APART)
            yield from (Cell(base, change) for change in listed if _has(base, change))
    for kind, provider in _WIDE_BASES:
        if missing(NEWEST, KINDS[kind], PROVIDERS[provider]) is None:
            yield from (
                Cell(Base(NEWEST, kind, provider, before), change)
                for change, before in WIDE.items()
            )


def command(cell: Cell) -> tuple[str, ...]:
    """The words of the command line, but for where."""
    change, provider = CHANGES[cell.change], PROVIDERS[cell.base.provider]
    if cell.change == "convert provider":
        return (*change.command, "hdfs-backed" if provider.rocksdb else "rocksdb")
    return change.command


def _has(base: Base, change: str) -> bool:
    """Whether it is a change at all."""
    if change == "convert checkpoint format":
        return PROVIDERS[base.provider].format_2
    if change == "rename sources" and base.kind.startswith("join"):
        return False  # one stream joined with itself: its sources are not as many as its inputs
    if change == "rename and drop operators":
        return base.kind == "limited"
    return True


def _older(version: str, other: str) -> bool:
    return [int(part) for part in version.split(".")] < [int(part) for part in other.split(".")]
