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
    in_file_order,
    is_canonical,
    sections_of,
    uncompressed,
)
from stateshift.engines.flink.entries.keys import hash_of, hashable, key_of, shown
from stateshift.engines.flink.obstacles import CANONICAL, Obstacle
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

    def sections(self, groups: Container[int] | None = None) -> Iterator[tuple[int, bytes]]:
        return sections_of(self.handle, self.streams, groups)

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Of the same, by what the metadata says: group and size."""
        assert self.handle.stream is not None, "what has no file is left out"
        for part, group in in_file_order(self.handle, self.handle.stream.size):
            yield group, part[1] - part[0]


def why_not(
    operator: OperatorState, streams: Streams, max_parallelism: int, united: bool = False
) -> Obstacle | None:
    """What keeps an operator's keyed state from being cut, united with another's, or dealt."""
    handles = [s.managed_keyed for s in operator.subtasks or () if s.managed_keyed is not None]
    if any(s.raw_keyed is not None for s in operator.subtasks or ()):
        return Obstacle("it has raw keyed state, which only its own code can divide")
    dealt = max_parallelism != operator.max_parallelism
    for handle in handles if dealt else ():
        header = _any_header(handle, streams)
        if header is not None and not hashable(header.key):
            return Obstacle(_of_keys(header))
    if not all(isinstance(handle, KeyGroups) for handle in handles):
        return Obstacle("its state lies in files of RocksDB, or in a changelog", CANONICAL)
    for handle in handles if dealt or united else ():
        assert isinstance(handle, KeyGroups)
        if _first(handle) is not None and not is_canonical(handle, streams):
            return Obstacle(
                "it is in the hashmap backend's own format, which is not taken apart", CANONICAL
            )
    return None


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
            return Cut(groups.start, (0,) * len(groups), 0, lambda: iter(()))
        dealt = any(
            origin.operator.max_parallelism != self._max_parallelism for origin in self._origins
        )
        return (
            self._sorted.cut(groups)
            if dealt or len(self._origins) > 1
            else _joined(self._files, groups)
        )

    @cached_property
    def _sorted(self) -> Sorted:
        return Sorted(self._files, self._max_parallelism, self._scratch)

    def unkeyed(self, subtask: int, role: str) -> Joined:
        every: list[tuple[int, Held]] = []
        for origin in self._origins:
            every.extend(_held(origin, role))
        return joined(
            (one for index, one in every if index % self._parallelism == subtask),
            (one for _, one in every),
        )


def heads_of(operator: OperatorState, streams: Streams, role: str) -> list[bytes]:
    """Of the files of its operator state, what stands in front of their elements; each once."""
    found = []
    for _, handle in _handles(operator, role):
        starts: list[int] = []
        for state in handle.states:
            starts.extend(state.offsets)
        if handle.stream is not None and starts:
            found.append(streams.head(handle.stream, min(starts)))
    return list(dict.fromkeys(found))


def _held(origin: Origin, role: str) -> Iterator[tuple[int, Held]]:
    for index, handle in _handles(origin.operator, role):
        if handle.stream is not None and handle.states:
            content = bounds.gathered(origin.streams.chunks(handle.stream), "operator state")
            yield index, Held(handle, content, role == RAW)


def _handles(operator: OperatorState, role: str) -> Iterator[tuple[int, Partitioned]]:
    for subtask in operator.subtasks or ():
        yield from ((subtask.index, handle) for own, handle in handles_of(subtask) if own == role)


def _files(origins: Sequence[Origin]) -> list[_File]:
    found: list[_File] = []
    for image, origin in enumerate(origins):
        for subtask in origin.operator.subtasks or ():
            handle, streams = subtask.managed_keyed, origin.streams
            first = _first(handle)
            if not isinstance(handle, KeyGroups) or handle.stream is None or first is None:
                continue
            head = streams.head(handle.stream, first)
            header = decode_header(head, first) if is_canonical(handle, streams) else None
            found.append(
                _File(image, origin.operator.max_parallelism, streams, handle, head, header)
            )
    if not found:
        return []
    first_one = max(
        found, key=lambda file: len(file.header.states) if file.header is not None else 0
    )
    others = (file for file in found if file is not first_one)
    return [first_one, *(replace(file, states=_renumbered(first_one, file)) for file in others)]


def _renumbered(first: _File, file: _File) -> tuple[int, ...]:
    """Which state of the first file each of this one's is; nothing where they are the same."""
    if file.head == first.head:
        return ()
    if file.header is None or first.header is None:
        raise Incompatible(
            (
                "subtasks wrote their states in different orders: only their serializers can "
                "put that right"
            ),
            hint="take a canonical savepoint of the job",
        )
    names = [state.name for state in first.header.states]
    missing = [state.name for state in file.header.states if state.name not in names]
    if missing and file.image != first.image:
        raise Incompatible(
            (
                f"one image has states that another has not: {', '.join(missing)}, and the "
                "other has others"
            ),
            hint="take savepoints of jobs of the same version",
        )
    if missing or (file.image == first.image and first.header.compressed != file.header.compressed):
        raise Incompatible(
            f"one subtask has states that another has not: {', '.join(missing) or 'compressed'}",
            hint="take a savepoint once every subtask has had records",
        )
    if file.image != first.image:
        _refuse_other_types(first.header, file.header)
    return tuple(names.index(state.name) for state in file.header.states)


