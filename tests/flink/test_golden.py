"""The golden images of Flink are what they are said to be, as far as it can be seen without
reading a format.
"""

from __future__ import annotations

import re
import struct

import mmh3
import pytest

from tests.flink.golden import IMAGES, Image, images

WRITES = {"1.15": 3, "1.18": 4, "1.20": 4, "2.0": 5, "2.3": 6}
BYTES_MAX = 7_100_000


@pytest.mark.row("IF-4")
@pytest.mark.parametrize("image", IMAGES, ids=str)
def test_flink_names_operators_by_the_hash_of_their_uids(image: Image) -> None:
    ids = {one["id"] for one in image.told["metadata"]["operators"]}
    hashed = {mmh3.mmh3_x64_128_digest(uid.encode(), 0).hex() for uid in image.told["uids"]}
    assert hashed <= ids
    named = {one["uid"] for one in image.told["metadata"]["operators"]} - {None, ""}
    if image.version >= "2" and image.told["case"]["job"] != "jobs.Sql":
        assert named == set(image.told["uids"])


@pytest.mark.parametrize("image", IMAGES, ids=str)
def test_an_image_is_of_the_metadata_version_that_its_flink_writes(image: Image) -> None:
    magic, version = struct.unpack_from(">Ii", image.metadata)
    assert (magic, version) == (0x4960672D, WRITES[".".join(image.version.split(".")[:2])])
    assert image.told["metadata"]["version"] == version


@pytest.mark.parametrize("image", IMAGES, ids=str)
def test_every_file_that_an_image_names_by_an_absolute_path_is_there(image: Image) -> None:
    named = re.findall(
        rb"(?:file:)?/+tmp/golden-flink/[!-~]+?/[0-9a-f]{8}-[0-9a-f-]{27}(?![0-9a-z-])",
        image.metadata,
    )
    inlined = image.told["case"]["cluster"] == "inline"
    for path in {name.decode() for name in named}:
        assert inlined or image.found(path).exists(), path


def test_every_version_has_the_cases_that_it_can_have() -> None:
    names = {
        version: {one.name for one in IMAGES if one.version == version}
        for version in {o.version for o in IMAGES}
    }
    assert {".".join(version.split(".")[:2]) for version in names} == set(WRITES)
    assert len(names["2.3.0"]) >= 40
    since = {image.name: tuple(image.told["case"]["since"]) for image in IMAGES}
    for version, found in names.items():
        assert found == {name for name in names["2.3.0"] if since[name] <= parts(version)}
    assert sum(path.stat().st_size for image in IMAGES for path in image.files) < BYTES_MAX


def test_there_are_records_in_flight_shared_files_changes_and_finished_operators_among_them() -> (
    None
):
    for image in images("count-unaligned"):
        operators = image.told["metadata"]["operators"]
        assert (
            sum(one["in_flight"] for operator in operators for one in operator["subtasks"]) > 0
        ), image
    for image in images("count-checkpoint-incremental", "kinds-checkpoint-incremental"):
        assert any("shared" in path.parts for path in image.files), image
    for image in images("count-changelog-hashmap", "count-changelog-rocksdb"):
        assert any("changelog" in path.parts for path in image.files), image
        assert any("taskowned" in path.parts or "shared" in path.parts for path in image.files), (
            image
        )
    for image in images("count-finished"):
        assert sum(one["finished"] for one in image.told["metadata"]["operators"]) == 3, image


@pytest.mark.parametrize(
    "image", [image for image in images("count") if "held" in image.told], ids=str
)
def test_what_a_count_is_told_to_hold_is_what_its_numbers_come_to(image: Image) -> None:
    for states in image.told["held"].values():
        assert sum(states["count"].values()) == image.told["numbers"]
        assert len(states["count"]) == 10


def parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
