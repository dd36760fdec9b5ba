"""Keyed state cut into other key-group ranges, for another parallelism; of several images put
together; and, where keys can be hashed without the job's classes, dealt into other key groups, for
another max parallelism, which Flink itself refuses (FLINK-5052).

    cut     the sections of key groups, as they are, joined to the files of the new subtasks:
            nothing is decoded
    united  entries of several images in one section, once no key is in two of them
    dealt   each entry's key is read and hashed, gets its group's number, and goes to that group.
            That each was in the group its hash says before is checked on the way: who hashes keys
            otherwise is refused

    Rescaler(origins, parallelism, max_parallelism, scratch)
      .keyed(subtask) -> Cut(first, offsets, size, content)
      .unkeyed(subtask, role) -> Joined       role: operator, raw operator

Of what is cut, one key group at a time is held in memory. What is united or dealt is sorted by key
groups first, in a scratch file beyond some size (see `formats.sorting`), and kept in another for
all new subtasks. Operator state is held as a whole. Subtasks may number their states differently:
one header is every new file's, that of the file with the most states, and entries of the others are
renumbered.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from itertools import chain, groupby, islice
from struct import Struct
from typing import TYPE_CHECKING

from stateshift.engines.flink.entries.image import (
    header_of,
    in_file_order,
    is_canonical,
    sections_of,
    uncompressed,
)
from stateshift.engines.flink.entries.keys import hash_of, hashable, key_of, shown
from stateshift.engines.flink.entries.operators import first_section
from stateshift.engines.flink.image import CANONICAL, Obstacle
from stateshift.engines.flink.rewrite.unkeyed import RAW, Held, Joined, handles_of, joined
from stateshift.engines.flink.streams import Streams
from stateshift.errors import FormatError, Incompatible
from stateshift.formats import bounds
from stateshift.formats.flink.key_groups import (
    groups_of,
    key_group,
    prefix_bytes,
)
from stateshift.formats.flink.keyed_handles import Changelog, Incremental, KeyedHandle, KeyGroups
from stateshift.formats.flink.keyed_state import (
    Header,
    StateInfo,
    decode_header,
    encode_section,
    entries,
)
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.operator_handles import Partitioned
from stateshift.formats.flink.serializers import snapshot_name
from stateshift.storage.protocol import CHUNK, Content

if TYPE_CHECKING:
    from stateshift.formats.sorting import Scratch

_COMPRESSED_AT = 4  # behind the version
ROW_DATA = "RowDataSerializer"


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
    size: int
    content: Content


@dataclass(frozen=True, slots=True)
class _File:
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

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Yield the groups and sizes of the same sections, as the metadata says."""
        assert self.handle.stream is not None, "what has no file is left out"
        for (start, end), group in in_file_order(self.handle, self.handle.stream.size):
            yield group, end - start


def why_not(
    operator: OperatorState, streams: Streams, max_parallelism: int, united: bool = False
) -> Obstacle | None:
    """Return what keeps keyed state from being cut, united with another operator's, or dealt."""
    if _has_raw_keyed_state(operator):
        return Obstacle("it has raw keyed state, which only its own code can divide")
    handles = list(_keyed_handles(operator))
    is_dealt = max_parallelism != operator.max_parallelism
    if is_dealt:
        obstacle = _why_keys_are_not_hashed(handles, streams)
        if obstacle is not None:
            return obstacle
    if not all(isinstance(handle, KeyGroups) for handle in handles):
        return Obstacle("its state lies in files of RocksDB, or in a changelog", CANONICAL)
    is_decoded = is_dealt or united
    if is_decoded and not _are_decodable(handles, streams):
        return Obstacle(
            "it is in the hashmap backend's own format, which is not taken apart", CANONICAL
        )
    return None


def _has_raw_keyed_state(operator: OperatorState) -> bool:
    return any(subtask.raw_keyed is not None for subtask in operator.all_subtasks)


def _keyed_handles(operator: OperatorState) -> Iterator[KeyedHandle]:
    for subtask in operator.all_subtasks:
        if subtask.managed_keyed is not None:
            yield subtask.managed_keyed


def _are_decodable(handles: Sequence[KeyedHandle], streams: Streams) -> bool:
    """Whether the entries of all handles can be separated."""
    return all(_is_decodable(handle, streams) for handle in handles)


def _why_keys_are_not_hashed(handles: Sequence[KeyedHandle], streams: Streams) -> Obstacle | None:
    for handle in handles:
        header = _any_header(handle, streams)
        if header is not None and not hashable(header.key):
            return Obstacle(_of_keys(header))
    return None


def _is_decodable(handle: KeyedHandle, streams: Streams) -> bool:
    """Whether a handle's entries can be separated; true where there are none."""
    if not isinstance(handle, KeyGroups) or first_section(handle) is None:
        return True
    return is_canonical(handle, streams)


