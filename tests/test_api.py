"""The interface for programs: the page's examples, and that its documents are the commands'."""

from __future__ import annotations

import dataclasses
import doctest
import json
import logging
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stateshift import api
from stateshift.cli import main
from stateshift.errors import Interrupted, JournalError, MissingFile, PlanError, SpecError
from stateshift.specification import parse_spec
from stateshift.storage import locations
from tests.cli.support import SOURCE, TARGET, Outside, without_times
from tests.support.checkpoints import Checkpoint

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "stateshift/api/README.md"
SPARK = ROOT / "tests/golden/spark-4.3.0/window-hdfs/checkpoint"
FLINK = ROOT / "tests/golden/flink-2.3.0/count-canonical-hashmap/image"


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a checkpoint of Spark's and a savepoint of Flink's."""
    shutil.copytree(SPARK, tmp_path / "checkpoints" / "orders")
    shutil.copytree(next(FLINK.rglob("_metadata")).parent, tmp_path / "savepoint")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spec(**more: Any) -> dict[str, Any]:
    places = {"checkpoint_location": "checkpoints/orders", "remote_location": "moved/orders"}
    return {"version": 1, "jobs": [{"name": "orders", **places, "waive": ["paths-stay"], **more}]}


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> Any:
    """What a command prints with --json."""
    capsys.readouterr()
    main([*argv, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.row("W-16")
def test_every_example_of_the_page_does_what_the_page_says() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 15
    assert result.failed == 0


# -- the documents are the commands'


@pytest.mark.parametrize(
    "place", ["checkpoints/orders", "savepoint", "checkpoints/orders/offsets/0"]
)
def test_an_inspection_is_what_the_command_prints(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert api.inspect(place).to_dict() == said(capsys, "inspect", place)


def test_an_inspection_takes_what_the_command_takes(capsys: pytest.CaptureFixture[str]) -> None:
    found = api.inspect("checkpoints/orders", files=True, entries=2, uids=["a", "b"])
    options = ("--files", "--entries", "--limit", "2", "--uids", "a,b")
    assert found.to_dict() == said(capsys, "inspect", "checkpoints/orders", *options)


@pytest.mark.parametrize("place", ["checkpoints/orders", "savepoint"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_verdict_is_what_the_command_prints(
    place: str, deep: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = api.verify(place, deep=deep)
    assert verdict.ok
    printed = said(capsys, "verify", place, *(["--deep"] if deep else []))
    assert without_times(verdict.to_dict()) == without_times(printed)


def test_an_image_that_cannot_be_started_from_is_a_verdict_and_no_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("checkpoints/orders/offsets/5").write_bytes(b"v1")
    verdict = api.verify("checkpoints/orders")
    assert not verdict.ok
    assert verdict.to_dict() == said(capsys, "verify", "checkpoints/orders")


def test_a_plan_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    Path("spec.json").write_text(json.dumps(spec()))
    planned = api.plan(spec()).to_dict()
    printed = said(capsys, "plan", "spec.json")
    for document in (planned, printed):
        document.pop("estimate")  # measured anew each time
        document["findings"] = [f for f in document["findings"] if " old: " not in f["message"]]
    assert planned == printed


def test_a_run_and_its_status_are_what_the_commands_print(
    capsys: pytest.CaptureFixture[str],
) -> None:
    moved = api.apply(spec(), workdir="run")
    assert api.status("run").to_dict() == said(capsys, "status", "run")
    assert api.verify("run").to_dict() == said(capsys, "verify", "run")
    again = api.resume("run").to_dict()
    assert moved.to_dict() == again
    printed = said(capsys, "resume", "run")
    assert printed.pop("report_html").endswith("report.html")
    assert again.pop("report_html") is None
    assert printed == again


def test_a_comparison_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    api.apply(spec(), workdir="run")
    same = api.diff("checkpoints/orders", "moved/orders")
    assert same.equal is True
    assert same.to_dict() == said(capsys, "diff", "checkpoints/orders", "moved/orders")
    shutil.copytree("checkpoints/orders", "earlier")
    for name in ("commits/5", "offsets/5"):
        Path("earlier", name).unlink()
    other = api.diff("checkpoints/orders", "earlier", show=1)
    assert other.equal is False
    printed = said(capsys, "diff", "checkpoints/orders", "earlier", "--show", "1")
    assert other.to_dict() == printed


@pytest.mark.parametrize("place", ["checkpoints/orders", "savepoint"])
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl"])
def test_an_exported_file_is_what_the_command_writes(
    place: str, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = api.export(place).save(f"api.{suffix}")
    printed = said(capsys, "export", place, "--to", f"cli.{suffix}")
    assert {**made.to_dict(), "file": f"cli.{suffix}"} == printed
    assert Path(f"api.{suffix}").read_bytes() == Path(f"cli.{suffix}").read_bytes()


@pytest.mark.parametrize("place", ["checkpoints/orders", "savepoint"])
def test_a_table_is_what_the_file_holds_and_batches_are_the_table(place: str) -> None:
    state = api.export(place)
    state.save("state.arrow")
    with pa.ipc.open_file("state.arrow") as file:
        assert state.table() == file.read_all()
    assert pa.Table.from_batches(list(state.batches())) == state.table()
    state.save("state.parquet")
    assert pq.read_metadata("state.parquet").num_rows == state.table().num_rows > 0


def test_changes_are_read_as_the_command_reads_them() -> None:
    table = api.export("checkpoints/orders", changes=(4, 5)).table()
    assert set(table["batch"].to_pylist()) <= {4, 5}
    with pytest.raises(SpecError):
        api.export("checkpoints/orders", batch=1, changes=(4, 5))


def committed_in_time(checkpoint: Path) -> None:
    """Set the times of a copy's commits to those of a query that was at work half of the time."""
    starts = {}
    for file in (checkpoint / "offsets").glob("[0-9]*"):
        header = json.loads(file.read_text().splitlines()[1])
        starts[file.name] = header["batchTimestampMs"] / 1000
    for name, start in starts.items():
        next_start = starts.get(str(int(name) + 1), start + 1)
        os.utime(checkpoint / "commits" / name, (start, (start + next_start) / 2))


