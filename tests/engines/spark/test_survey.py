"""What is found at a location."""

from __future__ import annotations

import pytest

from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.formats.marks import FOLDER, INDEX, LOCK_SUFFIX, encode_index, fence_text
from stateshift.storage.protocol import Storage
from stateshift.survey import Image, Survey
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.spark.golden import NAMES, golden
from tests.support.checkpoints import QUERY, Checkpoint, put
from tests.support.entries import Entry, entries

WHERE = "file:///c/orders"


def storage_of(files: dict[str, bytes]) -> Storage:
    storage = MemoryDisk().open(WHERE)
    for path, content in files.items():
        put(storage, path, content)
    return storage


def survey_of(files: dict[str, bytes]) -> Survey:
    return survey.survey(storage_of(files))


def image_of(files: dict[str, bytes]) -> Image:
    (image,) = survey_of(files).images
    return image


def told(found: Survey | Image, level: str = "refuse") -> str:
    return "\n".join(finding.message for finding in found.findings if finding.level == level)


# ---- kinds of places


def test_nothing_is_empty_and_so_is_a_place_with_only_our_own_folder() -> None:
    assert survey_of({}).kind == "empty"
    assert survey_of({f"{FOLDER}/operators.json": encode_index({})}).kind == "empty"


@pytest.mark.parametrize(
    "files",
    [
        ["part-00000.parquet", "_SUCCESS"],
        ["_metadata", "chk-3/_metadata"],
        ["_delta_log/00000000000000000000.json"],
        ["metadata/v1.metadata.json", "data/x.parquet"],
        ["sources/main.c", "state/notes.txt"],
        ["shop/sources/main.c", "shop/offsets/readme"],
        ["_spark_metadata/0", "part-0.parquet"],
    ],
    ids=("parquet", "flink", "delta", "iceberg", "program", "nested", "file sink"),
)
def test_a_place_that_only_looks_like_a_checkpoint_is_foreign(files: list[str]) -> None:
    found = survey_of(dict.fromkeys(files, b"x"))
    assert (found.kind, found.engine, found.images) == ("foreign", None, ())


def test_a_file_where_a_directory_is_expected_is_told() -> None:
    disk = MemoryDisk()
    put(disk.open("file:///c"), "orders", b"I am a file")
    found = survey.survey(disk.open(WHERE))
    assert found.kind == "foreign"
    assert "is a file" in told(found)


def test_a_checkpoint_is_recognised_by_any_part_of_it_that_is_left() -> None:
    for path in ("metadata", "offsets/0", "commits/0", "state/0/0/1.delta"):
        assert survey_of({path: Checkpoint().files()[path]}).kind == "checkpoint", path


def test_a_workflow_is_a_directory_of_checkpoints_with_their_names() -> None:
    storage = storage_of({INDEX: encode_index({"Count (5)": "123_abc"})})
    Checkpoint(batches=4).write(storage, "123_abc")
    Checkpoint(batches=2).write(storage, "other")
    found = survey.survey(storage)
    assert found.kind == "workflow"
    assert found.epoch is None
    assert [(i.path, i.name, i.epoch) for i in found.images] == [
        ("123_abc", "Count (5)", 3),
        ("other", None, 1),
    ]
    assert found.images[0].needed[0].startswith("123_abc/")


def test_a_checkpoint_inside_a_checkpoint_is_refused_naming_both() -> None:
    storage = storage_of(Checkpoint().files())
    Checkpoint().write(storage, "copy")
    found = survey.survey(storage)
    assert "is a checkpoint and holds others too (copy)" in told(found)
    assert found.findings[0].hint == f"name one of them: stateshift inspect {WHERE}/copy"


def test_a_damaged_name_index_is_told_and_does_not_stop_the_survey() -> None:
    found = survey_of({**Checkpoint().files(), INDEX: b'{"version": 1, "oper'})
    assert INDEX in told(found, "warn")
    assert found.names == {}
    assert found.epoch == 2


def test_leftovers_of_writers_are_not_files_of_the_checkpoint() -> None:
    files = Checkpoint().files()
    extra = {
        "offsets/.3.11111111-aaaa.tmp": b"",
        "state/0/0/.4.delta.22.TID7.tmp": b"",
        ".stateshift-copy.tmp": b"",
        "offsets/_tmp": b"",
        "state/0/0/8.delta.tmp": b"",
        "foo.bar": b"",
        f"x{LOCK_SUFFIX}": b"",
    }
    plain, more = image_of(files), image_of({**files, **extra})
    assert (more.needed, more.epochs, more.findings) == (plain.needed, plain.epochs, ())


