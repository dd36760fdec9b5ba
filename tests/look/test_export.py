"""Exported state is what Spark itself reads, in every format; what cannot be exported as asked
is refused by name.
"""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stateshift import look
from stateshift.engines.spark.entries.store_view import StoreView
from stateshift.engines.spark.views.export import ROWS, Tables
from stateshift.errors import FormatError, MissingFile, PlanError, SpecError
from stateshift.formats.spark.state_files import StateRecord, encode_delta
from stateshift.testing.memory_storage import MemoryDisk
from tests.formats.golden import expected
from tests.look.golden_images import (
    HERE,
    NEWEST,
    STATEFUL,
    as_spark_reads,
    by_spark,
    from_arrow,
    from_json,
    on_a_disk,
)
from tests.support.checkpoints import Checkpoint, put

IDS = [f"{case.parent.name}/{case.name}" for case in STATEFUL]
OUT = "file:///out/state"


def lines(disk, wanted=None, location=HERE):
    made = look.export(location, "-", wanted, disk.open)
    return [json.loads(line) for line in b"".join(made.chunks()).splitlines()]


def table(disk, suffix, wanted=None):
    made = look.export(HERE, f"{OUT}{suffix}", wanted, disk.open)
    size = look.save(made, f"{OUT}{suffix}", disk.open)
    content = disk.open("file:///out").read(f"state{suffix}")
    assert size == len(content)
    read = (
        pq.read_table(io.BytesIO(content))
        if suffix == ".parquet"
        else pa.ipc.open_file(content).read_all()
    )
    assert read.num_rows == made.entries
    return read


@pytest.mark.row("IS-12")
@pytest.mark.parametrize("case", STATEFUL, ids=IDS)
def test_json_lines_hold_what_spark_itself_reads(case):
    found = as_spark_reads(case, from_json(lines(on_a_disk(case))))
    assert {store: found.get(store, []) for store in by_spark(case)} == by_spark(case)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("case", STATEFUL, ids=IDS)
def test_every_store_as_a_table_holds_what_spark_itself_reads(case, suffix):
    disk = on_a_disk(case)
    for (operator, store), rows in by_spark(case).items():
        if rows:
            if suffix == ".parquet":  # which has no structs without fields
                rows = [[shard, key or None, value] for shard, key, value in rows]
            found = from_arrow(table(disk, suffix, look.Wanted(operator, store)))
            assert as_spark_reads(case, found) == {(operator, store): rows}


def test_columns_have_the_types_that_spark_gave_them():
    schema = table(on_a_disk(NEWEST["types"]), ".parquet").schema
    assert schema.names == ["operator", "store", "shard", "key", "value"]
    types = {field.name: field.type for field in schema.field("key").type}
    assert types["i8"] == pa.int8() and types["d"] == pa.date32() and types["raw"] == pa.binary()
    assert types["t"] == pa.timestamp("us", "UTC") and types["n"] == pa.timestamp("us")
    assert types["small"] == pa.decimal128(10, 2) and types["large"] == pa.decimal128(30, 5)
    assert (
        types["nested"].field("y").type == pa.string() and types["shorts"].value_type == pa.int16()
    )


@pytest.mark.parametrize("batch", [1, 3])
def test_an_earlier_batch_is_the_state_as_that_batch_left_it(batch):
    """Replayed from the changes, batch by batch."""
    disk, state = on_a_disk(NEWEST["dedup-zstd"]), {}
    for line in lines(disk, look.Wanted(changes=(0, batch))):
        apply(state, line)
    found = lines(disk, look.Wanted(batch=batch))
    assert {json.dumps(line["key"]): line["value"] for line in found} == state


CHANGED = [f"{name}-checksum" for name in ("join-hdfs", "join-rocksdb-v3", "dedup-rocksdb")]
CHANGED += ["window-rocksdb-format2", "types"]


@pytest.mark.parametrize("name", CHANGED)
def test_all_changes_together_come_to_the_state(name):
    disk, states = on_a_disk(NEWEST[name]), {}
    last = expected(NEWEST[name])["epoch"]
    for line in lines(disk, look.Wanted(changes=(0, last))):
        assert line["batch"] <= last and line["change"] in ("put", "delete")
        apply(states.setdefault(line["store"], {}), line)
    found = {}
    for line in lines(disk):
        found.setdefault(line["store"], {})[json.dumps(line["key"])] = line["value"]
    assert {store: state for store, state in states.items() if state} == found


def apply(state, line):
    if line["change"] == "delete":
        assert line["value"] is None
        state.pop(json.dumps(line["key"]), None)
    else:
        state[json.dumps(line["key"])] = line["value"]


