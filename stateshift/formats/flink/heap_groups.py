"""Key groups of the hashmap backend, taken apart into entries. Pure.

    group    i32 key group, then every state, in one order in all groups of a file
    state    [compressed: in a snappy stream of its own] u16 state, i32 n, n entries
    entry    namespace, key, value; of timers i64 time, its sign bit flipped, key, namespace

Only its serializer tells where a value ends. A value that the job's classes alone can read hides
what is behind it, unless the bytes leave one way alone:

    the states behind it    begin where a state's number and count are followed by as many entries,
                            and so on to the last byte of the group
    its own entries         begin where a namespace and a key of this key group are, and behind them
                            the readable parts of a value, as often as the state says

Each is taken where exactly one place fits, and never where two do. `Hidden` names the states that
cannot be told apart.

Flink: runtime/state/heap/{HeapSnapshotStrategy, CopyOnWriteStateMapSnapshot,
HeapKeyValueStateIterator}.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from stateshift.errors import FormatError
from stateshift.formats.flink import snappy_frames
from stateshift.formats.flink.java_data import DataInput
from stateshift.formats.flink.key_groups import key_group, raw_hash
from stateshift.formats.flink.keyed_state import Header, StateInfo
from stateshift.formats.flink.serializers import Serializer, Unknown, value
from stateshift.formats.flink.values import read_around

GROUP_BYTES: Final = 4
_STATE_BYTES: Final = 6  # its number, and its count
# Places that are tried for the rest of a group, and bytes in which entries are looked for.
TRIES_MAX: Final = 20_000
SEARCHED_MAX: Final = 1 << 20
AROUND_MAX: Final = 1 << 13  # bytes in which the rest of a value is looked for


@dataclass(frozen=True, slots=True)
class HeapEntry:
    """An entry of the hashmap backend, as its bytes; `state`: its number in the header. A value
    that is not read (`is_read`) has ends that are known, and no more.
    """

    state: int
    key: bytes
    namespace: bytes
    value: bytes
    time: bytes = b""
    is_read: bool = True


@dataclass(frozen=True, slots=True)
class Hidden:
    """Bytes of a state whose entries cannot be separated, and of those behind it, if there are
    any; `entries` of the first.
    """

    states: tuple[int, ...]
    content: bytes
    entries: int


def heap_entries(
    header: Header, section: bytes, group: int, max_parallelism: int
) -> Iterator[HeapEntry | Hidden]:
    """Yield the entries of a key group of the hashmap backend, which ends with its last state."""
    own_number = int.from_bytes(section[:GROUP_BYTES], "big")
    if len(section) < GROUP_BYTES or own_number != group:
        raise FormatError(f"key group {group} begins with the number {own_number}", None, 0)
    reader = _GroupReader(header, group, max_parallelism)
    if header.compressed:  # each state by itself
        what = "a key group"
        for _, stream in snappy_frames.streams(section[GROUP_BYTES:], what):
            data = DataInput(snappy_frames.decompress(stream, what), what)
            yield from reader.states(data)
    else:
        yield from reader.states(DataInput(section, "a key group", GROUP_BYTES))
    if len(reader.seen) != len(header.states):
        fact = f"key group {group} holds {len(reader.seen)} of {len(header.states)} states"
        raise FormatError(fact, None, len(section))


def may_hide(header: Header) -> bool:
    """Whether values of its states may turn out to be such that only the job's classes read."""
    whole = [header.key]
    for state in header.states:
        whole += [namespace_of(state), state.value] if state.kind != "timers" else []
    return any(serializer is None or serializer.may_be_unknown for serializer in whole)


def namespace_of(state: StateInfo) -> Serializer | None:
    """Return the serializer of namespaces; of timers it is within their own."""
    if state.kind != "timers":
        return state.namespace
    timer = state.value
    return timer.inner[1] if timer is not None and timer.name == "TimerSerializer" else None


class _TooMany(Exception):
    """More places were tried than a search may try."""


