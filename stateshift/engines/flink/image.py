"""Flink's own facts of an image, beyond those that every engine's images have; among it, what keeps
an operator's state from being divided otherwise. Types only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stateshift.engines.flink.places import Places
from stateshift.formats.flink.metadata import Metadata
from stateshift.formats.uid import flink_operator_id
from stateshift.survey import Image, Survey

Beginnings = Mapping[str, Sequence[bytes]]

_ID: Final = re.compile(r"[0-9a-f]{32}")
AS_IT_IS: Final = (
    "leave out what cannot be changed: Flink itself deals out state for any parallelism "
    "up to the max parallelism"
)
CANONICAL: Final = (
    f'take a canonical savepoint of the job ("stop": {{"format": "canonical"}}); or {AS_IT_IS}'
)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an operator's state cannot be divided otherwise, and the way out that there really is;
    and the waiver of one that a user may answer for.
    """

    fact: str
    hint: str = AS_IT_IS
    waive: str | None = None


@dataclass(frozen=True, slots=True)
class FlinkImage:
    """The facts in a savepoint or checkpoint, and those that changes need of it.

    kind             checkpoint or savepoint
    layout           canonical or native, where the metadata says
    drained          windows and timers fired before it was taken
    operator_states  operator -> the version of its operator state's header
    rigid            operator -> why it cannot be rescaled; only where that is asked for
    apart            operator -> why it cannot become one with others; only where that is asked for
    jars             operator whose keys the job's own classes hash -> jar -> its SHA-256
    heads            operator -> role -> how the files of its operator state begin; only for these
                     two, and of its keyed state (`keyed`) for those that change its entries
    """

    metadata: Metadata
    places: Places
    kind: str
    layout: str | None
    drained: bool
    operator_states: Mapping[str, int] = field(default_factory=dict)
    rigid: Mapping[str, Obstacle] = field(default_factory=dict)
    apart: Mapping[str, Obstacle] = field(default_factory=dict)
    jars: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    heads: Mapping[str, Beginnings] = field(default_factory=dict)

    @property
    def masters(self) -> list[str]:
        """The hooks of the job's sources and sinks that the metadata has a state of."""
        return [master.name for master in self.metadata.masters]

    @property
    def unaligned(self) -> bool:
        for operator in self.metadata.operators:
            for subtask in operator.all_subtasks:
                if subtask.inputs or subtask.outputs:
                    return True
        return False

    def described(self) -> Mapping[str, object]:
        return {
            "kind": self.kind,
            "layout": self.layout,
            "drained": self.drained,
            "metadata_version": self.metadata.version,
            "masters": self.masters,
            "unaligned": self.unaligned,
        }


def flink_image(image: Image) -> FlinkImage | None:
    """Return Flink's own facts of an image; None where its metadata could not be read."""
    return image.details if isinstance(image.details, FlinkImage) else None


def flink_facts(image: Image) -> FlinkImage:
    """Return Flink's own facts of an image whose metadata could be read."""
    kept = flink_image(image)
    assert kept is not None, "only images with metadata are asked"
    return kept


def metadata_of(image: Image) -> Metadata:
    """Return the metadata of an image that has it."""
    return flink_facts(image).metadata


def places_of(image: Image) -> Places:
    """Return the places of the files that the metadata of an image names."""
    return flink_facts(image).places


def names_of(image: Image) -> dict[str, str]:
    """Return the names of operators by their ids: their uids where those are known."""
    return {operator.id: operator.uid or operator.id for operator in image.operators}


def id_of(name: str) -> str:
    """Return the id that a name stands for: a uid, or an id itself."""
    return name if _ID.fullmatch(name) else flink_operator_id(name)


def id_in(image: Image, name: str) -> str:
    """Return the id that a name stands for in an image, whose uids may have ids of their own."""
    names = names_of(image)
    by_uid = (id_ for id_, own in names.items() if own == name)
    return name if name in names else next(by_uid, id_of(name))


def is_readable(survey: Survey) -> bool:
    """Whether an image is there, and its metadata could be read."""
    return bool(survey.images) and flink_image(survey.images[0]) is not None
