"""A checkpoint whose source reads on in another Delta table."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from stateshift.engines.spark.survey.table_logs import files_at
from stateshift.engines.tables import TableFile
from stateshift.errors import MissingFile
from stateshift.specification import Spec
from stateshift.storage.local.storage import LocalStorage
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import SOURCE, TARGET, Ground, notes, refusals, spec_of

OLD, NEW = "file:///lake/orders", "file:///lake/orders-2"
ID, OTHER = "6c4f-orders", "99aa-orders"


def offset(version: int, index: int = -1, snapshot: bool = False, table: str = ID) -> str:
    fields = {"sourceVersion": 1, "reservoirId": table, "reservoirVersion": version}
    fields |= {"index": index, "isStartingVersion": snapshot}
    return json.dumps(fields, separators=(",", ":"))


def with_table(
    ground: Ground, at: str, table_id: str, versions: Sequence[dict[str, int]], first: int = 0
) -> None:
    """A table each of whose versions adds files, each with so many records."""
    for version, files in enumerate(versions, first):
        actions: list[dict[str, Any]] = []
        for name, records in files.items():
            stats = json.dumps({"numRecords": records})
            add = {"path": name, "size": 10 * records, "dataChange": True, "stats": stats}
            actions.append({"add": add})
            ground.put(f"{at}/{name}", b"rows")
        if version == first:
            actions.append({"metaData": {"id": table_id}})
        lines = "\n".join(map(json.dumps, actions))
        ground.put(f"{at}/_delta_log/{version:020d}.json", lines.encode())


def ground_of(folder: Path, *positions: str) -> Ground:
    """A checkpoint of one source of Delta, with the offsets of its last batches."""
    ground = Ground(folder)
    ground.write(Checkpoint(planned=len(positions) > 2))
    for batch, position in enumerate(positions, 1):
        head = Checkpoint().offsets(batch).rpartition(b"\n")[0]
        put(ground.source, f"offsets/{batch}", head + b"\n" + position.encode())
    ground.source.sync()
    ground.clock.time += 600
    with_table(ground, OLD, ID, [{"a": 5}, {"b": 7}, {"c": 1}, {"d": 2}])
    return ground


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """The job has read versions 0 to 2: a, b and c."""
    return ground_of(tmp_path, offset(2), offset(3))


def moved(**keys: Any) -> Spec:
    of_job = {name: keys.pop(name) for name in ("waive", "planned_batch") if name in keys}
    change = {"kind": "reposition", "table": NEW, "from_table": OLD, **keys}
    return spec_of(transform=[change], **of_job)


@pytest.mark.row("W-5")
def test_a_clone_is_known_by_its_files_and_both_offsets_are_rewritten(ground: Ground) -> None:
    with_table(ground, NEW, OTHER, [{"a": 5, "b": 7, "c": 1}, {"e": 9}])
    spec = moved(version=1)
    assert any("has the files of" in message for message in notes(ground, spec))
    source = ground.held(SOURCE)
    report = ground.apply(spec)
    target = ground.held(TARGET)
    line = offset(1, table=OTHER).encode()
    for batch in (1, 2):
        path = f"offsets/{batch}"
        assert target.pop(path) == source[path].rpartition(b"\n")[0] + b"\n" + line
    assert target.items() <= source.items()
    assert [tuple(each) for each in report.jobs[0].positions] == [("0", NEW, 3, 1, 0, 0)]


@pytest.mark.parametrize(
    ("versions", "version", "level", "says"),
    [
        ([{"x": 13}, {"e": 9}], 1, "warn", "has as many records as"),
        ([{"x": 12}, {"e": 9}], 1, "refuse", "has 12 records, and"),
        ([{"a": 5, "b": 7, "c": 1}, {"e": 9}], 2, "refuse", "has 22 records, and"),
        ([{"a": 5, "b": 7, "c": 1}], 3, "refuse", "can no longer show version 2"),
        ([{"x": 13}, {"e": 9}], None, "refuse", "which of its versions comes next is not"),
    ],
)
def test_a_table_that_was_written_anew_is_known_by_its_records(
    ground: Ground, versions: list[dict[str, int]], version: int | None, level: str, says: str
) -> None:
    with_table(ground, NEW, OTHER, versions)
    spec = moved(**({} if version is None else {"version": version}))
    findings = ground.propose(spec).plans[-1].findings
    (found,) = [finding for finding in findings if says in finding.message]
    assert found.level == level
    if level == "refuse":
        assert refusals(ground, spec) == [found]


def test_the_version_of_a_clone_is_found_by_its_files(ground: Ground) -> None:
    with_table(ground, NEW, OTHER, [{"a": 5, "b": 7}, {"c": 1}, {}, {"e": 9}])
    assert any("has the files of" in message for message in notes(ground, moved()))
    ground.apply(moved())
    assert ground.held(TARGET)["offsets/2"].endswith(offset(3, table=OTHER).encode())


def test_a_table_that_nobody_compares_is_waived_by_name(ground: Ground) -> None:
    with_table(ground, NEW, OTHER, [{"x": 12}, {"e": 9}])
    (unproved,) = refusals(ground, moved(version=1, from_table=None))
    assert unproved.waive == "other-records" and "--from-table" in (unproved.hint or "")
    ground.apply(moved(version=1, from_table=None, waive=["other-records"]))
    assert ground.held(TARGET)["offsets/2"].endswith(offset(1, table=OTHER).encode())


def test_a_copy_with_the_same_id_keeps_its_version_unless_another_is_accepted(
    ground: Ground,
) -> None:
    with_table(ground, NEW, ID, [{"a": 5}, {"b": 7}, {"c": 1}, {"d": 2}, {"f": 1}])
    (skipped,) = refusals(ground, moved(version=4))
    assert skipped.message == f"source 0: 1 version would be skipped ({NEW}: 1)"
    ground.apply(moved())
    held = ground.held(TARGET)
    assert held["offsets/2"] == ground.held(SOURCE)["offsets/2"]


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (offset(3, 4), "has read version 3 of its table in part (up to file 4)"),
        (offset(3, 4, True), "still reads the first snapshot of its table"),
        (offset(3, -20), "stands at a change of its table's schema"),
    ],
)
def test_a_position_without_a_counterpart_is_refused(tmp_path: Path, at: str, says: str) -> None:
    ground = ground_of(tmp_path, offset(2), at)
    with_table(ground, NEW, OTHER, [{"a": 5, "b": 7, "c": 1}, {"e": 9}])
    (refusal,) = refusals(ground, moved(version=1))
    assert says in refusal.message


def test_a_planned_batch_has_no_end_in_another_table(tmp_path: Path) -> None:
    ground = ground_of(tmp_path, offset(2), offset(3), offset(4))
    with_table(ground, NEW, OTHER, [{"a": 5, "b": 7, "c": 1}, {"e": 9}])
    (refusal,) = refusals(ground, moved(version=1))
    assert "a batch is planned over the table of source 0" in refusal.message
    ground.apply(moved(version=1, planned_batch="drop", waive=["repeated-batches"]))
    assert "offsets/3" not in ground.held(TARGET)


def test_no_table_and_a_table_that_lacks_what_comes_next(ground: Ground) -> None:
    (none,) = refusals(ground, moved(version=1))
    assert f"the Delta table {NEW} could not be asked" in none.message
    with_table(ground, NEW, OTHER, [{"a": 5, "b": 7, "c": 1}, {"e": 9}])
    ground.remove(f"{NEW}/e")
    (lost,) = refusals(ground, moved(version=1))
    assert lost.waive == "lost-offsets" and "lacks a file that the job reads next" in lost.message


@pytest.mark.parametrize(
    ("versions", "first", "damaged", "says"),
    [
        ([{"x": 5}, {"b": 9}, {"c": 1}, {"d": 2}], 0, None, "has 15 records, and"),
        ([{"d": 2}], 3, None, "can no longer show version 2"),
        ([{"d": 2}, {"e": 1}], 5, None, "can no longer show version 2"),
        ([{"a": 5}, {"b": 7}, {"c": 1}, {"d": 2}], 0, 1, f"{1:020d}.json"),
    ],
    ids=["history was rewritten", "log is cut", "log is cut behind it", "a commit is cut"],
)
def test_a_table_of_the_same_id_whose_log_is_another_one_is_refused(
    ground: Ground, versions: list[dict[str, int]], first: int, damaged: int | None, says: str
) -> None:
    with_table(ground, NEW, ID, versions, first)
    if damaged is not None:
        ground.put(f"{NEW}/_delta_log/{damaged:020d}.json", b'{"add": {"path"')
    (found,) = refusals(ground, moved())
    assert says in found.message
    assert found.hint or found.waive or damaged is not None


def test_a_checkpoint_of_the_table_stands_for_the_commits_before(ground: Ground) -> None:
    head = f"{NEW}/_delta_log/{1:020d}"
    adds = [{"add": {"path": name, "size": 10 * n}} for name, n in (("a", 5), ("b", 7))]
    lines = [{"metaData": {"id": OTHER}}, *adds]
    name = f"{head}.checkpoint.01234567-89ab-cdef-0123-456789abcdef.json"
    ground.put(name, "\n".join(map(json.dumps, lines)).encode())
    with_table(ground, NEW, OTHER, [{"c": 1}, {"e": 9}], first=2)
    ground.put(f"{head}.json", b"{}")
    assert any("has the files of" in message for message in notes(ground, moved(version=3)))


def test_a_schema_log_of_the_old_table_is_not_taken_to_another_one(ground: Ground) -> None:
    with_table(ground, NEW, OTHER, [{"a": 5, "b": 7, "c": 1}, {"e": 9}])
    log = {"tableId": ID, "deltaCommitVersion": 0, "dataSchemaJson": "{}"}
    log |= {"partitionSchemaJson": "{}", "sourceMetadataPath": "file:/here/orders/sources/0"}
    ground.put(f"{SOURCE}/tracking/_schema_log_{ID}/0", b"v1\n" + json.dumps(log).encode())
    (refusal,) = refusals(ground, moved(version=1))
    assert "the checkpoint tracks the schema of the table of source 0" in refusal.message


def with_rows(
    ground: Ground, at: str, table_id: str, files: dict[str, tuple[str, list[Any]]], column: str
) -> None:
    """A table that is partitioned by day; its column of times has another name in its files."""
    schema = [
        {"name": "at", "type": "timestamp", "metadata": {_PHYSICAL: column}},
        {"name": "day", "type": "date", "metadata": {_PHYSICAL: f"{column}-day"}},
    ]
    plain = [{"metaData": {"id": table_id, "schemaString": json.dumps({"fields": schema})}}]
    for name, (day, times) in files.items():
        moments = pyarrow.array(times, pyarrow.timestamp("us"))
        if table_id == ID:
            moments = moments.cast(pyarrow.timestamp("ns"))
        rows = pyarrow.table({column: moments})
        sink = io.BytesIO()
        pyarrow.parquet.write_table(rows, sink)
        ground.put(f"{at}/{name}", sink.getvalue())
        add = {"path": name, "size": 1, "stats": json.dumps({"numRecords": len(times)})}
        plain.append({"add": {**add, "partitionValues": {f"{column}-day": day}}})
    ground.put(f"{at}/_delta_log/{0:020d}.json", "\n".join(map(json.dumps, plain)).encode())
    for version in (1, 2, 3):
        ground.put(f"{at}/_delta_log/{version:020d}.json", b'{"commitInfo":{}}')


_PHYSICAL = "delta.columnMapping.physicalName"


@pytest.mark.parametrize(
    ("files", "level", "says"),
    [
        ({"x": ("2026-01-02", [3]), "y": ("2026-01-01", [2, 1])}, "note", "has the 3 rows of"),
        ({"x": ("2026-01-02", [1]), "y": ("2026-01-01", [2, 3])}, "refuse", "has other rows than"),
        ({"x": ("2026-01-02", [3, 2, 1])}, "refuse", "has other rows than"),
    ],
)
def test_rows_of_a_table_that_was_written_anew_are_compared_if_asked(
    ground: Ground, files: dict[str, tuple[str, list[Any]]], level: str, says: str
) -> None:
    own = {"a": ("2026-01-01", [1, 2]), "b": ("2026-01-02", [3])}
    with_rows(ground, OLD, ID, own, "col-1")
    with_rows(ground, NEW, OTHER, files, "col-9")
    spec = moved(version=1, compare_rows=True)
    findings = ground.propose(spec).plans[-1].findings
    (found,) = [finding for finding in findings if says in finding.message]
    assert found.level == level
    if level == "note":
        ground.apply(moved(compare_rows=True))  # the version is found by them, too
        assert offset(4, table=OTHER).encode() in ground.held(TARGET)["offsets/2"]


GOLDEN = Path(__file__).parents[2] / "golden" / "tables" / "delta"


def by_commits(table: str, version: int) -> list[TableFile]:
    """The files of a real table, as its commits alone tell them."""
    disk = MemoryDisk()
    for path in (GOLDEN / table / "_delta_log").glob("*.json"):
        if "checkpoint" not in path.name:
            put(disk.open("file:///lake/copy"), f"_delta_log/{path.name}", path.read_bytes())
    return sorted(files_at(disk.open("file:///lake/copy"), version))


@pytest.mark.parametrize("table", ["parts", "sink"])
def test_the_files_of_a_checkpoint_are_those_that_the_commits_add_up_to(table: str) -> None:
    files = sorted(files_at(LocalStorage(str(GOLDEN / table)), 5))
    assert files == by_commits(table, 5)
    assert sum(file.records or 0 for file in files) > 0


def test_the_files_of_a_checkpoint_v2_are_in_others_beside_it(tmp_path: Path) -> None:
    """The golden table has the checkpoint, and not these: they are made here."""
    place = tmp_path / "v2"
    shutil.copytree(GOLDEN / "v2", place)
    storage = LocalStorage(str(place))
    with pytest.raises(MissingFile, match="_delta_log/_sidecars/"):
        files_at(storage, 5)
    (checkpoint,) = place.glob("_delta_log/*.checkpoint.*.json")
    actions = [json.loads(line) for line in checkpoint.read_text().splitlines()]
    sidecars = [action["sidecar"]["path"] for action in actions if "sidecar" in action]
    adds = []
    for file in by_commits("v2", 3):
        stats = json.dumps({"numRecords": file.records})
        adds.append({"path": file.name, "size": file.size, "stats": stats})
    (place / "_delta_log" / "_sidecars").mkdir()
    for name, held in zip(sidecars, (adds, adds[:1]), strict=True):
        path = place / "_delta_log" / "_sidecars" / name
        pyarrow.parquet.write_table(pyarrow.table({"add": held}), path)
    assert sorted(files_at(storage, 5)) == by_commits("v2", 5)
