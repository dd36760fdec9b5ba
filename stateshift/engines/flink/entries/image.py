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

What is long is represented by its digest. "stateshift.flink" among the settings says where the
image lies, and under which ids its operators go: {what places are, "as": {id: id in this image},
"whole": [id], "once": {...}}. Files of key groups of those that are `whole` are on both sides the
same, byte for byte, and so are not taken apart: each counts as one file. Of those in `once`,
broadcast state is told once: there is a copy of it for each subtask, and their number is another
afterwards. "once" is {id: [names of such states that are told by another image already]}.

What is not taken apart into entries comes under a store that is `Whole`: a file, or a key group in
the hashmap backend's own format. Broadcast state that is compared copy by copy counts once, as it
does in `diff`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import chain, pairwise

from stateshift.engines.flink.entries.frames import check_operator
from stateshift.engines.flink.entries.operators import is_hashmap
from stateshift.engines.flink.places import places
from stateshift.engines.flink.streams import Streams, decoded
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
from stateshift.formats.flink.keyed_state import Header, decode_header, entries, sections
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import (
    BROADCAST,
    ChannelHandle,
    Partitioned,
    expanded,
)
from stateshift.formats.flink.stream_handles import StreamHandle, files_of
from stateshift.formats.stream import Stream
from stateshift.storage.protocol import CHUNK
from stateshift.survey import ShardFiles
from stateshift.world import Pairs, ReadFrom, Unit, Whole, unit_of

SETTING = "stateshift.flink"
LONG = 4096
RECORDS_MAX, BYTES_MAX = 1 << 16, 32 * 1024 * 1024

Entry = tuple[str, bytes, bytes]
Seen = set[
    tuple[str, bytes | None]
]  # broadcast states, with a content that was told, or None if any was


def comparable(
    read: ReadFrom, shard: ShardFiles, settings: Mapping[str, str]
) -> Iterator[tuple[str, Pairs]]:
    """The entries of one operator."""
    told = json.loads(settings[SETTING])
    streams = Streams(read, places(told))
    metadata = decoded(bounds.gathered(read(shard.files[0]), "_metadata"))
    own = bytes.fromhex(told.get("as", {}).get(shard.operator, shard.operator))
    operator = next(operator for operator in metadata.operators if operator.id == own)
    if told.get("checked"):
        check_operator(operator, streams)
    elsewhere = told.get("once", {}).get(shard.operator)
    seen: Seen | None = None if elsewhere is None else {(name, None) for name in elsewhere}
    yield from pairs_of(operator, streams, shard.operator in told.get("whole", ()), seen)


def pairs_of(
    operator: OperatorState, streams: Streams, whole: bool = False, seen: Seen | None = None
) -> Iterator[tuple[str, Pairs]]:
    """State, and some of its entries."""
    yield from in_pieces(of_operator(operator, streams, whole, seen))


def in_pieces(entries: Iterable[Entry]) -> Iterator[tuple[str, Pairs]]:
    """State, and so many of its entries as memory holds at once."""
    held: dict[
        tuple[str, Unit], tuple[str, Pairs]
    ] = {}  # a state of the job's may be called "rocksdb"
    count = size = 0
    for store, key, value in entries:
        held.setdefault((store, unit_of(store)), (store, []))[1].append((key, value))
        count, size = count + 1, size + len(key) + len(value)
        if count >= RECORDS_MAX or size >= BYTES_MAX:
            yield from held.values()
            held, count, size = {}, 0, 0
    yield from held.values()


def of_operator(
    operator: OperatorState, streams: Streams, whole: bool = False, seen: Seen | None = None
) -> Iterator[Entry]:
    """State, key and value, one by one."""
    if operator.coordinator is not None:
        yield "coordinator", b"", _short(operator.coordinator.content)
    if operator.subtasks is None:
        yield "finished", b"", b""
    prefix = prefix_bytes(operator.max_parallelism)
    counted: Seen = set()
    for subtask in operator.subtasks or ():
        yield from of_subtask(subtask, prefix, streams, whole=whole, seen=seen, counted=counted)


