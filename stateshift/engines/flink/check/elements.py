"""State walked element by element, to check it: each key and value is read to its end where its
serializers are known, and where they are not, the lengths around it are held against what is there.

    Walk(streams)
      .subtask(operator, subtask)  Wrong(fact, path, offset) ... of its keyed and operator state
      .misplaced                   entries that lie in other key groups than those of their keys
      .doubted, .placed            those that would, if their RowData is SQL's; those that do not
      .unprotected                 bytes in files of state that no checksum covers
      .ranges                      where these are, by path: (start, end) ...
      .undecoded, .classes         of these, those whose serializers are not known, and what these
                                   are called
      .counts                      how the entries of each keyed state were read, by operator
      .versions                    of connectors' own serializers, by the states that they wrote
      .headers                     how many there are of a Flink before 1.7, and of later ones

Flink writes no checksum over state, except in compressed chunks: what a changed bit makes of one
value may be another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Literal

from stateshift.engines.flink.entries.databases import handles_below, leave_out
from stateshift.engines.flink.entries.image import (
    header_of,
    in_file_order,
    is_canonical,
    of_subtask,
    sections_of,
)
from stateshift.engines.flink.entries.image import uncompress as decompressed
from stateshift.engines.flink.entries.keyed import hidden_state
from stateshift.engines.flink.entries.operators import positions_in
from stateshift.engines.flink.streams import Streams
from stateshift.engines.views import StateRead
from stateshift.errors import FormatError, OldVersion, StorageError, TooLarge
from stateshift.formats import bounds
from stateshift.formats.flink import operator_state
from stateshift.formats.flink.heap_groups import Hidden, heap_entries
from stateshift.formats.flink.key_groups import (
    has_one_hash,
    key_group,
    key_of,
    prefix_bytes,
    raw_hash,
)
from stateshift.formats.flink.keyed_handles import Incremental, KeyGroups
from stateshift.formats.flink.keyed_state import Header, StateInfo, entries
from stateshift.formats.flink.metadata import OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import BROADCAST, Partitioned
from stateshift.formats.flink.operator_state import (
    OperatorHeader,
    decode_operator_header,
    element_bytes,
    read_element,
    require_version,
    split_elements,
)
from stateshift.formats.flink.references import keyed_streams
from stateshift.formats.flink.serializers import Unknown, snapshot_name
from stateshift.formats.flink.state_values import is_known, read_key, read_value
from stateshift.formats.flink.stream_handles import FileHandle, Segment, StreamHandle, files_of
from stateshift.formats.flink.type_names import unread_name

COLUMNS_MIN: Final = 1 << 15  # bytes of a key group whose entries are read as columns
_KEY_GROUP_NUMBER = 4  # bytes in front of a compressed key group of the hashmap backend


@dataclass(frozen=True, slots=True)
class Wrong:
    """The fault of one piece of state, and its place."""

    fact: str
    path: str | None
    offset: int | None = None
    level: Literal["refuse", "warn"] = "refuse"
    hint: str | None = None


@dataclass
class Walk:
    """A walk over the state of one image."""

    streams: Streams
    misplaced: int = 0
    doubted: int = 0
    placed: int = 0
    unprotected: int = 0
    undecoded: int = 0
    may_be_old: bool = False
    classes: set[str] = field(default_factory=set)
    headers: Counter[Literal["old", "new"]] = field(default_factory=Counter)
    counts: dict[tuple[str, str], StateRead] = field(default_factory=dict)
    versions: dict[str, set[int]] = field(default_factory=dict)
    ranges: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _counted: set[FileHandle] = field(default_factory=set)

    def ranges_without_checksum(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """Return the ranges of each file in their order, those that touch as one."""
        joined = {}
        for path, own in sorted(self.ranges.items()):
            merged: list[tuple[int, int]] = []
            for start, end in sorted(own):
                if merged and start <= merged[-1][1]:
                    merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
                else:
                    merged.append((start, end))
            joined[path] = tuple(merged)
        return joined

    def subtask(self, operator: OperatorState, subtask: SubtaskState) -> Iterator[Wrong]:
        for handle in handles_below(subtask.managed_keyed, KeyGroups):
            yield from self._caught(handle.stream, partial(self._key_groups, operator, handle))
        listed = subtask.managed_operator
        if listed is not None:
            yield from self._caught(listed.stream, partial(self._operator_state, listed))
        prefix = prefix_bytes(operator.max_parallelism)
        yield from self._caught(None, partial(self._rest, subtask, prefix))

    def _caught(self, stream: StreamHandle | None, walk: Callable[[], None]) -> Iterator[Wrong]:
        try:
            walk()
        except TooLarge:  # which says nothing of the image
            raise
        except OldVersion as error:
            yield self._old(error, stream)
        except FormatError as error:
            yield Wrong(error.fact, error.path or self.streams.places.file_of(stream), error.offset)
        except StorageError as error:
            yield Wrong(error.fact, self.streams.places.file_of(stream))

    def _old(self, error: OldVersion, stream: StreamHandle | None) -> Wrong:
        """Return a warning of state that is not read, or a refusal where no Flink wrote it."""
        self.headers["old"] += 1
        path = error.path or self.streams.places.file_of(stream)
        if not self.may_be_old:
            return Wrong(error.fact, path, error.offset)
        size = 0 if stream is None else stream.size
        fact = f"{error.fact}: {size:,} bytes were not looked at"
        return Wrong(fact, path, error.offset, "warn", error.hint)

    # ---- keyed state -----------------------------------------------------------------------------

    def _key_groups(self, operator: OperatorState, handle: KeyGroups) -> None:
        end = handle.first + handle.count
        if end > operator.max_parallelism:
            raise FormatError(
                f"key groups {handle.first} to {end - 1}, of {operator.max_parallelism} that the "
                "operator has",
                None,
                None,
            )
        header = header_of(handle, self.streams)
        stream = handle.stream
        if stream is None or header is None:
            return
        self.headers["new"] += 1
        is_compressed = header.compressed
        canonical = is_canonical(handle, self.streams)
        read = self._canonical if canonical else self._heap
        self._count(stream, 0, header.size)
        places = in_file_order(handle, stream.size)
        for ((start, end), group), (_, content) in zip(
            places, sections_of(handle, self.streams), strict=True
        ):
            with _located(start, is_compressed):
                read(operator, header, group, content)
            if not is_compressed:
                self._count(stream, start, end)
            elif not canonical:
                self._count(stream, start, start + _KEY_GROUP_NUMBER)
        self._counted.update(files_of(stream))

    def _canonical(
        self, operator: OperatorState, header: Header, group: int, content: bytes
    ) -> None:
        plain = decompressed(content) if header.compressed else content
        prefix = prefix_bytes(operator.max_parallelism)
        counts = [self._count_of(operator, state.name) for state in header.states]
        known = [is_known(header, state) for state in header.states]
        every = entries(plain, prefix, group, len(known))
        if len(plain) >= COLUMNS_MIN:
            # It imports numpy and pyarrow, which a move of a small savepoint does not wait for.
            from stateshift.formats.flink.keyed_columns import GroupPart, check_group

            checked = check_group(header, GroupPart(group, plain), operator.max_parallelism)
            self._count_placed(header, checked.misplaced, sum(checked.decoded.values()))
            for number, count in checked.decoded.items():
                counts[number].decoded += count
            every = checked.others
        for number, key, raw in every:
            state = header.states[number]
            size = len(key) + len(raw)
            if not known[number]:
                counts[number].sized += 1
                self._count_undecoded(header, state, size)
                continue
            own_key = key[prefix:]
            try:
                read_key(header, state, own_key)
                self._place(header, key_of(header, number, own_key), group, operator)
                read_value(state, raw)
            except Unknown as unknown:
                counts[number].sized += 1
                self._count_undecoded(header, state, size, unknown.snapshot)
                continue
            counts[number].decoded += 1

    def _heap(self, operator: OperatorState, header: Header, group: int, content: bytes) -> None:
        for entry in heap_entries(header, content, group, operator.max_parallelism):
            if isinstance(entry, Hidden):
                self._hide(operator, header, group, entry)
                continue
            self._place(header, entry.key, group, operator)
            state = header.states[entry.state]
            if entry.is_read:
                self._count_of(operator, state.name).decoded += 1
            else:
                self._count_of(operator, state.name).framed += 1
                self._count_undecoded(header, state, len(entry.value))

    def _hide(self, operator: OperatorState, header: Header, group: int, hidden: Hidden) -> None:
        state = hidden_state(header, group, hidden)
        first = header.states[hidden.states[0]]
        self._count_of(operator, first.name).hidden += hidden.entries
        for name in state.states[1:]:
            self._count_of(operator, name).hidden_by = first.name
        self._count_undecoded(header, first, len(hidden.content))

    def _count_of(self, operator: OperatorState, state: str) -> StateRead:
        name = operator.uid or operator.name or operator.id.hex()
        return self.counts.setdefault((name, state), StateRead(name, state))

    def _place(
        self, header: Header, key: bytes | None, group: int, operator: OperatorState
    ) -> None:
        code = None if header.key is None or key is None else raw_hash(header.key, key)
        if code is not None:
            self._count_placed(header, key_group(code, operator.max_parallelism) != group, 1)

    def _count_placed(self, header: Header, wrong: int, count: int) -> None:
        """Count entries in a key group, of which some are in the wrong one by the hash of SQL."""
        self.placed += count - wrong
        if has_one_hash(header.key):
            self.misplaced += wrong
        else:
            self.doubted += wrong

    # ---- state that belongs to no key ------------------------------------------------------------

    def _operator_state(self, handle: Partitioned) -> None:
        starts = handle.starts
        if handle.stream is None:
            return
        if not starts:  # none of its states has an element
            if not handle.states and self.streams.head(handle.stream, 1):
                fact = (
                    "its file holds state, and _metadata names none of it: Flink would restore none"
                )
                raise FormatError(fact, None, 0)
            return
        content = bounds.gather(self.streams.chunks(handle.stream), "operator state")
        elements = split_elements(content, starts, handle.stream.size)
        header = decode_operator_header(content[: min(starts)])
        require_version(header)
        self.headers["new"] += 1
        end = min(starts) if header.compressed else handle.stream.size
        self._count(handle.stream, 0, end)
        self._counted.update(files_of(handle.stream))
        for named in handle.states:
            state = header.state(named.name)
            if state is None and header.known:
                fact = f"_metadata names state {named.name!r}, and the header of its file does not"
                raise FormatError(fact, None, 0)
            if state is not None and (state.kind == "broadcast") != (named.mode == BROADCAST):
                fact = f"state {named.name!r} is of another kind in _metadata than in its file"
                raise FormatError(fact, None, 0)
            for offset, count in Counter(named.offsets).items():
                with _located(offset, header.compressed):
                    self._element(header, state, elements[offset], count)

    def _element(
        self, header: OperatorHeader, state: StateInfo | None, raw: bytes, count: int
    ) -> None:
        try:
            content = element_bytes(header, raw)
            if state is None:
                raise Unknown("a state whose header is not known")
            read_element(state, content, count)
        except Unknown as unknown:
            self.undecoded += 0 if header.compressed else len(raw)
            if unknown.snapshot is not None:
                self.classes.add(snapshot_name(unknown.snapshot))
            return
        is_bytes = state.value is not None and state.value.name == operator_state.SERIALIZER
        if is_bytes and state.name in operator_state.STATES:
            known = positions_in(state.name, content, count)
            is_read = bool(known) and all(known)
            for element in operator_state.decode_versioned_elements(content, state.name, count):
                self.versions.setdefault(state.name, set()).add(element.version)
                if not is_read:
                    self.undecoded += 0 if header.compressed else len(element.content)
                    self.classes.add(f"a connector's own in {state.name}")

    # ---- everything else -------------------------------------------------------------------------

    def _rest(self, subtask: SubtaskState, prefix: int) -> None:
        keyed = leave_out(subtask.managed_keyed, KeyGroups)
        rest = replace(subtask, managed_operator=None, managed_keyed=keyed)
        for stream in _streams_without_checksum(rest):
            if stream is not None:
                self._count(stream, 0, stream.size)
                self._counted.update(files_of(stream))
        without_databases = replace(rest, managed_keyed=leave_out(keyed, Incremental))
        for _ in of_subtask(without_databases, prefix, self.streams):
            pass

    def _count_undecoded(
        self, header: Header, state: StateInfo, size: int, snapshot: str | None = None
    ) -> None:
        self.undecoded += 0 if header.compressed else size
        known = snapshot or header.unknown
        self.classes.add(unread_name(state) if known is None else snapshot_name(known))

    def _count(self, stream: StreamHandle, start: int, end: int) -> None:
        file = next(files_of(stream), None)
        if file is None or file in self._counted:
            return
        self.unprotected += end - start
        path = self.streams.places.path_of(file)
        if path is not None and start < end:
            before = file.start if isinstance(file, Segment) else 0
            self.ranges.setdefault(path, []).append((before + start, before + end))


@contextmanager
def _located(start: int, is_compressed: bool) -> Iterator[None]:
    """Raise errors with their offset in the file; inside compressed bytes, where these begin."""
    try:
        yield
    except TooLarge:  # which says nothing of the image
        raise
    except FormatError as error:
        inside = 0 if is_compressed or error.offset is None else error.offset
        raise FormatError(error.fact, None, start + inside) from error


def _streams_without_checksum(subtask: SubtaskState) -> Iterator[StreamHandle | None]:
    """Yield the streams whose files have no checksum of their own."""
    for keyed in (subtask.managed_keyed, subtask.raw_keyed):
        if not isinstance(keyed, Incremental):
            yield from (stream for stream, _ in keyed_streams(keyed))
            continue
        yield keyed.meta
        for name, stream in (*keyed.shared, *keyed.private):
            has_checksums = name.endswith(".sst") or name.startswith("MANIFEST-")
            if not has_checksums:
                yield stream
    if subtask.raw_operator is not None:
        yield subtask.raw_operator.stream
    for channel in (*subtask.inputs, *subtask.outputs):
        yield channel.stream
