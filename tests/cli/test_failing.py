"""Errors: one line of fact, then the way out; with --json one document; the exit code of their
class.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stateshift import errors
from stateshift.cli.shell.failing import describe_error, ours, tell
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views.text import plain_text
from stateshift.documents.problems import error_document
from stateshift.errors import Complaint, FormatError, PlanError, SpecError, StorageError
from stateshift.storage.local.storage import LocalStorage
from tests.cli.support import Outside, said, with_checkpoint, write_spec
from tests.support.checkpoints import Checkpoint

pytestmark = pytest.mark.usefixtures("own_folder")


def test_an_error_is_a_fact_and_then_the_way_out() -> None:
    error = PlanError("target holds an image at epoch 12", hint="stateshift inspect s3://b/orders")
    assert plain_text(describe_error(error)) == (
        "error: target holds an image at epoch 12\nhint: stateshift inspect s3://b/orders\n"
    )


def test_a_spec_error_says_everything_that_is_wrong() -> None:
    error = SpecError(
        (
            Complaint("/jobs/0/verify", "no such level", "all", "entries, digests or none"),
            Complaint("", "no jobs"),
        ),
        hint="stateshift schema",
    )
    assert plain_text(describe_error(error)).splitlines() == [
        "error: the request is not valid, for 2 reasons",
        '  /jobs/0/verify: no such level (found "all", expected entries, digests or none)',
        "  /: no jobs",
        "hint: stateshift schema",
    ]


def test_what_was_found_is_said_once() -> None:
    odd = Complaint("/jobs", "an object is not a list of objects", "an object", "a list of objects")
    assert plain_text(describe_error(SpecError((odd,)))).count("an object") == 1


def test_a_long_value_is_not_shown_whole() -> None:
    error = SpecError((Complaint("/jobs", "not a list", "x" * 500, "a list"),))
    assert len(plain_text(describe_error(error))) < 150


def test_where_bytes_are_wrong_is_said_to_the_byte() -> None:
    shown = plain_text(describe_error(FormatError("not a delta", "state/0/0/1.delta", 17)))
    assert shown == "error: state/0/0/1.delta: not a delta (at byte 17)\n"


def test_credentials_in_an_error_are_never_printed(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "s3://key:hunter2@bucket/x?X-Amz-Signature=abcdef"
    error = StorageError(
        f"{secret} refused us", location=secret, hint=f"stateshift inspect {secret}"
    )
    for asked in (False, True):
        assert tell(error, Terminal(json=asked)) == 6
        said = capsys.readouterr()
        assert "hunter2" not in said.out + said.err and "abcdef" not in said.out + said.err


@pytest.mark.parametrize(
    "kind",
    [
        errors.FormatError,
        errors.UnknownVersion,
        errors.PlanError,
        errors.StalePlan,
        errors.Incompatible,
        errors.VerifyError,
        errors.StorageError,
        errors.MissingFile,
        errors.TransientStorageError,
        errors.ClusterError,
        errors.JournalError,
        errors.Interrupted,
    ],
)
def test_every_error_is_one_document_and_its_own_exit_code(
    kind: type[errors.StateshiftError], capsys: pytest.CaptureFixture[str]
) -> None:
    code = tell(kind("a fact", hint="a way out"), Terminal(json=True))
    document = json.loads(capsys.readouterr().out)
    assert code == document["exit_code"] == kind.exit_code
    assert (document["error"], document["message"], document["hint"]) == (
        kind.__name__,
        "a fact",
        "a way out",
    )


def test_what_a_disk_refuses_is_a_storage_error_and_no_bug_of_ours() -> None:
    error = ours(PermissionError(13, "Permission denied", "/runs/journal"))
    assert isinstance(error, StorageError) and error.fact == "Permission denied: /runs/journal"
    assert ours(OSError(28, "No space left on device")).exit_code == 6  # type: ignore[union-attr]
    assert ours(KeyboardInterrupt()).exit_code == 130  # type: ignore[union-attr]
    assert ours(ZeroDivisionError()) is None


def test_a_bug_of_ours_keeps_its_traceback_and_asks_for_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    try:
        _ = {}["no such key"]  # type: ignore[var-annotated]
    except KeyError as bug:
        assert tell(bug, Terminal(json=True)) == 1
    told = capsys.readouterr()
    path = Path(json.loads(told.out)["traceback"])
    assert f"hint: this is a bug of ours: please report it, with {path}" in told.err
    assert "test_a_bug_of_ours" in path.read_text() and path.stat().st_mode & 0o077 == 0
    path.unlink()


def test_the_example_of_a_hint_has_the_options_that_were_meant() -> None:
    """Of all examples of a command, the one that shows what the mistake is about."""
    told = said("split", "/a", "--to", "/b", "--to", "/c", "--column", "country").err
    assert "for example: stateshift split /data/orders --to /eu --to /us --column country" in told
    assert "for example" not in said("no-such-command").err


def test_an_argument_that_does_not_fit_is_told_like_any_other_error() -> None:
    found = said("plan")
    assert found.code == 2 and found.out == ""
    assert (
        found.err.startswith("error: stateshift plan: ")
        and "hint: stateshift plan --help; for example: stateshift plan orders.json" in found.err
    )
    assert said("plan", "--json").document["error"] == "SpecError"
    assert said("no-such-command").code == 2
    assert said("apply", "x", "--throttle", "fast").code == 2


@pytest.mark.parametrize(
    "arguments", [("schema", "--of"), ("export", "x", "--to"), ("live", "buffer", "--serve")]
)
def test_where_a_value_is_missing_the_hint_is_the_help_of_that_command(
    arguments: tuple[str, ...],
) -> None:
    found = said(*arguments)
    command = "stateshift " + " ".join(arguments[: 2 if arguments[0] == "live" else 1])
    assert found.code == 2
    assert f"error: {command}: Option '{arguments[-1]}' requires an argument." in found.err
    assert found.err.endswith(f"hint: {command} --help\n")


def test_every_complaint_about_a_spec_reaches_the_user(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text(
        '{"version": 1, "jobs": [{"job_name": 1, "chekpoint_location": "x"}]}'
    )
    found = said("plan", "spec.json", "--json")
    assert found.code == 2
    assert len(found.document["complaints"]) > 1
    assert all(
        complaint.keys() >= {"pointer", "message", "found", "expected"}
        for complaint in found.document["complaints"]
    )


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"", b"{", b"[]", b'{"stateshift_plan": 99}'])
def test_what_is_neither_spec_nor_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "spec.json").write_bytes(content)
    assert said("plan", "spec.json").code in (2, 4)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"{", b'{"version": 1, "jbs": []}', b'{"stateshift_plan": 99}']
)
def test_what_is_wrong_with_a_spec_or_plan_names_its_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "my.json").write_bytes(content)
    assert said("plan", "my.json").err.startswith("error: my.json: ")
    assert said("apply", "my.json", "--yes", "--json").document["path"] == "my.json"


def test_a_mistyped_key_is_told_the_one_that_was_meant_and_not_all_others(tmp_path: Path) -> None:
    (tmp_path / "my.json").write_text('{"version": 1, "jobs": [], "jbs": 1, "qqq": 1}')
    lines = said("plan", "my.json").err.splitlines()
    assert "  /jbs (line 1, column 28): unknown key 'jbs', did you mean 'jobs'?" in lines
    assert any(
        line.startswith("  /qqq (line 1, column 38): unknown key 'qqq' (expected one of ")
        for line in lines
    )


def _onto_a_full_disk(folder: Path, *arguments: str) -> tuple[int, str]:
    """The exit code, and what stderr says."""
    root = str(Path(__file__).resolve().parents[2])
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "stateshift", *arguments],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": root},
            text=True,
            check=False,
        )
    return ended.returncode, ended.stderr


UNWRITTEN = "error: the output (stdout) cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("uid", "Join", "--json"),
        ("uid", "Join"),
        ("schema",),
        ("--version",),
        ("--version", "-v"),
        ("--help",),
        ("apply", "--help"),
        ("live", "--help"),
    ],
)
def test_an_output_that_cannot_be_written_is_no_storage(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    code, said_on_stderr = _onto_a_full_disk(tmp_path, *arguments)
    assert (code, said_on_stderr) == (
        6,
        f"{UNWRITTEN}hint: send stdout to a terminal, a pipe, or a file on a disk that has room\n",
    )


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_run_whose_report_cannot_be_written_is_in_its_workdir(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    Checkpoint().write(LocalStorage(f"file://{tmp_path}/source"))
    spec = {
        "version": 1,
        "jobs": [{"name": "orders", "checkpoint_location": "source", "remote_location": "target"}],
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    apply = ("apply", "spec.json", "--yes", "--workdir", "run", *flags)
    code, said_on_stderr = _onto_a_full_disk(tmp_path, *apply)
    assert code == 6 and UNWRITTEN in said_on_stderr
    shown_by = f"`stateshift status {tmp_path}/run`"
    assert f"the run is finished, and {shown_by} shows its report" in said_on_stderr
    code, said_on_stderr = _onto_a_full_disk(tmp_path, "rollback", "run", "--yes", *flags)
    assert code == 6 and f"the run is rolled-back, and {shown_by}" in said_on_stderr


def test_why_a_run_failed_is_said_where_its_report_cannot_be_written(tmp_path: Path) -> None:
    Checkpoint().write(LocalStorage(f"file://{tmp_path}/source"))
    cluster = {"kind": "command", "find": "echo absent", "submit": "exit 3", "stop": "true"}
    job: dict[str, object] = {
        "name": "orders",
        "checkpoint_location": "source",
        "remote_location": "target",
    }
    job |= {"target_cluster": "ours", "submit": {"command": "go"}}
    spec = {"version": 1, "clusters": {"ours": cluster}, "jobs": [job]}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    code, said_on_stderr = _onto_a_full_disk(
        tmp_path, "apply", "spec.json", "--yes", "--workdir", "run"
    )
    assert code == 7
    assert f"`stateshift status {tmp_path}/run` shows the report" in said_on_stderr


def test_a_spec_that_cannot_be_read_is_the_authors_to_correct(tmp_path: Path) -> None:
    assert said("plan", "no-such-file").code == 2
    assert "stateshift inspect" in said("apply", str(tmp_path), "--yes").err
    (tmp_path / "journal").touch()
    assert "stateshift resume" in said("apply", str(tmp_path), "--yes").err


def test_a_file_where_the_workdir_should_be_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    found = with_checkpoint().run("apply", write_spec(tmp_path), "--yes", "--workdir", "taken/run")
    assert found.code == 6 and "bug of ours" not in found.err


def test_a_plan_that_cannot_be_saved_leaves_nothing_behind(tmp_path: Path) -> None:
    found = with_checkpoint().run("plan", write_spec(tmp_path), "-o", "no/such/folder/plan")
    assert found.code == 6


def test_nothing_but_the_document_is_on_stdout(tmp_path: Path) -> None:
    outside = with_checkpoint()
    for argv in (
        ("plan", write_spec(tmp_path), "--json", "-v"),
        ("apply", write_spec(tmp_path), "--yes", "--json"),
    ):
        assert isinstance(outside.run(*argv).document, dict)
    assert isinstance(Outside().run("verify", "hdfs://here:8020/none", "--json").document, dict)


def test_an_error_document_holds_where_it_happened() -> None:
    document = error_document(FormatError("not a delta", "1.delta", 17))
    assert (document["path"], document["offset"]) == ("1.delta", 17)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("rol", "rollback"), ("stat", "status"), ("aply", "apply"), ("live hist", "history")],
)
def test_a_command_that_was_not_written_to_its_end_is_the_one_that_is_named(
    typed: str, meant: str
) -> None:
    told = said(*typed.split())
    assert told.code == 2 and f"did you mean '{meant}'?" in told.err, told.err


def test_a_waiver_that_is_none_names_those_there_are_once(tmp_path: Path) -> None:
    told = said("move", "orders", "--to", "new", "--yes", "--waive", "nonsense")
    assert told.code == 2 and "nothing is waived by 'nonsense'" in told.err
    assert told.err.count("job-stopped") == 1 and "hint: --waive: " in told.err
