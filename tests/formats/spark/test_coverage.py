"""Every version of every format that we claim to read is there as a file that a real Spark
wrote.
"""

import pytest

from stateshift.formats.spark import commits, offsets, operator_metadata, schema, state_files
from stateshift.formats.spark.commits import decode_commit
from stateshift.formats.spark.compression import CODECS
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.formats.spark.operator_metadata import decode_operator_metadata
from stateshift.formats.spark.rocksdb import VERSIONS, decode_zip
from stateshift.formats.spark.schema import decode_schema
from stateshift.formats.spark.state_files import decode_changelog
from tests.formats.golden import CASES, chunks, files, paths, settings

BEFORE_3_1 = {1}  # schema files that no Spark which runs on Java 17 writes


def of_kind(kind):
    return [
        case / "checkpoint" / name
        for case in CASES
        for name, what in paths(case)
        if what.kind == kind
    ]


def of_area(area):
    return [path for case in CASES for path in files(case, area)]


@pytest.mark.row("IS-11")
def test_every_spark_that_we_claim_to_read_has_written_some():
    versions = {case.parent.name.removeprefix("spark-").rpartition(".")[0] for case in CASES}
    # Of 3.2 there is what 3.3.0 still wrote in the same way: dropDuplicates with all columns in its
    # schema.
    assert versions - {"3.2"} == {"3.3", "3.4", "3.5", "4.0", "4.1", "4.2", "4.3"}


@pytest.mark.row("IS-13")
def test_every_version_of_a_log_or_a_schema_is_among_them():
    assert {decode_offsets(path.read_bytes()).version for path in of_area("offsets")} == set(
        offsets.VERSIONS
    )
    assert {decode_commit(path.read_bytes()).version for path in of_area("commits")} == set(
        commits.VERSIONS
    )
    found = {
        decode_operator_metadata(path.read_bytes()).version for path in of_area("state-metadata")
    }
    assert found == set(operator_metadata.VERSIONS)
    found = {decode_schema(path.read_bytes()).version for path in of_area("state-schema")}
    assert found == set(schema.VERSIONS) - BEFORE_3_1


@pytest.mark.row("IS-13")
def test_every_version_of_a_state_file_is_among_them():
    found = {decode_changelog(chunks(path))[0].version for path in of_kind("changelog")}
    assert found == set(state_files.CHANGELOG_VERSIONS)
    assert {decode_zip(path.read_bytes()).format for path in of_kind("zip")} == set(VERSIONS)
    codecs = {settings(case)["spark.sql.streaming.stateStore.compression.codec"] for case in CASES}
    assert codecs == set(CODECS)
