"""The file of a subtask's keyed state, as far as it is read without its serializers.

    header:    i32 version (6), u1 compressed, snapshot of the key's serializer, i16 n, n states
    canonical: for every key group that is not empty, at its offset
        u16 state; again and again: i32 + key, i32 + value; a key whose first bit is set ends the
        state, and the u16 that follows is the next one, FFFF at the end of the group
    hashmap:   at every offset i32 key group, then what only its serializers can tell

A state is `utf name, i32 kind, i32 n + n * (utf, utf), i32 m + m * (utf, snapshot)`. Snapshots of
serializers have no length, and those that are not known here cannot be skipped: the header then
ends where the first key group begins, and states are found by the names of their options, which
every state has. If all are known, the header is read to its end.

Flink reads options and serializers by name, and fails on a missing one. It ignores other options;
the value of one is the name of an enum constant.

    kind              option                              serializers
    keyed             KEYED_STATE_TYPE                    NAMESPACE_SERIALIZER, VALUE_SERIALIZER
    operator          OPERATOR_STATE_DISTRIBUTION_MODE    VALUE_SERIALIZER
    broadcast         OPERATOR_STATE_DISTRIBUTION_MODE    KEY_SERIALIZER, VALUE_SERIALIZER
    timers                                                VALUE_SERIALIZER
    keyed (async)     KEYED_STATE_TYPE                    NAMESPACE_SERIALIZER, VALUE_SERIALIZER

Key groups of a compressed file are each one stream of framed snappy; of hashmap, each state in each
key group is one. Headers before version 6 (Flink before 1.7) list their states in other ways, and
are not read.

Flink: runtime/state/KeyedBackendSerializationProxy, FullSnapshotAsyncWriter,
heap/HeapSnapshotStrategy, metainfo/StateMetaInfoSnapshot, Registered{KeyValue, Operator, Broadcast,
PriorityQueue}StateBackendMetaInfo, StateDescriptor.Type, OperatorStateHandle.Mode; 1.15 to 2.3.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from stateshift.errors import FormatError, OldVersion, UnknownVersion
from stateshift.formats.flink.java_data import DataInput, decode_modified
from stateshift.formats.flink.serializers import Serializer, Unknown, read_snapshot

STATE_TYPE: Final = "KEYED_STATE_TYPE"
MODE: Final = "OPERATOR_STATE_DISTRIBUTION_MODE"
ROLES: Final = ("KEY_SERIALIZER", "NAMESPACE_SERIALIZER", "VALUE_SERIALIZER", "USER_KEY_SERIALIZER")

_CONSTANTS: Final[Mapping[str, tuple[str, ...]]] = {
    STATE_TYPE: ("UNKNOWN", "VALUE", "LIST", "REDUCING", "FOLDING", "AGGREGATING", "MAP"),
    MODE: ("SPLIT_DISTRIBUTE", "UNION", "BROADCAST"),
}


_TYPES: Final = (STATE_TYPE, MODE)


@dataclass(frozen=True, slots=True)
class Required:
    """The option that a kind of state has to have, and the roles of its serializers."""

    option: str | None
    roles: tuple[str, ...]


_KEYED = Required(STATE_TYPE, ("NAMESPACE_SERIALIZER", "VALUE_SERIALIZER"))
_REQUIRED: Final[Mapping[str, Required]] = {
    "keyed": _KEYED,
    "keyed (async)": _KEYED,
    "operator": Required(MODE, ("VALUE_SERIALIZER",)),
    "broadcast": Required(MODE, ("KEY_SERIALIZER", "VALUE_SERIALIZER")),
    "timers": Required(None, ("VALUE_SERIALIZER",)),
}

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
_NAMESPACE: Final = b"\0\x14NAMESPACE_SERIALIZER"
_SNAPSHOT: Final = re.compile(rb"Snapshot(?![\w$])", re.ASCII)
_BEFORE: Final = re.compile(rb"\w*\Z", re.ASCII)
_CLASS_MAX: Final = 256  # bytes of a class's name that are looked at, without its package


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A state by the header. Serializers are None if they are not known. `span` is where it begins
    and ends in the header, where that is read to its end.
    """

    name: str
    kind: str
    type: str | None = None  # VALUE, LIST, MAP, ...
    namespace: Serializer | None = None
    value: Serializer | None = None
    key: Serializer | None = None  # of broadcast state
    unknown: str | None = field(default=None, compare=False)  # the first unknown snapshot's class
    span: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Header:
    """A header of `size` bytes, before the first key group."""

    version: int
    compressed: bool
    key: Serializer | None  # of keys, if it is known
    states: tuple[StateInfo, ...]
    size: int
    unknown: str | None = field(default=None, compare=False)  # class of an unknown key's snapshot


def decode_header(content: bytes, size: int | None = None) -> Header:
    """Return the header that these bytes begin with; it has `size` bytes, if that is known."""
    data = DataInput(content, "keyed state", 0, size)
    if size is not None and len(content) < size:
        fact = f"keyed state ends early: a header of {size} bytes, with {len(content)}"
        raise FormatError(fact, None, len(content))
    version = data.i4()
    if is_old(version):
        raise OldVersion(
            f"keyed state has a header of version {version}, of a Flink before 1.7, whose states "
            "cannot be read",
            None,
            0,
            hint="start the job from it in its own Flink, and take a savepoint with Flink 1.15 or "
            "newer",
        )
    if version != VERSION:
        raise UnknownVersion(f"keyed state has version {version}, which is not known", None, 0)
    compressed = data.boolean()
    try:
        key = read_snapshot(data)
    except Unknown as error:
        states = find_states(content[: data.end])
        return Header(version, compressed, None, states, data.end, error.snapshot)
    at = data.at
    states_listed = _listed_states(data)
    if states_listed is None:
        count = DataInput(content, "keyed state", at).i2()
        states = find_states(content[: data.end], count)
        return Header(version, compressed, key, states, data.end)
    if size is not None:
        data.require_end("bytes between the header's end and the first key group")
    return Header(version, compressed, key, states_listed, data.end)


