"""Logs, metadata, schemas and checksums: the small files of a checkpoint."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

from stateshift.engines.spark.entries import single_file as decoding
from stateshift.errors import FormatError
from stateshift.formats.spark import (
    commits,
    crc,
    metadata,
    offsets,
    operator_metadata,
    schema,
    source_log,
)
from stateshift.formats.spark.uris import Relocation
from tests.fuzz.oracles import attempt, same
from tests.fuzz.seeds import golden
from tests.fuzz.targets import Target, spark
from tests.support import encoders

NEW_ID = "22222222-2222-3333-4444-555555555555"
MOVED = Relocation({"file:///": "s3a://bucket/new", "file:///tmp": "hdfs://nn/x"})


def run_metadata(data: bytes) -> None:
    found = attempt(lambda: metadata.decode_metadata(data), len(data))
    if found is not None:
        same(metadata.encode_metadata(found), data, "metadata written back")
        other = metadata.decode_metadata(metadata.encode_metadata(encoders.with_id(found, NEW_ID)))
        same(other.id, NEW_ID, "a new id")
        _shown("metadata", data)


def run_offsets(data: bytes) -> None:
    found = attempt(lambda: offsets.decode_offsets(data), len(data))
    if found is None:
        return
    same(offsets.decode_offsets(offsets.encode_offsets(found)), found, "offsets written back")
    _shown("offsets/7", data)
    changed = offsets.with_conf(found, {offsets.PARTITIONS: "17"})
    again = offsets.decode_offsets(offsets.encode_offsets(changed))
    same(again, changed, "offsets under another conf")
    same(
        (again.offsets, again.watermark_ms),
        (found.offsets, found.watermark_ms),
        "what another conf leaves alone",
    )
    twice = attempt(lambda: offsets.unite_offsets([found, found]), must_tell=False)
    if twice is not None:
        offsets.decode_offsets(offsets.encode_offsets(twice))


def run_commits(data: bytes) -> None:
    found = attempt(lambda: commits.decode_commit(data), len(data))
    if found is None:
        return
    same(commits.decode_commit(commits.encode_commit(found)), found, "a commit written back")
    _shown("commits/7", data)
    for changed in (
        commits.with_watermark(found, 5),
        commits.with_state_ids(found, None),
        commits.with_state_ids(found, {"0": [["a"]]}),
    ):
        same(
            commits.decode_commit(commits.encode_commit(changed)),
            changed,
            "a commit that was changed",
        )


def run_source_log(data: bytes) -> None:
    kind = source_log.source_kind(data)
    if kind in ("rate", "kafka"):
        text = attempt(lambda: source_log.decode_initial_offset(data), len(data))
        if text is not None:
            written = encoders.encode_initial_offset(text, kind)  # type: ignore[arg-type]
        same(source_log.decode_initial_offset(written), text, "an initial offset written back")
    whole = attempt(lambda: list(source_log.decode_source_log([data])), len(data))
    pieces = attempt(lambda: list(source_log.decode_source_log(_bytewise(data))), len(data))
    same(pieces, whole, "a log read byte by byte")
    if whole is None:
        return
    _shown("sources/0/7", data)
    written = b"".join(encoders.encode_source_log(entry.fields for entry in whole))
    same(
        [entry.fields for entry in source_log.decode_source_log([written])],
        [e.fields for e in whole],
        "a log",
    )
    kept = attempt(
        lambda: b"".join(source_log.rewrite_source_log([data], Relocation({}), "keep")), len(data)
    )
    if kept is not None:
        again = [entry.fields for entry in source_log.decode_source_log([kept])]
        same(again, [entry.fields for entry in whole], "a log of which nothing moves")
    moved = attempt(
        lambda: b"".join(source_log.rewrite_source_log([data], MOVED, "keep")), len(data)
    )
    if moved is not None:
        after = list(source_log.decode_source_log([moved]))
        same(
            [_without_path(e.fields) for e in after],
            [_without_path(e.fields) for e in whole],
            "all but the paths",
        )


def run_operator_metadata(data: bytes) -> None:
    found = attempt(lambda: operator_metadata.decode_operator_metadata(data), len(data))
    if found is None:
        return
    written = operator_metadata.encode_operator_metadata(found)
    same(
        operator_metadata.decode_operator_metadata(written),
        found,
        "an operator's metadata written back",
    )
    _shown("state/0/_metadata/metadata", data)
    wider = operator_metadata.with_partitions(found, 17)
    same({store.partitions for store in wider.stores} <= {17}, True, "another number of partitions")
    same(operator_metadata.with_operator(found, 3).operator, 3, "another operator")
    moved = attempt(lambda: operator_metadata.relocate_schema_files(found, MOVED), must_tell=False)
    if moved is not None:
        same(
            [store.name for store in moved.stores],
            [store.name for store in found.stores],
            "stores after a move",
        )


def run_schema(data: bytes) -> None:
    found = attempt(lambda: schema.decode_schema(data), len(data))
    if found is None:
        return
    same(schema.decode_schema(schema.encode_schema(found)), found, "a schema file written and read")
    _shown("state/0/0/_metadata/schema", data)


def run_crc(data: bytes) -> None:
    hadoop = attempt(lambda: crc.decode_hadoop_crc(data), len(data))
    if hadoop is not None:
        same(encoders.encode_hadoop_crc(hadoop), data, "Hadoop's checksums written back")
    found = attempt(lambda: crc.decode_spark_crc(data), len(data))
    if found is not None:
        same(encoders.encode_spark_crc(found), data, "Spark's checksum written back")
        same(0 <= found.value < 1 << 32, True, "a checksum of 32 bits")
    own = encoders.hadoop_checksums(data)
    same(
        crc.decode_hadoop_crc(encoders.encode_hadoop_crc(own)),
        own,
        "Hadoop's checksums of anything",
    )
    whole, pieces = crc.spark_checksum([data], 0), crc.spark_checksum(_bytewise(data), 0)
    same(
        (whole, crc.decode_spark_crc(whole.text.encode())),
        (pieces, whole),
        "Spark's checksum of anything",
    )


def _shown(path: str, data: bytes) -> None:
    """What `inspect` prints of it: what decodes can be shown, as text that a terminal takes."""
    with suppress(FormatError):
        "\n".join(decoding.decode_file(path, data).lines).encode("utf-8", "surrogatepass")


def _bytewise(data: bytes) -> list[bytes]:
    cuts = [*range(min(len(data), 64)), *range(64, len(data), 97), len(data)]
    return [data[start:end] for start, end in pairwise(cuts)]


def _without_path(fields: object) -> object:
    return {key: value for key, value in fields.items() if key != "path"}  # type: ignore[attr-defined]


WORDS = (
    b'"conf":{',
    b"\n-",
    b"v2\n",
    b"v3\n",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"\\u0000",
    b"\\ud800",
    b"1e999",
    b"NaN",
    b"-0",
    b"9223372036854775808",
    b"\xc0\x80",
    b'":"',
    b'","',
)

TARGETS = (
    Target(
        "metadata",
        run_metadata,
        lambda: golden("metadata")[:20],
        spark("metadata", "text"),
        (b'{"id":"', *WORDS),
    ),
    Target(
        "offsets",
        run_offsets,
        lambda: golden("offsets")[:80],
        spark("offsets", "text"),
        (
            b'"batchWatermarkMs":',
            b'"batchTimestampMs":',
            b'"sourceMetadataInfo":{}',
            b'{"logOffset":1}',
            *WORDS,
        ),
    ),
    Target(
        "commits",
        run_commits,
        lambda: golden("commits"),
        spark("commits", "text"),
        (b'"nextBatchWatermarkMs":', b'"stateUniqueIds":{', b'"sinkMetadataMap":{', b"[[", *WORDS),
    ),
    Target(
        "source-log",
        run_source_log,
        lambda: [*golden("sources"), *SINKS],
        spark("source_log", "uris", "text"),
        (b'{"path":"file:///', b'"timestamp":', b'"action":"add"', b"\x00v1\n", *WORDS),
    ),
    Target(
        "operator-metadata",
        run_operator_metadata,
        lambda: golden("state-metadata"),
        spark("operator_metadata", "uris", "text"),
        (
            b'"operatorInfo":{',
            b'"stateStoreInfo":[',
            b'"stateSchemaFilePaths":["',
            b'"operatorPropertiesJson":"',
            *WORDS,
        ),
    ),
    Target(
        "state-schema",
        run_schema,
        lambda: golden("state-schema"),
        spark("schema"),
        (
            b"\x00\x02v1",
            b"\x00\x02v2",
            b"\x00\x02v3",
            b"\x00\x00\x00\x01",
            b"\x00\x04{    }"[1:],
            b"\xed\xa0\x80",
        ),
    ),
    Target(
        "crc",
        run_crc,
        lambda: [*golden("sidecar")[:40], b"crc\0\0\0\2\0", b"crc\0\0\0\2\0abcd"],
        spark("crc", "text"),
        (b"crc\0", b'"algorithm":"CRC32C"', b'"value":', b'"mainFileSize":', *WORDS),
    ),
)

SINKS = (
    b'v1\n{"path":"file:///out/part-0.parquet","size":522,"isDir":false,"modificationTime":1,"action":"add"}',
    b'\x00v1\n{"topic":{"0":17}}',
    b'v1\n{"path":"s3a://b/k%20x","timestamp":1,"batchId":0}\n{"path":"file:/in/\\u00e9","timestamp":2,"batchId":0}\n',
)
