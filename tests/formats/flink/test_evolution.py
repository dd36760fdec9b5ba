"""Snapshots and values that real Flinks wrote, changed: what is read of them by the new snapshot is
what it was, with the change made; and a change that is taken back leaves the same bytes.
"""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from stateshift.errors import FormatError
from stateshift.formats.flink.binary_rows import Slot, encode_row, slot_of
from stateshift.formats.flink.evolution import (
    FieldChanges,
    Unfit,
    Write,
    _added_avro,
    _added_column,
    evolve,
    evolve_state,
)
from stateshift.formats.flink.java_data import DataInput, encode_utf
from stateshift.formats.flink.java_objects import JavaEnum, JavaObject, read_object
from stateshift.formats.flink.keyed_state import StateInfo
from stateshift.formats.flink.logical_types import (
    TEXT_MAX,
    LogicalType,
    encode_type,
    is_encodable,
    logical_type,
    parse_type,
)
from stateshift.formats.flink.serializers import Serializer, read_snapshot
from stateshift.formats.flink.values import Reader, Unknown, encode_string, read_around
from stateshift.plain import JsonObject
from tests.formats.flink.typed_values import TypedValue, typed_values

INT, STRING = LogicalType("INTEGER"), LogicalType("VARCHAR", size=TEXT_MAX)
PAIR = LogicalType("ROW", inner=(INT, INT), names=("a", "b"))
MAGIC = b"\xac\xed\x00\x05"
NEW: dict[str, tuple[dict[str, object], str]] = {
    "PojoSerializer": ({"name": "zzz", "type": "String", "default": "é"}, "zzz"),
    "RowSerializer": ({"name": "f99", "type": "Long", "default": 4}, "LAST"),
    "RowDataSerializer": ({"name": "f99", "type": "STRING", "default": "é, and more"}, "LAST"),
}


def core(serializer: Serializer) -> Serializer:
    while serializer.name in ("ListSerializer", "TtlSerializer", "GenericArraySerializer"):
        serializer = serializer.inner[-1]
    return serializer


def ways(read: Reader | Write, raw: bytes) -> list[object]:
    """What each way to read all of it gives: several, if two parts need the job's classes."""
    data = DataInput(raw, "a value")
    return [value for end, value in read_around(read, data) if end == len(raw)]


def only_way(read: Reader | Write, raw: bytes) -> object:
    (value,) = ways(read, raw)
    return value


def is_certain(typed: TypedValue) -> bool:
    """Whether it is an object that is read in one way, without a comma between items."""
    if core(typed.serializer).name not in NEW or typed.state == "ids":
        return False
    return len(ways(typed.serializer.reader, typed.value)) == 1


OBJECTS = list(filter(is_certain, typed_values()))


def test_there_is_a_value_of_each_kind_of_object() -> None:
    assert {core(typed.serializer).name for typed in OBJECTS} == set(NEW)


@pytest.mark.parametrize("typed", OBJECTS, ids=lambda typed: typed.state)
def test_a_field_that_is_added_and_dropped_again_leaves_the_same_bytes(typed: TypedValue) -> None:
    added, dropped = NEW[core(typed.serializer).name]
    serializer = read_snapshot(DataInput(typed.snapshot, "a snapshot"))
    part = evolve(typed.snapshot, serializer, FieldChanges.of({"add": [added]}))
    value = only_way(part.write, typed.value)
    assert isinstance(value, bytes)
    between = read_snapshot(DataInput(part.snapshot, "a snapshot"), nested=True)
    if dropped == "LAST":
        dropped = f"f{len(core(between).inner or core(between).columns) - 1}"
    before, after = only_way(serializer.reader, typed.value), only_way(between.reader, value)
    assert json.dumps(after).replace('"zzz": "\\u00e9"', "") != json.dumps(before)
    back = evolve(part.snapshot, between, FieldChanges.of({"drop": [dropped]}))
    assert back.snapshot == typed.snapshot[4:]
    assert only_way(back.write, value) == typed.value


