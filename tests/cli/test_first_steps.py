"""The first steps of somebody new, and the mistakes made on them: what is typed is named, and what
is there stays as it is.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from stateshift.api.requests import spec_of
from stateshift.cli.commands import command_of
from stateshift.cli.shell import progress
from stateshift.cli.views.text import NAME_MAX
from stateshift.cli.views.units import span
from tests.cli.support import said, whole_names
from tests.cli.test_terminal import at_terminal, environment, program
from tests.formats.golden import ROOT

GOLDEN = ROOT / "spark-4.3.0" / "window-hdfs" / "checkpoint"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as README's sample makes it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN, tmp_path / "orders")
    job = {"name": "orders", "checkpoint_location": "orders", "remote_location": "moved/orders"}
    spec = {"version": 1, "engine": "spark", "jobs": [{**job, "waive": ["paths-stay"]}]}
    (tmp_path / "move.json").write_text(json.dumps(spec))
    return tmp_path


def test_verify_says_what_it_has_not_read(folder: Path) -> None:
    assert "not what is in the files of the state (--deep)" in said("verify", "orders").out
    assert "--deep" not in said("verify", "orders", "--deep").out


WRITING = {
    "export orders --to kept.jsonl": "--to",
    "query orders --to kept.jsonl": "--to",
    "plan move.json -o kept.plan": "-o",
    "check orders --with job.sql --write-spec kept.json": "--write-spec",
}


@pytest.mark.parametrize("words", WRITING)
def test_a_file_that_is_there_stays_unless_told(words: str, folder: Path) -> None:
    Path("job.sql").write_text("select 1;\n")
    kept = Path(words.split()[-1])
    kept.write_text("mine")
    refused = said(*words.split())
    assert refused.code == 4, refused.err
    assert f"{WRITING[words]}: {kept} is there, and stays as it is" in refused.err
    assert f"hint: stateshift {words} --overwrite" in refused.err
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("words", ["export orders --to kept.jsonl", "plan move.json -o kept.plan"])
def test_a_file_is_replaced_if_told(words: str, folder: Path) -> None:
    kept = Path(words.split()[-1])
    kept.write_text("mine")
    assert said(*words.split(), "--overwrite").code == 0
    assert "mine" not in kept.read_text()


def test_a_saved_plan_gives_way_to_the_next(folder: Path) -> None:
    for _ in range(2):
        assert said("plan", "move.json", "-o", "kept.plan").code == 0


def test_a_page_gives_way_to_the_next(folder: Path) -> None:
    for _ in range(2):
        assert said("profile", "orders", "--html", "kept.html").code == 0


def _writing_options(name: str) -> Iterator[str]:
    """Yield the help of the options by which a command writes a file."""
    for each in inspect.signature(command_of(name).function, eval_str=True).parameters.values():
        _, parsed_as, *_ = (*get_args(each.annotation), None, None)
        words = str(getattr(parsed_as, "help", None) or "")
        if getattr(parsed_as, "metavar", None) == "FILE" and re.match(r"Write|Save", words):
            yield words


def test_whatever_writes_a_file_asks_for_overwrite_or_says_that_it_replaces() -> None:
    writing = {name: [*_writing_options(name)] for name in whole_names()}
    assert sum(map(len, writing.values())) >= 7
    for name, helps in writing.items():
        taken = inspect.signature(command_of(name).function).parameters
        for words in helps:
            assert "overwrite" in taken or re.search("replace|No file", words), (name, words)


@pytest.mark.parametrize(
    ("place", "what", "command"),
    [
        ("move.json", "a spec, and no image", "plan move.json"),
        ("move.yaml", "a spec, and no image", "plan move.yaml"),
        ("move.plan", "a saved plan, and no image", "apply move.plan"),
        ("run", "the workdir of a run, and no image", "status "),
        ("runs", "the workdirs of runs, and no image", "runs "),
    ],
)
def test_what_is_no_image_is_named_with_its_command(
    folder: Path, place: str, what: str, command: str
) -> None:
    Path("move.yaml").write_text("version: 1\nengine: spark\njobs: []\n")
    assert said("plan", "move.json", "-o", "move.plan").code == 0
    assert said("apply", "move.json", "--yes", "--workdir", "run").code == 0
    shutil.copytree("run", "runs/one")
    told = said("inspect", place)
    assert told.code == 3 and what in told.err
    assert f"hint: stateshift {command}" in told.err


NEAR = ["inspect {}", "export {} --to x.jsonl", "move {} --to new --yes", "init {} --to new --yes"]


@pytest.mark.parametrize("words", NEAR)
def test_a_misspelt_place_is_told_the_name_that_was_meant(words: str, folder: Path) -> None:
    told = said(*words.format("ordres").split())
    assert told.code == 4 and f"did you mean '{folder}/orders'?" in told.err, told.err


@pytest.mark.parametrize("words", NEAR)
def test_an_empty_folder_is_called_that(words: str, folder: Path) -> None:
    Path("void").mkdir()
    told = said(*words.format("void").split())
    assert told.code == 4 and "void is there, and holds no file" in told.err, told.err


def test_a_misspelt_savepoint_is_told_the_name_that_was_meant(folder: Path) -> None:
    Path("savepoint-ab12").mkdir()
    assert "did you mean" in said("inspect", "savepoint-ab21").err
    assert "savepoint-ab12" in said("inspect", "savepoint-ab21/_metadata").err


def test_init_keeps_the_paths_as_they_were_typed(folder: Path) -> None:
    made = said("init", "orders", "--to", "moved/orders", "--waive", "paths-stay", "--yes")
    assert made.code == 0, made.err
    (job,) = json.loads(Path("orders.json").read_text())["jobs"]
    assert (job["checkpoint_location"], job["remote_location"]) == ("orders", "moved/orders")
    assert said("plan", "orders.json").code == 0


def test_init_writes_paths_in_full_into_another_folder(folder: Path) -> None:
    Path("specs").mkdir()
    wanted = ("--waive", "paths-stay", "--yes", "-o", "specs/orders.json")
    assert said("init", "orders", "--to", "moved/orders", *wanted).code == 0
    (job,) = json.loads(Path("specs/orders.json").read_text())["jobs"]
    assert job["checkpoint_location"] == f"file://{folder}/orders"
    assert job["remote_location"] == f"file://{folder}/moved/orders"


def test_init_asks_for_the_commands_that_stop_and_restart(folder: Path) -> None:
    given = {"name": "o", "start": "./start", "stop": "./stop", "restart": "./again"}
    Path("given.json").write_text(json.dumps(given))
    wanted = ("--answers", "given.json", "--waive", "paths-stay")
    made = said("init", "orders", "--to", "moved/orders", *wanted)
    assert made.code == 0, made.err
    spec = spec_of("o.json" if os.path.exists("o.json") else "orders.json")
    options = {cluster.name: dict(cluster.options) for cluster in spec.clusters}
    common = {"cwd": os.getcwd(), "stop": "./stop"}
    assert options == {
        "commands": {**common, "submit": "./start"},
        "commands-here": {**common, "submit": "./again"},
    }
    assert spec.jobs[0].source_cluster == "commands-here"


def test_a_restart_without_a_start_is_no_answer(folder: Path) -> None:
    Path("given.json").write_text(json.dumps({"name": "o", "start": "", "stop": "./stop"}))
    told = said("init", "orders", "--to", "moved/orders", "--answers", "given.json")
    assert told.code == 2 and "stop: needs an answer to 'start', too" in told.err


def test_a_plan_says_that_the_source_is_fenced(folder: Path) -> None:
    assert "its job cannot go on there" in said("plan", "move.json").out
    words = ("--to", "new", "--where", "true", "--waive", "paths-stay", "--yes", "--workdir", "w")
    pruned = said("prune", "orders", *words)
    assert pruned.code == 0, pruned.err
    assert f"fenced: file://{folder}/orders: its job cannot go on there" in pruned.err


def test_a_waiver_is_named_for_those_without_a_spec(folder: Path) -> None:
    refused = said("move", "orders", "--to", "new", "--yes")
    assert refused.code == 4 and "--waive paths-stay" in refused.err


def test_a_truncated_source_refuses_a_move_with_4(folder: Path) -> None:
    for file in Path("orders/state").rglob("[0-9]*.*"):
        os.truncate(file, 5)
    assert said("verify", "orders", "--deep").code == 5
    told = said("move", "orders", "--to", "new", "--waive", "paths-stay", "--yes")
    assert told.code == 4 and "is damaged" in told.err
    assert said("export", "orders", "--to", "x.jsonl").code == 3
    for name in ("move", "apply", "prune"):
        (words,) = re.findall("^  4 +(.*)", command_of(name).epilog, re.MULTILINE)
        assert "damaged source" in words, name


def test_doctor_takes_a_bare_name_for_a_spec_and_its_hint_works(folder: Path) -> None:
    told = said("doctor", "mvoe")
    assert told.code == 2 and "mvoe: cannot be read" in told.err
    assert "stateshift doctor ./mvoe" in told.err and "fail" not in said("doctor", "./mvoe").out
    assert "stateshift doctor ./" not in said("doctor", "mvoe.json").err


def test_runs_have_whole_names_and_one_spelling_of_their_paths(folder: Path) -> None:
    assert said("apply", "move.json", "--yes").code == 0
    (workdir,) = (folder / ".stateshift").iterdir()
    assert len(workdir.name) <= NAME_MAX
    for words in (("runs",), ("runs", ".stateshift"), ("runs", str(folder / ".stateshift"))):
        (row,) = csv.DictReader(io.StringIO(said(*words, "--format", "csv").out))
        assert row["workdir"] == str(workdir)
        (shown,) = said(*words, "--json").document
        assert shown["workdir"] == str(workdir)
    assert "\\." not in said("runs", "--format", "markdown").out


def test_the_name_of_a_run_is_whole_at_80_columns(folder: Path) -> None:
    assert said("apply", "move.json", "--yes").code == 0
    (workdir,) = (folder / ".stateshift").iterdir()
    env = {**environment(), "COLUMNS": "80"}
    seen, code = at_terminal([*program(), "runs"], folder, b"", b"never", env)
    assert code == 0 and workdir.name in seen


def test_the_time_of_a_run_is_the_same_in_each_of_its_forms(folder: Path) -> None:
    assert said("apply", "move.json", "--yes", "--workdir", "run").code == 0
    assert said("rollback", "run", "--yes").code == 0
    (row,) = csv.DictReader(io.StringIO(said("runs", ".", "--format", "csv").out))
    (took,) = re.findall("^ *took +(.*)", said("status", "run").out, re.MULTILINE)
    assert span(float(row["took_seconds"])) == took
    assert took in said("runs", ".").out and took in said("runs", ".", "--format", "markdown").out


@pytest.mark.parametrize(
    "words", ["inspect", "verify", "export --to x.jsonl", "query", "init --to new --yes"]
)
def test_every_long_read_says_that_it_lasts(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BEFORE_WORDS", 0)
    name, *options = words.split()
    told = said(name, "orders", *options, "-v")
    assert "still reading orders" in told.err, told.err
