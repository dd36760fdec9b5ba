"""Keyed state cut into other key-group ranges, for another parallelism; of several images put together; and, where keys
can be hashed without the job's classes, dealt into other key groups, for another max parallelism, which Flink itself
refuses (FLINK-5052).

    cut        the sections of key groups, as they are, joined to the files of the new subtasks: nothing is decoded
    united     entries of several images in one section, once no key is in two of them
    dealt      each entry's key is read and hashed, gets its group's number, and goes to that group. That each was in
               the group its hash says before is checked on the way: who hashes keys otherwise is refused

    Rescaler(origins, parallelism, max_parallelism)
      .keyed(subtask) -> Cut(first, offsets, content)
      .loose(subtask, role) -> Joined       role: operator, raw operator

What is held in memory is what one new subtask gets, and of operator state all. Subtasks may number their states
differently: one header is every new file's, that of the file with the most states, and entries of the others are
renumbered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stateshift.engines.flink.entries import is_canonical, sections_of, uncompressed
from stateshift.engines.flink.loose import Held, Joined, joined
from stateshift.engines.flink.reading import Streams
from stateshift.errors import FormatError, Incompatible
from stateshift.formats.flink.java_data import Input
from stateshift.formats.flink.key_groups import (
    groups_of,
    hash_fields,
    hash_int,
    hash_long,
    hash_string,
    key_group,
    prefix_bytes,
)
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.keyed_state import Header, StateInfo, decode_header, encode_section, entries
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.serializers import Serializer, Unknown, value

HASHED = ("StringSerializer", "IntSerializer", "LongSerializer", "ShortSerializer", "ByteSerializer")
_COMPRESSED_AT = 4  # behind the version


@dataclass(frozen=True, slots=True)
class Origin:
    """An operator of an image, and its image's bytes."""

    operator: OperatorState
    streams: Streams


