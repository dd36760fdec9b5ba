"""A spec to begin with: it is valid, it can be planned, and nothing is written over."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stateshift.api import init as begin
from stateshift.api.requests import spec_of
from stateshift.cli.shell.terminal import Terminal
from stateshift.clusters.protocol import JobState, RunningJob
from stateshift.specification import parse_spec
from stateshift.specification.written import read_yaml
from stateshift.testing.memory_flink import MemoryFlink
from tests.cli.support import SOURCE, TARGET, Outside, said, with_checkpoint
from tests.formats.golden import ROOT
from tests.support.checkpoints import put
from tests.support.ground import Around

pytestmark = pytest.mark.row("W-30")

FLINK = "http://here:8081"
OF_A_CLUSTER = {
    "other": "http://there:8081",
    "savepoints": "s3://lake/savepoints",
    "jar": "/jobs/orders.jar",
}


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outside:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return with_checkpoint()


class Flink(Around):
    """A Flink on which two jobs run."""

    def alive(self) -> tuple[RunningJob, ...]:
        return tuple(RunningJob(name * 4, name, JobState.RUNNING) for name in ("orders", "fraud"))

    def version(self) -> str:
        return "2.3.0"


def answers(**given: str) -> str:
    Path("answers.json").write_text(json.dumps(given))
    return "answers.json"


def test_a_checkpoint_becomes_a_spec_with_comments_and_a_page_that_can_be_planned(
    outside: Outside,
) -> None:
    made = outside.run("init", SOURCE, "--to", TARGET, "-o", "orders.yaml", "--yes")
    assert made.code == 0, made.err
    text = Path("orders.yaml").read_text()
    assert "# Where the image goes." in text
    assert not read_yaml(text).complaints
    (job,) = spec_of("orders.yaml").jobs
    assert (job.name, job.source, job.target) == ("orders", SOURCE, TARGET)
    assert outside.run("plan", "orders.yaml").code == 0
    page = Path("orders.md").read_text()
    assert "a checkpoint of Spark at epoch 2" in page and "stateshift apply orders.yaml" in page
    assert "| `remote_location` | Where the image goes." in page


def test_nothing_is_written_over(outside: Outside) -> None:
    Path("orders.md").write_text("mine")
    refused = outside.run("init", SOURCE, "--to", TARGET, "-o", "orders.json", "--yes")
    assert refused.code == 4 and "orders.md is there, and stays as it is" in refused.err
    assert Path("orders.md").read_text() == "mine" and not Path("orders.json").exists()


def test_without_a_terminal_every_answer_that_lacks_is_named(outside: Outside) -> None:
    refused = outside.run("init", SOURCE, "--json")
    assert refused.code == 2
    assert [each["pointer"] for each in refused.document["complaints"]] == ["name", "to", "start"]
    refused = outside.run("init", SOURCE, "--yes", "--json")
    assert [each["pointer"] for each in refused.document["complaints"]] == ["to"]
    refused = outside.run("init", SOURCE, "--answers", answers(too="x", to=TARGET), "--yes")
    assert "nothing is asked by the key 'too', did you mean 'to'?" in refused.err
    assert not list(Path().glob("orders.*"))


def test_what_lacks_is_answered_by_the_command_that_the_hint_names(outside: Outside) -> None:
    """A file of answers is named only where one is needed, or was given."""
    hint = outside.run("init", SOURCE, "--to", TARGET, "--json").document["hint"]
    assert hint == f"stateshift init {SOURCE} --to {TARGET} --json --yes"
    hint = outside.run("init", SOURCE, "--json").document["hint"]
    assert hint == f"stateshift init {SOURCE} --json --to LOCATION --yes"
    given = answers(to=TARGET, nam="eu")
    hint = outside.run("init", SOURCE, "--answers", given, "--json").document["hint"]
    assert hint == (
        f"take nam out of answers.json; then: stateshift init {SOURCE} --answers answers.json "
        "--json --yes"
    )
    given = answers(name="eu")
    hint = outside.run("init", SOURCE, "--answers", given, "--json").document["hint"]
    assert hint.startswith('write {"to": "..."} to answers.json, with your answers; then: ')
    assert hint.endswith(f"stateshift init {SOURCE} --answers answers.json --json --yes")
    outside.wrap_cluster = Flink
    hint = outside.run("init", FLINK, "--to", "s3://lake/x", "--json").document["hint"]
    assert hint.startswith('write {"job": "...", "other": "...", "savepoints": "...", "jar": ')


def test_the_hint_of_a_file_is_a_command_that_works(outside: Outside) -> None:
    """Of answers that are nowhere, a name that is none of a spec's, and one that is taken."""
    lost = outside.run("init", SOURCE, "--answers", "nowhere.json")
    assert lost.code == 2
    assert "--answers: nowhere.json: cannot be read: No such file" in lost.err
    assert f"then: stateshift init {SOURCE} --answers nowhere.json" in lost.err
    Path("taken.json").write_text("{}")
    for flags, other in (
        (("-o", "x.txt"), "x.yaml"),
        (("--output=x.txt",), "x.yaml"),
        (("-o", "taken.json"), "taken-2.json"),
    ):
        refused = outside.run("init", SOURCE, *flags, "--to", TARGET, "--yes", "--json")
        hint = refused.document["hint"]
        assert hint == f"stateshift init {SOURCE} --to {TARGET} --yes --json -o {other}"
        assert outside.run(*hint.split()[1:]).code == 0
        Path(other).unlink()
        Path(other).with_suffix(".md").unlink()


