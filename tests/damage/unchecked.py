"""What no checksum covers, so that damage there may go unseen: what excuses a yes, if `verify` says so.

    no_checksum(golden, damaged)    the class of such damage; None where something in the format tells
    is_named(findings)              whether the verdict names what it could not check

An entry stands here only if the engine itself would not notice either, or notices and refuses later than a yes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from stateshift.formats.spark.compression import codec_of
from tests.damage.images import GoldenImage
from tests.damage.known import EXPORT_ASKS_NO_CRC
from tests.damage.mutations import Damaged

_LOGS = {"offsets", "commits", "sources", "query id", "operator metadata", "schema"}
_FRAMED = {"delta", "snapshot", "changelog"}
# zip entries have a CRC of their own, tables one a block, Spark's checksums are compared.
_CHECKED = {"zip", "sst", "Spark's checksum"}
_FLINK = {"_metadata", "keyed stream", "operator stream", "raw keyed", "raw operator", "channels", "changelog",
          "backend's metadata"}  # fmt: skip
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
        return f"another {role} in its place" if damaged.action == "epochs" else None
    if role in _FRAMED and codec_of(golden.files[damaged.path]) != "lz4":
        return f"{codec_of(golden.files[damaged.path])} without checksums"
    return None


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
    neither knows where the file belongs nor looks beside it. Files that changed places are whole."""
    if golden.engine == "flink" or damaged.other is not None:
        return False
    beside = EXPORT_ASKS_NO_CRC and f"{damaged.path}.crc" in golden.files
    return not beside and no_checksum(golden, damaged) is None


def is_named(findings: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a note says that there is content without a checksum."""
    return any(
        one["level"] == "note" and re.search(r"no checksum", one["message"]) for one in findings
    )
