"""The operators of sources that read on from elsewhere, rewritten. Pure.

    NewOffsets(topics, offsets, dropped, roots,   new topics, offsets in them, states that go,
               snapshot)                          folders of files, old -> new, and a snapshot
    rewrite_operator(operator, streams, new)      the operator, its rewritten state in the metadata
    moved_path(uri, roots)                        a file's path below its new folder

A source of Kafka knows its partitions in two places: each reader has splits, with the next offset
of each, and the enumerator all partitions that it has found. Both are rewritten. A partition that
the source has not read gets a split in the reader with the fewest: an enumerator that only finds it
would begin where the job says, or with the first record. One that waits in the enumerator with an
offset of its own (version 3) waits there still. FlinkKafkaConsumer has a list of offsets alone.

    before    reader 0: orders/0 5        enumerator: orders/0, orders/1
              reader 1: orders/1 3
    after     reader 0: shop/0 17         enumerator: shop/0, shop/1, shop/2
              reader 1: shop/1 9, shop/2 0

A source of files knows them in the same two places: readers have splits of files, the enumerator
those that no reader has, and the paths that it has found so far. Their paths are rewritten. The
hosts of a split, which are those of the old storage, go.

A source of Iceberg knows in the enumerator the snapshot up to which it has listed its table. That
is replaced. Splits hold tasks over files of one table: a source that has any is refused.

All other states, and the header in front of them, keep their bytes. Partitions that the new topics
do not have go. `dropped` states have no elements afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import NotRequired, Self, TypedDict

from stateshift.engines.flink.streams import Streams
from stateshift.errors import Incompatible
from stateshift.formats import bounds
from stateshift.formats.flink.file_source import (
    FileEnumerator,
    FileSplit,
    Uri,
    decode_file_enumerator,
    decode_file_split,
    decode_iceberg_enumerator,
    encode_file_enumerator,
    encode_file_split,
    encode_iceberg_enumerator,
)
from stateshift.formats.flink.java_data import Longs
from stateshift.formats.flink.kafka import (
    ASSIGNED,
    CONSUMER_STATE,
    NOT_RESOLVED,
    SPLIT_VERSION,
    UNASSIGNED,
    KafkaEnumerator,
    KafkaSplit,
    ReadOffset,
    decode_enumerator,
    decode_read_offset,
    decode_split,
    encode_enumerator,
    encode_read_offset,
    encode_split,
)
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import Partitioned, StateOffsets
from stateshift.formats.flink.operator_state import (
    READER_STATE,
    ConnectorState,
    decode_operator_header,
    decode_source_coordinator,
    decode_versioned_elements,
    encode_source_coordinator,
    encode_versioned_element,
    require_version,
    split_elements,
)
from stateshift.formats.flink.stream_handles import Inline
from stateshift.specification.location import scheme_named
from stateshift.storage import locations

Place = tuple[str, int]  # a topic, and the number of a partition


class PlainNewOffsets(TypedDict):
    """`NewOffsets` as JSON, in which the numbers of partitions are text."""

    topics: Mapping[str, str]
    offsets: Mapping[str, Mapping[str, int]]
    dropped: Sequence[str]
    roots: NotRequired[Mapping[str, str]]
    snapshot: NotRequired[Sequence[int]]


@dataclass(frozen=True, slots=True)
class NewOffsets:
    """The new name of each topic, the next offset of every partition of the new topics, and the
    states whose elements are dropped; or the new folders of files; or the snapshot of a table, and
    its time in milliseconds.
    """

    topics: Mapping[str, str]
    offsets: Mapping[str, Mapping[int, int]]
    dropped: tuple[str, ...] = ()
    roots: Mapping[str, str] = field(default_factory=dict)
    snapshot: tuple[int, int] | None = None

    def plain(self) -> PlainNewOffsets:
        offsets = {}
        for topic, partitions in self.offsets.items():
            offsets[topic] = {str(number): offset for number, offset in partitions.items()}
        dropped = list(self.dropped)
        made: PlainNewOffsets = {"topics": self.topics, "offsets": offsets, "dropped": dropped}
        if self.roots:
            made["roots"] = self.roots
        if self.snapshot is not None:
            made["snapshot"] = self.snapshot
        return made

    @classmethod
    def of(cls, plain: PlainNewOffsets) -> Self:
        offsets = {}
        for topic, partitions in plain["offsets"].items():
            offsets[topic] = {int(number): offset for number, offset in partitions.items()}
        roots, snapshot = plain.get("roots", {}), None
        if "snapshot" in plain:
            snapshot_id, time_ms = plain["snapshot"]
            snapshot = snapshot_id, time_ms
        return cls(plain["topics"], offsets, tuple(plain["dropped"]), roots, snapshot)

    @property
    def places(self) -> list[Place]:
        """Every partition that the source reads afterwards."""
        places: list[Place] = []
        for topic, partitions in self.offsets.items():
            places += [(topic, number) for number in partitions]
        return places

    def moved(self, split: KafkaSplit) -> Iterator[KafkaSplit]:
        """Yield a split as it is afterwards; nothing for a partition that is not there."""
        topic = self.topics.get(split.topic, split.topic)
        offset = self.offsets.get(topic, {}).get(split.partition)
        if offset is not None:
            yield replace(split, topic=topic, offset=offset)


@dataclass(frozen=True, slots=True)
class _SubtaskFile:
    """The operator state of one subtask: the header of its file, and the elements of each state."""

    handle: Partitioned
    head: bytes
    elements: dict[str, list[bytes]]


def rewrite_operator(operator: OperatorState, streams: Streams, new: NewOffsets) -> OperatorState:
    """Return the operator with its new offsets, or without the states that go; its rewritten state
    is in the metadata.
    """
    readers: dict[int, _SubtaskFile] = {}
    for subtask in () if new.dropped else operator.all_subtasks:
        file = _file_of(subtask.managed_operator, streams)
        if file is not None:
            readers[subtask.index] = file
    coordinator = operator.coordinator
    of_source = None if new.dropped else coordinator
    before = None if of_source is None else decode_source_coordinator(of_source.content)
    known = before
    if new.offsets:
        known = _rewrite_topics([*readers.values()], known, new)
    if new.roots:
        known = _rewrite_files([*readers.values()], known, new.roots)
    if new.snapshot is not None and known is not None:
        known = _rewrite_snapshot(known, new.snapshot)
    if of_source is not None and known is not None and known != before:
        coordinator = replace(of_source, content=encode_source_coordinator(known))
    subtasks = []
    for subtask in operator.all_subtasks:
        name, reader = f"{operator.id.hex()}-{subtask.index}", readers.get(subtask.index)
        if reader is not None:
            subtask = replace(subtask, managed_operator=_handle_of(reader, name))
        elif holds(subtask.managed_operator, new.dropped):
            subtask = _without_states(subtask, name, streams, new.dropped)
        subtasks.append(subtask)
    return replace(operator, coordinator=coordinator, subtasks=tuple(subtasks))


def holds(handle: Partitioned | None, states: Sequence[str]) -> bool:
    """Whether one of these states has elements."""
    if handle is None or handle.stream is None:
        return False
    return any(len(state.offsets) and state.name in states for state in handle.states)


def _without_states(
    subtask: SubtaskState, name: str, streams: Streams, dropped: Sequence[str]
) -> SubtaskState:
    """Return a subtask without the elements of some states. A compressed element is in chunks of
    its own, or in a stream with all others of its state: others stay as they are.
    """
    handle = subtask.managed_operator
    assert handle is not None and handle.stream is not None, "it holds one of them"
    content = bounds.gather(streams.chunks(handle.stream), "operator state")
    by_start = split_elements(content, handle.starts, len(content))
    made = bytearray(content[: min(handle.starts)])
    require_version(decode_operator_header(bytes(made)))
    moved: dict[int, int] = {}
    states: list[StateOffsets] = []
    for state in handle.states:
        kept = () if state.name in dropped else state.offsets
        for start in kept:
            if start not in moved:
                moved[start] = len(made)
                made += by_start[start]
        offsets = Longs.of([moved[start] for start in kept])
        states.append(StateOffsets(state.name, state.mode, offsets))
    shorter = Partitioned(tuple(states), Inline(name, bytes(made)))
    return replace(subtask, managed_operator=shorter)


def _file_of(handle: Partitioned | None, streams: Streams) -> _SubtaskFile | None:
    """Return a file in parts; None for an empty one, or none. Without elements it has a header all
    the same.

    Raises Incompatible for compressed state: an element is a part of a stream there.
    """
    if handle is None or handle.stream is None:
        return None
    content = bounds.gather(streams.chunks(handle.stream), "operator state")
    if not content:
        return None
    head = content[: min(handle.starts, default=len(content))]
    header = decode_operator_header(head)
    require_version(header)
    if header.compressed:
        raise Incompatible(
            "the operator state is compressed, and cannot be taken apart",
            hint="take a savepoint without execution.checkpointing.snapshot-compression",
        )
    by_start = split_elements(content, handle.starts, len(content))
    elements: dict[str, list[bytes]] = {}
    for state in handle.states:
        elements[state.name] = [by_start[start] for start in state.offsets]
    return _SubtaskFile(handle, head, elements)


def _handle_of(reader: _SubtaskFile, name: str) -> Partitioned:
    """Return a handle to these elements behind the same header, in the metadata itself."""
    content = bytearray(reader.head)
    states: list[StateOffsets] = []
    for state in reader.handle.states:
        offsets: list[int] = []
        for element in reader.elements[state.name]:
            offsets.append(len(content))
            content += element
        states.append(StateOffsets(state.name, state.mode, Longs.of(offsets)))
    return Partitioned(tuple(states), Inline(name, bytes(content)))


def _rewrite_topics(
    readers: Sequence[_SubtaskFile], state: ConnectorState | None, new: NewOffsets
) -> ConnectorState | None:
    """Rewrite the splits of each reader, and return the state of the enumerator."""
    known = None if state is None else decode_enumerator(state.version, state.content)
    added = _rewrite_readers(readers, known, new)
    if known is None:
        return None
    rewritten = encode_enumerator(_rewritten_enumerator(known, new, added))
    return ConnectorState(known.version, rewritten)


def _rewrite_readers(
    readers: Sequence[_SubtaskFile], known: KafkaEnumerator | None, new: NewOffsets
) -> list[Place]:
    """Rewrite the splits of each reader, and return the partitions that no reader had."""
    is_older = any(CONSUMER_STATE in reader.elements for reader in readers)
    state = CONSUMER_STATE if is_older else READER_STATE
    elements = [reader.elements[state] for reader in readers if state in reader.elements]
    like = next(chain.from_iterable(elements), None)
    if like is None:
        raise Incompatible(
            "no reader of the source has a partition yet",
            hint="let the job read something of it first",
        )
    present: set[Place] = set()
    for split in () if known is None else known.splits:
        waits_there = split.status == UNASSIGNED and split.offset != NOT_RESOLVED
        if waits_there:
            present.update(map(_place, new.moved(split)))
    splits_of_each: list[list[KafkaSplit]] = []
    for own in elements:
        before = [_decode_element(state, element) for element in own]
        splits_of_each.append([*chain.from_iterable(map(new.moved, before))])
        present.update(map(_place, splits_of_each[-1]))
    missing = [place for place in new.places if place not in present]
    for topic, partition in missing:
        offset = new.offsets[topic][partition]
        added = replace(_decode_element(state, like), topic=topic, partition=partition)
        min(splits_of_each, key=len).append(replace(added, offset=offset))
    for own, splits in zip(elements, splits_of_each, strict=True):
        own.clear()
        for split in splits:
            if state == CONSUMER_STATE:
                number = decode_read_offset(like).class_number
                read = ReadOffset(split.topic, split.partition, split.offset - 1, number)
                own.append(encode_read_offset(read))
            else:
                written = ConnectorState(SPLIT_VERSION, encode_split(split))
                own.append(encode_versioned_element(written))
    return missing


def _place(split: KafkaSplit) -> Place:
    return split.topic, split.partition


def _decode_element(state: str, element: bytes) -> KafkaSplit:
    """Return the split in an element of a reader's state, or the same of FlinkKafkaConsumer."""
    if state == CONSUMER_STATE:
        read = decode_read_offset(element)
        return KafkaSplit(read.topic, read.partition, read.next)
    (split,) = decode_versioned_elements(element, state)
    return decode_split(split.version, split.content)


