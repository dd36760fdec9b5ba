"""Commands from argv to exit code, on a disk and a cluster in memory."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateshift import migration
from stateshift.cli.commands import runs
from stateshift.errors import StorageError
from stateshift.storage.protocol import Storage
from stateshift.workdir import Workdir
from tests.cli.support import (
    SOURCE,
    TARGET,
    Outside,
    said,
    spec_of,
    submitting,
    with_checkpoint,
    write_spec,
)
from tests.support.checkpoints import Checkpoint, held, put
from tests.support.ground import Around

pytestmark = pytest.mark.usefixtures("own_folder")


# ---- inspect, verify


def test_inspect_tells_programs_what_was_promised() -> None:
    found = with_checkpoint(Checkpoint(batches=3, planned=True)).run("inspect", SOURCE, "--json")
    document = found.document
    assert (found.code, found.err) == (0, "")
    assert (document["engine"], document["kind"], document["epoch"], document["epochs"]) == (
        "spark",
        "checkpoint",
        2,
        [0, 1, 2],
    )
    assert document["operators"] == [
        {
            "image": "",
            "id": "0",
            "name": None,
            "uid": None,
            "provider": "hdfs-backed",
            "shards": 2,
            "stores": [
                {
                    "name": "default",
                    "files": 6,
                    "bytes": document["operators"][0]["stores"][0]["bytes"],
                }
            ],
        }
    ]
    assert document["files"]["count"] == 14
    assert 0 < document["files"]["needed"]["count"] <= 14
    assert document["images"][0]["planned"] == 3
    assert document["paths"] == document["warnings"] == []


def test_inspect_tells_a_person_the_same() -> None:
    found = with_checkpoint(Checkpoint(batches=3, planned=True, inputs="file:///data/in")).run(
        "inspect", SOURCE
    )
    assert f"Spark checkpoint at {SOURCE}" in found.out
    assert "2 committed, 3 planned and not committed" in found.out
    assert "file:///data/in  input" in found.out


def test_inspect_lists_all_files_and_which_a_restart_needs() -> None:
    outside = with_checkpoint()
    listed = outside.run("inspect", SOURCE, "--files", "--json").document["files"]["list"]
    by_path = {row["path"]: row["needed"] for row in listed}
    assert by_path["commits/2"] and not by_path["commits/0"]
    assert "commits/2" in outside.run("inspect", SOURCE, "--files").out


def test_inspect_decodes_a_single_file() -> None:
    outside = with_checkpoint()
    document = outside.run("inspect", f"{SOURCE}/offsets/2", "--json").document
    assert document["kind"] == "file" and document["epoch"] is None
    assert "conf" in json.dumps(document["content"])
    assert outside.run("inspect", f"{SOURCE}/commits/2").code == 0


def test_inspect_shows_as_many_entries_of_a_store_as_it_was_asked_for() -> None:
    document = (
        with_checkpoint(Checkpoint(keys=5, shards=1))
        .run("inspect", SOURCE, "--entries", "--limit", "2", "--json")
        .document
    )
    assert len(document["entries"]) == 2 and document["entries_more"] is True
    assert document["entries"][0].keys() == {"operator", "store", "shard", "key", "value"}


def test_inspect_looks_for_operators_by_their_names() -> None:
    outside = Outside()
    Checkpoint().write(outside.disk.open(SOURCE), "552794753_mytest")
    names = outside.run("inspect", SOURCE, "--uids", "SKtest(mytest), Join", "--json").document[
        "uids"
    ]
    assert [(row["name"], row["found"]) for row in names] == [
        ("SKtest(mytest)", True),
        ("Join", False),
    ]


def test_verify_of_a_workflow_says_from_where_each_query_can_restart() -> None:
    outside = Outside()
    Checkpoint().write(outside.disk.open(SOURCE), "552794753_mytest")
    Checkpoint(batches=2).write(outside.disk.open(SOURCE), "17879567_geeks")
    shown = [line.split() for line in outside.run("verify", SOURCE).out.splitlines()]
    assert ["17879567_geeks", "1", "committed", "0-1"] in shown
    assert ["552794753_mytest", "2", "committed", "0-2"] in shown
    images = outside.run("verify", SOURCE, "--json").document["images"]
    assert [(one["path"], one["epochs"]) for one in images] == [
        ("17879567_geeks", [0, 1]),
        ("552794753_mytest", [0, 1, 2]),
    ]


def test_inspect_says_where_nothing_is_committed_yet() -> None:
    shown = with_checkpoint(Checkpoint(batches=0)).run("inspect", SOURCE).out
    assert "restart from  nothing is committed yet" in shown and "see the findings" not in shown


def test_what_is_not_there_does_not_fit_the_request() -> None:
    found = Outside().run("inspect", SOURCE)
    assert found.code == 4 and found.err.startswith(f"error: nothing is at {SOURCE}\n")
    assert Outside().run("inspect", SOURCE, "--json").document["error"] == "NothingThere"


def test_verify_says_whether_a_job_could_restart() -> None:
    outside = with_checkpoint()
    assert outside.run("verify", SOURCE, "--json").document == {
        "restartable": True,
        "epoch": 2,
        "epochs": [0, 1, 2],
        "findings": [],
        "images": [{"path": "", "name": None, "epoch": 2, "epochs": [0, 1, 2]}],
    }
    outside.disk.open(SOURCE).remove("state/0/1/3.delta")
    broken = outside.run("verify", SOURCE, "--json")
    assert broken.code == 5 and broken.document["restartable"] is False
    assert broken.document["findings"][0].keys() >= {"level", "path", "offset", "message"}
    assert "a job cannot restart" in outside.run("verify", SOURCE).out


def test_verify_deep_tells_of_each_stage_with_its_files_and_its_time() -> None:
    outside = with_checkpoint()
    state, history = outside.run("verify", SOURCE, "--deep", "--json").document["checked"]["stages"]
    assert (state["name"], history["name"]) == ("state", "history")
    assert state["files"] > 0 and state["bytes"] > 0 and state["seconds"] >= 0
    shown = outside.run("verify", SOURCE, "--deep").out
    assert "what a restart reads" in shown and "what came before its snapshots" in shown
    assert "history" not in outside.run("verify", SOURCE, "--deep", "--no-history").out


@pytest.mark.parametrize(
    "words",
    [
        ("--no-history",),
        ("--part", "1/30"),
        ("--deep", "--remember", "here"),
        ("--deep", "--part", "0/30"),
        ("--deep", "--part", "31/30"),
        ("--deep", "--part", "x"),
        ("--deep", "--part", "next", "--remember", "here"),
    ],
)
def test_verify_refuses_options_that_say_nothing(words: tuple[str, ...]) -> None:
    refused = with_checkpoint().run("verify", SOURCE, *words)
    assert (refused.code, refused.out) == (2, "")
    assert "--part next/30" in refused.err
    assert not Path("here").exists()


def test_verify_has_no_parts_of_a_run(tmp_path: Path) -> None:
    outside = with_checkpoint()
    outside.run("apply", write_spec(tmp_path), "--yes", "--workdir", "w")
    refused = outside.run("verify", "w", "--deep", "--part", "1/2", "--remember", "here")
    assert refused.code == 2
    assert "needs an image" in refused.err


def test_verify_goes_through_all_parts_and_remembers_which() -> None:
    outside = with_checkpoint()
    words = ("verify", SOURCE, "--deep", "--part", "next/2", "--remember", "here")
    first = outside.run(*words, "--json").document["checked"]["part"]
    assert (first["number"], first["of"], first["shards"], first["shards_all"]) == (1, 2, 1, 2)
    assert 0 < first["bytes"] < first["bytes_all"]
    assert (first["so_far"]["parts"], first["so_far"]["oldest"]) == (1, None)
    assert first["so_far"]["file"] == str(next(Path("here").iterdir()))
    second = outside.run("verify", SOURCE, "--deep", "--part", "next", "--remember", "here").out
    assert ", as far as part 2 of 2 tells" in second
    assert "all parts are sound, checked since" in second


def test_verify_counts_a_damaged_part_as_unchecked() -> None:
    outside = with_checkpoint()
    outside.disk.open(SOURCE).write("state/0/1/3.delta", lambda: iter((b"junk",)))
    words = ("verify", SOURCE, "--deep", "--part", "next/2", "--remember", "here", "--json")
    codes = [outside.run(*words).code for _ in range(4)]
    assert codes.count(5) >= 3
    assert outside.run(*words).document["checked"]["part"]["so_far"]["parts"] <= 1


@pytest.mark.parametrize("words", [("--part", "next/2"), ("--part", "1/2")])
def test_verify_refuses_a_part_that_it_could_not_remember(words: tuple[str, ...]) -> None:
    Path("here").write_text("no folder")
    refused = with_checkpoint().run("verify", SOURCE, "--deep", *words, "--remember", "here")
    assert (refused.code, refused.out) == (6, "")
    assert "--remember DIR" in refused.err


@pytest.mark.parametrize("words", [("export", "--to", "x.jsonl"), ("diff", SOURCE)])
def test_where_a_checkpoint_is_needed_a_single_file_is_called_one(
    words: tuple[str, str, str],
) -> None:
    command, *more = words
    found = with_checkpoint().run(command, f"{SOURCE}/commits/2", *more)
    assert found.code == 4
    assert found.err.startswith(f"error: {SOURCE}/commits/2 is a single file, not a checkpoint\n")


# ---- plan


def test_plan_changes_nothing_and_says_what_would_be_done(tmp_path: Path) -> None:
    outside = with_checkpoint()
    before = outside.disk.snapshot()
    found = outside.run("plan", write_spec(tmp_path), "--json")
    document = found.document
    assert found.code == 0
    assert [phase["name"] for phase in document["phases"]] == ["halt", "copy", "compare", "publish"]
    assert document["phases"][1].keys() >= {"name", "steps", "files", "bytes"}
    assert document["estimate"].keys() >= {"seconds", "downtime_seconds"}
    assert document["findings"][0].keys() >= {"level", "message", "waive"}
    assert document["fingerprint"] in outside.run("plan", write_spec(tmp_path)).out
    assert outside.disk.snapshot() == before and not (tmp_path / ".stateshift").exists()


def test_a_plan_with_a_refusal_is_shown_and_exits_4(tmp_path: Path) -> None:
    outside = with_checkpoint()
    put(outside.disk.open(TARGET), "metadata", b"{}")
    found = outside.run("plan", write_spec(tmp_path))
    assert found.code == 4
    assert f"refuse: the target {TARGET} is not empty" in found.out


def test_a_refusal_that_can_be_waived_names_its_waiver(tmp_path: Path) -> None:
    outside = with_checkpoint(Checkpoint(inputs="file:///data/in"))
    found = outside.run("plan", write_spec(tmp_path), "--json")
    refused = [f for f in found.document["findings"] if f["level"] == "refuse"]
    assert [f["waive"] for f in refused] == ["paths-stay"]
    assert "paths-stay" in outside.run("plan", write_spec(tmp_path)).out
    assert outside.run("plan", write_spec(tmp_path, waive=["paths-stay"])).code == 0


def test_a_refusal_of_a_command_is_waived_on_its_command_line() -> None:
    outside = with_checkpoint(Checkpoint(inputs="file:///data/in"))
    words = ("compact", SOURCE, "--to", TARGET, "--yes")
    refused = outside.run(*words)
    assert refused.code == 4 and refused.err.endswith("hint: to waive it: --waive paths-stay\n")
    assert outside.run(*words, "--waive", "paths-stay").code == 0


def test_the_plan_of_a_running_job_is_marked_as_provisional(tmp_path: Path) -> None:
    outside = with_checkpoint()
    spec = spec_of(source_cluster="a") | {"clusters": {"a": {"kind": "manual"}}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    assert "provisional" not in outside.run("plan", "spec.json").out
    outside.cluster.run("Orders (eu)", SOURCE)
    plans = outside.run("plan", "spec.json", "--json").document["plans"]
    assert [(plan["purpose"], plan["provisional"]) for plan in plans] == [
        ("halt", False),
        ("move", True),
    ]
    shown = outside.run("plan", "spec.json").out
    assert shown.index("Orders (eu): stop the job") < shown.index("provisional: the job runs")


def test_a_fork_is_said_to_stop_and_move_nothing(tmp_path: Path) -> None:
    shown = with_checkpoint().run("plan", write_spec(tmp_path, mode="fork")).out
    assert "Orders (eu): copy its image to a fork at epoch 2" in shown
    assert (
        "the source may run on: what is copied is its newest committed batch at that time" in shown
    )
    assert "move its image" not in shown and "the job runs" not in shown
    assert "synced" not in shown


def test_a_fork_that_is_not_synced_is_said_to_be_lost_by_a_power_cut(tmp_path: Path) -> None:
    line = "the copy is not synced: a power cut can lose files of it"
    local = write_spec(tmp_path, mode="fork", sync=False, remote_location="/there/orders")
    assert line in with_checkpoint().run("plan", local).out
    elsewhere = write_spec(tmp_path, mode="fork", sync=False)
    assert line not in with_checkpoint().run("plan", elsewhere).out, "only a local disk is synced"


def test_a_saved_plan_can_be_looked_at_and_applied(tmp_path: Path) -> None:
    outside = with_checkpoint()
    saved = outside.run("plan", write_spec(tmp_path), "-o", "orders.plan")
    assert "stateshift apply orders.plan" in saved.err
    assert not list(tmp_path.glob("*.tmp"))
    again = outside.run("plan", "orders.plan", "--json").document
    assert again["fingerprint"] == json.loads(Path("orders.plan").read_text())["fingerprint"]
    assert outside.run("apply", "orders.plan", "--yes").code == 0


def test_of_several_jobs_those_are_planned_and_applied_that_are_named(tmp_path: Path) -> None:
    outside = with_checkpoint()
    jobs = [
        {
            "name": name,
            "checkpoint_location": SOURCE.replace("orders", name),
            "remote_location": TARGET.replace("orders", name),
        }
        for name in ("orders", "left", "right")
    ]
    for name in ("left", "right"):
        Checkpoint().write(outside.disk.open(SOURCE.replace("orders", name)))
    (tmp_path / "spec.json").write_text(json.dumps({"version": 1, "engine": "spark", "jobs": jobs}))
    named = ("--job", "right", "--job", "orders")
    planned = outside.run("plan", "spec.json", *named, "-o", "two.plan", "--json").document
    assert [plan["job"] for plan in planned["plans"]] == ["orders", "right"]
    shown = outside.run("plan", "two.plan", "--job", "right", "--json").document
    assert [plan["job"] for plan in shown["plans"]] == ["right"]
    wrong = outside.run("plan", "spec.json", "--job", "rigth")
    assert wrong.code == 2 and "did you mean 'right'" in wrong.err
    missing = outside.run("apply", "two.plan", "--job", "left", "--yes")
    assert missing.code == 4 and "nothing was planned for 'left'" in missing.err
    assert outside.run("apply", "two.plan", "--yes").code == 0
    there = outside.disk.snapshot()
    assert any("there:8020/ck/right" in path for path in there) and not any(
        "there:8020/ck/left" in p for p in there
    )


@pytest.mark.parametrize("output", ["spec.json", "./spec.json", "folder/../spec.json", "link.json"])
def test_a_plan_is_never_saved_over_the_spec_it_is_made_from(tmp_path: Path, output: str) -> None:
    outside = with_checkpoint()
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.json").symlink_to("spec.json")
    before = Path(write_spec(tmp_path)).read_bytes()
    found = outside.run("plan", "spec.json", "-o", output)
    assert found.code == 2 and "hint: give it another name: -o " in found.err
    assert (tmp_path / "spec.json").read_bytes() == before


def test_a_plan_cannot_be_saved_where_no_directory_is(tmp_path: Path) -> None:
    found = with_checkpoint().run("plan", write_spec(tmp_path), "-o", "nodir/p.plan")
    assert found.code == 6 and "the directory nodir is not there" in found.err
    assert "hint: mkdir -p nodir" in found.err and ".tmp" not in found.err


def test_a_stale_plan_is_refused(tmp_path: Path) -> None:
    outside = with_checkpoint()
    outside.run("plan", write_spec(tmp_path), "-o", "orders.plan")
    put(outside.disk.open(SOURCE), "state/0/0/9.delta", b"x")
    found = outside.run("apply", "orders.plan", "--yes", "--json")
    assert found.code == 4 and found.document["error"] == "StalePlan"


def test_a_plan_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    outside = with_checkpoint()
    outside.run("plan", write_spec(tmp_path), "-o", "orders.plan")
    Path("orders.plan").write_text(Path("orders.plan").read_text().replace("copy/0", "copy/7", 1))
    assert outside.run("apply", "orders.plan", "--yes").code == 4


# ---- apply, and what comes after


@pytest.mark.row("IS-4")
def test_apply_moves_the_job_and_reports_its_downtime(tmp_path: Path) -> None:
    outside = with_checkpoint()
    spec = spec_of(**submitting()) | {
        "clusters": {"b": {"kind": "command", "submit": "x", "find": "x", "stop": "x"}}
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    found = outside.run("apply", "spec.json", "--yes", "--json")
    assert found.code == 0, found.err
    document = found.document
    assert document["state"] == "finished" and document["run"] in document["workdir"]
    assert [phase["name"] for phase in document["report"]["phases"]][-2:] == ["submit", "confirm"]
    assert document["report"]["phases"][0].keys() >= {"name", "seconds", "files", "bytes"}
    assert document["report"]["downtime_seconds"] > 0
    assert len(outside.cluster.submissions) == 1
    shown = outside.run("status", document["workdir"]).out
    assert "to the first batch committed on the target" in shown


def test_apply_needs_yes_where_nobody_can_be_asked(tmp_path: Path) -> None:
    outside = with_checkpoint()
    before = outside.disk.snapshot()
    found = outside.run("apply", write_spec(tmp_path))
    assert found.code == 2 and "error: --yes: needed" in found.err
    assert f"hint: stateshift apply {tmp_path}/spec.json --yes" in found.err
    assert outside.disk.snapshot() == before and not (tmp_path / ".stateshift").exists()


def test_a_hint_repeats_the_command_with_everything_that_was_said() -> None:
    outside = with_checkpoint()
    write_spec(Path())
    found = outside.run("apply", "spec.json", "--workdir", "my run")
    assert "hint: stateshift apply spec.json --workdir 'my run' --yes\n" in found.err
    outside.run("apply", "spec.json", "--yes", "--workdir", "my run")
    found = outside.run("rollback", "my run", "--discard-progress")
    assert "hint: stateshift rollback 'my run' --discard-progress --yes\n" in found.err
    put(outside.disk.open(TARGET), "offsets/3", outside.disk.open(TARGET).read("offsets/2"))
    put(outside.disk.open(TARGET), "commits/3", outside.disk.open(TARGET).read("commits/2"))
    found = outside.run("rollback", "my run", "--yes")
    assert found.code == 4
    assert "stateshift rollback 'my run' --yes --discard-progress\n" in found.err


def test_apply_of_what_is_refused_begins_no_run(tmp_path: Path) -> None:
    outside = with_checkpoint()
    put(outside.disk.open(TARGET), "metadata", b"{}")
    found = outside.run("apply", write_spec(tmp_path), "--yes", "--json")
    assert found.code == 4 and found.document["findings"][0]["level"] == "refuse"
    assert "stateshift resume" not in found.err and not (tmp_path / ".stateshift").exists()


def test_the_resume_command_is_told_before_anything_begins(tmp_path: Path) -> None:
    found = with_checkpoint().run("apply", write_spec(tmp_path), "--yes", "--workdir", "my run")
    lines = found.err.splitlines()
    told = lines.index(f"if this is interrupted: stateshift resume '{tmp_path}/my run'")
    assert told < lines.index("Orders (eu): halt")


def test_a_workdir_that_holds_a_run_is_not_used_for_another(tmp_path: Path) -> None:
    outside = with_checkpoint()
    assert outside.run("apply", write_spec(tmp_path), "--yes", "--workdir", "w").code == 0
    again = outside.run("apply", write_spec(tmp_path), "--yes", "--workdir", "w")
    assert again.code == 8 and "w is the workdir of a run that is finished" in again.err
    assert "hint: a new run has its own: give another --workdir" in again.err
    assert "stateshift status " in again.err and "stateshift resume" not in again.err
    assert outside.run("rollback", "w", "--yes").code == 0
    back = outside.run("apply", write_spec(tmp_path), "--yes", "--workdir", "w")
    assert (
        back.code == 8
        and "a run that was rolled back" in back.err
        and "stateshift resume" not in back.err
    )


def test_a_run_is_verified_listed_and_rolled_back(tmp_path: Path) -> None:
    outside = with_checkpoint()
    before = held(outside.disk.open(SOURCE))
    workdir = outside.run("apply", write_spec(tmp_path), "--yes", "--json").document["workdir"]
    assert outside.run("verify", workdir, "--json").document["holds"] is True
    assert [one["state"] for one in outside.run("runs", "--json").document] == ["finished"]
    assert os.path.basename(workdir) in outside.run("runs").out
    put(outside.disk.open(TARGET), "commits/2", b"spoilt")
    broken = outside.run("verify", workdir, "--json")
    assert broken.code == 5 and broken.document["findings"][0]["path"].endswith("commits/2")
    assert outside.run("rollback", workdir).code == 2
    put(outside.disk.open(TARGET), "commits/2", before["commits/2"])
    back = outside.run("rollback", workdir, "--yes", "--json")
    assert (back.code, back.document["state"]) == (0, "rolled-back")
    assert held(outside.disk.open(SOURCE)) == before and not held(outside.disk.open(TARGET))
    assert outside.run("rollback", workdir).code == 0
    assert "nothing is left to do" in outside.run("status", workdir).out


def test_who_stopped_a_process_for_a_rollback_that_is_refused_is_told_to_resume_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the process did last may be what refuses it: nothing had been said before."""
    ground = with_checkpoint()
    workdir = ground.run("apply", write_spec(tmp_path), "--yes", "--json").document["workdir"]
    put(ground.disk.open(TARGET), "commits/4", b"v1")
    at_work = iter([True])
    monkeypatch.setattr(Workdir, "held", property(lambda place: next(at_work, False)))
    monkeypatch.setattr(migration, "check_rollback", lambda *given: None)
    refused = ground.run("rollback", workdir, "--yes")
    assert refused.code == 4
    assert f"it goes on with: stateshift resume {workdir}" in refused.err


