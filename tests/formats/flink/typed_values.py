"""Serializers and what they wrote, out of canonical savepoints of jobs with state of every type."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.keyed_state import Header, decode_header, entries, sections
from stateshift.formats.flink.metadata import decode_metadata
from stateshift.formats.flink.serializers import Serializer, Unknown, read_snapshot
from stateshift.formats.flink.stream_handles import RelativeFile

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
_ANCHOR = b"\0\x10VALUE_SERIALIZER"


class TypedValue(NamedTuple):
    """A state's serializer as its snapshot's bytes, and a value of one of its entries."""

    state: str
    snapshot: bytes
    serializer: Serializer
    value: bytes


class HeapSection(NamedTuple):
    """The header of a file of the hashmap backend, and one of its key groups."""

    head: bytes
    group: int
    content: bytes


def _files(case: str) -> list[tuple[KeyGroups, bytes]]:
    found = []
    for place in sorted(GOLDEN.glob(f"flink-*/{case}/image/*/_metadata")):
        for operator in decode_metadata(place.read_bytes()).operators:
            for subtask in operator.subtasks or ():
                handle = subtask.managed_keyed
                if not isinstance(handle, KeyGroups) or not any(handle.offsets):
                    continue
                if isinstance(handle.stream, RelativeFile):
                    found.append((handle, (place.parent / handle.stream.path).read_bytes()))
    return found


@cache
def typed_values() -> list[TypedValue]:
    """One of each state and version."""
    found: dict[tuple[str, bytes], TypedValue] = {}
    for case in ("typed-canonical", "tables-canonical"):
        for handle, content in _files(case):
            head = content[: min(offset for offset in handle.offsets if offset)]
            snapshots = _snapshots(head)
            for number, value in _first_values(handle, content, decode_header(head, len(head))):
                state, snapshot, serializer = snapshots[number]
                typed = TypedValue(state, snapshot, serializer, value)
                found.setdefault((state, snapshot), typed)
    return list(found.values())


def _snapshots(head: bytes) -> list[tuple[str, bytes, Serializer]]:
    header, at, found = decode_header(head, len(head)), 0, []
    for state in header.states:
        at = head.index(_ANCHOR, at) + len(_ANCHOR)
        data = DataInput(head, "a header", at)
        try:
            serializer = read_snapshot(data)
        except Unknown:
            serializer = Serializer("unknown", 0)
        found.append((state.name, head[at : data.at], serializer))
    return found


def _first_values(handle: KeyGroups, content: bytes, header: Header) -> list[tuple[int, bytes]]:
    found: dict[int, bytes] = {}
    spans = sections(tuple(handle.offsets), len(content))
    for number, span in enumerate(spans):
        if span is not None:
            group = handle.first + number
            for state, _, value in entries(content[slice(*span)], 1, group, len(header.states)):
                if header.states[state].kind != "timers":
                    found.setdefault(state, value)
    return list(found.items())


@cache
def heap_sections() -> list[HeapSection]:
    """Key groups of the hashmap backend that hold entries."""
    found = []
    for case in ("typed-native-hashmap", "tables-native-hashmap"):
        for handle, content in _files(case):
            head = content[: min(offset for offset in handle.offsets if offset)]
            for number, span in enumerate(sections(tuple(handle.offsets), len(content))):
                if span is not None and span[1] - span[0] > 6 * 30:
                    section = content[slice(*span)]
                    found.append(HeapSection(head, handle.first + number, section))
    return found