def _rewritten_enumerator(
    known: KafkaEnumerator, new: NewOffsets, added: Sequence[Place]
) -> KafkaEnumerator:
    """Return the enumerator that knows every partition; readers have those that are added."""
    splits: list[KafkaSplit] = []
    subtasks: list[tuple[int, int]] = []
    left = iter(known.splits)
    for subtask, count in known.subtasks or ((0, len(known.splits)),):
        before = len(splits)
        splits += chain.from_iterable(map(new.moved, islice(left, count)))
        subtasks.append((subtask, len(splits) - before))
    if known.version > 1:
        assigned = set(added)
        splits = [
            replace(split, status=ASSIGNED) if _place(split) in assigned else split
            for split in splits
        ]
    there = set(map(_place, splits))
    status = ASSIGNED if known.version > 1 else None
    for topic, partition in added:
        if (topic, partition) not in there:
            offset = new.offsets[topic][partition]
            splits.append(KafkaSplit(topic, partition, offset, status=status))
            subtasks[-1] = (subtasks[-1][0], subtasks[-1][1] + 1)
    counts = tuple(subtasks) if known.version == 0 else ()
    return replace(known, splits=tuple(splits), subtasks=counts)


# ---- files


def moved_path(uri: Uri, roots: Mapping[str, str]) -> Uri | None:
    """Return the path of a file below its new folder; None if it is in none of the old ones. A
    scheme of the same file system stays spelled as the job spells it.
    """
    location = locations.normal(str(uri))
    for old, new in roots.items():
        if locations.is_within(location, old):
            below = locations.join(new, locations.relative(location, old))
            scheme, colon, _ = new.partition("://")
            before = uri.scheme or "file"
            if not colon or scheme_named(scheme).file_system == scheme_named(before).file_system:
                scheme = before
            place = locations.parse(below)
            authority = f"//{place.authority}" if place.authority else ""
            return Uri.of(f"{scheme}:{authority}{place.path}")
    return None


