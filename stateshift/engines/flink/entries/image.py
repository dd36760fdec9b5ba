"""An image read as a stream of (operator, state, key, value), its files and subtasks forgotten:
what two images are compared by. No serializer is needed.

    canonical    each entry: its key (without the key group's number, with its namespace) and its
                 value, by state
    hashmap      each key group: only its serializers could tell the entries apart
    RocksDB      each file of it
    changelog    each file, from the offset on that counts
    operator     each element of a list or union state, each broadcast state, by state
    channels     what was in flight, by channel
    coordinator  the state of a source's or sink's coordinator

A long value is represented by its digest. "stateshift.flink" among the settings says where the
image lies, and under which ids its operators go: {what places are, "as": {id: id in this image},
"whole": [id], "once": {...}}. Files of key groups of those that are `whole` are on both sides the
same, byte for byte, and so are not taken apart: each counts as one file. Broadcast state of those
in `once` is read once: there is a copy of it for each subtask, and their number is another
afterwards. "once" is {id: [names of such states that are read of another image already]}. Operators
in "new_offsets", {id: NewOffsets}, are read as they will be: the new image has them so; and so are
keyed entries of those in "edits", {id in the target: Edit}. Entries of the states in "read",
{id: [state]}, are read to their ends by the serializers that the image names.

Everything that is not taken apart into entries comes under a store that is `Whole`: a file, or a
key group in the hashmap backend's own format. Broadcast state that is compared copy by copy counts
once, as it does in `diff`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from stateshift.engines.flink.entries.edits import Edit, NumberedEntry
from stateshift.engines.flink.entries.frames import check_operator
from stateshift.engines.flink.entries.operators import first_section, is_hashmap
from stateshift.engines.flink.new_offsets import NewOffsets, rewrite_operator
from stateshift.engines.flink.places import places
from stateshift.engines.flink.streams import Streams, decode_once
from stateshift.errors import FormatError
from stateshift.formats import bounds
from stateshift.formats.flink import snappy_frames
from stateshift.formats.flink.key_groups import prefix_bytes
from stateshift.formats.flink.keyed_handles import (
    SAVEPOINT_KEY_GROUPS,
    Changelog,
    FileDelta,
    Incremental,
    KeyedHandle,
    KeyGroups,
    MemoryDelta,
)
from stateshift.formats.flink.keyed_state import (
    Header,
    StateInfo,
    decode_header,
    entries,
    is_old,
    sections,
)
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import (
    BROADCAST,
    ChannelHandle,
    Partitioned,
    expand_channels,
)
from stateshift.formats.flink.serializers import Unknown
from stateshift.formats.flink.state_values import read_key, read_value
from stateshift.formats.flink.stream_handles import StreamHandle, files_of
from stateshift.formats.stream import Stream
from stateshift.storage.protocol import CHUNK
from stateshift.survey import ShardFiles
from stateshift.world import Pairs, ReadFrom, Unit, Whole, unit_of

SETTING = "stateshift.flink"
LONG = 4096
RECORDS_MAX, BYTES_MAX = 1 << 16, 32 * 1024 * 1024

Entry = tuple[str, bytes, bytes]


class Broadcast:
    """The broadcast state that was read already: every subtask has a copy of all of it.

    A copy is not counted again. With `once` it is left out, and so are the states that are
    read `elsewhere`.
    """

    def __init__(self, once: bool = False, elsewhere: Iterable[str] = ()) -> None:
        self._once = once
        self._elsewhere = frozenset(elsewhere)
        self._contents: set[tuple[str, bytes]] = set()

    def store(self, state: str, content: bytes, store: str) -> str | None:
        if state in self._elsewhere:
            return None
        is_copy = (state, content) in self._contents
        self._contents.add((state, content))
        if not is_copy:
            return store
        return None if self._once else Whole(store, "uncounted")


def comparable(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]
) -> Iterator[tuple[str, Pairs]]:
    """Yield the entries of one operator."""
    setting = json.loads(settings[SETTING])
    streams = Streams(read, places(setting))
    metadata = decode_once(bounds.gather(read(shard.files[0]), "_metadata"))
    own = bytes.fromhex(setting.get("as", {}).get(shard.operator, shard.operator))
    operator = next(operator for operator in metadata.operators if operator.id == own)
    if setting.get("checked"):
        check_operator(operator, streams)
    new_offsets = setting.get("new_offsets", {}).get(own.hex())
    if new_offsets is not None:
        operator = rewrite_operator(operator, streams, NewOffsets.of(new_offsets))
    plain = setting.get("edits", {}).get(shard.operator)
    if plain is not None:
        yield from in_pieces(_edited(operator, streams, Edit.of(plain)))
        operator = without_keyed(operator)
    _check_values(operator, streams, setting.get("read", {}).get(shard.operator, ()))
    elsewhere = setting.get("once", {}).get(shard.operator)
    # Each state once, where some of them are read `elsewhere`.
    broadcast = Broadcast() if elsewhere is None else Broadcast(once=True, elsewhere=elsewhere)
    whole = shard.operator in setting.get("whole", ())
    yield from pairs_of(operator, streams, whole, broadcast)


def _edited(operator: OperatorState, streams: Streams, edit: Edit) -> Iterator[Entry]:
    """Yield the keyed entries of an operator as they will be."""
    prefix = prefix_bytes(operator.max_parallelism)
    for subtask in operator.all_subtasks:
        handle = subtask.managed_keyed
        first = first_section(handle) if isinstance(handle, KeyGroups) else None
        if first is None or not isinstance(handle, KeyGroups) or handle.stream is None:
            continue
        file = edit.open(streams.head(handle.stream, first))
        for entry in file.entries(numbered_entries(handle, prefix, streams)):
            yield file.names[entry.state], entry.key, entry.value


def _check_values(operator: OperatorState, streams: Streams, states: Container[str]) -> None:
    """Check that keys and values of some states are what the serializers of their image write."""
    prefix = prefix_bytes(operator.max_parallelism)
    for subtask in operator.all_subtasks if states else ():
        handle = subtask.managed_keyed
        for entry in canonical_entries(handle, prefix, streams):
            if entry.state.name in states:
                with suppress(Unknown):  # a part that only the job's classes can read
                    read_key(entry.header, entry.state, entry.key)
                with suppress(Unknown):
                    read_value(entry.state, entry.value)


def without_keyed(operator: OperatorState) -> OperatorState:
    """Return the operator without its managed keyed state."""
    if not operator.subtasks:
        return operator
    subtasks = tuple(replace(subtask, managed_keyed=None) for subtask in operator.subtasks)
    return replace(operator, subtasks=subtasks)


def pairs_of(
    operator: OperatorState,
    streams: Streams,
    whole: bool = False,
    broadcast: Broadcast | None = None,
) -> Iterator[tuple[str, Pairs]]:
    """Yield states, each with some of its entries."""
    yield from in_pieces(of_operator(operator, streams, whole, broadcast))


def in_pieces(entries: Iterable[Entry]) -> Iterator[tuple[str, Pairs]]:
    """Yield states, each with so many of its entries as memory holds at once."""
    # A state of the job's may be called "rocksdb", as files are.
    held: dict[tuple[str, Unit], tuple[str, Pairs]] = {}
    count = size = 0
    for store, key, value in entries:
        _, pairs = held.setdefault((store, unit_of(store)), (store, []))
        pairs.append((key, value))
        count, size = count + 1, size + len(key) + len(value)
        is_full = count >= RECORDS_MAX or size >= BYTES_MAX
        if is_full:
            yield from held.values()
            held, count, size = {}, 0, 0
    yield from held.values()


def of_operator(
    operator: OperatorState,
    streams: Streams,
    whole: bool = False,
    broadcast: Broadcast | None = None,
) -> Iterator[Entry]:
    """Yield state, key and value, one by one."""
    if operator.coordinator is not None:
        yield "coordinator", b"", short(operator.coordinator.content)
    if operator.subtasks is None:
        yield "finished", b"", b""
    prefix = prefix_bytes(operator.max_parallelism)
    broadcast = broadcast or Broadcast()
    for subtask in operator.all_subtasks:
        yield from of_subtask(subtask, prefix, streams, whole, broadcast)


def of_subtask(
    subtask: SubtaskState,
    prefix: int,
    streams: Streams,
    whole: bool = False,
    broadcast: Broadcast | None = None,
) -> Iterator[Entry]:
    """Yield state, key and value; files of key groups of `whole` ones are not taken apart."""
    broadcast = broadcast or Broadcast()
    if subtask.finished:
        yield "finished", b"%d" % subtask.index, b""
    yield from _keyed(subtask.managed_keyed, prefix, streams, "", whole)
    yield from _keyed(subtask.raw_keyed, prefix, streams, "raw ", whole)
    yield from _partitioned(subtask.managed_operator, streams, "", broadcast)
    yield from _partitioned(subtask.raw_operator, streams, "raw ", broadcast)
    yield from _channels("input", subtask.inputs, streams)
    yield from _channels("output", subtask.outputs, streams)


def _keyed(
    handle: KeyedHandle | None, prefix: int, streams: Streams, role: str, whole: bool
) -> Iterator[Entry]:
    match handle:
        case KeyGroups() if whole:
            # The metadata says where its key groups begin: it is the same only if they are.
            has_a_file = next(files_of(handle.stream), None) is not None
            store = Whole(f"{role}file of key groups", "files" if has_a_file else "uncounted")
            content = b"" if handle.stream is None else _digest(streams.chunks(handle.stream))
            yield store, b"%d " % handle.first + handle.offsets.raw, content
            if not has_a_file:  # what lies in the metadata is small: it is read as well
                yield from _key_groups(handle, prefix, streams, role)
        case KeyGroups():
            yield from _key_groups(handle, prefix, streams, role)
        case Incremental():
            yield from _database(handle, streams, role)
        case Changelog():
            for inner in (*handle.bases, *handle.deltas):
                yield from _keyed(inner, prefix, streams, role, whole)
        case FileDelta():
            yield from _file_delta(handle, streams, role)
        case MemoryDelta():
            store = Whole(f"{role}changelog", "key_groups")
            for group, content in handle.changes:
                yield store, b"%d %d" % (handle.start, group), short(content)


def _file_delta(handle: FileDelta, streams: Streams, role: str) -> Iterator[Entry]:
    store = Whole(f"{role}changelog", "files")
    for offset, stream in handle.parts:
        if stream is not None:
            key = b"%d %d" % (handle.first, offset)
            yield store, key, _digest(streams.chunks(stream, offset))


def _database(handle: Incremental, streams: Streams, role: str) -> Iterator[Entry]:
    store = Whole(f"{role}rocksdb", "files")
    kinds = (("shared", handle.shared), ("private", handle.private), ("meta", (("", handle.meta),)))
    for kind, files in kinds:
        for name, stream in files:
            # Files of one name of two subtasks are two files.
            key = f"{kind} {name} {handle.first}".encode()
            yield store, key, b"" if stream is None else _digest(streams.chunks(stream))


def _key_groups(handle: KeyGroups, prefix: int, streams: Streams, role: str) -> Iterator[Entry]:
    if role or not is_canonical(handle, streams):
        store = Whole(f"{role}key groups", "key_groups")
        for group, content in sections_of(handle, streams):
            yield store, b"%d" % group, short(content)
        return
    for entry in canonical_entries(handle, prefix, streams):
        yield entry.state.name, entry.key, entry.value


class KeyedEntry(NamedTuple):
    """An entry with what is known of its state."""

    header: Header
    state: StateInfo
    group: int
    key: bytes
    value: bytes


def canonical_entries(
    handle: KeyedHandle | None, prefix: int, streams: Streams
) -> Iterator[KeyedEntry]:
    """Yield all entries of a canonical file; `prefix` bytes of a key say its group."""
    for header, group, content in canonical_sections(handle, streams):
        for number, key, value in entries(content, prefix, group, len(header.states)):
            yield KeyedEntry(header, header.states[number], group, key[prefix:], value)


def numbered_entries(handle: KeyGroups, prefix: int, streams: Streams) -> Iterator[NumberedEntry]:
    """Yield the same with the numbers of their states."""
    for header, group, content in canonical_sections(handle, streams):
        for number, key, value in entries(content, prefix, group, len(header.states)):
            yield NumberedEntry(group, number, key[prefix:], value)


def is_canonical(handle: KeyedHandle | None, streams: Streams) -> bool:
    """Whether a handle's entries can be separated without their serializers."""
    if not isinstance(handle, KeyGroups) or handle.stream is None:
        return False
    if handle.tag == SAVEPOINT_KEY_GROUPS:
        return True
    version = int.from_bytes(streams.reader(handle.stream)(0, 4), "big")
    if is_old(version):
        return False
    return not is_hashmap(handle, streams)


