"""A checkpoint moves together with the directories its job reads and writes, which the checkpoint
names absolutely.

On a real Spark: afterwards each record is in the output exactly once and no input file was read
twice. What is not said in the spec is refused before anything moves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.support import (
    Ran,
    content_of,
    job,
    last_number,
    stateshift,
    write_records,
    write_spec,
)

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Deduplicated:
    """Five records a file, one of which every file has: what is remembered decides what comes
    out.
    """

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "check point"  # a blank: `%20` in what Spark writes down

    def feed(self, first: int, last: int) -> int:
        """Files first to last; the number of rows in them."""
        for number in range(first, last):
            records = [{"id": f"{number}-{i}", "value": number * 10 + i} for i in range(4)]
            path = self.folder / "in put" / f"{number:03}.json"
            write_records(path, [*records, {"id": "everywhere", "value": 0}])
        return (last - first) * 5

    def run(self) -> Ran:
        places = ("--input", self.folder / "in put", "--output", self.folder / "output")
        return job("files.py", *places, "--checkpoint", self.checkpoint, cwd=self.folder)

    def expected(self, files: int) -> list[list[Any]]:
        own = [[f"{number}-{i}", number * 10 + i] for number in range(files) for i in range(4)]
        return sorted([*own, ["everywhere", 0]])

    def input_files_read(self) -> list[str]:
        """Every path of the source's log, a compacted entry in place of what it replaced."""
        log = self.checkpoint / "sources" / "0"
        compacts = [int(path.stem) for path in log.glob("*.compact")]
        begin = max(compacts, default=-1)
        lines = [] if begin < 0 else (log / f"{begin}.compact").read_text().splitlines()[1:]
        for number in range(begin + 1, last_number(log) + 1):
            lines += (log / str(number)).read_text().splitlines()[1:]
        return [json.loads(line)["path"] for line in lines]


@pytest.fixture
def moved_in_between(tmp_path: Path) -> tuple[Deduplicated, Deduplicated]:
    """Seven files read on the source: the source's log and the sink's are both compacted by
    then, and go on.
    """
    here, there = Deduplicated(tmp_path / "here"), Deduplicated(tmp_path / "there" / "new root")
    here.folder.mkdir()
    there.folder.parent.mkdir()
    here.feed(0, 7)
    first = here.run().json
    assert first == {"rows_read": 35, "output": here.expected(7)}
    return here, there


@pytest.mark.slow
@pytest.mark.row("IS-13")
@pytest.mark.row("IS-14")
@pytest.mark.row("IS-16")
def test_the_job_continues_at_another_root_without_loss_or_duplicates(
    moved_in_between: tuple[Deduplicated, Deduplicated], tmp_path: Path
) -> None:
    here, there = moved_in_between
    spec = write_spec(
        tmp_path / "spec.json",
        name="dedup",
        checkpoint_location=str(here.checkpoint),
        remote_location=str(there.checkpoint),
        data=[
            {"source": str(here.folder / name), "target": str(there.folder / name), "copy": True}
            for name in ("in put", "output")
        ],
    )
    before = content_of(here.folder)
    report = stateshift(
        "apply", spec, "--yes", "--json", "--workdir", tmp_path / "run", cwd=tmp_path
    ).json
    assert report["state"] == "finished"
    after = content_of(here.folder)
    assert {path: after.get(path) for path in before} == before, "the source was modified"
    logs = {path.name for path in (here.checkpoint / "sources" / "0").glob("[0-9]*")}
    last_two = sorted(
        (int(name.split(".")[0]) for name in logs if name.endswith(".compact")), reverse=True
    )[:2]
    needed = {name for name in logs if int(name.split(".")[0]) >= last_two[-1]}
    assert (
        {path.name for path in (there.checkpoint / "sources" / "0").glob("[0-9]*")} == needed < logs
    )

    here.folder.rename(tmp_path / "gone")  # nothing may go on reading or writing where the job was
    rows = there.feed(7, 12)
    result = there.run().json
    assert result == {"rows_read": rows, "output": there.expected(12)}
    read = there.input_files_read()
    assert len(read) == len(set(read)) == 12
    assert all("/there/new%20root/in%20put/" in path for path in read)


@pytest.mark.slow
@pytest.mark.row("IS-14")
@pytest.mark.parametrize("left_out", ["in put"])
def test_a_directory_that_the_spec_does_not_name_is_refused_before_anything_moves(
    moved_in_between: tuple[Deduplicated, Deduplicated], tmp_path: Path, left_out: str
) -> None:
    here, there = moved_in_between
    named = [name for name in ("in put", "output") if name != left_out]
    spec = write_spec(
        tmp_path / "spec.json",
        name="dedup",
        checkpoint_location=str(here.checkpoint),
        remote_location=str(there.checkpoint),
        data=[
            {"source": str(here.folder / n), "target": str(there.folder / n), "copy": True}
            for n in named
        ],
    )
    before = content_of(here.folder)
    refused = stateshift("plan", spec, "--json", cwd=tmp_path, code=4)
    messages = [
        found["message"] for found in refused.json["findings"] if found["level"] == "refuse"
    ]
    assert any(
        left_out in message or left_out.replace(" ", "%20") in message for message in messages
    )
    stateshift("apply", spec, "--yes", "--workdir", tmp_path / "run", cwd=tmp_path, code=4)
    assert content_of(here.folder) == before
    assert not there.checkpoint.exists()
