"""Everything a real Spark wrote is read as Spark itself reads it, and written back byte for byte."""

import pytest

from stateshift.engines.spark.entries import entries
from stateshift.errors import FormatError
from stateshift.formats.spark.commits import decode_commit, encode_commit
from stateshift.formats.spark.metadata import decode_metadata, encode_metadata
from stateshift.formats.spark.offsets import PARTITIONS, decode_offsets, encode_offsets, with_conf
from stateshift.formats.spark.operator_metadata import decode_operator_metadata, encode_operator_metadata
from stateshift.formats.spark.placement import partition_of
from stateshift.formats.spark.rocksdb import decode_zip
from stateshift.formats.spark.schema import decode_schema, encode_schema
from stateshift.formats.spark.source_log import decode_source_log, rewrite_source_log, source_kind
from stateshift.formats.spark.state_files import (
    decode_changelog,
    decode_delta,
    encode_changelog,
    encode_delta,
)
from stateshift.formats.spark.types import StructType, decode_struct
from stateshift.formats.spark.unsafe_row import decode_row
from stateshift.formats.spark.uris import Relocation
from stateshift.survey import ShardFiles
from tests.formats.golden import CASES, IDS, chunks, expected, files, paths, plain, settings

pytestmark = pytest.mark.parametrize("case", CASES, ids=IDS)

WRITTEN_BACK = {
    "metadata": lambda content: encode_metadata(decode_metadata(content)),
    "offsets": lambda content: encode_offsets(decode_offsets(content)),
    "commits": lambda content: encode_commit(decode_commit(content)),
    "state-metadata": lambda content: encode_operator_metadata(decode_operator_metadata(content)),
    "state-schema": lambda content: encode_schema(decode_schema(content)),
    "sources": lambda content: b"".join(rewrite_source_log([content], Relocation({"file:///tmp": "file:///tmp"}))),
}


@pytest.mark.row("IS-13")
def test_every_path_of_a_checkpoint_is_known(case):
    assert [name for name, what in paths(case) if what.area in ("other", "temporary", "ours")] == []


@pytest.mark.row("IS-13")
@pytest.mark.parametrize("area", WRITTEN_BACK)
def test_logs_metadata_and_schemas_are_written_back_byte_for_byte(case, area):
    for path in files(case, area):
        content = path.read_bytes()
        if area == "sources" and case.name == "rate":
            continue  # not a log of files: it is copied as it is
        assert WRITTEN_BACK[area](content) == content, path


def test_a_changed_configuration_is_written_as_spark_would(case):
    for path in files(case, "offsets"):
        entry = decode_offsets(path.read_bytes())
        changed = with_conf(entry, {PARTITIONS: "11"})
        assert encode_offsets(with_conf(changed, {PARTITIONS: entry.conf[PARTITIONS]})) == path.read_bytes()


def test_sources_are_recognised(case):
    if case.name == "rate":
        assert {source_kind(path.read_bytes()) for path in files(case, "sources")} == {"rate"}
        return
    for path in files(case, "sources"):
        assert source_kind(path.read_bytes()) == "file"
        assert all(entry.path.startswith("file:///tmp/") for entry in decode_source_log(chunks(path, 50)))


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


@pytest.mark.row("IS-12")
def test_entries_are_what_spark_itself_reads(case):
    for store, rows in stores(case):
        found = []
        for shard in range(expected(case)["shards"]):
            found += [[shard, plain(k), plain(v)] for k, v in decoded(case, store, shard)]
        assert sorted(found, key=repr) == sorted(rows, key=repr)


def test_every_key_lies_where_its_hash_says(case):
    count = expected(case)["shards"]
    for store, _ in stores(case):
        schema = key_schema(case, store)
        columns = len(schema.types) - (("keyWithIndex" in store) or ("keyWithTs" in store))
        for shard in range(count):
            for key, _ in decoded(case, store, shard):
                assert partition_of(key[:columns], schema.types[:columns], count) == shard


