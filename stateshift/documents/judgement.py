"""The JSON document of `verify LOCATION`: could a job restart from this image? Pure.

What each document has is declared once, as in `survey_json`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NotRequired, TypedDict

from stateshift.documents.problems import FindingDocument
from stateshift.documents.shape import documents_of

if TYPE_CHECKING:
    from stateshift.engines.views import CheckStage
    from stateshift.look import JudgedImage, Judgement
    from stateshift.look.judging import Checked


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
    seconds: Annotated[float, "how long it took"]
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

    number: Annotated[int, "its number, from 1 on"]
    of: Annotated[int, "how many parts there are"]
    shards: Annotated[int, "shards, or subtasks, that were read"]
    shards_all: Annotated[int, "of how many"]
    bytes: Annotated[int, "bytes that a restart reads, in this part"]
    bytes_all: Annotated[int, "of how many"]
    so_far: NotRequired[Annotated[PartsSoFarDocument, "what is remembered of all parts"]]


class NoChecksumDocument(TypedDict):
    """Bytes of a file that no checksum covers."""

    path: Annotated[str, "the file"]
    ranges: Annotated[list[list[int]], "where they are: from, and before which byte"]


class CheckedDocument(TypedDict):
    """How far a deep check went."""

    stages: Annotated[list[CheckStageDocument], "its stages, in their order"]
    not_checked: Annotated[list[str], "what it was told to leave out, in words"]
    part: Annotated[PartDocument | None, "the part that was read (--part); null for all"]
    no_checksum: Annotated[
        list[NoChecksumDocument],
        "Flink: the bytes where a changed one may go unseen, of what was read",
    ]
    undecoded: Annotated[list[str], "Flink: the serializers whose values were not read"]


class JudgementDocument(TypedDict):
    """What `verify LOCATION` finds: could a job restart from this image?"""

    restartable: Annotated[bool, "whether a job could"]
    epoch: Annotated[int | None, "the epoch it would restart from, of a single image"]
    epochs: Annotated[list[int], "all the epochs it could restart from, of a single image"]
    findings: Annotated[list[FindingDocument], "why not, and what else to know"]
    images: Annotated[list[JudgedImageDocument], "each image"]
    checked: NotRequired[Annotated[CheckedDocument, "what was read (--deep)"]]


def judgement(judged: Judgement) -> JudgementDocument:
    """Return whether a job could restart from an image, and why not."""
    document: JudgementDocument = {
        "restartable": judged.restartable,
        "epoch": judged.epoch,
        "epochs": list(judged.epochs),
        "findings": documents_of(FindingDocument, judged.findings),
        "images": [judged_image(each) for each in judged.images],
    }
    if judged.checked is not None:
        document["checked"] = checked(judged.checked)
    return document


def checked(deep: Checked) -> CheckedDocument:
    """Return how far a deep check went."""
    return {
        "stages": [check_stage(each) for each in deep.stages],
        "not_checked": list(deep.left_out),
        "part": part_read(deep),
        "no_checksum": [
            {"path": path, "ranges": [list(each) for each in ranges]}
            for path, ranges in deep.no_checksum.items()
        ],
        "undecoded": list(deep.undecoded),
    }


def part_read(deep: Checked) -> PartDocument | None:
    """Return the part that was read; None where all was."""
    if deep.part is None or deep.coverage is None:
        return None
    document: PartDocument = {
        "number": deep.part.number,
        "of": deep.part.of,
        "shards": deep.coverage.shards,
        "shards_all": deep.coverage.shards_all,
        "bytes": deep.coverage.bytes,
        "bytes_all": deep.coverage.bytes_all,
    }
    if deep.so_far is not None:
        so_far = deep.so_far
        document["so_far"] = {
            "parts": so_far.parts,
            "oldest": so_far.oldest,
            "file": so_far.file,
        }
    return document


def check_stage(stage: CheckStage) -> CheckStageDocument:
    """Return one stage of a deep check."""
    return {
        "name": stage.name,
        "seconds": round(stage.seconds, 3),
        "files": stage.files,
        "bytes": stage.bytes,
    }


def judged_image(judged: JudgedImage) -> JudgedImageDocument:
    """Return one image, and where a job could restart from."""
    return {
        "path": judged.path,
        "name": judged.name,
        "epoch": judged.epoch,
        "epochs": list(judged.epochs),
    }