def _refuse_other_types(one: Header, other: Header) -> None:
    """Headers that differ, of two images: what their serializers are has to be known, and the
    same.
    """
    types = {state.name: state for state in one.states}
    same = one.key == other.key and one.key is not None
    wrong = [state.name for state in other.states if not _is_same(types[state.name], state)]
    if not same or wrong:
        what = f"state {wrong[0]!r}" if same else "keys"
        raise Incompatible(
            f"the images have {what} of other types, or of types that are not known here",
            hint="take savepoints of jobs of the same version",
        )


def _is_same(one: StateInfo, other: StateInfo) -> bool:
    timers = one.kind == "timers"
    return one == other and (timers or (one.value is not None and one.namespace is not None))


def _joined(files: list[_File], groups: range) -> Cut:
    """Sections as they are, but for their states' numbers where these differ."""
    own = [file for file in files if set(groups) & {group for group, _ in file.sizes()}]
    places: dict[int, int] = {}
    at = len(files[0].head)
    for group, size in (
        (group, size) for file in own for group, size in file.sizes() if group in groups
    ):
        if group in places:
            raise FormatError(f"key group {group} is in two subtasks", None, None)
        places[group] = at
        at += size

    def content() -> Iterator[bytes]:
        yield files[0].head
        for file in own:
            for group, section in file.sections(groups):
                yield _with_numbers(file, section, group) if file.states else section

    return _cut(groups, places, at, content)


def _with_numbers(file: _File, content: bytes, group: int) -> bytes:
    assert file.header is not None, "what has no header of its own is refused"
    if file.header.compressed:
        raise Incompatible(
            "compressed state whose subtasks number their states differently cannot be joined",
            hint="take a savepoint without compression",
        )
    numbered = entries(content, prefix_bytes(file.was), group, len(file.states))
    found = [(file.states[n], key, value) for n, key, value in numbered]
    made = encode_section(sorted(found, key=lambda entry: entry[0]))
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
        several, prefix, at = len({file.image for file in files}) > 1, prefix_bytes(becomes), 0
        for group, found in _by_group(files, becomes, scratch):
            if several:
                _refuse_in_two(found)
            number = group.to_bytes(prefix, "big")
            section = encode_section(
                [(entry.number, number + entry.key, entry.value) for entry in found]
            )
            self._file.write(section)
            self._places[group] = at, len(section)
            at += len(section)

    def cut(self, groups: range) -> Cut:
        """They lie behind each other, as in the file that they come to."""
        own = {group: self._places[group] for group in groups if group in self._places}
        begin = min((start for start, _ in own.values()), default=0)
        end = max((start + size for start, size in own.values()), default=begin)
        places = {group: len(self._head) + start - begin for group, (start, _) in own.items()}

        def content() -> Iterator[bytes]:
            yield self._head
            self._file.seek(begin)
            left = end - begin
            while left and (chunk := self._file.read(min(left, CHUNK))):
                left -= len(chunk)
                yield chunk

        return _cut(groups, places, len(self._head) + end - begin, content)


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


_SORTED_BY = Struct(
    ">HHQ"
)  # group, number, and the entry's own number: an order of its own is kept
_BEHIND = Struct(">HHI")  # the file's number, the state in it, the size of the key that follows
_AT_ONCE = 1 << 15


def _by_group(
    files: list[_File], becomes: int, scratch: Scratch
) -> Iterator[tuple[int, list[_Entry]]]:
    """Group by group, and in each by the states' new numbers."""
    from stateshift.formats.blocks import (
        block_of,
    )  # loads Arrow, for which no other plan should wait
    from stateshift.formats.sorting import SortedPiles

    piles = SortedPiles(scratch)
    records = _records(files, becomes)
    while some := list(islice(records, _AT_ONCE)):
        piles.add(0, block_of(some))
    rows = chain.from_iterable(block.records() for block in piles.pile(0).blocks())
    for group, own in groupby(rows, key=lambda row: _SORTED_BY.unpack_from(row[0])[0]):
        yield group, [_entry(files, key, packed or b"") for key, packed in own]


