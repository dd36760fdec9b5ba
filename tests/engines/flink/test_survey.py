"""What is said of a Flink image, held against what Flink's own loader says of it; and what is
said of damaged ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from stateshift.engines.flink.image import metadata_of, places_of
from stateshift.engines.flink.places import Places, moved_folders, root_of
from stateshift.engines.registry import engine
from stateshift.formats.flink.keyed_handles import KeyGroups
from stateshift.formats.flink.metadata import SubtaskState, decode_metadata, encode_metadata
from stateshift.formats.flink.stream_handles import AbsoluteFile, RelativeFile
from stateshift.storage.protocol import Storage
from stateshift.survey import Finding, Survey
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden
from tests.support.ground import Around

pytestmark = pytest.mark.row("IF-17")


def refusals(survey: Survey) -> list[Finding]:
    return [f for f in (*survey.findings, *survey.images[0].findings) if f.level == "refuse"]


@pytest.mark.parametrize("name", golden.NAMES)
def test_an_image_is_described_as_flink_s_own_loader_describes_it(name: str) -> None:
    disk = MemoryDisk()
    storage, survey = golden.looked_at(disk, golden.write(disk, name))
    (image,), told = survey.images, golden.told(name)["metadata"]
    assert refusals(survey) == []
    assert (image.epoch, image.epochs) == (told["checkpoint"], (told["checkpoint"],))
    assert image.described["metadata_version"] == told["version"]
    wanted = {
        o["id"]: (o["name"] or None, o["uid"] or None, o["parallelism"], o["max_parallelism"])
        for o in told["operators"]
    }
    found = {o.id: (o.name, o.uid, o.shards, o.details["max_parallelism"]) for o in image.operators}
    assert found == wanted
    assert golden.damages(storage, survey) == []


@pytest.mark.parametrize(
    "name", [name for name in golden.NAMES if "held" in golden.told(name) and "count-" in name]
)
def test_the_states_of_an_operator_are_named(name: str) -> None:
    disk = MemoryDisk()
    _, survey = golden.looked_at(disk, golden.write(disk, name))
    (image,), told = survey.images, golden.told(name)
    ids = {id_: uid for uid, id_ in golden.told(name).get("ids", {}).items()}
    for operator in image.operators:
        uid = operator.uid or ids.get(operator.id)
        read = operator.details["finished"] is not True and operator.provider != "changelog"
        if uid in told["held"] and read:
            names = {state["name"] for state in operator.details["states"]}
            assert set(told["held"][uid]) <= names


@pytest.mark.row("IF-16")
@pytest.mark.parametrize(
    ("case", "backend"),
    [
        ("count-canonical-hashmap", "canonical"),
        ("count-native-hashmap", "hashmap"),
        ("count-native-rocksdb", "rocksdb"),
        ("count-checkpoint-incremental", "rocksdb"),
        ("count-changelog-memory", "changelog"),
    ],
)
def test_the_backends_are_told_apart(case: str, backend: str) -> None:
    disk = MemoryDisk()
    _, survey = golden.looked_at(disk, golden.write(disk, f"flink-2.3.0/{case}"))
    assert backend in {operator.provider for operator in survey.images[0].operators}


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("count-canonical-hashmap", "savepoint"),
        ("count-native-incremental", "savepoint"),
        ("count-checkpoint-incremental", "checkpoint"),
        ("count-unaligned", "checkpoint"),
    ],
)
def test_savepoints_and_checkpoints_are_told_apart(case: str, kind: str) -> None:
    disk = MemoryDisk()
    _, survey = golden.looked_at(disk, golden.write(disk, f"flink-2.3.0/{case}"))
    assert (survey.engine, survey.kind) == ("flink", kind)


INCREMENTAL = "flink-2.3.0/count-checkpoint-incremental"


def test_a_checkpoint_s_survey_reaches_as_far_as_its_files_lie() -> None:
    disk = MemoryDisk()
    location = golden.write(disk, INCREMENTAL)
    _, survey = golden.looked_at(disk, location)
    job, _, folder = location.rpartition("/")
    assert (survey.location, survey.images[0].path) == (job, folder)
    assert any(path.startswith("shared/") for path in survey.images[0].needed)
    assert {place.path.rpartition("/")[2] for place in survey.images[0].embedded} == {"shared"}


def test_a_job_s_folder_that_was_moved_as_a_whole_is_still_found_and_that_is_said() -> None:
    disk = MemoryDisk()
    location = golden.write(disk, INCREMENTAL, "file:///elsewhere")
    storage, survey = golden.looked_at(disk, location)
    assert refusals(survey) == []
    assert [f.level for f in survey.images[0].findings] == ["warn"]
    assert "gather" in (survey.images[0].findings[0].hint or "")
    assert golden.damages(storage, survey) == []


def test_a_handle_without_a_host_is_of_the_file_system_that_the_image_lies_on() -> None:
    """As a cluster writes it whose checkpoints go to hdfs:///flink, and which tells where they are
    with the host.
    """
    place = "hdfs://nn:8020/flink/job/chk-7"
    beside, before = "hdfs:/flink/job/shared", "hdfs:/flink/earlier/shared"
    assert root_of(place, (beside, before)) == "hdfs://nn:8020/flink"
    assert moved_folders(place, (beside,)) is None
    places = Places("hdfs://nn:8020/flink", "job/chk-7")
    assert places.path_of(AbsoluteFile(f"{before}/x", 1)) == "earlier/shared/x"
    assert places.path_of(AbsoluteFile("hdfs://other/flink/x", 1)) is None


@pytest.mark.parametrize("name", ["_metadata", "_stateshift/_metadata", "../x", "/x", "a//b"])
def test_a_relative_handle_is_refused_that_names_no_file_of_state(name: str) -> None:
    """Copied under its name, `_metadata` would be visible before the rest of a target is there."""
    assert Places("file:///there", "chk-7").path_of(RelativeFile(name, 1)) is None


def test_the_newest_checkpoint_of_a_job_s_folder_is_looked_at() -> None:
    disk = MemoryDisk()
    location = golden.write(disk, INCREMENTAL)
    above = location.rpartition("/")[0]
    number = int(location.rpartition("-")[2])
    storage = disk.open(above)
    storage.write(f"chk-{number + 1}/half", lambda: iter((b"not finished",)))
    assert golden.looked_at(disk, above)[1].epoch == number


def test_of_several_savepoints_in_a_folder_none_is_chosen() -> None:
    disk = MemoryDisk()
    for case in ("count-canonical-hashmap", "count-native-hashmap"):
        golden.write(disk, f"flink-2.3.0/{case}", "file:///all")
    storage = disk.open("file:///all/image")
    _, survey = golden.looked_at(disk, storage.location)
    assert survey.images == ()
    assert "is no image itself; 2 images are below it" in survey.findings[0].message


@pytest.mark.parametrize("damage", ["missing", "longer", "shorter"])
@pytest.mark.parametrize(
    "case", ["count-canonical-hashmap", "count-native-rocksdb", "count-checkpoint-incremental"]
)
def test_a_file_that_is_missing_or_of_another_size_is_told_with_its_operator(
    case: str, damage: str
) -> None:
    disk = MemoryDisk()
    location = golden.write(disk, f"flink-2.3.0/{case}")
    storage, survey = golden.looked_at(disk, location)
    path = next(path for path in survey.images[0].needed if not path.endswith("_metadata"))
    content = storage.read(path)
    if damage == "missing":
        storage.remove(path)
    else:
        changed = content + b"x" if damage == "longer" else content[:-1]
        storage.write(path, lambda: iter((changed,)))
    survey = golden.looked_at(disk, location)[1]
    (found,) = refusals(survey)
    assert (found.path, survey.images[0].epochs) == (path, ())
    assert "operator " in found.message
    assert ("missing" in found.message) == (damage == "missing")


def test_a_key_that_says_it_belongs_to_another_group_is_found_by_reading_it() -> None:
    disk = MemoryDisk()
    storage, survey = golden.looked_at(
        disk, golden.write(disk, "flink-2.3.0/count-canonical-hashmap")
    )
    (image,) = survey.images
    handles = [s.managed_keyed for o in metadata_of(image).operators for s in o.subtasks or ()]
    handle = next(handle for handle in handles if isinstance(handle, KeyGroups))
    assert handle.stream is not None
    path = places_of(image).path_of(handle.stream)
    assert path is not None
    content = bytearray(storage.read(path))
    start = next(offset for offset in handle.offsets if offset)
    content[start + 2 + 4] ^= 1  # behind the state's number and the key's length
    storage.write(path, lambda: iter((bytes(content),)))
    assert refusals(golden.looked_at(disk, storage.location)[1]) == []
    (found,) = golden.damages(storage, survey)
    assert "a key of another group" in found.message


def test_a_max_parallelism_that_was_only_written_down_is_found_by_hashing_the_keys() -> None:
    """Flink would say so on the TaskManager, once the job runs."""
    disk = MemoryDisk()
    storage = disk.open(golden.write(disk, "flink-2.3.0/count-canonical-hashmap"))
    image = decode_metadata(storage.read("_metadata"))
    edited = replace(
        image, operators=tuple(replace(o, max_parallelism=32) for o in image.operators)
    )
    storage.write("_metadata", lambda: iter((encode_metadata(edited),)))
    storage, survey = golden.looked_at(disk, storage.location)
    (found,) = golden.damages(storage, survey)
    assert "lie in other key groups" in found.message


def test_metadata_that_is_cut_short_is_told_with_its_place() -> None:
    disk = MemoryDisk()
    location = golden.write(disk, "flink-2.3.0/count-canonical-hashmap")
    storage = disk.open(location)
    content = storage.read("_metadata")[:-1]
    storage.write("_metadata", lambda: iter((content,)))
    (found,) = refusals(golden.looked_at(disk, location)[1])
    assert (found.path, found.offset) == ("_metadata", len(content))


def test_an_operator_that_is_there_twice_is_refused() -> None:
    disk = MemoryDisk()
    storage = disk.open(golden.write(disk, "flink-2.3.0/count-two"))
    image = decode_metadata(storage.read("_metadata"))
    twice = encode_metadata(replace(image, operators=(*image.operators, image.operators[0])))
    storage.write("_metadata", lambda: iter((twice,)))
    (found,) = refusals(golden.looked_at(disk, storage.location)[1])
    assert "occurs 2 times" in found.message


def divided(change: Callable[[tuple[SubtaskState, ...]], tuple[SubtaskState, ...]]) -> Survey:
    """The survey of an image whose counting operator has other subtasks."""
    disk = MemoryDisk()
    storage = disk.open(golden.write(disk, "flink-2.3.0/count-native-incremental"))
    image = decode_metadata(storage.read("_metadata"))
    changed = [
        replace(operator, subtasks=change(operator.all_subtasks))
        if any(subtask.managed_keyed for subtask in operator.all_subtasks)
        else operator
        for operator in image.operators
    ]
    content = encode_metadata(replace(image, operators=tuple(changed)))
    storage.write("_metadata", lambda: iter((content,)))
    return golden.looked_at(disk, storage.location)[1]


def test_keyed_state_that_changed_places_with_another_subtasks_is_refused() -> None:
    def exchanged(subtasks: tuple[SubtaskState, ...]) -> tuple[SubtaskState, ...]:
        first, second = subtasks
        return (
            replace(first, managed_keyed=second.managed_keyed),
            replace(second, managed_keyed=first.managed_keyed),
        )

    found = refusals(divided(exchanged))
    assert "subtask 0 holds 4 key groups from 4 on; its own are 4 from 0 on" in found[0].message


def test_a_subtask_that_is_there_twice_is_refused() -> None:
    found = refusals(divided(lambda subtasks: (*subtasks, subtasks[0])))
    assert "subtask 0 occurs 2 times" in found[0].message


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_subtask_without_keyed_state_beside_others_with_it_is_noted(is_listed: bool) -> None:
    def without(subtasks: tuple[SubtaskState, ...]) -> tuple[SubtaskState, ...]:
        first, second = subtasks
        return (first, replace(second, managed_keyed=None)) if is_listed else (first,)

    survey = divided(without)
    assert refusals(survey) == []
    notes = [f.message for f in survey.images[0].findings if f.level == "note"]
    assert "1 of 2 subtasks have no keyed state" in notes[0]


@pytest.mark.parametrize("kind", ["canonical-hashmap", "checkpoint-incremental"])
def test_the_metadata_is_read_once_wherever_the_image_s_files_lie(kind: str) -> None:
    disk, read = MemoryDisk(), list[str]()

    class Noted(Around):
        def read(self, path: str, bytes_max: int) -> bytes:
            read.append(path)
            return self.inner.read(path, bytes_max)

    location = golden.write(disk, f"flink-2.3.0/count-{kind}")
    _, survey = engine("flink").survey(location, lambda at: cast(Storage, Noted(disk.open(at))))
    assert refusals(survey) == []
    assert [path.rpartition("/")[2] for path in read] == ["_metadata"]
