"""One shard's state written anew: entries in, the files of one version out. Pure.

    HDFS-backed    N.snapshot                          every entry
    RocksDB        N-1.zip, holding no tables          an empty version, onto which Spark replays
                   N.changelog                         a put of every entry; v1, or v2 with column families,
                                                       v3 or v4 under checkpoint format 2

RocksDB makes the missing database itself, so nothing of its own format has to be written: seen on Spark 3.5.9, 4.1.4
and 4.3.0; 3.3 and 3.4 know no changelogs. Version 1 has none before it, so its changelog stands alone.

An entry is (store, key, value) as `entries` gives it: without a column family's id and without row checksums. Both are
put on here, in the numbers of the shard that is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.spark.crc import crc32c
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, encode_zip
from stateshift.formats.spark.state_files import (
    Changelog,
    Record,
    encode_changelog,
    encode_delta,
    with_row_checksum,
)
from stateshift.formats.spark.text import decode_object, encode_object

HDFS, ROCKSDB = "hdfs-backed", "rocksdb"
FRAME = b"\0"  # RocksDB's version of the encoding, before every row


class Item(NamedTuple):
    """An entry on its way: its store with the column family, and what the engine compares."""

    store: str
    key: bytes
    value: bytes


def snapshot(items: Iterable[Item], codec: str, checksums: bool) -> Iterator[bytes]:
    """`N.snapshot` of an HDFS-backed store."""
    records = (Record(item.key, item.value) for item in items)
    return encode_delta((with_row_checksum(record) for record in records) if checksums else records, codec)


def changelog(
    items: Iterable[Item],
    families: Mapping[str, int],
    lineage: tuple[tuple[int, str], ...],
    codec: str,
    checksums: bool,
) -> Iterator[bytes]:
    """`N.changelog` of a RocksDB store. `lineage` is the version before and its id, under checkpoint format 2."""
    version = (2 if families else 1) + (2 if lineage else 0)
    return encode_changelog(Changelog(version, lineage), (_put(item, families, checksums) for item in items), codec)


def empty_version(base: RocksDBSnapshot | None) -> bytes:
    """`N-1.zip`: no tables, and the column families of `base`."""
    plain: dict[str, Any] = decode_object(base.text, "a RocksDB snapshot") if base and base.text else {}
    plain |= {"sstFiles": [], "numKeys": 0}
    if "numInternalKeys" in plain:
        plain["numInternalKeys"] = 0
    return encode_zip(RocksDBSnapshot((), 0, text=encode_object(plain)))


def united(bases: Iterable[RocksDBSnapshot]) -> RocksDBSnapshot | None:
    """One version's column families for the entries of several shards: those of the first, and what only others have
    under ids of their own."""
    first: RocksDBSnapshot | None = None
    plain: dict[str, Any] = {}
    for base in bases:
        if first is None:
            first, plain = base, decode_object(base.text, "a RocksDB snapshot")
            continue
        other = decode_object(base.text, "a RocksDB snapshot")
        ids = plain.setdefault("columnFamilyMapping", {})
        for name in sorted(base.families.keys() - ids.keys()):
            ids[name] = max(ids.values(), default=0) + 1
            plain.setdefault("columnFamilyTypeMap", {})[name] = other.get("columnFamilyTypeMap", {}).get(name, False)
        if ids:
            plain["maxColumnFamilyId"] = max(ids.values())
    families = plain.get("columnFamilyMapping", {})
    return None if first is None else RocksDBSnapshot((), 0, families, encode_object(plain))


def framed(item: Item) -> Item:
    """A row of an HDFS-backed store as RocksDB holds it."""
    return Item(item.store, FRAME + item.key, FRAME + item.value)


def unframed(item: Item) -> Item:
    """The inverse, for stores whose keys and values are single rows."""
    if item.key[:1] != FRAME or item.value[:1] != FRAME:
        raise FormatError(f"an entry of {item.store} does not begin with RocksDB's encoding byte 00")
    return Item(item.store, item.key[1:], item.value[1:])


def _put(item: Item, families: Mapping[str, int], checksums: bool) -> Record:
    key = item.key
    if families:
        name = item.store.rpartition("/")[2]
        if name not in families:
            raise FormatError(f"an entry of the column family {name}, which has no id")
        key = families[name].to_bytes(2, "little") + key
    return Record(key, _checked(key, item.value) if checksums else item.value)


def _checked(key: bytes, payload: bytes) -> bytes:
    """With row checksums: i32LE crc32c(key, payload) | i32LE size | payload, the key with its family's id."""
    return crc32c(payload, crc32c(key)).to_bytes(4, "little") + len(payload).to_bytes(4, "little") + payload
