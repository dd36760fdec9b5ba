"""Conditions see the values of Flink's types as they are, or refuse: a value that is not seen would
be null, and an entry with it pruned, or kept, without a word.
"""

from __future__ import annotations

import struct

import pytest

from stateshift.engines.flink.entries.edits import EditedFile, NumberedEntry, StateCondition
from stateshift.engines.sql import Condition
from stateshift.errors import PlanError
from stateshift.formats.flink.evolution import (
    FieldChange,
    FieldChanges,
    Unfit,
    evolve,
    evolve_state,
)
from stateshift.formats.flink.java_data import DataInput, encode_utf
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.serializers import Serializer, read_snapshot
from stateshift.formats.flink.values import encode_string
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
    condition = StateCondition(Condition(where, "s"), header, state, True)
    condition.check()
    if not values:
        return []
    key = encode_string("k") + b"\0"
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


MAP = composite(f"{BASE}MapSerializerSnapshot", b"", simple("String"), simple("Long"))
ARRAY = encode_utf(f"{BASE}array.IntPrimitiveArraySerializer$IntPrimitiveArraySerializerSnapshot")


@pytest.mark.parametrize(
    ("snapshot", "where"),
    [
        (simple("BigInt"), "value = 'text'"),
        (MAP, "key.key = 'a' and value = 'text'"),
        (MAP, "key.key = 'a' or value in ('text')"),
        (ARRAY + struct.pack(">i", 3), "value = 'text'"),
    ],
)
def test_a_comparison_that_would_fail_in_the_run_is_refused_before(
    snapshot: bytes, where: str
) -> None:
    with pytest.raises(PlanError, match=r"JSON|cast"):
        asked(snapshot, "VALUE", where, [])


def test_an_array_and_a_large_number_are_compared_as_what_they_are() -> None:
    items = struct.pack(">iii", 2, 7, 30)
    array = ARRAY + struct.pack(">i", 3)
    assert asked(array, "VALUE", "list_contains(value, 30)", [items, items[:4] + bytes(8)]) == [0]
    numbers = [struct.pack(">i", 5) + bytes((each,)) for each in (9, 100)]
    assert asked(simple("BigInt"), "VALUE", "value > 50", numbers) == [1]


def test_a_large_value_of_kryo_stays_beside_a_key_that_changes() -> None:
    no_classes = struct.pack(">qi", 0x4F2C69A3D70, 0) * 3
    kryo = encode_utf(f"{JAVA}kryo.KryoSerializerSnapshot") + struct.pack(">i", 2)
    kryo += encode_utf("jobs.Thing") + no_classes
    snapshot = composite(f"{BASE}MapSerializerSnapshot", b"", simple("Int"), kryo)
    void = Serializer("VoidNamespaceSerializer", 3)
    state = StateInfo("s", "keyed", "MAP", void, serializer(snapshot))
    header = Header(6, False, serializer(simple("String")), (state,), 0)
    widen = FieldChanges((FieldChange("widen", "map_key", "long"),))
    file = EditedFile(b"", header, {0: evolve_state(snapshot, state, widen)}, {})
    value = b"\0" + bytes(range(256)) * 64  # more than is searched for the end of such a part
    key = encode_string("k") + b"\0"
    (entry,) = file.entries([NumberedEntry(0, 0, key + struct.pack(">i", -7), value)])
    assert entry == NumberedEntry(0, 0, key + struct.pack(">q", -7), value)


def test_half_of_a_pair_alone_is_a_replacement_for_the_condition() -> None:
    """A text of Java may be cut between the halves; DuckDB has no such text."""
    texts = [encode_string(text) for text in ("x\ud83d", "x\ud83d\ude00", "é\udc00y", "x")]
    assert asked(simple("String"), "VALUE", "value = 'x\ufffd'", texts) == [0]
    assert asked(simple("String"), "VALUE", "value in ('x😀', 'é\ufffdy')", texts) == [1, 2]
    listed = composite(f"{BASE}ListSerializerSnapshot", b"", simple("String"))
    assert asked(listed, "VALUE", "value[1] = 'x\ufffd'", [struct.pack(">i", 1) + texts[0]]) == [0]