class Rescaler:
    """One operator's state, of one image or of several, and what of it each new subtask gets."""

    def __init__(
        self,
        origins: Sequence[Origin],
        parallelism: int,
        max_parallelism: int,
        scratch: Scratch = BytesIO,
    ) -> None:
        self._origins, self._scratch = origins, scratch
        self._parallelism, self._max_parallelism = parallelism, max_parallelism
        self._files = _files(origins)

    def keyed(self, subtask: int) -> Cut:
        groups = groups_of(subtask, self._max_parallelism, self._parallelism)
        if not self._files:
            return _nothing(groups)
        if self._is_dealt or len(self._origins) > 1:
            return self._sorted.cut(groups)
        return _joined(self._files, groups)

    @property
    def _is_dealt(self) -> bool:
        """Whether keys go to other key groups."""
        before = {origin.operator.max_parallelism for origin in self._origins}
        return before != {self._max_parallelism}

    @cached_property
    def _sorted(self) -> Sorted:
        return Sorted(self._files, self._max_parallelism, self._scratch)

    def unkeyed(self, subtask: int, role: str) -> Joined:
        every: list[Held] = []
        own: list[Held] = []
        for origin in self._origins:
            for index, held in _held(origin, role):
                every.append(held)
                if index % self._parallelism == subtask:
                    own.append(held)
        return joined(own, every)


def heads_of(operator: OperatorState, streams: Streams, role: str) -> list[bytes]:
    """Return what stands in front of the elements in the files of operator state; each once."""
    heads = []
    for _, handle in _handles(operator, role):
        if handle.stream is not None and handle.starts:
            heads.append(streams.head(handle.stream, min(handle.starts)))
    return list(dict.fromkeys(heads))


def _held(origin: Origin, role: str) -> Iterator[tuple[int, Held]]:
    for index, handle in _handles(origin.operator, role):
        if handle.stream is not None and handle.states:
            content = bounds.gathered(origin.streams.chunks(handle.stream), "operator state")
            yield index, Held(handle, content, role == RAW)


def _handles(operator: OperatorState, role: str) -> Iterator[tuple[int, Partitioned]]:
    for subtask in operator.all_subtasks:
        for own, handle in handles_of(subtask):
            if own == role:
                yield subtask.index, handle


def _files(origins: Sequence[Origin]) -> list[_File]:
    """Return the files of all subtasks; the one whose header is kept comes first."""
    files = list(_files_of_each(origins))
    if not files:
        return []
    first = max(files, key=_count_of_states)
    others = [file for file in files if file is not first]
    return [first, *(replace(file, states=_renumbering(first, file)) for file in others)]


def _files_of_each(origins: Sequence[Origin]) -> Iterator[_File]:
    for image, origin in enumerate(origins):
        for handle in _keyed_handles(origin.operator):
            file = _file(image, origin, handle)
            if file is not None:
                yield file


def _file(image: int, origin: Origin, handle: KeyedHandle | None) -> _File | None:
    """Return a subtask's file; None where it has no keyed state."""
    streams = origin.streams
    if not isinstance(handle, KeyGroups) or handle.stream is None:
        return None
    first = first_section(handle)
    if first is None:
        return None
    head = streams.head(handle.stream, first)
    header = decode_header(head, first) if is_canonical(handle, streams) else None
    return _File(image, origin.operator.max_parallelism, streams, handle, head, header)


def _count_of_states(file: _File) -> int:
    return len(file.header.states) if file.header is not None else 0


def _renumbering(first: _File, file: _File) -> tuple[int, ...]:
    """Return which state of the first file each of this one's is; nothing where all are equal."""
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
        _refuse_other_subtasks(missing, first.header, file.header)
    else:
        _refuse_other_states(missing)
        _refuse_other_types(first.header, file.header)
    return tuple(names.index(state.name) for state in file.header.states)


def _refuse_other_subtasks(missing: list[str], first: Header, other: Header) -> None:
    """Refuse headers of two subtasks where one has what the other has not."""
    if missing or first.compressed != other.compressed:
        raise Incompatible(
            f"one subtask has states that another has not: {', '.join(missing) or 'compressed'}",
            hint="take a savepoint once every subtask has had records",
        )


def _refuse_other_states(missing: list[str]) -> None:
    if missing:
        raise Incompatible(
            f"one image has states that another has not: {', '.join(missing)}, and the other has "
            "others",
            hint="take savepoints of jobs of the same version",
        )


def _refuse_other_types(first: Header, other: Header) -> None:
    """Refuse headers of two images whose serializers are not known, or not the same."""
    what = _what_differs(first, other)
    if what is not None:
        raise Incompatible(
            f"the images have {what} of other types, or of types that are not known here",
            hint="take savepoints of jobs of the same version",
        )