def _records(files: list[_File], becomes: int) -> Iterator[tuple[bytes, bytes]]:
    count = 0
    for index, file in enumerate(files):
        for group, content in file.sections():
            for state, number, key, raw in _entries(file, content, group):
                there = (
                    group if file.was == becomes else _dealt_to(file, state, key, group, becomes)
                )
                behind = _BEHIND.pack(index, state, len(key))
                yield _SORTED_BY.pack(there, number, count), b"".join((behind, key, raw))
                count += 1


def _entry(files: list[_File], sorted_by: bytes, packed: bytes) -> _Entry:
    _, number, _ = _SORTED_BY.unpack(sorted_by)
    index, state, size = _BEHIND.unpack_from(packed)
    key_end = _BEHIND.size + size
    return _Entry(files[index], state, number, packed[_BEHIND.size : key_end], packed[key_end:])


def _entries(file: _File, content: bytes, group: int) -> Iterator[tuple[int, int, bytes, bytes]]:
    """State, its number from now on, key without the group's number, and value."""
    assert file.header is not None, "asked before: why_not"
    plain, prefix = (
        uncompressed(content) if file.header.compressed else content,
        prefix_bytes(file.was),
    )
    for state, key, raw in entries(plain, prefix, group, len(file.header.states)):
        yield state, file.states[state] if file.states else state, key[prefix:], raw


def _dealt_to(file: _File, state: int, key: bytes, group: int, becomes: int) -> int:
    assert file.header is not None, "asked before: why_not"
    code = hash_of(file.header, state, key)
    if key_group(code, file.was) != group:
        raise Incompatible(
            (
                f"a key of group {group} does not belong there by its hash: the job hashes its "
                "keys in a way of its own"
            ),
            hint="its max parallelism cannot be changed from outside",
        )
    return key_group(code, becomes)


def _refuse_in_two(found: list[_Entry]) -> None:
    """A key belongs to one image. Where keys cannot be read, no entry may be there twice."""
    owners: dict[tuple[int | None, bytes], int] = {}
    for entry in found:
        if owners.setdefault(_key_of(entry), entry.file.image) != entry.file.image:
            raise Incompatible(
                f"key {_shown(entry)} is in two images: whose state counts cannot be told",
                hint='drop the operator from one of them (a drop may be "of" one image); or let '
                "the jobs have keys of "
                "their own",
            )


def _key_of(entry: _Entry) -> tuple[int | None, bytes]:
    """Its key; else all that stands in front of its value."""
    found = key_of(_header_of(entry), entry.state, entry.key)
    return (entry.number, entry.key) if found is None else (None, found)


def _shown(entry: _Entry) -> str:
    number, key = _key_of(entry)
    return shown(_header_of(entry), key) if number is None else key.hex()


def _header_of(entry: _Entry) -> Header:
    assert entry.file.header is not None, "asked before: why_not"
    return entry.file.header


def _cut(groups: range, places: Mapping[int, int], size: int, content: Content) -> Cut:
    offsets = tuple(places.get(group, 0) for group in groups)
    return (
        Cut(groups.start, offsets, size, content)
        if places
        else Cut(groups.start, offsets, 0, lambda: iter(()))
    )


def _first(handle: object) -> int | None:
    return (
        min((o for o in handle.offsets if o), default=None)
        if isinstance(handle, KeyGroups)
        else None
    )


def _header(handle: KeyGroups, streams: Streams) -> Header | None:
    first = _first(handle)
    return (
        decode_header(streams.head(handle.stream, first), first)
        if handle.stream is not None and first
        else None
    )


def _any_header(handle: KeyedHandle | None, streams: Streams) -> Header | None:
    """The header of a handle's states, whichever backend wrote it."""
    match handle:
        case KeyGroups():
            return _header(handle, streams)
        case Incremental(meta=meta) if meta is not None:
            return decode_header(streams.head(meta, meta.size), meta.size)
        case Changelog(bases=bases):
            return next(filter(None, (_any_header(base, streams) for base in bases)), None)
    return None


def _of_keys(header: Header) -> str:
    """What is said of keys that cannot be hashed here. Whose class hashes them, only a known
    serializer tells.
    """
    name = (
        snapshot_name(header.unknown) if header.unknown else header.key.name if header.key else ""
    )
    if name == ROW_DATA:
        return "its keys are rows of Flink SQL (RowData), which are not hashed here"
    if not name:
        return "its keys are of a serializer that is not known here, and are not hashed"
    return f"its keys are written by {name}, and are not hashed here"