@dataclass(frozen=True, slots=True)
class Cut:
    """What one new subtask gets: where its groups begin, all 0 where it gets nothing."""

    first: int
    offsets: tuple[int, ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class _File:
    """One subtask's keyed state as it was: its image's number and max parallelism, its header, and which of the first
    one's states its own are; none where they are the same."""

    image: int
    was: int
    streams: Streams
    handle: KeyGroups
    head: bytes
    header: Header | None
    states: tuple[int, ...] = ()

    def sections(self) -> Iterator[tuple[int, bytes]]:
        return sections_of(self.handle, self.streams)


def why_not(operator: OperatorState, streams: Streams, max_parallelism: int, united: bool = False) -> str | None:
    """What keeps an operator's keyed state from being cut, united with another's, or dealt."""
    handles = [s.managed_keyed for s in operator.subtasks or () if s.managed_keyed is not None]
    if any(s.raw_keyed is not None for s in operator.subtasks or ()):
        return "it has raw keyed state, which only its own code can divide"
    if not all(isinstance(handle, KeyGroups) for handle in handles):
        return "its state lies in files of RocksDB, or in a changelog"
    dealt = max_parallelism != operator.max_parallelism
    for handle in handles if dealt or united else ():
        assert isinstance(handle, KeyGroups)
        if _first(handle) is None:
            continue
        if not is_canonical(handle, streams):
            return "only its serializers can tell the entries of the hashmap backend apart"
        header = _header(handle, streams)
        if dealt and header is not None and not hashable(header.key):
            return f"its keys are hashed by code of the job's ({_words(header.key)})"
    return None


def hashable(serializer: Serializer | None) -> bool:
    if serializer is None:
        return False
    tuples = serializer.name == "TupleSerializer" and all(map(hashable, serializer.inner))
    return tuples or serializer.name in HASHED


class Rescaler:
    """One operator's state, of one image or of several, and what of it each new subtask gets."""

    def __init__(self, origins: Sequence[Origin], parallelism: int, max_parallelism: int) -> None:
        self._origins = origins
        self._parallelism, self._max_parallelism = parallelism, max_parallelism
        self._files = _files(origins)

    def keyed(self, subtask: int) -> Cut:
        groups = groups_of(subtask, self._max_parallelism, self._parallelism)
        if not self._files:
            return Cut(groups.start, (0,) * len(groups), b"")
        if any(origin.operator.max_parallelism != self._max_parallelism for origin in self._origins):
            return _dealt(self._files, groups, self._max_parallelism)
        if len(self._origins) > 1:
            return _united(self._files, groups, self._max_parallelism)
        return _joined(self._files, groups)

    def loose(self, subtask: int, role: str) -> Joined:
        every = [held for origin in self._origins for held in _held(origin, role)]
        return joined((one for index, one in every if index % self._parallelism == subtask), (one for _, one in every))


def heads_of(operator: OperatorState, streams: Streams, role: str) -> list[bytes]:
    """Of the files of its operator state, what stands in front of their elements; each once."""
    found = []
    for subtask in operator.subtasks or ():
        handle = subtask.raw_operator if role == "raw operator" else subtask.managed_operator
        starts = [o for state in handle.states for o in state.offsets] if handle is not None else []
        if handle is not None and handle.stream is not None and starts:
            found.append(streams.head(handle.stream, min(starts)))
    return list(dict.fromkeys(found))


def _held(origin: Origin, role: str) -> Iterator[tuple[int, Held]]:
    raw = role == "raw operator"
    for subtask in origin.operator.subtasks or ():
        handle = subtask.raw_operator if raw else subtask.managed_operator
        if handle is not None and handle.stream is not None and handle.states:
            yield subtask.index, Held(handle, b"".join(origin.streams.chunks(handle.stream)), raw)


def _files(origins: Sequence[Origin]) -> list[_File]:
    found: list[_File] = []
    for image, origin in enumerate(origins):
        for subtask in origin.operator.subtasks or ():
            handle, streams = subtask.managed_keyed, origin.streams
            first = _first(handle)
            if not isinstance(handle, KeyGroups) or handle.stream is None or first is None:
                continue
            head = streams.head(handle.stream, first)
            header = decode_header(head, first) if is_canonical(handle, streams) else None
            found.append(_File(image, origin.operator.max_parallelism, streams, handle, head, header))
    if not found:
        return []
    first_one = max(found, key=lambda file: len(file.header.states) if file.header is not None else 0)
    others = (file for file in found if file is not first_one)
    return [first_one, *(replace(file, states=_renumbered(first_one, file)) for file in others)]


def _renumbered(first: _File, file: _File) -> tuple[int, ...]:
    """Which state of the first file each of this one's is; nothing where they are the same."""
    if file.head == first.head:
        return ()
    if file.header is None or first.header is None:
        raise Incompatible("subtasks wrote their states in different orders: only their serializers can put that right",
                           hint="take a canonical savepoint of the job")  # fmt: skip
    names = [state.name for state in first.header.states]
    missing = [state.name for state in file.header.states if state.name not in names]
    if missing and file.image != first.image:
        raise Incompatible(f"one image has states that another has not: {', '.join(missing)}, and the other has others",
                           hint="take savepoints of jobs of the same version")  # fmt: skip
    if missing or (file.image == first.image and first.header.compressed != file.header.compressed):
        raise Incompatible(f"one subtask has states that another has not: {', '.join(missing) or 'compressed'}",
                           hint="take a savepoint once every subtask has had records")  # fmt: skip
    if file.image != first.image:
        _refuse_other_types(first.header, file.header)
    return tuple(names.index(state.name) for state in file.header.states)


def _refuse_other_types(one: Header, other: Header) -> None:
    """Headers that differ, of two images: what their serializers are has to be known, and the same."""
    types = {state.name: state for state in one.states}
    same = one.key == other.key and one.key is not None
    wrong = [state.name for state in other.states if not _is_same(types[state.name], state)]
    if not same or wrong:
        what = f"state {wrong[0]!r}" if same else "keys"
        raise Incompatible(f"the images have {what} of other types, or of types that are not known here",
                           hint="take savepoints of jobs of the same version")  # fmt: skip


def _is_same(one: StateInfo, other: StateInfo) -> bool:
    timers = one.kind == "timers"
    return one == other and (timers or (one.value is not None and one.namespace is not None))


def _joined(files: list[_File], groups: range) -> Cut:
    """Sections as they are, but for their states' numbers where these differ."""
    held: dict[int, bytes] = {}
    for file in files:
        own = range(file.handle.first, file.handle.first + file.handle.count)
        near = max(own.start, groups.start) < min(own.stop, groups.stop)
        for group, content in file.sections() if near else ():
            if group not in groups:
                continue
            if group in held:
                raise FormatError(f"key group {group} is in two subtasks", None, None)
            held[group] = _with_numbers(file, content, group) if file.states else content
    return _cut(files[0].head, groups, held)


def _with_numbers(file: _File, content: bytes, group: int) -> bytes:
    assert file.header is not None, "what has no header of its own is refused"
    if file.header.compressed:
        raise Incompatible("compressed state whose subtasks number their states differently cannot be joined",
                           hint="take a savepoint without compression")  # fmt: skip
    found = [(file.states[n], key, value) for n, key, value in entries(content, prefix_bytes(file.was), group)]
    return encode_section(sorted(found, key=lambda entry: entry[0]))


def _united(files: list[_File], groups: range, max_parallelism: int) -> Cut:
    """The entries of all images in these groups."""
    prefix = prefix_bytes(max_parallelism)
    held: dict[int, list[_Entry]] = {}
    for file in files:
        for group, content in file.sections():
            if group in groups:
                held.setdefault(group, []).extend(_entries(file, content, prefix, group))
    return _written(files, groups, held, prefix)


@dataclass(frozen=True, slots=True)
class _Entry:
    """`state` as its own file numbers it, `number` as the new one does; the key is without its group's number."""

    file: _File
    state: int
    number: int
    key: bytes
    value: bytes


def _entries(file: _File, content: bytes, prefix: int, group: int) -> Iterator[_Entry]:
    assert file.header is not None, "asked before: why_not"
    plain = uncompressed(content) if file.header.compressed else content
    for state, key, raw in entries(plain, prefix, group):
        yield _Entry(file, state, file.states[state] if file.states else state, key[prefix:], raw)


def _dealt(files: list[_File], groups: range, becomes: int) -> Cut:
    """The entries whose keys belong to these groups from now on."""
    held: dict[int, list[_Entry]] = {}
    for file in files:
        for group, content in file.sections():
            for entry in _entries(file, content, prefix_bytes(file.was), group):
                code = _hash(entry)
                if key_group(code, file.was) != group:
                    raise Incompatible(
                        f"a key of group {group} does not belong there by its hash: the job hashes its keys in a way "
                        "of its own",
                        hint="its max parallelism cannot be changed from outside",
                    )
                there = key_group(code, becomes)
                if there in groups:
                    held.setdefault(there, []).append(entry)
    return _written(files, groups, held, prefix_bytes(becomes))


def _written(files: list[_File], groups: range, held: dict[int, list[_Entry]], prefix: int) -> Cut:
    if len({file.image for file in files}) > 1:
        for found in held.values():
            _refuse_in_two(found)
    head = bytearray(files[0].head)
    head[_COMPRESSED_AT] = 0
    ordered = {
        group: encode_section(
            [(e.number, group.to_bytes(prefix, "big") + e.key, e.value) for e in sorted(found, key=lambda e: e.number)]
        )
        for group, found in held.items()
    }
    return _cut(bytes(head), groups, ordered)


def _refuse_in_two(found: list[_Entry]) -> None:
    """A key belongs to one image. Where keys cannot be read, no entry may be there twice."""
    owners: dict[tuple[int | None, bytes], int] = {}
    for entry in found:
        if owners.setdefault(_key_of(entry), entry.file.image) != entry.file.image:
            raise Incompatible(
                f"key {_shown(entry)} is in two images: whose state counts cannot be told",
                hint='drop the operator from one of them (a drop may be "of" one image); or let the jobs have keys of '
                "their own",
            )


def _key_of(entry: _Entry) -> tuple[int | None, bytes]:
    """Its key; else all that stands in front of its value."""
    header = entry.file.header
    assert header is not None, "asked before: why_not"
    if header.key is None:
        return entry.number, entry.key
    data, start = Input(entry.key, "a key"), _start(header, entry.state)
    data.take(start)
    try:
        value(header.key, data)
    except Unknown:
        return entry.number, entry.key
    return None, entry.key[start : data.at]


def _shown(entry: _Entry) -> str:
    number, key = _key_of(entry)
    header = entry.file.header
    readable = number is None and header is not None and header.key is not None
    return repr(value(header.key, Input(key, "a key"))) if readable else key.hex()  # type: ignore[union-attr,arg-type]


def _known(header: Header) -> Serializer:
    assert header.key is not None, "asked before: why_not"
    return header.key


def _start(header: Header, state: int) -> int:
    """Where the key begins: a timer's time stands in front of it."""
    return 8 if header.states[state].kind == "timers" else 0


def _hash(entry: _Entry) -> int:
    assert entry.file.header is not None, "asked before: why_not"
    return hash_of(entry.file.header, entry.state, entry.key)


def hash_of(header: Header, state: int, key: bytes) -> int:
    """Of the key that an entry begins with; of a timer, behind its time."""
    data = Input(key, "a key")
    data.take(_start(header, state))
    return _code(_known(header), value(_known(header), data))


def _code(serializer: Serializer, found: Any) -> int:
    if found is None:
        return 0
    match serializer.name:
        case "StringSerializer":
            return hash_string(found)
        case "LongSerializer":
            return hash_long(found)
        case "TupleSerializer":
            return hash_fields([_code(inner, one) for inner, one in zip(serializer.inner, found, strict=True)])
    return hash_int(found)


def _cut(head: bytes, groups: range, held: dict[int, bytes]) -> Cut:
    offsets, pieces, at = [], [head], len(head)
    for group in groups:
        content = held.get(group, b"")
        offsets.append(at if content else 0)
        pieces.append(content)
        at += len(content)
    return Cut(groups.start, tuple(offsets), b"".join(pieces) if any(offsets) else b"")


def _first(handle: object) -> int | None:
    return min((o for o in handle.offsets if o), default=None) if isinstance(handle, KeyGroups) else None


def _header(handle: KeyGroups, streams: Streams) -> Header | None:
    first = _first(handle)
    return decode_header(streams.head(handle.stream, first), first) if handle.stream is not None and first else None


def _words(serializer: Serializer | None) -> str:
    return serializer.name if serializer is not None else "of a class that is not known here"
