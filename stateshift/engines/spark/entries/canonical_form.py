"""Entries in the form in which two images can be compared: the same for the same state, whoever
holds it. Pure.

    providers alike   the bytes of key and value, as the provider has them
    providers differ  the bare rows: RocksDB's encoding byte taken off
                      composite keys (prefixes, ranges, times), which only RocksDB has: the
                      columns, as JSON
    lists             the bare rows one after the other, whatever the merge operator puts between
                      them

A store of column families is called by its family: `left-keyToNumValues` is a store of its own on
the HDFS-backed provider and under join state format 2, and a family of the store `default` under
format 3.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from stateshift.engines.spark.entries.encoders import PLAIN, Encoder, bare, rows_of_list
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.formats.binaries import without_first
from stateshift.formats.blocks import Binary, binary
from stateshift.formats.spans import spans

Change = Callable[[Binary], Binary]
Show = Callable[[bytes], object]


@dataclass(frozen=True, slots=True)
class Form:
    """How one side's bytes are brought into the common form, and shown when they are in it."""

    key: Change
    value: Change
    show_key: Show
    show_value: Show


def common_name(store: str) -> str:
    """Return the name that both images give the store."""
    return store.rpartition("/")[2]


def forms(one: StoreView, other: StoreView, alike: bool) -> tuple[Form, Form] | str:
    """Return both sides' forms, or why there are none. `alike`: one provider has written both."""
    if one.many != other.many:
        return "its values are lists in one image and single rows in the other"
    if alike and one.encoder == other.encoder:
        return _as_it_is(one), _as_it_is(other)
    if not one.known or not other.known:
        return "its schema is not known in both images, and they encode rows differently"
    if one.encoder.avro != other.encoder.avro:
        return "its rows are Avro's in one image only"
    if _is_single_row(one.encoder) and _is_single_row(other.encoder):
        return _bared(one), _bared(other)
    if one.key != other.key:
        return "its keys have other columns, and are encoded differently"
    return _decoded(one), _decoded(other)


def _is_single_row(encoder: Encoder) -> bool:
    return encoder.kind in ("plain", "row")


def _as_it_is(view: StoreView) -> Form:
    value = _rows(view) if view.many else _same
    return Form(_same, value, view.show_key, _show_value(view))


def _bared(view: StoreView) -> Form:
    plain = replace(view, encoder=PLAIN)
    key = _same if view.encoder == PLAIN else _bare
    return Form(key, _bare_value(view), plain.show_key, _show_value(plain))


def _decoded(view: StoreView) -> Form:
    plain = replace(view, encoder=PLAIN)
    key = _each(lambda content: json.dumps(view.named_key(view.decode_key(content))).encode())
    return Form(key, _bare_value(view), json.loads, _show_value(plain))


def _same(items: Binary) -> Binary:
    return items


def _bare(items: Binary) -> Binary:
    """Return rows without the byte that RocksDB's encoding puts before each."""
    rows = spans(items)
    if (rows.sizes < 1).any() or rows.content[rows.starts].any():
        return _each(bare)(items)  # which says what is wrong
    return without_first(items, 1)


def _each(change: Callable[[bytes], bytes]) -> Change:
    return lambda items: binary([change(item) for item in items.to_pylist()])


def _bare_value(view: StoreView) -> Change:
    if view.many:
        return _rows(view)
    return _same if view.encoder == PLAIN else _bare


def _rows(view: StoreView) -> Change:
    """Return a list as (i32LE size | 00 | row)*, which is the form without a delimiter."""

    def joined(content: bytes) -> bytes:
        rows = rows_of_list(content, view.delimiter)
        return b"".join((len(row) + 1).to_bytes(4, "little") + b"\0" + row for row in rows)

    return _each(joined)


def _show_value(view: StoreView) -> Show:
    return replace(view, delimiter=b"").show_value if view.many else view.show_value