def test_a_start_by_a_command_and_a_waiver_are_answers_too(outside: Outside) -> None:
    given = answers(to=TARGET, name="eu", start="./start.sh", waive="paths-stay")
    assert outside.run("init", SOURCE, "--answers", given, "-o", "deep.json").code == 0
    spec = spec_of("deep.json")
    assert spec.jobs[0].waive == ("paths-stay",)
    cluster = spec.cluster("commands")
    assert cluster.options == {"cwd": os.getcwd(), "submit": "./start.sh"}
    assert spec.jobs[0].source_cluster is None


@pytest.mark.parametrize("goal", ["standby", "drill"])
def test_a_standby_is_never_stopped_and_keeps_its_bound(outside: Outside, goal: str) -> None:
    made = outside.run("init", SOURCE, "--for", goal, "--to", TARGET, "--yes", "--json")
    assert made.code == 0, made.err
    assert (made.document["spec"], made.document["page"]) == ("orders.json", "orders.md")
    (job,) = spec_of("orders.json").jobs
    assert job.is_standby and job.standby.rpo == 900
    assert (
        f"stateshift drill {TARGET}   # a rehearsal of the failover: the job runs on\n"
        if goal == "drill"
        else f"stateshift failover {TARGET}   # on the day when the job is lost: starts it at its "
        "standby\n"
    ) in Path("orders.md").read_text()
    assert outside.run("plan", "orders.json").code == 0


def test_a_refused_plan_is_said_and_nothing_is_waived(outside: Outside, tmp_path: Path) -> None:
    outside.disk.denied.add("hdfs://there:8020/ck")
    made = outside.run("init", SOURCE, "--to", TARGET, "--yes", "--json")
    assert made.code == 4 and len(made.document["refusals"]) == 1
    assert spec_of("orders.json").jobs[0].waive == ()
    assert made.document["refusals"][0] in Path("orders.md").read_text()
    shown = outside.run("init", SOURCE, "--to", TARGET, "--yes", "-o", "again.json")
    (hint,) = [line for line in shown.out.splitlines() if line.startswith("  hint: ")]
    assert f"Way out: {hint.removeprefix('  hint: ')}." in Path("again.md").read_text()