def _what_differs(first: Header, other: Header) -> str | None:
    if first.key is None or first.key != other.key:
        return "keys"
    states = {state.name: state for state in first.states}
    for state in other.states:
        if not _is_same(states[state.name], state):
            return f"state {state.name!r}"
    return None


def _is_same(first: StateInfo, other: StateInfo) -> bool:
    """Whether both states are of one known type."""
    if first != other:
        return False
    is_known = first.value is not None and first.namespace is not None
    return is_known or first.kind == "timers"


def _joined(files: list[_File], groups: range) -> Cut:
    """Return sections as they are, but for their states' numbers where these differ."""
    places: dict[int, int] = {}
    at = len(files[0].head)
    for group, size in _sizes(files, groups):
        if group in places:
            raise FormatError(f"key group {group} is in two subtasks", None, None)
        places[group] = at
        at += size

    def content() -> Iterator[bytes]:
        yield files[0].head
        for file in files:
            yield from _sections(file, groups)

    return _cut(groups, places, at, content)


def _sizes(files: list[_File], groups: range) -> Iterator[tuple[int, int]]:
    """Yield group and size of each section, in the order of the files."""
    for file in files:
        for group, size in file.sizes():
            if group in groups:
                yield group, size


def _sections(file: _File, groups: range) -> Iterator[bytes]:
    """Yield a file's sections, with the numbers that their states have in the new ones."""
    for group, section in file.sections(groups):
        yield _with_numbers(file, section, group) if file.states else section


def _with_numbers(file: _File, content: bytes, group: int) -> bytes:
    assert file.header is not None, "what has no header of its own is refused"
    if file.header.compressed:
        raise Incompatible(
            "compressed state whose subtasks number their states differently cannot be joined",
            hint="take a savepoint without compression",
        )
    numbered = entries(content, prefix_bytes(file.was), group, len(file.states))
    renumbered = [(file.states[number], key, value) for number, key, value in numbered]
    made = encode_section(sorted(renumbered, key=lambda entry: entry[0]))
    if len(made) != len(content):
        raise FormatError(f"key group {group} has a state in two places", None, None)
    return made


class Sorted:
    """The entries of all files, by the key groups that they belong to from now on."""

    def __init__(self, files: list[_File], becomes: int, scratch: Scratch) -> None:
        self._places: dict[int, tuple[int, int]] = {}
        self._file = scratch()
        head = bytearray(files[0].head)
        head[_COMPRESSED_AT] = 0
        self._head = bytes(head)
        images = {file.image for file in files}
        prefix, at = prefix_bytes(becomes), 0
        for group, entries_of_group in _by_group(files, becomes, scratch):
            if len(images) > 1:
                _refuse_in_two(entries_of_group)
            number = group.to_bytes(prefix, "big")
            section = encode_section(
                [(entry.number, number + entry.key, entry.value) for entry in entries_of_group]
            )
            self._file.write(section)
            self._places[group] = at, len(section)
            at += len(section)

    def cut(self, groups: range) -> Cut:
        """Return the sections of key groups, which lie behind each other as in their new file."""
        own = {group: self._places[group] for group in groups if group in self._places}
        begin = min((start for start, _ in own.values()), default=0)
        end = max((start + size for start, size in own.values()), default=begin)
        places = {group: len(self._head) + start - begin for group, (start, _) in own.items()}

        def content() -> Iterator[bytes]:
            yield self._head
            yield from self._bytes(begin, end)

        return _cut(groups, places, len(self._head) + end - begin, content)

    def _bytes(self, begin: int, end: int) -> Iterator[bytes]:
        self._file.seek(begin)
        left = end - begin
        while left:
            chunk = self._file.read(min(left, CHUNK))
            if not chunk:
                return
            left -= len(chunk)
            yield chunk


@dataclass(frozen=True, slots=True)
class _Entry:
    """`state` as its own file numbers it, `number` as the new one does; the key is without its
    group's number.
    """

    file: _File
    state: int
    number: int
    key: bytes
    value: bytes


# Group, number, and the entry's own number: an order of its own is kept.
_SORTED_BY = Struct(">HHQ")
_BEHIND = Struct(">HHI")  # the file's number, the state in it, the size of the key that follows
_AT_ONCE = 1 << 15


def _by_group(
    files: list[_File], becomes: int, scratch: Scratch
) -> Iterator[tuple[int, list[_Entry]]]:
    """Yield group by group, and in each by the states' new numbers."""
    # These load Arrow, for which no other plan should wait.
    from stateshift.formats.blocks import block_of
    from stateshift.formats.sorting import SortedPiles

    piles = SortedPiles(scratch)
    records = _records(files, becomes)
    while batch := list(islice(records, _AT_ONCE)):
        piles.add(0, block_of(batch))
    rows = chain.from_iterable(block.records() for block in piles.pile(0).blocks())
    for group, own in groupby(rows, key=_group_of):
        yield group, [_entry(files, key, packed or b"") for key, packed in own]


