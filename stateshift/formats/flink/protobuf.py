"""Messages of protobuf in state: Kryo writes them with the serializer of chill-protobuf.

    value     varint class, 1 in front of an object's first mention, varint n, n bytes: a message;
              class 0 is null, and 1 would be a class by its name
    message   (varint number << 3 | wire, content)*
    wire      0 varint · 1 8 bytes · 2 varint n, n bytes · 3 fields, until a 4 of the same number ·
              5 4 bytes; numbers are little-endian
    packed    numbers of one repeated field, one after the other in the bytes of a wire 2

A message does not tell its fields: descriptors do (`use_descriptors`), as protoc writes them with
--include_imports. They are the process's, as its bounds are: the command line reads --descriptor.
Java's options in them lead from a class to its message. Fields that they do not name, and all
fields of a class that they do not have, are shown by number and wire: {"7": {"varint": 1}}.

A field that is not set is null where that can be told from its type's default, and else that
default; maps are pairs, bytes hexadecimal, constants names, or numbers that have none.

chill: protobuf/ProtobufSerializer. protobuf: encoding, descriptor.proto, editions; compiler/java/
ClassNameResolver, UnderscoresToCamelCase.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from stateshift.errors import FormatError
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.values import Reader, Unknown, read_varint

CHILL: Final = "com.twitter.chill.protobuf.ProtobufSerializer"
DEPTH_MAX: Final = 100  # as Java's parser has it
FIELDS_MAX: Final = 1_000_000  # that a value shows, with those that are not set
_VARINT, _EIGHT, _SIZED, _GROUP, _END, _FOUR = range(6)
_WIRES: Final = ("varint", "fixed64", "bytes", "group", "", "fixed32")
_EXPLICIT, _IMPLICIT = 1, 2
_REPEATED = 3
_WHAT: Final = "a set of descriptors"


class RawField(NamedTuple):
    """A field as it is in the bytes: a number, bytes, or the parts of a group."""

    number: int
    wire: int
    content: int | bytes | list[RawField]


def _signed(bits: int) -> Callable[[int], object]:
    """Return the function from a varint to a signed number of so many bits."""
    half, whole = 1 << bits - 1, 1 << bits
    return lambda number: ((number % whole) ^ half) - half


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


class _Scalar(NamedTuple):
    """A type of numbers: its wire, its form or the meaning of its varint, and what it is where it
    is not set.
    """

    name: str
    wire: int
    meaning: str | Callable[[int], object]
    unset: object = 0


_SCALARS: Final[Mapping[int, _Scalar]] = {
    1: _Scalar("double", _EIGHT, "<d", 0.0),
    2: _Scalar("float", _FOUR, "<f", 0.0),
    3: _Scalar("int64", _VARINT, _signed(64)),
    4: _Scalar("uint64", _VARINT, int),
    5: _Scalar("int32", _VARINT, _signed(32)),
    6: _Scalar("fixed64", _EIGHT, "<Q"),
    7: _Scalar("fixed32", _FOUR, "<I"),
    8: _Scalar("bool", _VARINT, bool, False),
    13: _Scalar("uint32", _VARINT, lambda number: number & 0xFFFF_FFFF),
    14: _Scalar("enum", _VARINT, _signed(32)),
    15: _Scalar("sfixed32", _FOUR, "<i"),
    16: _Scalar("sfixed64", _EIGHT, "<q"),
    17: _Scalar("sint32", _VARINT, lambda number: _zigzag(number & 0xFFFF_FFFF)),
    18: _Scalar("sint64", _VARINT, _zigzag),
}
_STRING, _BYTES, _NESTED, _ENUM = 9, 12, (10, 11), 14
_NO_TEXT: Final = "backslashreplace"  # of a text of proto2, which may be none


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message; `of` is the name of its message or enum."""

    name: str
    kind: int
    of: str
    is_repeated: bool
    has_presence: bool


@dataclass(slots=True)
class _Descriptors:
    """Messages and enums by their names, messages by Java's classes; `entries` are of maps."""

    messages: dict[str, dict[int, _Field]] = field(default_factory=dict)
    entries: set[str] = field(default_factory=set)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)