class Failing(Around):
    """A storage that fails to write one path; everything else goes through."""

    def __init__(self, inner: Storage, path: str) -> None:
        super().__init__(inner)
        self._path = path

    def write(self, path: str, *rest: object, **named: object) -> int:
        if path == self._path:
            raise StorageError("no space left", location=self.inner.location)
        return self.inner.write(path, *rest, **named)  # type: ignore[arg-type]

    def create(self, path: str, content: bytes) -> None:
        if path == self._path:
            raise StorageError("no space left", location=self.inner.location)
        self.inner.create(path, content)


def test_a_run_that_fails_is_reported_in_one_document_and_can_be_resumed(tmp_path: Path) -> None:
    outside = with_checkpoint()
    outside.wrap = lambda storage: Failing(storage, "commits/2")  # type: ignore[assignment, return-value]
    failed = outside.run("apply", write_spec(tmp_path), "--yes", "--json")
    document = failed.document
    assert failed.code == document["exit_code"] == 6
    assert (document["state"], document["error"], document["message"]) == (
        "failed",
        "StorageError",
        "no space left",
    )
    assert document["step"].startswith("publish/")
    assert f"stateshift resume {document['workdir']}" in failed.err
    shown = outside.run("status", document["workdir"])
    assert (
        "stopped by StorageError" in shown.out
        and f"stateshift resume {document['workdir']}" in shown.out
    )
    assert (
        outside.run("status", document["workdir"], "--json").document["failure"]["step"]
        == document["step"]
    )
    outside.wrap = lambda storage: storage
    assert outside.run("resume", document["workdir"], "--json").document["state"] == "finished"
    assert outside.run("resume", document["workdir"]).code == 0