def is_old(version: int) -> bool:
    """Whether a header of this version is of a Flink before 1.7, and is not read."""
    return 0 < version < VERSION


def _listed_states(data: DataInput) -> tuple[StateInfo, ...] | None:
    """Read the states one by one; None if a serializer is unknown: nothing shows its end."""
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


def read_state(data: DataInput) -> StateInfo | None:
    """Read the state that begins here; None where one of its serializers is not known."""
    start, name = data.at, data.utf()
    at, kind = data.at, data.i4()
    if kind not in KINDS:
        raise data.wrong(f"unknown kind of state {kind}", at)
    described = _StateReader(name, KINDS[kind])
    try:
        described.read(data)
    except Unknown:
        return None
    return replace(described.state(), span=(start, data.at))


@dataclass
class _StateReader:
    """One state of a header, as far as it is read."""

    name: str
    kind: str
    options: dict[str, str] = field(default_factory=dict)
    serializers: dict[str, Serializer] = field(default_factory=dict)

    def read(self, data: DataInput) -> None:
        """Read options and serializers; Unknown at an unknown serializer."""
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

    def find_namespace(self, data: DataInput, end: int) -> None:
        """Read the namespace's serializer behind one that is unknown, where it is, if it is there.

        One way alone has to lead to it: what is unknown might hold the same name.
        """
        if "NAMESPACE_SERIALIZER" in self.serializers or self.kind == "timers":
            return
        if data.data.count(_NAMESPACE, data.at, end) != 1:
            return
        at = data.data.index(_NAMESPACE, data.at, end) + len(_NAMESPACE)
        with suppress(Unknown, FormatError):
            namespace = read_snapshot(DataInput(data.data, data.what, at, end))
            self.serializers["NAMESPACE_SERIALIZER"] = namespace

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

    def _refuse(self, data: DataInput, fault: str | None) -> None:
        if fault is not None:
            raise data.wrong(f"state {self.name!r} {fault}")


def fault_of_options(kind: str, options: Mapping[str, str]) -> str | None:
    """Return the reason why Flink cannot restore these options; None if it can."""
    option = _REQUIRED[kind].option
    if option is None:
        return None
    if option not in options:
        return f"has no option {option}"
    if options[option] not in _CONSTANTS[option]:
        return f"has the {option} {options[option]!r}, which Flink does not know"
    return None


def fault_of_roles(kind: str, roles: Collection[str], complete: bool) -> str | None:
    """Return the reason why Flink cannot restore these serializers' roles; None if it can."""
    foreign = next((role for role in roles if role not in ROLES), None)
    if foreign is not None:
        return f"has a serializer {foreign!r}, which Flink does not look for"
    missing = [role for role in _REQUIRED[kind].roles if role not in roles]
    if complete and missing:
        return f"has no {missing[0]}"
    return None


def find_states(header: bytes, count: int | None = None) -> tuple[StateInfo, ...]:
    """Return the states in the data's order; `count` of them, if that is known."""
    states = []
    floor = 0  # a state's name lies behind the state before it
    anchors = list(_ANCHOR.finditer(header))
    ends = [*(anchor.start() for anchor in anchors[1:]), len(header)]
    for anchor, end in zip(anchors, ends, strict=True):
        name = _name_before(header, anchor.start(), floor)
        data = DataInput(header, "a state's header", anchor.start() + 4)
        kind = anchor[1] or anchor[2] or anchor[3]
        described = _StateReader(name, KINDS[kind[0]])
        unknown = None
        try:
            described.read(data)
        except Unknown as error:
            unknown = error.snapshot
            described.find_namespace(data, end)
        states.append(described.state(unknown))
        floor = anchor.end()
    if count is not None and len(states) != count:
        fact = f"keyed state: its header has {count} states, of which {len(states)} can be read"
        raise FormatError(fact, None, 0)
    return tuple(states)


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
    """Return the string that ends here, after `floor`: its length is right before it."""
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
    """Yield (state, key, value) of a canonical key group; the key with the group's prefix."""
    data = section
    wanted = _prefix(group, prefix)
    at, end = 2, len(section)
    if end < 2:
        raise FormatError("a key group of keyed state ends early", None, end)
    state = data[0] << 8 | data[1]
    while state != END_OF_GROUP:
        if state >= states:
            fact = f"key group {group} holds state {state}, of {states} that there are"
            raise FormatError(fact, None, at - 2)
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
    if group >= 1 << 8 * size:
        fact = f"key group {group} does not fit in {size} byte in front of its keys"
        raise FormatError(fact, None, 0)
    return group.to_bytes(size, "big")


def encode_section(entries: list[tuple[int, bytes, bytes]]) -> bytes:
    """Return the input of `entries`: entries in their order, by states."""
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
