"""Savepoints whose source of Iceberg reads on in another table: what is written, what is refused.
The savepoints are those of real jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import api, look
from stateshift.engines.flink.image import metadata_of
from stateshift.errors import PlanError
from stateshift.formats.flink.file_source import IcebergEnumerator, decode_iceberg_enumerator
from stateshift.formats.flink.metadata import decode_metadata
from stateshift.formats.flink.operator_state import decode_source_coordinator
from stateshift.specification import Spec, parse_spec
from tests.engines.flink import golden
from tests.engines.flink.test_new_roots import running
from tests.support.ground import Ground, notes, refusals
from tests.support.iceberg import Made, write_table
from tests.support.words import Heard

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "iceberg"
VERSIONS = sorted(
    path.parent.name.removesuffix("-idle") for path in GOLDEN.glob("*-idle/told.json")
)
IMAGE, TARGET = "file:///here/savepoint", "file:///there/savepoint"
OLD, NEW = "file:///lake/orders", "s3a://lake/orders-2"


@pytest.fixture(autouse=True)
def no_words_of_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Users of Flink read no word of Spark's."""
    heard = Heard.listening(monkeypatch)
    yield
    monkeypatch.undo()
    assert heard.foreign_to("flink") == []


def told(case: str) -> Any:
    return json.loads((GOLDEN / case / "told.json").read_text())


def image(case: str) -> Path:
    return GOLDEN / case / told(case)["image"]


def ground_of(folder: Path, case: str = "2.0.2-idle") -> Ground:
    """A ground with the savepoint, and the table that its job has read: files a, b and c."""
    ground = Ground(folder)
    for file in image(case).iterdir():
        ground.put(f"{IMAGE}/{file.name}", file.read_bytes())
    newest = Made(told(case)["snapshot"] or 5, {"b": 7, "c": 1}, time_ms=told(case)["time_ms"] or 1)
    write_table(ground.put, OLD, "u-old", [Made(101, {"a": 5}), newest])
    return ground


def moved(*, waive: Sequence[str] = (), **keys: Any) -> Spec:
    change = {"kind": "reposition", "table": NEW, "from_table": OLD, **keys}
    job = {
        "name": "sums",
        "existing_savepoint_paths": [IMAGE],
        "new_savepoint_path": TARGET,
        "transform": [{key: value for key, value in change.items() if value is not None}],
        "waive": list(waive),
    }
    return parse_spec(json.dumps({"version": 1, "engine": "flink", "jobs": [job]}))


def enumerator_at(ground: Ground, location: str) -> IcebergEnumerator:
    _, survey = golden.looked_at(ground.disk, location)
    (operator,) = [each for each in metadata_of(survey.images[0]).operators if each.coordinator]
    assert operator.coordinator is not None
    state = decode_source_coordinator(operator.coordinator.content)
    return decode_iceberg_enumerator(state.version, state.content)


@pytest.mark.row("W-5")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_enumerator_has_the_equal_snapshot_and_all_else_stays(
    tmp_path: Path, version: str
) -> None:
    """A table that took all files over at once, and more behind that."""
    ground = ground_of(tmp_path, f"{version}-idle")
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1}), Made(8, {"e": 9})])
    assert any("has the files of" in message for message in notes(ground, moved()))
    report = ground.apply(moved())
    (change,) = report.jobs[0].positions
    assert tuple(change)[1:] == (NEW, told(f"{version}-idle")["snapshot"], 7, 0, 0)
    before = enumerator_at(ground, IMAGE)
    assert enumerator_at(ground, TARGET) == replace(before, snapshot_id=7, time_ms=1000)
    ours, theirs = (decode_metadata(ground.held(at)["_metadata"]) for at in (IMAGE, TARGET))
    for one, other in zip(ours.operators, theirs.operators, strict=True):
        assert (one == other) is (one.coordinator is None)
    storage, survey = golden.looked_at(ground.disk, TARGET)
    assert golden.damages(storage, survey) == []
    found = look.diff(IMAGE, TARGET, ground.open, 9)
    assert {(shown.store, shown.change) for shown in found.shown} == {("positions", "changed")}
    afters = [shown.after for shown in found.shown]
    assert sorted(map(str, afters)) == ["1000", "snapshot 7 is listed, 0 splits unread"]


