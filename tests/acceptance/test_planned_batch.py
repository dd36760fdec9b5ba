"""A batch that was planned, put out and not committed runs again on the target over exactly the
same input.

A sink that knows batches by their number then replaces what it was given before: nothing is lost,
nothing counts twice.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.support import content_of, job, stateshift, write_records, write_spec

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class Totals:
    """Counts and sums per key, two input files a batch; the last file of a batch's output wins."""

    folder: Path
    input: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def output(self) -> Path:
        return (
            self.folder.parent / "output"
        )  # both jobs write to one sink, as they would to one database

    def feed(self, first: int, last: int) -> None:
        for number in range(first, last):
            records = [{"key": f"k{(number + i) % 7}", "value": number * 100 + i} for i in range(5)]
            write_records(self.input / f"{number:03}.json", records)

    def run(self, die_in: int = -1) -> None:
        places = ("--input", self.input, "--output", self.output, "--checkpoint", self.checkpoint)
        job(
            "batches.py",
            *places,
            "--die-in",
            str(die_in),
            cwd=self.input,
            code=9 if die_in >= 0 else 0,
        )

    def recognise(self) -> dict[str, tuple[int, int]]:
        totals = {}
        for path in sorted(self.output.glob("*.json")):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                totals[row["key"]] = (row["count"], row["sum"])
        return totals

    def expected(self, files: int) -> dict[str, tuple[int, int]]:
        totals: dict[str, tuple[int, int]] = {}
        for number in range(files):
            for i in range(5):
                count, sum = totals.get(key := f"k{(number + i) % 7}", (0, 0))
                totals[key] = (count + 1, sum + number * 100 + i)
        return totals


@pytest.mark.slow
@pytest.mark.row("IS-14")
@pytest.mark.row("IS-16")
def test_a_batch_that_died_before_its_commit_runs_again_over_the_same_input(tmp_path: Path) -> None:
    here = Totals(tmp_path / "here", tmp_path / "input")
    there = Totals(tmp_path / "there", tmp_path / "input")
    here.feed(0, 5)  # batch 0 and batch 1 read two files each; batch 2 the fifth, and dies
    here.run(die_in=2)
    checkpoint = here.checkpoint
    assert (checkpoint / "offsets" / "2").exists()
    assert not (checkpoint / "commits" / "2").exists()
    put_out = (here.output / "000002.json").read_bytes()
    planned = (checkpoint / "offsets" / "2").read_text().splitlines()[2:]

    spec = write_spec(
        tmp_path / "spec.json",
        name="totals",
        checkpoint_location=str(checkpoint),
        remote_location=str(there.checkpoint),
        waive=["paths-stay"],
    )
    stateshift("apply", spec, "--yes", "--workdir", tmp_path / "run", cwd=tmp_path)
    assert (there.checkpoint / "offsets" / "2").read_text().splitlines()[2:] == planned
    assert not (there.checkpoint / "commits" / "2").exists()

    here.feed(5, 9)  # input that is there before batch 2 runs again, and must not slip into it
    there.run()
    assert (there.output / "000002.json").read_bytes() == put_out
    assert there.recognise() == there.expected(9)
    assert content_of(checkpoint)["metadata"] == content_of(there.checkpoint)["metadata"]


@pytest.mark.slow
@pytest.mark.row("IS-14")
def test_a_job_that_died_in_its_first_batch_can_start_and_verify_says_so(tmp_path: Path) -> None:
    check = Totals(tmp_path / "here", tmp_path / "input")
    check.feed(0, 3)
    check.run(die_in=0)
    assert not list(check.checkpoint.glob("commits/[0-9]*"))
    told = stateshift("verify", check.checkpoint, "--deep", "--json", cwd=tmp_path).json
    assert (told["restartable"], told["epoch"]) == (True, None)
    check.run()
    assert check.recognise() == check.expected(3)