class Torn(Around):
    """A storage whose every state file ends too soon; everything else goes through."""

    def chunks(self, path: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        for chunk in self.inner.chunks(path, offset, size):
            yield chunk[:-1] if path.endswith(".delta") else chunk


def test_after_a_failure_that_a_second_attempt_would_meet_again_it_is_said_how_to_take_it_back(
    tmp_path: Path,
) -> None:
    outside = with_checkpoint()
    outside.wrap = lambda storage: Torn(storage)  # type: ignore[assignment, return-value]
    failed = outside.run("apply", write_spec(tmp_path), "--yes", "--workdir", "w")
    assert failed.code in (3, 4)
    assert f"stateshift rollback {tmp_path}/w\n" in failed.err and "go on with" not in failed.err


def test_a_run_whose_process_was_killed_is_told_as_interrupted(tmp_path: Path) -> None:
    outside = with_checkpoint()
    workdir = outside.run("apply", write_spec(tmp_path), "--yes", "--json").document["workdir"]
    journal = Path(workdir) / "journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:6]) + lines[6][:20])
    document = outside.run("status", workdir, "--json").document
    assert (document["state"], document["at_work"]) == ("interrupted", False)


def test_a_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    outside = with_checkpoint()
    outside.run("apply", write_spec(tmp_path), "--yes")
    bad = tmp_path / ".stateshift" / "bad"
    bad.mkdir()
    (bad / "journal").write_bytes(b"not a journal\nat all\n")
    assert [one["state"] for one in outside.run("runs", "--json").document] == [
        "finished",
        "damaged",
    ]
    assert "damaged" in outside.run("runs").out
    assert outside.run("status", str(bad)).code == 8


def test_resuming_what_is_over_says_that_nothing_is_left_to_do(tmp_path: Path) -> None:
    outside = with_checkpoint()
    outside.run("apply", write_spec(tmp_path), "--yes", "--workdir", "w")
    again = outside.run("resume", "w")
    assert again.code == 0 and "nothing is left to do: the run is finished" in again.err
    assert outside.run("resume", "w", "--json").document["state"] == "finished"


def test_a_run_that_another_process_holds_is_refused_without_a_word_on_interruptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "SECONDS_MAX", 0.3)  # it does not end when it is asked to
    outside = with_checkpoint()
    outside.run("apply", write_spec(tmp_path), "--yes", "--workdir", "w")
    with Workdir("w").hold():
        for argv in (("resume", "w"), ("rollback", "w", "--yes")):
            found = outside.run(*argv)
            assert (
                found.code == 8 and "w is held by" in found.err and "interrupted" not in found.err
            )


