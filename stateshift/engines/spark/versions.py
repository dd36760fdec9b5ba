"""The bounds between versions of Spark: what each one began to write, to read and to have.

All of them stand here, so that a new Spark is a change of this module, of the `VERSIONS` beside
the codecs of `formats/spark`, and of golden images: see "Support a new version" on the room's
page. A Spark is its first two numbers. Read off real checkpoints and Spark's sources, and held
against real Sparks by `tests/matrix.md` and `tests/versions.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

Version = tuple[int, ...]

NEWEST = "4.3"

# The settings that the offset log records, by the version that began to: 3.3.4 to 4.3.0.
RECORDED_SINCE = (
    ("4.3", "spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled"),
    ("4.2", "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion"),
    ("4.0", "spark.sql.streaming.stateStore.encodingFormat"),
    ("3.5", "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"),
    ("3.3", "spark.sql.streaming.statefulOperator.useStrictDistribution"),
)
RECORDED_BEFORE = "before 3.3"

# The beginning of an operator's name -> its name in a job's code, and the first Spark that has it.
OPERATORS: Mapping[str, tuple[str, Version]] = {
    "transformWithState": ("transformWithState", (4, 0)),
    "dedupeWithinWatermark": ("dropDuplicatesWithinWatermark", (3, 5)),
    "applyInPandasWithState": ("applyInPandasWithState", (3, 4)),
    "StatefulStreamlineAggregate": ("an aggregation in real-time mode", (4, 3)),
}
# The state format of a join -> the first Spark that reads it.
JOINS: Mapping[str, Version] = {"3": (4, 1), "4": (4, 3)}
# State that an older Spark wrote with other bytes for some operators is refused since.
OLD_STATE_REFUSED: Version = (3, 0)
OFFSETS_2: Version = (4, 2)  # the offset log that names its sources
ROW_CHECKSUMS: Version = (4, 2)
# Spark of these versions expects a comma between the merged values of a list state; later ones
# write none.
LIST_COMMAS: tuple[Version, Version] = ((4, 0), (4, 2))

CHANGELOGS: Version = (3, 5)  # of RocksDB
TABLES_WITH_XXH3: Version = (3, 4)  # RocksDB's checksums that Spark 4 writes
ROCKSDB_FORMAT_MAX = 6  # `format_version` of RocksDB's tables, as a setting: 4.3 opens 0 to 6
# Checkpoint format 2: read at all, with an operator of one partition, and without being told.
FORMAT_2: Version = (4, 0)
FORMAT_2_SINGLE: Version = (4, 1)
FORMAT_2_FOUND: Version = (4, 3)


def numbers_of(version: str | None) -> Version:
    """Return (4, 3) for 4.3.0, and for `4.3 or later`; nothing where it is not known."""
    parts = (version or "").split(" ")[0].split(".")[:2]
    has_both = len(parts) == 2 and all(map(str.isdecimal, parts))
    return tuple(map(int, parts)) if has_both else ()


def is_4_0(version: str) -> bool:
    """Whether this is a version of Spark 4.0, which numbers the zips of format 2 otherwise."""
    return numbers_of(version) == (4, 0)


def oldest_writer(settings: Mapping[str, str]) -> str | None:
    """Return the oldest Spark that could have written the last offsets."""
    for version, key in RECORDED_SINCE:
        if key in settings:
            return f"{version} or later"
    return RECORDED_BEFORE if settings else None
