"""verify --deep by a fleet: portions of an image together say what the whole says, damaged or
not.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import look, plain
from stateshift.engines.spark.check import image as deep
from stateshift.engines.spark.check.portions import portions
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.fleet import Crew
from stateshift.fleet.cutting import Cutter, check_portions
from stateshift.survey import Finding, Image, Survey
from stateshift.testing.memory_storage import MemoryDisk
from stateshift.world import World
from tests.formats.golden import CASES
from tests.look.golden_images import HERE, NEWEST, contents, on_a_disk, write
from tests.support.fleet import MemoryCarrier
from tests.support.ground import Ground

IDS = [f"{case.parent.name}/{case.name}" for case in CASES]


def crew_on(disk: MemoryDisk) -> Crew:
    def world_of(order: Mapping[str, Any]) -> World:
        return replace(Ground(disk=disk).world, run=order["run"])

    return Crew(MemoryCarrier(world_of))


def whole(disk: MemoryDisk) -> set[Finding]:
    found = survey(disk.open(HERE), True)
    return {
        one for image in found.images for one in deep.findings_of(disk.open(HERE), found, image)
    }


def in_portions(disk: MemoryDisk, files_max: int) -> set[Finding]:
    found = survey(disk.open(HERE), True)
    return {
        one
        for image in found.images
        for own, part in portions(found, image, files_max)
        for one in deep.findings_of(disk.open(HERE), own, part)
    }


def in_parts(disk: MemoryDisk) -> set[Finding]:
    """What a fleet finds that cuts every shard into parts."""
    found = survey(disk.open(HERE), True)
    cutter = Cutter(crew_on(disk).asking.spread, slots=2, least=1)
    findings: set[Finding] = set()
    for image in found.images:
        findings |= set(check_portions(cutter, list(portions(found, image, 1)), {}))
    return findings


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_portions_hold_every_shard_once_and_everything_needed(case: Path) -> None:
    found = survey(on_a_disk(case).open(HERE), True)
    for image in found.images:
        parts = list(portions(found, image, 1))
        assert [shard for _, part in parts for shard in part.shards] == list(image.shards)
        assert {path for _, part in parts for path in part.needed} == set(image.needed)
        state = [file for own, _ in parts for file in own.files]
        assert len(state) == len(set(state)) and set(state) == set(found.files)
        assert list(portions(found, image))


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_files_of_shards_that_are_left_out_are_not_all_in_one_portion(case: Path) -> None:
    found = survey(on_a_disk(case).open(HERE), True)
    for image in found.images:
        parts = list(portions(found, replace(image, shards=()), 1))
        assert {path for _, part in parts for path in part.needed} == set(image.needed)
        places = {(shard.operator, shard.shard) for shard in image.shards if shard.files}
        assert len(parts) > len(places)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_portion_is_the_same_after_its_way_over_the_wire(case: Path) -> None:
    found = survey(on_a_disk(case).open(HERE), True)
    for own, part in portions(found, found.images[0], 1):
        for kind, value in ((Survey, own), (Image, part)):
            assert plain.to_plain(plain.from_plain(kind, plain.to_plain(value))) == plain.to_plain(
                value
            )


@pytest.mark.long
@pytest.mark.sample(20)
@pytest.mark.parametrize("name", sorted(NEWEST))
def test_whatever_is_damaged_a_fleet_says_the_same(name: str, seed: int) -> None:
    files = contents(NEWEST[name])
    chance = random.Random(f"{seed} {name}")
    paths = [path for path in files if path.startswith("state/")] or list(files)
    for path in chance.sample(paths, min(2, len(paths))):
        content = files[path]
        at = chance.randrange(max(1, len(content)))
        damaged = {
            "cut": {**files, path: content[:at]},
            "flipped": {
                **files,
                path: content[:at]
                + bytes(b ^ 16 for b in content[at : at + 1])
                + content[at + 1 :],
            },
            "gone": {other: files[other] for other in files if other != path},
        }
        for what, changed in damaged.items():
            disk = MemoryDisk()
            write(disk.open(HERE), changed)
            assert in_portions(disk, 1) == whole(disk), (what, path)
            assert in_parts(disk) == whole(disk), (what, path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["window-hdfs", "join-rocksdb-v4", "session-rocksdb"])
@pytest.mark.parametrize("damaged", [False, True])
def test_the_verdict_of_a_fleet_is_the_verdict_without_one(name: str, damaged: bool) -> None:
    files = contents(NEWEST[name])
    if damaged:
        disk = MemoryDisk()
        write(disk.open(HERE), files)
        path = survey(disk.open(HERE), True).images[0].shards[0].files[-1]
        files[path] = files[path][:-3]
    disk = MemoryDisk()
    write(disk.open(HERE), files)
    alone = look.restartable(HERE, disk.open, thorough=True)
    together = look.restartable(HERE, disk.open, thorough=True, fleet=crew_on(disk))
    assert (together.restartable, together.epochs) == (alone.restartable, alone.epochs)
    assert set(together.findings) == set(alone.findings)
    assert len(together.findings) == len(set(together.findings)), "each thing is said once"
    assert together.restartable is not damaged


def test_a_part_of_an_image_is_read_back_from_json_as_a_fleet_sends_it() -> None:
    part = Image("", None, None, 1, (1,), None, (), (), (), (), (), (), {}, None)
    assert plain.from_plain(Image, plain.to_plain(part)) == part
