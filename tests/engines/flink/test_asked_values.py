"""Conditions see the values of Flink's types as they are, or refuse: a value that is not seen would
be null, and an entry with it pruned, or kept, without a word.
"""

from __future__ import annotations

import struct

import pytest

from stateshift.engines.flink.entries.edits import Condition, NumberedEntry
from stateshift.errors import PlanError
from stateshift.formats.flink.evolution import (
    FieldChange,
    FieldChanges,
    Unfit,
    evolve,
    string_bytes,
)
from stateshift.formats.flink.java_data import DataInput, encode_utf
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.serializers import Serializer, read_snapshot
from tests.formats.flink.test_evolution import simple

BASE = "org.apache.flink.api.common.typeutils.base."
JAVA = "org.apache.flink.api.java.typeutils.runtime."


def composite(name: str, outer: bytes, *inner: bytes) -> bytes:
    head = encode_utf(name) + struct.pack(">iii", 3, 911108, 1) + outer
    return head + struct.pack(">iii", 1333245, 1, len(inner)) + b"".join(inner)


def serializer(snapshot: bytes) -> Serializer:
    return read_snapshot(DataInput(snapshot, "a snapshot"), nested=True)


def asked(snapshot: bytes, type_: str, where: str, values: list[bytes]) -> list[int]:
    """The numbers of the values for which the condition is true."""
    void = Serializer("VoidNamespaceSerializer", 3)
    state = StateInfo("s", "keyed", type_, void, serializer(snapshot))
    header = Header(6, False, serializer(simple("String")), (state,), 0)
    condition = Condition(where, header, state, True)
    condition.check()
    key = string_bytes("k") + b"\0"
    return list(condition.true_of([NumberedEntry(0, 0, key, value) for value in values]))


TUPLE = composite(
    f"{JAVA}TupleSerializerSnapshot",
    encode_utf("org.apache.flink.api.java.tuple.Tuple2"),
    simple("Long"),
    simple("Long"),
)
LISTS = [struct.pack(">qq", 1, 2), struct.pack(">qq", 50, 2) + b"," + struct.pack(">qq", 60, 2)]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("value[1].f0 >= 50", [1]),
        ("value[1].f0 is null", []),
        ("coalesce(value[1].f0, 0) < 10", [0]),
    ],
)
def test_fields_of_the_items_of_a_list_are_seen(where: str, expected: list[int]) -> None:
    listed = composite(f"{BASE}ListSerializerSnapshot", b"", TUPLE)
    assert asked(listed, "LIST", where, LISTS) == expected


def test_a_time_beyond_those_of_sql_is_refused_and_not_taken_for_null() -> None:
    last = struct.pack(">qi", 31556889864403199, 999999999)
    with pytest.raises(PlanError, match="timestamp"):
        asked(simple("Instant"), "VALUE", "value is null", [last])
    in_12026 = struct.pack(">qi", 253402300800 + 86400 * 400, 0)
    assert asked(simple("Instant"), "VALUE", "value is null", [in_12026]) == []


def test_the_items_of_an_array_of_java_keep_their_class() -> None:
    array = composite(
        f"{BASE}GenericArraySerializerSnapshot", encode_utf("java.lang.Integer"), simple("Int")
    )
    with pytest.raises(Unfit, match="keeps the class"):
        evolve(array, serializer(array), FieldChanges((FieldChange("widen", "", "long"),)))
