"""What is known of a job's sink: from the spec alone, and from the sink's own log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stateshift.engines.spark.survey.sinks import named_sink, read_sink
from stateshift.formats.delta_log import commit_version, newest_checkpoint
from stateshift.migration import propose
from stateshift.migration.adapters import real_adapters
from stateshift.specification import SinkSpec
from stateshift.storage.opening import open_storage
from stateshift.survey import SinkFacts, SinkLog
from stateshift.testing.memory_storage import MemoryDisk
from stateshift.workdir import Workdir
from tests.support.checkpoints import QUERY, put
from tests.support.ground import spec_of

TABLES = Path(__file__).resolve().parents[2] / "golden" / "tables"


@pytest.mark.parametrize(
    ("sink", "knows_batches", "skips_plan"),
    [
        (SinkSpec("delta", "s3a://lake/t"), True, True),
        (SinkSpec("file", "s3a://lake/t"), True, True),
        (SinkSpec("iceberg", "s3a://lake/t"), True, False),
        (SinkSpec("kafka"), False, False),
        (SinkSpec("foreach-batch"), None, None),
        (SinkSpec("foreach-batch", None, True), True, True),
        (SinkSpec("foreach-batch", None, False), False, False),
        (SinkSpec("foreach-batch", "s3a://lake/t", None, "orders"), True, True),
    ],
)
def test_a_kind_of_sink_says_what_it_makes_of_a_repeated_batch(
    sink: SinkSpec, knows_batches: bool | None, skips_plan: bool | None
) -> None:
    assert named_sink(sink) == SinkFacts(sink.kind, sink.location, knows_batches, skips_plan)


def test_what_a_sink_has_is_told_by_query_and_batch() -> None:
    sink = SinkFacts(
        "delta", "s3a://lake/t", True, True, True, {"q": SinkLog(6, {3: 4, 5: 6, 6: 8})}
    )
    assert sink.last_batch("q") == 6
    assert [sink.has_batch("q", batch) for batch in (5, 6, 7)] == [True, True, False]
    assert [sink.version_to_restore("q", batch) for batch in (2, 3, 4, 5)] == [None, 4, 4, 6]
    assert sink.last_batch("another") is None
    assert sink.has_batch("another", 0) is False


def test_nothing_is_known_of_a_log_that_was_not_read() -> None:
    sink = named_sink(SinkSpec("delta", "s3a://lake/t"))
    assert sink.last_batch("q") is None
    assert sink.has_batch("q", 0) is None
    assert sink.version_to_restore("q", 0) is None


# ---- real logs -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    told: dict[str, Any] = json.loads((TABLES / "expected.json").read_text())
    return told


def read(kind: str, place: str, back_to: dict[str, int], **more: Any) -> SinkFacts:
    return read_sink(SinkSpec(kind, f"file://{TABLES}/{place}", **more), open_storage, back_to)  # type: ignore[arg-type]


def numbered(versions: dict[str, int]) -> dict[int, int]:
    return {int(batch): version for batch, version in versions.items()}


def test_a_delta_table_has_every_batch_as_far_back_as_is_asked_for(
    expected: dict[str, Any],
) -> None:
    delta = expected["delta"]
    versions = numbered(delta["versions"])
    whole = read("delta", "delta/sink", {delta["query"]: 0})
    assert whole.logs == {delta["query"]: SinkLog(delta["last"], versions)}
    since = read("delta", "delta/sink", {delta["query"]: delta["last"] - 1})
    assert (
        since.version_to_restore(delta["query"], delta["last"] - 1) == versions[delta["last"] - 1]
    )
    assert 0 not in since.logs[delta["query"]].versions, "no commit is read that nobody asked for"


def test_a_delta_table_has_nothing_of_a_query_that_never_wrote_there(
    expected: dict[str, Any],
) -> None:
    assert read("delta", "delta/sink", {"another": 3}).logs == {"another": SinkLog()}


@pytest.mark.parametrize("table", ["sink", "parts", "v2"])
def test_a_checkpoint_tells_the_last_batch_where_its_commits_are_gone(
    tmp_path: Path, expected: dict[str, Any], table: str
) -> None:
    """In one file, in parts, and as V2 writes it."""
    shutil.copytree(TABLES / "delta" / table, tmp_path / table)
    log = tmp_path / table / "_delta_log"
    newest = newest_checkpoint(path.name for path in log.iterdir())
    assert newest
    assert (len(newest) > 1) is (table == "parts")
    for path in log.glob("*.json"):
        if commit_version(path.name) is not None:
            path.unlink()
    delta = expected["delta"]
    app_id, versions = (
        ("orders", delta["function"][table])
        if table != "sink"
        else (delta["query"], delta["versions"])
    )
    last = max(int(batch) for batch, version in versions.items() if version <= newest[0].version)
    found = read_sink(SinkSpec("delta", f"file://{tmp_path}/{table}"), open_storage, {app_id: 0})
    assert found.logs == {app_id: SinkLog(last, {})}


@pytest.mark.parametrize("table", ["parts", "v2"])
def test_a_function_is_known_by_its_transaction_id(expected: dict[str, Any], table: str) -> None:
    found = read("foreach-batch", f"delta/{table}", {"the query's id": 0}, transaction_id="orders")
    versions = numbered(expected["delta"]["function"][table])
    assert found.knows_batches is True
    assert found.last_batch("the query's id") == max(versions)
    assert found.version_to_restore("the query's id", 1) == versions[1]


def test_an_iceberg_table_has_its_snapshots_batches(expected: dict[str, Any]) -> None:
    told = expected["iceberg"]
    versions = numbered(told["versions"])
    assert read("iceberg", "iceberg/db/sink", {told["query"]: 0}).logs == {
        told["query"]: SinkLog(2, versions)
    }
    named = read("iceberg", "iceberg/db/sink/metadata/v3.metadata.json", {told["query"]: 0})
    assert named.last_batch(told["query"]) == 1


@pytest.mark.row("W-4", on="Iceberg")
def test_a_plan_names_the_snapshots_that_a_real_job_reads_and_writes(
    tmp_path: Path, expected: dict[str, Any]
) -> None:
    told = expected["iceberg"]
    place = f"file://{TABLES}/iceberg"
    spec = spec_of(
        f"{place}/checkpoint",
        f"file://{tmp_path}/moved",
        sink={"kind": "iceberg", "location": f"{place}/db/sink"},
        waive=["paths-stay"],
    )
    (plan,) = propose(spec, real_adapters(), Workdir(tmp_path / "plan")).plans
    (source,) = [end for end in plan.endpoints if end.role == "source"]
    assert (source.kind, source.details["snapshot_id"]) == ("iceberg", told["source"])
    last = max(numbered(told["versions"]))
    words = f"has the batches of the job up to {last} (snapshot {told['versions'][str(last)]})"
    assert [one for one in plan.findings if one.level == "note" and words in one.message]
    assert not plan.refusals


def test_iceberg_goes_on_from_the_version_hint(tmp_path: Path, expected: dict[str, Any]) -> None:
    """A writer puts the metadata there first, and the hint then."""
    shutil.copytree(TABLES / "iceberg" / "db" / "sink", tmp_path / "sink")
    metadata = tmp_path / "sink" / "metadata"
    (metadata / "version-hint.text").write_text("2")
    query = expected["iceberg"]["query"]
    found = read_sink(SinkSpec("iceberg", f"file://{tmp_path}/sink"), open_storage, {query: 0})
    assert found.last_batch(query) == 2
    (metadata / "version-hint.text").write_text("not a number")
    again = read_sink(SinkSpec("iceberg", f"file://{tmp_path}/sink"), open_storage, {query: 0})
    assert again.last_batch(query) == 2


def test_which_of_two_newest_metadata_files_counts_is_not_guessed(
    tmp_path: Path, expected: dict[str, Any]
) -> None:
    """A writer that lost the race at a catalog leaves a file of the number that the winner has."""
    shutil.copytree(TABLES / "iceberg" / "db" / "sink", tmp_path / "sink")
    metadata = tmp_path / "sink" / "metadata"
    (metadata / "version-hint.text").unlink()
    files = sorted(metadata.glob("v*.metadata.json"))
    for number, path in enumerate(files):
        path.rename(metadata / f"{number:05d}-aaaa.metadata.json")
    last = len(files) - 1
    query = expected["iceberg"]["query"]
    place = f"file://{tmp_path}/sink"
    assert read_sink(SinkSpec("iceberg", place), open_storage, {query: 0}).last_batch(query) == 2
    lost = metadata / f"{last:05d}-bbbb.metadata.json"
    shutil.copy(metadata / f"{last - 1:05d}-aaaa.metadata.json", lost)
    found = read_sink(SinkSpec("iceberg", place), open_storage, {query: 0})
    assert not found.read
    assert found.wrong is not None
    assert f"{last:05d}-aaaa.metadata.json, {lost.name}" in found.wrong
    assert "`location`" in (found.hint or "")
    winner = f"{place}/metadata/{last:05d}-aaaa.metadata.json"
    assert read_sink(SinkSpec("iceberg", winner), open_storage, {query: 0}).last_batch(query) == 2


def test_a_file_sink_has_batches_of_whoever_wrote_there(expected: dict[str, Any]) -> None:
    found = read("file", "file/out", {"whoever": 0})
    assert found.last_batch("whoever") == expected["file"]["last"]
    assert found.has_batch("another", 3) is True


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("delta", "is no Delta table"),
        ("iceberg", "is no Iceberg table"),
        ("file", "has no _spark_metadata"),
    ],
)
def test_a_place_that_is_no_such_sink_is_told_and_nothing_fails(
    tmp_path: Path, kind: str, told: str
) -> None:
    found = read_sink(SinkSpec(kind, f"file://{tmp_path}"), open_storage, {"q": 0})  # type: ignore[arg-type]
    assert not found.read
    assert told in (found.wrong or "")


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("delta", {f"_delta_log/{0:020d}.json": b'{"txn":{"appId":"q"}}'}),
        ("delta", {f"_delta_log/{1:020d}.checkpoint.parquet": b"PAR1 and no more"}),
        ("delta", {f"_delta_log/{1:020d}.checkpoint.parquet": b""}),
        ("iceberg", {"metadata/v1.metadata.json": b"{"}),
        ("iceberg", {"metadata/v1.metadata.json": b"\x1f\x8b\x08"}),
        ("file", {"_spark_metadata/3": b"v9\n{}"}),
        ("file", {"_spark_metadata/3": b""}),
    ],
)
def test_a_damaged_log_is_told_with_its_file(kind: str, files: dict[str, bytes]) -> None:
    storage = MemoryDisk().open("file:///lake")
    for path, content in files.items():
        put(storage, path, content)
    found = read_sink(SinkSpec(kind, "file:///lake"), lambda location: storage, {"q": 0})  # type: ignore[arg-type]
    assert not found.read
    assert next(iter(files)) in (found.wrong or "")


def test_commits_that_only_a_catalog_knows_are_told() -> None:
    storage = MemoryDisk().open("file:///lake")
    uuid = "80a083e8-7026-4e79-81be-64bd76c43a11"
    put(storage, f"_delta_log/{3:020d}.json", b'{"txn":{"appId":"q","version":3}}')
    put(storage, f"_delta_log/_staged_commits/{3:020d}.{uuid}.json", b"{}")
    sink = SinkSpec("delta", "file:///lake")
    assert read_sink(sink, lambda location: storage, {"q": 0}).last_batch("q") == 3
    put(storage, f"_delta_log/_staged_commits/{4:020d}.{uuid}.json", b"{}")
    assert "only the table's catalog knows" in (
        read_sink(sink, lambda location: storage, {"q": 0}).wrong or ""
    )


def test_a_checkpoint_cut_anywhere_is_told_and_nothing_fails() -> None:
    (path,) = newest_checkpoint(
        p.name for p in (TABLES / "delta" / "sink" / "_delta_log").iterdir()
    )
    content = (TABLES / "delta" / "sink" / "_delta_log" / path.name).read_bytes()
    for length in range(0, len(content), 997):
        storage = MemoryDisk().open("file:///lake")
        put(storage, f"_delta_log/{path.name}", content[:length])
        found = read_sink(
            SinkSpec("delta", "file:///lake"), lambda location, kept=storage: kept, {"q": 0}
        )
        assert found.wrong is not None


# ---- a Delta table that was restored


def delta_table(*commits: dict[str, Any]) -> MemoryDisk:
    disk = MemoryDisk()
    for version, action in enumerate(commits):
        content = json.dumps(action).encode() + b"\n"
        put(disk.open("file:///t"), f"_delta_log/{version:020d}.json", content)
    return disk


def batch_of(query: str, number: int) -> dict[str, Any]:
    return {"txn": {"appId": query, "version": number, "lastUpdated": 1}}


RESTORE = {"commitInfo": {"operation": "RESTORE", "operationParameters": {"version": "1"}}}


def test_a_restore_stands_for_the_batch_whose_output_it_has_taken_back() -> None:
    """After a rewind under new numbers the job's batch 3 is what the table held after batch 1."""
    begun = [batch_of(QUERY, number) for number in range(4)]
    disk = delta_table(
        *begun, RESTORE, {"commitInfo": {"operation": "OPTIMIZE"}}, batch_of(QUERY, 4)
    )
    sink = read_sink(SinkSpec("delta", "file:///t"), disk.open, {QUERY: 0})
    assert [sink.version_to_restore(QUERY, batch) for batch in range(5)] == [0, 1, 2, 4, 6]
    assert sink.last_batch(QUERY) == 4


def test_a_restore_counts_for_every_query_that_writes_there() -> None:
    disk = delta_table(batch_of("a", 0), batch_of("b", 7), RESTORE, RESTORE, batch_of("a", 1))
    sink = read_sink(SinkSpec("delta", "file:///t"), disk.open, {"a": 0, "b": 0})
    assert sink.version_to_restore("a", 0) == 3
    assert sink.version_to_restore("b", 7) == 3
