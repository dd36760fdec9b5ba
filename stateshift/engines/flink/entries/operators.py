"""The facts of each operator in an image: ids, parallelism, where its state lies, which states it
has, and how evenly its key groups are filled. States are read from the headers of the subtasks'
files; no state itself is.

    Operator.stores   one a role: keyed, operator, raw keyed, raw operator, channels, coordinator
    Operator.details  max_parallelism, finished, states, key_groups: {count, empty, bytes: {min,
                      median, max}}

Operators that are sources and sinks:

    source    splits in the state of its readers, the enumerator in that of its coordinator; or, of
              an old one, a state of its own
    sink      transactions that its committers have still to commit

Only operators that have such a state are read. A source whose state cannot be read is one of no
kind here; `verify --deep` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from statistics import median

from stateshift.engines.flink.streams import Streams
from stateshift.errors import FormatError, StorageError
from stateshift.formats import bounds
from stateshift.formats.flink import kafka
from stateshift.formats.flink.heap_groups import namespace_of
from stateshift.formats.flink.kafka import CONSUMER_STATE
from stateshift.formats.flink.keyed_handles import (
    SAVEPOINT_KEY_GROUPS,
    Changelog,
    Incremental,
    KeyedHandle,
    KeyGroups,
    MemoryDelta,
)
from stateshift.formats.flink.keyed_state import (
    END_OF_GROUP,
    StateInfo,
    decode_header,
    find_serializers,
    sections,
)
from stateshift.formats.flink.metadata import Metadata, OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import MODES
from stateshift.formats.flink.operator_state import (
    COMMITTER_STATE,
    READER_STATE,
    ConnectorState,
    decode_committer,
    decode_operator_header,
    decode_source_coordinator,
    decode_versioned_elements,
    element_bytes,
    split_elements,
)
from stateshift.formats.flink.references import Reference, references
from stateshift.formats.flink.serializers import Serializer
from stateshift.formats.flink.stream_handles import Inline, StreamHandle, files_of
from stateshift.formats.flink.type_names import type_fields, type_name, unread_name
from stateshift.sources.kind import FlinkSource, SourcePosition
from stateshift.sources.kinds import UNKNOWN, SourceReading, of_flink, positions_of
from stateshift.survey import Endpoint, Operator, Store

HEADER_MAX = 1 << 20
ROLES = ("keyed", "operator", "raw keyed", "raw operator", "channels", "coordinator")


def operators_of(metadata: Metadata, streams: Streams) -> tuple[Operator, ...]:
    """Return every operator in the metadata's order; only the headers of its files are read."""
    references_of: dict[str, list[Reference]] = {}
    for reference in references(metadata):
        references_of.setdefault(reference.operator, []).append(reference)
    operators = []
    for state in metadata.operators:
        id_, subtasks = state.id.hex(), state.all_subtasks
        keyed = (subtask.managed_keyed for subtask in subtasks)
        first = next((handle for handle in keyed if handle is not None), None)
        operator = Operator(
            id=id_,
            name=state.name or None,
            uid=state.uid or None,
            provider=backend_of(first, streams),
            shards=state.parallelism,
            stores=tuple(_stores(state, references_of.get(id_, []))),
            details={
                "max_parallelism": state.max_parallelism,
                "finished": state.subtasks is None or sum(each.finished for each in subtasks),
                **_read_headers(subtasks, streams),
                "key_groups": _key_groups(subtasks),
            },
        )
        operators.append(operator)
    return tuple(operators)


def _stores(operator: OperatorState, own: list[Reference]) -> Iterator[Store]:
    for role in ROLES[:-1]:
        streams = {reference.stream for reference in own if reference.role == role}
        paths: set[str] = set()
        for stream in streams:
            paths.update(file.path for file in files_of(stream))
        changes: list[bytes] = []  # the changelog in the metadata itself is state as well
        for subtask in operator.all_subtasks:
            handles = {"keyed": subtask.managed_keyed, "raw keyed": subtask.raw_keyed}
            for delta in _memory_deltas(handles.get(role)):
                changes += [content for _, content in delta.changes]
        if streams or changes:
            size = sum(stream.size for stream in streams) + sum(map(len, changes))
            yield Store(role, len(paths), size)
    if operator.coordinator is not None:
        yield Store("coordinator", 0, operator.coordinator.size)


def _memory_deltas(handle: KeyedHandle | None) -> Iterator[MemoryDelta]:
    match handle:
        case MemoryDelta():
            yield handle
        case Changelog(bases=bases, deltas=deltas):
            for inner in (*bases, *deltas):
                yield from _memory_deltas(inner)


def backend_of(handle: KeyedHandle | None, streams: Streams) -> str | None:
    """Return the backend that wrote it; a canonical savepoint does not tell."""
    match handle:
        case KeyGroups(tag=tag) if tag != SAVEPOINT_KEY_GROUPS:
            with suppress(StorageError, FormatError):
                return "hashmap" if is_hashmap(handle, streams) else "rocksdb (full)"
            return "hashmap"
        case KeyGroups():
            return "canonical"
        case Incremental():
            return "rocksdb"
        case Changelog():
            below = backend_of(next(iter(handle.bases), None), streams)
            return f"changelog over {below}" if below else "changelog"
    return None


