"""Session windows' keys: whole as HDFS-backed has them, in two as RocksDB does. Pure.

    HDFS-backed  row of all columns, the session's start last
    RocksDB      i32LE size | 00 row of the columns without it | 00 row of it  (a prefix, for scans)

    on its way     options["sessions"]: "<operator>/<store>" -> StructType JSON of the key

Every other key of one row is the same for both providers but for the byte 00 (see
`shards.frame_rows`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from stateshift.engines.spark.entries.encoders import bare, halves
from stateshift.engines.spark.entries.keys import is_session
from stateshift.engines.spark.layout import FRAME
from stateshift.engines.spark.rewrite.evolution import Bytes
from stateshift.engines.spark.rewrite.stores import StoreState, of_stores
from stateshift.formats.spark.row_change import cut_row, glue_rows
from stateshift.formats.spark.types import decode_struct


def sessions_of(stores: Iterable[StoreState]) -> dict[str, str]:
    """Return the schemas of stores whose keys a conversion cuts in two, or puts together."""
    schemas = {}
    for store in stores:
        for name, rule in (store.rules or {}).items():
            if is_session(decode_struct(rule.schema)):
                schemas[f"{store.operator}/{name}"] = rule.schema
    return schemas


def of_operator(sessions: Mapping[str, str], operator: str, parting: bool) -> dict[str, Bytes]:
    """Return the functions that make a key of one provider that of the other, by store of an
    operator.
    """
    make: Callable[[str], Bytes] = rocksdb_key_maker if parting else whole
    return {store: make(schema) for store, schema in of_stores(sessions, operator).items()}


def rocksdb_key_maker(schema: str) -> Bytes:
    """Return the function that makes RocksDB's key of a row."""
    return partial(_part, cut_row(*_described(schema)))


def whole(schema: str) -> Bytes:
    """Return the function that makes a row of RocksDB's key."""
    return partial(_glue, glue_rows(*_described(schema)))


def _described(schema: str) -> tuple[dict[str, object], int]:
    plain = json.loads(schema)
    return plain, len(plain["fields"]) - 1


def _part(cut_row: Callable[[bytes], tuple[bytes, bytes]], key: bytes) -> bytes:
    first, rest = cut_row(key)
    return (len(first) + 1).to_bytes(4, "little") + FRAME + first + FRAME + rest


def _glue(glue_rows: Callable[[bytes, bytes], bytes], key: bytes) -> bytes:
    first, rest = halves(key)
    return glue_rows(first, bare(rest))