class _Given:
    """Those that hold. A class, so that setting them needs no `global`."""

    descriptors = _Descriptors()


def use_descriptors(contents: Iterable[bytes]) -> None:
    """Let this process read messages by these FileDescriptorSets, and by no others.

    FormatError: one is none, or does not have all that its messages are made of.
    """
    given = _Descriptors()
    for content in contents:
        files = _Described(content).several(1)
        if not files:
            raise FormatError(f"{_WHAT}: no file is described in it", None, 0, hint=_MADE_BY)
        for file in files:
            _add_file(given, file)
    for name, fields in given.messages.items():
        for each in fields.values():
            is_known = each.of in given.messages if each.kind in _NESTED else True
            if not is_known or (each.kind == _ENUM and each.of not in given.enums):
                fact = f"{_WHAT}: {each.of[1:]}, of which {name[1:]} has a field, is not in it"
                raise FormatError(fact, None, None, hint=_MADE_BY)
        names = [each.name for each in fields.values() if each.of not in given.entries]
        if name in given.entries and names != ["key", "value"]:
            raise FormatError(f"{_WHAT}: {name[1:]} is no entry of a map", None, None)
    _Given.descriptors = given


_MADE_BY: Final = "protoc --include_imports --descriptor_set_out=FILE *.proto"


class _Described:
    """A message of descriptor.proto, asked by the numbers of its fields."""

    def __init__(self, content: bytes) -> None:
        self._parts = parts_of(DataInput(content, _WHAT))

    def number(self, number: int, default: int = 0) -> int:
        for part in reversed(self._parts):
            if part.number == number and isinstance(part.content, int):
                return part.content
        return default

    def contents(self, number: int) -> list[bytes]:
        same = [part.content for part in self._parts if part.number == number]
        return [content for content in same if isinstance(content, bytes)]

    def text(self, number: int) -> str:
        return b"".join(self.contents(number)[-1:]).decode("utf-8", "replace")

    def several(self, number: int) -> list[_Described]:
        return [_Described(content) for content in self.contents(number)]

    def one(self, number: int) -> _Described:
        return _Described(b"".join(self.contents(number)))


def _add_file(given: _Descriptors, file: _Described) -> None:
    """Add a FileDescriptorProto, with the classes that Java has for its messages."""
    package, options = file.text(2), file.one(8)
    java_package = options.text(1) or package
    outer = options.text(8)
    outers = [outer]
    if not outer:
        words = re.findall("[A-Za-z]+|[0-9]+", file.text(1).rpartition("/")[2].partition(".")[0])
        outer = "".join(word[:1].upper() + word[1:] for word in words)
        # The second where a message is called so, too; the third since edition 2024.
        outers = [outer, f"{outer}OuterClass", f"{outer}Proto"]
    spaces = [f"{outer}$" for outer in outers]
    # Since edition 2024 it is a feature, which only Java's own descriptors know.
    if options.number(10) or file.number(14) >= _EDITION_2024:
        spaces = ["", *spaces] if file.number(14) >= _EDITION_2024 else [""]
    presences = {"proto3": _IMPLICIT, "editions": options.one(50).number(1, _EXPLICIT)}
    presence = presences.get(file.text(12), _EXPLICIT)
    prefix = f"{java_package}." if java_package else ""
    space = f".{package}" if package else ""
    classes = [prefix + outer for outer in spaces]
    _add_types(given, file, (4, 5), _Space(space, classes, presence))


_EDITION_2024: Final = 1001


class _Space(NamedTuple):
    """The beginnings of messages' names, in protobuf and in Java; their fields' presence."""

    name: str
    classes: list[str]
    presence: int
    depth: int = 0


