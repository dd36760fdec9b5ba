"""What becomes of metadata on its way: which operators are taken from which image, under which ids,
and where their bytes are afterwards. Pure; what it is told is plain JSON, since it stands in a
plan.

    Taken             one image's share
      places          where it lay
      operators       id -> [new id, new uid or null] of those that are taken
      apart           whether its files get other names, because another image has files of the same

    RewrittenOperator  an operator whose state lies in new files
    united(images, taken, version, rewritten, max_parallelism)    the metadata of the target

Everything in the target is relative to its `_metadata`: it can lie anywhere. A file that lay beside
`_metadata` keeps its name; what was named by its full path, or is a part of a file, gets one that
is made of where it was.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from stateshift.engines.flink.places import Places, places
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
from stateshift.formats.flink.versions import converted

_NAMES = uuid.UUID("7c9f0d52-6f0e-5d0b-9d3a-0c6a4b1f2e61")


@dataclass(frozen=True, slots=True)
class Taken:
    places: Places
    operators: Mapping[str, tuple[str, str | None]]
    apart: bool = False

    def name(self, stream: StreamHandle, whole: bool = False) -> str:
        """Of a file in the target, below the folder of its `_metadata`."""
        if isinstance(stream, RelativeFile) and not self.apart:
            return stream.path
        path = self.places.path_of(stream)
        assert path is not None, "what lies elsewhere is refused before anything is planned"
        part = f"{stream.start} {stream.size}" if isinstance(stream, Segment) and not whole else ""
        return str(uuid.uuid5(_NAMES, f"{self.places.root} {path} {part}"))

    def plain(self) -> dict[str, Any]:
        operators = {own: list(new) for own, new in self.operators.items()}
        return {**self.places.plain(), "operators": operators, "apart": self.apart}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Taken:
        operators = {own: (new[0], new[1]) for own, new in plain["operators"].items()}
        return cls(places(plain), operators, plain["apart"])


@dataclass(frozen=True, slots=True)
class UnkeyedFile:
    """What a subtask has beside its key groups, in a file of its own: (state, mode, where its
    elements begin). Its `role` is operator or raw operator.
    """

    role: str
    name: str
    size: int
    states: tuple[tuple[str, int, tuple[int, ...]], ...]

    def plain(self) -> list[Any]:
        return [
            self.role,
            self.name,
            self.size,
            [[name, mode, list(offsets)] for name, mode, offsets in self.states],
        ]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> UnkeyedFile:
        role, file, size, states = plain
        return cls(
            role, file, size, tuple((name, mode, tuple(offsets)) for name, mode, offsets in states)
        )

    def handle(self) -> Partitioned | None:
        states = tuple(
            StateOffsets(name, mode, Longs.of(offsets)) for name, mode, offsets in self.states
        )
        return Partitioned(states, RelativeFile(self.name, self.size)) if states else None


@dataclass(frozen=True, slots=True)
class Part:
    """What one subtask of an operator gets that is rewritten: its key groups in a file, the
    first one's number and where they begin, all 0 where there is nothing; and, where that is
    rewritten as well, its operator state.
    """

    name: str
    size: int
    first: int
    offsets: tuple[int, ...]
    unkeyed: tuple[UnkeyedFile, ...] = ()

    def plain(self) -> list[Any]:
        return [
            self.name,
            self.size,
            self.first,
            list(self.offsets),
            [one.plain() for one in self.unkeyed],
        ]

    @classmethod
    def of(cls, plain: Sequence[Any]) -> Part:
        name, size, first, offsets, unkeyed = plain
        return cls(name, size, first, tuple(offsets), tuple(map(UnkeyedFile.of, unkeyed)))


@dataclass(frozen=True, slots=True)
class RewrittenOperator:
    """An operator of the target whose state lies in new files, a part for each subtask."""

    operator: str
    max_parallelism: int
    parts: tuple[Part, ...]

    def plain(self) -> dict[str, Any]:
        parts = [part.plain() for part in self.parts]
        return {"operator": self.operator, "max_parallelism": self.max_parallelism, "parts": parts}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> RewrittenOperator:
        return cls(plain["operator"], plain["max_parallelism"], tuple(map(Part.of, plain["parts"])))


def _with_parts(
    operator: OperatorState, found: RewrittenOperator | None, max_parallelism: int | None
) -> OperatorState:
    """An operator with other key groups, those of all operators: Flink refuses a job whose
    operators differ.
    """
    if found is None:
        return replace(operator, max_parallelism=max_parallelism or operator.max_parallelism)
    tags = (
        s.managed_keyed for s in operator.subtasks or () if isinstance(s.managed_keyed, KeyGroups)
    )
    like = next(tags, None)
    others = {subtask.index: subtask for subtask in operator.subtasks or ()}
    subtasks = []
    for index, part in enumerate(found.parts):
        subtask, keyed = others.get(index, SubtaskState(index)), None
        if any(part.offsets) and like is not None:
            id_ = part.name if like.id is not None else None
            keyed = KeyGroups(
                like.tag,
                part.first,
                Longs.of(part.offsets),
                RelativeFile(part.name, part.size),
                id_,
            )
        for unkeyed in part.unkeyed:
            if unkeyed.role == "operator":
                subtask = replace(subtask, managed_operator=unkeyed.handle())
            else:
                subtask = replace(subtask, raw_operator=unkeyed.handle())
        subtasks.append(replace(subtask, managed_keyed=keyed))
    return replace(
        operator,
        parallelism=len(found.parts),
        max_parallelism=found.max_parallelism,
        subtasks=tuple(subtasks),
    )


def united(
    images: Sequence[Metadata],
    taken: Sequence[Taken],
    version: int | None = None,
    rewritten: Sequence[RewrittenOperator] = (),
    max_parallelism: int | None = None,
) -> Metadata:
    """One image of several, or a part of one. The newest checkpoint id counts: sinks compare it
    with what they have committed, and one that goes back makes them drop what comes next.
    """
    by_id = {one.operator: one for one in rewritten}
    wanted = version or max(image.version for image in images)
    properties = next((image.properties for image in images if image.properties), b"")
    whole = [
        converted(_taken(image, own), wanted, properties)
        for image, own in zip(images, taken, strict=True)
    ]
    every: list[OperatorState] = []
    for image in whole:
        every.extend(image.operators)
    operators = tuple(
        _with_parts(o, by_id.get(o.id.hex()), max_parallelism) for o in _each_once(every, by_id)
    )
    masters = tuple(chain.from_iterable(image.masters for image in whole))
    _refuse_twice([operator.id.hex() for operator in operators], "operator")
    _refuse_twice([master.name for master in masters], "master state")
    return replace(
        whole[0],
        checkpoint_id=max(image.checkpoint_id for image in images),
        masters=masters,
        operators=operators,
    )


def _each_once(
    operators: Sequence[OperatorState], rewritten: Container[str]
) -> Iterator[OperatorState]:
    """Of those that have become one, the first, with whatever coordinator there is: at most one
    has any.
    """
    by_id: dict[str, list[OperatorState]] = {}
    for operator in operators:
        by_id.setdefault(operator.id.hex(), []).append(operator)
    for id_, same in by_id.items():
        if id_ not in rewritten:
            yield from same
            continue
        first = next((operator for operator in same if _is_keyed(operator)), same[0])
        coordinators = [o.coordinator for o in same if o.coordinator is not None]
        yield replace(first, coordinator=coordinators[0] if coordinators else None)


def _is_keyed(operator: OperatorState) -> bool:
    return any(subtask.managed_keyed is not None for subtask in operator.subtasks or ())


def _taken(image: Metadata, own: Taken) -> Metadata:
    kept = replace(
        image,
        operators=tuple(_named(o, own) for o in image.operators if o.id.hex() in own.operators),
    )

    def moved(stream: StreamHandle, whole: bool) -> StreamHandle:
        assert isinstance(stream, AbsoluteFile | RelativeFile | Segment), (
            "what has no file is not asked for"
        )
        return RelativeFile(own.name(stream, whole), stream.size)

    return with_streams(kept, moved)


def _named(operator: OperatorState, own: Taken) -> OperatorState:
    new, uid = own.operators[operator.id.hex()]
    if new == operator.id.hex():
        return operator
    return replace(
        operator,
        id=bytes.fromhex(new),
        uid=operator.uid if uid is None or operator.uid is None else uid,
    )


def _refuse_twice(names: list[str], words: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise Incompatible(
                (
                    f"{words} {name} comes from two images: Flink would keep the last and lose "
                    "the other without a word"
                ),
                hint="take it from one of them",
            )