def _group_of(row: tuple[bytes, bytes | None]) -> int:
    group, _, _ = _SORTED_BY.unpack_from(row[0])
    return int(group)


def _records(files: list[_File], becomes: int) -> Iterator[tuple[bytes, bytes]]:
    count = 0
    for index, file in enumerate(files):
        for group, content in file.sections():
            for state, key, raw in _entries(file, content, group):
                new_group = group
                if file.was != becomes:
                    new_group = _dealt_to(file, state, key, group, becomes)
                behind = _BEHIND.pack(index, state, len(key))
                sorted_by = _SORTED_BY.pack(new_group, file.renumbered(state), count)
                yield sorted_by, b"".join((behind, key, raw))
                count += 1


def _entry(files: list[_File], sorted_by: bytes, packed: bytes) -> _Entry:
    _, number, _ = _SORTED_BY.unpack(sorted_by)
    index, state, size = _BEHIND.unpack_from(packed)
    key_end = _BEHIND.size + size
    return _Entry(files[index], state, number, packed[_BEHIND.size : key_end], packed[key_end:])


def _entries(file: _File, content: bytes, group: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield state, key without the group's number, and value."""
    header = file.known_header
    plain = uncompressed(content) if header.compressed else content
    prefix = prefix_bytes(file.was)
    for state, key, raw in entries(plain, prefix, group, len(header.states)):
        yield state, key[prefix:], raw


def _dealt_to(file: _File, state: int, key: bytes, group: int, becomes: int) -> int:
    """Return the key group of an entry from now on."""
    code = hash_of(file.known_header, state, key)
    if key_group(code, file.was) != group:
        raise Incompatible(
            f"a key of group {group} does not belong there by its hash: the job hashes its keys in "
            "a way of its own",
            hint="its max parallelism cannot be changed from outside",
        )
    return key_group(code, becomes)


def _refuse_in_two(entries_of_group: list[_Entry]) -> None:
    """Refuse a key that is in two images; where keys cannot be read, an entry that is."""
    owners: dict[tuple[int | None, bytes], int] = {}
    for entry in entries_of_group:
        owner = owners.setdefault(_key_of(entry), entry.file.image)
        if owner != entry.file.image:
            raise Incompatible(
                f"key {_shown(entry)} is in two images: whose state counts is not known",
                hint='drop the operator from one of them (a drop may be "of" one image); or let '
                "the jobs have keys of their own",
            )


def _key_of(entry: _Entry) -> tuple[int | None, bytes]:
    """Return an entry's key; else all that stands in front of its value."""
    key = key_of(entry.file.known_header, entry.state, entry.key)
    return (entry.number, entry.key) if key is None else (None, key)


def _shown(entry: _Entry) -> str:
    number, key = _key_of(entry)
    return shown(entry.file.known_header, key) if number is None else key.hex()


def _nothing(groups: range) -> Cut:
    return Cut(groups.start, (0,) * len(groups), 0, lambda: iter(()))


def _cut(groups: range, places: Mapping[int, int], size: int, content: Content) -> Cut:
    if not places:
        return _nothing(groups)
    offsets = tuple(places.get(group, 0) for group in groups)
    return Cut(groups.start, offsets, size, content)


def _any_header(handle: KeyedHandle | None, streams: Streams) -> Header | None:
    """Return the header of a handle's states, whichever backend wrote it."""
    match handle:
        case KeyGroups():
            return header_of(handle, streams)
        case Incremental(meta=meta) if meta is not None:
            return decode_header(streams.head(meta, meta.size), meta.size)
        case Changelog(bases=bases):
            return _first_header(bases, streams)
    return None


def _first_header(handles: Sequence[KeyedHandle], streams: Streams) -> Header | None:
    for handle in handles:
        header = _any_header(handle, streams)
        if header is not None:
            return header
    return None


def _of_keys(header: Header) -> str:
    """Return what is said of keys that cannot be hashed here. Only a known serializer tells whose
    class hashes them.
    """
    name = _key_serializer(header)
    if name == ROW_DATA:
        return "its keys are rows of Flink SQL (RowData), which are not hashed here"
    if not name:
        return "its keys are of a serializer that is not known here, and are not hashed"
    return f"its keys are written by {name}, and are not hashed here"


def _key_serializer(header: Header) -> str:
    if header.unknown:
        return snapshot_name(header.unknown)
    return header.key.name if header.key else ""
