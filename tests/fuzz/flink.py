"""Flink's images: metadata, the headers of keyed state and its key groups, serializers and what
they wrote.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from stateshift.errors import Incompatible
from stateshift.formats.flink import serializers
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.keyed_state import (
    decode_header,
    encode_section,
    entries,
    find_serializers,
    sections,
)
from stateshift.formats.flink.metadata import Metadata, decode_metadata, encode_metadata
from stateshift.formats.flink.properties import decode_properties
from stateshift.formats.flink.references import references, with_streams
from stateshift.formats.flink.stream_handles import Inline, RelativeFile
from stateshift.formats.flink.versions import convert_metadata
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


def _snapshots() -> list[bytes]:
    return [header[5:] for header in _headers()]


def flink(*names: str) -> tuple[str, ...]:
    return tuple(f"formats/flink/{name}.py" for name in names)


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
)
