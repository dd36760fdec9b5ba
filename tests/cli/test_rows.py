"""The rows of a result as CSV and JSON lines: those of --json, and no name is a formula."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

from stateshift.cli.views.text import csv_text, jsonl_text
from tests.cli.support import Said, said

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "spark-4.3.0"
IMAGE = str(GOLDEN / "window-hdfs" / "checkpoint")
OTHER = str(GOLDEN / "window-rocksdb" / "checkpoint")
SQL = "select shard, key, value from state_0 order by shard, key"


def rows_in(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def as_csv(*command: str) -> list[dict[str, str]]:
    shown = said(*command, "--format", "csv")
    assert shown.err == "" or shown.code == 0, shown.err
    return rows_in(shown.out)


def document(*command: str) -> Said:
    return said(*command, "--json")


def test_the_rows_of_a_query_have_a_column_for_each_part_of_a_key() -> None:
    rows = as_csv("query", IMAGE, SQL)
    told = document("query", IMAGE, SQL).document["rows"]
    assert len(rows) == len(told) == 10
    for row, true in zip(rows, told, strict=True):
        assert int(row["shard"]) == true["shard"]
        assert row["key.window.start"] == true["key"]["window"]["start"]
        assert row["key.word"] == (true["key"]["word"] or "")
        assert float(row["value.sum"] or 0) == (true["value"]["sum"] or 0)
    lines = said("query", IMAGE, SQL, "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == told


def test_an_answer_without_a_row_has_its_columns() -> None:
    assert said("query", IMAGE, f"{SQL} limit 0", "--format", "csv").out == "shard,key,value\n"
    assert said("query", IMAGE, f"{SQL} limit 0", "--format", "jsonl").out == ""


def test_each_result_that_is_a_table_has_its_rows() -> None:
    assert [row["name"] for row in as_csv("query", IMAGE)] == ["state_0"]
    assert [row["name"] for row in as_csv("uid", "a", "b")] == ["a", "b"]
    assert as_csv("runs", str(GOLDEN)) == []
    told = document("diff", IMAGE, OTHER)
    shown = said("diff", IMAGE, OTHER, "--format", "csv")
    assert shown.code == told.code
    (row,) = rows_in(shown.out)
    (operator,) = told.document["operators"]
    for name in ("added", "removed", "changed", "same"):
        assert int(row[name]) == operator[name]


def test_the_rows_of_runs_and_of_a_plan_are_those_of_their_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(IMAGE, "orders")
    job = {"name": "orders", "checkpoint_location": "orders", "remote_location": "moved"}
    spec = {"version": 1, "engine": "spark", "jobs": [{**job, "waive": ["paths-stay"]}]}
    Path("spec.json").write_text(json.dumps(spec))
    phases = [row["name"] for row in as_csv("plan", "spec.json")]
    assert phases == [each["name"] for each in document("plan", "spec.json").document["phases"]]
    assert "copy" in phases
    assert said("apply", "spec.json", "--yes").code == 0
    (row,) = as_csv("runs")
    (run,) = document("runs").document
    assert (row["run"], row["state"], row["workdir"]) == (run["run"], "finished", run["workdir"])


@pytest.mark.parametrize("name", ["=1+1", "+a1", "-1+1", "@sum(a1)", "\t=1", "\r=1", "\n=1"])
def test_a_name_is_no_formula_and_a_number_stays_one(name: str) -> None:
    (row,) = rows_in(csv_text([{"name": name, "number": -5, "deep": {"name": name}}]))
    assert row["name"].startswith("'")
    assert row["name"] == row["deep.name"]
    assert row["number"] == "-5"
    (decimals,) = rows_in(csv_text([{"less": "-1.50", "more": "+1", "version": "-1.2.3"}]))
    assert decimals == {"less": "-1.50", "more": "+1", "version": "'-1.2.3"}
    (shown,) = rows_in(said("uid", "--format", "csv", "--", name).out)
    assert shown["name"].startswith("'")
    assert json.loads(said("uid", "--format", "jsonl", "--", name).out)["name"] == name


def test_heads_are_names_as_well() -> None:
    assert csv_text([{"=cmd()": 1}]).splitlines()[0] == "'=cmd()"
    assert csv_text([], ["=cmd()"]) == "'=cmd()\n"


def test_nothing_in_a_name_reaches_the_terminal() -> None:
    text = csv_text([{"name": "a\x1b[2J\u202eb"}])
    assert "\x1b" not in text and "\u202e" not in text
    assert "\x1b" not in jsonl_text([{"name": "a\x1b[2J"}])


def test_rows_may_have_other_keys_nothing_lists_and_line_breaks() -> None:
    text = csv_text([{"a": None, "b": [1, {"c": "x"}]}, {"a": 'two\nlines, "quoted"', "d": True}])
    first, second = rows_in(text)
    assert first == {"a": "", "b": '[1, {"c": "x"}]', "d": ""}
    assert second == {"a": 'two\nlines, "quoted"', "b": "", "d": "true"}
    assert csv_text([]) == jsonl_text([]) == ""


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_format_and_the_document_exclude_each_other(format: str) -> None:
    refused = said("uid", "a", "--format", format, "--json")
    assert refused.code == 2
    assert refused.document["message"] == f"--format: {format} is not the JSON document"
    wrong = said("uid", "a", "--format", "xml")
    assert (wrong.code, wrong.out) == (2, "")
    assert "not one of text, markdown, csv, jsonl" in wrong.err


def test_the_table_of_a_result_is_markdown_as_well() -> None:
    assert "| name | hash |" in said("uid", "a|b", "--format", "markdown").out
    assert "| state\\_0 |" in said("query", IMAGE, "--format", "markdown").out


TABLES = {
    "inspect": ("inspect", IMAGE),
    "profile": ("profile", IMAGE),
    "query": ("query", IMAGE),
    "diff": ("diff", IMAGE, IMAGE),
    "plan": ("plan", "spec.json"),
    "runs": ("runs", "."),
    "status": ("status", "run"),
}


@pytest.mark.parametrize("name", TABLES)
def test_no_cell_of_a_table_is_a_document(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spreadsheet can do nothing with JSON; and each row says what it is of, by its name."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN.parent / "runs/spark-finished/workdir", "run")
    shutil.copytree(IMAGE, "orders")
    job = {"name": "orders", "checkpoint_location": "orders", "remote_location": "new"}
    spec = {"version": 1, "engine": "spark", "jobs": [{**job, "waive": ["paths-stay"]}]}
    Path("spec.json").write_text(json.dumps(spec))
    rows = as_csv(*TABLES[name])
    assert rows
    for cell in (cell for row in rows for cell in row.values()):
        assert not cell.startswith(("[", "{")), cell
    if name in ("runs", "status"):
        assert [row["jobs"] for row in rows] == ["orders"] and rows[0]["state"] == "finished"
    shown = said(*TABLES[name], "--format", "markdown")
    assert shown.out.startswith("#") or shown.out.startswith("|"), shown.out


def test_the_rows_of_a_refused_plan_leave_its_findings_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = {"name": "orders", "checkpoint_location": "nope", "remote_location": "new"}
    Path("spec.json").write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
    for format in ("csv", "jsonl"):
        shown = said("plan", "spec.json", "--format", format)
        assert (shown.code, shown.out) == (4, "")
        assert f"refuse: nothing is at file://{tmp_path}/nope" in shown.err
        assert "hint: check the path" in shown.err and "refused  1 finding" in shown.err
