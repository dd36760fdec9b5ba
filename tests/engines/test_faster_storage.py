"""A plan says that what is copied would be copied faster, where that is worth a person's time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stateshift.engines.registry import engine
from stateshift.specification import Spec, parse_spec
from stateshift.storage.protocol import Traits
from stateshift.survey import Facts, FileInfo, Finding, Survey
from stateshift.testing.memory_storage import MemoryDisk
from tests.contracts.faulty import Effects, Faulty
from tests.engines.flink import golden
from tests.support import ground
from tests.support.checkpoints import Checkpoint

INSTALL = "pip install 'stateshift[hdfs]'"
GIB = 1024**3


def of_spark() -> tuple[Spec, Survey]:
    return ground.spec_of(), ground.surveyed(Checkpoint())


def of_flink() -> tuple[Spec, Survey]:
    disk = MemoryDisk()
    source = golden.write(disk, "flink-2.3.0/count-two")
    job = {
        "name": "orders",
        "existing_savepoint_paths": [source],
        "new_savepoint_path": ground.TARGET,
    }
    spec = parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [job]}))
    return spec, golden.looked_at(disk, source)[1]


CASES = {"spark": of_spark, "flink": of_flink}


def notes(name: str, size: int, here: str, there: str) -> list[Finding]:
    """What a plan says of its storages' speed, once for each plan. The files that a restart needs
    have this size together.
    """
    spec, source = CASES[name]()
    needed = source.images[0].needed
    each = -(-size // len(needed))
    files = tuple(file._replace(size=each) for file in source.files if file.path in needed)
    facts = Facts(
        replace(source, files=files, faster_by=here),
        replace(ground.empty(), faster_by=there),
        at=1_000_000.0,
    )
    planned = engine(name).plan(spec, spec.jobs[0], facts)
    return [note for plan in planned for note in plan.findings if "faster" in note.message]


@pytest.mark.parametrize("name", CASES)
def test_a_gibibyte_by_a_slow_way_is_said_once_with_the_way_out(name: str) -> None:
    (note,) = notes(name, GIB, INSTALL, INSTALL)
    assert note.level == "note"
    assert note.message.startswith("1.0 GiB are to be moved, and file://")
    assert f"and {ground.TARGET} can be" in note.message
    assert note.hint == INSTALL


@pytest.mark.parametrize("name", CASES)
def test_one_slow_end_of_two_is_named_alone(name: str) -> None:
    (note,) = notes(name, GIB, "", INSTALL)
    assert note.message == f"1.0 GiB are to be moved, and {ground.TARGET} can be reached faster"


@pytest.mark.parametrize(
    ("size", "way"), [(GIB // 2, INSTALL), (GIB, "")], ids=["little", "no faster way"]
)
@pytest.mark.parametrize("name", CASES)
def test_what_gains_nothing_is_not_said(name: str, size: int, way: str) -> None:
    assert notes(name, size, way, way) == []


class SlowAndLarge(Faulty):
    """A storage that could be faster, and lists every file as a gibibyte."""

    @property
    def traits(self) -> Traits:
        return replace(super().traits, faster_by=INSTALL)

    def list(self, under: str = "") -> Iterator[FileInfo]:
        return (file._replace(size=GIB) for file in super().list(under))


def test_what_a_storage_knows_of_itself_reaches_the_plan(tmp_path: Path) -> None:
    place = ground.Ground(tmp_path, wrap=lambda storage: SlowAndLarge(storage, Effects()))
    place.write()
    place.put("file:///old/in/rows", b"x")
    data = [{"source": "/old/in", "target": "/new/in", "copy": True}]
    (plan,) = place.propose(ground.spec_of(data=data)).plans
    (note,) = [note for note in plan.findings if "faster" in note.message]
    assert note.hint == INSTALL
    assert "file:///old/in" in note.message
