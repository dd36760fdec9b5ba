"""Keys of session windows, from one provider's form into the other's: what Spark itself writes
is the measure.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stateshift.engines.spark.entries.fold import fold_shard
from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.rewrite.evolution import rocksdb_key_maker, row_maker
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.specification.transform import Compact
from stateshift.storage.opening import open_patiently
from tests.formats.golden import CASES

SESSIONS = [case for case in CASES if case.name == "session-hdfs"]


def keys_of(case: Path) -> tuple[str, set[bytes]]:
    """The schema of the keys, and all of them."""
    storage = open_patiently(str(case / "checkpoint"))
    image = survey.survey(storage, changes=(Compact(),)).images[0]
    blocks = [
        block
        for shard in image.shards
        for _, block in fold_shard(storage.chunks, shard, image.settings)
    ]
    return spark_image(image).schemas["0/default"]["key"], {
        key for block in blocks for key, _ in block.records()
    }


@pytest.mark.row("IS-12")
@pytest.mark.parametrize("case", SESSIONS, ids=lambda case: case.parent.name)
def test_the_keys_of_one_query_become_those_that_spark_wrote_for_the_other_provider(
    case: Path,
) -> None:
    (schema, plain), (other, composite) = keys_of(case), keys_of(case.with_name("session-rocksdb"))
    assert [field["type"] for field in json.loads(schema)["fields"]] == [
        field["type"] for field in json.loads(other)["fields"]
    ]
    assert plain and {rocksdb_key_maker(schema)(key) for key in plain} == composite
    assert {row_maker(schema)(key) for key in composite} == plain
