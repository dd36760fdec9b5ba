"""The file of a subtask's keyed state, as far as it is read without its serializers.

    header:    i32 version (6), u1 compressed, snapshot of the key's serializer, i16 n, n states
    canonical: for every key group that is not empty, at its offset
        u16 state; again and again: i32 + key, i32 + value; a key whose first bit is set ends the
        state, and the u16 that follows is the next one, FFFF at the end of the group
    hashmap:   at every offset i32 key group, then what only its serializers can tell

A state is `utf name, i32 kind, i32 n + n * (utf, utf), i32 m + m * (utf, snapshot)`. Snapshots of
serializers have no length, and those that are not known here cannot be skipped: the header then
ends where the first key group begins, and states are found by the names of their options, which
every state has. Where all are known, the header is read to its end.

Key groups of a compressed file are each one stream of framed snappy; of hashmap, each state in each
key group is one. Headers before version 6 (Flink before 1.7) list their states in other ways, and
are not read.

Flink: runtime/state/KeyedBackendSerializationProxy, FullSnapshotAsyncWriter,
heap/HeapSnapshotStrategy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from stateshift.errors import FormatError, OldVersion, UnknownVersion
from stateshift.formats.flink.java_data import Input, decode_modified
from stateshift.formats.flink.serializers import Serializer, Unknown, read_snapshot
from stateshift.formats.flink.state_options import (
    MODE,
    STATE_TYPE,
    fault_of_options,
    fault_of_roles,
)

VERSION: Final = 6
END_OF_GROUP: Final = 0xFFFF
FLAG: Final = 0x80
KINDS: Final = {0: "keyed", 1: "operator", 2: "broadcast", 3: "timers", 4: "keyed (async)"}

_ANCHOR: Final = re.compile(
    rb"\0\0\0(?:([\x00\x04])\0\0\0[\x00-\x08]\0\x10KEYED_STATE_TYPE\0"
    rb"|([\x01\x02])\0\0\0[\x00-\x08]\0\x20OPERATOR_STATE_DISTRIBUTION_MODE\0"
    rb"|(\x03)\0\0\0\0\0\0\0\x01\0\x10VALUE_SERIALIZER)",
    re.DOTALL,
)
_TYPES: Final = (STATE_TYPE, MODE)
_SNAPSHOT: Final = re.compile(rb"Snapshot(?![\w$])", re.ASCII)
_BEFORE: Final = re.compile(rb"\w*\Z", re.ASCII)
_CLASS_MAX: Final = 256  # bytes of a class's name that are looked at, without its package


@dataclass(frozen=True, slots=True)
class StateInfo:
    """One state, by the header. `type` is VALUE, LIST, MAP, ... where it says so; serializers are
    None where they are not known, and `unknown` is then the class of the first snapshot that is
    not. `key` is that of broadcast state.
    """

    name: str
    kind: str
    type: str | None = None
    namespace: Serializer | None = None
    value: Serializer | None = None
    key: Serializer | None = None
    unknown: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Header:
    """`size` is where the first key group begins; `key` is the serializer of keys, None where it is
    not known, and `unknown` is then the class of its snapshot.
    """

    version: int
    compressed: bool
    key: Serializer | None
    states: tuple[StateInfo, ...]
    size: int
    unknown: str | None = field(default=None, compare=False)


def decode_header(content: bytes, size: int | None = None) -> Header:
    """Return the header that these bytes begin with; `size` of them are the header's, where that is
    known.
    """
    data = Input(content, "keyed state", 0, size)
    if size is not None and len(content) < size:
        raise FormatError(
            f"keyed state ends early: a header of {size} bytes, with {len(content)}",
            None,
            len(content),
        )
    version = data.i4()
    if version != VERSION:
        raise _other_version(version)
    compressed = data.boolean()
    try:
        key = read_snapshot(data)
    except Unknown as error:
        states = find_states(content[: data.end])
        return Header(version, compressed, None, states, data.end, error.snapshot)
    at = data.at
    states_listed = _listed_states(data)
    if states_listed is None:
        count = Input(content, "keyed state", at).i2()
        states = find_states(content[: data.end], count)
        return Header(version, compressed, key, states, data.end)
    if size is not None and not data.at_end():
        raise data.wrong(
            f"{data.end - data.at} bytes between the header's end and the first key group"
        )
    return Header(version, compressed, key, states_listed, data.end)


def is_old(version: int) -> bool:
    """Whether a header of this version is of a Flink before 1.7, and is not read."""
    return 0 < version < VERSION


def _other_version(version: int) -> UnknownVersion:
    if is_old(version):
        return OldVersion(
            f"keyed state has a header of version {version}, of a Flink before 1.7, whose states "
            "cannot be read",
            None,
            0,
            hint="start the job from it in its own Flink, and take a savepoint with Flink 1.15 or "
            "newer",
        )
    return UnknownVersion(f"keyed state has version {version}, which is not known", None, 0)


def _listed_states(data: Input) -> tuple[StateInfo, ...] | None:
    """Read the states one by one; None where a serializer is not known, which has no end that could
    be found.
    """
    at = data.at
    count = data.i2()
    if count < 0:
        raise data.wrong(f"invalid number of states {count}", at)
    states = []
    for _ in range(count):
        state = read_state(data)
        if state is None:
            return None
        states.append(state)
    return tuple(states)


def read_state(data: Input) -> StateInfo | None:
    """Read the state that begins here; None where one of its serializers is not known."""
    name, at, kind = data.utf(), data.at, data.i4()
    if kind not in KINDS:
        raise data.wrong(f"unknown kind of state {kind}", at)
    described = _Described(name, KINDS[kind])
    try:
        described.read(data)
    except Unknown:
        return None
    return described.state()


@dataclass
class _Described:
    """What the header says of one state, as far as it is read."""

    name: str
    kind: str
    options: dict[str, str] = field(default_factory=dict)
    serializers: dict[str, Serializer] = field(default_factory=dict)

    def read(self, data: Input) -> None:
        """Read the options and serializers. Raises Unknown at a serializer that is not known, and
        FormatError where Flink could not restore the state.
        """
        for _ in range(data.items("options")):
            option = data.utf()
            self.options[option] = data.utf()
        self._refuse(data, fault_of_options(self.kind, self.options))
        roles: list[str] = []
        for _ in range(data.items("serializers")):
            roles.append(data.utf())
            self._refuse(data, fault_of_roles(self.kind, roles, complete=False))
            self.serializers[roles[-1]] = read_snapshot(data)
        self._refuse(data, fault_of_roles(self.kind, roles, complete=True))

    def state(self, unknown: str | None = None) -> StateInfo:
        types = [self.options[option] for option in _TYPES if option in self.options]
        return StateInfo(
            name=self.name,
            kind=self.kind,
            type=next(iter(types), None),
            namespace=self.serializers.get("NAMESPACE_SERIALIZER"),
            value=self.serializers.get("VALUE_SERIALIZER"),
            key=self.serializers.get("KEY_SERIALIZER"),
            unknown=unknown,
        )

    def _refuse(self, data: Input, fault: str | None) -> None:
        if fault is not None:
            raise data.wrong(f"state {self.name!r} {fault}")


def find_states(header: bytes, count: int | None = None) -> tuple[StateInfo, ...]:
    """Return the states in their order, which is the one in which the data numbers them; `count` of
    them, where that is known.
    """
    states = []
    floor = 0  # a state's name lies behind the state before it
    for anchor in _ANCHOR.finditer(header):
        states.append(_state_around(header, anchor, floor))
        floor = anchor.end()
    if count is not None and len(states) != count:
        raise FormatError(
            f"keyed state: its header has {count} states, of which {len(states)} can be read",
            None,
            0,
        )
    return tuple(states)


def _kind_at(anchor: re.Match[bytes]) -> str:
    kind = anchor[1] or anchor[2] or anchor[3]
    return KINDS[kind[0]]


def _state_around(header: bytes, anchor: re.Match[bytes], floor: int) -> StateInfo:
    name = _name_before(header, anchor.start(), floor)
    data = Input(header, "a state's header", anchor.start() + 4)
    described = _Described(name, _kind_at(anchor))
    try:
        described.read(data)
    except Unknown as error:
        return described.state(error.snapshot)
    return described.state()


def find_serializers(header: bytes) -> tuple[str, ...]:
    """Return the classes of serializer snapshots that are named, without their packages."""
    names = set()
    for match in _SNAPSHOT.finditer(header):
        before = header[max(0, match.start() - _CLASS_MAX) : match.start()]
        word = _BEFORE.search(before)
        if word is not None and word[0]:
            names.add(f"{word[0].decode()}Snapshot")
    return tuple(sorted(names))


def _name_before(header: bytes, end: int, floor: int) -> str:
    """Return the string that ends here, and begins behind `floor`: its length stands right before
    it.
    """
    for length in (*range(1, min(end - floor, 0xFFFF)), 0):
        start = end - length
        if start < floor + 2 or int.from_bytes(header[start - 2 : start], "big") != length:
            continue
        try:
            return decode_modified(header[start:end])
        except ValueError:
            continue
    raise FormatError("keyed state: a state has no name", None, end)


def sections(offsets: tuple[int, ...], end: int) -> tuple[tuple[int, int] | None, ...]:
    """Return (start, end) of each key group in its file, None where it is empty."""
    starts = sorted({offset for offset in offsets if offset})
    outside = [start for start in starts if not 0 < start <= end]
    if outside:
        wrong = outside[0] if outside[0] < 0 else outside[-1]
        raise FormatError(f"a key group begins at byte {wrong}, and its file has {end}", None, None)
    following = dict(pairwise((*starts, end)))
    return tuple((offset, following[offset]) if offset else None for offset in offsets)


def entries(
    section: bytes, prefix: int, group: int, states: int = END_OF_GROUP
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (state, key, value) of a canonical file's key group; the key with its group's prefix,
    without the flag. There are so many `states`, as far as that is known.
    """
    data = section
    wanted = _prefix(group, prefix)
    at, end = 2, len(section)
    if end < 2:
        raise FormatError("a key group of keyed state ends early", None, end)
    state = data[0] << 8 | data[1]
    while state != END_OF_GROUP:
        if state >= states:
            raise FormatError(
                f"key group {group} holds state {state}, of {states} that there are", None, at - 2
            )
        size = int.from_bytes(data[at : at + 4], "big")
        stop = at + 4 + size
        key = data[at + 4 : stop]
        value_end = stop + 4 + int.from_bytes(data[stop : stop + 4], "big")
        if stop + 4 > end or value_end > end or not size:
            raise FormatError(f"key group {group}: an entry exceeds its group", None, at)
        last = key[0] & FLAG
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


def _prefix(group: int, size: int) -> bytes:
    """Return what stands in front of a group's keys."""
    if group >= 1 << 8 * size:
        raise FormatError(
            f"key group {group} does not fit in {size} byte in front of its keys", None, 0
        )
    return group.to_bytes(size, "big")


def encode_section(entries: list[tuple[int, bytes, bytes]]) -> bytes:
    """Return what `entries` reads: entries in their order, those of one state behind each other."""
    if not entries:
        return b""
    states = [state for state, _, _ in entries]
    out = [states[0].to_bytes(2, "big")]
    for (state, key, value), following in zip(entries, (*states[1:], END_OF_GROUP), strict=True):
        ends = following != state
        own = bytes((key[0] | FLAG,)) + key[1:] if ends else key
        out += [len(own).to_bytes(4, "big"), own, len(value).to_bytes(4, "big"), value]
        if ends:
            out.append(following.to_bytes(2, "big"))
    return b"".join(out)
