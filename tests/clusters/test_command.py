"""Clusters that shell commands speak to: what the commands are told, what they answer, and what
is made of failures.
"""

from __future__ import annotations

import json
import os
import shlex
import threading
import time
from pathlib import Path

import pytest

from stateshift.clusters.kind import Contacts, open_cluster
from stateshift.clusters.protocol import Cluster, JobState, Remedy, StopRequest, Submission
from stateshift.errors import ClusterError, Interrupted
from stateshift.specification.model import ClusterSpec
from tests.clusters.test_spark_causes import STATE, began, ended
from tests.support import documents
from tests.support.processes import in_time, runs

SECONDS_MAX = 60


def _cluster(
    tmp_path: Path, interrupt: threading.Event | None = None, **options: object
) -> Cluster:
    spec = ClusterSpec(
        "ops", "command", {"submit": "echo id-1", "seconds_max": SECONDS_MAX, **options}
    )
    return open_cluster(spec, str(tmp_path), Contacts(interrupt=interrupt))


def _submission(**more: object) -> Submission:
    return Submission(
        "run.orders", "orders", "s3://b/o o", "10.0.0.7:8998", {"queue": "fast"}, **more
    )  # type: ignore[arg-type]


PRINT_ALL = 'env | grep ^STATESHIFT_ | sort >"$STATESHIFT_WORKDIR/$VERB"; echo x; echo last line'


def _told(path: Path) -> dict[str, str]:
    """Return the variables of ours that a command saw, but for the one that this test run sets."""
    seen = dict(line.split("=", 1) for line in path.read_text().splitlines())
    seen.pop(documents.VARIABLE, None)
    return seen


def test_submit_is_told_everything_and_its_last_line_is_the_id(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path, submit=f"VERB=submit; {PRINT_ALL}")
    assert cluster.submit(_submission(environment={"STATESHIFT_COLOUR": "red"})) == "last line"
    assert _told(tmp_path / "submit") == {
        "STATESHIFT_TAG": "run.orders",
        "STATESHIFT_JOB": "orders",
        "STATESHIFT_LOCATION": "s3://b/o o",
        "STATESHIFT_CHECKPOINT": "s3://b/o o",
        "STATESHIFT_CONNECTION": "10.0.0.7:8998",
        "STATESHIFT_OPTIONS": json.dumps({"queue": "fast"}),
        "STATESHIFT_WORKDIR": str(tmp_path),
        "STATESHIFT_SECONDS_MAX": f"{SECONDS_MAX}",
        "STATESHIFT_COLOUR": "red",
    }


def test_stop_is_told_of_a_job_that_somebody_else_started(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path, stop=f"VERB=stop; {PRINT_ALL}")
    request = StopRequest("orders", "s3://b/o", None, 7.0, {"drain": True})
    assert cluster.find_source(request).state is JobState.UNKNOWN
    after = cluster.stop(request)
    assert (after.state, after.detail) == (JobState.FINISHED, "last line")
    told = _told(tmp_path / "stop")
    assert told["STATESHIFT_TAG"] == ""
    assert (told["STATESHIFT_JOB"], told["STATESHIFT_LOCATION"]) == ("orders", "s3://b/o")
    assert (told["STATESHIFT_OPTIONS"], told["STATESHIFT_SECONDS_MAX"]) == ('{"drain": true}', "7")


def test_find_is_told_what_the_tag_was_submitted_with(tmp_path: Path) -> None:
    known = tmp_path / "known"
    told = 'env | grep ^STATESHIFT_ >"$STATESHIFT_WORKDIR/find"'
    find = f"{told}; if [ -f {known} ]; then echo RUNNING app-7; else echo absent; fi"
    cluster = _cluster(tmp_path, submit=f"touch {known}; echo app-7", find=find)
    assert cluster.submit(_submission()) == "app-7"
    status = cluster.find("run.orders")
    assert (status.state, status.id) == (JobState.RUNNING, "app-7")
    assert _told(tmp_path / "find")["STATESHIFT_LOCATION"] == "s3://b/o o"
    assert _told(tmp_path / "find")["STATESHIFT_CONNECTION"] == "10.0.0.7:8998"


