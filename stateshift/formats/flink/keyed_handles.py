"""Handles to the keyed state of one subtask, as `_metadata` holds them. One for managed and one for
raw state.

    tag  value, and Flinks that write it    after the tag
    0    None
    3    KeyGroups, up to 1.14              i4 first, i4 n, n * i8 offsets, stream
    7    KeyGroups, 1.15 to 2.3             the same: a canonical savepoint
    12   KeyGroups, since 1.15              ... utf id: hashmap, and full checkpoints of RocksDB
    5    Incremental, up to 1.14            i8 checkpoint, utf backend, i4 first, i4 n, meta,
                                            shared, private
    11   Incremental, since 1.15            i8, utf, i4, i4, i8 size, meta, shared, private, utf id
    8    Changelog, 1.15                    i4 first, i4 n, i8 size, i4 + bases, i4 + deltas,
                                            i8 materialization, utf id
    14   Changelog, since 1.16              ... i8 checkpoint before the id
    9    MemoryDelta                        i4 first, i4 n, i8 from, i8 to,
                                            i4 + (i4 group, i4 + bytes), utf id
    10   FileDelta, 1.15                    i4 first, i4 n, i4 + (i8 offset, stream), i8 size,
                                            i8 size, utf id
    13   FileDelta, since 1.16              ... utf storage

    shared, private:  i4 n, n * (utf name, stream)        offset 0 of a key group: it is empty

A field that a tag does not have is None. Flink: checkpoint/metadata/MetadataV2V3SerializerBase,
serializeKeyedStateHandle.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateshift.formats.flink.java_data import DataInput, DataOutput, Longs
from stateshift.formats.flink.stream_handles import (
    DEPTH_MAX,
    StreamHandle,
    read_stream,
    write_stream,
)

Named = tuple[str, StreamHandle | None]

SAVEPOINT_KEY_GROUPS, KEY_GROUPS = 7, 12


@dataclass(frozen=True, slots=True)
class KeyGroups:
    """A file of key groups one behind the other: `offsets` says where each begins."""

    tag: int
    first: int
    offsets: Longs
    stream: StreamHandle | None
    id: str | None = None

    @property
    def count(self) -> int:
        return len(self.offsets)


@dataclass(frozen=True, slots=True)
class Incremental:
    """The files of a RocksDB or ForSt by their names, and the header of its states (`meta`)."""

    tag: int
    checkpoint_id: int
    backend: str
    first: int
    count: int
    size: int | None
    meta: StreamHandle | None
    shared: tuple[Named, ...]
    private: tuple[Named, ...]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Changelog:
    """The last files of the backend, and the changes since."""

    tag: int
    first: int
    count: int
    size: int
    bases: tuple[KeyedHandle, ...]
    deltas: tuple[KeyedHandle, ...]
    materialization: int
    checkpoint_id: int | None
    id: str


@dataclass(frozen=True, slots=True)
class MemoryDelta:
    """Changes held in `_metadata` itself; group -1 is not of a key."""

    first: int
    count: int
    start: int
    end: int
    changes: tuple[tuple[int, bytes], ...]
    id: str


@dataclass(frozen=True, slots=True)
class FileDelta:
    """Changes in shared files, each from its offset on; `size` is less than the file's."""

    tag: int
    first: int
    count: int
    parts: tuple[tuple[int, StreamHandle | None], ...]
    size: int
    checkpointed_size: int
    id: str
    storage: str | None = None


KeyedHandle = KeyGroups | Incremental | Changelog | MemoryDelta | FileDelta


def read_keyed(data: DataInput, depth: int = 0) -> KeyedHandle | None:
    """Read a handle to keyed state; changelogs nest, and `depth` says how deep this one lies."""
    at, tag = data.at, data.u1()
    if depth > DEPTH_MAX:
        raise data.wrong("handles are nested too deeply", at)
    match tag:
        case 0:
            return None
        case 3 | 7 | 12:
            first, count = _range(data)
            offsets = data.longs(count)
            stream = read_stream(data)
            id_ = data.utf() if tag == KEY_GROUPS else None
            return KeyGroups(tag, first, offsets, stream, id_)
        case 5 | 11:
            return _read_incremental(data, tag)
        case 8 | 14:
            return _read_changelog(data, tag, depth)
        case 9:
            return _read_memory_delta(data)
        case 10 | 13:
            return _read_file_delta(data, tag)
        case _:
            raise data.wrong(f"unknown tag {tag} of a handle to keyed state", at)


