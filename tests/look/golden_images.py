"""Golden checkpoints as places on a disk in memory, and what Spark itself reads in them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from stateshift import look
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import MemoryDisk
from tests.formats.golden import CASES, expected
from tests.support.checkpoints import put

HERE = "file:///here/orders"
# Those whose every store Spark reads as it lies there; others it reads by state variable (see
# test_images).
STATEFUL = [
    case
    for case in CASES
    if expected(case)["stores"] and all("store" in s for s in expected(case)["stores"])
]
NEWEST = {case.name: case for case in CASES if case.parent.name == "spark-4.3.0"}


def on_a_disk(case: Path, location: str = HERE, disk: MemoryDisk | None = None) -> MemoryDisk:
    """The case's checkpoint at the location."""
    disk = disk or MemoryDisk()
    write(disk.open(location), contents(case))
    return disk


def disk_with(files: dict[str, bytes]) -> MemoryDisk:
    """Files as a checkpoint that was made HERE."""
    disk = MemoryDisk()
    write(disk.open(HERE), files)
    return disk


def judged(files: dict[str, bytes]) -> look.Judgement:
    """What `verify --deep` says of such a checkpoint."""
    return look.restartable(HERE, disk_with(files).open, thorough=True)


def contents(case: Path) -> dict[str, bytes]:
    root = case / "checkpoint"
    return {
        p.relative_to(root).as_posix(): p.read_bytes()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def write(storage: Storage, files: dict[str, bytes]) -> None:
    """Write files as a checkpoint that was made there."""
    for path, content in files.items():
        put(storage, path, made_at(storage.location, path, content))


def made_at(location: str, path: str, content: bytes) -> bytes:
    """Return a file of a checkpoint that was made at the location: metadata names it."""
    if "/_metadata/v2/" not in path:
        return content
    named = rb'"[a-z0-9]+:/[^"]*(/state/[0-9]+/_stateSchema/)'
    return re.sub(named, b'"' + location.encode() + rb"\1", content)


Rows = dict[tuple[str, str], list[Any]]


def by_spark(case: Path) -> Rows:
    """(operator, store) -> sorted [shard, key, value], one for each item of a list."""
    return {
        (s["operator"], s["store"]): sorted(s["rows"], key=repr) for s in expected(case)["stores"]
    }


def as_spark_reads(case: Path, found: Rows) -> Rows:
    """Of groups with state format 1, Spark's reader believes the schema, which calls the timeout an
    integer: it takes the lower half of the long that is there, and we take all of it.
    """
    if not (case.name.startswith("groups-") and case.name.endswith("-v1")):
        return found
    return {
        place: [[shard, key, [*value[:-1], _low_half(value[-1])]] for shard, key, value in rows]
        for place, rows in found.items()
    }


def _low_half(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def from_json(lines: list[dict[str, Any]]) -> Rows:
    """The same from JSON lines."""
    places = ((line["operator"], line["store"], line["shard"]) for line in lines)
    rows = ((_bare(line["key"]), _bare(line["value"])) for line in lines)
    return _by_store((*place, *row) for place, row in zip(places, rows, strict=True))


def from_arrow(table: pa.Table) -> Rows:
    """The same from Arrow's columns."""
    columns = (
        table.column(name).combine_chunks()
        for name in ("operator", "store", "shard", "key", "value")
    )
    return _by_store(map(_scalar, row) for row in zip(*columns, strict=True))


def _by_store(rows: Iterable[Iterable[Any]]) -> Rows:
    found: Rows = {}
    for operator, store, shard, key, value in rows:
        listed = store.endswith(("-keyWithTsToValues", "-tsWithKey"))
        found.setdefault((operator, store.rpartition("/")[2]), []).extend(
            [shard, key, item] for item in (value if listed else [value])
        )
    return {store: sorted(rows, key=repr) for store, rows in found.items()}


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return value["hex"] if value.keys() == {"hex"} else [_bare(item) for item in value.values()]
    return [_bare(item) for item in value] if isinstance(value, list) else value


def _scalar(value: Any) -> Any:
    if not value.is_valid:
        return None
    match value:
        case pa.StructScalar():
            return [_scalar(item) for item in value.values()]
        case pa.MapScalar():
            return [[_scalar(pair["key"]), _scalar(pair["value"])] for pair in value.values]
        case pa.ListScalar():
            return [_scalar(item) for item in value.values]
        case pa.TimestampScalar() | pa.Date32Scalar() | pa.DurationScalar():
            return value.value
        case pa.BinaryScalar() if not isinstance(value, pa.StringScalar):
            return value.as_py().hex()
        case pa.Decimal128Scalar():
            return str(value.as_py())
    return value.as_py()
