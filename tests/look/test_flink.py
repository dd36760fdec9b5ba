"""A Flink image shown, exported and compared by the command's own calls, held against what Flink
says it holds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stateshift import look
from stateshift.engines.flink.image import flink_facts
from stateshift.engines.registry import engine
from stateshift.errors import PlanError
from stateshift.specification.transform import Rescale
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import MemoryDisk
from tests.engines.flink import golden

# Rows as keys, whose text in Java is another: their hash is tested in test_moving.
ROWS = ("-named", "-generic")
COUNTS = [
    name
    for name in golden.NAMES
    if "/count-canonical" in name
    and not name.endswith(ROWS)
    and "orders-count" in golden.told(name).get("held", {})
]


def text(key: Any) -> str:
    """A key as the jobs tell it."""
    return f"({','.join(map(str, key))})" if isinstance(key, list) else str(key)


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_shown_is_what_the_job_held(name: str) -> None:
    disk = MemoryDisk()
    location = golden.write(disk, name)
    shown = [e for e in look.entries(location, disk.open, limit=1000) if e.store == "count"]
    wanted = golden.told(name)["held"]["orders-count"]["count"]
    assert {text(entry.key["key"]): entry.value for entry in shown} == wanted


@pytest.mark.parametrize("name", [name for name in golden.NAMES if name.endswith(ROWS)])
def test_keys_that_another_hash_deals_are_no_damage(name: str) -> None:
    """A real Flink wrote them, and goes on from them: SQL's hash, or a Row's, is not theirs."""
    disk = MemoryDisk()
    judged = look.restartable(golden.write(disk, name), disk.open, thorough=True)
    assert judged.restartable and not [each for each in judged.findings if each.level == "refuse"]
    notes = [each.message for each in judged.findings if "not known" in each.message]
    assert len(notes) == name.endswith("-generic"), notes


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def exported(disk: MemoryDisk, location: str, tmp_path: Path, suffix: str, **wanted: Any) -> Path:
    def opening(at: str) -> Storage:
        return look.open_patiently(at) if at.startswith(f"file://{tmp_path}") else disk.open(at)

    to = str(tmp_path / f"out.{suffix}")
    look.save(look.export(location, to, look.Wanted(**wanted), opening), to, opening)
    return Path(to)


def test_every_format_has_the_same_rows(disk: MemoryDisk, tmp_path: Path) -> None:
    location = golden.write(disk, "flink-2.3.0/kinds-canonical-rocksdb")
    lines = [
        json.loads(line)
        for line in exported(disk, location, tmp_path, "jsonl").read_text().splitlines()
    ]
    assert {line["store"] for line in lines} >= {
        "recent",
        "digits",
        "SourceReaderState",
        "window-contents",
    }
    texts = [
        {**line, "key": json.dumps(line["key"]), "value": json.dumps(line["value"])}
        for line in lines
    ]
    assert pq.read_table(exported(disk, location, tmp_path, "parquet")).to_pylist() == texts
    with pa.OSFile(str(exported(disk, location, tmp_path, "arrow"))) as file:
        assert pa.ipc.open_file(file).read_all().to_pylist() == texts


def test_one_operator_and_one_state_are_chosen(disk: MemoryDisk, tmp_path: Path) -> None:
    location = golden.write(disk, "flink-2.3.0/kinds-canonical-rocksdb")
    path = exported(disk, location, tmp_path, "jsonl", operator="collections", store="recent")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {(line["operator"], line["store"]) for line in lines} == {("collections", "recent")}
    assert {str(line["key"]["key"]): str(line["value"]) for line in lines} == golden.told(
        "flink-2.3.0/kinds-canonical-rocksdb"
    )["held"]["collections"]["recent"]


@pytest.mark.parametrize(
    ("wanted", "fact"),
    [({"operator": "x"}, "no operator x"), ({"batch": 1}, "holds one checkpoint")],
)
def test_what_is_not_there_is_refused(
    disk: MemoryDisk, tmp_path: Path, wanted: Any, fact: str
) -> None:
    location = golden.write(disk, "flink-2.3.0/count-canonical-hashmap")
    with pytest.raises(PlanError, match=fact):
        exported(disk, location, tmp_path, "jsonl", **wanted)


def test_two_backends_canonical_savepoints_of_one_state_are_equal(disk: MemoryDisk) -> None:
    """Written by two runs of one job: but for what has a time in it."""
    one, other = (
        golden.write(disk, f"flink-2.3.0/kinds-canonical-{backend}")
        for backend in ("hashmap", "rocksdb")
    )
    found = look.diff(one, other, disk.open)
    assert {store.operator for store in found.stores if not store.equal} <= {"ttl", "collections"}
    assert sum(store.same for store in found.stores) > 100


def test_what_differs_is_shown_decoded(disk: MemoryDisk) -> None:
    one, other = (golden.write(disk, f"flink-2.3.0/count-{case}") for case in ("saved", "two"))
    found = look.diff(one, other, disk.open, show=3)
    assert not found.equal
    assert any(set(difference.key) == {"key"} for difference in found.shown)


def test_an_image_is_equal_to_itself_and_no_image_of_spark_s(disk: MemoryDisk) -> None:
    location = golden.write(disk, "flink-2.3.0/count-canonical-hashmap")
    assert look.diff(location, location, disk.open).equal
    disk.open("file:///spark").write("metadata", lambda: iter((b"v1",)))
    with pytest.raises(PlanError, match="holds no Flink image"):
        look.diff(location, "file:///spark", disk.open)


HELD = [
    name
    for name in golden.NAMES
    if "/kinds-" in name and "shares" in golden.told(name).get("held", {})
]


@pytest.mark.parametrize("name", HELD)
def test_lists_unions_and_broadcast_state_of_usual_types_are_decoded(name: str) -> None:
    """Compressed ones too, in whichever version's way."""
    disk = MemoryDisk()
    location = golden.write(disk, name)
    held = golden.told(name)["held"]
    shown: dict[str, list[look.ShownEntry]] = {}
    for entry in look.entries(location, disk.open, limit=1000):
        shown.setdefault(entry.store, []).append(entry)
    assert {str(entry.value) for entry in shown["shared"]} == set(held["shares"]["shared"])
    assert {entry.value for entry in shown["union"]} == set(held["shares"]["union"])
    assert all(set(entry.key) == {"index"} for entry in shown["shared"] + shown["union"])
    assert {entry.key["key"]: str(entry.value) for entry in shown["rules"]} == held["rules"][
        "rules"
    ]
    assert {(entry.key["key"], entry.value) for entry in shown["same"]} == {("constant", 42)}


def test_what_is_not_held_is_shown_as_a_digest_and_not_as_its_bytes() -> None:
    disk = MemoryDisk()
    location = golden.write(disk, "flink-2.3.0/count-unaligned")
    in_flight = [entry for entry in look.entries(location, disk.open) if entry.store == "in flight"]
    assert in_flight
    assert all(set(entry.value) == {"digest"} for entry in in_flight)


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("sql-canonical-hashmap", "5 keys in 8 key groups do not show how this one does"),
        ("sql-native-incremental", "its state lies in files of RocksDB, or in a changelog"),
        ("sql-plan", None),
    ],
)
@pytest.mark.parametrize("version", ["1.15.4", "2.3.0"])
def test_what_is_said_of_the_keys_of_sql_is_true(
    disk: MemoryDisk, case: str, told: str | None, version: str
) -> None:
    """They are Flink's own rows, no code of the job's: dealt where enough of them show the hash."""
    location = golden.write(disk, f"flink-{version}/{case}")
    _, survey = engine("flink").survey(location, disk.open, changes=(Rescale(max_parallelism=32),))
    found = flink_facts(survey.images[0]).rigid.values()
    assert bool(found) == (told is not None)
    assert all(obstacle.fact.endswith(told or "") for obstacle in found)
