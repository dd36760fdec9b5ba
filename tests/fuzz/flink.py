"""Flink's images: metadata, the headers of keyed state and its key groups, serializers and what
they wrote.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cache, partial

from stateshift.errors import Incompatible
from stateshift.formats.flink import serializers
from stateshift.formats.flink.avro_data import avro_reader
from stateshift.formats.flink.heap_groups import HeapEntry, Hidden, heap_entries
from stateshift.formats.flink.java_data import DataInput, encode_utf
from stateshift.formats.flink.java_objects import read_object
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.keyed_state import (
    Header,
    decode_header,
    encode_section,
    entries,
    find_serializers,
    sections,
)
from stateshift.formats.flink.logical_types import logical_type
from stateshift.formats.flink.metadata import Metadata, decode_metadata, encode_metadata
from stateshift.formats.flink.properties import decode_properties
from stateshift.formats.flink.references import references, with_streams
from stateshift.formats.flink.state_values import canonical_pairs
from stateshift.formats.flink.stream_handles import Inline, RelativeFile
from stateshift.formats.flink.type_names import type_fields, type_name
from stateshift.formats.flink.values import read_around
from stateshift.formats.flink.versions import convert_metadata
from tests.formats.flink.typed_values import heap_sections, typed_values
from tests.formats.flink.values import IMAGES
from tests.fuzz.oracles import attempt, same
from tests.fuzz.seeds import SEED_BYTES_MAX, SEEDS_MAX
from tests.fuzz.targets import Target


def run_metadata(data: bytes) -> None:
    found = attempt(lambda: decode_metadata(data), len(data))
    if found is None:
        return
    same(encode_metadata(found), data, "metadata written back")
    attempt(lambda: decode_properties(found.properties), must_tell=False)
    named = [reference.role for reference in references(found)]
    plain = with_streams(found, lambda stream, whole: RelativeFile("a", stream.size))
    assert len(named) >= len([reference.role for reference in references(plain)])
    same(decode_metadata(encode_metadata(plain)), plain, "metadata with other streams")
    for version in range(3, 8) if found.version >= 3 else ():
        with suppress(Incompatible):
            other = convert_metadata(found, version)
            same(decode_metadata(encode_metadata(other)), other, f"metadata as version {version}")


def run_header(data: bytes) -> None:
    found = attempt(lambda: decode_header(data), len(data))
    if found is not None:
        assert all(isinstance(state.name, str) for state in found.states)
        find_serializers(data)


def run_section(data: bytes) -> None:
    """The first byte says which key group it is, the second how many bytes its prefix has."""
    if len(data) < 2:
        return
    group, prefix = data[0] & 0x7F, 1 + data[1] % 2
    found = attempt(lambda: list(entries(data[2:], prefix, group)), len(data))
    if found:
        same(list(entries(encode_section(found), prefix, group)), found, "a key group written back")


def run_value(data: bytes) -> None:
    """A serializer's snapshot, and behind it what it wrote."""
    content = DataInput(data, "a snapshot")

    def read() -> object:
        try:
            serializer = serializers.read_snapshot(content)
            return serializers.value(serializer, content)
        except serializers.Unknown:
            return None

    attempt(read, len(data))


def run_typed(data: bytes) -> None:
    """A serializer's snapshot, and behind it what it wrote, where one part may be unreadable."""
    content = DataInput(data, "a snapshot")

    def read() -> object:
        try:
            serializer = serializers.read_snapshot(content)
        except serializers.Unknown:
            return None
        type_name(serializer)
        list(type_fields(serializer))
        rest = DataInput(data, "a value", content.at, content.at + AROUND_BYTES)
        return list(read_around(serializer.reader, rest))

    attempt(read, len(data))


def run_heap(data: bytes) -> None:
    """The header of a file of the hashmap backend behind its length, and a key group."""
    content = DataInput(data, "a file")

    def read() -> tuple[Header, list[HeapEntry | Hidden]]:
        head = content.within()
        header = decode_header(head.data[head.at : head.end])
        section = data[content.at :]
        group = section[3] if len(section) > 3 else 0
        return header, list(heap_entries(header, section, group, 8))

    found = attempt(read)
    if found is None:
        return
    header, entries_found = found
    for one in entries_found:
        if isinstance(one, HeapEntry) and one.is_read:
            attempt(partial(_pairs, header, one), must_tell=False)


def _pairs(header: Header, entry: HeapEntry) -> list[tuple[bytes, bytes]]:
    return list(canonical_pairs(header, entry) or ())


def run_java(data: bytes) -> None:
    """An object that Java serialized, looked at as a type of SQL."""
    content = DataInput(data, "an object")
    found = attempt(lambda: read_object(content), len(data))
    if found is not None:
        read = logical_type(found)
        assert read is None or str(read)


def run_avro(data: bytes) -> None:
    """A schema behind its length, and a value."""
    content = DataInput(data, "a value")

    def read() -> object:
        schema = content.utf()
        reader = avro_reader(schema)
        return None if reader is None else reader(content)

    attempt(read, len(data))


