"""The metadata of a target: which operators are taken from which image, under which ids, and where
their bytes are afterwards. Pure; what stands in a plan is plain JSON.

    Taken             one image's share
    RewrittenOperator an operator whose state lies in new files, a part for each subtask
    united(images, taken, version, rewritten, max_parallelism)    the metadata of the target

Everything in the target is relative to its `_metadata`: it can lie anywhere. A file that lay beside
`_metadata` keeps its name; what was named by its full path, or is a part of a file, gets one that
is made of where it was.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypedDict

from stateshift.engines.flink.places import Places, PlainPlaces, places
from stateshift.errors import Incompatible
from stateshift.formats.flink.java_data import Longs
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.metadata import Metadata, OperatorState, SubtaskState
from stateshift.formats.flink.operator_handles import Partitioned, StateOffsets
from stateshift.formats.flink.references import with_streams
from stateshift.formats.flink.stream_handles import (
    AbsoluteFile,
    RelativeFile,
    Segment,
    StreamHandle,
)
from stateshift.formats.flink.versions import convert_metadata

_NAMES = uuid.UUID("7c9f0d52-6f0e-5d0b-9d3a-0c6a4b1f2e61")


class PlainTaken(PlainPlaces):
    """The share of one image as JSON: in `operators`, id -> [new id, new uid or null]."""

    operators: Mapping[str, Sequence[str | None]]
    apart: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """An image's operators that are taken, with ids and uids; and whether files are renamed."""

    places: Places
    operators: Mapping[str, tuple[str, str | None]]
    apart: bool = False

    def name(self, stream: StreamHandle, whole: bool = False) -> str:
        if isinstance(stream, RelativeFile) and not self.apart:
            return stream.path
        path = self.places.path_of(stream)
        assert path is not None, "what lies elsewhere is refused before anything is planned"
        part = ""
        if isinstance(stream, Segment) and not whole:
            part = f"{stream.start} {stream.size}"
        return str(uuid.uuid5(_NAMES, f"{self.places.root} {path} {part}"))

    def plain(self) -> PlainTaken:
        operators = {own: list(new) for own, new in self.operators.items()}
        return {**self.places.plain(), "operators": operators, "apart": self.apart}

    @classmethod
    def of(cls, plain: PlainTaken) -> Taken:
        operators = {}
        for own, (new, uid) in plain["operators"].items():
            assert new is not None, "each has an id"
            operators[own] = (new, uid)
        return cls(places(plain), operators, plain["apart"])


# As JSON, which has lists for tuples.
PlainUnkeyedFile = tuple[str, str, int, Sequence[tuple[str, int, Sequence[int]]]]
PlainPart = tuple[str, int, int, Sequence[int], Sequence[PlainUnkeyedFile]]


@dataclass(frozen=True, slots=True)
class UnkeyedFile:
    """A subtask's state beside its key groups, of `role` operator or raw operator."""

    role: str
    name: str
    size: int
    states: tuple[tuple[str, int, tuple[int, ...]], ...]

    def plain(self) -> PlainUnkeyedFile:
        states = [(name, mode, list(offsets)) for name, mode, offsets in self.states]
        return self.role, self.name, self.size, states

    @classmethod
    def of(cls, plain: PlainUnkeyedFile) -> UnkeyedFile:
        role, file, size, states = plain
        own = tuple((name, mode, tuple(offsets)) for name, mode, offsets in states)
        return cls(role, file, size, own)

    def handle(self) -> Partitioned | None:
        if not self.states:
            return None
        states = [StateOffsets(name, mode, Longs.of(own)) for name, mode, own in self.states]
        return Partitioned(tuple(states), RelativeFile(self.name, self.size))


@dataclass(frozen=True, slots=True)
class SubtaskPart:
    """The rewritten state of one subtask of an operator: its key groups in a file, the first one's
    number and where they begin, all 0 where there is nothing; and, where that is rewritten as well,
    its operator state.
    """

    name: str
    size: int
    first: int
    offsets: tuple[int, ...]
    unkeyed: tuple[UnkeyedFile, ...] = ()

    def plain(self) -> PlainPart:
        unkeyed = [file.plain() for file in self.unkeyed]
        return self.name, self.size, self.first, list(self.offsets), unkeyed

    @classmethod
    def of(cls, plain: PlainPart) -> SubtaskPart:
        name, size, first, offsets, unkeyed = plain
        return cls(name, size, first, tuple(offsets), tuple(map(UnkeyedFile.of, unkeyed)))

    def keyed(self, like: KeyGroups | None) -> KeyGroups | None:
        """Return the handle of its key groups, `like` an old one; None where they are empty."""
        if like is None or not any(self.offsets):
            return None
        file = RelativeFile(self.name, self.size)
        id_ = self.name if like.id is not None else None
        return KeyGroups(like.tag, self.first, Longs.of(self.offsets), file, id_)

    def subtask(self, before: SubtaskState, like: KeyGroups | None) -> SubtaskState:
        subtask = replace(before, managed_keyed=self.keyed(like))
        for unkeyed in self.unkeyed:
            if unkeyed.role == "operator":
                subtask = replace(subtask, managed_operator=unkeyed.handle())
            else:
                subtask = replace(subtask, raw_operator=unkeyed.handle())
        return subtask


