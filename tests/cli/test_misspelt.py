"""A path or a name under which nothing is: the same mistake has the same exit code, whichever
command it is made with, and that code is in the command's help.

    2  there is no request: the file that says what is to be done is not there
    4  the request names something, and nothing is there: another try finds nothing, either
    5  `verify` of an image answers the question it was asked: no job can restart from there
"""

from __future__ import annotations

import inspect
import json
import os
import re
from pathlib import Path
from typing import get_args

import pytest

from stateshift.cli.commands import command_of
from tests.cli.support import said, whole_names

MISSPELT = {
    "inspect": "nope",
    "verify": "nope",
    "check": "nope --with job.sql",
    "export": "nope --to rows.jsonl",
    "query": "nope",
    "profile": "nope",
    "diff": "nope nope-2",
    "init": "nope",
    "move": "nope --to new --yes",
    "plan": "nope.json",
    "apply": "nope.json --yes",
    "resume": "nope",
    "rollback": "nope --yes",
    "status": "nope",
    "cutover": "nope",
    "pause": "nope",
    "throttle": "nope 5MB",
    "failover": "nope --yes",
    "failback": "nope --yes",
    "drill": "nope --yes",
    "compact": "nope --to new --yes",
    "repartition": "nope --to new --partitions 4 --yes",
    "rewind": "nope --to new --batch 1 --yes",
    "fork": "nope --to new --yes",
    "convert": "nope --to new --provider rocksdb --yes",
    "rename": "nope --to new --operator a=b --yes",
    "split": "nope --to new --to new-2 --yes",
    "merge": "nope nope-2 --to new --yes",
    "evolve": "nope --to new --add a:int --yes",
    "prune": "nope --to new --where true --yes",
    "import": "rows.jsonl --template nope --to new --yes",
    "gather": "nope --to new --yes",
    "repair": "nope --to new --yes",
    "reposition": "nope --to new --by latest --to-brokers nowhere:9092 --yes",
    "live status": "nope",
    "live history": "nope",
    "dataflow": "nope.json --targets a",
    "advise": "nope.json",
    "rebalance": "nope.json --once",
    "doctor": "nope.json",
}
# Those that name no place that could be misspelt; or make it, or need a terminal or a job.
WITHOUT = {"uid", "schema", "man", "completion", "mcp", "runs", "metrics", "browse"}
SPECS = {"plan", "apply", "dataflow", "advise", "rebalance", "doctor"}


def test_every_command_that_takes_a_place_is_asked() -> None:
    places = re.compile(r"LOCATION|WORKDIR|SPEC|IMAGE|PLACE|GROUP|^A$|^B$")
    for name in whole_names():
        taken = inspect.signature(command_of(name).function, eval_str=True).parameters.values()
        metavars = []
        for each in taken:
            _, parsed_as, *_ = (*get_args(each.annotation), None, None)
            metavars.append(str(getattr(parsed_as, "metavar", None) or ""))
        takes_place = any(map(places.search, metavars))
        is_live = name.startswith("live ")
        assert not takes_place or name in MISSPELT or name in WITHOUT or is_live, (name, metavars)


@pytest.mark.every_case
@pytest.mark.parametrize("name", MISSPELT)
def test_the_same_mistake_has_the_same_exit_code(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("{}\n")
    Path("job.sql").write_text("select 1;\n")
    expected = 5 if name == "verify" else 4
    if name in SPECS:
        expected = 2
    told = said(*name.split(), *MISSPELT[name].split())
    assert told.code == expected, told.err
    assert "nope" in told.err + told.out and "hint: " in told.err + told.out
    assert f"\n  {expected} " in command_of(name).epilog
    assert not list(tmp_path.glob("new*")) and not Path("nope").exists()
    asked = said(*name.split(), *MISSPELT[name].split(), "--json")
    assert asked.code == expected
    if name != "verify":
        assert asked.document["exit_code"] == expected


def test_a_spec_that_names_a_place_where_nothing_is_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = {"name": "o", "checkpoint_location": "nope", "remote_location": "new"}
    Path("spec.json").write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
    assert said("plan", "spec.json").code == 4
    assert said("apply", "spec.json", "--yes").code == 4
    assert not os.path.exists("new")


@pytest.mark.parametrize(
    "name", ["apply", "resume", "rollback", "move", "failover", "failback", "rebalance"]
)
def test_whatever_may_leave_a_job_down_says_so_in_its_help(name: str) -> None:
    assert re.search(r"^  10 ", command_of(name).epilog, re.MULTILINE), name