# ---- what a restart needs


def test_what_is_found_in_a_plain_checkpoint() -> None:
    image = image_of(Checkpoint(batches=4, snapshots=(2,)).files())
    assert (image.identity, image.epoch, image.planned, image.epochs) == (QUERY, 3, 3, (0, 1, 2, 3))
    assert image.written_by == "3.5 or later"
    assert image.first_read == ("metadata", "offsets/2", "offsets/3", "commits/3")
    assert {file for shard in image.shards for file in shard.files} == {
        f"state/0/{shard}/{name}"
        for shard in (0, 1)
        for name in ("2.snapshot", "3.delta", "4.delta")
    }


def test_hadoops_checksums_are_left_out_and_sparks_own_kept_with_their_bytes() -> None:
    files = Checkpoint().files()
    for path in list(files):
        folder, _, name = path.rpartition("/")
        files[f"{folder}/.{name}.crc" if folder else f".{name}.crc"] = b"crc\0"
    files["state/0/0/3.delta.crc"] = files["state/0/0/7.delta.crc"] = b'{"algorithm":"CRC32C"}'
    needed = image_of(files).needed
    assert [path for path in needed if path.endswith(".crc")] == ["state/0/0/3.delta.crc"]


def without(*paths: str, checkpoint: Checkpoint | None = None) -> Image:
    files = (checkpoint or Checkpoint(batches=5)).files()
    return image_of(
        {path: content for path, content in files.items() if not path.startswith(paths)}
    )


@pytest.mark.parametrize(
    ("missing", "epochs"),
    [
        ("state/0/1/3.delta", (0, 1)),
        ("state/0/1/5.delta", (0, 1, 2, 3)),
        ("state/0/1/", ()),
        ("offsets/3", (0, 1, 2)),
        ("metadata", ()),
    ],
)
def test_a_missing_file_is_named_with_the_epochs_that_still_work(
    missing: str, epochs: tuple[int, ...]
) -> None:
    image = without(missing)
    assert missing.rstrip("/") in told(image)
    assert image.epochs == epochs
    assert any(f.path == missing.rstrip("/") for f in image.findings)
    assert all(
        f.hint == f"stateshift verify {WHERE}" for f in image.findings if f.level == "refuse"
    )


def test_a_hole_in_old_offsets_is_told_but_does_not_stop_a_move() -> None:
    image = without("offsets/1")
    assert "offsets/1 is missing from between others" in told(image, "warn")
    assert not told(image)
    assert image.epochs == (0, 3, 4)


def test_offsets_and_commits_tidied_away_from_the_front_are_no_hole() -> None:
    image = without("offsets/0", "offsets/1", "commits/0", "commits/1")
    assert not image.findings
    assert image.epochs == (3, 4)


def test_a_commit_without_its_offsets_is_refused() -> None:
    assert "offsets/4 is missing" in told(without("offsets/4"))


@pytest.mark.parametrize("path", ["metadata", "offsets/4", "offsets/3", "commits/4"])
@pytest.mark.parametrize("content", [b"", b"v1", b"v", b"\0\0\0\0", b"v1\n{", b'{"id":'], ids=repr)
def test_a_torn_log_is_damaged_and_named(path: str, content: bytes) -> None:
    if path == "commits/4" and content == b"v1":
        return  # the whole commit of an old Spark
    image = image_of({**Checkpoint(batches=5).files(), path: content})
    assert f"{path} is damaged" in told(image)
    assert 4 not in image.epochs
    assert next(f for f in image.findings if f.path == path).offset is not None


def test_what_follows_the_query_id_is_named_and_does_not_stop_a_job() -> None:
    files = Checkpoint().files()
    image = image_of({**files, "metadata": files["metadata"] + b"junk"})
    assert (told(image), image.identity) == ("", QUERY)
    assert "metadata has 4 more bytes behind its JSON, which Spark does not read" in told(
        image, "warn"
    )
    assert not image_of({**files, "metadata": files["metadata"] + b"\n"}).findings


def test_a_query_id_that_is_no_uuid_is_refused_and_one_that_spark_reads_otherwise_named() -> None:
    files = Checkpoint().files()
    image = image_of({**files, "metadata": b'{"id":"orders"}'})
    assert "holds the query id 'orders', which is no UUID" in told(image)
    image = image_of({**files, "metadata": b'{"id":"1-1-1-1-1"}'})
    assert "which Spark takes for 00000001-0001-0001-0001-000000000001" in told(image, "warn")
    assert image.identity == "00000001-0001-0001-0001-000000000001"


