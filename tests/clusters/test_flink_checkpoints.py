"""A job that is ended with its last checkpoint, over lost answers and with older Flinks: never one
whose checkpoints would be gone with it, and always the last one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.http import Unanswered
from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import CheckpointRequest, Gone, JobState, SavepointCluster
from stateshift.errors import ClusterError
from stateshift.specification.model import ClusterSpec
from tests.clusters.fake_flink import FakeFlink, FakeJob, serving
from tests.clusters.faulty_server import Fault, hasty

ID = "a" * 32
END = CheckpointRequest("run-1.orders", ID, seconds_max=60.0)
EXPIRED = (
    "org.apache.flink.runtime.checkpoint.CheckpointException: Checkpoint expired before completing."
)
LASTING = {"externalization": {"enabled": True, "delete_on_cancellation": False}}


@pytest.fixture
def server() -> Iterator[FakeFlink]:
    with serving() as flink:
        yield flink


@pytest.fixture
def job(server: FakeFlink) -> FakeJob:
    begun = server.begin(ID, settings=LASTING)
    begun.checkpointed(1, f"file:/ck/{ID}/chk-1")
    return begun


def cluster(server: FakeFlink, tmp_path: Path, **options: Any) -> SavepointCluster:
    told = {
        "url": server.url,
        "request_seconds": 60,
        "state_dir": str(tmp_path / "state"),
        **options,
    }
    opened: Any = open_cluster(ClusterSpec("flink", "flink_rest", told), str(tmp_path))
    return opened  # type: ignore[no-any-return]


def test_one_more_is_completed_and_the_job_is_cancelled(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    flink = cluster(server, tmp_path)
    assert flink.latest_checkpoint(ID) == f"file:/ck/{ID}/chk-1"
    assert flink.checkpoint(END) == f"file:/ck/{ID}/chk-2"
    assert job.state == "CANCELED" and len(server.checkpoints) == 1


def test_a_list_that_is_older_than_what_was_completed_is_asked_for_again(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.stale = 5
    job.made[0]["external_path"] = "file:/elsewhere/first"
    assert cluster(server, tmp_path).checkpoint(END) == f"file:/ck/{ID}/chk-2"
    assert server.stale < 0


def test_what_was_completed_is_known_before_it_is_listed(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.stale = 100
    assert cluster(server, tmp_path).checkpoint(END) == f"file:/ck/{ID}/chk-2"


def test_a_flink_that_does_not_tell_the_state_alone_is_believed_what_it_tells_of_the_job(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.tells_state = False
    assert cluster(server, tmp_path).checkpoint(END) == f"file:/ck/{ID}/chk-2"
    assert job.state == "CANCELED"


def test_a_job_that_is_over_is_over_whatever_is_told_of_its_parts(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    tell = server.told
    server.told = lambda told: {**tell(told), "state": "RUNNING"}  # type: ignore[method-assign]
    flink = cluster(server, tmp_path)
    assert flink.checkpoint(END) == f"file:/ck/{ID}/chk-2"
    assert [one.state for one in flink.running(ID)] == [JobState.FAILED]


def test_twice_with_one_tag_tells_of_the_same(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    first = cluster(server, tmp_path).checkpoint(END)
    assert cluster(server, tmp_path).checkpoint(END) == first
    assert cluster(server, tmp_path / "lost").checkpoint(END) == first, (
        "also for who knows nothing of it"
    )
    assert len(server.checkpoints) == 1


def test_one_that_was_completed_in_its_own_time_since_is_as_good(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.takes_checkpoints, tell = False, server.told

    def goes_on(told: FakeJob) -> dict[str, Any]:
        if len(job.made) < 4:
            job.checkpointed(
                len(job.made) + 1,
                f"file:/ck/{ID}/chk-{len(job.made) + 1}",
                triggered=next(server.now),
            )
        return tell(told)

    server.told = goes_on  # type: ignore[method-assign]
    assert cluster(server, tmp_path).checkpoint(END) == f"file:/ck/{ID}/chk-4", (
        "the last, not the first that would do"
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"externalization": {"enabled": False, "delete_on_cancellation": True}},
        {"externalization": {"enabled": True, "delete_on_cancellation": True}},
    ],
)
def test_a_job_whose_checkpoints_go_with_it_runs_on(
    server: FakeFlink, job: FakeJob, tmp_path: Path, settings: dict[str, Any]
) -> None:
    job.settings = settings
    with pytest.raises(ClusterError, match="are deleted when it is cancelled") as refused:
        cluster(server, tmp_path).checkpoint(END)
    assert "RETAIN_ON_CANCELLATION" in (refused.value.hint or "") and job.state == "RUNNING"
    assert server.checkpoints == []


def test_one_that_fails_is_told_and_the_job_runs_on(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.fails.append(EXPIRED)
    with pytest.raises(ClusterError, match=r"no checkpoint was completed: .*expired"):
        cluster(server, tmp_path).checkpoint(END)
    assert job.state == "RUNNING"
    assert cluster(server, tmp_path).checkpoint(END) == f"file:/ck/{ID}/chk-2"


def test_a_job_is_on_its_way_out_once_it_is_being_cancelled(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    flink = cluster(server, tmp_path)
    assert not flink.is_ending(END)
    job.state = "CANCELLING"
    assert flink.is_ending(END)


def test_none_in_time_leaves_the_job_running(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.slow = 1_000
    with pytest.raises(ClusterError, match=r"no checkpoint of .* was completed in 0.3 s"):
        cluster(server, tmp_path).checkpoint(replace(END, seconds_max=0.3))
    assert job.state == "RUNNING"


@pytest.mark.long
@pytest.mark.parametrize(
    "fault", ["503", "503 after all", "cut off", "cut off after all", "hang", "page"]
)
def test_an_answer_that_is_lost_loses_nothing(
    server: FakeFlink, job: FakeJob, tmp_path: Path, fault: Fault
) -> None:
    server.faulty = "/checkpoints"
    server.faults.append(fault)
    told = cluster(server, tmp_path, **hasty(fault)).checkpoint(END)
    assert told == job.made[-1]["external_path"] and job.state == "CANCELED"


def test_a_job_that_has_failed_meanwhile_is_taken_from_its_last_checkpoint(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    job.state = "FAILED"
    assert cluster(server, tmp_path).checkpoint(END) == f"file:/ck/{ID}/chk-1"


def test_a_job_at_the_end_of_its_input_has_nothing_to_go_on_with(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    job.state = "FINISHED"
    with pytest.raises(ClusterError, match="come to the end of its input"):
        cluster(server, tmp_path).checkpoint(END)


def test_a_cluster_of_one_application_that_lives_to_tell_it_is_believed(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    assert cluster(server, tmp_path, application=True).checkpoint(END) == f"file:/ck/{ID}/chk-2"


@pytest.mark.long
@pytest.mark.parametrize("goes", ["with its job", "before it is cancelled"])
def test_one_that_goes_has_ended_its_job_where_that_was_accepted(
    server: FakeFlink, job: FakeJob, tmp_path: Path, goes: str
) -> None:
    """From then on it answers nobody, as if it were not there."""
    usual, gone = server.answer, threading.Event()

    def answer(method: str, path: str, query: Any, body: Any) -> tuple[int, Any]:
        if method == "PATCH" and goes == "before it is cancelled":
            gone.set()
        told = (503, {}) if gone.is_set() else usual(method, path, query, body)
        if method == "PATCH":
            gone.set()
        return told

    server.answer = answer  # type: ignore[method-assign]
    flink = cluster(server, tmp_path, application=True, outage_seconds=0.2)
    for _ in range(2):  # and whoever asks again is told the same
        with pytest.raises(ClusterError) as raised:
            flink.checkpoint(END)
        if goes == "with its job":
            assert isinstance(raised.value, Gone) and raised.value.image == f"file:/ck/{ID}/chk-2"
        else:
            assert (
                not isinstance(raised.value, Gone)
                and "does not say whether it was" in raised.value.fact
            )
            assert f"beside file:/ck/{ID}/chk-2" in (raised.value.hint or "")
    assert flink.running(ID) == ()
    with pytest.raises(Gone):
        flink.latest_checkpoint(ID)


def test_any_other_cluster_that_is_silent_may_answer_again(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    server.answer = lambda *_: (503, {})  # type: ignore[method-assign]
    flink = cluster(server, tmp_path, outage_seconds=0.2)
    for ask in (
        lambda: flink.checkpoint(END),
        lambda: flink.running(ID),
        lambda: flink.latest_checkpoint(ID),
    ):
        with pytest.raises(Unanswered):
            ask()


def test_checkpoints_in_a_jobmanager_s_memory_are_none(server: FakeFlink, tmp_path: Path) -> None:
    begun = server.begin(ID, settings=LASTING)
    begun.checkpointed(1, "<checkpoint-not-externally-addressable>")
    assert cluster(server, tmp_path).latest_checkpoint(ID) is None
    with pytest.raises(ClusterError, match="knows no job"):
        cluster(server, tmp_path).checkpoint(replace(END, job_id="b" * 32))


def test_one_whose_job_has_gone_on_behind_what_was_noted_is_ended_anew(
    server: FakeFlink, job: FakeJob, tmp_path: Path
) -> None:
    """Its JobManager was silent when the job was to be cancelled, and has come back."""
    usual, silent = server.answer, threading.Event()

    def answer(method: str, path: str, query: Any, body: Any) -> tuple[int, Any]:
        if method == "PATCH" and job.made[-1]["id"] == 2:
            silent.set()
        return (503, {}) if silent.is_set() else usual(method, path, query, body)

    server.answer = answer  # type: ignore[method-assign]
    flink = cluster(server, tmp_path, application=True, outage_seconds=0.2)
    with pytest.raises(ClusterError, match="does not say whether it was"):
        flink.checkpoint(END)
    silent.clear()
    for number in range(3, 12):
        job.checkpointed(number, f"file:/ck/{ID}/chk-{number}")
    assert flink.checkpoint(END) == f"file:/ck/{ID}/chk-12"
    assert job.state == "CANCELED" and len(server.checkpoints) == 2
