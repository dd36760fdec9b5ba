"""The golden checkpoints of every Spark version as whole images: surveyed, judged, and read as
Spark reads them.
"""

from dataclasses import replace

import pytest

from stateshift import look
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.formats.spark.offset_conf import ROW_CHECKSUM
from stateshift.formats.spark.rocksdb import RocksDBSnapshot, encode_zip
from stateshift.formats.spark.state_files import Changelog, StateRecord, encode_delta
from stateshift.formats.spark.types import ArrayType, MapType, StructType
from stateshift.storage.opening import open_storage
from tests.formats.golden import CASES, IDS, expected, plain
from tests.look.golden_images import HERE, on_a_disk
from tests.support.encoders import encode_changelog, partition_of
from tests.support.entries import entries

pytestmark = pytest.mark.parametrize("case", CASES, ids=IDS)

BEGAN = {
    "3.2": "before 3.3",
    "3.3": "3.3 or later",
    "3.4": "3.3 or later",
    "3.5": "3.5 or later",
    "4.0": "4.0 or later",
    "4.1": "4.0 or later",
    "4.2": "4.2 or later",
    "4.3": "4.3 or later",
}


@pytest.mark.row("IS-13")
def test_a_survey_finds_the_epoch_and_the_version_of_what_spark_wrote(case):
    _, image = opened(case)
    assert (image.epoch, image.identity is not None) == (expected(case)["epoch"], True)
    assert image.written_by == BEGAN[expected(case)["spark"].rpartition(".")[0]]
    assert [finding for finding in image.findings if finding.level == "refuse"] == []
    assert {operator.id for operator in image.operators} == {
        store["operator"] for store in expected(case)["stores"]
    }


@pytest.mark.row("IS-17")
def test_every_image_that_spark_wrote_is_judged_to_be_whole(case):
    judgement = look.restartable(HERE, on_a_disk(case).open, thorough=True)
    assert (judgement.restartable, judgement.epoch) == (True, expected(case)["epoch"])
    (note,) = judgement.findings
    assert note.level == "note" and "no checksum" in note.message


@pytest.mark.row("IS-12")
def test_typed_rows_are_what_spark_itself_reads(case):
    found = typed(case)
    for store in expected(case)["stores"]:
        rows = found.get((store["operator"], name_of(found, store)), [])
        rows = halved(rows) if case.name == "groups-hdfs-v1" else rows
        assert sorted(shaped(store, rows), key=repr) == sorted(
            map(list, store["rows"]), key=repr
        ), store


@pytest.mark.row("IS-16")
def test_every_key_lies_where_its_hash_says(case):
    storage, image = opened(case)
    views, count = views_of(storage, image), int(image.settings["spark.sql.shuffle.partitions"])
    for shard in image.shards:
        for entry in entries(storage.chunks, shard, image.settings):
            view = views.of(entry.operator, entry.store)
            values, types = view.placing(view.decode_key(entry.key))
            assert (partition_of(values, types, count) if values else 0) == shard.shard, entry


@pytest.mark.row("IS-12")
def test_a_shard_written_anew_as_one_image_folds_to_the_same_entries(case):
    """As Spark starts from, too: one snapshot, or an empty version of RocksDB and a changelog
    with everything.
    """
    storage, image = opened(case)
    settings = {**image.settings, ROW_CHECKSUM: "false"}
    for shard in image.shards:
        before = sorted(entries(storage.chunks, shard, image.settings))
        rocksdb = any(path.endswith((".zip", ".changelog")) for path in shard.files)
        files = (
            rewritten_rocksdb(before)
            if rocksdb
            else {"9.snapshot": encode_delta(map(record, before), "zstd")}
        )
        files = {path: b"".join(content) for path, content in files.items()}
        again = replace(shard, files=tuple(files))
        assert (
            sorted(entries(lambda path, files=files: iter([files[path]]), again, settings))
            == before
        )


def rewritten_rocksdb(before):
    families = {
        name: number
        for number, name in enumerate(sorted({e.store.partition("/")[2] for e in before} - {""}))
    }
    numbers = {name: number.to_bytes(2, "little") for name, number in families.items()}
    records = [
        StateRecord(numbers.get(e.store.partition("/")[2], b"") + e.key, e.value) for e in before
    ]
    changelog = encode_changelog(Changelog(2 if families else 1), records)
    return {"8.zip": [encode_zip(RocksDBSnapshot((), -1, families))], "9.changelog": changelog}


