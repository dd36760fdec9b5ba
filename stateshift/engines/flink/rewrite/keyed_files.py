"""The files of an operator's keyed state, of one image or of several: their sections, and which
number each of their states has in the new ones.

    keyed_files(origins) -> [KeyedFile, ...]     the first one's header is every new file's

Subtasks may number their states differently, and some have seen none of a state: the header that is
kept is that of the file with the most states.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from stateshift.engines.flink.entries.image import (
    SectionPiece,
    in_file_order,
    is_canonical,
    sections_in_pieces,
    sections_of,
    uncompress,
)
from stateshift.engines.flink.entries.operators import first_section
from stateshift.engines.flink.streams import Streams
from stateshift.errors import Incompatible
from stateshift.formats.flink.keyed_handles import KeyedHandle, KeyGroups
from stateshift.formats.flink.keyed_state import Header, decode_header
from stateshift.formats.flink.metadata import OperatorState


@dataclass(frozen=True, slots=True)
class Origin:
    """An operator of an image, and its image's bytes."""

    operator: OperatorState
    streams: Streams


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """One subtask's keyed state as it was: its image's number and max parallelism, its header, and
    which of the first one's states its own are; none where they are the same.
    """

    image: int
    was: int
    streams: Streams
    handle: KeyGroups
    head: bytes
    header: Header | None
    states: tuple[int, ...] = ()

    @property
    def known_header(self) -> Header:
        assert self.header is not None, "asked before: why_not"
        return self.header

    def renumbered(self, state: int) -> int:
        """Return the number that a state of this file has in the new ones."""
        return self.states[state] if self.states else state

    def sections(self, groups: Container[int] | None = None) -> Iterator[tuple[int, bytes]]:
        return sections_of(self.handle, self.streams, groups)

    def parts(self, size: int) -> Iterator[SectionPiece]:
        """Yield the pieces of `sections_in_pieces`, out of compression."""
        if not self.known_header.compressed:
            yield from sections_in_pieces(self.handle, self.streams, size)
            return
        for group, section in self.sections():
            content = uncompress(section)
            for start in range(0, max(1, len(content)), size):
                ends = start + size >= len(content)
                yield SectionPiece(group, content[start : start + size], start == 0, ends)

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Yield the groups and sizes of the same sections, as the metadata says."""
        assert self.handle.stream is not None, "what has no file is left out"
        for (start, end), group in in_file_order(self.handle, self.handle.stream.size):
            yield group, end - start


def keyed_files(origins: Sequence[Origin]) -> list[KeyedFile]:
    """Return the files of all subtasks; the one whose header is kept comes first."""
    files = []
    for image, origin in enumerate(origins):
        for handle in keyed_handles(origin.operator):
            file = _file(image, origin, handle)
            if file is not None:
                files.append(file)
    if not files:
        return []
    first = max(files, key=lambda file: len(file.header.states) if file.header is not None else 0)
    others = [file for file in files if file is not first]
    return [first, *(replace(file, states=_renumbering(first, file)) for file in others)]


def _file(image: int, origin: Origin, handle: KeyedHandle | None) -> KeyedFile | None:
    """Return a subtask's file; None where it has no keyed state."""
    streams = origin.streams
    if not isinstance(handle, KeyGroups) or handle.stream is None:
        return None
    first = first_section(handle)
    if first is None:
        return None
    head = streams.head(handle.stream, first)
    header = decode_header(head, first) if is_canonical(handle, streams) else None
    return KeyedFile(image, origin.operator.max_parallelism, streams, handle, head, header)


def _renumbering(first: KeyedFile, file: KeyedFile) -> tuple[int, ...]:
    """Return the numbers in the first file of this one's states; nothing where all are equal."""
    if file.head == first.head:
        return ()
    if file.header is None or first.header is None:
        raise Incompatible(
            "subtasks wrote their states in different orders: only their serializers can put that "
            "right",
            hint="take a canonical savepoint of the job",
        )
    names = [state.name for state in first.header.states]
    missing = [state.name for state in file.header.states if state.name not in names]
    if file.image == first.image:
        if missing or first.header.compressed != file.header.compressed:
            lacking = ", ".join(missing) or "compressed"
            raise Incompatible(
                f"one subtask has states that another has not: {lacking}",
                hint="take a savepoint once every subtask has had records",
            )
    else:
        fact = None
        if missing:
            fact = (
                f"one image has states that another has not: {', '.join(missing)}, and the other "
                "has others"
            )
        elif (what := _what_differs(first.header, file.header)) is not None:
            fact = f"the images have {what} of other types, or of types that are not known here"
        if fact is not None:
            raise Incompatible(fact, hint="take savepoints of jobs of the same version")
    return tuple(names.index(state.name) for state in file.header.states)


def _what_differs(first: Header, other: Header) -> str | None:
    if first.key is None or first.key != other.key:
        return "keys"
    states = {state.name: state for state in first.states}
    for state in other.states:
        has_types = state.value is not None and state.namespace is not None
        is_known = has_types or state.kind == "timers"
        if states[state.name] != state or not is_known:
            return f"state {state.name!r}"
    return None


def keyed_handles(operator: OperatorState) -> Iterator[KeyedHandle]:
    """Yield the handles of all subtasks that have keyed state."""
    for subtask in operator.all_subtasks:
        if subtask.managed_keyed is not None:
            yield subtask.managed_keyed


def refuse_other_hash(group: int) -> NoReturn:
    """Refuse keys that are not in the group that their hash says."""
    raise Incompatible(
        f"a key of group {group} does not belong there by its hash: the job hashes its keys in "
        "a way of its own",
        hint="its max parallelism cannot be changed from outside",
    )