def test_advice_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    committed_in_time(Path("checkpoints/orders"))
    (told,) = api.advise("checkpoints/orders", cores=4, settings={"sample.age-max": "100000 d"})
    assert (told.verdict, told.parallelism, told.wanted) == ("fits", 4, 4)
    options = ("--cores", "4", "--set", "sample.age-max=100000 d")
    (printed,) = said(capsys, "advise", "checkpoints/orders", *options)
    document = told.to_dict()
    for each in (document, printed):
        each["inputs"]["around"].pop("now")
        for sample in each["inputs"]["samples"]:
            sample.pop("time")
    assert document == printed


def test_advice_is_on_a_checkpoint_by_its_path() -> None:
    (told,) = api.advise(Path("checkpoints/orders"))
    assert told.job == "checkpoints/orders"


@pytest.mark.parametrize("wrong", [{"cores": 0}, {"cores": -4}, {"sample_seconds": 0}])
def test_numbers_that_nothing_can_be_measured_with_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        api.advise("checkpoints/orders", **wrong)


def test_advice_is_on_the_jobs_of_a_spec_in_every_form_and_keeps_a_history() -> None:
    other = {
        **spec()["jobs"][0],
        "name": "other",
        "checkpoint_location": "o",
        "remote_location": "p",
    }
    two = {**spec(), "jobs": [*spec()["jobs"], other]}
    Path("spec.json").write_text(json.dumps(two))
    for form in (two, Path("spec.json"), "spec.json"):
        told = api.advise(form, jobs=["orders"], history="looks")
        assert [each.job for each in told] == ["orders"]
    assert len(Path("looks/orders.jsonl").read_text().splitlines()) == 3


def test_a_setting_that_there_is_not_is_refused_with_the_one_that_may_be_meant() -> None:
    with pytest.raises(SpecError, match=r"utilization\.target"):
        api.advise("checkpoints/orders", settings={"utilisation.target": 0.6})


# -- forms of a request


def test_a_spec_is_taken_in_every_form() -> None:
    Path("spec.json").write_text(json.dumps(spec()))
    whole = parse_spec(json.dumps(spec()), base=str(Path.cwd()))
    prints = {
        api.plan(form).fingerprint for form in (spec(), "spec.json", Path("spec.json"), whole)
    }
    assert len(prints) == 1


def test_a_plan_that_was_saved_is_applied_by_its_path() -> None:
    api.plan(spec()).save("orders.plan")
    assert api.plan("orders.plan").fingerprint == api.plan(spec()).fingerprint
    assert api.apply("orders.plan", workdir="run").state == "finished"


def test_a_location_may_be_a_value() -> None:
    place = locations.parse("checkpoints/orders", str(Path.cwd()))
    assert api.inspect(place).epoch == api.inspect(Path("checkpoints/orders")).epoch == 5


def test_without_a_workdir_a_run_has_one_of_its_own() -> None:
    moved = api.apply(spec())
    assert Path(moved.workdir).parent == Path(".stateshift").absolute()
    assert moved.run == Path(moved.workdir).name


# -- errors, and values


def test_errors_are_the_projects_with_exit_code_and_hint() -> None:
    with pytest.raises(MissingFile) as nothing:
        api.inspect("nowhere")
    assert nothing.value.exit_code == 4 and nothing.value.hint
    with pytest.raises(PlanError) as refused:
        api.apply(spec(waive=[]), workdir="run")
    assert refused.value.exit_code == 4
    api.apply(spec(), workdir="run")
    with pytest.raises(JournalError):
        api.apply(spec(), workdir="run")


def test_a_run_that_is_interrupted_names_its_workdir_and_goes_on() -> None:
    stop = threading.Event()

    def watch(event: api.Progress) -> None:
        if event.event == "phase" and event.name == "copy":
            stop.set()

    with pytest.raises(Interrupted) as interrupted:
        api.apply(spec(), workdir="run", progress=watch, stop=stop)
    place = Path("run").absolute()
    back = f"or, to take it back: stateshift rollback {place}"
    assert interrupted.value.hint == f"stateshift resume {place}; {back}"
    assert api.status("run").state in ("interrupted", "failed")
    assert api.resume("run").state == "finished"


def test_what_is_returned_is_frozen() -> None:
    planned = api.plan(spec())
    with pytest.raises(dataclasses.FrozenInstanceError):
        planned.proposal = None  # type: ignore[misc, assignment]


def test_a_test_may_have_storages_and_clusters_of_its_own(tmp_path: Path) -> None:
    outside = Outside()
    Checkpoint().write(outside.disk.open(SOURCE))
    places = {"checkpoint_location": SOURCE, "remote_location": TARGET}
    given = {"version": 1, "engine": "spark", "jobs": [{"name": "orders", **places}]}
    moved = api.apply(given, workdir=tmp_path / "run", adapters=outside.adapters)
    assert moved.state == "finished"
    assert api.diff(SOURCE, TARGET, adapters=outside.adapters).equal
    assert api.verify(moved.workdir, adapters=outside.adapters).ok
    assert api.rollback(moved.workdir, adapters=outside.adapters).state == "rolled-back"


def test_a_program_sees_the_steps_through_logging(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="stateshift"):
        api.apply(spec(), workdir="run")
    assert [text for text in caplog.messages if text.startswith("phase publish of orders begins")]
