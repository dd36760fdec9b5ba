"""`export` reads a state file as Spark does: not where Spark's checksum beside it does not fit
(real checkpoints).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from stateshift import look
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.errors import FormatError
from stateshift.testing.memory_storage import MemoryDisk
from tests.look.golden_images import HERE, NEWEST, contents, write


def disk_with(files: Mapping[str, bytes]) -> MemoryDisk:
    disk = MemoryDisk()
    write(disk.open(HERE), dict(files))
    return disk


def beside_state(files: Mapping[str, bytes]) -> list[str]:
    """The checksums of the files that the newest state is read from, tables apart: those have
    none.
    """
    (image,) = survey.survey(disk_with(files).open(HERE)).images
    read = {path for shard in image.shards for path in shard.files}
    return sorted(
        path for path in files if path.endswith(".crc") and path.removesuffix(".crc") in read
    )


WITH_STATE = [name for name, case in NEWEST.items() if (case / "checkpoint/state").is_dir()]
CHECKED = [name for name in WITH_STATE if beside_state(contents(NEWEST[name]))]


def export(files: Mapping[str, bytes], wanted: look.Wanted | None = None) -> bytes:
    return b"".join(look.export(HERE, "x.jsonl", wanted, disk_with(files).open).chunks())


def other_value(checksum: bytes) -> bytes:
    plain = json.loads(checksum)
    return json.dumps({**plain, "value": plain["value"] ^ 1}).encode()


@pytest.mark.long
@pytest.mark.parametrize("name", CHECKED)
def test_state_that_does_not_fit_its_checksum_is_not_exported(name: str) -> None:
    files = contents(NEWEST[name])
    whole = export(files)
    for path in beside_state(files):
        damaged = {**files, path: other_value(files[path])}
        with pytest.raises(FormatError, match="checksum") as raised:
            export(damaged)
        assert path.removesuffix(".crc") in str(raised.value)
        assert "remove" in (raised.value.hint or "")
        del damaged[path]
        assert export(damaged) == whole, "Spark reads it without the checksum"


def test_changes_that_do_not_fit_their_checksum_are_not_exported() -> None:
    for name in CHECKED:
        files = contents(NEWEST[name])
        changes = look.Wanted(changes=(0, 1))
        wrong = {
            p: other_value(c) if p.endswith((".delta.crc", ".changelog.crc")) else c
            for p, c in files.items()
        }
        if wrong != files:
            with pytest.raises(FormatError, match="checksum"):
                export(wrong, changes)


def test_there_are_checkpoints_with_checksums() -> None:
    assert len(CHECKED) >= 2
