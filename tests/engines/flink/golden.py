"""The savepoints and checkpoints that real Flinks wrote, put where they were when they were
written: checkpoints name their files by full paths. On a disk in memory, so that a test may damage
them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stateshift.engines.flink.check.judgement import judge
from stateshift.engines.registry import engine
from stateshift.engines.views import DeepCheck, ImageAt, Judged
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Image, Survey
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import put

FOLDER = Path(__file__).resolve().parents[2] / "golden"
NAMES = tuple(
    sorted(str(place.parent.relative_to(FOLDER)) for place in FOLDER.glob("flink-*/*/told.json"))
)


def told(name: str) -> Any:
    """What Flink itself says of the image."""
    return json.loads((FOLDER / name / "told.json").read_text("utf-8"))


def write(disk: MemoryDisk, name: str, location: str | None = None) -> str:
    """Put everything there; the image's location. With `location`, somewhere else than where it
    was written.
    """
    written: dict[str, str] = told(name)["written_at"]
    for was, folder in written.items():
        there = f"{location}/{folder}" if location else f"file://{was}"
        top = FOLDER / name / folder
        for file in sorted(top.rglob("*")):
            if file.is_file():
                put(disk.open(there), str(file.relative_to(top)), file.read_bytes())
    image: str = told(name)["image"]
    was, folder = next(
        (w, f) for w, f in written.items() if image == f or image.startswith(f"{f}/")
    )
    inside = image.removeprefix(folder)
    return f"{location}/{image}" if location else f"file://{was}{inside}"


def looked_at(disk: MemoryDisk, location: str) -> tuple[Storage, Survey]:
    return engine("flink").survey(location, disk.open)


def judged(storage: Storage, image: Image) -> Judged:
    """What a deep look says of an image."""
    survey = Survey(storage.location, "flink", "savepoint", (), (image,))
    return judge(ImageAt(storage, survey, image, "image"), DeepCheck())


def damages(storage: Storage, survey: Survey) -> list[Finding]:
    """What a deep look refuses; the note on what has no checksum is always there."""
    found = judged(storage, survey.images[0]).findings
    assert [finding.level for finding in found].count("note") == 1
    return [finding for finding in found if finding.level != "note"]
