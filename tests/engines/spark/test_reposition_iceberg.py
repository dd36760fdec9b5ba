"""A checkpoint whose source reads on in another Iceberg table."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from stateshift.engines.tables import (
    data_files,
    digest_of_rows,
    iceberg_at,
    iceberg_table,
    metadata_in_catalog,
)
from stateshift.errors import ClusterError, StateshiftError
from stateshift.specification import Spec
from stateshift.storage.opening import open_storage
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import SOURCE, TARGET, Ground, notes, refusals, spec_of
from tests.support.iceberg import Made, write_table

OLD, NEW = "file:///lake/orders", "file:///lake/orders-2"
READ = [Made(101, {"a": 5}), Made(102, {"b": 7, "c": 1})]


def offset(snapshot: int, position: int = 2, every: bool = False) -> str:
    fields = {"version": 1, "snapshot_id": snapshot, "position": position}
    return json.dumps({**fields, "scan_all_files": every}, separators=(",", ":"))


def ground_of(folder: Path, *positions: str) -> Ground:
    """A checkpoint of one source of Iceberg, with the offsets of its last batches."""
    ground = Ground(folder)
    ground.write(Checkpoint(planned=len(positions) > 2))
    for batch, position in enumerate(positions, 1):
        head = Checkpoint().offsets(batch).rpartition(b"\n")[0]
        put(ground.source, f"offsets/{batch}", head + b"\n" + position.encode())
    put(ground.source, "sources/0/offsets/0", offset(101, 0).encode())
    ground.source.sync()
    ground.clock.time += 600
    write_table(ground.put, OLD, "u-old", READ)
    return ground


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    """The job has read snapshots 101 and 102: a, b and c."""
    return ground_of(tmp_path, offset(101, 1), offset(102))


def moved(**keys: Any) -> Spec:
    of_job = {name: keys.pop(name) for name in ("waive", "planned_batch") if name in keys}
    change = {"kind": "reposition", "table": NEW, "from_table": OLD, **keys}
    change = {key: value for key, value in change.items() if value is not None}
    return spec_of(transform=[change], **of_job)


@pytest.mark.row("W-5")
def test_the_equal_snapshot_is_found_by_its_files_and_all_offsets_are_rewritten(
    ground: Ground,
) -> None:
    """A table that took all files over at once, and a compaction of another one behind it."""
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1}), Made(8, {"e": 9})])
    assert any("has the files of" in message for message in notes(ground, moved()))
    source = ground.held(SOURCE)
    report = ground.apply(moved())
    target = ground.held(TARGET)
    line = offset(7, 3).encode()
    for batch in (1, 2):
        path = f"offsets/{batch}"
        assert target.pop(path) == source[path].rpartition(b"\n")[0] + b"\n" + line
    assert target.pop("sources/0/offsets/0") == line
    assert target.items() <= source.items()
    assert [tuple(each) for each in report.jobs[0].positions] == [("0", NEW, 102, 7, 0, 0)]


def test_a_table_that_was_copied_with_its_metadata_has_the_same_snapshot(ground: Ground) -> None:
    write_table(ground.put, NEW, "u-old", [*READ, Made(103, {"d": 2})])
    spec = moved(from_table=None)
    assert any("has the snapshot that the job has read last" in m for m in notes(ground, spec))
    ground.apply(spec)
    assert ground.held(TARGET)["offsets/2"] == ground.held(SOURCE)["offsets/2"]


@pytest.mark.parametrize(
    ("snapshots", "keys", "level", "says"),
    [
        ([Made(7, {"x": 13})], {"snapshot": 7}, "warn", "as many records as"),
        ([Made(7, {"x": 13})], {"as_of": "1970-01-01T00:00:01Z"}, "warn", "as many records as"),
        ([Made(7, {"x": 13})], {"as_of": 999}, "refuse", "no snapshot of 1970-01-01T00:00:00"),
        ([Made(7, {"x": 13})], {}, "refuse", "with as many records: 7 (1970-01-01T00:00:01"),
        ([Made(7, {"x": 12})], {"snapshot": 7}, "refuse", "has 12 records, and"),
        ([Made(7, {"x": 13})], {"snapshot": 9}, "refuse", "has no snapshot 9"),
        ([Made(7, {"x": 13})], {"version": 1}, "refuse", "which has versions"),
        ([*READ, Made(103, {"d": 2})], {"snapshot": 103}, "refuse", "1 snapshot would be skipped"),
        ([*READ, Made(103, {"d": 2})], {"snapshot": 101}, "refuse", "1 snapshot would be read ag"),
        ([Made(102, {"x": 8})], {}, "refuse", "have other snapshots 102"),
    ],
)
def test_another_snapshot_is_proved_or_refused(
    ground: Ground, snapshots: Sequence[Made], keys: dict[str, Any], level: str, says: str
) -> None:
    write_table(ground.put, NEW, "u-new", snapshots)
    spec = moved(**keys)
    findings = ground.propose(spec).plans[-1].findings
    (found,) = [finding for finding in findings if says in finding.message]
    assert found.level == level
    if level == "refuse":
        assert refusals(ground, spec) == [found]


def test_a_snapshot_that_nobody_compares_is_waived_by_name(ground: Ground) -> None:
    write_table(ground.put, NEW, "u-new", [Made(7, {"x": 12})])
    keys = {"snapshot": 7, "from_table": None}
    (unproved,) = refusals(ground, moved(**keys))
    assert unproved.waive == "other-records" and "--from-table" in (unproved.hint or "")
    ground.apply(moved(**keys, waive=["other-records"]))
    assert ground.held(TARGET)["offsets/2"].endswith(offset(7, 1).encode())


def test_a_table_whose_snapshots_were_expired_or_rolled_back_says_what_it_has(
    ground: Ground,
) -> None:
    """The id of the table is the same: only its history is another one."""
    snapshots = [*READ, Made(103, {"d": 2})]
    write_table(ground.put, NEW, "u-old", snapshots, expired=2)
    (expired,) = refusals(ground, moved(from_table=None))
    assert f"{NEW} has no snapshot 102" in expired.message
    assert "it has: 103 (1970-01-01T00:00:03" in (expired.hint or "")
    write_table(ground.put, OLD, "u-old", snapshots, expired=2)
    (unknown,) = refusals(ground, moved(snapshot=103))
    assert "what the job has read is not known" in unknown.message
    write_table(ground.put, NEW, "u-old", snapshots, **{"current-snapshot-id": 101})
    (rolled,) = refusals(ground, moved())
    assert "the table was rolled back" in rolled.message


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (offset(102, 1), "has read snapshot 102 of its table in part (1 of 2 files)"),
        (offset(102, 1, True), "still reads the first snapshot of its table"),
        (offset(-1, -1), "has read nothing of its table yet"),
    ],
)
def test_a_position_without_a_counterpart_is_refused(tmp_path: Path, at: str, says: str) -> None:
    ground = ground_of(tmp_path, offset(101, 1), at)
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1})])
    (refusal,) = refusals(ground, moved())
    assert says in refusal.message


def test_a_planned_batch_has_no_end_in_another_table(tmp_path: Path) -> None:
    ground = ground_of(tmp_path, offset(101, 1), offset(102), offset(103, 1))
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1})])
    (refusal,) = refusals(ground, moved())
    assert "a batch is planned over the table of source 0" in refusal.message
    ground.apply(moved(planned_batch="drop", waive=["repeated-batches"]))
    assert "offsets/3" not in ground.held(TARGET)


def test_what_is_no_table_or_cannot_be_read_there_is_refused(ground: Ground) -> None:
    (none,) = refusals(ground, moved())
    assert f"the Iceberg table {NEW} could not be asked" in none.message
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1})])
    ground.put(f"{NEW}/metadata/m-7.avro", b"no Avro")
    (damaged,) = refusals(ground, moved())
    assert "m-7.avro" in damaged.message
    write_table(ground.put, NEW, "u-new", [*READ])
    ground.remove(f"{NEW}/metadata/snap-102.avro")
    (elsewhere,) = refusals(ground, moved(from_table=None))
    assert elsewhere.waive == "lost-offsets" and "rewrite_table_path" in (elsewhere.hint or "")


def test_an_overwrite_stops_a_job_that_does_not_skip_it(ground: Ground) -> None:
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1}, "overwrite")])
    assert any("is of the operation overwrite" in message for message in notes(ground, moved()))


# ---- rows


def parquet(ids: Sequence[int], field_id: int = 1) -> bytes:
    field = pyarrow.field("id", pyarrow.int64(), metadata={"PARQUET:field_id": str(field_id)})
    rows = pyarrow.table([pyarrow.array(ids, pyarrow.int64())], schema=pyarrow.schema([field]))
    sink = io.BytesIO()
    pyarrow.parquet.write_table(rows, sink)
    return sink.getvalue()


def with_rows(ground: Ground, at: str, table_id: str, files: dict[str, Sequence[int]]) -> None:
    counts = {name: len(ids) for name, ids in files.items()}
    snapshots = [Made(101, {}), Made(102, counts)] if at == OLD else [Made(7, counts)]
    write_table(ground.put, at, table_id, snapshots)
    for name, ids in files.items():
        ground.put(f"{at}/data/{name}", parquet(ids))


@pytest.mark.parametrize(
    ("ids", "level", "says"),
    [
        ([3, 2, 1, 5], "note", f"{NEW} at snapshot 7 has the 4 rows of {OLD}"),
        ([3, 2, 1, 6], "refuse", "has other rows than"),
        ([3, 3, 1, 5], "refuse", "has other rows than"),
    ],
)
def test_rows_that_were_written_anew_are_compared_by_their_digest(
    ground: Ground, ids: Sequence[int], level: str, says: str
) -> None:
    with_rows(ground, OLD, "u-old", {"a": [1, 2], "b": [3, 5]})
    with_rows(ground, NEW, "u-new", {"x": ids})
    spec = moved(snapshot=7, compare_rows=True)
    findings = ground.propose(spec).plans[-1].findings
    (found,) = [finding for finding in findings if says in finding.message]
    assert found.level == level
    if level == "note":
        ground.apply(moved(compare_rows=True))  # the snapshot is found by them, too
        assert ground.held(TARGET)["offsets/2"].endswith(offset(7, 1).encode())


def test_rows_that_cannot_be_compared_are_no_proof(ground: Ground) -> None:
    with_rows(ground, OLD, "u-old", {"a": [1], "b": [2]})
    with_rows(ground, NEW, "u-new", {"x": [1, 2]})
    ground.put(f"{NEW}/data/x", parquet([1, 2], field_id=5))
    (refusal,) = refusals(ground, moved(snapshot=7, compare_rows=True))
    assert "cannot be compared: x lacks the column id" in refusal.message
    ground.put(f"{NEW}/data/x", b"no Parquet")
    (refusal,) = refusals(ground, moved(snapshot=7, compare_rows=True))
    assert "is not Parquet" in refusal.message


# ---- catalogs


def test_a_catalog_names_the_metadata_that_counts(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1})])
    at = f"{NEW}/metadata/v1.metadata.json"
    catalog, package = ModuleType("pyiceberg.catalog"), ModuleType("pyiceberg")
    answers: dict[str, Any] = {"shop.orders": SimpleNamespace(metadata_location=at)}
    catalog.load_catalog = lambda name: SimpleNamespace(load_table=answers.__getitem__)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyiceberg", package)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", catalog)
    (gone,) = refusals(ground, moved(table="catalog://lake/shop.gone"))
    assert "the catalog lake gave no table shop.gone" in gone.message
    ground.apply(moved(table="catalog://lake/shop.orders"))
    assert ground.held(TARGET)["offsets/2"].endswith(offset(7, 3).encode())


def test_a_catalog_needs_pyiceberg(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    (refusal,) = refusals(ground, moved(table="catalog://lake/shop.orders"))
    assert "pyiceberg is not installed here" in refusal.message
    assert "stateshift[iceberg]" in (refusal.hint or "")


class RestCatalog(BaseHTTPRequestHandler):
    """A catalog of one table, `shop.orders`, as Iceberg's REST specification has it; for those who
    bring the token.
    """

    table: dict[str, Any]

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != "Bearer sesame":
            code, answer = 401, {"error": {"message": "who are you?", "type": "x", "code": 401}}
        elif self.path.startswith("/v1/config"):
            code, answer = 200, {"defaults": {}, "overrides": {}}
        elif self.path.startswith("/v1/namespaces/shop/tables/orders"):
            code, answer = 200, self.table
        else:
            code = 404
            answer = {"error": {"message": "none", "type": "NoSuchTableException", "code": 404}}
        content = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *words: object) -> None:
        """Say nothing."""


def test_a_catalog_is_asked_over_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg import catalog as catalogs

    at = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    own = catalogs.load_catalog("made", type="sql", **at)
    own.create_namespace("shop")
    made = own.create_table("shop.orders", pyarrow.schema([("id", pyarrow.int64())]))
    metadata = json.loads(made.metadata.model_dump_json())
    RestCatalog.table = {"metadata-location": made.metadata_location, "metadata": metadata}
    server = ThreadingHTTPServer(("127.0.0.1", 0), RestCatalog)
    Thread(target=server.serve_forever, daemon=True).start()
    uri = f"http://127.0.0.1:{server.server_address[1]}"

    def asked(table: str, token: str = "sesame") -> str:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", token)
        monkeypatch.setattr(catalogs, "_ENV_CONFIG", type(catalogs._ENV_CONFIG)())
        return metadata_in_catalog(f"catalog://lake/{table}")

    try:
        assert asked("shop.orders") == made.metadata_location
        with pytest.raises(ClusterError, match=r"the catalog lake gave no table shop\.gone"):
            asked("shop.gone")
        with pytest.raises(ClusterError, match="who are you") as refused:
            asked("shop.orders", "wrong")
        assert "pyiceberg --catalog lake describe" in (refused.value.hint or "")
    finally:
        server.shutdown()
        server.server_close()
    with pytest.raises(ClusterError, match="the catalog lake gave no table"):
        asked("shop.orders")


def test_the_files_of_a_real_table_in_a_real_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg writes the table, and keeps it in an SQL catalog."""
    from pyiceberg import catalog as catalogs

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", type(catalogs._ENV_CONFIG)())
    catalog = catalogs.load_catalog("lake")
    catalog.create_namespace("shop")
    rows = pyarrow.table({"id": pyarrow.array([1, 2, 3], pyarrow.int64())})
    real = catalog.create_table("shop.orders", rows.schema)
    real.append(rows)
    real.append(rows.slice(1))

    table = iceberg_table("catalog://lake/shop.orders", open_storage)
    newest, oldest = table.line
    assert (newest.records, oldest.records, newest.added_files) == (5, 3, 1)
    files = sorted(data_files(newest, open_storage))
    scanned = [task.file for task in real.scan().plan_files()]
    expected = [(f.file_path, f.file_size_in_bytes, f.record_count) for f in scanned]
    assert [(f.place, f.size, f.records) for f in files] == sorted(expected)
    state = iceberg_at(table, newest, "there", open_storage)
    assert digest_of_rows(state, open_storage)[0] == 5


@pytest.mark.parametrize("name", ["snap-7.avro", "m-7.avro", "v1.metadata.json"])
def test_a_damaged_table_is_an_error_of_its_file(ground: Ground, name: str) -> None:
    """Cut anywhere, or with another byte."""
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1})])
    storage = ground.disk.open(NEW)
    whole = storage.read(f"metadata/{name}")
    damaged = [whole[:cut] for cut in range(0, len(whole), 7)]
    for at in range(0, len(whole), 5):
        damaged += [whole[:at] + bytes([byte]) + whole[at + 1 :] for byte in (0, 0x7F, 0xFF)]
    for content in damaged:
        ground.put(f"{NEW}/metadata/{name}", content)
        with suppress(StateshiftError):
            table = iceberg_table(NEW, ground.disk.open)
            list(data_files(table.line[0], ground.disk.open)) if table.line else None