def test_a_command_that_fails_is_told_with_the_end_of_its_stderr_and_no_secret(
    tmp_path: Path,
) -> None:
    submit = (
        'for i in $(seq 30); do echo line $i >&2; done; echo "token=$MY_TOKEN at '
        'http://u:pw123@h/" >&2; exit 3'
    )
    cluster = _cluster(tmp_path, submit=submit)
    with pytest.raises(ClusterError, match="`submit` ended with exit code 3") as raised:
        cluster.submit(_submission(environment={"MY_TOKEN": "abcdef"}))
    assert raised.value.fact.splitlines()[1:] == [
        *(f"line {i}" for i in range(17, 31)),
        "token=*** at http://u:***@h/",
    ]
    assert str(raised.value.hint).startswith(
        "mend what the command submit of the cluster ops calls"
    )


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("./nothere --job x", "./nothere"),
        (["nothere-at-all", "x"], "nothere-at-all"),
        ("./there", None),
        ("true", None),
        ("if true; then exit 1; fi", None),
        ('"$SUBMIT" x', None),
        ("FOO=1 nothere", None),
        ("it's", None),
    ],
)
def test_a_program_that_is_not_there_is_told_before_anything_is_stopped(
    tmp_path: Path, command: str | list[str], missing: str | None
) -> None:
    (tmp_path / "there").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "there").chmod(0o755)
    trial = _cluster(tmp_path, submit=command, cwd=str(tmp_path)).try_start(_submission())
    assert trial.refused == (
        f"there is no program {missing} for its command `submit`" if missing else ""
    )


def test_a_submission_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    cluster = _cluster(
        tmp_path, submit=f"if [ -f {tmp_path}/ready ]; then echo id-2; else exit 1; fi"
    )
    with pytest.raises(ClusterError):
        cluster.submit(_submission())
    assert cluster.find("run.orders").state is JobState.ABSENT
    (tmp_path / "ready").touch()
    assert cluster.submit(_submission()) == "id-2"


def test_a_word_that_find_may_not_print_is_refused_naming_those_it_may(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="`find` printed 'ACCEPTED application_1'") as raised:
        _cluster(tmp_path, find="echo ACCEPTED application_1").find("run.orders")
    assert "absent, queued, running, finished, failed, unknown" in (raised.value.hint or "")


def test_nothing_is_submitted_while_find_cannot_tell(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path, find="echo unknown", submit=f"touch {tmp_path}/started")
    with pytest.raises(ClusterError, match="cannot tell whether it runs"):
        cluster.submit(_submission())
    assert not (tmp_path / "started").exists()


def test_a_command_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    started, find = tmp_path / "pid", f"sleep 600 & echo $! >{tmp_path}/pid; wait"
    began = time.monotonic()
    for seconds in (0.3, 5, 50):  # a slow machine has not started it before it is ended
        cluster = _cluster(tmp_path, find=find, seconds_max=seconds)
        with pytest.raises(ClusterError, match=rf"`find` has not ended in {seconds} s"):
            cluster.find("run.orders")
        if started.exists() and started.read_text():
            break
    assert time.monotonic() - began < 300
    pid = int(started.read_text())
    assert in_time(lambda: not runs(pid))


def test_a_submit_that_hangs_is_left_alone_and_named_by_its_pid(tmp_path: Path) -> None:
    """To end it would leave open whether the job runs: a person decides, and nobody submits
    meanwhile.
    """
    cluster = _cluster(tmp_path, submit=f"echo x >>{tmp_path}/begun; sleep 60", seconds_max=0.4)
    pids = ""
    try:
        for act in (lambda: cluster.submit(_submission()), lambda: cluster.find("run.orders")):
            with pytest.raises(
                ClusterError, match=r"still under way after 0.4 s \(pid [\d ]+\)"
            ) as raised:
                act()
            pids = (raised.value.hint or "").partition("kill ")[2]
        begun = tmp_path / "begun"
        assert in_time(lambda: begun.exists() and begun.read_text() != "")
        assert begun.read_text() == "x\n"
    finally:
        for pid in pids.split():
            os.kill(int(pid), 9)