def of_subtask(
    subtask: SubtaskState,
    prefix: int,
    streams: Streams,
    keyed: bool = True,
    whole: bool = False,
    seen: Seen | None = None,
    counted: Seen | None = None,
) -> Iterator[Entry]:
    """`keyed`: its managed keyed state as well. `seen`: the broadcast state that need not be told
    again. `counted`: the broadcast state that is told again, and not counted again.
    """
    counted = set() if counted is None else counted
    if subtask.finished:
        yield "finished", b"%d" % subtask.index, b""
    handles = ((("", subtask.managed_keyed),) if keyed else ()) + (("raw ", subtask.raw_keyed),)
    for role, handle in handles:
        yield from _keyed(handle, prefix, streams, role, whole)
    for role, part in (("", subtask.managed_operator), ("raw ", subtask.raw_operator)):
        if part is not None:
            yield from _partitioned(part, streams, role, seen, counted)
    for side, channels in (("input", subtask.inputs), ("output", subtask.outputs)):
        yield from _channels(side, channels, streams)


def _keyed(
    handle: KeyedHandle | None, prefix: int, streams: Streams, role: str, whole: bool
) -> Iterator[Entry]:
    match handle:
        case KeyGroups() if whole:
            # Where its key groups begin stands in the metadata: a file is the same only if they
            # are.
            content = b"" if handle.stream is None else _digest(streams.chunks(handle.stream))
            in_a_file = next(files_of(handle.stream), None) is not None
            store = Whole(f"{role}file of key groups", "files" if in_a_file else "uncounted")
            yield store, b"%d " % handle.first + handle.offsets.raw, content
            if not in_a_file:  # what lies in the metadata is small: its entries are told as well
                yield from _key_groups(handle, prefix, streams, role)
        case KeyGroups():
            yield from _key_groups(handle, prefix, streams, role)
        case Incremental():
            files = (
                ("shared", handle.shared),
                ("private", handle.private),
                ("meta", (("", handle.meta),)),
            )
            for kind, named in files:
                for name, stream in named:
                    # Of two subtasks, files of one name are two files.
                    key = f"{kind} {name} {handle.first}".encode()
                    content = b"" if stream is None else _digest(streams.chunks(stream))
                    yield Whole(f"{role}rocksdb", "files"), key, content
        case Changelog():
            for inner in (*handle.bases, *handle.deltas):
                yield from _keyed(inner, prefix, streams, role, whole)
        case FileDelta():
            for offset, stream in handle.parts:
                if stream is not None:
                    store, key = (
                        Whole(f"{role}changelog", "files"),
                        b"%d %d" % (handle.first, offset),
                    )
                    yield store, key, _digest(streams.chunks(stream, offset))
        case MemoryDelta():
            for group, content in handle.changes:
                yield (
                    Whole(f"{role}changelog", "key_groups"),
                    b"%d %d" % (handle.start, group),
                    _short(content),
                )


def _key_groups(handle: KeyGroups, prefix: int, streams: Streams, role: str) -> Iterator[Entry]:
    if role or not is_canonical(handle, streams):
        for group, content in sections_of(handle, streams):
            yield Whole(f"{role}key groups", "key_groups"), b"%d" % group, _short(content)
        return
    for header, group, content in canonical_sections(handle, streams):
        names = [state.name for state in header.states]
        for state, key, value in entries(content, prefix, group, len(names)):
            yield names[state], key[prefix:], value


def is_canonical(handle: KeyedHandle | None, streams: Streams) -> bool:
    """Whether a handle's entries can be told apart without their serializers."""
    if not isinstance(handle, KeyGroups) or handle.stream is None:
        return False
    return handle.tag == SAVEPOINT_KEY_GROUPS or not is_hashmap(handle, streams)


