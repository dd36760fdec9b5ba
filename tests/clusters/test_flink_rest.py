"""Flink where it does not answer, or answers oddly; what it is told, and what it is not asked
for.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.flink.cluster import FlinkRest
from stateshift.clusters.flink.jobs import job_id
from stateshift.clusters.kind import check_submit, open_cluster
from stateshift.clusters.protocol import JobProgress, JobState, StopRequest, Submission
from stateshift.errors import ClusterError, SpecError
from stateshift.specification.model import ClusterSpec
from tests.clusters.fake_flink import COUNT, SOURCE, FakeFlink, serving, stack
from tests.clusters.faulty_server import Fault

SAVEPOINT = "file:///savepoints/savepoint-1"
ORDERS = Submission(
    "run-1.orders", "orders", SAVEPOINT, options={"jar_id": "1_orders.jar", "arguments": ["{tag}"]}
)
MISFIT = (
    "java.lang.IllegalStateException: Failed to rollback to checkpoint/savepoint "
    "file:/savepoints/savepoint-1. Cannot "
    f"map checkpoint/savepoint state for operator {COUNT} to the new program, because it "
    "is not available in it."
)


@pytest.fixture
def server() -> Iterator[FakeFlink]:
    with serving() as flink:
        flink.jars["1_orders.jar"] = "orders.jar"
        yield flink


def cluster(server: FakeFlink, tmp_path: Path, **options: Any) -> FlinkRest:
    known = {
        "url": server.url,
        "settle_seconds": 0.3,
        "request_seconds": 60,
        "state_dir": str(tmp_path / "state"),
    }
    opened = open_cluster(ClusterSpec("flink", "flink_rest", {**known, **options}), str(tmp_path))
    assert isinstance(opened, FlinkRest)
    return opened


def request(**options: Any) -> StopRequest:
    return StopRequest("orders", "file:///ck/orders", options=options, seconds_max=60.0)


def test_a_job_is_started_under_the_id_that_follows_from_its_tag(
    server: FakeFlink, tmp_path: Path
) -> None:
    options = {
        **ORDERS.options,
        "entry_class": "Orders",
        "parallelism": 3,
        "allow_non_restored_state": True,
        "arguments": ["--from", "{checkpoint}", 7, True, "{tag}"],
        "flink_configuration": {"a.b": True, "c": 1},
    }
    flink = cluster(server, tmp_path, flink_configuration={"c": "2", "d": "{job}"})
    assert flink.submit(replace(ORDERS, options=options)) == job_id(ORDERS.tag)
    assert server.bodies == [
        {
            "jobId": job_id(ORDERS.tag),
            "entryClass": "Orders",
            "programArgsList": ["--from", SAVEPOINT, "7", "true", ORDERS.tag],
            "parallelism": 3,
            "savepointPath": SAVEPOINT,
            "allowNonRestoredState": True,
            "claimMode": "NO_CLAIM",
            "flinkConfiguration": {"a.b": "true", "c": "1", "d": "orders"},
        }
    ]


def test_without_an_image_a_job_starts_with_nothing(server: FakeFlink, tmp_path: Path) -> None:
    cluster(server, tmp_path).submit(replace(ORDERS, location=""))
    assert set(server.bodies[0]) == {"jobId", "programArgsList"}


@pytest.mark.parametrize(
    ("version", "word"),
    [("1.20.5", "claimMode"), ("1.19.3", "restoreMode"), ("1.15.4", "restoreMode")],
)
def test_the_claim_is_told_in_the_versions_own_word(
    server: FakeFlink, tmp_path: Path, version: str, word: str
) -> None:
    server.version = version
    cluster(server, tmp_path).submit(
        replace(ORDERS, options={**ORDERS.options, "claim_mode": "legacy"})
    )
    assert server.bodies[0][word] == "LEGACY"
    assert len({"claimMode", "restoreMode"} & set(server.bodies[0])) == 1


@pytest.mark.parametrize(
    ("version", "options", "fact"),
    [
        (
            "1.16.3",
            {"flink_configuration": {"a": 1}},
            'Flink 1.16.3 does not know "flink_configuration"',
        ),
        ("1.14.6", {}, 'Flink 1.14.6 does not know "claim_mode"'),
    ],
)
def test_what_a_version_does_not_know_is_refused_by_name(
    server: FakeFlink, tmp_path: Path, version: str, options: dict[str, Any], fact: str
) -> None:
    server.version = version
    with pytest.raises(ClusterError, match=fact):
        cluster(server, tmp_path).submit(replace(ORDERS, options={**ORDERS.options, **options}))
    assert server.bodies == []


@pytest.mark.parametrize(
    ("options", "pointer", "fact"),
    [
        ({"jar_id": "x", "claim_mode": "claim"}, "/claim_mode", "lets Flink delete the image"),
        ({"jar_id": "x", "claim_mode": "steal"}, "/claim_mode", "does not fit"),
        ({"jar_id": "x", "jar": "/nowhere.jar"}, "/jar", "and not both"),
        ({}, "/jar", "needs a jar"),
        ({"jar": "/nowhere.jar"}, "/jar", "there is no such file"),
        ({"jar_id": "x", "parallelism": 0}, "/parallelism", "does not fit"),
        ({"jar_id": "x", "paralelism": 2}, "/paralelism", "did you mean 'parallelism'"),
    ],
)
def test_how_a_job_is_submitted_is_checked_before_anything_moves(
    options: dict[str, Any], pointer: str, fact: str
) -> None:
    with pytest.raises(SpecError) as raised:
        check_submit(ClusterSpec("flink", "flink_rest"), options, "/jobs/0/submit")
    assert [complaint.pointer for complaint in raised.value.complaints] == [
        f"/jobs/0/submit{pointer}"
    ]
    assert fact in raised.value.complaints[0].message


def test_a_jar_is_sent_once_and_whole(server: FakeFlink, tmp_path: Path) -> None:
    content = bytes(range(256)) * 3000
    (tmp_path / "shop.jar").write_bytes(content)
    options = {"jar": str(tmp_path / "shop.jar")}
    flink = cluster(server, tmp_path)
    for number in range(2):
        flink.submit(replace(ORDERS, tag=f"run-{number}.orders", options=options))
    assert len(server.uploads) == 1
    assert content in server.uploads[0]
    assert [name for name in server.jars.values() if name.startswith("shop-")]
    (tmp_path / "shop.jar").write_bytes(b"another")
    flink.submit(replace(ORDERS, tag="run-2.orders", options=options))
    assert len(server.uploads) == 2


def test_a_cluster_that_takes_no_jars_says_so_before_a_job_is_begun(
    server: FakeFlink, tmp_path: Path
) -> None:
    server.takes_jars = False
    with pytest.raises(ClusterError) as raised:
        cluster(server, tmp_path).submit(ORDERS)
    assert "takes no jars" in str(raised.value.hint)
    with pytest.raises(ClusterError, match="a cluster of one application"):
        cluster(server, tmp_path, application=True).submit(ORDERS)
    of_one = ClusterSpec("flink", "flink_rest", {"url": server.url, "application": True})
    with pytest.raises(SpecError) as refused:
        check_submit(of_one, ORDERS.options, "/jobs/0/source_submit")
    assert [
        (c.pointer, "cluster of one application" in c.message) for c in refused.value.complaints
    ] == [("/jobs/0/source_submit", True)]


@pytest.mark.parametrize(
    ("why", "fact", "hint"),
    [
        (
            MISFIT,
            f"Cannot map checkpoint/savepoint state for operator {COUNT}",
            "allow_non_restored_state",
        ),
        (
            "java.lang.IllegalStateException: Max parallelism mismatch",
            "Max parallelism mismatch",
            "repartition",
        ),
        (
            "java.lang.IllegalArgumentException: Unrecognized checkpoint version number: 6",
            "number: 6",
            "convert",
        ),
        (
            "java.io.EOFException",
            "the job was not started: The main method caused an error: Failed. (EOF",
            "verify",
        ),
        (
            "java.io.FileNotFoundException: Cannot find checkpoint or savepoint file 'x'",
            "Cannot find",
            "JobManager",
        ),
    ],
)
def test_a_savepoint_that_does_not_fit_is_told_in_one_line_with_a_way_out_and_submitted_again_once_it_is_mended(
    server: FakeFlink, tmp_path: Path, why: str, fact: str, hint: str
) -> None:
    server.refuses.append(why)
    flink = cluster(server, tmp_path, settle_seconds=60)
    with pytest.raises(ClusterError) as raised:
        flink.submit(ORDERS)
    assert (
        fact in raised.value.fact
        and "\n" not in raised.value.fact
        and "org.apache" not in raised.value.fact
    )
    assert hint in str(raised.value.hint)
    assert flink.find(ORDERS.tag).state is JobState.ABSENT
    assert flink.submit(ORDERS) == job_id(ORDERS.tag, 1)
    assert cluster(server, tmp_path / "elsewhere").find(ORDERS.tag).id == job_id(ORDERS.tag, 1)
    assert server.started == {ORDERS.tag: 1}


def test_a_savepoint_that_does_not_fit_is_told_though_the_answer_was_lost(
    server: FakeFlink, tmp_path: Path
) -> None:
    server.refuses.append(MISFIT)
    server.faults.append("cut off after all")
    with pytest.raises(
        ClusterError, match=f"the job was not started: .* Cannot map .* operator {COUNT}"
    ) as raised:
        cluster(server, tmp_path).submit(ORDERS)
    assert "allow_non_restored_state" in str(raised.value.hint)
    assert cluster(server, tmp_path).submit(ORDERS) == job_id(ORDERS.tag, 1)


def test_a_job_is_found_and_not_started_twice_though_flink_has_forgotten_the_attempt_before_it(
    server: FakeFlink, tmp_path: Path
) -> None:
    """It keeps jobs that ended for an hour; we were killed before the answer was written down."""
    server.refuses.append(MISFIT)
    flink = cluster(server, tmp_path)
    with pytest.raises(ClusterError):
        flink.submit(ORDERS)
    id = flink.submit(ORDERS)
    note = tmp_path / "state" / f"{ORDERS.tag}.json"
    known = json.loads(note.read_bytes())
    note.write_text(json.dumps({key: known[key] for key in known if key != "id"}))
    del server.jobs[job_id(ORDERS.tag)]
    assert flink.progress(ORDERS.tag).running
    assert flink.submit(ORDERS) == flink.find(ORDERS.tag).id == id
    assert server.started == {ORDERS.tag: 1}


def test_an_answer_of_500_that_says_what_is_wrong_is_not_waited_for(
    server: FakeFlink, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError, match=r"Jar file /tmp/2_x.jar does not exist") as raised:
        cluster(server, tmp_path, settle_seconds=60).submit(
            replace(ORDERS, options={"jar_id": "2_x.jar"})
        )
    assert "jar_id" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("fault", "fact"),
    [
        ("503", "HTTP 503 for POST"),
        ("cut off", "does not answer"),
        ("page", "as Flink does .HTTP 200, text/html"),
    ],
)
def test_a_submission_that_had_no_effect_is_told_with_the_fact_and_a_hint(
    server: FakeFlink, tmp_path: Path, fault: Fault, fact: str
) -> None:
    server.faults.append(fault)
    with pytest.raises(ClusterError, match=fact) as raised:
        cluster(server, tmp_path).submit(ORDERS)
    assert raised.value.hint is not None


def test_a_flink_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with serving() as server:
        gone = cluster(server, tmp_path)
    with pytest.raises(ClusterError, match=rf"{server.url} does not answer: .*refused") as raised:
        gone.find(ORDERS.tag)
    assert raised.value.exit_code == 7
    assert gone.version() is None


def test_a_page_that_is_not_flinks_is_not_taken_for_a_job_that_is_not_there(
    server: FakeFlink, tmp_path: Path
) -> None:
    with pytest.raises(ClusterError) as raised:
        cluster(server, tmp_path, url=f"{server.url}/elsewhere").find(ORDERS.tag)
    assert '"url" has to be that of Flink' in str(raised.value.hint)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("INITIALIZING", "queued"),
        ("CREATED", "queued"),
        ("RUNNING", "running"),
        ("RESTARTING", "running"),
        ("FAILING", "running"),
        ("CANCELLING", "running"),
        ("RECONCILING", "running"),
        ("FINISHED", "finished"),
        ("FAILED", "failed"),
        ("CANCELED", "failed"),
        ("SUSPENDED", "unknown"),
        ("LATER", "unknown"),
    ],
)
def test_each_of_flinks_states_is_one_of_ours(
    server: FakeFlink, tmp_path: Path, word: str, state: str
) -> None:
    flink = cluster(server, tmp_path)
    server.jobs[flink.submit(ORDERS)].state = word
    assert flink.find(ORDERS.tag).state == state


def test_a_job_whose_tasks_have_no_slots_is_queued(server: FakeFlink, tmp_path: Path) -> None:
    flink = cluster(server, tmp_path)
    server.jobs[flink.submit(ORDERS)].task_state = "SCHEDULED"
    status = flink.find(ORDERS.tag)
    assert (status.state, status.detail) == (JobState.QUEUED, "waits for slots")


def test_why_a_job_restarts_over_and_over_is_told_without_secrets_and_frames(
    server: FakeFlink, tmp_path: Path
) -> None:
    flink = cluster(server, tmp_path)
    job = server.jobs[flink.submit(ORDERS)]
    job.state = "RESTARTING"
    job.exceptions = [
        stack(
            "java.lang.Exception: Exception while creating StreamOperatorStateContext.",
            "org.apache.flink.util.FlinkException: Could not restore keyed state backend",
            (
                "org.apache.flink.util.StateMigrationException: The new serializer is not "
                "compatible, token=hunter22"
            ),
        ),
        stack("java.lang.IllegalStateException: the first time"),
    ]
    status = flink.find(ORDERS.tag)
    assert status.detail == (
        "restarting: Could not restore keyed state backend: StateMigrationException: The "
        "new serializer is not "
        "compatible, token=***"
    )
    log = flink.log(ORDERS.tag)
    assert log.splitlines()[-1].startswith("way out: the state does not fit the job")
    assert log.splitlines()[-2].endswith(
        "StateMigrationException: The new serializer is not compatible, token=***"
    )
    assert "the first time" in log.splitlines()[1]
    assert "\tat " not in log and "hunter22" not in log


def test_what_failed_a_job_for_good_is_told_though_the_page_of_exceptions_does_not_have_it_yet(
    server: FakeFlink, tmp_path: Path
) -> None:
    flink = cluster(server, tmp_path)
    job = server.jobs[flink.submit(ORDERS)]
    job.state, job.exceptions = "FAILED", []
    job.result = stack(
        "org.apache.flink.runtime.client.JobExecutionException: Job execution failed.",
        "org.apache.flink.util.StateMigrationException: not compatible, token=hunter22",
    )
    assert (
        flink.find(ORDERS.tag).detail
        == "failed: StateMigrationException: not compatible, token=***"
    )
    log = flink.log(ORDERS.tag).splitlines()
    assert log[0] == "the job" and log[-1].endswith(
        "StateMigrationException: not compatible, token=***"
    )
    job.exceptions = [stack("java.lang.IllegalStateException: the time before")]
    assert (
        flink.find(ORDERS.tag).detail
        == "failed: StateMigrationException: not compatible, token=***"
    )


def test_a_job_of_somebody_else_is_found_by_its_id_or_its_name_and_cancelled(
    server: FakeFlink, tmp_path: Path
) -> None:
    ended = server.begin("a" * 32, state="CANCELED")
    running, other = server.begin("b" * 32), server.begin("c" * 32, "clicks")
    flink = cluster(server, tmp_path)
    options: tuple[dict[str, Any], ...] = (
        {},
        {"job_id": ended.id},
        {"job_ids": [ended.id, running.id]},
        {"job_name": "clicks"},
    )
    assert [flink.find_source(request(**one)).id for one in options] == [
        running.id,
        ended.id,
        running.id,
        other.id,
    ]
    assert flink.find_source(request(job_name="nobody")).state is JobState.ABSENT
    assert flink.find_source(request(job_id="d" * 32)).state is JobState.ABSENT
    assert flink.stop(request()).state is JobState.FAILED
    assert (running.state, other.state) == ("CANCELED", "RUNNING")


def test_how_its_savepoint_is_to_be_taken_is_none_of_a_stops_business_but_known(
    server: FakeFlink, tmp_path: Path
) -> None:
    flink = cluster(server, tmp_path)
    assert (
        flink.find_source(request(drain=True, format="native", tag="x", seconds_max=3)).state
        is JobState.ABSENT
    )
    with pytest.raises(SpecError) as raised:
        flink.find_source(request(format="canonic", dran=True))
    assert sorted(complaint.pointer for complaint in raised.value.complaints) == [
        "/stop/dran",
        "/stop/format",
    ]


def test_two_jobs_of_one_name_are_told_apart_only_by_their_ids(
    server: FakeFlink, tmp_path: Path
) -> None:
    for letter in "ab":
        server.begin(letter * 32)
    flink = cluster(server, tmp_path)
    listed = f'"{"a" * 32}", "{"b" * 32}"'
    with pytest.raises(
        ClusterError, match=f"2 jobs called 'orders' run on flink: {listed}"
    ) as raised:
        flink.find_source(request())
    assert '"job_ids"' in str(raised.value.hint)
    both = request(job_ids=["a" * 32, "b" * 32])
    assert not flink.stop(both).state.alive
    assert {job.state for job in server.jobs.values()} == {"CANCELED"}


def test_the_job_that_we_moved_to_another_image_is_not_the_source(
    server: FakeFlink, tmp_path: Path
) -> None:
    source = server.begin("a" * 32)
    flink = cluster(server, tmp_path)
    flink.submit(ORDERS)
    assert flink.find_source(request()).id == source.id
    source.state = "FINISHED"
    assert flink.find_source(request()).state is JobState.FINISHED
    assert flink.find_source(replace(request(), location=SAVEPOINT)).state is JobState.RUNNING


def test_taking_back_what_was_never_started_leaves_the_job_of_that_name_alone(
    server: FakeFlink, tmp_path: Path
) -> None:
    source = server.begin("a" * 32)
    flink = cluster(server, tmp_path)
    assert flink.stop(replace(request(), tag=ORDERS.tag)).state is JobState.ABSENT
    assert source.state == "RUNNING" and not source.ends_as


def test_another_connection_overrides_the_clusters_and_is_remembered(
    server: FakeFlink, tmp_path: Path
) -> None:
    with serving() as other:
        other.jars["1_orders.jar"] = "orders.jar"
        there = replace(ORDERS, connection=other.url.removeprefix("http://"))
        cluster(server, tmp_path).submit(there)
        assert (other.started, server.started) == ({ORDERS.tag: 1}, {})
        assert cluster(server, tmp_path).find(ORDERS.tag).state is JobState.RUNNING
        assert not cluster(server, tmp_path).stop(replace(request(), tag=ORDERS.tag)).state.alive


def test_what_runs_is_told_with_what_decides_how_it_may_be_stopped(
    server: FakeFlink, tmp_path: Path
) -> None:
    settings = {"state_backend": "ForStStateBackend", "unaligned_checkpoints": True}
    server.begin("a" * 32, settings=settings)
    flink = cluster(server, tmp_path)
    (by_name,), (by_id,) = flink.running("orders"), flink.running("a" * 32)
    assert by_name == by_id
    assert by_id.settings == {**settings, "scheduler": "Adaptive"}
    assert by_id.vertices == {
        SOURCE: ("Source: numbers", 2, 128),
        COUNT: ("count -> none: Writer", 2, 128),
    }
    assert flink.running("nobody") == ()


def test_progress_is_this_jobs_own_from_the_image_it_was_restored_from(
    server: FakeFlink, tmp_path: Path
) -> None:
    flink = cluster(server, tmp_path)
    assert flink.progress(ORDERS.tag) == JobProgress(None, None, None, False)
    job = server.jobs[flink.submit(ORDERS)]
    assert flink.progress(ORDERS.tag) == JobProgress(SAVEPOINT, 7, None, True)
    job.checkpointed(8, f"file:/ck/{job.id}/chk-8")
    job.task_state = "INITIALIZING"
    assert flink.progress(ORDERS.tag) == JobProgress(SAVEPOINT, 7, 8, False)


def test_of_a_job_that_is_being_initialized_there_is_no_progress_and_no_error(
    server: FakeFlink, tmp_path: Path
) -> None:
    flink = cluster(server, tmp_path)
    job = server.jobs[flink.submit(ORDERS)]
    job.state, job.born = "INITIALIZING", False
    assert flink.progress(ORDERS.tag) == JobProgress(None, None, None, False)
    assert (flink.find(ORDERS.tag).state, flink.log(ORDERS.tag)) == (JobState.QUEUED, "")
    assert flink.running(job.id)[0].settings == {"scheduler": "Adaptive"}


@pytest.mark.parametrize("looked_before", [True, False])
@pytest.mark.parametrize("folder", ["file:/ck/{id}/chk-9", "file:/ck/chk-9"])
def test_a_job_that_failed_and_went_on_from_its_own_checkpoint_began_from_its_image(
    server: FakeFlink, tmp_path: Path, looked_before: bool, folder: str
) -> None:
    """Whether its checkpoints have a folder of the job's id, or `create-subdir` is false."""
    flink = cluster(server, tmp_path)
    job = server.jobs[flink.submit(ORDERS)]
    if looked_before:
        flink.progress(ORDERS.tag)
    place = folder.format(id=job.id)
    job.checkpointed(9, place)
    job.restored = {"id": 9, "external_path": place, "is_savepoint": False}
    assert flink.progress(ORDERS.tag) == JobProgress(
        SAVEPOINT, 7 if looked_before else None, 9, True
    )


