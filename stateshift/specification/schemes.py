"""The schemes of URLs: one table, a row for each. Pure.

It is below the storages, since specs, clusters and engines read it as well as they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme. The defaults hold for one that the table does not have."""

    name: str
    file_system: str  # one word for all names of the same file system
    service: str  # which kind of storage is behind it
    opened_by: Literal["local", "hdfs", "fsspec"] = "fsspec"
    # The connector that Spark needs for it: "" for none. None: Spark has no file system for it.
    connector: str | None = ""
    known_to_hadoop: bool = True
    everywhere_alike: bool = False  # every machine that reaches it sees the same


_S3A: Final = "hadoop-aws"
_AZURE: Final = "hadoop-azure"

_ROWS: Final = (
    Scheme("file", "file", "file", "local"),
    Scheme("hdfs", "hdfs", "hdfs", "hdfs", everywhere_alike=True),
    Scheme("webhdfs", "webhdfs", "hdfs", "hdfs"),
    Scheme("swebhdfs", "swebhdfs", "hdfs", "hdfs"),
    Scheme("viewfs", "viewfs", "hdfs", everywhere_alike=True),
    # Hadoop's name is s3a. Amazon's own (EMR) is s3, s3n is of old, s3p is Flink's alone (Presto's
    # file system).
    Scheme("s3", "s3", "s3", connector=None, everywhere_alike=True),
    Scheme("s3a", "s3", "s3", connector=_S3A, everywhere_alike=True),
    Scheme("s3n", "s3", "s3", connector=None, everywhere_alike=True),
    Scheme("s3p", "s3", "s3", connector=None, known_to_hadoop=False),
    Scheme("gs", "gs", "gcs", connector="the GCS connector", everywhere_alike=True),
    Scheme("gcs", "gs", "gcs", connector=None),
    Scheme("abfs", "abfs", "azure", connector=_AZURE, everywhere_alike=True),
    Scheme("abfss", "abfs", "azure", connector=_AZURE, everywhere_alike=True),
    Scheme("az", "az", "azure", connector=None),
    Scheme("adl", "adl", "adl", connector=None),
    Scheme("wasb", "wasb", "wasb", connector=_AZURE),
    Scheme("wasbs", "wasbs", "wasb", connector=_AZURE, everywhere_alike=True),
    Scheme("oss", "oss", "oss", connector="hadoop-aliyun"),
    Scheme("cosn", "cosn", "cosn", connector="hadoop-cos"),
    Scheme("sftp", "sftp", "ssh"),
    Scheme("ssh", "ssh", "ssh"),
    Scheme("memory", "memory", "memory", connector=None),
)
SCHEMES: Final[Mapping[str, Scheme]] = MappingProxyType({row.name: row for row in _ROWS})


def scheme_named(name: str) -> Scheme:
    """Return the row of a scheme, or one of defaults if the table has none."""
    return SCHEMES.get(name) or Scheme(name, name, name)


def names_of_service(service: str) -> tuple[str, ...]:
    """Return every scheme of a kind of storage."""
    return tuple(row.name for row in _ROWS if row.service == service)


def names_in_hadoop(name: str) -> tuple[str, ...]:
    """Return every name that Hadoop has for the file system of a scheme."""
    row = SCHEMES.get(name)
    if row is None or not row.known_to_hadoop:
        return (name,)
    same = [other for other in _ROWS if other.file_system == row.file_system]
    return tuple(other.name for other in same if other.known_to_hadoop)