def test_fields_of_an_object_within_another_change_with_those_of_the_other() -> None:
    typed = next(each for each in OBJECTS if each.state == "living" and b"buyer" in each.value)
    serializer = read_snapshot(DataInput(typed.snapshot, "a snapshot"))
    add = ({"name": "buyer.zip", "type": "int", "default": 12},)
    widen = {"count": "long", "ratio": "double", "buyer.number": "long"}
    rename = {"id": "nr", "buyer.name": "who"}
    drop = ("note", "words")
    changes = FieldChanges.of({"add": add, "widen": widen, "rename": rename, "drop": drop})
    part = evolve(typed.snapshot, serializer, changes)
    data = DataInput(part.snapshot, "a snapshot")
    new = read_snapshot(data, nested=True)
    data.require_end("bytes")
    assert list(new.inner[1].fields) == sorted(new.inner[1].fields)
    before = only_way(serializer.reader, typed.value)
    after = only_way(new.reader, only_way(part.write, typed.value))  # type: ignore[arg-type]
    assert isinstance(before, dict) and isinstance(after, dict)
    rest = {k: v for k, v in before["value"].items() if k not in ("note", "words", "id", "buyer")}
    buyer = {"number": before["value"]["buyer"]["number"], "zip": 12}
    buyer["who"] = before["value"]["buyer"]["name"]
    assert after["value"] == {**rest, "nr": before["value"]["id"], "buyer": buyer}
    assert after["last_access"] == before["last_access"]


def test_types_of_sql_are_written_as_java_writes_them() -> None:
    seen = set()
    for typed in typed_values():
        at = -1
        while (at := typed.snapshot.find(MAGIC, at + 1)) >= 0:
            data = DataInput(typed.snapshot, "a type", at)
            type_ = logical_type(read_object(data))
            raw = typed.snapshot[at : data.at]
            if type_ is None or not is_encodable(type_) or b"ROWTIME" in raw:
                continue
            assert encode_type(type_) == raw
            assert type_.inner or parse_type(str(type_)) == type_
            seen.add(type_.root)
    assert len(seen) >= 16 and seen >= {"ROW", "ARRAY", "MAP"}


def test_a_row_with_a_type_of_its_own_name_is_not_written_anew() -> None:
    """CREATE TYPE ... AS: in the row it would become the type that it is made of."""
    package = "org.apache.flink.table.types.logical."
    root = JavaEnum(f"{package}LogicalTypeRoot", "DISTINCT_TYPE")
    source = read_object(DataInput(encode_type(INT), "a type"))
    type_ = logical_type(
        JavaObject(f"{package}DistinctType", {"typeRoot": root, "sourceType": source})
    )
    assert type_ is not None and str(type_) == "INT" and is_encodable(INT)
    assert not is_encodable(LogicalType("ROW", inner=(STRING, type_), names=("a", "b")))


WITHIN: dict[str, object] = {
    "add": [
        {"name": "f4.of", "type": "STRING", "default": "é, and more", "after": "EXPR$1"},
        {"name": "f4.most", "type": "TIMESTAMP(9)"},
    ],
    "rename": {"f4.EXPR$0": "EXPR$1", "f4.EXPR$1": "text"},
    "widen": {"f3": "BIGINT"},
}


def test_fields_of_a_row_within_a_row_of_sql_are_changed() -> None:
    typed = next(each for each in OBJECTS if each.state == "deduplicate-state")
    serializer = serializer_of(typed.snapshot[4:])
    widen = {"f4.EXPR$0": "FLOAT"}
    with pytest.raises(Unfit, match=r"f4: EXPR.0: Long cannot be widened to Float"):
        evolve(typed.snapshot[4:], serializer, FieldChanges.of({"widen": widen}))
    changes = FieldChanges.of(WITHIN)
    part = evolve(typed.snapshot[4:], serializer, changes)
    new = serializer_of(part.snapshot)
    of = "ROW<EXPR$1 BIGINT, of STRING, text STRING, most TIMESTAMP(9)> NOT NULL"
    assert str(new.columns[4]) == of and str(new.columns[3]) == "BIGINT"
    value = part.write(DataInput(typed.value, "a value"))
    before = only_way(serializer.reader, typed.value)
    after = only_way(new.reader, value)
    assert isinstance(before, dict) and isinstance(after, dict)
    within = before.pop("f4")
    told = {"EXPR$1": within["EXPR$0"], "of": "é, and more", "text": within["EXPR$1"], "most": None}
    assert after.pop("f4") == told
    assert after == before and within["EXPR$1"]
    names = {"EXPR$1": "EXPR$0", "text": "EXPR$1"}
    undone = {"drop": ["f4.of", "f4.most"], "rename": {f"f4.{k}": v for k, v in names.items()}}
    back = evolve(part.snapshot, new, FieldChanges.of(undone))
    again = serializer_of(back.snapshot)
    assert again.columns[4] == serializer.columns[4]
    whole = only_way(again.reader, back.write(DataInput(value, "a value")))
    assert whole == {**before, "f4": within}