def test_a_person_is_asked_and_answers_for_what_is_waived(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    import typer

    outside.disk.denied.add("hdfs://there:8020/ck")
    typed = iter(["orders", TARGET, ""])
    asked: list[str] = []

    def prompt(words: str, default: str | None = None, err: bool = False) -> str:
        asked.append(words)
        return next(typed)

    monkeypatch.setattr(Terminal, "someone_there", property(lambda terminal: True))
    monkeypatch.setattr(typer, "prompt", prompt)
    confirmed: list[str] = []

    def confirm(words: str, err: bool = False) -> bool:
        confirmed.append(words)
        return True

    monkeypatch.setattr(typer, "confirm", confirm)
    made = outside.run("init", SOURCE)
    assert made.code == 0, made.err
    (words,) = confirmed
    assert "\nIt goes on where this is so: A directory says that we may not write to it.\n" in words
    assert words.endswith('Is it so? y writes "permission" into "waive" of the spec')
    assert asked[1] == "Where does its image go?"
    assert spec_of("orders.json").jobs[0].waive == ("permission",)


def test_a_savepoint_is_told_in_flinks_words_and_named_for_the_folder_around_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (image,) = (ROOT / "flink-2.3.0" / "count-canonical-hashmap" / "image").iterdir()
    place = tmp_path / "orders" / "savepoints" / image.name
    shutil.copytree(image, place)
    made = said("init", str(place), "--to", str(tmp_path / "new"), "--yes", "--json")
    assert made.code == 0, made.err
    assert made.document["found"][0] == "a savepoint of Flink at checkpoint 1"
    assert spec_of("orders.json").jobs[0].name == "orders"


def test_a_running_flink_becomes_a_move_of_the_job_that_is_named(outside: Outside) -> None:
    outside.wrap_cluster = Flink
    refused = outside.run("init", FLINK, "--answers", answers(**OF_A_CLUSTER, to="s3://lake/x"))
    assert "not answered: Which job, by name or id (orders, fraud)?" in refused.err
    given: dict[str, Any] = {**OF_A_CLUSTER, "to": "s3://lake/x", "job": "frodo"}
    refused = outside.run("init", FLINK, "--answers", answers(**given))
    assert refused.code == 2 and "0 jobs that run are called 'frodo'" in refused.err


def test_a_move_of_a_running_flink_can_be_planned(outside: Outside, tmp_path: Path) -> None:
    def take(location: str) -> None:
        raise AssertionError("nothing is taken before somebody agrees")

    outside.cluster = flink = MemoryFlink(take)
    flink.run("orders", "ab" * 16)
    with zipfile.ZipFile(tmp_path / "orders.jar", "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\nMain-Class: a.B\n")
    given = answers(**{**OF_A_CLUSTER, "jar": str(tmp_path / "orders.jar")}, to="s3://lake/x")
    made = outside.run("init", FLINK, "--answers", given, "-o", "orders.yaml", "--yes")
    assert made.code == 0, made.out + made.err
    plan = outside.run("plan", "orders.yaml", "--json")
    assert plan.code == 0, plan.out
    planned = [(each["purpose"], each["target"]) for each in plan.document["plans"]]
    assert planned == [("halt", "s3://lake/x"), ("move", "s3://lake/x")]


def test_a_running_flink_becomes_a_spec_of_rebalancing(outside: Outside) -> None:
    outside.wrap_cluster = Flink
    given = answers(**OF_A_CLUSTER, images="s3://lake/moved")
    made = outside.run("init", FLINK, "--for", "rebalance", "--answers", given, "-o", "r.yml")
    assert made.code == 0, made.err
    spec = spec_of("r.yml")
    assert [job.name for job in spec.jobs] == ["orders", "fraud"]
    assert spec.rebalance is not None
    assert [each.name for each in spec.rebalance.clusters] == ["here", "other"]
    refused = outside.run("init", SOURCE, "--for", "rebalance", "--yes")
    assert refused.code == 4 and "name the URL of one" in refused.err


def test_a_spec_of_infore_becomes_one_of_ours(outside: Outside) -> None:
    job = {"Job Name": "old", "Checkpoint Location": SOURCE, "Remote Location": TARGET}
    Path("infore.json").write_text(json.dumps({"restart": True, "jobs": [job]}))
    before = spec_of("infore.json")
    made = outside.run("init", "infore.json", "-o", "ours.yaml")
    assert made.code == 0, made.err
    assert spec_of("ours.yaml") == before
    assert "version: 1" in Path("ours.yaml").read_text()


def test_relative_places_stay_true_in_a_spec_elsewhere(outside: Outside, tmp_path: Path) -> None:
    source = f"file://{tmp_path}/ck"
    for path, content in outside.disk.snapshot(SOURCE).items():
        outside.disk.open(source).write(path, lambda content=content: iter([content]))
    Path("specs").mkdir()
    made = outside.run("init", "ck", "--to", "moved", "-o", "specs/a.json", "--yes")
    assert made.code == 0, made.err
    (job,) = spec_of("specs/a.json").jobs
    assert (job.source, job.target) == (source, f"file://{tmp_path}/moved")


@pytest.mark.parametrize("goal", ["move", "standby", "drill"])
def test_a_job_of_a_running_flink_becomes_a_valid_spec(outside: Outside, goal: Any) -> None:
    job = RunningJob("ab" * 16, "orders", JobState.RUNNING)
    found = begin.Found(FLINK, "flink", ("Flink 2.3.0",), "orders", (job,))
    asked = [question.key for question in begin.questions(found, goal)]
    given = {**OF_A_CLUSTER, "to": "s3://lake/x", "job": "orders", "rpo": "5min"}
    plain = begin.make_spec(found, goal, {key: given[key] for key in asked})
    for text in (begin.as_json(plain), begin.as_yaml(plain)):
        (read,) = parse_spec(read_yaml(text)).jobs
        assert read.flink is not None and read.flink.job_ids == (job.id,)
        assert read.is_standby == (goal != "move")
        assert (read.source_cluster, read.target_cluster) == ("here", "other")


@pytest.mark.parametrize("odd", ["s3:/bucket/x", "there:/x", "simplecache::s3://b/x", " "])
def test_an_answer_that_is_no_location_does_not_become_a_local_one(
    outside: Outside, odd: str
) -> None:
    Path("specs").mkdir()
    for place in ("orders.json", "specs/orders.json"):
        refused = outside.run("init", SOURCE, "--to", odd, "-o", place, "--yes", "--json")
        assert refused.code == 2 and not Path(place).exists()
        assert [each["pointer"] for each in refused.document["complaints"]] == ["to"]
        assert (
            outside.run("init", SOURCE, "--answers", answers(to=odd), "-o", place, "--yes").code
            == 2
        )


def test_an_answer_in_a_storage_of_the_profile_is_below_it_and_the_profile_is_named(
    outside: Outside,
) -> None:
    Path("stateshift.toml").write_text('[profile.dr.storages]\nthere = "hdfs://there:8020/ck"\n')
    given = answers(to="there:/orders")
    words = ("--answers", given, "-o", "my spec.yaml", "--yes", "--profile", "dr")
    made = outside.run("init", SOURCE, *words)
    assert made.code == 0, made.err
    assert "next: stateshift doctor 'my spec.yaml' --profile dr" in made.out
    assert "stateshift apply 'my spec.yaml' --profile dr" in Path("my spec.md").read_text()
    assert spec_of("my spec.yaml").jobs[0].target == TARGET


def test_the_working_directory_gives_its_name(
    outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path, content in outside.disk.snapshot(SOURCE).items():
        outside.disk.open(f"file://{tmp_path}/ck").write(
            path, lambda content=content: iter([content])
        )
    (tmp_path / "ck").mkdir()
    monkeypatch.chdir(tmp_path / "ck")
    made = outside.run("init", ".", "--to", TARGET, "--yes", "--json")
    assert made.document["spec"] == "ck.json", made.err
    assert spec_of("ck.json").jobs[0].source == f"file://{tmp_path}/ck"


@pytest.mark.parametrize(
    "value",
    [
        "a\u2028b",
        "a\x7fb",
        "a\x85b",
        "😀",
        "a\tb",
        "\ufeff",
        "x\ufffe",
        '1e-05 "2e-05\\',
        1e-05,
        1e16,
        1.5e-07,
        -1e-300,
        0.5,
        2.0,
    ],
)
def test_what_is_written_in_yaml_is_read_as_it_was(value: object) -> None:
    plain = {"version": 1, "jobs": [{"name": "a", "submit": {"arguments": [value]}}]}
    written = read_yaml(begin.as_yaml(plain))
    assert written.tree == plain and not written.complaints


def test_a_plan_that_is_refused_still_is_not_promised(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    import typer

    outside.disk.denied.add("hdfs://there:8020/ck")
    typed = iter(["orders", TARGET, ""])
    monkeypatch.setattr(Terminal, "someone_there", property(lambda terminal: True))
    monkeypatch.setattr(typer, "prompt", lambda *words, err: next(typed))

    def confirm(*words: str, err: bool) -> bool:
        outside.disk.denied.clear()
        put(outside.disk.open(TARGET), "offsets/0", b"somebody else's")
        return True

    monkeypatch.setattr(typer, "confirm", confirm)
    made = outside.run("init", SOURCE)
    assert made.code == 4 and "plan refuses it as it is" in made.out
