"""Keyed state cut into other key-group ranges, for another parallelism; and, where keys can be hashed without the job's
classes, dealt into other key groups, for another max parallelism, which Flink itself refuses (FLINK-5052).

    cut        the sections of key groups, as they are, joined to the files of the new subtasks: nothing is decoded
    dealt      each entry's key is read and hashed, gets its group's number, and goes to that group. That each was in
               the group its hash says before is checked on the way: who hashes keys otherwise is refused

    Rescaler(operator, streams, parallelism, max_parallelism).part(subtask) -> Part(first, offsets, content)

What is held in memory is what one new subtask gets. Subtasks may number their states differently: the first one's
header is every new file's, and entries of the others are renumbered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stateshift.engines.flink.entries import is_canonical, sections_of, uncompressed
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
from stateshift.formats.flink.keyed_state import Header, decode_header, encode_section, entries
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.serializers import Serializer, value

Entry = tuple[int, bytes, bytes]
HASHED = ("StringSerializer", "IntSerializer", "LongSerializer", "ShortSerializer", "ByteSerializer")
_COMPRESSED_AT = 4  # behind the version


@dataclass(frozen=True, slots=True)
class Part:
    """What one new subtask gets: where its groups begin, all 0 where it gets nothing."""

    first: int
    offsets: tuple[int, ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class _File:
    """One subtask's keyed state as it was: its header, and which of the first one's states its own are."""

    handle: KeyGroups
    head: bytes
    header: Header | None
    states: tuple[int, ...]


def why_not(operator: OperatorState, streams: Streams, max_parallelism: int) -> str | None:
    """What keeps an operator's keyed state from being cut, or dealt."""
    handles = [s.managed_keyed for s in operator.subtasks or () if s.managed_keyed is not None]
    if any(s.raw_keyed is not None for s in operator.subtasks or ()):
        return "it has raw keyed state, which only its own code can divide"
    if not all(isinstance(handle, KeyGroups) for handle in handles):
        return "its state lies in files of RocksDB, or in a changelog"
    dealt = max_parallelism != operator.max_parallelism
    for handle in handles if dealt else ():
        assert isinstance(handle, KeyGroups)
        if not is_canonical(handle, streams):
            return "only its serializers can tell the entries of the hashmap backend apart"
        header = _header(handle, streams)
        if header is not None and not hashable(header.key):
            return f"its keys are hashed by code of the job's ({_words(header.key)})"
    return None


def hashable(serializer: Serializer | None) -> bool:
    if serializer is None:
        return False
    tuples = serializer.name == "TupleSerializer" and all(map(hashable, serializer.inner))
    return tuples or serializer.name in HASHED


class Rescaler:
    """One operator's keyed state, and what of it each new subtask gets."""

    def __init__(self, operator: OperatorState, streams: Streams, parallelism: int, max_parallelism: int) -> None:
        self._was, self._streams = operator.max_parallelism, streams
        self._parallelism, self._max_parallelism = parallelism, max_parallelism
        self._files = _files(operator, streams)

    def part(self, subtask: int) -> Part:
        groups = groups_of(subtask, self._max_parallelism, self._parallelism)
        if not self._files:
            return Part(groups.start, (0,) * len(groups), b"")
        if self._max_parallelism == self._was:
            return _joined(self._files, groups, self._streams, self._was)
        return _dealt(self._files, groups, self._streams, self._was, self._max_parallelism)


def _files(operator: OperatorState, streams: Streams) -> list[_File]:
    found: list[_File] = []
    for subtask in operator.subtasks or ():
        handle = subtask.managed_keyed
        first = _first(handle)
        if not isinstance(handle, KeyGroups) or handle.stream is None or first is None:
            continue
        head = streams.head(handle.stream, first)
        header = decode_header(head, first) if is_canonical(handle, streams) else None
        found.append(_File(handle, head, header, _renumbered(found[0], head, header) if found else ()))
    return found


