"""The state of images, asked by SQL: every golden's tables hold what an export has; a question gets
one answer however often it names a table; nothing but a SELECT is carried out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from stateshift import api, look
from stateshift.errors import FormatError, MissingFile, SpecError
from stateshift.formats.spark.state_files import StateRecord, encode_delta
from stateshift.storage.protocol import Storage
from stateshift.table.query import answer
from stateshift.table.tables import tables_of
from stateshift.testing.memory_storage import MemoryDisk
from tests.cli.support import said
from tests.engines.flink import golden
from tests.formats.golden import ROOT
from tests.look.golden_images import HERE, STATEFUL, on_a_disk
from tests.support.checkpoints import Checkpoint, put

# What Flink keeps beside the states of a job: bytes that only it takes apart.
WITHOUT_A_NAME = ("in flight", "key groups", "finished", "raw ", "rocksdb", "changelog")
TABLES_ASKED = 4  # of each image


def asked(sql: str, *locations: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = api.query(sql, *locations).to_pylist()
    return rows


def holds_what_is_exported(location: str, opening: Callable[[str], Storage]) -> None:
    exported = Counter[tuple[str, str]]()
    for line in b"".join(look.export(location, "-", None, opening).chunks()).splitlines():
        row = json.loads(line)
        exported[row["operator"], row["store"]] += 1
    tables = tables_of([location], opening)
    named = {key for key in exported if not key[1].startswith(WITHOUT_A_NAME)}
    assert {(table.operator, table.store) for table in tables} >= named
    assert len({table.name for table in tables}) == len(tables)
    for table in tables[:TABLES_ASKED]:
        with answer(f"select count(*) from {table.name}", tables, opening) as given:
            (batch,) = given.batches
            assert batch[0][0].as_py() == exported[table.operator, table.store], table


@pytest.mark.sample(20)
@pytest.mark.parametrize("case", STATEFUL, ids=lambda case: f"{case.parent.name}/{case.name}")
def test_each_table_of_spark_has_the_entries_of_its_store(case: Path) -> None:
    holds_what_is_exported(HERE, on_a_disk(case).open)


@pytest.mark.sample(15)
@pytest.mark.parametrize("name", golden.NAMES)
def test_each_table_of_flink_has_the_entries_of_its_state(name: str) -> None:
    disk = MemoryDisk()
    holds_what_is_exported(golden.write(disk, name), disk.open)


JOIN = str(ROOT / "spark-4.3.0" / "join-hdfs" / "checkpoint")
LEFT, RIGHT = "state_0_left_keywithindextovalue", "state_0_right_keywithindextovalue"


@pytest.mark.parametrize(
    "sql",
    [
        f"select count(*) as n from {LEFT} a, {LEFT} b",
        f"with t as (from {LEFT}) select (select count(*) from t) * count(*) as n from t",
        f"select sum((select count(*) from {LEFT} b where b.shard = b.shard)) as n from {LEFT}",
        f"with recursive t(n) as (select 0 union all select n + (select count(*) from {LEFT}) "
        f"from t where n < (select count(*) * count(*) from {LEFT})) select max(n) as n from t",
    ],
)
def test_a_table_that_is_named_twice_is_whole_both_times(sql: str) -> None:
    (row,) = asked(f"select count(*) as n from {LEFT}", JOIN)
    count = row["n"]
    assert isinstance(count, int) and count > 1
    assert [int(each["n"]) for each in asked(sql, JOIN)] == [count * count]  # type: ignore[call-overload]


def test_two_images_and_a_file_beside_are_joined(tmp_path: Path) -> None:
    beside = tmp_path / "users.csv"
    beside.write_text("id\nalpha\nnobody\n")
    sql = (
        f"select count(*) as n from a_{LEFT} join b_{LEFT} using (key, value) "
        f"join read_csv('{beside}') u on u.id = key.field0"
    )
    (whole,) = asked(f"select count(*) as n from {LEFT} where key.field0 = 'alpha'", JOIN)
    assert asked(sql, JOIN, JOIN) == [whole]


@pytest.mark.parametrize(
    ("sql", "fact"),
    [
        (f"drop table {LEFT}", "no SELECT"),
        (f"copy (from {LEFT}) to '/tmp/x'", "no SELECT"),
        ("install httpfs", "no SELECT"),
        (f"select 1; select count(*) from {LEFT}", "several statements"),
        ("select from where", "syntax error"),
        ("select * from state_1", "state_1 does not exist"),
        (f"select customer from {LEFT}", '"customer" not found'),
    ],
)
def test_anything_but_a_question_is_refused(sql: str, fact: str) -> None:
    with pytest.raises(SpecError, match=fact):
        asked(sql, JOIN)


def counting(disk: MemoryDisk, read: set[str]) -> Callable[[str], Storage]:
    """Open storages of a disk, and keep which files are read."""

    def opening(location: str) -> Storage:
        storage = disk.open(location)
        plain = storage.chunks

        def chunks(path: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
            read.add(path)
            return plain(path, start, length)

        cast(Any, storage).chunks = chunks
        return storage

    return opening


def test_a_limit_does_not_read_the_state_to_its_end() -> None:
    disk = MemoryDisk()
    Checkpoint(batches=1, shards=200, keys=2000).write(disk.open(HERE))
    read = set[str]()
    opening = counting(disk, read)
    tables = tables_of([HERE], opening)
    with answer("select shard from state_0 limit 1", tables, opening) as given:
        assert sum(batch.num_rows for batch in given.batches) == 1
    assert 0 < len({path for path in read if path.startswith("state/")}) < 150


def test_damage_is_named_as_everywhere() -> None:
    disk = MemoryDisk()
    Checkpoint(shards=2).write(disk.open(HERE))
    broken = b"".join(encode_delta([StateRecord(b"k" * 16, b"v" * 8)]))[:-5]
    put(disk.open(HERE), "state/0/1/2.delta", broken)
    tables = tables_of([HERE], disk.open)
    with (
        pytest.raises(FormatError, match="delta"),
        answer("select count(*) from state_0", tables, disk.open) as given,
    ):
        list(given.batches)


def test_where_there_is_no_image_nothing_is_asked(tmp_path: Path) -> None:
    with pytest.raises(MissingFile):
        asked("select 1", str(tmp_path))


def test_the_command_shows_tables_rows_and_files(tmp_path: Path) -> None:
    assert LEFT in said("query", JOIN).out
    shown = said("query", JOIN, f"select value, key from {LEFT} order by 2", "--limit", "1").out
    assert "and more" in shown
    told = json.loads(said("query", JOIN, f"select key from {LEFT}", "--json").out)
    assert [column["name"] for column in told["columns"]] == ["key"]
    assert not told["more"] and all("key" in row for row in told["rows"])
    for suffix in ("parquet", "arrow", "jsonl"):
        file = tmp_path / f"rows.{suffix}"
        said("query", JOIN, f"select key from {LEFT}", "--to", str(file))
        assert file.stat().st_size
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == len(told["rows"])
    assert said("query", JOIN, f"select key from {LEFT}", "--to", "rows.csv").code == 2