def _moved_split(split: FileSplit, roots: Mapping[str, str]) -> FileSplit:
    uri = moved_path(split.path, roots)
    return split if uri is None else replace(split, path=uri, hosts=())


def _rewrite_files(
    readers: Sequence[_SubtaskFile], state: ConnectorState | None, roots: Mapping[str, str]
) -> ConnectorState | None:
    """Rewrite the splits of each reader, and return the state of the enumerator."""
    for reader in readers:
        elements = reader.elements.get(READER_STATE, [])
        for number, element in enumerate(elements):
            (held,) = decode_versioned_elements(element, READER_STATE)
            split = _moved_split(decode_file_split(held.version, held.content), roots)
            written = ConnectorState(held.version, encode_file_split(split))
            elements[number] = encode_versioned_element(written)
    if state is None:
        return None
    known = decode_file_enumerator(state.version, state.content)
    splits = [_moved_split(split, roots) for split in known.splits]
    found = [str(moved_path(Uri.of(path), roots) or path) for path in known.found]
    moved = FileEnumerator(tuple(splits), tuple(found))
    return ConnectorState(state.version, encode_file_enumerator(moved))


# ---- tables


def _rewrite_snapshot(state: ConnectorState, snapshot: tuple[int, int]) -> ConnectorState:
    """Return the state of an enumerator that has listed its table up to this snapshot."""
    known = decode_iceberg_enumerator(state.version, state.content)
    moved = replace(known, snapshot_id=snapshot[0])
    if known.time_ms is not None:
        moved = replace(moved, time_ms=snapshot[1])
    content = encode_iceberg_enumerator(state.version, moved)
    if decode_iceberg_enumerator(state.version, content) != moved:
        raise Incompatible("the enumerator of Iceberg's source would be read as another")
    return ConnectorState(state.version, content)
