"""What dropDuplicates keeps, where the schema beside it lists the columns of its input (Spark
before 3.3.1).
"""

from __future__ import annotations

import pytest

from stateshift import look
from stateshift.engines.spark.entries.store_view import VALUE
from stateshift.engines.spark.entries.store_views import views_of
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.formats.spark.schema import SchemaFile, StoreSchema, encode_schema
from stateshift.formats.spark.state_files import StateRecord, decode_delta, encode_delta
from tests.formats.golden import CASES
from tests.look.golden_images import HERE, contents, on_a_disk, write

OLD = [case for case in CASES if case.name.startswith("dedup-old-")]
SCHEMA = "state/0/0/_metadata/schema"


@pytest.mark.parametrize("case", OLD, ids=[f"{case.parent.name}/{case.name}" for case in OLD])
def test_a_value_is_one_null_whatever_the_schema_lists(case):
    storage = on_a_disk(case).open(HERE)
    (image,) = survey(storage).images
    view = views_of(storage, image).of("0", "default")
    assert len(view.value.types) == 1
    assert view.value == VALUE or case.name == "dedup-old-one"
    found = look.restartable(HERE, on_a_disk(case).open, thorough=True)
    assert found.restartable
    assert [one.message for one in found.findings if "no checksum" not in one.message] == []


def hdfs():
    return next(case for case in OLD if case.name == "dedup-old-hdfs")


def changed(files, change):
    """The files with every value of every delta changed."""
    made = {}
    for path, content in files.items():
        if path.endswith((".delta", ".snapshot")):
            records = [
                StateRecord(key, change(value))
                for key, value, _ in decode_delta([content])
                if value is not None
            ]
            content = b"".join(encode_delta(records))
        made[path] = content
    return made


def restartable(files):
    disk = on_a_disk(hdfs(), "file:///elsewhere")
    write(disk.open(HERE), files)
    return look.restartable(HERE, disk.open, thorough=True)


def test_an_aggregate_whose_buffers_are_called_as_its_key_keeps_its_schema():
    """No row of two columns or more is as short as the one null; a row that is too short for
    them is damaged.
    """
    files = changed(contents(hdfs()), lambda value: bytes(8 + 8 * 4))
    assert restartable(files).restartable
    assert not restartable(changed(files, lambda value: bytes(24))).restartable


def test_a_damaged_row_among_nulls_is_still_refused():
    files = contents(hdfs())
    (image,) = survey(on_a_disk(hdfs()).open(HERE)).images
    paths = [path for shard in image.shards for path in shard.files]
    path, records = next((p, held) for p in paths if (held := list(decode_delta([files[p]]))))
    records.append(StateRecord(b"a key of its own" * 2, bytes(12)))
    found = restartable({**files, path: b"".join(encode_delta(records))})
    assert not found.restartable
    assert any(path in finding.message for finding in found.findings)


def test_the_operators_own_name_is_enough():
    """From 4.0 on its metadata says so: no file of the state is needed."""
    files = contents(hdfs())
    metadata = (
        'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"},'
        '"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]}'
    )
    one = (
        '{"type":"struct","fields":[{"name":"word","type":"string","nullable":true,"metadata":{}}]}'
    )
    files |= {
        "state/0/_metadata/metadata": metadata.encode(),
        SCHEMA: encode_schema(SchemaFile(2, (StoreSchema(one, one),))),
    }
    disk = on_a_disk(hdfs(), "file:///elsewhere")
    write(disk.open(HERE), files)
    storage = disk.open(HERE)
    (image,) = survey(storage).images
    assert views_of(storage, image).of("0", "default").value == VALUE
