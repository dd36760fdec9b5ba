"""Whoever names a folder above an image, or a file that is none, is told what to name instead: the
commands do not send each other on in a circle.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from stateshift.engines.findings import of_images_below
from stateshift.formats.marks import FOLDER
from stateshift.survey import FileInfo
from tests.cli.support import Outside
from tests.engines.flink import golden

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
    assert "100 images are below it, the newest first: job/chk-99, job/chk-98, " in message
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