def record(entry):
    return StateRecord(entry.key, entry.value)


@pytest.mark.row("IS-12")
def test_what_spark_keeps_twice_agrees(case):
    """Indexes, counts and timers that its reader does not show."""
    found = {
        (operator, store.removeprefix("default/")): rows
        for (operator, store), rows in typed(case).items()
    }
    for (operator, store), rows in found.items():
        if store.endswith("-keyToNumValues"):
            values = found.get(
                (operator, store.replace("keyToNumValues", "keyWithIndexToValue")), []
            )
            expected = [
                [shard, [*key, index]] for shard, key, (count,) in rows for index in range(count)
            ]
            assert sorted(expected, key=repr) == sorted((row[:2] for row in values), key=repr)
        elif store.endswith("-tsWithKey"):
            values = found[operator, store.replace("tsWithKey", "keyWithTsToValues")]
            assert counted(rows) == counted(values)
        elif store.endswith("_timestampToKey"):
            keyed = found[operator, store.replace("timestampToKey", "keyToTimestamp")]
            assert sorted([s, [key, at], v] for s, (at, key), v in rows) == sorted(keyed)
        elif store.startswith(("$rowCounter_", "$count_")):
            values = found[operator, store.partition("_")[2]]
            assert {repr(key): n for _, key, (n,) in rows} == {
                repr(key): len(value) for _, key, value in values
            }
        elif store.startswith("$min_"):
            values = found[operator, store.removeprefix("$min_")]
            soonest = {repr(key): min(at for _, at in value) for _, key, value in values}
            assert {repr(key): at for _, key, (at,) in rows} == soonest


def halved(rows):
    """Spark's reader takes the last column for the integer that its schema says, and shows half of
    what is there: times of timeouts, in milliseconds. (Its own query reads all of it.)
    """
    times = [value[-1] for _, _, value in rows]
    assert (
        all(time == -1 or 1_767_000_000_000 < time < 1_768_000_000_000 for time in times)
        and max(times) > 0
    )
    return [
        [shard, key, [*value[:-1], (value[-1] + 2**31) % 2**32 - 2**31]]
        for shard, key, value in rows
    ]


def counted(rows):
    return sorted((repr(key), shard, len(value)) for shard, key, value in rows)


def opened(case):
    storage = open_storage(str(case / "checkpoint"))
    (image,) = survey(storage).images
    return storage, image


def typed(case):
    """(operator, store) -> [shard, key, value], decoded."""
    storage, image = opened(case)
    views = views_of(storage, image)
    found = {}
    for shard in image.shards:
        for entry in entries(storage.chunks, shard, image.settings):
            view = views.of(entry.operator, entry.store)
            key, value = plain(view.decode_key(entry.key)), view.decode_value(entry.value)
            rows = value if isinstance(value, list) else [value]
            rows = [in_order(row, view.value) for row in rows]
            value = rows if isinstance(value, list) else rows[0]
            found.setdefault((entry.operator, entry.store), []).append([shard.shard, key, value])
    return found


def in_order(value, kind):
    """As `expected.json` has it, where a map's pairs are in the order of their texts."""
    match kind:
        case StructType() if value is not None:
            return [in_order(one, own) for one, own in zip(value, kind.types, strict=True)]
        case ArrayType() if value is not None:
            return [in_order(one, kind.element) for one in value]
        case MapType() if value is not None:
            return sorted(
                ([in_order(k, kind.key), in_order(v, kind.value)] for k, v in value), key=repr
            )
    return plain(value)


def name_of(found, store):
    """The store, or the column family, that holds what Spark's reader calls by this name."""
    name = store.get("variable", store.get("store"))
    if store.get("kind") == "timers":
        return next(name for _, name in found if name.endswith("keyToTimestamp"))
    return f"default/{name}" if (store["operator"], f"default/{name}") in found else name


def shaped(store, rows):
    """Our rows as the reader gives them: lists row by row, maps gathered."""
    match store.get("kind"):
        case "map":
            gathered = {}
            for shard, (key, user_key), value in rows:
                gathered.setdefault((shard, repr(key)), (key, []))[1].append([user_key, value])
            return [
                [shard, key, sorted(pairs, key=repr)]
                for (shard, _), (key, pairs) in gathered.items()
            ]
        case "timers":
            return [[shard, key, at] for shard, (key, at), _ in rows]
    if "keyWithTs" in store.get("store", ""):
        return [[shard, key, row] for shard, key, value in rows for row in value]
    return rows