def _add_types(
    given: _Descriptors, owner: _Described, numbers: tuple[int, int], space: _Space
) -> None:
    """Add the messages and enums of a file or a message."""
    if space.depth > DEPTH_MAX:
        raise FormatError(f"{_WHAT}: messages are nested too deeply", None, None)
    messages, enums = numbers
    for enum in owner.several(enums):
        constants = {value.number(2) & _INT: value.text(1) for value in enum.several(2)[::-1]}
        given.enums[f"{space.name}.{enum.text(1)}"] = constants
    for message in owner.several(messages):
        name = f"{space.name}.{message.text(1)}"
        classes = [f"{prefix}{message.text(1)}" for prefix in space.classes]
        given.messages[name] = {
            each.number(3): _field_of(each, space.presence) for each in message.several(2)
        }
        if message.one(7).number(7):
            given.entries.add(name)
        for each in classes:
            given.classes.setdefault(each, name)
        outers = [f"{each}$" for each in classes]
        within = _Space(name, outers, space.presence, space.depth + 1)
        _add_types(given, message, (3, 4), within)


_INT: Final = 0xFFFF_FFFF


def _field_of(described: _Described, presence: int) -> _Field:
    kind, is_repeated = described.number(5), described.number(4) == _REPEATED
    own = described.one(8).one(21).number(1, presence)
    may_be_unset = kind in _NESTED or described.number(9, -1) >= 0 or own != _IMPLICIT
    has_presence = may_be_unset and not is_repeated
    return _Field(described.text(1), kind, described.text(6), is_repeated, has_presence)


# ---- values --------------------------------------------------------------------------------------


def is_described(class_name: str) -> bool:
    """Whether a class of Java is that of a message whose descriptor was given."""
    return class_name in _Given.descriptors.classes


def message_reader(class_name: str) -> Reader:
    """Return the reader of messages as chill's serializer writes them."""
    message = _Given.descriptors.classes.get(class_name)

    def read_message(data: DataInput) -> object:
        at, number = data.at, read_varint(data)
        if number == 0:
            return None
        if number == 1:
            raise Unknown("an object of a class that Kryo has by its name")
        if data.u1() != 1:
            raise data.wrong("an object that Kryo has mentioned before", at)
        size, start = read_varint(data), data.at
        data.take(size)
        parts = parts_of(DataInput(data.data, data.what, start, start + size))
        try:
            return _Reading(data).shown(message, parts)
        except FormatError as error:
            error.hint = _OTHER_TYPES  # what is within is read by the descriptor alone
            raise

    return read_message


_OTHER_TYPES: Final = (
    "the descriptor may be of a message with other types; without --descriptor fields are shown by "
    "number"
)


def parts_of(data: DataInput, depth: int = 0, group: int | None = None) -> list[RawField]:
    """Return the fields of a message to its end, or to that of a group of this number."""
    if depth > DEPTH_MAX:
        raise data.wrong("messages are nested too deeply")
    parts: list[RawField] = []
    while not data.at_end():
        at, tag = data.at, data.varint()
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise data.wrong(f"a field of number {number}", at)
        if wire == _END and number == group:
            return parts
        read = _CONTENTS.get(wire)
        if read is None and wire != _GROUP:
            raise data.wrong(f"a field {number} of wire {wire}", at)
        content = parts_of(data, depth + 1, number) if read is None else read(data)
        parts.append(RawField(number, wire, content))
    if group is not None:
        raise data.wrong(f"group {group} has no end")
    return parts


_LONG: Final = (1 << 64) - 1
_CONTENTS: Final[Mapping[int, Callable[[DataInput], int | bytes]]] = {
    _VARINT: lambda data: data.varint() & _LONG,
    _EIGHT: lambda data: data.take(8),
    _SIZED: lambda data: data.take(data.varint()),
    _FOUR: lambda data: data.take(4),
}


