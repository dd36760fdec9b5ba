"""Keys of joins without index or time: the same bytes as the key that stands alone."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stateshift.engines.spark.check.joins import row_and_last, row_and_time
from stateshift.engines.spark.entries.encoders import Encoder
from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.formats.blocks import binary
from stateshift.formats.spark.types import Atomic, DataType, DecimalType, StructType
from tests.engines.spark.golden import NAMES, golden

KINDS: tuple[DataType, ...] = (
    Atomic("string"),
    Atomic("long"),
    DecimalType(20, 2),
    Atomic("binary"),
)


def row(values: list[Any]) -> bytes:
    """An UnsafeRow of numbers and byte strings; a decimal's bytes always have room for 16."""
    count = len(values)
    nulls, slots, rest = 0, b"", b""
    for at, (kind, value) in enumerate(values):
        offset = 8 * ((count + 63) // 64) + 8 * count + len(rest)
        if isinstance(kind, DecimalType):
            slots += struct.pack("<II", len(value or b""), offset)
            rest += (value or b"").ljust(16, b"\0")
        elif value is None or kind == Atomic("long"):
            slots += struct.pack("<q", value or 0)
        else:
            slots += struct.pack("<II", len(value), offset)
            rest += value + bytes(-len(value) % 8)
        nulls |= (value is None) << at
    return struct.pack("<Q", nulls) + slots + rest


def values_of_kind(kind: DataType) -> st.SearchStrategy[Any]:
    return st.none() | (
        st.integers(-(1 << 63), (1 << 63) - 1) if kind == Atomic("long") else st.binary(max_size=16)
    )


@given(st.data(), st.sampled_from(("plain", "row")))
def test_a_row_without_its_index_is_the_row_of_the_other_columns(
    data: st.DataObject, kind: Any
) -> None:
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    keys = data.draw(st.lists(st.tuples(*map(values_of_kind, kinds)), min_size=1, max_size=5))
    frame = b"" if kind == "plain" else b"\0"
    alone = [row(list(zip(kinds, key, strict=True))) for key in keys]
    indexed = [
        frame + row([*zip(kinds, key, strict=True), (Atomic("long"), at - 1)])
        for at, key in enumerate(keys)
    ]
    columns = StructType(tuple("abcdef"[: len(kinds) + 1]), (*kinds, Atomic("long")))
    split = row_and_last(
        StoreView("0", "s", columns, columns, Encoder(kind)), binary(indexed), last=True
    )
    assert split is not None
    assert split[0].to_pylist() == alone and split[1].tolist() == list(range(-1, len(keys) - 1))


@pytest.mark.parametrize("name", [name for name in NAMES if "/join" in name])
def test_the_stores_of_a_golden_join_have_the_same_keys(name: str) -> None:
    storage = golden(name)
    for image in survey(storage).images:
        views = views_of(storage, image)
        found: dict[tuple[str, int], set[bytes]] = {}
        for shard in image.shards:
            for store, block in fold_shard(storage.chunks, shard, image.settings):
                view = views.of(shard.operator, store)
                last = store.endswith("IndexToValue")
                split = row_and_last(view, block.keys, last)
                keys = split[0] if split is not None else row_and_time(view, block.keys)
                assert keys is not None
                found.setdefault((store.rpartition("/")[2], shard.shard), set()).update(
                    keys.to_pylist()
                )
        pairs = (("keyToNumValues", "keyWithIndexToValue"), ("keyWithTsToValues", "tsWithKey"))
        for side in ("left", "right"):
            for one, other in pairs:
                for number in range(8):
                    assert found.get((f"{side}-{one}", number)) == found.get(
                        (f"{side}-{other}", number)
                    )
        assert found
