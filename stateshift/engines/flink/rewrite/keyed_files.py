"""The files of an operator's keyed state, of one image or of several: their sections, and which
number each of their states has in the new ones.

    keyed_files(origins) -> [KeyedFile, ...]     the first one's header is every new file's

Subtasks may number their states differently, and some have seen none of a state: the header that is
kept is that of the file with the most states.

New sections stand behind each other in a scratch file, of which each new subtask gets some.

    sections = Sections(head, scratch)
    sections.add(group, pieces)          group by group, ascending
    sections.cut(groups) -> Cut          the header, and the sections of these groups
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NoReturn

from stateshift.engines.flink.entries.edits import Edit
from stateshift.engines.flink.entries.image import (
    SectionPiece,
    in_file_order,
    is_canonical,
    numbered_entries,
    plain_pieces,
    sections_of,
)
from stateshift.engines.flink.entries.operators import first_section
from stateshift.engines.flink.streams import Streams
from stateshift.errors import Incompatible
from stateshift.formats.flink.key_groups import hashable, prefix_bytes
from stateshift.formats.flink.keyed_handles import KeyedHandle, KeyGroups
from stateshift.formats.flink.keyed_state import Header, decode_header, encode_section
from stateshift.formats.flink.metadata import OperatorState
from stateshift.storage.protocol import CHUNK, Content

if TYPE_CHECKING:
    from stateshift.formats.blocks import Ints
    from stateshift.formats.flink.key_hashes import Codes
    from stateshift.formats.sorting import Scratch
    from stateshift.formats.spans import Content as ByteArray

_COMPRESSED_AT = 4  # behind the version


# The hash codes of the keys that lie in a content from their starts on, at most to their ends; and
# that function of the snapshot of the keys' serializer. It may run a job's own code: see `jvm`.
HashKeys = Callable[["ByteArray", "Ints", "Ints"], "Codes"]  # numpy is not loaded here
Hashing = Callable[[bytes], HashKeys]


@dataclass(frozen=True, slots=True)
class Origin:
    """An operator of an image, and its image's bytes. `hashing` is there for keys of a job's own
    classes, where a user named them.
    """

    operator: OperatorState
    streams: Streams
    hashing: Hashing | None = None


@dataclass(frozen=True, slots=True)
class KeyedFile:
    """One subtask's keyed state as it was; `states`: which of the first file's its own are.
    `hash_keys` is there for keys that only a job's classes hash.
    """

    image: int
    was: int
    streams: Streams
    handle: KeyGroups
    head: bytes
    header: Header | None
    states: tuple[int, ...] = ()
    hash_keys: HashKeys | None = None

    @property
    def known_header(self) -> Header:
        assert self.header is not None, "asked before: why_not"
        return self.header

    def renumbered(self, state: int) -> int:
        return self.states[state] if self.states else state

    def sections(self, groups: Container[int] | None = None) -> Iterator[tuple[int, bytes]]:
        return sections_of(self.handle, self.streams, groups)

    def parts(self, size: int) -> Iterator[SectionPiece]:
        return plain_pieces(self.handle, self.streams, size)

    def sizes(self) -> Iterator[tuple[int, int]]:
        assert self.handle.stream is not None, "what has no file is left out"
        for (start, end), group in in_file_order(self.handle, self.handle.stream.size):
            yield group, end - start


def keyed_files(origins: Sequence[Origin]) -> list[KeyedFile]:
    """Return the files of all subtasks; the one whose header is kept comes first."""
    files = []
    for image, origin in enumerate(origins):
        for handle in keyed_handles(origin.operator):
            file = keyed_file(image, origin, handle)
            if file is not None:
                files.append(file)
    if not files:
        return []
    first = max(files, key=lambda file: len(file.header.states) if file.header is not None else 0)
    others = [file for file in files if file is not first]
    return [first, *(replace(file, states=_renumbering(first, file)) for file in others)]


def keyed_file(image: int, origin: Origin, handle: KeyedHandle | None) -> KeyedFile | None:
    """Return the file of one subtask's keyed state; None where it has none."""
    streams = origin.streams
    if not isinstance(handle, KeyGroups) or handle.stream is None:
        return None
    first = first_section(handle)
    if first is None:
        return None
    head = streams.head(handle.stream, first)
    header = decode_header(head, first) if is_canonical(handle, streams) else None
    key, hash_keys = None if header is None else header.key, None
    if key is not None and origin.hashing is not None and not hashable(key):
        hash_keys = origin.hashing(head[slice(*key.span)])
    was = origin.operator.max_parallelism
    return KeyedFile(image, was, streams, handle, head, header, hash_keys=hash_keys)


