"""Whoever names a folder above an image, or a file that is none, is told what to name instead: the
commands do not send each other on in a circle.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from stateshift.engines.findings import images_below, of_images_below
from stateshift.engines.registry import recognise
from stateshift.formats.marks import FOLDER
from stateshift.survey import FileInfo
from tests.cli.support import Outside
from tests.engines.flink import golden
from tests.support.checkpoints import put

CHECKPOINT = "flink-2.3.0/count-checkpoint-incremental"
SAVEPOINT = "flink-2.3.0/count-canonical-hashmap"
MOVE = ("move", "--to", "file:///new/image", "--yes")


def below(*files: FileInfo) -> tuple[str, str]:
    (finding,) = of_images_below("file:///all", files)
    return finding.message, finding.hint or ""


def test_images_of_both_engines_are_named_newest_first() -> None:
    message, hint = below(
        FileInfo("a/chk-9/_metadata", 1, 5.0),
        FileInfo("a/chk-10/_metadata", 1, 5.0),
        FileInfo("deep/er/still/checkpoint/offsets/3", 1, 7.0),
        FileInfo("deep/er/still/checkpoint/offsets/2", 1, 1.0),
        FileInfo("a/chk-11/half-a-file", 1, 9.0),
        FileInfo(f"a/{FOLDER}/rounds/_metadata", 1, 9.0),
    )
    assert message == (
        "file:///all is no image itself; 3 images are below it, the newest first: "
        "deep/er/still/checkpoint, a/chk-10, a/chk-9"
    )
    assert hint.endswith("stateshift inspect file:///all/deep/er/still/checkpoint")


def test_of_many_images_the_newest_are_named() -> None:
    files = [FileInfo(f"job/chk-{number}/_metadata", 1) for number in range(100)]
    message, hint = below(*files)
    assert "100 images are below it: job/chk-99, job/chk-98, " in message
    assert message.endswith("job/chk-92 and 92 more") and hint.endswith("/job/chk-99")


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize(
    "command", [("inspect",), ("verify",), ("export", "--to", "-"), MOVE], ids=lambda each: each[0]
)
def test_from_any_folder_above_a_command_leads_to_an_image_that_can_be_moved(
    tmp_path: Path, command: tuple[str, ...], levels: int
) -> None:
    outside = Outside()
    golden.write(outside.disk, SAVEPOINT, "file:///all/one")
    place = golden.write(outside.disk, CHECKPOINT, "file:///all/other")
    above = "/".join(place.split("/")[:-levels]) if levels == 3 else "file:///all"
    name, *words = command
    more = ("--workdir", str(tmp_path / "w")) if name == "move" else ()
    answer = outside.run(name, above, *words, *more)
    assert answer.code == {"inspect": 0, "verify": 5}.get(name, 4)
    hint = next(line for line in (answer.out + answer.err).splitlines() if "hint:" in line)
    named = shlex.split(hint.rpartition("stateshift inspect ")[2])[0]
    assert f"no Flink savepoint is at {above}" not in answer.err
    assert outside.run("inspect", named).out.startswith("Flink ")
    assert outside.run("move", named, *MOVE[1:], "--workdir", str(tmp_path / "v")).code == 0


@pytest.mark.parametrize("command", [("inspect",), ("verify",), MOVE, ("export", "--to", "-")])
@pytest.mark.parametrize(
    ("content", "what"),
    [
        ({"version": 1, "jobs": []}, "a spec, and no image\nhint: stateshift plan"),
        ({"stateshift_plan": 1}, "a saved plan, and no image\nhint: stateshift apply"),
    ],
)
def test_a_spec_is_no_image_and_the_command_that_reads_it_is_named(
    tmp_path: Path, command: tuple[str, ...], content: dict[str, object], what: str
) -> None:
    outside, name = Outside(), command[0]
    storage = outside.disk.open("file:///work")
    storage.write("spec.json", lambda: iter((json.dumps(content).encode(),)))
    answer = outside.run(name, "file:///work/spec.json", *command[1:])
    assert answer.code == 3
    assert f"file:///work/spec.json is {what} file:///work/spec.json\n" in answer.err


def test_a_copied_checkpoint_is_called_by_its_own_folder() -> None:
    """Its metadata names the folder that it was in, and both are below one that nobody named."""
    outside = Outside()
    place = golden.write(outside.disk, CHECKPOINT, "file:///tmp/copied")
    title, *facts = outside.run("inspect", place).out.splitlines()
    assert title == f"Flink checkpoint at {place}"
    assert [line.split() for line in facts if line.startswith("  files below")] == [
        ["files", "below", "file:///tmp"]
    ]


@pytest.mark.parametrize(
    "tables", [["out/t1"], ["out/t1", "out/t2"], ["out/a/b/c"], ["a", "b", "c/d"]]
)
def test_a_summary_of_parquet_does_not_make_a_workflow_of_spark_one_of_flink(
    tmp_path: Path, tables: list[str]
) -> None:
    outside = Outside()
    workflow = outside.disk.open("file:///wf")
    for query, digit in (("q1", 1), ("q2", 2)):
        files = {
            "metadata": json.dumps({"id": f"6f1c2e1a-0f0e-4a57-9a52-0a8f4ac3d6b{digit}"}),
            "offsets/0": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{}',
            "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        }
        for name, text in files.items():
            put(workflow, f"{query}/{name}", text.encode())
    for table in tables:
        put(workflow, f"{table}/_metadata", b"PAR1")
    assert recognise(workflow) == "spark"
    diff = outside.run("diff", "file:///wf", "file:///wf")
    export = outside.run("export", "file:///wf", "--to", "-")
    work = ("--yes", "--workdir", str(tmp_path / "w"))
    move = outside.run("move", "file:///wf", "--to", "file:///new", *work)
    assert (diff.code, export.code, move.code) == (0, 0, 0), move.err


def test_a_lake_of_parquet_is_no_folder_of_images() -> None:
    lake = [FileInfo(f"{table}/_metadata", 1) for table in ("t1", "t2", "deep/t3")]
    parts = [FileInfo(f"{table}/day=1/part-0.parquet", 1) for table in ("t1", "t2", "deep/t3")]
    assert [*of_images_below("file:///lake", [*lake, *parts])] == []


def test_a_folder_may_have_any_name() -> None:
    files = [FileInfo("a\nb/chk-1/_metadata", 1), FileInfo("c/_metadata\n", 1)]
    assert list(images_below(files)) == ["a\nb/chk-1"]
