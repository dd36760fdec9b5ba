"""Keys and values whose rows are Avro's, taken apart; what Spark writes is in test_images, cases
`tws-avro…`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateshift.engines.spark.entries.encoders import Encoder, avro_rows_of
from stateshift.engines.spark.entries.sides import forms
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.spark.types import Atomic, StructType
from tests.engines.spark.golden import golden
from tests.support.entries import entries

LONG, STRING = Atomic("long"), Atomic("string")
TWO = StructType(("a", "b"), (LONG, STRING))
ONE, OTHER = b"\2\2", b"\2\2x"  # 1, "x"
PREFIXED = (1 + len(ONE)).to_bytes(4, "little") + b"\0" + ONE
MARKED = b"\0\2\2\1\2\x10" + (1).to_bytes(8, "big")
RANGED = len(MARKED).to_bytes(4, "little") + MARKED
KEYS = [
    (Encoder("row", (), True), b"\0\0\0" + ONE + OTHER),
    (Encoder("prefix", (0,), True), PREFIXED + b"\0\0\0" + OTHER),
    (Encoder("range", (0,), True), RANGED + b"\0\0\0" + OTHER),
]


@pytest.mark.parametrize(("encoder", "content"), KEYS)
def test_a_key_is_taken_apart_and_no_shorter_or_longer_one_is_taken_for_it(
    encoder: Encoder, content: bytes
) -> None:
    decode = avro_rows_of(TWO, encoder, None, {}).key
    assert decode(content) == (1, "x")
    for wrong in (*(content[:end] for end in range(len(content))), content + b"\0"):
        with pytest.raises(FormatError):
            decode(wrong)


@pytest.mark.parametrize(("encoder", "content"), KEYS)
def test_a_key_of_a_schema_that_no_spark_has_left_is_refused(
    encoder: Encoder, content: bytes
) -> None:
    at = content.index(b"\0\0\0" + (ONE if encoder.kind == "row" else b"") + OTHER)
    with pytest.raises(UnknownVersion, match="schema 1"):
        avro_rows_of(TWO, encoder, None, {}).key(content[: at + 1] + b"\1" + content[at + 2 :])


@pytest.mark.parametrize("kind", ["plain", "postfix", "before"])
def test_a_key_that_is_never_of_avro_rows_is_refused_by_name(kind: str) -> None:
    with pytest.raises(FormatError, match=kind):
        avro_rows_of(TWO, Encoder(kind, (), True), None, {})  # type: ignore[arg-type]


def test_a_value_is_read_by_the_schema_that_it_names() -> None:
    old = StructType(("b",), (STRING,))
    rows = avro_rows_of(
        TWO, Encoder("row", (), True), TWO, {0: old, 1: TWO, 2: StructType(("a",), (STRING,))}
    )
    assert rows.value(b"\0\0" + OTHER) == (None, "x")
    assert rows.value(b"\1\0" + ONE + OTHER) == (1, "x")
    with pytest.raises(FormatError, match="was of type string and is of type long"):
        rows.value(b"\2\0" + OTHER)
    with pytest.raises(FormatError, match="schema 3, which no schema file has"):
        rows.value(b"\3\0" + OTHER)
    with pytest.raises(FormatError, match="no schema's number"):
        rows.value(b"\0")


def test_without_the_older_schema_file_what_it_describes_is_refused_and_the_rest_read() -> None:
    storage = golden(
        "spark-4.3.0/tws-avro-evolved", lambda path: "_stateSchema/default/0_" not in path
    )
    (image,) = survey(storage).images
    views, told = views_of(storage, image), list[str]()
    for shard in image.shards:
        for entry in entries(storage.chunks, shard, image.settings):
            try:
                views.of(entry.operator, entry.store).decode_value(entry.value)
                told.append("read")
            except FormatError as error:
                told.append(error.fact)
    assert {"read", "a value is of schema 0, which no schema file has"} == set(told)


def test_avro_rows_and_others_are_not_compared() -> None:
    avro = StoreView("0", "s", TWO, TWO, Encoder("row", (), True))
    assert (
        forms(avro, replace(avro, encoder=Encoder("row")), alike=True)
        == "its rows are Avro's in one image only"
    )
    assert not isinstance(forms(avro, avro, alike=True), str)