def write_keyed(out: DataOutput, handle: KeyedHandle | None) -> None:
    """Write what `read_keyed` reads, byte for byte."""
    if handle is None:
        out.u1(0)
        return
    out.u1(9 if isinstance(handle, MemoryDelta) else handle.tag)
    if isinstance(handle, Incremental):
        out.i8(handle.checkpoint_id)
        out.utf(handle.backend)
    out.i4(handle.first, handle.count)
    match handle:
        case KeyGroups():
            out.put(handle.offsets.raw)
            write_stream(out, handle.stream)
            _write_text(out, handle.id)
        case Incremental():
            if handle.size is not None:
                out.i8(handle.size)
            write_stream(out, handle.meta)
            _write_named(out, handle.shared)
            _write_named(out, handle.private)
            _write_text(out, handle.id)
        case Changelog():
            _write_changelog(out, handle)
        case MemoryDelta():
            out.i8(handle.start, handle.end)
            out.i4(len(handle.changes))
            for group, content in handle.changes:
                out.i4(group)
                out.sized(content)
            out.utf(handle.id)
        case FileDelta():
            _write_file_delta(out, handle)


def _read_incremental(data: DataInput, tag: int) -> Incremental:
    checkpoint_id, backend = data.i8(), data.utf()
    first, count = _range(data)
    size = data.i8() if tag == 11 else None
    meta, shared, private = read_stream(data), _read_named(data), _read_named(data)
    text = data.utf() if tag == 11 else None
    return Incremental(tag, checkpoint_id, backend, first, count, size, meta, shared, private, text)


def _read_changelog(data: DataInput, tag: int, depth: int) -> Changelog:
    first, count = _range(data)
    size, bases, deltas = data.i8(), _read_inner(data, depth), _read_inner(data, depth)
    materialization = data.i8()
    checkpoint_id = data.i8() if tag == 14 else None
    return Changelog(
        tag, first, count, size, bases, deltas, materialization, checkpoint_id, data.utf()
    )


def _write_changelog(out: DataOutput, handle: Changelog) -> None:
    out.i8(handle.size)
    for handles in (handle.bases, handle.deltas):
        out.i4(len(handles))
        for inner in handles:
            write_keyed(out, inner)
    out.i8(handle.materialization)
    if handle.checkpoint_id is not None:
        out.i8(handle.checkpoint_id)
    out.utf(handle.id)


def _read_inner(data: DataInput, depth: int) -> tuple[KeyedHandle, ...]:
    handles = []
    for _ in range(data.count("handles")):
        at, inner = data.at, read_keyed(data, depth + 1)
        if inner is None:
            raise data.wrong("no handle where a changelog has to have one", at)
        handles.append(inner)
    return tuple(handles)


def _read_memory_delta(data: DataInput) -> MemoryDelta:
    first, count = _range(data)
    start, end = data.i8(), data.i8()
    changes = []
    for _ in range(data.count("changes")):
        group = data.i4()
        changes.append((group, data.take(data.i4())))
    return MemoryDelta(first, count, start, end, tuple(changes), data.utf())


def _read_file_delta(data: DataInput, tag: int) -> FileDelta:
    first, count = _range(data)
    parts = []
    for _ in range(data.count("files")):
        offset = data.i8()
        parts.append((offset, read_stream(data)))
    size, checkpointed, text = data.i8(), data.i8(), data.utf()
    return FileDelta(
        tag, first, count, tuple(parts), size, checkpointed, text, data.utf() if tag == 13 else None
    )


def _write_file_delta(out: DataOutput, handle: FileDelta) -> None:
    out.i4(len(handle.parts))
    for offset, stream in handle.parts:
        out.i8(offset)
        write_stream(out, stream)
    out.i8(handle.size, handle.checkpointed_size)
    out.utf(handle.id)
    _write_text(out, handle.storage)


def _range(data: DataInput) -> tuple[int, int]:
    at, first = data.at, data.i4()
    if first < 0:
        raise data.wrong(f"invalid first key group {first}", at)
    return first, data.count("key groups")


def _read_named(data: DataInput) -> tuple[Named, ...]:
    files = []
    for _ in range(data.count("files")):
        name = data.utf()
        files.append((name, read_stream(data)))
    return tuple(files)


def _write_named(out: DataOutput, named: tuple[Named, ...]) -> None:
    out.i4(len(named))
    for name, stream in named:
        out.utf(name)
        write_stream(out, stream)


def _write_text(out: DataOutput, text: str | None) -> None:
    if text is not None:
        out.utf(text)