@pytest.mark.parametrize(
    ("snapshots", "keys", "says"),
    [
        ([Made(7, {"x": 13})], {}, "with as many records: 7 (1970-01-01T00:00:01"),
        ([Made(7, {"x": 12})], {"snapshot": 7}, "has 12 records, and"),
        ([Made(7, {"x": 13})], {"snapshot": 7, "from_table": None}, "nobody can say whether"),
        ([Made(7, {"x": 13})], {"as_of": 999}, "no snapshot of 1970-01-01T00:00:00"),
        ([Made(7, {"x": 13})], {"version": 1}, "which has versions"),
        ([Made(7, {"x": 13})], {"table": "file:///lake/nothing"}, "could not be asked"),
    ],
)
def test_another_snapshot_is_proved_or_refused(
    tmp_path: Path, snapshots: Sequence[Made], keys: dict[str, Any], says: str
) -> None:
    ground = ground_of(tmp_path)
    write_table(ground.put, NEW, "u-new", snapshots)
    (refusal,) = refusals(ground, moved(**keys))
    assert says in refusal.message and refusal.hint


def test_a_table_that_was_copied_with_its_metadata_has_the_same_snapshot(tmp_path: Path) -> None:
    ground = ground_of(tmp_path)
    newest = Made(told("2.0.2-idle")["snapshot"], {"b": 7, "c": 1})
    write_table(ground.put, NEW, "u-old", [Made(101, {"a": 5}), newest, Made(103, {"d": 2})])
    ground.apply(moved(from_table=None))
    assert ground.held(TARGET)["_metadata"] == ground.held(IMAGE)["_metadata"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("state", "says", "hint"),
    [
        ("unread", "has unread splits (4), which name files", "when the source is idle"),
        ("empty", "has found no snapshot in its table yet", "start the job from this image as"),
    ],
)
def test_a_source_that_is_not_idle_is_refused(
    tmp_path: Path, version: str, state: str, says: str, hint: str
) -> None:
    ground = ground_of(tmp_path, f"{version}-{state}")
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1})])
    (refusal,) = refusals(ground, moved())
    assert says in refusal.message and hint in (refusal.hint or "")


@pytest.mark.parametrize("case", sorted(path.name for path in GOLDEN.iterdir()))
def test_the_snapshot_is_that_of_the_tables_metadata(case: str) -> None:
    shown = api.inspect(str(image(case)), sources=True).to_dict()
    (source,) = shown["images"][0]["endpoints"]
    known = told(case)
    assert source["kind"] == "iceberg"
    rest = {name: source["details"].pop(name) for name in ("split_version", "listings")}
    assert rest["split_version"] == 3 and isinstance(rest["listings"], list)
    assert source["details"] == {
        "snapshot_id": known["snapshot"],
        "time_ms": known["time_ms"],
        "splits": known["unread"],
    }


def test_a_running_job_that_is_not_idle_runs_on_where_it_was(tmp_path: Path) -> None:
    ground = ground_of(tmp_path, "2.0.2-unread")
    change = {"kind": "reposition", "table": NEW, "from_table": OLD}
    flink, spec = running(ground, change)
    (finding,) = refusals(ground, spec)
    assert f"the Iceberg table {NEW} could not be asked" in finding.message
    write_table(ground.put, NEW, "u-new", [Made(7, {"a": 5, "b": 7, "c": 1})])
    with pytest.raises(PlanError, match="has unread splits"):
        ground.apply(spec, "run-1")
    assert ground.held(TARGET) == {}
    assert [each.location for each in flink.submissions] == ["file:///taken/savepoint-1"]