@cache
def _small() -> list[tuple[str, bytes, Metadata]]:
    found = ((path, path.read_bytes()) for path in IMAGES)
    small = [(path, content) for path, content in found if len(content) <= SEED_BYTES_MAX]
    step = max(1, len(small) // SEEDS_MAX)
    return [
        (str(path.parent), content, decode_metadata(content)) for path, content in small[::step]
    ]


def _keyed() -> list[tuple[int, bytes, KeyGroups]]:
    """(max parallelism, content, handle) of canonical state."""
    found = []
    for folder, _, metadata in _small():
        for operator in metadata.operators:
            for subtask in operator.subtasks or ():
                handle = subtask.managed_keyed
                if isinstance(handle, KeyGroups) and handle.tag == 7:
                    content = _content(folder, handle)
                    if content is not None and any(handle.offsets):
                        found.append((operator.max_parallelism, content, handle))
    return found[:: max(1, len(found) // SEEDS_MAX)]


def _content(folder: str, handle: KeyGroups) -> bytes | None:
    match handle.stream:
        case Inline(_, content):
            return content
        case RelativeFile(path):
            with open(f"{folder}/{path}", "rb") as file:
                return file.read()
    return None


def _headers() -> list[bytes]:
    return [content[: min(o for o in handle.offsets if o)] for _, content, handle in _keyed()]


def _sections() -> list[bytes]:
    found = []
    for most, content, handle in _keyed():
        parts = sections(tuple(handle.offsets), len(content))
        for number, part in enumerate(parts):
            group = handle.first + number
            if part is not None and group < 128 and part[1] - part[0] < SEED_BYTES_MAX:
                found.append(bytes((group, 0 if most <= 128 else 1)) + content[slice(*part)])
    return found[:: max(1, len(found) // SEEDS_MAX)]


def _typed() -> list[bytes]:
    return [typed.snapshot + typed.value for typed in typed_values()]


def _heap() -> list[bytes]:
    found = [section for section in heap_sections() if len(section.head) < HEAD_BYTES_MAX]
    return [
        struct.pack(">i", len(section.head)) + section.head + section.content
        for section in found[:: max(1, len(found) // SEEDS_MAX)]
    ]


def _java() -> list[bytes]:
    found = []
    for typed in typed_values():
        at = typed.snapshot.find(JAVA)
        if at >= 0:
            found.append(typed.snapshot[at : at + SEED_BYTES_MAX])
    return found


AVRO = (
    '{"type":"record","name":"a","fields":[{"name":"a","type":["null","a"]},{"name":"b","type":'
    '{"type":"array","items":{"type":"map","values":"int"}}},{"name":"c","type":{"type":"enum",'
    '"name":"e","symbols":["x","y"]}},{"name":"d","type":{"type":"bytes","logicalType":"decimal",'
    '"precision":9,"scale":2}},{"name":"f","type":{"type":"long","logicalType":'
    '"timestamp-millis"}}]}'
)


def _avro() -> list[bytes]:
    one = bytes(4) + b"\x01\x01\0\0\0\1k\0\0\0\7\0\0" + struct.pack(">iihq", 1, 2, 1234, 1500)
    return [encode_utf(AVRO) + one]


def _snapshots() -> list[bytes]:
    return [header[5:] for header in _headers()]


def flink(*names: str) -> tuple[str, ...]:
    return tuple(f"formats/flink/{name}.py" for name in names)


# Of rows that one part is unreadable of: each length of it is tried.
AROUND_BYTES = 256
HEAD_BYTES_MAX = 16 * 1024
MAGIC, JAVA, MASTER = b"\x49\x60\x67\x2d", b"\xac\xed\x00\x05", b"\xc9\x6b\x16\x96"
WORDS = (MAGIC, JAVA, MASTER, b"\xff\xff\xff\xff", b"\0\0\0\1", b"\x7f\xff\xff\xff")

TARGETS = (
    Target(
        "flink-metadata",
        run_metadata,
        lambda: [content for _, content, _ in _small()],
        flink(
            "metadata",
            "stream_handles",
            "keyed_handles",
            "operator_handles",
            "java_data",
        ),
        WORDS,
    ),
    Target(
        "flink-header",
        run_header,
        _headers,
        flink("keyed_state", "serializers", "java_data"),
        (
            b"\0\x10KEYED_STATE_TYPE\0\x05VALUE",
            b"\0\x10VALUE_SERIALIZER",
            b"\0\x14NAMESPACE_SERIALIZER",
            *WORDS,
        ),
    ),
    Target("flink-section", run_section, _sections, flink("keyed_state"), (b"\xff\xff", *WORDS)),
    Target("flink-value", run_value, _snapshots, flink("serializers", "java_data"), WORDS),
    Target(
        "flink-typed",
        run_typed,
        _typed,
        flink("serializers", "values", "binary_rows", "logical_types", "type_names", "times"),
        WORDS,
    ),
    Target(
        "flink-heap",
        run_heap,
        _heap,
        flink("heap_groups", "state_values", "values"),
        WORDS,
        2 * HEAD_BYTES_MAX,
    ),
    Target("flink-java", run_java, _java, flink("java_objects", "logical_types"), WORDS),
    Target("flink-avro", run_avro, _avro, flink("avro_data", "times"), (b'"type"', *WORDS)),
)