def canonical_sections(
    handle: KeyedHandle | None, streams: Streams
) -> Iterator[tuple[Header, int, bytes]]:
    """Each key group that is not empty, with the header of its file; nothing of what is not
    canonical.
    """
    if (
        not isinstance(handle, KeyGroups)
        or handle.stream is None
        or not is_canonical(handle, streams)
    ):
        return
    header = header_of(handle, streams)
    if header is None:
        return
    for group, content in sections_of(handle, streams):
        yield header, group, uncompressed(content) if header.compressed else content


def header_of(handle: KeyGroups, streams: Streams) -> Header | None:
    """What stands in front of the first key group; None where all are empty."""
    first = min((offset for offset in handle.offsets if offset), default=None)
    if first is None or handle.stream is None:
        return None
    return decode_header(streams.head(handle.stream, first), first)


def sections_of(
    handle: KeyGroups, streams: Streams, groups: Container[int] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Group by group, in the order of the file: it is read once; with `groups`, from the first
    of them to the last.
    """
    if handle.stream is None:
        return
    wanted = []
    for one in in_file_order(handle, handle.stream.size):
        if groups is None or one[1] in groups:
            wanted.append(one)
    if not wanted:
        return
    at = wanted[0][0][0]
    data = Stream(streams.chunks(handle.stream, at), "keyed state")
    for (start, end), group in wanted:
        for place in range(at, start, CHUNK):
            data.take(min(CHUNK, start - place))
        yield group, data.take(end - start)
        at = end


def in_file_order(handle: KeyGroups, end: int) -> list[tuple[tuple[int, int], int]]:
    """Where each key group begins and ends that is not empty, with its number."""
    parts = sections(tuple(handle.offsets), end)
    return sorted(
        (part, handle.first + place) for place, part in enumerate(parts) if part is not None
    )


def uncompressed(content: bytes) -> bytes:
    return snappy_frames.decompressed(content, "keyed state")


def _partitioned(
    handle: Partitioned, streams: Streams, role: str, seen: Seen | None, counted: Seen
) -> Iterator[Entry]:
    """An element ends where the next one of the file begins."""
    if handle.stream is None:
        return
    every = sorted(set(chain.from_iterable(state.offsets for state in handle.states)))
    if not every:
        return
    if not (every[0] >= 0 and every[-1] <= handle.stream.size):
        fact = (
            f"operator state: elements from byte {every[0]} to {every[-1]}, in "
            f"{handle.stream.size} bytes"
        )
        raise FormatError(fact, None, None)
    data = Stream(streams.chunks(handle.stream), "operator state")
    data.take(every[0])
    elements = {
        start: _short(data.take(end - start))
        for start, end in pairwise((*every, handle.stream.size))
    }
    for state in handle.states:
        for offset in state.offsets:
            store, copy = f"{role}{state.name}", (state.name, elements[offset])
            if state.mode == BROADCAST and seen is not None:
                if seen & {(state.name, None), copy}:
                    continue
                seen.add(copy)
            elif state.mode == BROADCAST:
                store = Whole(store, "uncounted") if copy in counted else store
                counted.add(copy)
            yield store, b"", elements[offset]


def _channels(side: str, channels: tuple[ChannelHandle, ...], streams: Streams) -> Iterator[Entry]:
    digests: dict[StreamHandle, bytes] = {}
    for handle in channels:
        for channel in expanded(handle):
            stream = channel.stream
            if stream is not None and stream not in digests:
                digests[stream] = _digest(streams.chunks(stream))
            key = f"{side} {channel.subtask} {channel.part.a} {channel.part.b}".encode()
            yield (
                "in flight",
                key,
                Digest(channel.part.offsets.raw + (digests[stream] if stream is not None else b"")),
            )


class Digest(bytes):
    """A digest in the place of bytes: who shows it must not call it them."""


def _short(content: bytes) -> bytes:
    return content if len(content) <= LONG else Digest(hashlib.sha256(content).digest())


def _digest(chunks: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return Digest(digest.digest())
