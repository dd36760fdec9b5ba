"""What becomes of metadata on its way: which operators are taken from which image, under which ids, and where their
bytes are afterwards. Pure; what it is told is plain JSON, since it stands in a plan.

    Taken             one image's share
      places          where it lay
      operators       id -> [new id, new uid or null] of those that are taken
      apart           whether its files get other names, because another image has files of the same

    united(images, taken, version)    the metadata of the target

Everything in the target is relative to its `_metadata`: it can lie anywhere. A file that lay beside `_metadata` keeps
its name; what was named by its full path, or is a part of a file, gets one that is made of where it was.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stateshift.engines.flink.places import Places, places
from stateshift.errors import Incompatible
from stateshift.formats.flink.java_data import Longs
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.metadata import Metadata, OperatorState, SubtaskState
from stateshift.formats.flink.references import with_streams
from stateshift.formats.flink.stream_handles import AbsoluteFile, RelativeFile, Segment, StreamHandle
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
class Rescaled:
    """An operator's keyed state in new files, one a subtask: (its first group, where its groups begin, its size)."""

    operator: str
    parallelism: int
    max_parallelism: int
    names: tuple[str, ...]
    parts: tuple[tuple[int, tuple[int, ...], int], ...]

    def plain(self) -> dict[str, Any]:
        return {
            "operator": self.operator, "parallelism": self.parallelism, "max_parallelism": self.max_parallelism,
            "names": list(self.names), "parts": [[first, list(offsets), size] for first, offsets, size in self.parts],
        }  # fmt: skip

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Rescaled:
        parts = tuple((first, tuple(offsets), size) for first, offsets, size in plain["parts"])
        return cls(plain["operator"], plain["parallelism"], plain["max_parallelism"], tuple(plain["names"]), parts)


def with_rescaled(image: Metadata, rescaled: Sequence[Rescaled], max_parallelism: int | None) -> Metadata:
    """The same image with other key groups, those of all operators: Flink refuses a job whose operators differ."""
    by_id = {one.operator: one for one in rescaled}
    operators = tuple(_rescaled(o, by_id.get(o.id.hex()), max_parallelism) for o in image.operators)
    return replace(image, operators=operators)


def _rescaled(operator: OperatorState, found: Rescaled | None, max_parallelism: int | None) -> OperatorState:
    if found is None:
        return replace(operator, max_parallelism=max_parallelism or operator.max_parallelism)
    tags = (s.managed_keyed for s in operator.subtasks or () if isinstance(s.managed_keyed, KeyGroups))
    like = next(tags, None)
    others = {subtask.index: subtask for subtask in operator.subtasks or ()}
    subtasks = []
    for index, (name, (first, offsets, size)) in enumerate(zip(found.names, found.parts, strict=True)):
        keyed = None
        if any(offsets) and like is not None:
            id_ = name if like.id is not None else None
            keyed = KeyGroups(like.tag, first, Longs.of(offsets), RelativeFile(name, size), id_)
        subtasks.append(replace(others.get(index, SubtaskState(index)), managed_keyed=keyed))
    return replace(
        operator, parallelism=found.parallelism, max_parallelism=found.max_parallelism, subtasks=tuple(subtasks)
    )


def united(images: Sequence[Metadata], taken: Sequence[Taken], version: int | None = None) -> Metadata:
    """One image of several, or a part of one. The newest checkpoint id counts: sinks compare it with what they have
    committed, and one that goes back makes them drop what comes next."""
    wanted = version or max(image.version for image in images)
    properties = next((image.properties for image in images if image.properties), b"")
    whole = [converted(_taken(image, own), wanted, properties) for image, own in zip(images, taken, strict=True)]
    operators = tuple(operator for image in whole for operator in image.operators)
    masters = tuple(master for image in whole for master in image.masters)
    _refuse_twice([operator.id.hex() for operator in operators], "operator")
    _refuse_twice([master.name for master in masters], "master state")
    return replace(
        whole[0],
        checkpoint_id=max(image.checkpoint_id for image in images),
        masters=masters,
        operators=operators,
    )


def _taken(image: Metadata, own: Taken) -> Metadata:
    kept = replace(image, operators=tuple(_named(o, own) for o in image.operators if o.id.hex() in own.operators))

    def moved(stream: StreamHandle, whole: bool) -> StreamHandle:
        assert isinstance(stream, AbsoluteFile | RelativeFile | Segment), "what has no file is not asked for"
        return RelativeFile(own.name(stream, whole), stream.size)

    return with_streams(kept, moved)


def _named(operator: OperatorState, own: Taken) -> OperatorState:
    new, uid = own.operators[operator.id.hex()]
    if new == operator.id.hex():
        return operator
    return replace(operator, id=bytes.fromhex(new), uid=operator.uid if uid is None or operator.uid is None else uid)


def _refuse_twice(names: list[str], words: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise Incompatible(
                f"{words} {name} comes from two images: Flink would keep the last and lose the other without a word",
                hint="take it from one of them",
            )
