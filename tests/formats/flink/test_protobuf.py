"""Messages of protobuf in state: as protobuf's own libraries read them, and made to hurt."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
)

from stateshift.errors import FormatError
from stateshift.formats.flink import protobuf
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.protobuf import message_reader, use_descriptors
from stateshift.formats.flink.serializers import Unknown
from stateshift.formats.flink.values import varint_bytes

DESCRIPTORS = Path(__file__).resolve().parents[2] / "golden" / "protobuf" / "orders.binpb"
ORDER, PART = "jobs.wire.Orders$Order", "jobs.wire.parts.Part"
BYTES, NUMBERS = ("raw",), ("id", "marks", "cash", "big")
MADE = descriptor_pb2.FileDescriptorSet


@pytest.fixture(autouse=True)
def _described() -> Iterator[None]:
    use_descriptors([DESCRIPTORS.read_bytes()])
    yield
    use_descriptors([])


def of_kryo(message: bytes) -> bytes:
    """Bytes as chill's serializer writes them: a class, a first mention, a length."""
    return b"\x0a\x01" + varint_bytes(len(message)) + message


def read(message: bytes, class_name: str = ORDER) -> Any:
    data = DataInput(of_kryo(message), "a value")
    shown = message_reader(class_name)(data)
    assert data.at_end()
    return shown