@pytest.mark.parametrize("length", [3, 7, 8, 40])
def test_a_row_within_a_row_within_a_row_is_changed_where_it_is_told(length: int) -> None:
    """Bytes as Flink lays them out: the value of each field is where its own type says."""
    inner = LogicalType("ROW", inner=(INT, STRING), names=("n", "t"))
    middle = LogicalType("ROW", inner=(inner, INT), names=("in", "m"))
    snapshot = row_data_of(middle, INT)
    shown = {"f0": {"in": {"n": 5, "t": "x" * length}, "m": -1}, "f1": 3}
    raw = encode_row(0, [slot_of(middle, shown["f0"]), slot_of(INT, 3)])
    changes = {
        "add": [{"name": "f0.in.more", "type": "INT NOT NULL", "default": 9, "after": "n"}],
        "widen": {"f0.in.n": "BIGINT"},
        "rename": {"f0.in.t": "text", "f0.in": "own"},
    }
    part = evolve(snapshot, serializer_of(snapshot), FieldChanges.of(changes))
    made = part.write(DataInput(struct.pack(">i", len(raw)) + raw, "a value"))
    new = serializer_of(part.snapshot)
    assert str(new.columns[0]) == ("ROW<own ROW<n BIGINT, more INT NOT NULL, text STRING>, m INT>")
    told = {"own": {"n": 5, "more": 9, "text": "x" * length}, "m": -1}
    assert only_way(new.reader, made) == {"f0": told, "f1": 3}
    assert made[4:] == encode_row(0, [slot_of(new.columns[0], told), slot_of(INT, 3)])
    null = encode_row(0, [Slot(is_null=True), slot_of(INT, 3)])
    made = part.write(DataInput(struct.pack(">i", len(null)) + null, "a value"))
    assert only_way(new.reader, made) == {"f0": None, "f1": 3}
    for cut in range(len(raw)):
        with suppress(FormatError):
            part.write(DataInput(struct.pack(">i", cut) + raw[:cut], "a value"))


ONE_TYPE: list[tuple[dict[str, object], dict[str, object]]] = [
    ({"drop": ["{}a"], "add": [{"name": "{}a", "type": "INT", "after": ""}]}, {"a": None, "b": 2}),
    (
        {"drop": ["{}a"], "rename": {"{}b": "a"}, "add": [{"name": "{}b", "type": "INT"}]},
        {"a": 2, "b": None},
    ),
    ({"drop": ["{}b"], "add": [{"name": "{}b", "type": "INT", "default": 7}]}, {"a": 1, "b": 7}),
]


@pytest.mark.parametrize("path", ["f0.", "f0.in."])
@pytest.mark.parametrize(("changes", "told"), ONE_TYPE)
def test_fields_within_are_changed_where_the_type_stays_the_same(
    changes: dict[str, object], told: dict[str, object], path: str
) -> None:
    of, shown, wanted = PAIR, {"a": 1, "b": 2}, told
    if path == "f0.in.":
        of = LogicalType("ROW", inner=(INT, PAIR), names=("m", "in"))
        shown, wanted = {"m": 5, "in": shown}, {"m": 5, "in": told}  # type: ignore[dict-item]
    snapshot, raw = row_data_of(of, INT), encode_row(0, [slot_of(of, shown), slot_of(INT, 3)])
    asked = json.loads(json.dumps(changes).replace("{}", path))
    part = evolve(snapshot, serializer_of(snapshot), FieldChanges.of(asked))
    new = serializer_of(part.snapshot)
    assert new.columns == (of, INT)
    made = part.write(DataInput(struct.pack(">i", len(raw)) + raw, "a value"))
    assert only_way(new.reader, made) == {"f0": wanted, "f1": 3}


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"drop": ["f1.x"]}, r"f1: fields within a column of type ARRAY<INT> are not changed here"),
        ({"drop": ["f0.n", "f0.t"]}, "f0: no field would be left"),
        ({"drop": ["f0.x"]}, "f0: there is no field x"),
        ({"rename": {"f0.n": "t"}}, "f0: there is a field t already"),
        ({"add": [{"name": "f0.x", "type": "INT NOT NULL"}]}, "f0: x: INT NOT NULL is never null"),
        ({"widen": {"f0": "STRING"}}, "cannot be widened"),
    ],
)
def test_what_a_row_within_a_row_cannot_become_is_refused(
    changes: dict[str, object], fact: str
) -> None:
    within = LogicalType("ROW", inner=(INT, STRING), names=("n", "t"))
    snapshot = row_data_of(within, LogicalType("ARRAY", inner=(INT,)))
    with pytest.raises(Unfit, match=fact):
        evolve(snapshot, serializer_of(snapshot), FieldChanges.of(changes))