def canonical_sections(
    handle: KeyedHandle | None, streams: Streams
) -> Iterator[tuple[Header, int, bytes]]:
    """Yield each key group that is not empty with its file's header, of canonical state."""
    if not isinstance(handle, KeyGroups) or not is_canonical(handle, streams):
        return
    header = header_of(handle, streams)
    if header is None:
        return
    for group, content in sections_of(handle, streams):
        yield header, group, uncompress(content) if header.compressed else content


def header_of(handle: KeyGroups, streams: Streams) -> Header | None:
    """Return the header in front of the first key group; None where all are empty."""
    first = first_section(handle)
    if first is None or handle.stream is None:
        return None
    return decode_header(streams.head(handle.stream, first), first)


def sections_of(
    handle: KeyGroups, streams: Streams, groups: Container[int] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield `groups`, or all, in the order of the file: it is read once."""
    wanted = list(_wanted_sections(handle, groups))
    if handle.stream is None or not wanted:
        return
    (at, _), _ = wanted[0]
    data = Stream(streams.chunks(handle.stream, at), "keyed state")
    for (start, end), group in wanted:
        for place in range(at, start, CHUNK):
            data.take(min(CHUNK, start - place))
        yield group, data.take(end - start)
        at = end


class SectionPiece(NamedTuple):
    """Some of a key group's bytes: whether it begins, and whether it ends with them."""

    group: int
    content: bytes
    begins: bool
    ends: bool


def sections_in_pieces(handle: KeyGroups, streams: Streams, size: int) -> Iterator[SectionPiece]:
    """Yield group by group, in the order of the file, pieces of so many bytes at most."""
    spans = list(_wanted_sections(handle, None))
    if handle.stream is None or not spans:
        return
    (at, _), _ = spans[0]
    data = Stream(streams.chunks(handle.stream, at), "keyed state")
    for (start, end), group in spans:
        for place in range(start, end, size):
            content = data.take(min(size, end - place))
            yield SectionPiece(group, content, place == start, place + size >= end)


def plain_pieces(handle: KeyGroups, streams: Streams, size: int) -> Iterator[SectionPiece]:
    """Yield the same of canonical state, out of its compression."""
    header = header_of(handle, streams)
    if header is None or not header.compressed:
        yield from sections_in_pieces(handle, streams, size)
        return
    for group, section in sections_of(handle, streams):
        content = uncompress(section)
        for start in range(0, max(1, len(content)), size):
            ends = start + size >= len(content)
            yield SectionPiece(group, content[start : start + size], start == 0, ends)


def _wanted_sections(
    handle: KeyGroups, groups: Container[int] | None
) -> Iterator[tuple[tuple[int, int], int]]:
    if handle.stream is None:
        return
    for span, group in in_file_order(handle, handle.stream.size):
        if groups is None or group in groups:
            yield span, group


def in_file_order(handle: KeyGroups, end: int) -> list[tuple[tuple[int, int], int]]:
    """Return the beginning and end of each key group that is not empty, with its number."""
    spans = []
    for group, span in enumerate(sections(tuple(handle.offsets), end), start=handle.first):
        if span is not None:
            spans.append((span, group))
    return sorted(spans)


def uncompress(content: bytes) -> bytes:
    """Return keyed state out of Snappy's framing format, the checksum of each chunk checked."""
    return snappy_frames.decompress(content, "keyed state")


def _partitioned(
    handle: Partitioned | None, streams: Streams, role: str, broadcast: Broadcast
) -> Iterator[Entry]:
    if handle is None:
        return
    elements = _elements(handle, streams)
    for state in handle.states:
        name = f"{role}{state.name}"
        for offset in state.offsets:
            content = elements[offset]
            store: str | None = name
            if state.mode == BROADCAST:
                store = broadcast.store(state.name, content, name)
            if store is not None:
                yield store, b"", content


def _elements(handle: Partitioned, streams: Streams) -> dict[int, bytes]:
    starts = sorted(set(handle.starts))
    if handle.stream is None or not starts:
        return {}
    size = handle.stream.size
    if starts[0] < 0 or starts[-1] > size:
        fact = f"operator state: elements from byte {starts[0]} to {starts[-1]}, in {size} bytes"
        raise FormatError(fact, None, None)
    data = Stream(streams.chunks(handle.stream), "operator state")
    data.take(starts[0])
    return {start: short(data.take(end - start)) for start, end in pairwise((*starts, size))}


def _channels(side: str, channels: tuple[ChannelHandle, ...], streams: Streams) -> Iterator[Entry]:
    digests: dict[StreamHandle | None, bytes] = {None: b""}
    for channel in expand_channels(channels):
        stream = channel.stream
        if stream is not None and stream not in digests:
            digests[stream] = _digest(streams.chunks(stream))
        key = f"{side} {channel.subtask} {channel.part.a} {channel.part.b}".encode()
        yield "in flight", key, Digest(channel.part.offsets.raw + digests[stream])


class Digest(bytes):
    """A digest in the place of bytes: who shows it must not call it them."""


def short(content: bytes) -> bytes:
    """Return the content, or its digest where it is long."""
    return content if len(content) <= LONG else Digest(hashlib.sha256(content).digest())


def _digest(chunks: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return Digest(digest.digest())
