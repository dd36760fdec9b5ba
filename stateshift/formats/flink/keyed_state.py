"""The file of a subtask's keyed state, as far as it is read without its serializers.

    i32 version (6), u1 compressed, snapshot of the key's serializer, i16 n, n states         the header
    canonical: for every key group that is not empty, at its offset
        u16 state; again and again: i32 + key, i32 + value; a key whose first bit is set ends the state, and the u16
        that follows is the next one, FFFF at the end of the group
    hashmap:   at every offset i32 key group, then what only its serializers can tell

A state is `utf name, i32 kind, i32 n + n * (utf, utf), i32 m + m * (utf, snapshot)`. Snapshots of serializers have no
length, and those of a user's own classes cannot be skipped: so the header ends where the first key group begins, and
states are found by the names of their options, which every state has.

Key groups of a compressed file are each one stream of framed snappy.

Flink: runtime/state/KeyedBackendSerializationProxy, FullSnapshotAsyncWriter, heap/HeapSnapshotStrategy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from stateshift.errors import FormatError, UnknownVersion
from stateshift.formats.flink.java_data import Input, decode_modified
from stateshift.formats.flink.serializers import Serializer, Unknown, read_snapshot

VERSIONS: Final = range(1, 7)
END_OF_GROUP: Final = 0xFFFF
_FLAG: Final = 0x80
KINDS: Final = {0: "keyed", 1: "operator", 2: "broadcast", 3: "timers", 4: "keyed (async)"}

_ANCHOR: Final = re.compile(
    rb"\0\0\0([\0-\4])\0\0\0(?:[\0-\x08]\0\x10KEYED_STATE_TYPE\0(.)|[\0-\x08]\0\x20OPERATOR_STATE_DISTRIBUTION_MODE\0(.)"
    rb"|\0\0\0\0\x01\0\x10VALUE_SERIALIZER)",
    re.DOTALL,
)
_SNAPSHOT: Final = re.compile(rb"[\w.$]*?(\w+Snapshot)(?![\w$])", re.ASCII)


@dataclass(frozen=True, slots=True)
class StateInfo:
    """One state, by the header. `type` is VALUE, LIST, MAP, ... where it says so; serializers are None where they are
    not known."""

    name: str
    kind: str
    type: str | None = None
    namespace: Serializer | None = None
    value: Serializer | None = None


@dataclass(frozen=True, slots=True)
class Header:
    """`size` is where the first key group begins; `key` is the serializer of keys, None where it is not known."""

    version: int
    compressed: bool
    key: Serializer | None
    states: tuple[StateInfo, ...]
    size: int


def decode_header(content: bytes, size: int | None = None) -> Header:
    """The header that these bytes begin with; `size` of them are the header's, where that is known."""
    data = Input(content, "keyed state", 0, size)
    version = data.i4()
    if version not in VERSIONS:
        raise UnknownVersion(f"keyed state has version {version}, which is not known", None, 0)
    compressed = data.boolean() if version >= 4 else False
    try:
        key = read_snapshot(data)
    except Unknown:
        key = None
    return Header(version, compressed, key, find_states(content[: data.end]), data.end)


def find_states(header: bytes) -> tuple[StateInfo, ...]:
    """The states in their order, which is the one in which the data numbers them."""
    return tuple(_state(header, found) for found in _ANCHOR.finditer(header))


def _state(header: bytes, found: re.Match[bytes]) -> StateInfo:
    name, kind = _name_before(header, found.start()), KINDS[found[1][0]]
    serializers: dict[str, Serializer] = {}
    data = Input(header, "a state's header", found.start() + 4)
    with suppress(Unknown):
        for _ in range(data.count("options")):
            data.utf()
            data.utf()
        for _ in range(data.count("serializers")):
            role = data.utf()
            serializers[role] = read_snapshot(data)
    namespace, value = serializers.get("NAMESPACE_SERIALIZER"), serializers.get("VALUE_SERIALIZER")
    return StateInfo(name, kind, _type_after(header, found), namespace, value)


def find_serializers(header: bytes) -> tuple[str, ...]:
    """The classes of serializer snapshots that are named, without their packages."""
    return tuple(sorted({found[1].decode() for found in _SNAPSHOT.finditer(header)}))


def _name_before(header: bytes, end: int) -> str:
    """The string that ends here: its length stands right before it."""
    for length in (*range(1, min(end, 0xFFFF)), 0):
        start = end - length
        if start >= 2 and int.from_bytes(header[start - 2 : start], "big") == length:
            try:
                return decode_modified(header[start:end])
            except ValueError:
                continue
    raise FormatError("keyed state: a state without a name", None, end)


def _type_after(header: bytes, found: re.Match[bytes]) -> str | None:
    length = found[2] or found[3]
    return header[found.end() : found.end() + length[0]].decode("ascii", "replace") if length else None


def sections(offsets: tuple[int, ...], end: int) -> tuple[tuple[int, int] | None, ...]:
    """(start, end) of each key group in its file, None where it is empty."""
    starts = sorted({offset for offset in offsets if offset})
    following = dict(pairwise((*starts, end)))
    return tuple((offset, following[offset]) if offset else None for offset in offsets)


def entries(section: bytes, prefix: int, group: int) -> Iterator[tuple[int, bytes, bytes]]:
    """(state, key, value) of a key group of a canonical file; the key with its group's prefix, without the flag."""
    data = section
    at, end = 2, len(section)
    if end < 2:
        raise FormatError("a key group of keyed state ends early", None, end)
    state = data[0] << 8 | data[1]
    wanted = group.to_bytes(prefix, "big")
    while state != END_OF_GROUP:
        size = int.from_bytes(data[at : at + 4], "big")
        stop = at + 4 + size
        key = data[at + 4 : stop]
        value_end = stop + 4 + int.from_bytes(data[stop : stop + 4], "big")
        if stop + 4 > end or value_end > end or not size:
            raise FormatError(f"key group {group}: an entry that ends behind its group", None, at)
        last = key[0] & _FLAG
        if last:
            key = bytes((key[0] & 0x7F,)) + key[1:]
        if key[:prefix] != wanted:
            raise FormatError(f"key group {group} holds a key of another group", None, at)
        yield state, key, data[stop + 4 : value_end]
        at = value_end
        if last:
            if at + 2 > end:
                raise FormatError(f"key group {group} ends early", None, end)
            state = data[at] << 8 | data[at + 1]
            at += 2
    if at != end:
        raise FormatError(f"key group {group}: {end - at} bytes behind its end", None, at)


def encode_section(entries: list[tuple[int, bytes, bytes]]) -> bytes:
    """What `entries` reads: entries in their order, those of one state behind each other."""
    if not entries:
        return b""
    out = []
    for number, (state, key, value) in enumerate(entries):
        if number == 0:
            out.append(state.to_bytes(2, "big"))
        following = entries[number + 1][0] if number + 1 < len(entries) else END_OF_GROUP
        ends = following != state
        own = bytes((key[0] | _FLAG,)) + key[1:] if ends else key
        out += [len(own).to_bytes(4, "big"), own, len(value).to_bytes(4, "big"), value]
        if ends:
            out.append(following.to_bytes(2, "big"))
    return b"".join(out)