PAIRS = LogicalType("ARRAY", inner=(PAIR,))
PAIRS_BY_NAME = LogicalType("MAP", inner=(STRING, PAIR))


@pytest.mark.parametrize("of", [PAIRS, PAIRS_BY_NAME], ids=str)
def test_fields_of_rows_within_an_array_or_a_map_are_renamed(of: LogicalType) -> None:
    snapshot = row_data_of(INT, of)
    pair, wanted = {"a": 1, "b": 2}, {"a": 2, "c": 1}
    shown, told = ([pair], [wanted]) if of is PAIRS else ([["k", pair]], [["k", wanted]])
    raw = encode_row(0, [slot_of(INT, 3), slot_of(of, shown)])
    value = struct.pack(">i", len(raw)) + raw
    changes = FieldChanges.of({"rename": {"f1.a": "c", "f1.b": "a"}})
    part = evolve(snapshot, serializer_of(snapshot), changes)
    assert part.write(DataInput(value, "a value")) == value
    new = serializer_of(part.snapshot)
    item = replace(PAIR, names=("c", "a"))
    assert part.snapshot == row_data_of(INT, replace(of, inner=(*of.inner[:-1], item)))
    assert new.reader(DataInput(value, "a value")) == {"f0": 3, "f1": told}


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"drop": ["f1.a"]}, r"not written. Keep.*--drop the column, or --drop '\*'"),
        ({"drop": ["f1.a"], "rename": {"f1.b": "c"}}, "are renamed here, and not changed"),
        ({"add": [{"name": "f1.c", "type": "INT"}]}, "are renamed here, and not changed"),
        ({"widen": {"f1.a": "BIGINT"}}, "are renamed here, and not changed"),
        ({"rename": {"f1.a": "b"}}, "there is a field b already"),
        ({"rename": {"f1.x": "b"}}, "there is no field x"),
        ({"rename": {"f1.a.x": "b"}}, "a: it is of type INT, and has no fields"),
        ({"rename": {"f2.a": "b"}}, "not changed here"),
    ],
)
def test_rows_within_an_array_or_a_map_are_refused_with_the_ways_out(
    changes: dict[str, object], fact: str
) -> None:
    deeper = LogicalType("MAP", inner=(STRING, PAIRS))
    for of in (PAIRS, PAIRS_BY_NAME):
        snapshot = row_data_of(INT, of, deeper)
        with pytest.raises(Unfit, match=fact):
            evolve(snapshot, serializer_of(snapshot), FieldChanges.of(changes))


def test_a_message_of_protobuf_is_refused_as_what_it_is() -> None:
    message = Serializer("ProtobufSerializer", 2, type="jobs.Wire")
    for changes in ({"drop": ["note"]}, {"widen": {"value": "long"}}):
        with pytest.raises(Unfit, match=r"message of protobuf \(jobs\.Wire\).* not written"):
            evolve(b"", message, FieldChanges.of(changes))


WIDE = {"name": "map_key.f9", "type": "DECIMAL(19, 2)"}