def test_parallelism_is_changed_in_place_and_waited_for(server: FakeFlink, tmp_path: Path) -> None:
    job = server.begin("a" * 32)
    flink = cluster(server, tmp_path)
    flink.rescale(job.id, {SOURCE: 3, COUNT: 3})
    assert job.parallelism == 3
    flink.rescale(job.id, {SOURCE: 3, COUNT: 3}, 0.0)


@pytest.mark.parametrize(
    ("change", "wanted", "fact"),
    [
        (
            {},
            {COUNT: 129},
            "count -> none: Writer cannot run 129 times: its max parallelism is 128",
        ),
        ({}, {COUNT: 0}, "cannot run 0 times"),
        ({}, {"f" * 32: 2}, f"orders has no vertex {'f' * 32}"),
        (
            {"version": "1.17.2"},
            {COUNT: 3},
            "Flink 1.17.2 cannot change the parallelism of a running job",
        ),
        (
            {"scheduler": "Default"},
            {COUNT: 3},
            "The DefaultScheduler does not support changing the parallelism",
        ),
        (
            {"slots": 2},
            {SOURCE: 5, COUNT: 5},
            "runs Source: numbers with 2, count -> none: Writer with 2",
        ),
    ],
)
def test_a_parallelism_that_cannot_be_had_is_refused_with_a_way_out(
    server: FakeFlink, tmp_path: Path, change: dict[str, Any], wanted: dict[str, int], fact: str
) -> None:
    for name, value in change.items():
        setattr(server, name, value)
    server.begin("a" * 32)
    with pytest.raises(ClusterError) as raised:
        cluster(server, tmp_path).rescale("a" * 32, wanted, 0.2)
    assert fact in raised.value.fact
    assert raised.value.hint is not None


