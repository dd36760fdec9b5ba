"""The document of `verify LOCATION`: could a job restart from this image? Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict

from stateshift.documents.problems import FindingDocument
from stateshift.documents.shape import At
from stateshift.documents.standby import SupersededDocument

if TYPE_CHECKING:
    from stateshift.look import Checked


class JudgedImageDocument(TypedDict):
    """One image, and where a job could restart from."""

    path: Annotated[str, "below the location; empty for the location itself"]
    name: Annotated[str | None, "the operator's name, in a workflow directory"]
    epoch: Annotated[int | None, "the last committed epoch"]
    epochs: Annotated[list[int], "the epochs that a restart works from"]


class CheckStageDocument(TypedDict):
    """A stage of a deep check, with what it read and how long it took."""

    name: Annotated[
        Literal["state", "history"],
        "state: what a restart reads; history: what came before the snapshots it begins with",
    ]
    seconds: Annotated[float, "how long it took", At(lambda stage: round(stage.seconds, 3))]
    files: Annotated[int, "how many files it read"]
    bytes: Annotated[int, "their size together"]


class PartsSoFarDocument(TypedDict):
    """What is remembered of all parts of a state."""

    parts: Annotated[int, "how many were found sound until now"]
    oldest: Annotated[
        float | None, "when the oldest of them was (seconds since 1970), once all are"
    ]
    file: Annotated[str, "the file that says so"]


class PartDocument(TypedDict):
    """The part of a state that was read."""

    number: Annotated[int, "its number, from 1 on", At("part.number")]
    of: Annotated[int, "how many parts there are", At("part.of")]
    shards: Annotated[int, "shards, or subtasks, that were read", At("coverage.shards")]
    shards_all: Annotated[int, "of how many", At("coverage.shards_all")]
    bytes: Annotated[int, "bytes that a restart reads, in this part", At("coverage.bytes")]
    bytes_all: Annotated[int, "of how many", At("coverage.bytes_all")]
    so_far: NotRequired[Annotated[PartsSoFarDocument, "what is remembered of all parts"]]


class NoChecksumDocument(TypedDict):
    """Bytes of a file that no checksum covers."""

    path: Annotated[str, "the file"]
    ranges: Annotated[list[list[int]], "where they are: from, and before which byte"]


class StateReadDocument(TypedDict):
    """The ways in which the entries of a state were read."""

    operator: Annotated[str, "its operator"]
    state: Annotated[str, "its name"]
    decoded: Annotated[int, "entries that were read to their ends, by their type"]
    framed: Annotated[int, "entries whose values were not read: the bytes leave no other ends"]
    sized: Annotated[int, "entries of which only the lengths were checked"]
    hidden: Annotated[int, "entries that cannot be told apart"]
    hidden_by: Annotated[str | None, "the state in front of it, which hides it"]


class CheckedDocument(TypedDict):
    """How far a deep check went."""

    stages: Annotated[list[CheckStageDocument], "its stages, in their order"]
    not_checked: Annotated[list[str], "what it was told to leave out, in words", At("left_out")]
    part: Annotated[
        PartDocument | None, "the part that was read (--part); null for all", At(part_read)
    ]
    no_checksum: Annotated[
        list[NoChecksumDocument],
        "Flink: the bytes where a changed one may go unseen, of what was read",
        At(uncovered_bytes),
    ]
    undecoded: Annotated[list[str], "Flink: the serializers whose values were not read"]
    read: Annotated[list[StateReadDocument], "Flink: how the entries of each state were read"]


class JudgementDocument(TypedDict):
    """What `verify LOCATION` finds: could a job restart from this image?"""

    restartable: Annotated[bool, "whether a job could"]
    epoch: Annotated[int | None, "the epoch it would restart from, of a single image"]
    epochs: Annotated[list[int], "all the epochs it could restart from, of a single image"]
    findings: Annotated[list[FindingDocument], "why not, and what else to know"]
    images: Annotated[list[JudgedImageDocument], "each image"]
    checked: NotRequired[Annotated[CheckedDocument, "what was read (--deep)"]]
    superseded: NotRequired[
        Annotated[SupersededDocument, "where the job runs since a failover, and from which batch"]
    ]


def part_read(deep: Checked) -> Checked | None:
    """Return the check if it read only a part; None if it read everything."""
    return None if deep.part is None or deep.coverage is None else deep


def uncovered_bytes(deep: Checked) -> list[NoChecksumDocument]:
    """Return the bytes of each file that no checksum covers."""
    return [
        {"path": path, "ranges": [list(each) for each in ranges]}
        for path, ranges in deep.no_checksum.items()
    ]
