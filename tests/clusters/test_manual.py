"""A person behind the cluster: what is asked, what the answers mean, and which files say it."""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stateshift.clusters.manual import Manual
from stateshift.clusters.protocol import JobState, StopRequest, Submission
from stateshift.errors import ClusterError, Interrupted

SUBMISSION = Submission(
    "run.orders", "orders", "s3://b/orders", "h:7077", environment={"TOKEN": "hunter22"}
)
REQUEST = StopRequest("orders", "s3://a/orders", None, 0.2)


def _person(*answers: str) -> tuple[list[str], Callable[[str], str]]:
    left, asked = list(answers), list[str]()

    def ask(question: str) -> str:
        asked.append(question)
        if not left:
            raise EOFError
        return left.pop(0)

    return asked, ask


def test_the_person_is_told_what_to_start_and_answers_with_its_id(tmp_path: Path) -> None:
    asked, ask = _person("app-7")
    cluster = Manual("hands", tmp_path, ask=ask)
    assert cluster.submit(SUBMISSION) == "app-7"
    assert asked[0].startswith(
        "Start orders from s3://b/orders on h:7077, with STATESHIFT_TAG=run.orders.\n"
    )
    assert Manual("hands", tmp_path).find("run.orders").id == "app-7"
    assert Manual("hands", tmp_path).submit(SUBMISSION) == "app-7"


@pytest.mark.parametrize("answer", ["", "y", "Yes", "done"])
def test_a_mere_yes_is_no_id(tmp_path: Path, answer: str) -> None:
    assert Manual("hands", tmp_path, ask=_person(answer)[1]).submit(SUBMISSION) == "run.orders"


def test_a_no_declines_and_leaves_nothing_behind(tmp_path: Path) -> None:
    cluster = Manual("hands", tmp_path, ask=_person("no")[1])
    with pytest.raises(ClusterError, match="declined: Start orders"):
        cluster.submit(SUBMISSION)
    assert cluster.find("run.orders").state is JobState.ABSENT


def test_what_was_asked_and_not_answered_is_unknown_and_asked_again(tmp_path: Path) -> None:
    """We were killed while the person was at it: perhaps the job was started."""

    def killed(question: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Manual("hands", tmp_path, ask=killed).submit(SUBMISSION)
    assert Manual("hands", tmp_path).find("run.orders").state is JobState.UNKNOWN
    asked, ask = _person("app-7")
    assert Manual("hands", tmp_path, ask=ask).submit(SUBMISSION) == "app-7"
    assert "asked before: if it was started, only say so" in asked[0]


def test_nobody_there_the_hint_says_what_to_touch_and_it_works(tmp_path: Path) -> None:
    said: list[str] = []
    cluster = Manual(
        "hands", tmp_path / "mark ers", seconds_max=0.1, ask=_person()[1], say=said.append
    )
    with pytest.raises(ClusterError, match=r"nobody said in 0\.1 s") as raised:
        cluster.submit(SUBMISSION)
    command = (raised.value.hint or "").split(": ", 1)[1].split(";")[0]
    assert shlex.split(command) == ["touch", str(tmp_path / "mark ers" / "run.orders.submitted")]
    assert command in said[0]
    subprocess.run(command, shell=True, check=True)
    assert cluster.find("run.orders").state is JobState.RUNNING


def test_the_file_that_asks_says_everything_but_secrets(tmp_path: Path) -> None:
    with pytest.raises(ClusterError):
        Manual("hands", tmp_path, seconds_max=0).submit(SUBMISSION)
    text = (tmp_path / "run.orders.submit").read_text()
    assert json.loads(text) == {
        "job": "orders",
        "tag": "run.orders",
        "location": "s3://b/orders",
        "connection": "h:7077",
        "options": {},
        "environment": ["TOKEN"],
    }


def test_markers_tell_how_a_job_ended(tmp_path: Path) -> None:
    cluster = Manual("hands", tmp_path)
    (tmp_path / "run.orders.submitted").write_text("app-7\n")
    (tmp_path / "run.orders.failed").write_text("out of memory\npassword=hunter22\n")
    status = cluster.find("run.orders")
    assert (status.state, status.id, status.detail) == (JobState.FAILED, "app-7", "out of memory")
    assert cluster.log("run.orders") == "out of memory\npassword=***"
    (tmp_path / "run.orders.failed").unlink()
    (tmp_path / "run.orders.finished").touch()
    assert cluster.find("run.orders").state is JobState.FINISHED


def test_whether_a_job_of_somebody_else_runs_only_a_person_knows(tmp_path: Path) -> None:
    asked, ask = _person("")
    cluster = Manual("hands", tmp_path, ask=ask)
    assert cluster.find_source(REQUEST).state is JobState.UNKNOWN
    assert cluster.stop(REQUEST).state is JobState.FINISHED
    assert asked[0].startswith("Stop orders, whose image is at s3://a/orders, between two batches")
    assert Manual("hands", tmp_path).stop(REQUEST).state is JobState.FINISHED
    assert len(asked) == 1


def test_the_answer_to_an_earlier_question_is_none_to_this_one(tmp_path: Path) -> None:
    """`orders` was stopped at s3://a once; now it runs at s3://b, and is to be stopped there."""
    Manual("hands", tmp_path, ask=_person("")[1]).stop(REQUEST)
    elsewhere = StopRequest("orders", "s3://b/orders", None, 0.1)
    cluster = Manual("hands", tmp_path)
    assert cluster.find_source(elsewhere).state is JobState.UNKNOWN
    with pytest.raises(ClusterError, match="nobody said"):
        cluster.stop(elsewhere)


def test_a_job_started_again_where_it_was_stopped_is_no_longer_stopped(tmp_path: Path) -> None:
    cluster = Manual("hands", tmp_path, ask=_person("", "")[1])
    cluster.stop(REQUEST)
    cluster.submit(Submission("run.orders.restart", "orders", "s3://a/orders"))
    assert cluster.find_source(REQUEST).state is JobState.UNKNOWN


def test_waiting_for_a_marker_can_be_interrupted(tmp_path: Path) -> None:
    impatient = threading.Event()
    threading.Timer(0.1, impatient.set).start()
    with pytest.raises(Interrupted):
        Manual("hands", tmp_path, seconds_max=60, interrupt=impatient).submit(SUBMISSION)
