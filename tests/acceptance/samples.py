"""What the tests take of the matrix: a few combinations of kind, provider and change; with --full a
dozen, and a dozen damaged checkpoints of the same bases.
"""

from __future__ import annotations

from tests.acceptance.matrix.damage import WITHOUT, Damage
from tests.acceptance.matrix.kinds import NEWEST, Base, Cell


def _cells(*named: tuple[str, str, str]) -> list[Cell]:
    return [Cell(Base(NEWEST, kind, provider), change) for kind, provider, change in named]


CELLS_BY_DEFAULT = _cells(
    ("window-2", "hdfs", "split"),
    ("totals", "hdfs", "merge"),
    ("timed", "rocksdb-changelog", "repartition 3 to 2"),
)

CELLS = CELLS_BY_DEFAULT + _cells(
    ("limited", "rocksdb-changelog", "rename and drop operators"),
    ("window-2", "hdfs", "compact"),
    ("window-1", "rocksdb-changelog", "convert provider"),
    ("session", "rocksdb", "repartition 3 to 2"),
    ("unique", "hdfs", "convert provider"),
    ("distinct", "rocksdb-changelog-format2", "repartition 3 to 2"),
    ("join-2", "hdfs", "repartition 3 to 5"),
    ("join-4", "rocksdb-changelog", "repartition 3 to 5"),
    ("pandas", "hdfs", "repartition 3 to 5"),
    ("expiring", "rocksdb-changelog", "compact"),
    ("chained", "rocksdb-changelog", "rewind"),
    ("join-4", "rocksdb-changelog", "import"),
    ("session", "rocksdb", "import"),
)

DAMAGES = [
    Damage(Base(NEWEST, kind, provider), action, role)
    for kind, provider, action, role in (
        ("window-2", "hdfs", "flip a bit", "newest changes"),
        ("window-2", "hdfs", "gone", "first changes"),
        ("window-2", "hdfs", "swapped with another shard's", "first changes"),
        ("window-2", "hdfs", "gone", "offsets before"),
        ("window-2", "hdfs", "gone", "old offsets"),
        ("window-2", "hdfs", "gone", "query id"),
        ("window-2", "hdfs", "another digit", "last commit"),
        ("window-2", "hdfs", "cut short", "operator's metadata"),
        ("session", "rocksdb", "stale .crc of Hadoop", "snapshot"),
        ("session", "rocksdb", "flip a bit" + WITHOUT, "table"),
        ("session", "rocksdb", "gone", "older snapshot"),
        ("join-4", "rocksdb-changelog", "cut short", "newest changes"),
        ("distinct", "rocksdb-changelog-format2", "flip a bit", "Spark's checksum"),
    )
]
