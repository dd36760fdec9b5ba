"""The entries of canonical key groups as columns: what `keyed_state.entries` does, for a million of
them at once.

    columns_of([GroupPart(group, content, state, ends), ...], prefix, states) -> Columns
    texts_of(header, state, content, places) -> EntryTexts    as an export shows them

An entry begins where the one before it ends, so key groups are walked in lockstep: each step is a
few numpy operations on all of them. If there are few, or large ones, lanes begin inside of a group
as well, at places that look like an entry's beginning. That is a guess, and never trusted: a
lane counts only where the lane before it arrives at its first byte exactly.

A part is a key group, or as much of one as is held at once: it may begin behind others of its
entries, and end within one, which is then its rest. `keyed_state.entries` reads a damaged
part again, and says what is wrong.
"""

from __future__ import annotations

import json
import struct
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stateshift.errors import FormatError
from stateshift.formats.blocks import (
    Binary,
    Flags,
    Ints,
    Numbers,
    RowBlock,
    binaries,
    binary,
    cut,
    edges,
    join_columns,
    lengths,
    numerals,
    of_width,
    without_first,
)
from stateshift.formats.flink.binary_rows import (
    KINDS,
    SQL_FORMS,
    SQL_NUMBERS,
    Span,
    field_reader,
    header_size,
)
from stateshift.formats.flink.heap_groups import namespace_of
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.key_groups import key_start, prefix_bytes
from stateshift.formats.flink.key_hashes import (
    hash_codes,
    is_hashed,
    murmur_of_each,
    varints_at,
)
from stateshift.formats.flink.keyed_state import END_OF_GROUP, FLAG, Header, StateInfo, entries
from stateshift.formats.flink.logical_types import LogicalType
from stateshift.formats.flink.serializers import Serializer, Unknown
from stateshift.formats.flink.state_values import WINDOW_NAMES, is_ambiguous
from stateshift.formats.flink.values import NO_SUBCLASS, NUMBERS
from stateshift.formats.spans import Content, items_at

PADDING: Final = 64  # bytes behind the last part that can be read without a look at its end

# A lane for so many bytes of a part; where it may begin is looked for in so many of them.
LANE_BYTES, WINDOW = 4 * 1024, 128
# Fewer lanes are walked one by one.
LANES_MIN: Final = 8
# Keys that a guess takes for likely.
_KEY_MAX: Final = 1 << 16

_SIZE: Final = struct.Struct(">I")
_STATE: Final = struct.Struct(">H")

# The end of a lane: the beginning of another one, the end of its key group, or bytes that are no
# whole entry.
_JOINED, _ENDED, _SHORT = 0, 1, 2


@dataclass(frozen=True, slots=True)
class GroupPart:
    """Bytes of a key group, from an entry of `state` on (None: from the group's beginning)."""

    group: int
    content: bytes
    state: int | None = None
    ends: bool = True