@pytest.mark.parametrize(
    ("changes", "is_refused"),
    [
        ({"widen": {"map_key.f0": "DECIMAL(30, 2)"}}, True),
        ({"widen": {"map_key.f1.d": "DECIMAL(30, 2)"}}, True),
        ({"widen": {"map_key.f0": "DECIMAL(18, 2)"}}, False),
        ({"widen": {"map_key.f2": "DECIMAL(30, 2)"}}, False),  # its nulls have bytes already
        ({"widen": {"map_key.f3": "DECIMAL(30, 2) NOT NULL"}}, False),
        ({"add": [WIDE]}, True),
        ({"add": [{**WIDE, "default": "1.50"}]}, False),
        ({"add": [{**WIDE, "type": "DECIMAL(18, 2)"}]}, False),
        ({"add": [{"name": "map_key.f1.t", "type": "TIMESTAMP(6)"}]}, True),
        ({"add": [{"name": "map_key.f1.t", "type": "TIMESTAMP_LTZ(4)"}]}, True),
        ({"add": [{"name": "map_key.f1.t", "type": "TIMESTAMP(3)"}]}, False),
        ({"add": [{**WIDE, "name": "f9"}]}, False),  # of the values
    ],
)
def test_keys_of_a_map_get_no_nulls_that_flink_writes_in_two_forms(
    changes: dict[str, object], is_refused: bool
) -> None:
    """BinaryRowWriter keeps bytes for such a null, and RowDataSerializer does not: the key in the
    state would be another than the one that the job looks for."""
    short = LogicalType("DECIMAL", True, 10, 2)
    within = LogicalType("ROW", inner=(short,), names=("d",))
    never = LogicalType("DECIMAL", False, 10, 2)
    key = row_data_of(short, within, LogicalType("DECIMAL", True, 20, 2), never)
    name = "org.apache.flink.api.common.typeutils.base.MapSerializerSnapshot"
    ahead = encode_utf(name) + struct.pack(">iiiiii", 3, 911108, 1, 1333245, 1, 2)
    snapshot = ahead + key + row_data_of(INT)
    state = StateInfo("s", "values", "MAP", None, serializer_of(snapshot))
    if is_refused:
        with pytest.raises(Unfit, match="in two forms"):
            evolve_state(snapshot, state, FieldChanges.of(changes))
    else:
        assert evolve_state(snapshot, state, FieldChanges.of(changes)).snapshot != snapshot


SWAPPED = {"rename": {"first": "last", "last": "first"}}


def test_two_fields_of_one_type_may_take_each_others_names() -> None:
    """Of a class, Flink orders fields by their names: the values change places, too."""
    typed = next(each for each in OBJECTS if each.state == "living")
    serializer = serializer_of(typed.snapshot[4:])
    rename = {"id": "count", "count": "id"}
    part = evolve(typed.snapshot[4:], serializer, FieldChanges.of({"rename": rename}))
    before = only_way(serializer.reader, typed.value)
    after = only_way(serializer_of(part.snapshot).reader, only_way(part.write, typed.value))  # type: ignore[arg-type]
    assert isinstance(before, dict) and isinstance(after, dict)
    own = before["value"]
    assert own["id"] != own["count"]
    assert after["value"] == {**own, "id": own["count"], "count": own["id"]}
    fields = [{"name": "first", "type": "string"}, {"name": "last", "type": "string"}]
    snapshot, avro = of_avro({"type": "record", "name": "Thing", "fields": fields})
    part = evolve(snapshot, avro, FieldChanges.of(SWAPPED))
    data = DataInput(struct.pack(">i", 1) + b"a" + struct.pack(">i", 1) + b"b", "a value")
    new = serializer_of(part.snapshot).reader(DataInput(part.write(data), "a value"))
    assert new == {"last": "a", "first": "b"}


# ---- Avro: no golden image has a record that Flink itself wrote; real ones do in
# tests/servers/test_editing_flink.py

SCHEMA = {
    "type": "record",
    "name": "Thing",
    "namespace": "a.b",
    "fields": [
        {"name": "id", "type": "int"},
        {
            "name": "place",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Place",
                    "fields": [
                        {"name": "town", "type": "string"},
                        {"name": "zip", "type": "float"},
                    ],
                },
            ],
        },
        {
            "name": "tags",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Tag",
                    "fields": [{"name": "n", "type": "long"}],
                },
            },
        },
        {"name": "by", "type": {"type": "map", "values": "double"}},
        {"name": "again", "type": ["null", "a.b.Tag"]},
    ],
}


