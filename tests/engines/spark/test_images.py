"""The golden checkpoints of every Spark version as whole images: surveyed, judged, and read as Spark reads them."""


import pytest

from stateshift import look
from stateshift.engines.spark.entries import entries
from stateshift.engines.spark.survey import survey
from stateshift.engines.spark.views import views_of
from stateshift.formats.spark.placement import partition_of
from stateshift.storage.opening import open_storage
from tests.formats.golden import CASES, IDS, expected, plain

pytestmark = pytest.mark.parametrize("case", CASES, ids=IDS)

BEGAN = {
    "3.3": "3.3 or later", "3.4": "3.3 or later", "3.5": "3.5 or later", "4.0": "4.0 or later", "4.1": "4.0 or later",
    "4.2": "4.2 or later", "4.3": "4.3 or later",
}  # fmt: skip


@pytest.mark.row("IS-13")
def test_a_survey_finds_the_epoch_and_the_version_of_what_spark_wrote(case):
    _, image = opened(case)
    assert (image.epoch, image.identity is not None) == (expected(case)["epoch"], True)
    assert image.written_by == BEGAN[expected(case)["spark"].rpartition(".")[0]]
    assert [finding for finding in image.findings if finding.level == "refuse"] == []
    assert {operator.id for operator in image.operators} == {store["operator"] for store in expected(case)["stores"]}


@pytest.mark.row("IS-17")
def test_every_image_that_spark_wrote_is_judged_to_be_whole(case):
    judgement = look.restartable(str(case / "checkpoint"), thorough=True)
    assert (judgement.findings, judgement.restartable, judgement.epoch) == ((), True, expected(case)["epoch"])


@pytest.mark.row("IS-12")
def test_typed_rows_are_what_spark_itself_reads(case):
    found = typed(case)
    for store in expected(case)["stores"]:
        rows = found.get((store["operator"], name_of(found, store)), [])
        assert sorted(shaped(store, rows), key=repr) == sorted(map(list, store["rows"]), key=repr), store


@pytest.mark.row("IS-12")
def test_raw_entries_are_what_spark_itself_reads(case):
    storage, image = opened(case)
    for raw in expected(case).get("raw", ()):
        found = [
            [shard.shard, entry.store.partition("/")[2], entry.key.hex(), entry.value.hex()]
            for shard in image.shards
            if shard.operator == raw["operator"]
            for entry in entries(storage.chunks, shard, image.settings)
        ]
        assert sorted(found) == sorted(raw["rows"])


@pytest.mark.row("IS-16")
def test_every_key_lies_where_its_hash_says(case):
    storage, image = opened(case)
    views, count = views_of(storage, image), int(image.settings["spark.sql.shuffle.partitions"])
    for shard in image.shards:
        for entry in entries(storage.chunks, shard, image.settings):
            view = views.of(entry.operator, entry.store)
            values, types = view.placing(view.decode_key(entry.key))
            assert (partition_of(values, types, count) if values else 0) == shard.shard, entry


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
            value = [plain(row) for row in value] if isinstance(value, list) else plain(value)
            found.setdefault((entry.operator, entry.store), []).append([shard.shard, key, value])
    return found


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
            return [[shard, key, sorted(pairs, key=repr)] for (shard, _), (key, pairs) in gathered.items()]
        case "timers":
            return [[shard, key, at] for shard, (key, at), _ in rows]
    if "keyWithTs" in store.get("store", ""):
        return [[shard, key, row] for shard, key, value in rows for row in value]
    return rows