def test_whoever_waits_for_a_start_of_another_process_is_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateshift.clusters.command._FIRST_WORD_SECONDS", 0.2)
    said: list[str] = []
    options = {"submit": "exec sleep 60", "find": "echo absent", "seconds_max": 2}
    contacts = Contacts(say=said.append)
    cluster = open_cluster(ClusterSpec("ops", "command", options), str(tmp_path), contacts)
    with pytest.raises(ClusterError, match="still under way"):
        cluster.submit(_submission())
    with pytest.raises(ClusterError, match="still under way"):
        cluster.find("run.orders")
    words, _, pids = said[0].partition("; to end it: kill ")
    assert words == "ops: submit of the cluster ops still runs: waiting for it, 2 s at most"
    assert len(said) == 1
    for pid in pids.split():
        os.kill(int(pid), 9)
    assert cluster.find("run.orders").state is JobState.ABSENT


def test_a_submit_killed_in_the_middle_is_not_repeated_before_a_person_has_looked(
    tmp_path: Path,
) -> None:
    """Without `find` nobody else can tell; the hint says both ways out, and both work."""
    cluster = _cluster(tmp_path, submit=f"echo x >>{tmp_path}/begun; kill -9 0")
    with pytest.raises(ClusterError, match="may have worked or not"):
        cluster.submit(_submission())
    assert cluster.find("run.orders").state is JobState.UNKNOWN
    with pytest.raises(ClusterError, match="may have worked or not") as raised:
        cluster.submit(_submission())
    assert (tmp_path / "begun").read_text() == "x\n"
    runs, does_not = (part.split(": ", 1)[1] for part in (raised.value.hint or "").split("; "))
    os.system(runs)
    assert cluster.find("run.orders").state is JobState.RUNNING
    Path(runs.split("> ")[1]).unlink()
    os.system(does_not)
    assert cluster.find("run.orders").state is JobState.ABSENT


def test_a_job_left_running_by_submit_does_not_hold_up_those_who_look(tmp_path: Path) -> None:
    """`submit` of a script that starts the job in the background: the lock is held, and
    everything is known.
    """
    cluster = _cluster(tmp_path, submit=f"sleep 600 & echo $! >{tmp_path}/pid; echo id-3")
    try:
        assert cluster.submit(_submission()) == "id-3"
        began = time.monotonic()
        assert cluster.find("run.orders").state is JobState.RUNNING
        assert cluster.submit(_submission()) == "id-3"
        assert time.monotonic() - began < 60
    finally:
        os.kill(int((tmp_path / "pid").read_text()), 9)


def test_waiting_for_the_submission_of_another_can_be_interrupted(tmp_path: Path) -> None:
    impatient = threading.Event()
    begun, over = tmp_path / "begun", tmp_path / "over"
    submit = f"touch {begun}; until [ -e {over} ]; do sleep 0.02; done; echo id"
    others = _cluster(tmp_path, submit=submit)
    other = threading.Thread(target=lambda: others.submit(_submission()))
    other.start()
    assert in_time(begun.exists)
    threading.Timer(0.2, impatient.set).start()
    with pytest.raises(Interrupted):
        _cluster(tmp_path, impatient, submit=submit).find("run.orders")
    over.touch()
    other.join()


def test_a_cluster_that_cannot_stop_says_so(tmp_path: Path) -> None:
    cluster = _cluster(tmp_path)
    cluster.submit(_submission())
    with pytest.raises(ClusterError, match="no command to stop it") as caught:
        cluster.stop(StopRequest("orders", "s3://b/o o", "run.orders"))
    # Whoever has stopped it by hand can say so.
    said = (caught.value.hint or "").partition("touch ")[2].partition(";")[0]
    Path(*shlex.split(said)).touch()
    request = StopRequest("orders", "s3://b/o o", "run.orders")
    assert cluster.stop(request).state is JobState.FINISHED


def test_a_job_that_ends_some_time_after_stop_is_waited_for(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.write_text("running")
    # In one step: `find` would read an empty file while it is written.
    ends = f"sleep 0.3; echo finished >{job}.new; mv {job}.new {job}"
    cluster = _cluster(tmp_path, find=f"cat {job}", stop=f"({ends}) >/dev/null 2>&1 &")
    assert cluster.stop(StopRequest("orders", "s3://b/o", None, 60.0)).state is JobState.FINISHED


def test_what_log_prints_of_a_job_that_is_alive_may_be_of_an_earlier_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(began() + ended(STATE))
    cluster = _cluster(tmp_path, find="echo failed 1", log=f"cat {log}")
    assert cluster.failure("run.orders", alive=True) is None
    failure = cluster.failure("run.orders")
    assert failure is not None and failure.remedy is Remedy.ROLLBACK
