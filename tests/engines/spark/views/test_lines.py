"""JSON lines made many at once are those made one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.entries.store_view import plain_value
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.entries.vectors import arrow_type, fits
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.engines.spark.views import json_lines as lines
from stateshift.engines.spark.views.json_lines import StoreRows, texts
from stateshift.formats.spark.types import ArrayType, Atomic, MapType, StructType
from tests.engines.spark.golden import NAMES, golden


@pytest.mark.parametrize("name", NAMES)
def test_golden_state_is_the_same_text_either_way(name: str) -> None:
    storage = golden(name)
    for image in survey(storage).images:
        views = views_of(storage, image)
        for shard in image.shards:
            for store, block in fold_shard(storage.chunks, shard, image.settings):
                piece = StoreRows(views.of(shard.operator, store), "0", shard.shard, block, "path")
                together = lines._together(piece)
                if together is not None:
                    assert together.decode() == "".join(lines._one_by_one(piece))


FLOATS = st.floats(width=32) | st.sampled_from((float("nan"), float("inf"), -0.0, 1e30))
KIND = StructType(
    ("s", "d", "b", "s", "i", "l", "m"),
    (
        Atomic("string"),
        Atomic("double"),
        Atomic("boolean"),
        Atomic("binary"),
        StructType(("n",), (Atomic("long"),)),
        ArrayType(Atomic("string")),
        MapType(Atomic("long"), Atomic("string")),
    ),
)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.tuples(
    st.none() | st.text(max_size=9),
    st.none() | FLOATS,
    st.none() | st.booleans(),
    st.none() | st.binary(max_size=5),
    st.none() | st.tuples(st.none() | LONGS),
    st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3),
    st.none() | st.lists(st.tuples(LONGS, st.none() | st.text(max_size=3)), max_size=3),
)


@settings(deadline=None)
@given(st.lists(st.none() | ROWS, min_size=1, max_size=8))
def test_columns_are_the_text_that_json_makes_of_rows(rows: list[Any]) -> None:
    kind = arrow_type(KIND)
    plain = [
        None if row is None else dict(zip((f.name for f in kind), _inner(row), strict=True))
        for row in rows
    ]
    found = texts(pa.array(plain, kind), KIND)
    assert found is not None
    assert found.to_pylist() == [
        json.dumps(plain_value(row, KIND), ensure_ascii=False) for row in rows
    ]


def _inner(row: Any) -> Any:
    return (*row[:4], None if row[4] is None else {"n": row[4][0]}, *row[5:])


def test_types_that_are_left_to_the_other_way_are_known() -> None:
    assert fits(KIND) and not fits(ArrayType(Atomic("calendar"))) and not fits(Atomic("variant"))