@dataclass(slots=True)
class _GroupReader:
    """One key group that is read: the states that were seen in it."""

    header: Header
    group: int
    max_parallelism: int
    seen: list[int] = field(default_factory=list)
    _tries: int = 0

    def states(self, data: DataInput) -> Iterator[HeapEntry | Hidden]:
        """Yield the entries of the states there; a compressed one is alone in its input."""
        while not data.at_end():
            number = self.state_number(data)
            count = data.items("entries")
            yield from self.entries(number, count, data)
            if self.header.compressed:
                name = self.header.states[number].name
                data.require_end(f"bytes behind the end of state {name!r}")

    def state_number(self, data: DataInput) -> int:
        at, number = data.at, data.i2() & 0xFFFF
        states = self.header.states
        if number >= len(states):
            raise data.wrong(f"state {number}, of {len(states)} that there are", at)
        if number in self.seen:
            raise data.wrong(f"state {states[number].name!r} occurs twice", at)
        self.seen.append(number)
        return number

    def entries(self, number: int, count: int, data: DataInput) -> Iterator[HeapEntry | Hidden]:
        state = self.header.states[number]
        for left in range(count, 0, -1):
            start = data.at
            try:
                entry = self.entry(number, state, data)
            except Unknown:
                yield from self.unread(number, left, data, start)
                return
            yield entry

    def entry(self, number: int, state: StateInfo, data: DataInput) -> HeapEntry:
        time, namespace, key = self.ahead(state, data)
        if state.kind == "timers":
            return HeapEntry(number, key, namespace, b"", time)
        return HeapEntry(number, key, namespace, _raw(state.value, data))

    def ahead(self, state: StateInfo, data: DataInput) -> tuple[bytes, bytes, bytes]:
        """Read what is in front of an entry's value: a timer's time, namespace and key."""
        namespace, key = namespace_of(state), self.header.key
        if state.kind == "timers":
            time, own_key = data.take(8), _raw(key, data)
            return time, _raw(namespace, data), own_key
        own_namespace = _raw(namespace, data)
        return b"", own_namespace, _raw(key, data)

    # ---- what only the job's classes can read ----------------------------------------------------

    def unread(
        self, number: int, count: int, data: DataInput, start: int
    ) -> Iterator[HeapEntry | Hidden]:
        """Yield `count` entries from `start` on, or their bytes with all that they hide."""
        self._tries = 0
        left = frozenset(range(len(self.header.states))) - frozenset(self.seen)
        try:
            end = self.only_end(number, count, data, start, left)
        except _TooMany:
            end = None
        if end is None:
            hidden = Hidden((number, *sorted(left)), data.data[start : data.end], count)
            self.seen += sorted(left)
            data.at = data.end
            yield hidden
            return
        data.at = end
        entries = self.separated(number, count, data, start, end)
        if entries is None:
            yield Hidden((number,), data.data[start:end], count)
        else:
            yield from entries

    def only_end(
        self, number: int, count: int, data: DataInput, start: int, left: frozenset[int]
    ) -> int | None:
        """Return the only place where these entries can end; None if there are several."""
        if self.header.compressed:
            return data.end
        ends = self.ends(number, count, data, start, left)
        if len(ends) != 1:
            return None
        return ends[0]

    def ends(
        self, number: int, count: int, data: DataInput, start: int, left: frozenset[int]
    ) -> list[int]:
        """Return places where `count` entries from `start` on may end: two at most."""
        if not left:
            return [data.end]
        found = []
        for place in self.state_places(data, start, left):
            if not self.rest_fits(data, place, left):
                continue
            ways = self.ways(number, count, data, start, place)
            if ways is None or ways.total:  # or it takes too long to tell
                found.append(place)
                if len(found) > 1:
                    break
        return found

    def state_places(self, data: DataInput, start: int, left: frozenset[int]) -> Iterator[int]:
        """Yield the places behind `start` that look like the beginning of one of the states."""
        numbers = b"|".join(re.escape(number.to_bytes(2, "big")) for number in sorted(left))
        places = re.compile(b"(?=(?:" + numbers + rb")[\x00-\x7f])", re.DOTALL)
        for match in places.finditer(data.data, start + 1, data.end - _STATE_BYTES + 1 + 2):
            at = match.start()
            count = int.from_bytes(data.data[at + 2 : at + _STATE_BYTES], "big")
            if at + _STATE_BYTES + count <= data.end:
                self._tries += 1
                if self._tries > TRIES_MAX:
                    raise _TooMany
                yield at

    def rest_fits(self, data: DataInput, place: int, left: frozenset[int]) -> bool:
        """Whether all states that are left can be read from `place` on, to the group's end."""
        rest = DataInput(data.data, data.what, place, data.end)
        while left:
            if rest.end - rest.at < _STATE_BYTES:
                return False
            number, count = rest.i2() & 0xFFFF, rest.i4()
            if number not in left or count < 0:
                return False
            left -= {number}
            state = self.header.states[number]
            for more in range(count, 0, -1):
                start = rest.at
                try:
                    self.entry(number, state, rest)
                except FormatError:
                    return False
                except Unknown:
                    return bool(self.ends(number, more, rest, start, left))
        return rest.at_end()

    def separated(
        self, number: int, count: int, data: DataInput, start: int, end: int
    ) -> list[HeapEntry] | None:
        """Return the entries between two places, if they can be separated in one way alone."""
        ways = self.ways(number, count, data, start, end)
        if ways is None or ways.total != 1:
            return None
        entries = []
        for at, after in pairwise([*ways.path(), end]):
            own = DataInput(data.data, data.what, at, after)
            time, namespace, key = self.ahead(self.header.states[number], own)
            content = own.data[own.at : after]
            is_read = ways.starts[at].is_read
            entries.append(HeapEntry(number, key, namespace, content, time, is_read))
        return entries

    def ways(self, number: int, count: int, data: DataInput, start: int, end: int) -> _Ways | None:
        """Return the ways to separate `count` entries; None where there are too many to try."""
        state = self.header.states[number]
        # A single entry begins at the first place.
        places = range(start, start + 1) if count == 1 else range(start, end)
        if len(places) > SEARCHED_MAX:
            return None
        starts = {}
        for place in places:
            entry = self.start(state, data, place, end)
            if entry is not None:
                starts[place] = entry
        if len(starts) * count > SEARCHED_MAX:
            return None
        return _Ways.of(starts, count, start, end)

    def start(self, state: StateInfo, data: DataInput, at: int, end: int) -> _Start | None:
        """Return the entry that may begin at a place: a key of this group, and a value."""
        own = DataInput(data.data, data.what, at, end)
        try:
            _, _, key = self.ahead(state, own)
        except (FormatError, Unknown):
            return None
        assert self.header.key is not None, "a key was read"
        if value(self.header.key, DataInput(key, data.what)) is None:
            return None  # a key is never null
        code = raw_hash(self.header.key, key)
        if code is not None and key_group(code, self.max_parallelism) != self.group:
            return None
        if state.kind == "timers":
            return _Start(own.at, frozenset((own.at,)), True)
        if state.value is None or state.value.first_opaque() is state.value:
            return _Start(own.at + 1) if own.at < end else None
        return self.start_of_value(state.value, own)

    def start_of_value(self, serializer: Serializer, data: DataInput) -> _Start | None:
        at = data.at
        try:
            value(serializer, data)
        except FormatError:
            return None
        except Unknown:
            data.at = at
        else:
            return _Start(data.at, frozenset((data.at,)), True)
        if data.end - at > AROUND_MAX:
            return _Start(at + 1)
        ends = frozenset(after for after, _ in read_around(serializer.reader, data))
        return _Start(at + 1, ends) if ends else _Start(at + 1)