def of_avro(schema: object) -> tuple[bytes, Serializer]:
    text = json.dumps(schema)
    name = "org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot"
    snapshot = encode_utf(name) + struct.pack(">i", 3)
    snapshot += encode_string("a.b.Thing") + encode_string(text)
    return snapshot, read_snapshot(DataInput(snapshot, "a snapshot"), nested=True)


def avro_value(with_place: bool) -> bytes:
    place = struct.pack(">ii", 1, 2) + b"ab" + struct.pack(">f", 2.5)
    tags = b"\x02" + struct.pack(">qq", 7, -8) + b"\0"
    by = b"\x01" + struct.pack(">i", 1) + b"k" + struct.pack(">d", 0.5) + b"\0"
    first = struct.pack(">i", -3) + (place if with_place else struct.pack(">i", 0))
    return first + tags + by + struct.pack(">i", 0)


@pytest.mark.parametrize("with_place", [True, False])
def test_records_of_avro_hold_what_they_held_with_the_change_made(with_place: bool) -> None:
    snapshot, serializer = of_avro(SCHEMA)
    add = (
        {"name": "note", "type": '["null", "string"]', "after": "number"},
        {"name": "place.paid", "type": "boolean", "default": True},
        {
            "name": "kind",
            "type": {"type": "enum", "name": "K", "symbols": ["X", "Y"]},
            "default": "Y",
        },
    )
    widen = {"id": "long", "place.zip": "double"}
    rename = {"id": "number"}
    changes = FieldChanges.of({"add": add, "widen": widen, "rename": rename, "drop": ["by"]})
    part = evolve(snapshot, serializer, changes)
    new = read_snapshot(DataInput(part.snapshot, "a snapshot"), nested=True)
    data = DataInput(avro_value(with_place), "a value")
    after = new.reader(DataInput(part.write(data), "a value"))
    place = {"town": "ab", "zip": 2.5, "paid": True} if with_place else None
    tags = [{"n": 7}, {"n": -8}]
    told = {"number": -3, "note": None, "place": place, "tags": tags, "again": None, "kind": "Y"}
    assert data.at_end() and after == told and list(told) == list(after)


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"drop": ["tags"]}, "no longer in it"),  # which `again` refers to
        ({"drop": ["tags.n"]}, "in several places"),
        ({"widen": {"place.town": "long"}}, "no record"),
        ({"add": [{"name": "x", "type": "string"}]}, "does not fit"),
        ({"add": [{"name": "x", "type": "nothing", "default": 1}]}, "no type of Avro"),
        ({"widen": {"by": "float"}}, "cannot be widened"),
    ],
)
def test_what_a_schema_of_avro_cannot_become_is_refused(
    changes: dict[str, object], fact: str
) -> None:
    with pytest.raises(Unfit, match=fact):
        evolve(*of_avro(SCHEMA), FieldChanges.of(changes))


def test_an_object_of_a_class_that_is_not_described_is_not_rewritten() -> None:
    typed = next(each for each in OBJECTS if each.state == "living")
    serializer = read_snapshot(DataInput(typed.snapshot, "a snapshot"))
    part = evolve(
        typed.snapshot, serializer, FieldChanges.of({"add": [{"name": "x", "type": "long"}]})
    )
    raw = bytearray(typed.value)
    raw[8:9] = b"\x04" + encode_utf("jobs.Other")
    with pytest.raises(Unknown, match=r"jobs\.Other"):
        part.write(DataInput(bytes(raw), "a value"))


@pytest.mark.parametrize("typed", OBJECTS, ids=lambda typed: typed.state)
def test_damaged_bytes_are_refused_and_nothing_else_happens(typed: TypedValue, seed: int) -> None:
    random = Random(seed)
    added, _ = NEW[core(typed.serializer).name]
    changes = FieldChanges.of({"add": [added]})
    for _ in range(60):
        snapshot, value = bytearray(typed.snapshot), bytearray(typed.value)
        for content in (snapshot, value):
            place = random.randrange(len(content))
            content[place] ^= 1 << random.randrange(8)
            if random.random() < 0.2:
                del content[place:]
        with suppress(FormatError, Unknown, Unfit):
            serializer = read_snapshot(DataInput(bytes(snapshot), "a snapshot"))
            part = evolve(bytes(snapshot), serializer, changes)
            read_snapshot(DataInput(part.snapshot, "a snapshot"), nested=True)
        sound = read_snapshot(DataInput(typed.snapshot, "a snapshot"))
        with suppress(FormatError, Unknown):
            evolve(typed.snapshot, sound, changes).write(DataInput(bytes(value), "a value"))


