"""Values in Spark's text logs that Spark cannot read are refused: a real 4.3.0 did not start
from any of these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from stateshift.errors import FormatError
from stateshift.formats.spark.offset_conf import (
    AGGREGATION_FORMAT,
    BOOLEANS,
    ENCODING,
    GROUPS_FORMAT,
    INTEGERS,
    JOIN_FORMAT,
    MERGE_OPERATOR,
    POLICIES,
    ROCKSDB_FORMAT,
    fault_of_conf,
)
from stateshift.formats.spark.source_log import census_of
from tests.damage import images
from tests.damage.commands import about, document_of, run

NAME = "spark-4.3.0/window-hdfs"


@pytest.mark.parametrize(
    "entry",
    [
        b'{"path":"file:///in/a.json","timesPamp":1,"batchId":0}',
        b'{"path":"file:///in/a.json","timestamp":null,"batchId":0}',
        b'{"path":"file:///in/a.json","timestamp":"1","batchId":0}',
        b'{"path":"file:///in/a.json","timestamp":true,"batchId":0}',
    ],
)
def test_an_entry_of_a_file_sources_log_has_a_number_as_timestamp(entry: bytes) -> None:
    with pytest.raises(FormatError, match="timestamp"):
        census_of([b"v1\n", entry])


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [
        (b'{"logOffset":', b'{"logOffseu":'),
        (b'{"logOffset":', b'{"logOffset" :"1","x":'),
        (b'{"logOffset":', b'{"logOffset":true,"x":'),
        (b'rowChecksum.enabled":"false"', b'rowChecksum.enabled":"fal3e"'),
        (b'shuffle.partitions":"', b'shuffle.partitions":"x'),
        (b'multipleWatermarkPolicy":"min"', b'multipleWatermarkPolicy":"mio"'),
    ],
)
def test_a_value_of_another_type_in_the_newest_offsets_is_refused(
    whole: bytes, damaged: bytes
) -> None:
    golden = images.image(NAME)
    path = max(p for p in golden.files if "/offsets/" in p and not p.endswith(".crc"))
    content = golden.files[path]
    assert whole in content
    files = {**golden.files, path: content.replace(whole, damaged)}
    files.pop(path.replace("/offsets/", "/offsets/.") + ".crc", None)
    shown = run(images.on_a_disk(files), "verify", golden.location, "--deep", "--json")
    assert shown.code == 5, about(shown, document_of(shown))


def log_of(files: Mapping[str, bytes], folder: str) -> dict[int, str]:
    """Return the paths of a log's batches."""
    paths = [path for path in files if path.rpartition("/")[0].endswith(f"/{folder}")]
    names = {path.rpartition("/")[2]: path for path in paths}
    return {int(name): path for name, path in names.items() if name.isdecimal()}


@pytest.mark.parametrize("place", ["the batch before the last", "a planned batch"])
def test_a_file_source_s_offset_is_refused_wherever_a_start_reads_it(place: str) -> None:
    golden = images.image(NAME)
    offsets, commits = log_of(golden.files, "offsets"), log_of(golden.files, "commits")
    newest = max(offsets)
    files = dict(golden.files)
    if place == "a planned batch":
        del files[commits[newest]]
        files.pop(commits[newest].replace("/commits/", "/commits/.") + ".crc", None)
        path = offsets[newest]
    else:
        path = offsets[newest - 1]
    files.pop(path.replace("/offsets/", "/offsets/.") + ".crc", None)
    whole = run(images.on_a_disk(files), "verify", golden.location, "--deep", "--json")
    assert whole.code == 0, about(whole, document_of(whole))
    files[path] = files[path].replace(b'{"logOffset":', b'{"lnOffset":')
    shown = run(images.on_a_disk(files), "verify", golden.location, "--deep", "--json")
    document = document_of(shown)
    assert shown.code == 5, about(shown, document)
    number = path.rpartition("/")[2]
    assert f"offsets/{number} are" in json.dumps(document)
    assert "Spark wants a number as logOffset" in json.dumps(document)


def test_settings_are_checked_by_their_type_and_others_are_not() -> None:
    right = {
        **dict.fromkeys(BOOLEANS, " True"),
        **dict.fromkeys(INTEGERS, " +2"),
        **dict.fromkeys(POLICIES, "MAX"),
        "spark.acme.enabled": "perhaps",
    }
    assert fault_of_conf(right) is None
    for key in (*BOOLEANS, *INTEGERS, *POLICIES):
        assert key in (fault_of_conf({**right, key: "m1n"}) or "")
    assert fault_of_conf(dict.fromkeys(INTEGERS, str(1 << 31)))


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        (JOIN_FORMAT, "4", "5"),
        (AGGREGATION_FORMAT, "1", "3"),
        (GROUPS_FORMAT, "2", "0"),
        (MERGE_OPERATOR, "2", "9"),
        (ROCKSDB_FORMAT, "0", "-1"),
        (ENCODING, "AVRO", " avro"),
        (ENCODING, "unsaferow", "protobuf"),
        (*POLICIES, "MIN", " min"),
    ],
)
def test_of_some_settings_a_few_values_are_taken(key: str, right: str, wrong: str) -> None:
    assert fault_of_conf({key: right}) is None
    assert key in (fault_of_conf({key: wrong}) or "")