def test_what_is_no_workdir_is_refused() -> None:
    for verb in ("resume", "rollback", "status"):
        found = said(verb, "nowhere")
        assert found.code == 4 and "hint: stateshift runs" in found.err


def test_a_journal_that_is_none_of_ours_is_damaged_whoever_asks() -> None:
    Path("w").mkdir()
    (Path("w") / "journal").write_text("garbage\n")
    for verb in ("resume", "status"):
        found = said(verb, "w")
        assert found.code == 8 and "hint: " in found.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("plan", "image"), "stateshift inspect image"),
        (("plan", "run"), "stateshift resume run"),
        (("plan", "spec.json", "-o", "image"), "-o image/plan.json"),
    ],
)
def test_a_directory_in_the_place_of_a_file_is_told_with_the_way_out(
    argv: tuple[str, ...], words: str
) -> None:
    Path("image").mkdir()
    Path("run").mkdir()
    (Path("run") / "journal").touch()
    Path("spec.json").write_text("{}")
    found = said(*argv)
    assert found.code == 2 and f"hint: {words}" in found.err


# ---- uid, schema


@pytest.mark.row("IS-7")
def test_uid_tells_directory_results_and_flink_id() -> None:
    found = said("uid", "SKtest(mytest)", "geeks", "--json").document
    assert found[0] == {
        "name": "SKtest(mytest)",
        "hash": 552794753,
        "directory": "552794753_mytest",
        "results_directory": "552794753_mytest_RES",
        "flink_operator_id": found[0]["flink_operator_id"],
    }
    assert found[1]["hash"] == 17879567
    assert "552794753_mytest_RES" in said("uid", "SKtest(mytest)").out


