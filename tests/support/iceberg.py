"""Iceberg tables as files: metadata, manifest lists and manifests, written by an encoder of ours.
Real ones are read in tests/acceptance.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MARK = b"0123456789abcdef"
LIST = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        {"name": "manifest_path", "type": "string"},
        {"name": "manifest_length", "type": "long"},
        {"name": "content", "type": "int"},
        {"name": "partitions", "type": ["null", {"type": "array", "items": "int"}]},
    ],
}
MANIFEST = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        {"name": "status", "type": "int"},
        {
            "name": "data_file",
            "type": {
                "type": "record",
                "name": "r2",
                "fields": [
                    {"name": "file_path", "type": "string"},
                    {"name": "record_count", "type": "long"},
                    {"name": "file_size_in_bytes", "type": "long"},
                ],
            },
        },
    ],
}


def number(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*out, left))


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


def avro(schema: Mapping[str, Any], values: Sequence[bytes], codec: str = "deflate") -> bytes:
    """A file of Avro with one block."""
    head = b"Obj\x01" + number(2)
    head += text("avro.schema") + text(json.dumps(schema)) + text("avro.codec") + text(codec)
    block = b"".join(values)
    if codec == "deflate":
        packer = zlib.compressobj(wbits=-15)
        block = packer.compress(block) + packer.flush()
    return head + b"\0" + MARK + number(len(values)) + number(len(block)) + block + MARK


@dataclass(frozen=True)
class Made:
    """A snapshot: its id, and the files that it adds, with their numbers of records."""

    id: int
    files: Mapping[str, int]
    operation: str = "append"
    time_ms: int = 0


def write_table(
    put: Callable[[str, bytes], None],
    at: str,
    table_id: str,
    snapshots: Sequence[Made],
    expired: int = 0,
    **metadata: Any,
) -> None:
    """A table of these snapshots, one after the other; the first ones `expired`."""
    written: list[dict[str, Any]] = []
    files: dict[str, int] = {}
    for sequence, made in enumerate(snapshots, 1):
        if made.operation == "replace":
            files = {}
        files |= made.files
        entries = []
        for name, records in files.items():
            file = text(f"{at}/data/{name}") + number(records) + number(10 * records)
            entries.append(number(1) + file)
        manifest = f"{at}/metadata/m-{made.id}.avro"
        put(manifest, avro(MANIFEST, entries))
        item = text(manifest) + number(1) + number(0) + number(1)
        # a count of items that is negative is followed by their size
        item += number(-2) + number(2) + number(3) + number(4) + number(0)
        put(f"{at}/metadata/snap-{made.id}.avro", avro(LIST, [item], "null"))
        summary = {
            "operation": made.operation,
            "added-data-files": str(len(made.files)),
            "total-data-files": str(len(files)),
            "total-records": str(sum(files.values())),
            "total-delete-files": "0",
        }
        written.append(
            {
                "snapshot-id": made.id,
                **({"parent-snapshot-id": snapshots[sequence - 2].id} if sequence > 1 else {}),
                "sequence-number": sequence,
                "timestamp-ms": made.time_ms or 1000 * sequence,
                "manifest-list": f"{at}/metadata/snap-{made.id}.avro",
                "summary": summary,
            }
        )
    plain = {
        "format-version": 2,
        "table-uuid": table_id,
        "location": at,
        "current-snapshot-id": snapshots[-1].id,
        "snapshots": written[expired:],
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": [{"id": 1, "name": "id", "type": "long"}]}],
        **metadata,
    }
    put(f"{at}/metadata/v{len(written)}.metadata.json", json.dumps(plain).encode())
    put(f"{at}/metadata/version-hint.text", str(len(written)).encode())
