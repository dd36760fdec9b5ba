"""Canonical keyed state made up: headers, keys and key groups as Flink writes them.

    header_of(key, states)            what a file begins with; a state of keys, or of timers
    key_bytes(serializer, key)        a key as its serializer writes it
    origin_of(head, files, groups)    an operator whose subtasks have these entries

A kind of key is "long", "int", "short", "byte", "string", or a tuple of kinds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stateshift.engines.flink.places import Places
from stateshift.engines.flink.rewrite.keyed_files import Origin
from stateshift.engines.flink.streams import Streams
from stateshift.formats.flink.java_data import Longs, encode_utf
from stateshift.formats.flink.key_groups import (
    groups_of,
    hash_fields,
    hash_int,
    hash_long,
    hash_string,
    key_group,
    prefix_bytes,
)
from stateshift.formats.flink.keyed_handles import SAVEPOINT_KEY_GROUPS, KeyGroups
from stateshift.formats.flink.keyed_state import VERSION, encode_section
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.stream_handles import Inline

Kind = str | tuple["Kind", ...]
Key = int | str | None | tuple["Key", ...]

_BASE = "org.apache.flink.api.common.typeutils.base."
_TUPLE = "org.apache.flink.api.java.typeutils.runtime.TupleSerializerSnapshot"
_TIMER = "org.apache.flink.streaming.api.operators.TimerSerializerSnapshot"
_VOID = "org.apache.flink.runtime.state.VoidNamespaceSerializer$VoidNamespaceSerializerSnapshot"
_OUTER, _NESTED = 911108, 1333245
_PROXY = struct.pack(">i", 2)
NUMBERS: Mapping[str, str] = {"long": ">q", "int": ">i", "short": ">h", "byte": ">b"}


@dataclass(frozen=True)
class Entry:
    """An entry of a state, by the state's number: behind a timer's key no value stands."""

    state: int
    key: Key
    value: bytes
    time: int | None = None


def header_of(kind: Kind, states: Sequence[str]) -> bytes:
    """Return what a file begins with. States are those of keys, but for `timers`."""
    content = struct.pack(">ib", VERSION, 0) + _PROXY + snapshot(kind)
    return content + struct.pack(">h", len(states)) + b"".join(_state(n, kind) for n in states)


def snapshot(kind: Kind) -> bytes:
    """Return the snapshot of a kind's serializer."""
    if isinstance(kind, tuple):
        of = encode_utf(f"org.apache.flink.api.java.tuple.Tuple{len(kind)}")
        return _composite(_TUPLE, of, [snapshot(inner) for inner in kind])
    name = kind.capitalize()
    return _simple(f"{_BASE}{name}Serializer${name}SerializerSnapshot")


def _simple(name: str) -> bytes:
    return encode_utf(name) + struct.pack(">i", 3)


def _composite(name: str, outer: bytes, inner: Sequence[bytes]) -> bytes:
    begin = encode_utf(name) + struct.pack(">iii", 3, _OUTER, 2) + outer
    return begin + struct.pack(">iii", _NESTED, 1, len(inner)) + b"".join(inner)


def _state(name: str, kind: Kind) -> bytes:
    void = _simple(_VOID)
    if name == "timers":
        timer = _composite(_TIMER, b"", [snapshot(kind), void])
        roles = encode_utf("VALUE_SERIALIZER") + _PROXY + timer
        return encode_utf(name) + struct.pack(">iii", 3, 0, 1) + roles
    option = encode_utf("KEYED_STATE_TYPE") + encode_utf("VALUE")
    roles = encode_utf("NAMESPACE_SERIALIZER") + _PROXY + void
    roles += encode_utf("VALUE_SERIALIZER") + _PROXY + snapshot("string")
    return encode_utf(name) + struct.pack(">ii", 0, 1) + option + struct.pack(">i", 2) + roles


def key_bytes(kind: Kind, key: Key) -> bytes:
    """Return a key as its serializer writes it."""
    match kind, key:
        case tuple(), tuple():
            return b"".join(map(key_bytes, kind, key))
        case "string", None:
            return _varint(0)
        case "string", str() if key.isascii():
            return _varint(len(key) + 1) + key.encode()
        case "string", str():
            units = key.encode("utf-16-be", "surrogatepass")
            numbers = struct.unpack(f">{len(units) // 2}H", units)
            return _varint(len(numbers) + 1) + b"".join(map(_varint, numbers))
        case str(), int():
            return struct.pack(NUMBERS[kind], key)
    raise AssertionError(f"{key!r} is no {kind!r}")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def hash_code(kind: Kind, key: Key) -> int:
    """Return the hash code of a key in Java."""
    match kind, key:
        case tuple(), tuple():
            return hash_fields(list(map(hash_code, kind, key)))
        case _, None:
            return 0
        case _, str():
            return hash_string(key)
        case "long", int():
            return hash_long(key)
        case _, int():
            return hash_int(key)
    raise AssertionError(f"{key!r} is no {kind!r}")


def sections_of(
    kind: Kind, entries: Sequence[Entry], max_parallelism: int
) -> Iterator[tuple[int, bytes]]:
    """Yield the key groups of entries; in each, what is of one state in their order."""
    by_group: dict[int, list[tuple[int, bytes, bytes]]] = {}
    prefix = prefix_bytes(max_parallelism)
    for entry in entries:
        group = key_group(hash_code(kind, entry.key), max_parallelism)
        time = b"" if entry.time is None else struct.pack(">Q", entry.time)
        key = group.to_bytes(prefix, "big") + time + key_bytes(kind, entry.key) + b"\0"
        by_group.setdefault(group, []).append((entry.state, key, entry.value))
    for group in sorted(by_group):
        yield group, encode_section(sorted(by_group[group], key=lambda entry: entry[0]))


def handle_of(head: bytes, sections: Mapping[int, bytes], groups: range) -> KeyGroups:
    """Return a file with the sections of these groups, in the metadata itself."""
    content, offsets = head, []
    for group in groups:
        section = sections.get(group, b"")
        offsets.append(len(content) if section else 0)
        content += section
    return KeyGroups(
        SAVEPOINT_KEY_GROUPS, groups.start, Longs.of(offsets), Inline("state", content)
    )


def origin_of(
    heads: Sequence[bytes], sections: Sequence[Mapping[int, bytes]], max_parallelism: int
) -> Origin:
    """Return an operator with a subtask for each head, each with its groups of its sections."""
    parallelism = len(heads)
    subtasks = []
    for index, (head, own) in enumerate(zip(heads, sections, strict=True)):
        groups = groups_of(index, max_parallelism, parallelism)
        subtasks.append(SubtaskState(index, managed_keyed=handle_of(head, own, groups)))
    operator = OperatorState(b"\0" * 16, parallelism, max_parallelism, None, tuple(subtasks))
    return Origin(operator, Streams(_no_file, Places("file:///none", "image")))


def _no_file(path: str, offset: int) -> Iterator[bytes]:
    raise AssertionError(f"{path} is opened")