def is_hashmap(handle: KeyGroups, streams: Streams) -> bool:
    """Whether the hashmap backend wrote a file: it has the number of every key group in front of
    it, also of empty ones. Tag 12 alone does not say.

    The last group is asked: RocksDB begins each with a state's number and the length of a key,
    which look like the number of group 0.
    """
    offsets = tuple(handle.offsets)
    if handle.stream is None or not offsets or not all(offsets):
        return False
    read = streams.reader(handle.stream)
    last = handle.first + handle.count - 1
    if int.from_bytes(read(offsets[-1], 4), "big") != last:
        return False
    return last > 0 or not _is_of_rocksdb(read, offsets[-1], handle.stream.size)


def _is_of_rocksdb(read: Callable[[int, int], bytes], start: int, end: int) -> bool:
    """Whether the only group of a file, group 0, is RocksDB's: it ends with a mark, and what would
    be the number of the hashmap's first state is the length of a key.
    """
    header = decode_header(read(0, start), start)
    first_state = int.from_bytes(read(start + 4, 2), "big")
    is_marked = int.from_bytes(read(end - 2, 2), "big") == END_OF_GROUP
    return not header.compressed and is_marked and first_state >= len(header.states)


def _read_headers(subtasks: tuple[SubtaskState, ...], streams: Streams) -> dict[str, object]:
    """Return the states of all subtasks, and the serializers they were written with.

    Headers of one size are taken for one: where there are hundreds of subtasks, each would be a
    read of its own.
    """
    states: list[tuple[StateInfo, Serializer | None]] = []
    serializers: set[str] = set()
    seen: set[int | None] = set()
    headers = (_headers(subtask.managed_keyed) for subtask in subtasks)
    for stream, size in chain.from_iterable(headers):
        if size in seen and not isinstance(stream, Inline):
            continue
        with suppress(FormatError, StorageError):
            content = streams.head(stream, size or HEADER_MAX)
            header = decode_header(content, size)
            states += [(state, header.key) for state in header.states]
            serializers.update(find_serializers(content))
            seen.add(size)
    for subtask in subtasks:
        if subtask.managed_operator is not None:
            for named in subtask.managed_operator.states:
                states.append((StateInfo(named.name, "operator", MODES[named.mode]), None))
    # The first subtask's word about a state counts, and stands in its place from behind.
    described = {
        (state.name, state.kind): _described(state, key) for state, key in reversed(states)
    }
    return {"states": list(reversed(described.values())), "serializers": sorted(serializers)}


def _described(state: StateInfo, key: Serializer | None) -> dict[str, object]:
    """Return the types of a state in words; null where its header does not tell them here."""
    fields = () if state.value is None else type_fields(state.value)
    namespace = namespace_of(state)
    unread = None if state.value is None else state.value.first_opaque()
    return {
        "name": state.name,
        "kind": state.kind,
        "type": state.type,
        "key": None if key is None else type_name(key),
        "namespace": None if namespace is None else type_name(namespace),
        "value": None if state.value is None else type_name(state.value),
        "fields": [{"name": name, "type": type_} for name, type_ in fields],
        "unread": unread_name(state) if unread is not None or state.unknown else None,
    }


def _headers(handle: KeyedHandle | None) -> Iterator[tuple[StreamHandle, int | None]]:
    """Yield the place of the header of a handle's states, and its length, if that is known."""
    match handle:
        case KeyGroups(stream=stream) if stream is not None:
            yield stream, first_section(handle)
        case Incremental(meta=meta) if meta is not None:
            yield meta, meta.size
        case Changelog(bases=bases):
            for base in bases:
                yield from _headers(base)


def first_section(handle: KeyGroups) -> int | None:
    """Return the beginning of the first key group; None where all are empty."""
    return min((offset for offset in handle.offsets if offset), default=None)


def sections_in(handle: KeyGroups) -> tuple[tuple[int, int] | None, ...]:
    """Return (start, end) of each key group in its file, None where it is empty."""
    end = handle.stream.size if handle.stream is not None else 0
    return sections(tuple(handle.offsets), end)


def _key_groups(subtasks: tuple[SubtaskState, ...]) -> dict[str, object] | None:
    keyed = (subtask.managed_keyed for subtask in subtasks)
    handles = [handle for handle in keyed if isinstance(handle, KeyGroups)]
    if not handles:
        return None
    sizes: list[int] = []
    for handle in handles:
        with suppress(FormatError):
            spans = [span or (0, 0) for span in sections_in(handle)]
            sizes += [end - start for start, end in spans]
    return {
        "count": len(sizes),
        "empty": sizes.count(0),
        "bytes": {
            "min": min(sizes, default=0),
            "median": int(median(sizes or [0])),
            "max": max(sizes, default=0),
        },
    }