def test_a_state_file_cut_anywhere_is_refused(case):
    """Every file of the first partition; large ones at every seventh byte."""
    for name, what in paths(case):
        if what.partition == 0 and what.kind in ("delta", "snapshot", "changelog", "zip"):
            content = (case / "checkpoint" / name).read_bytes()
            for end in range(0, len(content), 1 if len(content) < 400 else 97):
                with pytest.raises(FormatError) as caught:
                    read_state(what.kind, content[:end])
                assert caught.value.offset == end or caught.value.offset == 0


def stores(case):
    return [(store["store"], store["rows"]) for store in expected(case)["stores"]]


def read_state(kind, content):
    if kind == "zip":
        decode_zip(content)
    elif kind == "changelog":
        list(decode_changelog([content])[1])
    else:
        list(decode_delta([content]))


def decoded(case, store, shard):
    """Keys and values of a store in one partition, as rows."""
    found = families(case, store)
    name, wanted = ("default", f"default/{store}") if found else (store, store)
    rocksdb = "RocksDB" in settings(case)["spark.sql.streaming.stateStore.providerClass"]
    schema = schema_of(case, store)
    key_type, value_type = decode_struct(schema.key), decode_struct(schema.value)
    for entry in entries(reader(case), shard_files(case, name, shard), settings(case)):
        if entry.store == wanted:
            key, value = (entry.key[1:], entry.value[1:]) if rocksdb else (entry.key, entry.value)
            if "keyWithTs" in store:
                yield from listed(key, entry.value, key_type, value_type)
            else:
                yield decode_row(key, key_type), decode_row(value, value_type)


def listed(key, value, key_type, value_type):
    """Join state 4: key | time, and a list of (i32LE size | 0x00 | row)."""
    columns = StructType(key_type.names[:-1], key_type.types[:-1])  # the time stands beside the row
    row, at = decode_row(key[:-8], columns), int.from_bytes(key[-8:], "big") - (1 << 63)
    while value:
        size = int.from_bytes(value[:4], "little")
        yield (*row, at), decode_row(value[5 : 4 + size], value_type)
        value = value[4 + size :]


def families(case, store):
    return any(
        s.name == store
        for path in files(case, "state-schema")
        for s in decode_schema(path.read_bytes()).stores
        if "_stateSchema" in path.as_posix()
    )


def schema_of(case, store):
    for name, what in paths(case):
        if what.area == "state-schema":
            schema = decode_schema((case / "checkpoint" / name).read_bytes())
            if schema.version == 3:
                return next(s for s in schema.stores if s.name == store)
            if what.store == store:
                return schema.stores[0]
    raise AssertionError(f"no schema of {store}")


def key_schema(case, store):
    return decode_struct(schema_of(case, store).key)


def reader(case):
    return lambda path: chunks(case / "checkpoint" / path, 512)


def shard_files(case, store, shard):
    """What the version after the epoch is folded from: the newest whole image, and what came after it."""
    version = expected(case)["epoch"] + 1
    here = [(n, w) for n, w in paths(case) if (w.area, w.partition, w.store) == ("state", shard, store)]
    ids = chosen(case, here, shard)
    whole = [(n, w) for n, w in here if w.kind in ("snapshot", "zip") and w.version <= version and ids(w)]
    base = max(whole, key=lambda item: item[1].version, default=None)
    since = base[1].version if base else 0
    changes = [(n, w) for n, w in here if w.kind in ("delta", "changelog") and since < w.version <= version and ids(w)]
    changes.sort(key=lambda item: item[1].version)
    assert [w.version for _, w in changes] == list(range(since + 1, version + 1)) or not changes
    tables = [n for n, w in here if w.kind == "sst"]
    return ShardFiles(
        "0", store, shard, tuple([n for n, _ in ([base] if base else [])] + tables + [n for n, _ in changes])
    )


def chosen(case, here, shard):
    """Checkpoint format 2 has files of abandoned attempts: the commit log says which ids count."""
    commits = (decode_commit(path.read_bytes()) for path in files(case, "commits"))
    uuids = {
        stores[0] for commit in commits for stores in commit.state_ids.get("0", ((),) * 9)[shard : shard + 1] if stores
    }
    return (lambda what: what.uuid in uuids) if uuids else (lambda what: True)
