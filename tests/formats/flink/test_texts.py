"""Keys and values that are read as columns are what is read of each entry alone, for whole bytes and
for damaged ones: those that are not are odd.
"""

from __future__ import annotations

import json
import random
import struct
import tracemalloc
from collections import Counter
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from stateshift.errors import FormatError
from stateshift.formats.flink.encoding import EntryWriter, write
from stateshift.formats.flink.keyed_columns import (
    PADDING,
    EntryPlaces,
    GroupPart,
    check_group,
    columns_in,
    texts_of,
)
from stateshift.formats.flink.keyed_state import END_OF_GROUP, FLAG, Header, StateInfo
from stateshift.formats.flink.logical_types import LogicalType
from stateshift.formats.flink.serializers import Serializer, Unknown
from stateshift.formats.flink.state_values import read_key, read_value
from stateshift.formats.flink.values import encode_string

TEXTS = ("", "a", "seven77", "eight888", 'a "b" \\ c\n\x7f', "é☃😀", "long " * 60, "\x00")


def of(name: str, *inner: Serializer, **facts: Any) -> Serializer:
    return Serializer(f"{name}Serializer", 3, inner, **facts)


def sql(root: str, *facts: Any) -> LogicalType:
    return LogicalType(root, True, *facts)


LONG, STRING, DOUBLE = of("Long"), of("String"), of("Double")
COLUMNS = {
    "BIGINT": -(1 << 63),
    "INTEGER": -5,
    "SMALLINT": 300,
    "TINYINT": -1,
    "DOUBLE": 1e300,
    "FLOAT": 0.5,
    "BOOLEAN": True,
    "DATE": "2024-02-29",
}
ROW = of(
    "RowData",
    columns=(*map(sql, COLUMNS), sql("VARCHAR", 1000), sql("DECIMAL", 20, 2)),
    fields=(*(f"{name} ü" for name in COLUMNS), "text", "amount"),
)
SMALL_ROW = of("RowData", columns=(sql("VARCHAR", 1000),), fields=("f0",))
PERSON = of("Pojo", LONG, STRING, SMALL_ROW, of("Boolean"), fields=("age", "name", "row", "is_it"))
EVERY = {
    "number": LONG,
    "fraction": DOUBLE,
    "text": STRING,
    "truth": of("Boolean"),
    "tuple": of("Tuple", STRING, of("Int"), of("Tuple", of("Byte"))),
    "row": ROW,
    "object": PERSON,
    "time": of("Instant"),
    "list": of("List", STRING),
    "bytes": of("BytePrimitiveArray"),
}


def made(of: Serializer, chance: random.Random) -> object:
    """A value of that type."""
    match of.name.removesuffix("Serializer"):
        case "Long":
            return chance.choice((0, -1, 1 << 62, chance.getrandbits(40)))
        case "Int" | "Byte":
            return chance.randrange(-128, 128)
        case "Double":
            return chance.choice((0.1, -0.0, 1e-300, 3.0, chance.random()))
        case "String":
            return chance.choice((*TEXTS, None))
        case "Boolean":
            return chance.random() < 0.5
        case "BytePrimitiveArray":
            return chance.randbytes(chance.randrange(12)).hex()
        case "Instant":
            return "2024-02-01T10:15:30.123Z"
        case "Tuple":
            return [made(inner, chance) for inner in of.inner]
        case "List":
            return [made(of.inner[0], chance) for _ in range(chance.randrange(3))]
        case "Pojo":
            pairs = zip(of.fields, of.inner, strict=True)
            return {name: chance.choice((made(inner, chance), None)) for name, inner in pairs}
    given: dict[str, object] = {}
    for name, column in zip(of.fields, of.columns, strict=True):
        own = COLUMNS.get(column.root, "12345678901234567.89")
        own = chance.choice(TEXTS) if column.root == "VARCHAR" else own
        given[name] = chance.choice((own, own, None))
    return {**({"@kind": "-D"} if chance.random() < 0.2 else {}), **given}


def damaged(raw: bytes, chance: random.Random) -> bytes:
    if not raw or chance.random() < 0.7:
        return raw
    at = chance.randrange(len(raw))
    return chance.choice(
        (raw[:at], raw + b"\0", raw[:at] + bytes((chance.randrange(256),)) + raw[at + 1 :])
    )


def shown(header: Header, state: StateInfo, key: bytes, raw: bytes) -> list[str] | None:
    try:
        return [json.dumps(read_key(header, state, key)), json.dumps(read_value(state, raw))]
    except (FormatError, Unknown):
        return None