# ---- those that are sources and sinks


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of one state of one subtask: `count` of them begin at one place."""

    state: str
    content: bytes
    count: int


def endpoints_of(metadata: Metadata, streams: Streams) -> tuple[Endpoint, ...]:
    """Return the sources of an image, then its sinks, in the metadata's order."""
    ends = list(each_endpoint(metadata, streams))
    return tuple(sorted(ends, key=lambda end: end.role == "sink"))


def each_endpoint(metadata: Metadata, streams: Streams) -> Iterator[Endpoint]:
    """Yield the source and the sink that an operator is."""
    for operator in metadata.operators:
        index = operator.uid or operator.name or operator.id.hex()
        source = source_of(operator, streams)
        if source is not None:
            kind, details = source.kind, source.details
            topics = details.get("offsets", {}) if source.is_known else {}
            detail = ", ".join(sorted(topics)) or None
            asked = topics if kind.asked else {}
            yield Endpoint("source", index, kind.name, kind.replayable, detail, asked, details)
        transactions = open_transactions(operator, streams)
        if transactions:
            details = {"transactions": transactions}
            yield Endpoint("sink", index, "kafka", None, None, {}, details)


def source_of(operator: OperatorState, streams: Streams) -> SourceReading | None:
    """Return the reading of an operator that is a source; None for any other."""
    has_splits = bool(_names_of_states(operator) & {READER_STATE, CONSUMER_STATE})
    if operator.coordinator is None and not has_splits:
        return None
    try:
        reading = of_flink(state_of_source(operator, streams))
    except (FormatError, StorageError):
        reading = SourceReading(UNKNOWN)
    # Sinks have coordinators as well.
    return reading if has_splits or reading.is_known else None


def positions_in(state: str, content: bytes, count: int) -> list[tuple[SourcePosition, ...]]:
    """Return the positions of each of `count` splits in a state of a source's; empty where only
    its connector can read them.
    """
    sources = []
    if state == CONSUMER_STATE:
        sources.append(FlinkSource(states={state: (content,)}))
    if state == READER_STATE:
        for split in decode_versioned_elements(content, state, count):
            sources.append(FlinkSource((split,)))
    positions = []
    for source in sources:
        reading = of_flink(source)
        positions.append(positions_of(reading.kind.name, reading.details))
    return positions


def state_of_source(operator: OperatorState, streams: Streams) -> FlinkSource:
    """Return the splits of an operator that is a source, and its enumerator."""
    enumerator = None
    if operator.coordinator is not None:
        enumerator = decode_source_coordinator(operator.coordinator.content)
    splits: list[ConnectorState] = []
    consumed: list[bytes] = []
    for elements in _elements(operator, streams, {READER_STATE, CONSUMER_STATE}):
        if elements.state == READER_STATE:
            splits += decode_versioned_elements(elements.content, READER_STATE, elements.count)
        else:
            consumed.append(elements.content)
    is_older = CONSUMER_STATE in _names_of_states(operator)
    return FlinkSource(
        tuple(splits), enumerator, {CONSUMER_STATE: tuple(consumed)} if is_older else {}
    )


def _names_of_states(operator: OperatorState) -> set[str]:
    listed = (subtask.managed_operator for subtask in operator.all_subtasks)
    states = chain.from_iterable(handle.states for handle in listed if handle is not None)
    return {state.name for state in states}


def open_transactions(operator: OperatorState, streams: Streams) -> list[dict[str, object]]:
    """Return the transactions of Kafka that are to be committed; none of another connector."""
    transactions: list[dict[str, object]] = []
    try:
        for elements in _elements(operator, streams, {COMMITTER_STATE}):
            for state in decode_versioned_elements(elements.content, "", elements.count):
                for each in decode_committer(state.version, state.content).committables:
                    pending = kafka.decode_transaction(each.version, each.content)
                    transactions.append(
                        {
                            "id": pending.id,
                            "producer_id": pending.producer_id,
                            "epoch": pending.epoch,
                        }
                    )
    except (FormatError, StorageError):
        return []
    return transactions


def _elements(operator: OperatorState, streams: Streams, wanted: set[str]) -> Iterator[Elements]:
    """Yield the elements of these states; the file of a subtask without any is not read."""
    for subtask in operator.all_subtasks:
        handle = subtask.managed_operator
        if handle is None or handle.stream is None:
            continue
        own = [state for state in handle.states if state.name in wanted]
        if not any(len(state.offsets) for state in own):
            continue
        starts = handle.starts
        content = bounds.gather(streams.chunks(handle.stream), "operator state")
        header = decode_operator_header(content[: min(starts)])
        elements = split_elements(content, starts, handle.stream.size)
        for state in own:
            for offset, count in Counter(state.offsets).items():
                yield Elements(state.name, element_bytes(header, elements[offset]), count)