def test_uid_takes_a_profile_by_name_or_by_its_constants() -> None:
    assert (
        said("uid", "SKtest(mytest)", "--profile", "java-signed", "--json").document[0]["hash"]
        == -447205256
    )
    assert (
        said("uid", "ab", "--profile", "31,1000000009,-96", "--json").document[0]["hash"]
        == 1 + 2 * 31
    )
    assert said("uid", "ab", "--profile", "30,7,0,signed").code == 0
    wrong = said("uid", "ab", "--profile", "md5")
    assert wrong.code == 2 and "no such profile" in wrong.err


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_no_operators(name: str) -> None:
    found = said("uid", "Join", name)
    assert found.code == 2 and "a name is empty" in found.err


def test_two_names_with_one_directory_are_refused_naming_both() -> None:
    found = said("uid", "ab", "ba", "--profile", "1,1000,0")
    assert found.code == 4 and "'ab' and 'ba'" in found.err


@pytest.mark.long
def test_schema_prints_the_schema_of_the_spec() -> None:
    assert said("schema").document == said("schema", "--json").document
    assert "jobs" in said("schema").document["properties"]


def test_operators_of_a_flink_that_wrote_hashes_alone_are_called_by_the_uids_that_are_asked_for() -> (
    None
):
    folder = (
        Path(__file__).parents[1] / "golden" / "flink-1.18.1" / "count-canonical-hashmap" / "image"
    )
    (place,) = folder.glob("savepoint-*")
    ran = said("inspect", str(place), "--uids", "orders-count, orders-cuont", "--json")
    told = json.loads(ran.out)
    assert [operator["uid"] for operator in told["operators"] if operator["provider"]] == [
        "orders-count"
    ]
    assert [row["found"] for row in told["uids"]] == [True, False]