def _renumbered(first: _File, head: bytes, header: Header | None) -> tuple[int, ...]:
    """Which state of the first file each of this one's is; nothing where they are the same."""
    if head == first.head:
        return ()
    if header is None or first.header is None:
        raise Incompatible("subtasks wrote their states in different orders: only their serializers can put that right",
                           hint="take a canonical savepoint of the job")  # fmt: skip
    names = [state.name for state in first.header.states]
    missing = [state.name for state in header.states if state.name not in names]
    if missing or first.header.compressed != header.compressed:
        raise Incompatible(f"one subtask has states that another has not: {', '.join(missing) or 'compressed'}",
                           hint="take a savepoint once every subtask has had records")  # fmt: skip
    return tuple(names.index(state.name) for state in header.states)


def _joined(files: list[_File], groups: range, streams: Streams, max_parallelism: int) -> Part:
    """Sections as they are, but for their states' numbers where these differ."""
    held: dict[int, bytes] = {}
    for file in files:
        own = range(file.handle.first, file.handle.first + file.handle.count)
        near = max(own.start, groups.start) < min(own.stop, groups.stop)
        for group, content in sections_of(file.handle, streams) if near else ():
            if group not in groups:
                continue
            if group in held:
                raise FormatError(f"key group {group} is in two subtasks", None, None)
            held[group] = _with_numbers(file, content, group, max_parallelism) if file.states else content
    return _part(files[0].head, groups, held)


def _with_numbers(file: _File, content: bytes, group: int, max_parallelism: int) -> bytes:
    assert file.header is not None, "what has no header of its own is refused"
    if file.header.compressed:
        raise Incompatible("compressed state whose subtasks number their states differently cannot be joined",
                           hint="take a savepoint without compression")  # fmt: skip
    found = [(file.states[n], key, value) for n, key, value in entries(content, prefix_bytes(max_parallelism), group)]
    return encode_section(sorted(found, key=lambda entry: entry[0]))


def _dealt(files: list[_File], groups: range, streams: Streams, was: int, becomes: int) -> Part:
    """The entries whose keys belong to these groups from now on."""
    held: dict[int, list[Entry]] = {}
    old, new = prefix_bytes(was), prefix_bytes(becomes)
    for file in files:
        header = file.header
        assert header is not None and header.key is not None, "asked before: why_not"
        for group, content in sections_of(file.handle, streams):
            plain = uncompressed(content) if header.compressed else content
            for number, key, raw in entries(plain, old, group):
                code = hash_of(header, number, key[old:])
                if key_group(code, was) != group:
                    raise Incompatible(
                        f"a key of group {group} does not belong there by its hash: the job hashes its keys in a way "
                        "of its own",
                        hint="its max parallelism cannot be changed from outside",
                    )
                there = key_group(code, becomes)
                if there in groups:
                    state = file.states[number] if file.states else number
                    held.setdefault(there, []).append((state, there.to_bytes(new, "big") + key[old:], raw))
    head = bytearray(files[0].head)
    head[_COMPRESSED_AT] = 0
    ordered = {group: encode_section(sorted(found, key=lambda entry: entry[0])) for group, found in held.items()}
    return _part(bytes(head), groups, ordered)


def hash_of(header: Header, state: int, key: bytes) -> int:
    """Of the key that an entry begins with; of a timer, behind its time."""
    data = Input(key, "a key")
    if header.states[state].kind == "timers":
        data.take(8)
    assert header.key is not None, "asked before: why_not"
    return _code(header.key, value(header.key, data))


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


def _part(head: bytes, groups: range, held: dict[int, bytes]) -> Part:
    offsets, pieces, at = [], [head], len(head)
    for group in groups:
        content = held.get(group, b"")
        offsets.append(at if content else 0)
        pieces.append(content)
        at += len(content)
    return Part(groups.start, tuple(offsets), b"".join(pieces) if any(offsets) else b"")


def _first(handle: object) -> int | None:
    return min((o for o in handle.offsets if o), default=None) if isinstance(handle, KeyGroups) else None


def _header(handle: KeyGroups, streams: Streams) -> Header | None:
    first = _first(handle)
    return decode_header(streams.head(handle.stream, first), first) if handle.stream is not None and first else None


def _words(serializer: Serializer | None) -> str:
    return serializer.name if serializer is not None else "of a class that is not known here"