class EntryPlaces(NamedTuple):
    """The places of entries: of their keys, without a group, and of their values."""

    keys: Ints
    key_ends: Ints
    values: Ints
    value_ends: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Entries in the order of their parts."""

    content: Content
    places: Ints  # where each begins, with the size of its key
    key_sizes: Ints  # with the group's prefix
    value_sizes: Ints
    states: Ints
    groups: Ints
    rest: GroupPart | None = None  # of the last part

    def __len__(self) -> int:
        return len(self.places)

    def of(self, rows: Ints, prefix: int) -> EntryPlaces:
        """Return the places of some; `prefix` bytes of a key are its group."""
        keys = self.places[rows] + _SIZE.size
        ends = keys + self.key_sizes[rows]
        values = ends + _SIZE.size
        return EntryPlaces(keys + prefix, ends, values, values + self.value_sizes[rows])


def columns_of(parts: Sequence[GroupPart], prefix: int, states: int) -> Columns:
    """Return the entries of parts; the last may be open. Keys begin with `prefix` bytes."""
    filled = [part for part in parts if not _is_empty(part)]
    for part in parts:
        if _is_empty(part) or part.group >= 1 << 8 * prefix:
            _check(part, prefix, states)
    laid = _Laid.of(filled, prefix)
    walk = _Walk(laid)
    walk.run()
    return _Found(laid, walk, prefix, states).columns()


def columns_in(
    pieces: Iterable[tuple[int, bytes, bool, bool]], prefix: int, states: int, size_max: int
) -> Iterator[Columns]:
    """Yield the entries of pieces of key groups: group, content, whether it begins, and ends."""
    held: list[GroupPart] = []
    behind: list[bytes] = []
    size = 0
    rest = GroupPart(0, b"")
    for group, content, begins, ends in pieces:
        part = GroupPart(group, content, None, ends)
        if not begins:
            behind.append(content)
            if not ends and sum(map(len, behind)) < len(rest.content):
                continue  # what is within a huge entry is joined each time that it has doubled
            part = GroupPart(group, b"".join((rest.content, *behind)), rest.state, ends)
            behind = []
        held.append(part)
        size += len(part.content)
        if size >= size_max or not ends:
            columns = columns_of(held, prefix, states)
            yield columns
            held, size, rest = [], 0, columns.rest or rest
    if held:
        yield columns_of(held, prefix, states)


def _is_empty(part: GroupPart) -> bool:
    """Whether there is no entry in a part that is a whole key group."""
    return part.state is None and (len(part.content) < 2 or _first_state(part) == END_OF_GROUP)


def _first_state(part: GroupPart) -> int:
    if part.state is not None:
        return part.state
    return int(_STATE.unpack_from(part.content)[0])


def _check(part: GroupPart, prefix: int, states: int) -> None:
    """Raise what is wrong with a part's bytes, if anything is."""
    head = b"" if part.state is None else _STATE.pack(part.state)
    for _ in entries(head + part.content, prefix, part.group, states):
        pass


@dataclass(frozen=True, slots=True, eq=False)
class _Laid:
    """Parts behind each other, and the lanes in them."""

    parts: Sequence[GroupPart]
    raw: bytes
    content: Content
    begins: Ints  # of the entries of each part
    ends: Ints
    lanes: Ints  # where each begins, the first of a part at its first entry
    owners: Ints  # the part of each lane

    @classmethod
    def of(cls, parts: Sequence[GroupPart], prefix: int) -> _Laid:
        raw = b"".join((*(part.content for part in parts), bytes(PADDING)))
        content = np.frombuffer(raw, np.uint8)
        sizes = np.array([len(part.content) for part in parts], np.int64)
        heads = np.array([2 if part.state is None else 0 for part in parts], np.int64)
        ends = np.cumsum(sizes)
        begins = ends - sizes + heads
        guessed, owners = _guessed(content, parts, begins, ends, prefix)
        lanes = np.concatenate((begins, guessed))
        order = np.argsort(lanes, kind="stable")
        owners = np.concatenate((np.arange(len(parts)), owners))
        return cls(parts, raw, content, begins, ends, lanes[order], owners[order])