def test_a_default_of_another_branch_is_not_in_the_schema() -> None:
    """Avro before 1.12 refuses to read such a schema."""
    add = {"name": "q", "type": '["null", "string"]', "default": "x"}
    made = evolve(*of_avro(SCHEMA), FieldChanges.of({"add": [add]})).snapshot
    schema = read_snapshot(DataInput(made, "a snapshot"), nested=True).schema
    assert "default" not in json.loads(schema or "")["fields"][-1]


def test_a_schema_of_thousands_of_fields_is_changed() -> None:
    listed = [{"name": f"c{number}", "type": "int"} for number in range(4000)]
    schema = {"type": "record", "name": "R", "fields": listed}
    assert evolve(*of_avro(schema), FieldChanges.of({"drop": ["c0"]})).snapshot


INNER = {"type": "record", "name": "B", "fields": [{"name": "n", "type": "int"}]}


@pytest.mark.parametrize(
    ("fields", "changes", "fact"),
    [
        (
            [{"name": "x", "type": {**INNER, "name": "a.B"}}, {"name": "y", "type": "B"}],
            {"widen": {"x.n": "long"}},
            "in several places",
        ),
        (
            [{"name": "x", "type": INNER}, {"name": "y", "type": {"type": "B"}}],
            {"widen": {"x.n": "long"}},
            "in several places",
        ),
        ([{"name": "x", "type": INNER, "default": {"n": 1}}], {"rename": {"x.n": "m"}}, "default"),
    ],
)
def test_a_schema_that_would_no_longer_fit_itself_is_refused(
    fields: list[object], changes: JsonObject, fact: str
) -> None:
    schema = {"type": "record", "name": "R", "namespace": "a", "fields": fields}
    with pytest.raises(Unfit, match=fact):
        evolve(*of_avro(schema), FieldChanges.of(changes))


def row_data(*types: str) -> bytes:
    found = [type_ for type_ in map(parse_type, types) if type_ is not None]
    name = "org.apache.flink.table.runtime.typeutils.RowDataSerializer$RowDataSerializerSnapshot"
    count = struct.pack(">i", len(found))
    objects = b"".join(map(encode_type, found))
    nested = b"".join([simple("Long") for _ in found])
    versions = struct.pack(">ii", 1333245, 1)
    return encode_utf(name) + struct.pack(">i", 3) + count + objects + versions + count + nested


def simple(name: str) -> bytes:
    base = "org.apache.flink.api.common.typeutils.base."
    return encode_utf(f"{base}{name}Serializer${name}SerializerSnapshot") + struct.pack(">i", 3)


def test_a_null_of_a_row_keeps_its_form() -> None:
    """Rows that are keys of a map are equal by their bytes."""
    snapshot = row_data("TIMESTAMP(6)", "BIGINT")
    row = encode_row(0, [Slot(is_null=True), Slot(struct.pack("<q", 7))])
    value = struct.pack(">i", len(row)) + row
    added = evolve(snapshot, serializer_of(snapshot), FieldChanges.of({"add": [INT_COLUMN]}))
    longer = added.write(DataInput(value, "a value"))
    back = evolve(
        added.snapshot,
        serializer_of(added.snapshot),
        FieldChanges.of({"drop": [INT_COLUMN["name"]]}),
    )
    assert back.write(DataInput(longer, "a value")) == value


def row_data_of(*types: LogicalType) -> bytes:
    """The snapshot of a row of these types."""
    name = "org.apache.flink.table.runtime.typeutils.RowDataSerializer$RowDataSerializerSnapshot"
    nested = list(map(column_snapshot, types))
    count = struct.pack(">i", len(types))
    objects = b"".join(encode_type(type_) for type_ in types)
    head = encode_utf(name) + struct.pack(">i", 3) + count + objects
    return head + struct.pack(">ii", 1333245, 1) + count + b"".join(nested)