@dataclass(frozen=True, slots=True)
class _Start:
    """An entry that may begin at a place: it ends at `after` or behind it, at one of `ends` if they
    are known. `is_read`: its value was read to the end.
    """

    after: int
    ends: frozenset[int] | None = None
    is_read: bool = False

    def may_end(self, place: int) -> bool:
        return place >= self.after if self.ends is None else place in self.ends


@dataclass(frozen=True, slots=True)
class _Ways:
    """The ways in which entries can be between two places: `total` is 0, 1 or 2, for more.

    `steps[n]` has for each place that may begin the last but n entries the number of ways to go on
    from there.
    """

    starts: dict[int, _Start]
    steps: list[dict[int, int]]
    start: int

    @classmethod
    def of(cls, starts: dict[int, _Start], count: int, start: int, end: int) -> _Ways:
        # From the last entry backwards: it ends where the state does.
        steps = [{place: 1 for place, entry in starts.items() if entry.may_end(end)}]
        for _ in range(count - 1):
            behind = steps[-1]
            following = sorted(behind)
            sums = sums_from_behind([behind[place] for place in following])
            step: dict[int, int] = {}
            for place, entry in starts.items():
                if entry.ends is not None:
                    ways = sum(behind.get(after, 0) for after in entry.ends)
                else:
                    at = bisect_left(following, entry.after)
                    ways = sums[at] if at < len(sums) else 0
                if ways:
                    step[place] = min(2, ways)
            steps.append(step)
        return cls(starts, steps, start)

    @property
    def total(self) -> int:
        return self.steps[-1].get(self.start, 0)

    def path(self) -> list[int]:
        """Return the beginnings of all entries, where there is one way."""
        path = [self.start]
        for step in self.steps[-2::-1]:
            entry = self.starts[path[-1]]
            path.append(next(place for place in sorted(step) if entry.may_end(place)))
        return path


def sums_from_behind(numbers: list[int]) -> list[int]:
    """Return the sum of each number and those behind it, of which more than two count as two."""
    sums, total = [0] * len(numbers), 0
    for at in range(len(numbers) - 1, -1, -1):
        total = min(2, total + numbers[at])
        sums[at] = total
    return sums


def _raw(serializer: Serializer | None, data: DataInput) -> bytes:
    if serializer is None:
        raise Unknown("a serializer that is not known here")
    start = data.at
    value(serializer, data)
    return data.data[start : data.at]
