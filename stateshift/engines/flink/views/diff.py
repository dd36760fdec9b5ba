"""Two Flink images compared by their entries: backends may differ, files and subtasks do not count.
Reads only.

Operators are matched by their ids. Keyed state whose entries cannot be separated (a changelog, or
hashmap's own format with keys of the job's serializers) is compared as it lies there: it is the
same where its bytes are, and cannot be compared where they are not. So are single states of the
hashmap backend that only the job's classes can read. Each subtask has a copy of broadcast state:
copies which are the same count once.

The splits of a source are no entries: its positions are compared, partition by partition, whatever
subtask has them, and whatever version of its connector wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from shlex import quote

from stateshift.engines.flink.entries.image import Broadcast, pairs_of, without_keyed
from stateshift.engines.flink.entries.keyed import (
    hidden_states_of,
    keyed_alone,
    keyed_pairs_of,
    why_operator_is_opaque,
)
from stateshift.engines.flink.entries.operators import source_of
from stateshift.engines.flink.image import is_readable, metadata_of, places_of
from stateshift.engines.flink.streams import Streams
from stateshift.engines.flink.survey.image import survey as surveyed
from stateshift.engines.flink.views.elements import Shower
from stateshift.engines.match import Sided, match_sides
from stateshift.engines.views import Change, Counts, Difference, Differences, Opening
from stateshift.errors import PlanError
from stateshift.formats.blocks import block_of
from stateshift.formats.flink.kafka import CONSUMER_STATE
from stateshift.formats.flink.metadata import OperatorState
from stateshift.formats.flink.operator_state import READER_STATE
from stateshift.sources.kinds import SourceReading
from stateshift.world import Pairs, Unit, unit_of

PREFIX = 4  # bytes that say which store a key is of

Store = tuple[str, Unit]  # a state of the job's may be called as files are


@dataclass(frozen=True)
class ComparedImage:
    """One of two images: its operators by their ids, and what these are called."""

    streams: Streams
    operators: dict[str, OperatorState]
    names: dict[str, str]
    epoch: int | None


def diff(one: str, other: str, opening: Opening, show: int) -> Differences:
    """Return the differences between two images' entries, `show` of each state's in full."""
    a, b = _side(one, opening), _side(other, opening)
    differences = Differences(epochs=(a.epoch, b.epoch), engine="flink")
    for operator in dict.fromkeys((*a.operators, *b.operators)):
        _Comparing(differences, operator, (a, b), show).run()
    return differences


def _side(location: str, opening: Opening) -> ComparedImage:
    storage, survey = surveyed(location, opening)
    if not is_readable(survey):
        raise PlanError(
            f"{location} holds no Flink image", hint=f"stateshift inspect {quote(location)}"
        )
    image = survey.images[0]
    for finding in image.findings:
        if finding.level == "refuse":
            raise PlanError(
                f"the state is not whole: {finding.message}",
                hint=f"stateshift verify {quote(location)}",
            )
    operators = {operator.id.hex(): operator for operator in metadata_of(image).operators}
    names = {operator.id: operator.uid or operator.id for operator in image.operators}
    return ComparedImage(Streams(storage.chunks, places_of(image)), operators, names, image.epoch)


class _Comparing:
    def __init__(
        self,
        differences: Differences,
        operator: str,
        sides: tuple[ComparedImage, ComparedImage],
        show: int,
    ) -> None:
        self._differences, self._sides, self._show = differences, sides, show
        self._states = [side.operators.get(operator) for side in sides]
        self._name = next(side.names[operator] for side in sides if operator in side.names)
        self._counts: dict[Store, Counts] = {}
        self._numbers: dict[Store, int] = {}
        self._stores: list[Store] = []
        self._showers = [Shower(state, streams) for _, state, streams in self._present()]
        sources = [source_of(state, streams) for _, state, streams in self._present()]
        # If both sides hold the same bytes, their entries are counted, as a run counts them.
        self._has_positions = have_positions(sources) and not self._is_same(_unkeyed)

    def _present(self) -> Iterator[tuple[int, OperatorState, Streams]]:
        for number, (state, side) in enumerate(zip(self._states, self._sides, strict=True)):
            if state is not None:
                yield number, state, side.streams

    def run(self) -> None:
        why = self._why_opaque()
        if why is None:
            self._compare_states()
        elif self._is_same(_keyed_as_it_lies):
            self._compare(self._entries(_keyed_as_it_lies))
        else:
            incomparable = (self._name, "keyed", f"cannot be compared: {why}")
            self._differences.incomparable.append(incomparable)
        self._compare(self._entries(_with_positions if self._has_positions else _unkeyed))
        counts = [self._counts[name] for name in sorted(self._counts)]
        self._differences.stores += counts

    def _compare_states(self) -> None:
        """Compare keyed state entry by entry, but for states that are hidden on one side."""
        hidden: dict[str, str] = {}
        for _, state, streams in self._present():
            for each in hidden_states_of(state, streams):
                hidden.update(dict.fromkeys(each.states, each.why))
        if hidden and self._is_same(_keyed_as_it_lies):
            hidden.clear()
        for name, why in sorted(hidden.items()):
            incomparable = (self._name, name, f"cannot be compared: {why}")
            self._differences.incomparable.append(incomparable)

        def shown_pairs(operator: OperatorState, streams: Streams) -> Iterator[tuple[str, Pairs]]:
            for store, pairs in keyed_pairs_of(operator, streams):
                if store not in hidden:
                    yield store, pairs

        self._compare(self._entries(shown_pairs))

    def _why_opaque(self) -> str | None:
        for state, side, name in zip(self._states, self._sides, ("A", "B"), strict=True):
            why = why_operator_is_opaque(state, side.streams) if state is not None else None
            if why is not None:
                return f"in {name}, {why}"
        return None

    def _is_same(self, read: Reading) -> bool:
        """Whether what is read so is the same on both sides, byte by byte."""
        matches = match_sides(self._entries(read))
        same = not any(match.differing for match in matches)
        self._counts.clear()  # of a look that may lead to nothing
        return same

    def _compare(self, entries: Iterator[Sided]) -> None:
        for match in match_sides(entries):
            for key in match.same.to_pylist():
                self._count(key).same += 1
            # `removed` is what only the first side has.
            for key, value in match.removed.records():
                self._add("removed", key, value, None)
            for key, value in match.added.records():
                self._add("added", key, None, value)
            befores, afters = match.changed
            for (key, before), (_, after) in zip(befores.records(), afters.records(), strict=True):
                self._add("changed", key, before, after)

    def _entries(self, read: Reading) -> Iterator[Sided]:
        for number, state, streams in self._present():
            for store, pairs in read(state, streams):
                own = (store, unit_of(store))
                self._counts.setdefault(own, Counts(self._name, store, unit=own[1]))
                before = self._number(own)
                yield Sided(number, block_of((before + key, value) for key, value in pairs))

    def _count(self, key: bytes) -> Counts:
        return self._counts[self._stores[int.from_bytes(key[:PREFIX], "big")]]

    def _number(self, store: Store) -> bytes:
        """Return the prefix of a store's keys: names of states may hold any character."""
        number = self._numbers.setdefault(store, len(self._numbers))
        if number == len(self._stores):
            self._stores.append(store)
        return number.to_bytes(PREFIX, "big")

    def _add(self, change: Change, key: bytes, before: bytes | None, after: bytes | None) -> None:
        counts = self._count(key)
        shown = counts.added + counts.removed + counts.changed
        setattr(counts, change, getattr(counts, change) + 1)
        if shown >= self._show:
            return
        store, raw = counts.store, key[PREFIX:]
        shower: Shower | PositionShower = self._showers[-1 if before is None else 0]
        if self._has_positions and store == POSITIONS:
            shower = PositionShower()
        difference = Difference(
            operator=self._name,
            store=store,
            change=change,
            key=shower.key(store, raw),
            before=None if before is None else shower.value(store, before),
            after=None if after is None else shower.value(store, after),
        )
        self._differences.shown.append(difference)


