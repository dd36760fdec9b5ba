"""The golden cases of Flink: which job, how configured, and how its image is taken. See
flink_make.py.

CASES: {name: Case}  case_of(name, version)  CLUSTERS: {name: lines of configuration}  VERSIONS
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

VERSIONS = ("2.3.0", "1.20.5", "1.15.4", "1.18.1", "2.0.2")
WORK = "/tmp/golden-flink"  # ends up in the images
COMMON = {"taskmanager.memory.segment-size": "4kb"}  # what is in flight is small
# What a job cannot ask for itself in all versions is asked for by its cluster. State of any size
# becomes a file in one, in the other it lies in _metadata as long as it is small, as it does by
# default.
CLUSTERS: dict[str, Mapping[str, str]] = {
    "files": {
        **COMMON,
        "state.storage.fs.memory-threshold": "0b",
        "execution.checkpointing.data-inline-threshold": "0b",
        "state.changelog.storage": "filesystem",
        "state.backend.changelog.storage": "filesystem",
        "state.changelog.dstl.dfs.base-path": f"file://{WORK}/changelog",
        "dstl.dfs.base-path": f"file://{WORK}/changelog",
    },
    "inline": {
        **COMMON,
        "state.changelog.storage": "memory",
        "state.backend.changelog.storage": "memory",
    },
}


@dataclass(frozen=True)
class Case:
    """`image` is canonical, native or drained: a savepoint with which the job stops; saved: it
    goes on; checkpoint.
    """

    image: str
    job: str = "jobs.Count"
    backend: str = "hashmap"
    words: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    numbers: int = 60
    parallelism: int = 2
    max_parallelism: int = 8
    cluster: str = "files"
    since: tuple[int, ...] = (1, 15)
    in_flight: bool = (
        False  # taken while records are between operators: what is counted is not known
    )


INCREMENTAL = {"execution.checkpointing.incremental": "true", "state.backend.incremental": "true"}
COMPRESSED = {"execution.checkpointing.snapshot-compression": "true"}
UNALIGNED = {
    "execution.checkpointing.unaligned": "true",
    "execution.checkpointing.unaligned.enabled": "true",
}
CHANGELOG = {"state.backend.changelog.enabled": "true", "state.changelog.enabled": "true"}
# Once while the numbers come, at a moment that depends on the task's name; what comes later is left
# as changes.
MATERIALIZED = {
    "state.backend.changelog.periodic-materialize.interval": "6s",
    "state.changelog.periodic-materialize.interval": "6s",
}
MERGING = {"execution.checkpointing.file-merging.enabled": "true"}
KINDS, SQL = "jobs.Kinds", "jobs.Sql"
TYPED, TABLES = "jobs.Typed", "jobs.Tables"
NULLS = ("--nulls", "true")  # see Kinds.java; older Flinks fail with them on RocksDB, too
SLOW = ("--slow-us", "3000", "--per-second", "0")

CASES = {
    "count-canonical-hashmap": Case("canonical"),
    "count-canonical-rocksdb": Case("canonical", backend="rocksdb", words=("--kind", "long")),
    "count-canonical-tuple": Case(
        "canonical", words=("--kind", "tuple"), parallelism=3, max_parallelism=128
    ),
    "count-canonical-named": Case("canonical", words=("--kind", "named"), since=(2, 3)),
    "count-canonical-generic": Case("canonical", words=("--kind", "generic"), since=(2, 3)),
    "count-canonical-int-200": Case(
        "canonical", backend="rocksdb", words=("--kind", "int"), max_parallelism=200
    ),
    "count-canonical-long-200": Case("canonical", words=("--kind", "long"), max_parallelism=200),
    "count-inline-hashmap": Case("canonical", cluster="inline"),
    "count-inline-native": Case(
        "native", backend="rocksdb", conf=INCREMENTAL, cluster="inline", parallelism=1
    ),
    "count-native-hashmap": Case("native"),
    "count-native-rocksdb": Case("native", backend="rocksdb", parallelism=1),
    "count-native-incremental": Case("native", backend="rocksdb", conf=INCREMENTAL),
    "count-saved": Case("saved"),
    "count-drained": Case("drained"),
    "count-finished": Case(
        "canonical", words=("--counters", "orders,payments", "--finishing", "payments")
    ),
    "count-two": Case("canonical", words=("--counters", "orders,payments", "--kind", "long")),
    "count-one-payments": Case("canonical", words=("--counters", "payments", "--kind", "long")),
    "count-no-uids": Case("canonical", words=("--uids", "false")),
    "kinds-canonical-hashmap": Case("canonical", KINDS),
    "kinds-canonical-rocksdb": Case("canonical", KINDS, "rocksdb", NULLS),
    "kinds-native-hashmap": Case("native", KINDS),
    "kinds-native-incremental": Case(
        "native",
        KINDS,
        "rocksdb",
        (*NULLS, "--only", "values,collections,timers,ttl"),
        INCREMENTAL,
        parallelism=1,
    ),
    "kinds-compressed": Case("canonical", KINDS, conf=COMPRESSED),
    "kinds-compressed-rocksdb": Case("canonical", KINDS, "rocksdb", NULLS, conf=COMPRESSED),
    "kinds-compressed-native": Case("native", KINDS, conf=COMPRESSED),
    "kinds-checkpoint-hashmap": Case("checkpoint", KINDS),
    "kinds-checkpoint-inline": Case("checkpoint", KINDS, cluster="inline"),
    "kinds-checkpoint-incremental": Case(
        "checkpoint",
        KINDS,
        "rocksdb",
        (*NULLS, "--only", "collections,timers"),
        INCREMENTAL,
        parallelism=1,
    ),
    "count-checkpoint-rocksdb": Case("checkpoint", backend="rocksdb", parallelism=1),
    "count-checkpoint-incremental": Case(
        "checkpoint", backend="rocksdb", conf=INCREMENTAL, numbers=200
    ),
    "count-changelog-memory": Case("checkpoint", conf=CHANGELOG, cluster="inline"),
    "count-changelog-hashmap": Case("checkpoint", conf={**CHANGELOG, **MATERIALIZED}, numbers=550),
    "count-changelog-rocksdb": Case(
        "checkpoint",
        backend="rocksdb",
        numbers=550,
        conf={**CHANGELOG, **MATERIALIZED, **INCREMENTAL},
    ),
    "count-changelog-canonical": Case("canonical", conf=CHANGELOG),
    "count-unaligned": Case("checkpoint", words=SLOW, conf=UNALIGNED, in_flight=True),
    "count-unaligned-rocksdb": Case(
        "checkpoint",
        backend="rocksdb",
        words=SLOW,
        conf={**UNALIGNED, **INCREMENTAL},
        parallelism=1,
        in_flight=True,
    ),
    "kinds-merging-hashmap": Case("checkpoint", KINDS, conf=MERGING, since=(1, 20)),
    "count-merging-incremental": Case(
        "checkpoint",
        backend="rocksdb",
        conf={**MERGING, **INCREMENTAL},
        parallelism=1,
        since=(1, 20),
    ),
    "count-unaligned-merging": Case(
        "checkpoint", words=SLOW, conf={**UNALIGNED, **MERGING}, in_flight=True, since=(1, 20)
    ),
    "count-forst-native": Case(
        "native", backend="forst", conf=INCREMENTAL, parallelism=1, since=(2, 0)
    ),
    "count-forst-checkpoint": Case(
        "checkpoint", backend="forst", conf=INCREMENTAL, parallelism=1, since=(2, 0)
    ),
    "sql-canonical-hashmap": Case("canonical", SQL),
    "sql-native-incremental": Case("native", SQL, "rocksdb", conf=INCREMENTAL, parallelism=1),
    "sql-plan": Case("canonical", SQL, words=("--plan", "true"), in_flight=True),
    "typed-canonical": Case("canonical", TYPED, since=(1, 20)),
    "typed-native-hashmap": Case("native", TYPED, since=(1, 20)),
    "tables-canonical": Case("canonical", TABLES, parallelism=1, since=(1, 20)),
    "tables-native-hashmap": Case("native", TABLES, parallelism=1, since=(2, 3)),
}


def case_of(name: str, version: str) -> Case:
    case = CASES[name]
    if parts(version) >= (1, 20):
        return case
    return (
        replace(case, words=case.words[len(NULLS) :]) if case.words[: len(NULLS)] == NULLS else case
    )


def parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