@dataclass
class _Reading:
    """A value that is read, and the number of fields that it may still show."""

    data: DataInput
    left: int = FIELDS_MAX

    def shown(self, name: str | None, parts: list[RawField], depth: int = 0) -> dict[str, object]:
        """Return the fields of a message of this name; of None, by number."""
        if depth > DEPTH_MAX:
            raise self.data.wrong("messages are nested too deeply")
        fields = {} if name is None else _Given.descriptors.messages[name]
        self.left -= len(fields) + len(parts)
        if self.left < 0:
            raise self.data.wrong(f"a message shows more than {FIELDS_MAX} fields")
        by_number: dict[int, list[RawField]] = {number: [] for number in fields}
        for part in parts:
            by_number.setdefault(part.number, []).append(part)
        shown: dict[str, object] = {}
        for number, own in by_number.items():
            known = fields.get(number)
            rest = own
            if known is not None:
                fit = [part for part in own if _fits(known, part)]
                rest = [part for part in own if not _fits(known, part)]
                shown[known.name] = self.of_field(known, fit, depth)
            if rest:
                each = [{_WIRES[part.wire]: self.plain(part, depth)} for part in rest]
                shown[str(number)] = each[0] if len(each) == 1 else each
        return shown

    def of_field(self, known: _Field, parts: list[RawField], depth: int) -> object:
        """Return the value of a field; of one that is not repeated the last, or all merged."""
        if known.kind in _NESTED:
            each = [_within(part, self.data) for part in parts]
            if not known.is_repeated:
                merged = list(chain.from_iterable(each))
                return self.shown(known.of, merged, depth + 1) if parts else None
            items = [self.shown(known.of, within, depth + 1) for within in each]
            is_map = known.of in _Given.descriptors.entries
            return [[item["key"], item["value"]] for item in items] if is_map else items
        values = list(chain.from_iterable(self.values(known, part) for part in parts))
        if known.is_repeated:
            return values
        if values:
            return values[-1]
        if known.has_presence:
            return None
        if known.kind == _ENUM:
            return _Given.descriptors.enums[known.of].get(0, 0)
        return _SCALARS[known.kind].unset if known.kind in _SCALARS else ""

    def values(self, known: _Field, part: RawField) -> Iterator[object]:
        """Yield the values of a field that is no message: several where they are packed."""
        content = part.content
        if known.kind in (_STRING, _BYTES):
            assert isinstance(content, bytes), "of this wire"
            yield content.hex() if known.kind == _BYTES else content.decode("utf-8", _NO_TEXT)
            return
        scalar = _SCALARS[known.kind]
        if part.wire == _SIZED:
            assert isinstance(content, bytes), "of this wire"
            packed = DataInput(content, self.data.what)
            while not packed.at_end():
                own = _CONTENTS[scalar.wire](packed)
                yield from self.values(known, RawField(part.number, scalar.wire, own))
            return
        if isinstance(scalar.meaning, str):
            assert isinstance(content, bytes), "of this wire"
            yield struct.unpack(scalar.meaning, content)[0]
            return
        assert isinstance(content, int), "a varint"
        number = scalar.meaning(content)
        if known.kind == _ENUM:
            yield _Given.descriptors.enums[known.of].get(content & _INT, number)
        else:
            yield number

    def plain(self, part: RawField, depth: int) -> object:
        """Return the content of a field that no descriptor has."""
        match part.content:
            case bytes() as content if part.wire == _SIZED:
                return content.hex()
            case bytes() as content:
                return int.from_bytes(content, "little")
            case list() as parts:
                return self.shown(None, parts, depth + 1)
        return part.content


def _fits(known: _Field, part: RawField) -> bool:
    if known.kind in _NESTED:
        return part.wire in (_SIZED, _GROUP)
    if known.kind in (_STRING, _BYTES):
        return part.wire == _SIZED
    scalar = _SCALARS.get(known.kind)
    if scalar is None:
        return False
    return part.wire == scalar.wire or (known.is_repeated and part.wire == _SIZED)


def _within(part: RawField, data: DataInput) -> list[RawField]:
    content = part.content
    if isinstance(content, list):
        return content
    assert isinstance(content, bytes), "of this wire"
    return parts_of(DataInput(content, data.what))


# ---- types ---------------------------------------------------------------------------------------


def message_fields(class_name: str) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class's message with their types, if its descriptor was given."""
    name = _Given.descriptors.classes.get(class_name)
    for each in () if name is None else _Given.descriptors.messages[name].values():
        yield each.name, _type_name(each)


def _type_name(of: _Field) -> str:
    names = {_STRING: "string", _BYTES: "bytes"}
    if of.of in _Given.descriptors.entries:
        key, value = (_type_name(each) for each in _Given.descriptors.messages[of.of].values())
        return f"map<{key}, {value}>"
    scalar = _SCALARS.get(of.kind)
    name = of.of[1:] or names.get(of.kind) or (scalar.name if scalar else "unknown")
    return f"repeated {name}" if of.is_repeated else name
