"""Every file that a real Spark wrote is read, and written back byte for byte. What is in the state:
see engines/spark/test_images.
"""

import pytest

from stateshift.errors import FormatError
from stateshift.formats.spark.commits import decode_commit, encode_commit
from stateshift.formats.spark.metadata import decode_metadata, encode_metadata
from stateshift.formats.spark.offsets import PARTITIONS, decode_offsets, encode_offsets, with_conf
from stateshift.formats.spark.operator_metadata import (
    decode_operator_metadata,
    encode_operator_metadata,
)
from stateshift.formats.spark.rocksdb import decode_zip
from stateshift.formats.spark.schema import decode_schema, encode_schema
from stateshift.formats.spark.source_log import decode_source_log, rewrite_source_log, source_kind
from stateshift.formats.spark.state_files import decode_changelog, decode_delta, encode_delta
from stateshift.formats.spark.uris import Relocation
from tests.formats.golden import CASES, IDS, chunks, files, paths
from tests.support.encoders import encode_changelog

pytestmark = pytest.mark.parametrize("case", CASES, ids=IDS)

WRITTEN_BACK = {
    "metadata": lambda content: encode_metadata(decode_metadata(content)),
    "offsets": lambda content: encode_offsets(decode_offsets(content)),
    "commits": lambda content: encode_commit(decode_commit(content)),
    "state-metadata": lambda content: encode_operator_metadata(decode_operator_metadata(content)),
    "state-schema": lambda content: encode_schema(decode_schema(content)),
    "sources": lambda content: b"".join(
        rewrite_source_log([content], Relocation({"file:///tmp": "file:///tmp"}))
    ),
}


@pytest.mark.row("IS-13")
def test_every_path_of_a_checkpoint_is_known(case):
    assert [name for name, what in paths(case) if what.area in ("other", "temporary", "ours")] == []


@pytest.mark.row("IS-13")
@pytest.mark.parametrize("area", WRITTEN_BACK)
def test_logs_metadata_and_schemas_are_written_back_byte_for_byte(case, area):
    for path in files(case, area):
        content = path.read_bytes()
        if area == "sources" and case.name in ("rate", "kafka"):
            continue  # not a log of files: it is copied as it is
        assert WRITTEN_BACK[area](content) == content, path


def test_a_changed_configuration_is_written_as_spark_would(case):
    for path in files(case, "offsets"):
        entry = decode_offsets(path.read_bytes())
        changed = with_conf(entry, {PARTITIONS: "11"})
        assert (
            encode_offsets(with_conf(changed, {PARTITIONS: entry.conf[PARTITIONS]}))
            == path.read_bytes()
        )


def test_sources_are_recognised(case):
    if case.name in ("rate", "kafka"):
        assert {source_kind(path.read_bytes()) for path in files(case, "sources")} == {case.name}
        return
    for path in files(case, "sources"):
        assert source_kind(path.read_bytes()) == "file"
        assert all(
            entry.path.startswith("file:///tmp/") for entry in decode_source_log(chunks(path, 50))
        )


@pytest.mark.row("IS-13")
def test_offsets_of_a_shape_of_their_own_are_kept_byte_for_byte(case):
    """Also where Spark's own JSON would look otherwise: blanks, escapes, an order of its own."""
    if case.name != "custom":
        return
    entry = decode_offsets((case / "checkpoint/offsets/2").read_bytes())
    (offset,) = entry.offsets
    assert offset.offset.startswith(
        '{"table": "orders", "cursor": {"at": 36, "path": ["a b", "\\u00e9", ""]'
    )
    changed = encode_offsets(with_conf(entry, {PARTITIONS: "11"}))
    assert changed.endswith(offset.offset.encode())


@pytest.mark.row("IS-13")
def test_every_state_file_is_read_and_its_records_survive_rewriting(case):
    for name, what in paths(case):
        path = case / "checkpoint" / name
        if what.area != "state":
            continue
        if what.kind in ("delta", "snapshot"):
            records = list(decode_delta(chunks(path)))
            assert list(decode_delta(encode_delta(records))) == records
        elif what.kind == "changelog":
            header, stream = decode_changelog(chunks(path))
            records = list(stream)
            again, rewritten = decode_changelog(encode_changelog(header, records, "zstd"))
            assert (again, list(rewritten)) == (header, records)


def test_a_state_file_cut_anywhere_is_refused(case):
    """Every file of the first partition; large ones at every seventh byte."""
    for name, what in paths(case):
        if what.partition == 0 and what.kind in ("delta", "snapshot", "changelog", "zip"):
            content = (case / "checkpoint" / name).read_bytes()
            for end in range(0, len(content), 1 if len(content) < 400 else 97):
                with pytest.raises(FormatError) as caught:
                    read_state(what.kind, content[:end])
                assert caught.value.offset == end or caught.value.offset == 0


def read_state(kind, content):
    if kind == "zip":
        decode_zip(content)
    elif kind == "changelog":
        list(decode_changelog([content])[1])
    else:
        list(decode_delta([content]))