@pytest.mark.every_case
@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("type_", ["VALUE", "MAP", "LIST", "timers"])
def test_columns_show_what_each_entry_shows_and_leave_damaged_ones(
    kind: str, type_: str, seed: int
) -> None:
    chance, own = random.Random(f"{seed} {kind} {type_}"), EVERY[kind]
    inside = {"MAP": of("Map", STRING, own), "LIST": of("List", own)}.get(type_, own)
    state = StateInfo("s", "values", type_, of("VoidNamespace"), inside)
    if type_ == "timers":
        timer = of("Timer", LONG, of("TimeWindow"))
        state = StateInfo("s", "timers", None, None, timer)
    header = Header(6, False, LONG if kind == "row" else STRING, (state,), 0)
    writer, pairs = EntryWriter(header, state), []
    for _ in range(300):
        key: dict[str, object] = {"key": made(header.key or LONG, chance) or 7}
        if type_ == "timers":
            key = {"timestamp": chance.getrandbits(40), "key": key["key"], "window": [5, -6]}
        if type_ == "MAP":
            key["map_key"] = chance.choice(TEXTS)
        if header.key is STRING:
            key["key"] = chance.choice(TEXTS)
        value = made(own, chance)
        raw = b"" if type_ == "timers" else b"\0" * (type_ == "MAP") + write(own, value)
        pairs.append((damaged(writer.key(key)[0], chance), damaged(raw, chance)))
    edges = [0, *accumulate(len(part) for pair in pairs for part in pair)]
    content = np.frombuffer(
        b"".join(part for pair in pairs for part in pair) + bytes(PADDING), "u1"
    )
    keys, values = np.array(edges[0:-1:2]), np.array(edges[1::2])
    places = EntryPlaces(keys, values, values, np.array(edges[2::2]))
    texts = texts_of(header, state, content, places)
    expected = [shown(header, state, *pair) for pair in pairs]
    for row, (is_odd, told) in enumerate(zip(texts.odd.tolist(), expected, strict=True)):
        if not is_odd:
            assert [texts.keys[row].as_py().decode(), texts.values[row].as_py().decode()] == told
    read = sum(each is not None for each in expected)
    assert read > 60 and (type_ == "LIST" or len(pairs) - texts.odd.sum() > read // 5)


GROUP = 5
NOTHING = {
    "a namespace": (of("VoidNamespace"), b"\0"),
    "a window without edges": (of("Tuple", LONG, of("GlobalWindow")), bytes(9)),
    "an object without fields": (of("Pojo"), b"\2"),
    "such an object within a tuple": (of("Tuple", of("Pojo"), LONG), b"\2" + bytes(8)),
}


def state_of(value: Serializer) -> tuple[Header, StateInfo]:
    state = StateInfo("s", "values", "VALUE", of("VoidNamespace"), value)
    return Header(6, False, LONG, (state,), 0), state


def group_of(values: list[bytes]) -> bytes:
    """A whole key group."""
    parts = [b"\0\0"]
    for number, value in enumerate(values):
        last = FLAG if number == len(values) - 1 else 0
        key = struct.pack(">Bqx", GROUP | last, number)
        parts += [struct.pack(">I", len(key)), key, struct.pack(">I", len(value)), value]
    return b"".join((*parts, struct.pack(">H", END_OF_GROUP)))


@pytest.mark.parametrize("case", NOTHING)
def test_a_type_that_holds_nothing_is_shown_as_it_is_alone(case: str) -> None:
    own, raw = NOTHING[case]
    header, state = state_of(own)
    content = np.frombuffer(struct.pack(">qx", 7) + raw + bytes(PADDING), "u1")
    edges = np.array([[0], [9], [9], [9 + len(raw)]])
    texts = texts_of(header, state, content, EntryPlaces(*edges))
    assert not texts.odd.any()
    assert texts.values[0].as_py().decode() == json.dumps(read_value(state, raw))
    assert check_group(header, GroupPart(GROUP, group_of([raw])), 128).decoded == {0: 1}


def test_large_values_are_checked_one_by_one_in_little_memory() -> None:
    header, _ = state_of(STRING)
    small, large = (encode_string('"' * size) for size in (10, 1 << 20))
    plain = group_of([small, *[large] * 8, small])
    tracemalloc.start()
    checked = check_group(header, GroupPart(GROUP, plain), 128)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert checked.decoded == {0: 2}
    assert [raw for _, _, raw in checked.others] == [large] * 8
    assert peak < 3 * len(plain)


def test_entries_before_damage_are_checked_as_without_columns() -> None:
    header, _ = state_of(LONG)
    plain = group_of([bytes(8)] * 5)
    checked, found = check_group(header, GroupPart(GROUP, plain[:-3]), 128), Counter[int]()
    with pytest.raises(FormatError, match="an entry exceeds its group"):
        found.update(state for state, _, _ in checked.others)
    assert found == {0: 4} and not checked.decoded


def test_a_huge_value_is_joined_each_time_that_it_has_doubled() -> None:
    value = struct.pack(">i", 1 << 20) + b"a" * (1 << 20)
    plain, step = group_of([value, bytes(5)]), 1 << 10
    places = range(0, len(plain), step)
    pieces = ((GROUP, plain[at : at + step], not at, at == places[-1]) for at in places)
    found = list(columns_in(pieces, 1, 1, step))
    assert len(places) > 1000 > 20 > len(found)
    assert [size for columns in found for size in columns.value_sizes] == [len(value), 5]