# The parts of an operator that are compared: states, each with some of its entries.
Reading = Callable[[OperatorState, Streams], Iterator[tuple[str, Pairs]]]


def _keyed_as_it_lies(operator: OperatorState, streams: Streams) -> Iterator[tuple[str, Pairs]]:
    return pairs_of(keyed_alone(operator), streams)


def _unkeyed(operator: OperatorState, streams: Streams) -> Iterator[tuple[str, Pairs]]:
    return pairs_of(without_keyed(operator), streams, broadcast=Broadcast(once=True))


# ---- sources -------------------------------------------------------------------------------------

POSITIONS = "positions"
SPLITS = (READER_STATE, CONSUMER_STATE, "coordinator")


def have_positions(sources: Sequence[SourceReading | None]) -> bool:
    """Whether these are sources of one kind, whose positions are all that their states say."""
    kinds = {source.kind if source is not None and source.is_whole else None for source in sources}
    return len(kinds) == 1 and None not in kinds


def _with_positions(operator: OperatorState, streams: Streams) -> Iterator[tuple[str, Pairs]]:
    """Yield state that belongs to no key, with the positions of a source instead of its splits."""
    for store, pairs in _unkeyed(operator, streams):
        if store not in SPLITS:
            yield store, pairs
    source = source_of(operator, streams)
    assert source is not None, "asked before: have_positions"
    positions = []
    for each in source.kind.positions(source.details):
        positions.append((each.partition.encode(), json.dumps(each.position).encode()))
    yield POSITIONS, positions


class PositionShower:
    """Shows the positions of a source."""

    def key(self, store: str, raw: bytes) -> object:
        return {"partition": raw.decode()}

    def value(self, store: str, raw: bytes) -> object:
        return json.loads(raw)