def message_class(name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for file in MADE.FromString(DESCRIPTORS.read_bytes()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def as_json(shown: Any, name: str = "") -> Any:
    """What is shown in protobuf's own JSON: no nulls, long numbers as text, Base64."""
    if isinstance(shown, dict):
        pairs = shown.items()
        return {key: as_json(each, key) for key, each in pairs if each is not None}
    if name == "by_name":
        return {key: as_json(each) for key, each in shown}
    if isinstance(shown, list):
        return [as_json(each, name) for each in shown]
    if name in BYTES:
        return base64.b64encode(bytes.fromhex(shown)).decode()
    return str(shown) if name in NUMBERS else shown


def an_order(seed: int) -> Any:
    chance = random.Random(seed)
    some = [0, 1, -1, 2**31 - 1, -(2**31), chance.randrange(-(2**31), 2**31)]
    long = [*some, 2**63 - 1, -(2**63), chance.randrange(-(2**63), 2**63)]
    order = message_class("shop.Order")(
        id=chance.choice(long),
        note=chance.choice(["", "é ☃ 𝄞", "x" * 300]),
        colour=chance.choice([0, 1, 2, 3, -1]),
        marks=chance.choices(long, k=chance.randrange(4)),
        raw=chance.randbytes(chance.randrange(4)),
        weight=chance.choice([0.0, -0.5, 1e300]),
        ratio=chance.choice([0.0, -0.5, 0.25]),
        open=chance.random() < 0.5,
        big=chance.choice(long) % 2**64,
        small=chance.choice(some),
    )
    for number in range(chance.randrange(3)):
        order.lines.add(article=chance.choice(["", "a"]), count=chance.choice(some))
        order.by_name[chance.choice(["", "b", str(number)])].count = chance.choice(some)
    if chance.random() < 0.5:
        order.maybe = chance.choice(some)
    if chance.random() < 0.7:
        order.part.name = "part"
        order.part.place.add(shelf=chance.choice(some))
        order.part.within.name = "within"
        order.part.sizes.extend(chance.choices(some, k=2))
    match chance.randrange(3):
        case 0:
            order.card = ""
        case 1:
            order.cash = chance.choice(long) % 2**64
    return order


@pytest.mark.parametrize("seed", range(300))
def test_a_message_is_shown_as_protobuf_itself_reads_it(seed: int) -> None:
    order = an_order(seed)
    theirs = json_format.MessageToDict(
        order, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    assert as_json(read(order.SerializeToString())) == theirs


def test_a_message_without_a_descriptor_is_shown_by_numbers_and_wires() -> None:
    use_descriptors([])
    order = message_class("shop.Order")(id=7, note="é", cash=5, ratio=1.0, marks=[1, -1])
    order.part.name = "p"
    order.part.place.add(shelf=3)
    assert read(order.SerializeToString()) == {
        "1": {"varint": 7},
        "2": {"bytes": "c3a9"},
        "5": {"bytes": "0201"},
        "9": {"fixed64": 5},
        "12": {"fixed32": 0x3F800000},
        "100": {"bytes": "0a01701b20031c"},
    }
    assert read(bytes.fromhex("1b20031c1b1c"), PART) == {
        "3": [{"group": {"4": {"varint": 3}}}, {"group": {}}]
    }


def test_fields_that_the_descriptor_does_not_have_are_shown_by_number() -> None:
    shown = read(b"\x08\x07" + bytes.fromhex("f03f010a0161f83f02"))
    assert shown["id"] == 7 and shown["note"] == ""
    # A field of another wire than its descriptor says is not that field.
    assert shown["1"] == {"bytes": "61"}
    assert (shown["1022"], shown["1023"]) == ({"varint": 1}, {"varint": 2})


def test_a_message_that_does_not_fit_its_descriptor_is_refused_with_the_way_out() -> None:
    raw = bytes.fromhex("a2060161")  # a text where the descriptor has a part
    with pytest.raises(FormatError) as refused:
        read(raw)
    assert "without --descriptor" in str(refused.value.hint)
    use_descriptors([])
    assert read(raw) == {"100": {"bytes": "61"}}


def test_a_text_that_is_no_utf8_is_shown_by_its_bytes() -> None:
    shown = read(bytes.fromhex("0a0361ffc31007"), PART)
    assert (shown["name"], shown["stock"]) == (r"a\xff\xc3", 7)


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_a_constant_that_an_enum_does_not_have_is_its_number(syntax: str) -> None:
    made = MADE()
    file = made.file.add(name="m.proto", syntax=syntax)
    file.enum_type.add(name="E").value.add(name="ONE", number=1)
    field = {"type": 14, "type_name": ".E"}
    message = file.message_type.add(name="N")
    message.field.add(name="one", number=1, label=1, **field)
    message.field.add(name="each", number=2, label=3, **field)
    use_descriptors([made.SerializeToString()])
    shown = read(bytes.fromhex("0809120301017b10ffffffffffffffffff01"), "M$N")
    assert shown == {"one": 9, "each": ["ONE", "ONE", 123, -1]}
    unset = {"proto2": None, "proto3": 0}[syntax]
    assert read(b"", "M$N") == {"one": unset, "each": []}


def test_the_last_of_several_counts_and_messages_are_merged_as_protobuf_does_it() -> None:
    order, other = message_class("shop.Order")(id=1), message_class("shop.Order")(id=2)
    order.part.name, other.part.stock = "first", 3
    both = order.SerializeToString() + other.SerializePartialToString()
    shown = read(both)
    assert shown["id"] == 2
    assert (shown["part"]["name"], shown["part"]["stock"]) == ("first", 3)


def test_numbers_of_a_repeated_field_are_read_packed_and_one_by_one() -> None:
    assert read(bytes.fromhex("28012a0202042803"))["marks"] == [-1, 1, 2, -2]
    assert read(bytes.fromhex("300132020203"), PART)["sizes"] == [1, 2, 3]


def test_null_is_null_and_a_class_by_its_name_is_not_guessed_at() -> None:
    assert message_reader(ORDER)(DataInput(b"\0", "a value")) is None
    with pytest.raises(Unknown):
        message_reader(ORDER)(DataInput(b"\1\0\x81a", "a value"))
    with pytest.raises(FormatError, match="mentioned before"):
        message_reader(ORDER)(DataInput(b"\x0a\2", "a value"))


@pytest.mark.parametrize(
    ("file", "options", "named", "classes"),
    [
        ("a/my_orders2go-x.proto", {}, "M", ["p.MyOrders2GoX$M", "p.MyOrders2GoX$M$In"]),
        ("m.proto", {}, "M", ["p.MOuterClass$M"]),
        ("a.proto", {"java_package": "com.x"}, "M", ["com.x.A$M"]),
        ("a.proto", {"java_outer_classname": "Own"}, "M", ["p.Own$M"]),
        ("a.proto", {"java_multiple_files": True}, "M", ["p.M", "p.M$In"]),
    ],
)
def test_java_options_lead_from_a_class_to_its_message(
    file: str, options: dict[str, Any], named: str, classes: list[str]
) -> None:
    made = MADE()
    described = made.file.add(name=file, package="p", syntax="proto3")
    for key, value in options.items():
        setattr(described.options, key, value)
    message = described.message_type.add(name=named)
    message.nested_type.add(name="In").field.add(name="n", number=1, type=5, label=1)
    use_descriptors([made.SerializeToString()])
    assert all(map(protobuf.is_described, classes))
    assert not protobuf.is_described("p.M" if classes[0] != "p.M" else "p.A$M")


def test_presence_follows_syntax_edition_and_feature() -> None:
    made = MADE()
    for number, syntax in enumerate(("", "proto3", "editions", "editions")):
        file = made.file.add(name=f"f{number}.proto", package=f"p{number}", syntax=syntax)
        if number == 3:
            file.options.features.field_presence = 2
        file.message_type.add(name="M").field.add(name="n", number=1, type=5, label=1)
    use_descriptors([made.SerializeToString()])
    shown = [read(b"", f"p{number}.F{number}$M")["n"] for number in range(4)]
    assert shown == [None, 0, None, 0]


def test_descriptors_that_lack_what_they_import_are_refused_with_the_way_out() -> None:
    whole = MADE.FromString(DESCRIPTORS.read_bytes())
    del whole.file[0]
    with pytest.raises(FormatError, match=r"shop\.parts\.Part.* is not in it") as refused:
        use_descriptors([whole.SerializeToString()])
    assert "--include_imports" in str(refused.value.hint)
    for other in (b"", b"\x08\x01", b"PK\3\4 a jar"):
        with pytest.raises(FormatError):
            use_descriptors([other])


def nested_in(depth: int) -> bytes:
    """A descriptor of so many messages, each within the one before."""
    message = b""
    for _ in range(depth):
        message = sized(1, b"M") + sized(3, message)
    return sized(1, sized(1, b"a.proto") + sized(4, message))


def sized(number: int, content: bytes) -> bytes:
    return varint_bytes(number << 3 | 2) + varint_bytes(len(content)) + content


def test_descriptors_that_are_nested_deeply_or_within_themselves_are_refused() -> None:
    use_descriptors([nested_in(99)])
    for depth in (200, 20_000):
        with pytest.raises(FormatError, match="nested too deeply"):
            use_descriptors([nested_in(depth)])
    made = MADE()
    entry = made.file.add(name="m.proto").message_type.add(name="E")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9)
    entry.field.add(name="value", number=2, type=11, type_name=".E")
    with pytest.raises(FormatError, match="E is no entry of a map"):
        use_descriptors([made.SerializeToString()])
    entry.ClearField("options")
    use_descriptors([made.SerializeToString()])
    assert dict(protobuf.message_fields("M$E")) == {"key": "string", "value": "E"}
    assert read(b"", "M$E") == {"key": None, "value": None}


def test_descriptors_cut_anywhere_or_damaged_are_refused_or_read() -> None:
    raw, chance = DESCRIPTORS.read_bytes(), random.Random(5)
    order = of_kryo(an_order(3).SerializeToString())
    for end in range(0, len(raw), 3):
        damaged = bytearray(raw[:end] if end % 2 else raw)
        for _ in range(3):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            use_descriptors([bytes(damaged)])
            message_reader(ORDER)(DataInput(order, "a value"))
            list(protobuf.message_fields(ORDER))
        except FormatError:
            continue


def test_a_message_cut_or_damaged_is_refused_or_read_to_its_end() -> None:
    chance = random.Random(6)
    for seed in range(30):
        raw = of_kryo(an_order(seed).SerializeToString())
        for end in range(len(raw)):
            with pytest.raises(FormatError):
                message_reader(ORDER)(DataInput(raw[:end], "a value"))
            damaged = bytearray(raw)
            damaged[chance.randrange(len(raw))] = chance.randrange(256)
            try:
                message_reader(ORDER)(DataInput(bytes(damaged), "a value"))
            except (FormatError, Unknown):
                continue


def test_depth_and_the_number_of_fields_that_are_shown_are_bounded() -> None:
    nested = b""
    for _ in range(99):
        nested = b"\x2a" + varint_bytes(len(nested)) + nested
    assert read(nested, PART)["within"] is not None
    for deep in (b"\x1b" * 5000, b"\x1b" * 101 + b"\x1c" * 101):
        with pytest.raises(FormatError, match="too deeply"):
            read(deep, PART)
    for _ in range(99):
        nested = b"\x2a" + varint_bytes(len(nested)) + nested
    with pytest.raises(FormatError, match="too deeply"):
        read(nested, PART)
    begun = time.process_time()
    with pytest.raises(FormatError, match="more than"):
        read(b"\xa2\x06\x00" * 10 + b"\x32\x00" * 400_000)
    assert time.process_time() - begun < 20


@pytest.mark.parametrize("tag", ["0000", "02", "06", "07", "24", "0f", "ffffffffff"])
def test_a_field_that_is_none_is_refused(tag: str) -> None:
    with pytest.raises(FormatError):
        read(bytes.fromhex(tag))