class PlainRewritten(TypedDict):
    """A `RewrittenOperator` as JSON."""

    operator: str
    max_parallelism: int
    parts: list[PlainPart]


@dataclass(frozen=True, slots=True)
class RewrittenOperator:
    """An operator of the target whose state lies in new files, a part for each subtask."""

    operator: str
    max_parallelism: int
    parts: tuple[SubtaskPart, ...]

    def plain(self) -> PlainRewritten:
        parts = [part.plain() for part in self.parts]
        return {"operator": self.operator, "max_parallelism": self.max_parallelism, "parts": parts}

    @classmethod
    def of(cls, plain: PlainRewritten) -> RewrittenOperator:
        return cls(
            plain["operator"], plain["max_parallelism"], tuple(map(SubtaskPart.of, plain["parts"]))
        )


def _with_parts(operator: OperatorState, rewritten: RewrittenOperator) -> OperatorState:
    before = {subtask.index: subtask for subtask in operator.all_subtasks}
    keyed = [subtask.managed_keyed for subtask in operator.all_subtasks]
    like = next((handle for handle in keyed if isinstance(handle, KeyGroups)), None)
    subtasks = [
        part.subtask(before.get(index, SubtaskState(index)), like)
        for index, part in enumerate(rewritten.parts)
    ]
    return replace(
        operator,
        parallelism=len(rewritten.parts),
        max_parallelism=rewritten.max_parallelism,
        subtasks=tuple(subtasks),
    )


def unite_images(
    images: Sequence[Metadata],
    taken: Sequence[Taken],
    version: int | None = None,
    rewritten: Sequence[RewrittenOperator] = (),
    max_parallelism: int | None = None,
) -> Metadata:
    """Return one image of several, or a part of one. The newest checkpoint id counts: sinks compare
    it with what they have committed, and one that goes back makes them drop what comes next.

    `max_parallelism` is that of all operators: Flink refuses a job whose operators differ, but for
    those that are set to one key group.
    """
    wanted = version or max(image.version for image in images)
    properties = next((image.properties for image in images if image.properties), b"")
    parts = []
    for image, own in zip(images, taken, strict=True):
        part = convert_metadata(_taken(image, own), wanted, properties)
        operators = []
        for operator in part.operators:
            if max_parallelism is not None and not is_set_to_one(operator, image):
                operator = replace(operator, max_parallelism=max_parallelism)
            operators.append(operator)
        parts.append(replace(part, operators=tuple(operators)))
    by_id = {operator.operator: operator for operator in rewritten}
    made = []
    for operator in _each_once(parts, by_id):
        new_state = by_id.get(operator.id.hex())
        made.append(operator if new_state is None else _with_parts(operator, new_state))
    masters = list(chain.from_iterable(part.masters for part in parts))
    _refuse_twice([operator.id.hex() for operator in made], "operator")
    _refuse_twice([master.name for master in masters], "master state")
    return replace(
        parts[0],
        checkpoint_id=max(image.checkpoint_id for image in images),
        masters=tuple(masters),
        operators=tuple(made),
    )


def is_set_to_one(operator: OperatorState, image: Metadata) -> bool:
    """Whether an operator has one key group because its code says so, as of SQL's aggregate of all
    rows: others of the job, with keyed state or without, have more.
    """
    most = max(other.max_parallelism for other in image.operators)
    return operator.max_parallelism == 1 < most


def _each_once(images: Sequence[Metadata], rewritten: Container[str]) -> Iterator[OperatorState]:
    """Yield operators; of several as one, the first with keyed state, with any coordinator."""
    by_id: dict[str, list[OperatorState]] = {}
    for operator in chain.from_iterable(image.operators for image in images):
        by_id.setdefault(operator.id.hex(), []).append(operator)
    for id_, same in by_id.items():
        if id_ not in rewritten:
            yield from same
            continue
        keyed = (o for o in same if any(subtask.managed_keyed for subtask in o.all_subtasks))
        first = next(keyed, same[0])
        coordinators = [o.coordinator for o in same if o.coordinator is not None]
        yield replace(first, coordinator=coordinators[0] if coordinators else None)


def _taken(image: Metadata, own: Taken) -> Metadata:
    operators = [_named(o, own) for o in image.operators if o.id.hex() in own.operators]

    def moved(stream: StreamHandle, whole: bool) -> StreamHandle:
        assert isinstance(stream, AbsoluteFile | RelativeFile | Segment), (
            "what has no file is not asked for"
        )
        return RelativeFile(own.name(stream, whole), stream.size)

    return with_streams(replace(image, operators=tuple(operators)), moved)


def _named(operator: OperatorState, own: Taken) -> OperatorState:
    new, new_uid = own.operators[operator.id.hex()]
    if new == operator.id.hex():
        return operator
    uid = operator.uid
    if uid is not None and new_uid is not None:
        uid = new_uid
    return replace(operator, id=bytes.fromhex(new), uid=uid)


def _refuse_twice(names: list[str], words: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise Incompatible(
                f"{words} {name} comes from two images: Flink would keep the last and lose the "
                "other without a word",
                hint="take it from one of them",
            )
