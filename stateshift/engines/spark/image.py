"""Spark's own facts of an image, beyond those that every engine's images have. Types only."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import NamedTuple, TypedDict

from stateshift.survey import Image


@dataclass(frozen=True, slots=True)
class Strangers:
    """Files of a checkpoint that are not Spark's: a folder at its top (`mine/`), or one file."""

    path: str
    files: int
    bytes: int


class StoreSchema(TypedDict):
    """The schema of one store, or of one of its column families, in plain values for a plan.

    key, value  StructType JSON
    encoder     the key encoder's JSON; None where there is none
    lists       whether values are lists of rows
    avro        whether rows are Avro's
    prefix      how many key columns are looked up together
    """

    key: str
    value: str
    encoder: str | None
    lists: bool
    avro: bool
    prefix: int


class Backlog(NamedTuple):
    """The input of a source since the batch of a rewind, and the option that bounds a batch."""

    source: str
    unit: str
    amount: int
    bounded_by: str


class Newest(NamedTuple):
    """The last batch that was committed, and the last one that was planned."""

    committed: int
    planned: int | None


@dataclass(frozen=True, slots=True)
class SparkImage:
    """The facts in a checkpoint.

    offsets, commits    how many batches each log names; None where nobody has counted
    batch_timestamp_ms  when the image's batch was planned
    real_time_lengths   the seconds of those of its last two batches that look like real-time
                        mode, the newest first; none of micro-batches
    newest              the newest batches, where the image is of an earlier one: a rewind
    backlog             the input since then, by source
    schemas             "<operator>/<store>" -> the schema of its rows; only where changes need it
    """

    offsets: int | None = None
    commits: int | None = None
    batch_timestamp_ms: int | None = None
    real_time_lengths: tuple[float, ...] = ()
    strangers: tuple[Strangers, ...] = ()
    newest: Newest | None = None
    backlog: tuple[Backlog, ...] = ()
    schemas: Mapping[str, StoreSchema] = field(default_factory=dict)

    @property
    def real_time_seconds(self) -> float | None:
        """The length of the last batch in real-time mode; None of micro-batches."""
        return self.real_time_lengths[0] if self.real_time_lengths else None

    def described(self) -> Mapping[str, object]:
        described: dict[str, object] = {"strangers": tuple(asdict(held) for held in self.strangers)}
        if self.real_time_seconds is not None:
            described["real_time_seconds"] = round(self.real_time_seconds, 1)
        return described


def name_of(image: Image, location: str) -> str:
    """Return the name of an image in messages: its operator's name, its folder, or its location."""
    return image.name or image.path or location


def fork_id(image: Image, target: str) -> str:
    """Return the query id of an image's fork: the same fork gets the same."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{image.identity} {target} {image.path}"))


NOTHING_KEPT = SparkImage()


def spark_image(image: Image) -> SparkImage:
    """Return Spark's own facts of an image; of a part of an image, there are none."""
    return image.details if isinstance(image.details, SparkImage) else NOTHING_KEPT