def test_secrets_come_from_their_files_and_are_told_to_flink_alone(
    server: FakeFlink, tmp_path: Path
) -> None:
    for name in ("token", "key"):
        (tmp_path / name).write_text(f"hunter22-{name}\n")
    flink = cluster(
        server,
        tmp_path,
        token_file=str(tmp_path / "token"),
        header_files={"X-Key": str(tmp_path / "key")},
    )
    flink.submit(ORDERS)
    assert {header["Authorization"] for header in server.headers} == {"Bearer hunter22-token"}
    assert {header["X-Key"] for header in server.headers} == {"hunter22-key"}
    kept = "".join(path.read_text() for path in (tmp_path / "state").iterdir())
    assert "hunter22" not in kept + json.dumps(server.bodies)


def test_a_password_comes_from_its_file(server: FakeFlink, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter22\n")
    options = {"auth": "basic", "user": "etl", "password_file": str(tmp_path / "password")}
    cluster(server, tmp_path, **options).find(ORDERS.tag)
    assert server.headers[-1]["Authorization"] == "Basic ZXRsOmh1bnRlcjIy"
    with pytest.raises(ClusterError, match="nowhere cannot be read"):
        cluster(server, tmp_path, token_file=str(tmp_path / "nowhere")).find(ORDERS.tag)


def test_waiting_for_a_job_to_end_is_cut_short_by_an_interruption(
    server: FakeFlink, tmp_path: Path
) -> None:
    from stateshift.errors import Interrupted

    server.begin("a" * 32)
    interrupt = threading.Event()
    interrupt.set()
    flink = replace(cluster(server, tmp_path), interrupt=interrupt)
    with pytest.raises(Interrupted):
        flink.stop(request())