def column_snapshot(type_: LogicalType) -> bytes:
    """The snapshot of a column; of items, any object of Java's stands for their serializers."""
    if type_.root == "ROW":
        return row_data_of(*type_.inner)
    if type_.root not in ("ARRAY", "MAP"):
        return simple("Long")
    own = f"{type_.root.capitalize()}DataSerializer"
    head = encode_utf(f"org.apache.flink.table.runtime.typeutils.{own}${own}Snapshot")
    objects = [*map(encode_type, type_.inner), *(encode_type(INT) for _ in type_.inner)]
    return head + struct.pack(">i", 3) + b"".join(objects)


INT_COLUMN = {"name": "f2", "type": "INT"}


def serializer_of(snapshot: bytes) -> Serializer:
    return read_snapshot(DataInput(snapshot, "a snapshot"), nested=True)


@pytest.mark.parametrize(("old", "new"), [("CHAR(3)", "CHAR(5)"), ("BINARY(3)", "BINARY(5)")])
def test_a_column_that_sql_pads_is_not_made_longer(old: str, new: str) -> None:
    snapshot = row_data(old)
    with pytest.raises(Unfit, match="cannot be widened"):
        evolve(snapshot, serializer_of(snapshot), FieldChanges.of({"widen": {"f0": new}}))


def test_a_default_that_is_no_number_is_refused() -> None:
    snapshot = row_data("BIGINT")
    added = {"name": "f1", "type": "DECIMAL(5,2)", "default": "nan"}
    with pytest.raises(Unfit, match="does not fit"):
        evolve(snapshot, serializer_of(snapshot), FieldChanges.of({"add": [added]}))


@pytest.mark.parametrize(
    ("type_", "default", "digits"),
    [
        ({"type": "map", "values": "int"}, {}, "00"),
        ({"type": "map", "values": "bytes"}, {"k": "ÿ"}, "01 00000001 6b 00000001 ff 00"),
        ({"type": "array", "items": ["long", "null"]}, [5], "01 00000000 0000000000000005 00"),
        ({"type": "int", "logicalType": "date"}, 20454, "00004fe6"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1, "0000000000000001"),
        ("bytes", "ÿ\x00", "00000002 ff00"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", "6162"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "\x01\x00",
            "00000002 0100",
        ),
        (["int", "long"], 5, "00000000 00000005"),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [
                    {"name": "x", "type": ["int", "long"]},
                    {"name": "y", "type": "string", "default": "a"},
                ],
            },
            {"x": 1},
            "00000000 00000001 00000001 61",
        ),
    ],
)
def test_defaults_of_avro_are_as_its_json_has_them(
    type_: object, default: object, digits: str
) -> None:
    named = type_ if isinstance(type_, str) else json.dumps(type_)
    add = {"name": "q", "type": named, "default": default}
    snapshot, serializer = of_avro(SCHEMA)
    part = evolve(snapshot, serializer, FieldChanges.of({"add": [add]}))
    schema = json.loads(serializer_of(part.snapshot).schema or "")
    assert schema["fields"][-1] == {"name": "q", "type": type_, "default": default}
    assert _added_avro(add).content == bytes.fromhex(digits)


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ({"type": "map", "values": "int"}, []),
        ({"type": "map", "values": "int"}, [["a", 1]]),
        ({"type": "int", "logicalType": "date"}, "2026-01-01"),
        ("bytes", "\u0100"),
        ({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}, {}),
        ("long", 1 << 63),
        ("boolean", 1),
    ],
)
def test_a_default_that_is_no_json_of_avros_type_is_refused(type_: object, default: object) -> None:
    named = type_ if isinstance(type_, str) else json.dumps(type_)
    add = {"name": "q", "type": named, "default": default}
    with pytest.raises(Unfit) as told:
        evolve(*of_avro(SCHEMA), FieldChanges.of({"add": [add]}))
    assert json.dumps(default, ensure_ascii=False) in str(told.value)


def test_a_default_of_a_decimal_may_be_a_number() -> None:
    def slot(default: object) -> object:
        return _added_column({"name": "f1", "type": "DECIMAL(10,2)", "default": default}).slot

    assert slot(1.5) == slot("1.5") == Slot(struct.pack("<q", 150)) and slot(-3) == slot("-3")
    for default in (1.005, "x", 1234567.1234567891, True):
        with pytest.raises(Unfit, match=str(default)):
            slot(default)