def test_changes_are_a_table_too():
    read = table(on_a_disk(NEWEST["dedup-lzf"]), ".parquet", look.Wanted(changes=(2, 3)))
    assert read.schema.names == ["batch", "change", "operator", "store", "shard", "key", "value"]
    assert set(read.column("batch").to_pylist()) == {2, 3}


def test_changes_that_were_tidied_away_are_named_and_not_left_out():
    disk = on_a_disk(NEWEST["dedup-lzf"])
    disk.open(HERE).remove("state/0/1/3.delta")
    with pytest.raises(PlanError, match="changes of batch 2 in shard 1"):
        lines(disk, look.Wanted(changes=(1, 4)))
    assert lines(disk, look.Wanted(changes=(3, 4)))


def test_a_table_takes_stores_of_one_schema_and_says_how_to_choose():
    disk = on_a_disk(NEWEST["join-hdfs"])
    with pytest.raises(PlanError, match=r"left-keyToNumValues, left-keyWithIndexToValue") as caught:
        look.export(HERE, "x.parquet", None, disk.open)
    assert "--store" in caught.value.hint
    assert len({line["store"] for line in lines(disk)}) == 4


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (look.Wanted(operator="7"), "no operator 7"),
        (look.Wanted(store="nothing"), "no store nothing"),
        (look.Wanted(batch=99), "batch 99"),
        (look.Wanted(changes=(3, 99)), "no changes of batches 3 to 99"),
        (look.Wanted(changes=(3, 2)), "no changes of batches 3 to 2"),
    ],
)
def test_what_is_not_there_is_refused_by_name(wanted, said):
    with pytest.raises(PlanError, match=said) as caught:
        look.export(HERE, "-", wanted, on_a_disk(NEWEST["window-hdfs"]).open)
    assert caught.value.hint


def test_a_suffix_that_is_not_known_and_a_file_inside_of_the_checkpoint_are_refused():
    disk = on_a_disk(NEWEST["window-hdfs"])
    with pytest.raises(SpecError, match=r"\.csv"):
        look.export(HERE, "state.csv", None, disk.open)
    with pytest.raises(PlanError, match="inside"):
        look.export(HERE, f"{HERE}/state.parquet", None, disk.open)
    with pytest.raises(MissingFile):
        look.export("file:///nowhere", "-", None, disk.open)


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_an_export_that_fails_leaves_no_file(suffix):
    disk = on_a_disk(NEWEST["window-hdfs"])
    torn = b"".join(encode_delta([StateRecord(bytes(5), bytes(8))]))
    for shard in range(3):
        put(disk.open(HERE), f"state/0/{shard}/6.snapshot", torn)
    made = look.export(HERE, f"{OUT}{suffix}", None, disk.open)
    with pytest.raises(FormatError, match="does not fit its schema"):
        look.save(made, f"{OUT}{suffix}", disk.open)
    assert not list(disk.open("file:///out").list())


def test_state_without_a_schema_is_exported_as_bytes():
    disk = MemoryDisk()
    Checkpoint(shards=1, keys=2).write(disk.open(HERE))
    assert [line["key"].keys() for line in lines(disk)] == [{"hex"}, {"hex"}]
    assert table(disk, ".arrow").schema.field("key").type == pa.binary()


def test_a_state_that_is_not_whole_is_not_exported_in_part():
    disk = on_a_disk(NEWEST["window-hdfs"])
    for name in ("6.snapshot", "6.delta"):
        disk.open(HERE).remove(f"state/0/1/{name}")
    with pytest.raises(PlanError, match="not whole"):
        look.export(HERE, "-", None, disk.open)


def test_operators_of_a_workflow_are_told_apart_by_their_directories():
    disk = on_a_disk(NEWEST["window-hdfs"], f"{HERE}/one")
    on_a_disk(NEWEST["window-rocksdb"], f"{HERE}/two", disk)
    assert {line["operator"] for line in lines(disk)} == {"one/0", "two/0"}
    assert {line["operator"] for line in lines(disk, look.Wanted(operator="two/0"))} == {"two/0"}


@pytest.mark.parametrize("sizes", [(3,), (ROWS, 5), (9, 2 * ROWS + 1, 70_000, 3)])
def test_a_table_is_written_in_parts_of_one_size_whatever_batches_it_comes_in(sizes):
    made = Tables("parquet", StoreView("0", "default"), changes=False)
    content = b""
    for size in sizes:
        rows = pa.array([b"row"] * size)
        content += made.written(made.batch(("0", "default", 0), rows, rows))
    file = pq.ParquetFile(io.BytesIO(content + made.finished()))
    parts = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    whole, rest = divmod(sum(sizes), ROWS)
    assert parts == [ROWS] * whole + [rest]