def test_an_unknown_version_of_a_log_is_named_not_guessed() -> None:
    image = image_of({**Checkpoint().files(), "commits/2": b"v9\n{}"})
    assert "format version v9" in told(image)


def test_state_without_a_commit_is_an_image_without_an_epoch() -> None:
    image = without("commits/", checkpoint=Checkpoint(batches=1))
    assert (image.epoch, image.planned, image.epochs, image.needed) == (None, 0, (), ())


def test_a_planned_batch_is_told_apart_from_a_committed_one() -> None:
    image = image_of(Checkpoint(planned=True).files())
    assert (image.epoch, image.planned) == (2, 3)


@pytest.mark.parametrize("planned", [False, True])
def test_a_fence_is_neither_planned_nor_committed(planned: bool) -> None:
    files = Checkpoint(planned=planned).files()
    files["commits/3"] = fence_text("run-7").encode()
    if not planned:
        files["offsets/3"] = files["commits/3"]
    image = image_of(files)
    assert (image.fence, image.epoch, image.planned) == ("run-7", 2, 3 if planned else 2)
    assert not told(image)


def test_the_fence_behind_several_planned_batches_is_no_commit_either() -> None:
    files = Checkpoint(batches=6).files()
    for batch in (4, 5):
        files[f"commits/{batch}"] = fence_text("run-7").encode()
    image = image_of(files)
    assert (image.fence, image.epoch, image.planned) == ("run-7", 3, 5)
    assert "damaged" not in str(told(image))


# ---- real checkpoints


def entries_of(storage: Storage, image: Image) -> list[Entry]:
    return sorted(
        entry for shard in image.shards for entry in entries(storage.chunks, shard, image.settings)
    )


@pytest.mark.row("IS-16")
@pytest.mark.parametrize("name", NAMES)
def test_a_real_checkpoint_is_whole(name: str) -> None:
    found = survey.survey(golden(name), thorough=True)
    (image,) = found.images
    assert not image.findings
    assert image.epoch == max(image.epochs)
    paths = {file.path for file in found.files}
    assert set(image.needed) <= paths
    assert not [path for path in image.needed if path.rsplit("/", 1)[-1].startswith(".")]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_needed_of_a_real_checkpoint_is_enough_for_the_same_image(name: str) -> None:
    whole = survey.survey(golden(name)).images[0]
    again = survey.survey(golden(name, lambda path: path in whole.needed)).images[0]
    assert not again.findings
    assert (again.epoch, again.shards, again.needed) == (whole.epoch, whole.shards, whole.needed)


@pytest.mark.parametrize("name", [name for name in NAMES if "rocksdb" in name])
def test_every_file_that_a_real_rocksdb_state_needs_is_missed_when_it_is_gone(name: str) -> None:
    storage = golden(name)
    image = survey.survey(storage).images[0]
    whole = entries_of(storage, image)
    for shard in image.shards[:2]:
        for path in shard.files:
            content = storage.read(path)
            storage.remove(path)
            found = survey.survey(storage).images[0]
            if path.endswith(".zip") and not told(found):  # the changelogs before it do as well
                assert entries_of(storage, found) == whole
            else:
                assert told(found), f"{path} is needed and was not missed"
                assert image.epoch not in found.epochs
            put(storage, path, content)


def test_checkpoint_format_2_takes_the_files_that_the_commit_names() -> None:
    storage = golden("spark-4.3.0/window-rocksdb-format2")
    image = survey.survey(storage).images[0]
    taken = [path for shard in image.shards for path in shard.files if not path.endswith(".sst")]
    assert taken
    assert all("_" in path.rsplit("/", 1)[-1] for path in taken)
    version = f"{(image.epoch or 0) + 1}_"
    put(
        storage,
        f"state/0/0/{version}11111111-1111-1111-1111-111111111111.zip",
        b"of a batch that was tried before",
    )
    assert survey.survey(storage).images[0].shards == image.shards


def test_a_damaged_zip_is_named() -> None:
    storage = golden("spark-4.3.0/window-rocksdb")
    path = next(
        p
        for shard in survey.survey(storage).images[0].shards
        for p in shard.files
        if p.endswith(".zip")
    )
    put(storage, path, storage.read(path)[:-30])
    assert f"{path} is damaged" in told(survey.survey(storage).images[0])