def _guessed(
    content: Content, parts: Sequence[GroupPart], begins: Ints, ends: Ints, prefix: int
) -> tuple[Ints, Ints]:
    """Return places inside of long parts where an entry may begin, and the part of each."""
    windows: list[Ints] = []
    owners: list[Ints] = []
    for number, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        if end - begin > 2 * LANE_BYTES:
            own = np.arange(begin + LANE_BYTES, end - LANE_BYTES // 2, LANE_BYTES)
            windows.append(own)
            owners.append(np.full(len(own), number))
    if not windows:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    owner = np.concatenate(owners)
    groups = np.array([part.group for part in parts])[owner]
    row, places = _likely(content, np.concatenate(windows), groups, prefix)
    kept = _looks_like_entries(content, places, groups[row], prefix, ends[owner[row]])
    row, first_of_row = np.unique(row[kept], return_index=True)
    return places[kept][first_of_row], owner[row]


def _likely(content: Content, windows: Ints, groups: Ints, prefix: int) -> tuple[Ints, Ints]:
    """Return places in windows that look like a key's size before a group's key, and the window."""
    width = WINDOW + 6
    rows = np.ndarray((len(content) - width + 1, width), np.uint8, content, strides=(1, 1))[windows]
    first = (groups >> 8 * (prefix - 1) & 0xFF)[:, None]
    likely = (rows[:, :WINDOW] == 0) & (rows[:, 1 : WINDOW + 1] == 0)
    likely &= rows[:, 4 : WINDOW + 4] & 0x7F == first
    if prefix > 1:
        likely &= rows[:, 5 : WINDOW + 5] == (groups & 0xFF)[:, None]
    row, column = np.nonzero(likely)
    return row, windows[row] + column


def _looks_like_entries(
    content: Content, places: Ints, groups: Ints, prefix: int, ends: Ints
) -> Flags:
    """Whether three keys of a group stand where they would, if an entry began here."""
    likely = np.ones(len(places), bool)
    at = places
    for _ in range(3):
        at = np.minimum(at, ends)
        keys, after, flagged = _sizes(content, at)
        likely &= (keys >= prefix) & (keys < _KEY_MAX) & (after <= ends)
        likely &= _has_prefix(content, at, groups, prefix)
        if not likely.any():
            break
        at = after + 2 * flagged
    return likely


def _sizes(content: Content, at: Ints) -> tuple[Ints, Ints, Flags]:
    """Return entries' key sizes and ends, and whether each is the last one of its state."""
    numbers = be32(content)
    keys = numbers[at].astype(np.int64)
    bodies = at + 4 + keys
    values = numbers[np.minimum(bodies, len(numbers) - 1)]
    return keys, bodies + 4 + values, content[at + 4] >= FLAG


def _has_prefix(content: Content, at: Ints, groups: Ints, prefix: int) -> Flags:
    first = content[at + 4] & 0x7F
    if prefix == 1:
        return np.asarray(first == groups)
    return np.asarray((first.astype(np.int64) << 8 | content[at + 5]) == groups)


def be32(content: Content) -> Any:
    """Return the big-endian number of four bytes at every place of a content."""
    return np.ndarray((len(content) - 3,), ">u4", content, strides=(1,))


def be16(content: Content) -> Any:
    """Return the big-endian number of two bytes at every place of a content."""
    return np.ndarray((len(content) - 1,), ">u2", content, strides=(1,))


@dataclass(slots=True, eq=False)
class _Walk:
    """All lanes, walked to their stops; `steps` are entries by lanes, in the order of steps."""

    laid: _Laid
    limits: Ints = field(init=False)
    outcomes: Ints = field(init=False)
    stops: Ints = field(init=False)
    steps: list[tuple[Ints, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.limits = self.laid.ends[self.laid.owners]
        self.outcomes = np.full(len(self.limits), _SHORT)
        self.stops = self.laid.lanes.copy()

    def run(self) -> None:
        lanes = np.arange(len(self.limits))
        at = self.laid.lanes
        until = self._next_lane(at + 1)
        while len(lanes) >= LANES_MIN:
            lanes, at, until = self._stepped(lanes, at, until)
        others = frozenset(self.laid.lanes.tolist()) if len(lanes) else frozenset()
        for lane, place in zip(lanes.tolist(), at.tolist(), strict=True):
            self._alone(lane, place, others)

    def _next_lane(self, at: Ints) -> Ints:
        places = self.laid.lanes
        found = np.searchsorted(places, at)
        beyond = len(self.laid.content) + 1
        return np.where(found < len(places), places[np.minimum(found, len(places) - 1)], beyond)

    def _stepped(self, lanes: Ints, at: Ints, until: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the lanes that go on behind one more entry each, where, and until where."""
        content = self.laid.content
        keys, ends, flagged = _sizes(content, at)
        after = ends + 2 * flagged
        whole = (keys > 0) & (after <= self.limits[lanes])
        if not whole.all():
            self._stop(lanes[~whole], at[~whole], _SHORT)
            lanes, at, until, keys = lanes[whole], at[whole], until[whole], keys[whole]
            ends, flagged, after = ends[whole], flagged[whole], after[whole]
        self.steps.append((lanes, at, keys, ends, flagged))
        goes_on = np.ones(len(lanes), bool)
        if flagged.any():
            goes_on = ~flagged | (be16(content)[ends] != END_OF_GROUP)
            self._stop(lanes[~goes_on], after[~goes_on], _ENDED)
        arrived = goes_on & (after >= until)
        if arrived.any():
            until = until.copy()
            until[arrived] = self._next_lane(after[arrived])
            joined = goes_on & (until == after)
            self._stop(lanes[joined], after[joined], _JOINED)
            goes_on &= ~joined
        if goes_on.all():
            return lanes, after, until
        return lanes[goes_on], after[goes_on], until[goes_on]

    def _stop(self, lanes: Ints, at: Ints, outcome: int) -> None:
        self.outcomes[lanes] = outcome
        self.stops[lanes] = at

    def _alone(self, lane: int, at: int, others: Container[int]) -> None:
        found: list[tuple[int, int, int, bool]] = []
        outcome = _JOINED
        for place, key_size, end, following in _entries_from(
            self.laid.raw, at, int(self.limits[lane])
        ):
            is_last = following is not None
            found.append((place, key_size, end, is_last))
            at = end + 2 * is_last
            if following == END_OF_GROUP:
                outcome = _ENDED
                break
            if at in others:
                break
        else:
            outcome = _SHORT
        self.outcomes[lane], self.stops[lane] = outcome, at
        if found:
            places, keys, ends, flagged = (np.array(column) for column in zip(*found, strict=True))
            self.steps.append((np.full(len(found), lane), places, keys, ends, flagged))


def _entries_from(raw: bytes, at: int, limit: int) -> Iterator[tuple[int, int, int, int | None]]:
    """Yield entries: beginning, key size, end, and the state after the last one of a state."""
    while True:
        (key_size,) = _SIZE.unpack_from(raw, at)
        body = at + 4 + key_size
        if not key_size or body + 4 > limit:
            return
        end = body + 4 + _SIZE.unpack_from(raw, body)[0]
        is_last = raw[at + 4] >= FLAG
        if end + 2 * is_last > limit:
            return
        following = _STATE.unpack_from(raw, end)[0] if is_last else None
        yield at, key_size, end, following
        at = end + 2 * is_last


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """The findings of a walk, of which only the lanes count that are parts' own."""

    laid: _Laid
    walk: _Walk
    prefix: int
    states: int

    def columns(self) -> Columns:
        counted, rest_at = self._chained()
        lanes, places, keys, ends, flagged = self._entries(counted)
        owners = self.laid.owners[lanes]
        states = self._states(places, ends, flagged)
        groups = np.array([part.group for part in self.laid.parts], np.int64)[owners]
        wrong = (states[:-1] >= self.states) | (
            ~_has_prefix(self.laid.content, places, groups, self.prefix)
        )
        if wrong.any():
            self._say(int(owners[np.argmax(wrong)]))
        values = ends - places - keys - 8
        rest = None
        if rest_at is not None:
            last, end = self.laid.parts[-1], int(self.laid.ends[-1])
            rest = GroupPart(last.group, self.laid.raw[rest_at:end], int(states[-1]), last.ends)
        return Columns(self.laid.content, places, keys, values, states[:-1], groups, rest)

    def _chained(self) -> tuple[Flags, int | None]:
        """Return the lanes that count, and the beginning of the last part's rest."""
        counted = np.zeros(len(self.laid.lanes), bool)
        following = self._lanes_at(self.walk.stops)
        outcomes, stops = self.walk.outcomes.tolist(), self.walk.stops.tolist()
        first_lanes = self._lanes_at(self.laid.begins)
        rest_at = None
        for number, lane in enumerate(first_lanes):
            counted[lane] = True
            while outcomes[lane] == _JOINED:
                lane = following[lane]
                counted[lane] = True
            part, is_at_end = self.laid.parts[number], stops[lane] == self.laid.ends[number]
            if part.ends != (outcomes[lane] == _ENDED) or (part.ends and not is_at_end):
                self._say(number)
            if not part.ends:
                rest_at = stops[lane]
        return counted, rest_at

    def _lanes_at(self, places: Ints) -> list[int]:
        """Return the first lane that begins there or behind it, of each place."""
        found: Ints = np.searchsorted(self.laid.lanes, places)
        return [int(lane) for lane in found]

    def _entries(self, counted: Flags) -> list[Ints]:
        if not self.walk.steps:
            return [np.zeros(0, np.int64) for _ in range(4)] + [np.zeros(0, bool)]
        columns = [np.concatenate(column) for column in zip(*self.walk.steps, strict=True)]
        if not counted.all():
            kept = counted[columns[0]]
            columns = [column[kept] for column in columns]
        few = np.uint16 if len(counted) < 1 << 16 else np.int64
        order = np.argsort(columns[0].astype(few), kind="stable")
        return [column[order] for column in columns]

    def _states(self, places: Ints, ends: Ints, flagged: Flags) -> Ints:
        """Return the state of each entry, and at the end that of what follows."""
        first = np.searchsorted(places, self.laid.begins)
        last_ones = np.flatnonzero(flagged)
        states = np.zeros(len(places) + 1, np.int64)
        changes = np.zeros(len(places) + 1, np.int64)
        states[last_ones + 1] = be16(self.laid.content)[ends[last_ones]]
        states[first] = [_first_state(part) for part in self.laid.parts]
        changes[last_ones + 1] = last_ones + 1
        changes[first] = first
        return states[np.maximum.accumulate(changes)]

    def _say(self, number: int) -> None:
        part = self.laid.parts[number]
        _check(part, self.prefix, self.states)
        raise FormatError(f"key group {part.group} has bytes behind its end", None, None)


# ---- keys and values as texts --------------------------------------------------------------------

_ENCODED: Final = json.encoder.encode_basestring_ascii
# Bytes that are escaped in JSON, or are part of a character that is; and the latter alone.
_SPECIAL: Final = r"[^ !#-\[\]-~]"
_PARTIAL: Final = r"[^\x00-\x7f]"
_FORMS: Final = {f"{name}Serializer": form for name, form in NUMBERS.items()}
_HEX: Final = np.array([list(b"%02x" % byte) for byte in range(256)], np.uint8)
_AT_ONCE: Final = 1 << 20  # bytes of entries that are checked together
_LARGE: Final = 1 << 10  # bytes of a key or a value that is read faster, and in less memory, alone
_NULL: Final = pa.scalar(b"null", pa.large_binary())
_KINDS: Final = binary([b"{", *(f'{{"@kind": "{kind}", '.encode() for kind in KINDS[1:])])
_SIGN: Final = -(1 << 63)


class EntryTexts(NamedTuple):
    """Keys and values of entries as JSON. `odd` ones are left to who reads them one by one: they
    mean nothing here.
    """

    keys: Binary
    values: Binary
    odd: Flags


def texts_of(
    header: Header,
    state: StateInfo,
    content: Content,
    places: EntryPlaces,
    special: str = _SPECIAL,
) -> EntryTexts:
    """Return entries of one state; what is within quotes is escaped where it is `special`."""
    of_key = _Texts(content, places.keys, places.key_ends, special)
    of_value = _Texts(content, places.values, places.value_ends, special)
    namespace, value = namespace_of(state), state.value
    is_timer = state.kind == "timers"
    is_read = is_timer or (value is not None and state.type != "LIST")
    if header.key is not None and namespace is not None and not is_timer:
        is_read &= not is_ambiguous(header.key, namespace)
    if header.key is None or namespace is None or not is_read:
        return EntryTexts(of_key.every(b""), of_value.every(b""), np.ones(len(places.keys), bool))
    parts: dict[str, Binary] = {}
    if is_timer:
        parts["timestamp"] = number_texts(of_key.numbers(">i8") ^ _SIGN)
    parts["key"] = of_key.read(header.key)
    window, of_window = WINDOW_NAMES.get(namespace.name, "namespace"), of_key.read(namespace)
    if window is not None:
        parts[window] = of_window
    shown = of_value.every(b"null")
    if not is_timer and value is not None:
        is_map = state.type == "MAP" and value.name == "MapSerializer"
        if is_map:
            parts["map_key"] = of_key.read(value.inner[0])
        shown = of_value.optional(value.inner[1]) if is_map else of_value.read(value)
    odd = of_key.odd | of_value.odd | ~of_key.at_end() | ~of_value.at_end()
    return EntryTexts(_object(parts), shown, odd)


def encode_sections(block: RowBlock, prefix: int) -> Iterator[tuple[int, bytes]]:
    """Yield the sections of key groups; keys begin with u16 group, u16 state, and are sorted by
    them.
    """
    if not len(block):
        return
    starts, raw = edges(block.keys)
    numbers = be16(np.frombuffer(raw, np.uint8))
    groups, states = numbers[starts[:-1]].astype(np.int64), numbers[starts[:-1] + 2]
    begins = np.append(True, np.diff(groups) != 0)
    ends_group = np.append(begins[1:], True)
    ends = np.append(np.diff(groups << 16 | states) != 0, True)
    sizes = np.diff(starts) - 4 + prefix
    heads = np.zeros((len(block), 2 + 4 + prefix), np.uint8)
    heads[:, :2] = states.astype(">u2").view(np.uint8).reshape(-1, 2)
    heads[:, 2:6] = sizes.astype(">u4").view(np.uint8).reshape(-1, 4)
    for place in range(prefix):
        heads[:, 6 + place] = groups >> 8 * (prefix - 1 - place)
    heads[ends, 6] |= FLAG
    # The state is written in front of a group's first entry alone.
    head_starts = np.arange(len(block)) * heads.shape[1] + 2 * ~begins
    head_ends = np.arange(1, len(block) + 1) * heads.shape[1]
    of_values = lengths(block.values).astype(">u4").view(np.uint8).reshape(-1, 4)
    following = np.where(ends_group, END_OF_GROUP, np.append(states[1:], 0)).astype(">u2")
    tails = binaries(following[ends].view(np.uint8), np.append(0, np.cumsum(2 * ends)))
    made = join_columns(
        cut(heads.tobytes(), head_starts, head_ends),
        without_first(block.keys, 4),
        of_width(of_values),
        block.values,
        tails,
    )
    places, content = edges(made)
    firsts = np.flatnonzero(begins)
    for first, end in pairwise((*firsts.tolist(), len(block))):
        yield int(groups[first]), bytes(content[places[first] : places[end]])


class CheckedGroup(NamedTuple):
    """The entries of a key group: how many of each state are read, how many of these belong to
    another group, and those that are left to who reads them one by one.
    """

    decoded: Counter[int]
    misplaced: int
    others: Iterator[tuple[int, bytes, bytes]]


def check_group(header: Header, part: GroupPart, max_parallelism: int) -> CheckedGroup:
    """Read a whole key group to its end."""
    prefix, decoded, misplaced = prefix_bytes(max_parallelism), Counter[int](), 0
    try:
        columns = columns_of([part], prefix, len(header.states))
    except FormatError:
        every = entries(part.content, prefix, part.group, len(header.states))
        return CheckedGroup(decoded, misplaced, every)
    content, odd = columns.content, np.ones(len(columns), bool)
    batches = np.flatnonzero(np.diff(columns.places // _AT_ONCE)) + 1
    for some in np.split(np.arange(len(columns)), batches):
        for number in np.unique(columns.states[some]).tolist():
            rows = some[columns.states[some] == number]
            places = columns.of(rows, prefix)
            odd[rows] = texts_of(header, header.states[number], content, places, _PARTIAL).odd
            rows = rows[~odd[rows]]
            if header.key is not None and is_hashed(header.key):
                places = columns.of(rows, prefix)
                keys = places.keys + key_start(header, number)
                codes, odd[rows] = hash_codes(header.key, content, keys, places.key_ends)
                is_misplaced = murmur_of_each(codes) % max_parallelism != part.group
                misplaced += int((is_misplaced & ~odd[rows]).sum())
            decoded[number] += int((~odd[rows]).sum())
    of_others = columns.of(np.flatnonzero(odd), 0)
    others = (
        (number, content[key:key_end].tobytes(), content[value:end].tobytes())
        for number, key, key_end, value, end in zip(
            columns.states[odd].tolist(), *of_others, strict=True
        )
    )
    return CheckedGroup(decoded, misplaced, others)


class _Texts:
    """The place from which each of many values is read on; the odd ones stay at their ends."""

    def __init__(self, content: Content, at: Ints, ends: Ints, special: str) -> None:
        self._content, self._ends, self._special = content, ends, special
        self.odd: Flags = ends - at > _LARGE
        self._at: Ints = np.where(self.odd, ends, at)

    def at_end(self) -> Flags:
        return np.asarray(self._at == self._ends)

    def every(self, text: bytes) -> Binary:
        return pa.array([text] * len(self._at), pa.large_binary())

    def read(self, of: Serializer) -> Binary:
        """Return the values there, and go on behind them."""
        match of.name:
            case name if name in _FORMS:
                return number_texts(self.numbers(_FORMS[name]))
            case "BooleanSerializer" | "BooleanValueSerializer":
                return self._truth(self.numbers(">u1"))
            case "StringSerializer":
                return self._string()
            case "BytePrimitiveArraySerializer":
                sizes = self.numbers(">i4").astype(np.int64)
                begins = self._take(sizes)
                starts, held = edges(
                    cut(self._content, begins, begins + np.where(self.odd, 0, sizes))
                )
                digits = binaries(_HEX[np.frombuffer(held, np.uint8, int(starts[-1]))], starts * 2)
                return join_columns(b'"', digits, b'"')
            case "VoidNamespaceSerializer" | "GlobalWindowSerializer":
                self._take(1)
                return self.every(b"null")
            case "TimeWindowSerializer":
                begin, end = (number_texts(self.numbers(">i8")) for _ in range(2))
                return join_columns(b"[", begin, b", ", end, b"]")
            case "TupleSerializer" if of.inner:
                items = [self.read(inner) for inner in of.inner]
                with_commas = [items[0], *(join_columns(b", ", item) for item in items[1:])]
                return join_columns(b"[", *with_commas, b"]")
            case "PojoSerializer" if of.fields:
                self.odd |= self.numbers(">u1") != NO_SUBCLASS
                fields = zip(of.fields, of.inner, strict=True)
                return _object({name: self.optional(inner) for name, inner in fields})
            case "RowDataSerializer" if of.columns:
                sizes = self.numbers(">i4").astype(np.int64)
                begins = self._take(sizes)
                return self._row(begins, begins + sizes, of.columns, of.fields)
        return self._each(of)

    def optional(self, of: Serializer) -> Binary:
        """Return values behind a byte that says whether they are null."""
        flags = self.numbers(">u1")
        self.odd |= flags > 1
        if not flags.any():
            return self.read(of)
        rows = np.flatnonzero(flags == 0)
        inner = _Texts(self._content, self._at[rows], self._ends[rows], self._special)
        texts = inner.read(of)
        self._at[rows] = inner._at
        self.odd[rows] |= inner.odd
        places = pa.array(np.cumsum(flags == 0) - 1, mask=flags != 0)
        return pc.fill_null(texts.take(places), _NULL)

    def numbers(self, form: str) -> Numbers:
        """Return numbers of a form."""
        size = np.dtype(form).itemsize
        return items_at(self._content, self._take(size), size).view(form)

    def _take(self, sizes: Ints | int) -> Ints:
        """Return the places, and go on behind so many bytes."""
        at, after = self._at, self._at + sizes
        self.odd |= (after > self._ends) | (after < at)
        self._at = np.where(self.odd, self._ends, after)
        return at

    def _truth(self, flags: Numbers) -> Binary:
        self.odd |= flags > 1
        return pc.if_else(pa.array(flags == 1), b"true", b"false").cast(pa.large_binary())

    def _string(self) -> Binary:
        """Return strings of a byte a unit; others are odd."""
        lengths, after, is_long = varints_at(self._content, self._at)
        self.odd |= is_long
        self._take(after - self._at)
        sizes = np.where(self.odd, 0, np.maximum(lengths - 1, 0))
        begins = self._take(sizes)
        texts = self._quoted(begins, np.where(self.odd, 0, sizes), "ascii")
        return texts if lengths.all() else pc.if_else(pa.array(lengths == 0), _NULL, texts)

    def _quoted(self, begins: Ints, sizes: Ints, encoding: str) -> Binary:
        pieces = cut(self._content, begins, begins + sizes)
        special = pc.match_substring_regex(pieces, self._special)
        texts = pieces.filter(special).to_pylist()
        for number, row in enumerate(np.flatnonzero(special).tolist()):
            try:
                text = texts[number].decode(encoding, "surrogatepass")
            except ValueError:
                self.odd[row] = True
            else:
                texts[number] = _ENCODED(text)[1:-1].encode()
        if texts:
            pieces = pc.replace_with_mask(pieces, special, binary(texts))
        return join_columns(b'"', pieces, b'"')

    def _row(
        self, begins: Ints, ends: Ints, types: Sequence[LogicalType], names: Sequence[str]
    ) -> Binary:
        """Return rows of SQL."""
        first = header_size(len(types))
        self.odd |= ends - begins < first + 8 * len(types)
        if self.odd.all():
            return self.every(b"")
        begins = np.where(self.odd, begins[np.argmin(self.odd)], begins)
        kinds = self._content[begins]
        self.odd |= kinds >= len(KINDS)
        parts: list[Binary | bytes] = [_KINDS.take(pa.array(np.minimum(kinds, len(KINDS) - 1)))]
        for number, (name, type_) in enumerate(zip(names, types, strict=True)):
            byte, bit = divmod(number + 8, 8)
            is_null = self._content[begins + byte] >> np.uint8(bit) & 1 == 1
            texts = self._field(type_, begins, ends, first + 8 * number, is_null)
            if is_null.any():
                texts = pc.if_else(pa.array(is_null), _NULL, texts)
            parts += [f"{', ' if number else ''}{json.dumps(name)}: ".encode(), texts]
        return join_columns(*parts, b"}")

    def _field(
        self, type_: LogicalType, begins: Ints, ends: Ints, offset: int, is_null: Flags
    ) -> Binary:
        """Return a field of rows; what it says of nulls, and of odd ones, means nothing."""
        places = begins + offset
        if type_.root in SQL_NUMBERS:
            form = np.dtype(SQL_FORMS[type_.root])
            return number_texts(items_at(self._content, places, form.itemsize).view(form))
        if type_.root == "BOOLEAN":
            return self._truth(np.where(is_null, 0, self._content[places]))
        if type_.root in ("CHAR", "VARCHAR"):
            slots = items_at(self._content, places, 8).view("<u4").astype(np.int64)
            last = self._content[places + 7].astype(np.int64)
            is_inline = last > 0x7F
            sizes = np.where(is_inline, last & 0x7F, slots[::2])
            starts = np.where(is_inline, places, begins + slots[1::2])
            wrong = (is_inline & (sizes > 7)) | (starts + sizes > ends)
            self.odd |= wrong & ~is_null
            is_there = ~is_null & ~self.odd
            sizes = np.where(is_there, sizes, 0)
            return self._quoted(np.where(is_there, starts, 0), sizes, "utf-8")
        read, raw, spans = field_reader(type_), self._raw, list(zip(begins, ends, strict=True))

        def show(row: int) -> object:
            begin, end = map(int, spans[row])
            return None if is_null[row] else read(Span(raw, begin, end), begin + offset)

        return self._one_by_one(show)

    def _each(self, of: Serializer) -> Binary:
        """Return values that are read one by one."""
        raw, at, ends = self._raw, self._at.tolist(), self._ends.tolist()

        def show(row: int) -> object:
            data = DataInput(raw, "a value", at[row], ends[row])
            value = of.reader(data)
            at[row] = data.at
            return value

        texts = self._one_by_one(show)
        self._take(np.array(at, np.int64) - self._at)
        return texts

    def _one_by_one(self, show: Callable[[int], object]) -> Binary:
        texts: list[bytes | None] = []
        for row, is_odd in enumerate(self.odd.tolist()):
            texts.append(b"")
            if not is_odd:
                try:
                    texts[row] = json.dumps(show(row)).encode()
                except (FormatError, Unknown):
                    self.odd[row] = True
        return binary(texts)

    @property
    def _raw(self) -> bytes:
        base = self._content.base
        return base if isinstance(base, bytes) else self._content.tobytes()


def number_texts(numbers: Numbers) -> Binary:
    """Return numbers as JSON has them."""
    if numbers.dtype.kind == "f":
        texts = json.dumps(numbers.tolist())[1:-1].split(", ")
        return binary([each.encode() for each in texts[: len(numbers)]])
    return numerals(numbers.astype(numbers.dtype.newbyteorder("=")))


def _object(parts: Mapping[str, Binary]) -> Binary:
    named: list[Binary | bytes] = []
    for name, texts in parts.items():
        named += [f"{', ' if named else '{'}{json.dumps(name)}: ".encode(), texts]
    return join_columns(*named, b"}")
