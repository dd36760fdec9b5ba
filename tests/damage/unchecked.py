"""What no checksum covers, so that damage there may go unseen: what excuses a yes, if `verify` says
so.

    no_checksum(golden, damaged)  the class of such damage; None where something in the format tells
    is_named(findings)            whether the verdict names what it could not check

An entry stands here only if the engine itself would not notice either, or notices and refuses later
than a yes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stateshift.formats.spark.compression import codec_of
from stateshift.formats.spark.schema import decode_schema
from tests.damage.images import GoldenImage
from tests.damage.mutations import Damaged

_LOGS = {"offsets", "commits", "sources", "query id", "operator metadata", "schema"}
_FRAMED = {"delta", "snapshot", "changelog"}
# zip entries have a CRC of their own, tables one a block, Spark's checksums are compared.
_CHECKED = {"zip", "sst", "Spark's checksum"}
_FLINK = {
    "_metadata",
    "keyed stream",
    "operator stream",
    "raw keyed",
    "raw operator",
    "channels",
    "changelog",
    "backend's metadata",
}
_ROCKSDB_TEXT = {"OPTIONS"}


def no_checksum(golden: GoldenImage, damaged: Damaged) -> str | None:
    """The class of damage that nothing in the format tells; None where something does."""
    role = golden.role_of(damaged.path)
    if golden.engine == "flink":
        return _of_flink(role, damaged)
    if f"{damaged.path}.crc" in golden.files and damaged.path in damaged.files:
        return None
    if role in _LOGS:
        return "text of a log"
    if damaged.other is not None and role in (*_FRAMED, "zip"):
        unseen = damaged.action == "epochs" or have_like_columns(
            golden, damaged.path, damaged.other
        )
        return f"another {role} in its place" if unseen else None
    if role in _FRAMED and codec_of(golden.files[damaged.path]) != "lz4":
        return f"{codec_of(golden.files[damaged.path])} without checksums"
    return None


def have_like_columns(golden: GoldenImage, path: str, other: str) -> bool:
    """Whether two files are of different stores of Spark, with columns of the same types."""
    one, another = _store_of(golden, path), _store_of(golden, other)
    if one == another:
        return False
    types = _types_of_rows(golden, one)
    return types is not None and types == _types_of_rows(golden, another)


def _store_of(golden: GoldenImage, path: str) -> str:
    """The folder in which the store of a state file has its schema: that of shard 0."""
    folder = path.removeprefix(f"{golden.location}/").rpartition("/")[0]
    return re.sub(r"^state/(\d+)/\d+", r"state/\1/0", folder)


def _types_of_rows(golden: GoldenImage, store: str) -> tuple[Any, ...] | None:
    """The types of a store's key and value; None where its schema stands elsewhere."""
    content = golden.files.get(f"{golden.location}/{store}/_metadata/schema")
    if content is None:
        return None
    (schema,) = decode_schema(content).stores
    return tuple(_without_names(json.loads(text)) for text in (schema.key, schema.value))


def _without_names(type_: Any) -> Any:
    if isinstance(type_, dict) and type_.get("type") == "struct":
        return [_without_names(field["type"]) for field in type_["fields"]]
    return type_


def _of_flink(role: str, damaged: Damaged) -> str | None:
    if damaged.path not in damaged.files:
        return None
    if role in _ROCKSDB_TEXT:
        return "RocksDB's options"
    if role in _FLINK:
        return {"_metadata": "Flink's metadata"}.get(role, f"Flink's {role}")
    return None


def bytes_are_covered(golden: GoldenImage, damaged: Damaged) -> bool:
    """Whether a checksum inside of the file is over the damaged bytes: what a reader notices that
    neither knows where the file belongs nor looks beside it. Files that changed places are whole.
    """
    if golden.engine == "flink" or damaged.other is not None:
        return False
    return no_checksum(golden, damaged) is None


def is_named(findings: Iterable[Mapping[str, Any]], golden: GoldenImage, damaged: Damaged) -> bool:
    """Whether a note says that there is content without a checksum, or of which store no
    checksum tells.
    """
    of_store = (
        golden.engine == "spark"
        and damaged.action == "operators"
        and golden.role_of(damaged.path) in _FRAMED
    )
    words = r"no checksum.* nor of which store" if of_store else r"no checksum"
    return any(one["level"] == "note" and re.search(words, one["message"]) for one in findings)