def edited_file(origin: Origin, subtask: int, edit: Edit, scratch: Scratch) -> Cut:
    """Return the state of one subtask with its entries edited: the same key groups, in a new file
    with a header of its own.
    """
    own = [each for each in origin.operator.all_subtasks if each.index == subtask]
    handle = own[0].managed_keyed if own else None
    if not isinstance(handle, KeyGroups):
        return nothing(range(0))
    groups = range(handle.first, handle.first + len(handle.offsets))
    file = keyed_file(0, origin, handle)
    if file is None:
        return nothing(groups)
    prefix = prefix_bytes(file.was)
    edited = edit.open(file.head)
    sections = Sections(edited.head, scratch)
    old = numbered_entries(handle, prefix, origin.streams)
    for group, entries_of_group in groupby(edited.entries(old), itemgetter(0)):
        number = group.to_bytes(prefix, "big")
        listed = [(entry.state, number + entry.key, entry.value) for entry in entries_of_group]
        sections.add(group, (encode_section(listed),))
    return sections.cut(groups)


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


def refuse_other_hash(group: int, by_classes: str | None = None) -> NoReturn:
    """Refuse keys that are not in the group that their hash says. `by_classes`: how many are not by
    the classes that a user named.
    """
    if by_classes is not None:
        raise Incompatible(
            f"of {by_classes} entries at hand the keys are not in the key group that the hashCode "
            "of --classes gives: other classes wrote the state, or each JVM hashes them otherwise",
            hint="--classes names the jars of the job that wrote it, of the same version, and "
            "--flink the Flink that it ran in",
        )
    raise Incompatible(
        f"a key of group {group} does not belong there by its hash: the job hashes its keys in "
        "a way of its own",
        hint="its max parallelism cannot be changed from outside",
    )


@dataclass(frozen=True, slots=True)
class Cut:
    """The part of one new subtask: where its groups begin, all 0 where it gets nothing."""

    first: int
    offsets: tuple[int, ...]
    size: int
    content: Content


class Sections:
    """Sections of key groups, behind each other."""

    def __init__(self, head: bytes, scratch: Scratch) -> None:
        self._places: dict[int, tuple[int, int]] = {}
        self._file, self._end = scratch(), 0
        uncompressed = bytearray(head)
        uncompressed[_COMPRESSED_AT] = 0
        self._head = bytes(uncompressed)

    def add(self, group: int, pieces: Iterable[bytes | bytearray]) -> None:
        begin = self._end
        for piece in pieces:
            self._file.write(piece)
            self._end += len(piece)
        self._places[group] = begin, self._end - begin

    def cut(self, groups: range) -> Cut:
        own = {group: self._places[group] for group in groups if group in self._places}
        begin = min((start for start, _ in own.values()), default=0)
        end = max((start + size for start, size in own.values()), default=begin)
        places = {group: len(self._head) + start - begin for group, (start, _) in own.items()}

        def content() -> Iterator[bytes]:
            yield self._head
            self._file.seek(begin)
            left = end - begin
            while left:
                chunk = self._file.read(min(left, CHUNK))
                if not chunk:
                    return
                left -= len(chunk)
                yield chunk

        return cut_of(groups, places, len(self._head) + end - begin, content)


def nothing(groups: range) -> Cut:
    """Return the part of a subtask that gets no keyed state."""
    return Cut(groups.start, (0,) * len(groups), 0, lambda: iter(()))


def cut_of(groups: range, places: Mapping[int, int], size: int, content: Content) -> Cut:
    """Return the part of a subtask whose groups begin at these places."""
    if not places:
        return nothing(groups)
    offsets = tuple(places.get(group, 0) for group in groups)
    return Cut(groups.start, offsets, size, content)
