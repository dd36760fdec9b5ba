"""Real Flinks, of two versions one after the other, are given jobs and asked for savepoints;
jobs are told apart.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.flink.cluster import FlinkRest
from stateshift.clusters.flink.jobs import job_id
from stateshift.clusters.flink.values import release_of
from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import JobState, SavepointRequest, StopRequest, Submission
from stateshift.dataflow.schedulers import fries
from stateshift.errors import ClusterError
from stateshift.specification.dataflow.parse import parse_dataflow, parse_request
from stateshift.specification.model import ClusterSpec
from tests.support.flink import Cluster, cluster_of, faults, jar, lines, until
from tests.support.processes import killed_while
from tests.support.servers import Servers, group

pytestmark = pytest.mark.servers
KEYS = 7


@pytest.fixture(
    scope="module", params=["flink-a", pytest.param("flink-1.20", marks=pytest.mark.slow)]
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Servers, str]]:
    with group(tmp_path_factory.mktemp("flink"), request.param) as servers:
        yield servers, request.param


@pytest.fixture
def real(server: tuple[Servers, str]) -> Iterator[Cluster]:
    """As the tests ask it themselves; what a test leaves running is cancelled."""
    cluster = cluster_of(*server)
    yield cluster
    for job in cluster.ask("/jobs/overview")["jobs"]:
        if job["state"] in ("RUNNING", "RESTARTING", "CREATED", "INITIALIZING"):
            cluster.cancelled(job["jid"])


@pytest.fixture
def flink(real: Cluster, tmp_path: Path) -> FlinkRest:
    return opened(real, tmp_path / "state")


def opened(real: Cluster, state: Path) -> FlinkRest:
    options = {"url": real.url, "state_dir": str(state), "settle_seconds": 5}
    cluster = open_cluster(ClusterSpec("flink", "flink_rest", options), str(state))
    assert isinstance(cluster, FlinkRest)
    return cluster


def counting(
    real: Cluster,
    folder: Path,
    *words: str,
    tag: str = "run-1.orders",
    at: str = "",
    **options: Any,
) -> Submission:
    arguments = [
        "--keys",
        str(KEYS),
        "--output",
        str(folder / "out"),
        "--checkpoint-ms",
        "200",
        *words,
    ]
    known = {
        "jar": str(jar(real.lib)),
        "entry_class": "jobs.Count",
        "arguments": arguments,
        "parallelism": 2,
    }
    return Submission(f"{tag} of {folder}", "orders", at, options={**known, **options})


def begun(flink: FlinkRest, submission: Submission) -> str:
    """Its id, once all its tasks run and a checkpoint has been completed."""
    id = flink.submit(submission)
    runs(flink, submission.tag)
    return id


def runs(flink: FlinkRest, tag: str) -> None:
    first = flink.progress(tag).restored_epoch or 0
    until(lambda: (now := flink.progress(tag)).running and (now.epoch or 0) > first, 60.0)


def stopping(id: str, folder: Path, **more: Any) -> SavepointRequest:
    return SavepointRequest(
        f"stop-{id}", id, (folder / "savepoints").as_uri(), **{"seconds_max": 60.0, **more}
    )


def written(folder: Path) -> list[Any]:
    return lines(folder / "out" / "orders")


def refused(flink: FlinkRest, submission: Submission) -> ClusterError:
    with pytest.raises(ClusterError) as raised:
        flink.submit(submission)
    assert "\n" not in raised.value.fact and raised.value.hint is not None
    assert flink.find(submission.tag).state is JobState.ABSENT
    return raised.value


@pytest.mark.slow
@pytest.mark.row("IF-2")
@pytest.mark.parametrize("native", [False, True])
def test_a_job_that_is_stopped_with_a_savepoint_goes_on_from_it_with_nothing_lost_or_doubled(
    real: Cluster, flink: FlinkRest, tmp_path: Path, native: bool
) -> None:
    first = counting(real, tmp_path)
    id = flink.submit(first)
    assert flink.submit(first) == id == job_id(first.tag)
    until(lambda: len(written(tmp_path)) > 50)
    runs(flink, first.tag)
    request = stopping(id, tmp_path, native=native)
    location = flink.savepoint(request)
    assert real.state(id) == "FINISHED"
    assert opened(real, tmp_path / "elsewhere").savepoint(request) == location
    end = len(written(tmp_path)) + 50
    second = counting(
        real, tmp_path, "--hold", str(end), tag="run-1.again", at=location, parallelism=3
    )
    flink.submit(second)
    runs(flink, second.tag)
    progress = flink.progress(second.tag)
    assert progress.restored == location
    assert progress.epoch is not None and progress.restored_epoch is not None
    assert progress.epoch > progress.restored_epoch
    until(lambda: len(written(tmp_path)) >= end)
    stopped = flink.stop(StopRequest("orders", location, second.tag))
    assert (stopped.state, stopped.detail) == (JobState.FINISHED, "stopped")
    assert faults(written(tmp_path), KEYS, 0, end) == []


@pytest.mark.slow
def test_one_jar_is_sent_once_and_the_version_is_flinks(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    before = len(real.ask("/jars")["files"])
    for number in range(2):
        flink.submit(counting(real, tmp_path, tag=f"run-{number}.jars"))
    assert len(real.ask("/jars")["files"]) <= before + 1
    assert flink.version() == real.ask("/overview")["flink-version"]


@pytest.mark.slow
def test_what_runs_is_found_by_id_and_by_name_and_two_of_a_name_are_not_confused(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    pause = {"execution.checkpointing.min-pause": "70 ms"}
    id = begun(
        flink, counting(real, tmp_path, "--max-parallelism", "16", flink_configuration=pause)
    )
    (found,) = flink.running(id)
    assert found.settings["min_pause"] == 70
    assert found.name == "orders"
    assert {(count, most) for _, count, most in found.vertices.values()} == {(1, 16), (2, 16)}
    assert found.settings["state_backend"] == "HashMapStateBackend"
    elsewhere = opened(real, tmp_path / "elsewhere")
    by_name = StopRequest("orders", "file:///nowhere")
    assert elsewhere.find_source(by_name).id == id
    other = begun(flink, counting(real, tmp_path / "two"))
    with pytest.raises(ClusterError, match="2 jobs called 'orders'") as raised:
        elsewhere.find_source(by_name)
    assert id in raised.value.fact and other in raised.value.fact
    assert elsewhere.find_source(replace(by_name, options={"job_id": other})).id == other
    assert not elsewhere.stop(replace(by_name, options={"job_ids": [id, other]})).state.alive
    assert {real.state(one) for one in (id, other)} == {"CANCELED"}


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"stop": False}, "RUNNING"),
        ({"stop": False, "cancel": True}, "CANCELED"),
        ({"drain": True}, "FINISHED"),
    ],
    ids=["plain", "cancel", "drain"],
)
@pytest.mark.slow
def test_each_kind_of_savepoint_is_taken_once_for_its_tag(
    real: Cluster, flink: FlinkRest, tmp_path: Path, change: dict[str, Any], state: str
) -> None:
    id = begun(flink, counting(real, tmp_path))
    request = stopping(id, tmp_path, **change)
    location = flink.savepoint(request)
    assert real.state(request.job_id) == state
    assert flink.savepoint(request) == location
    assert len(list((tmp_path / "savepoints").iterdir())) == 1


@pytest.mark.slow
def test_a_savepoint_that_fails_stops_nothing_and_is_asked_for_again(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    id = begun(flink, counting(real, tmp_path))
    request = replace(stopping(id, tmp_path), directory="file:///proc/nowhere")
    for _ in range(2):
        with pytest.raises(ClusterError, match="Failed to create savepoint directory") as raised:
            flink.savepoint(request)
        assert "may write to" in str(raised.value.hint)
    assert real.state(request.job_id) == "RUNNING"
    assert flink.savepoint(replace(request, directory=tmp_path.as_uri())).startswith(
        f"file:{tmp_path}/savepoint-"
    )


@pytest.mark.slow
def test_a_job_on_forst_is_stopped_natively_and_no_other_way(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    if str(flink.version()).startswith("1."):
        return  # it came with 2.0
    id = begun(flink, counting(real, tmp_path, "--flink.state.backend.type", "forst"))
    request = stopping(id, tmp_path)
    with pytest.raises(ClusterError, match="ForSt, which writes no canonical savepoint"):
        flink.savepoint(request)
    assert real.state(request.job_id) == "RUNNING"
    assert not (tmp_path / "savepoints").exists()
    assert flink.savepoint(replace(request, native=True)).startswith(
        f"file:{tmp_path}/savepoints/savepoint-"
    )


@pytest.mark.slow
def test_a_savepoint_that_does_not_fit_is_told_in_a_line_and_the_mended_job_starts_under_the_same_tag(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    id = begun(flink, counting(real, tmp_path, "--max-parallelism", "8"))
    location = flink.savepoint(stopping(id, tmp_path))
    misfits = {
        "Max parallelism mismatch": counting(
            real, tmp_path, "--max-parallelism", "16", tag="two", at=location
        ),
        "maximum parallelism .8. of the restored": counting(
            real, tmp_path, tag="two", at=location, parallelism=9
        ),
        "Cannot find checkpoint or savepoint": counting(
            real, tmp_path, tag="two", at=f"{location}-gone"
        ),
        "Unrecognized checkpoint version number: 99": counting(
            real, tmp_path, tag="two", at=edited(location, 7, 99)
        ),
        "Unexpected magic number": counting(real, tmp_path, tag="two", at=edited(location, 0, 99)),
        "EOFException": counting(real, tmp_path, tag="two", at=edited(location, 0, None)),
        "entry point class 'Nope'": counting(real, tmp_path, tag="two", entry_class="Nope"),
        "a name without a value: odd": counting(real, tmp_path, "odd", tag="two"),
        "Jar file .* does not exist": Submission(
            f"two of {tmp_path}", "orders", "", options={"jar_id": "none.jar"}
        ),
        "Cannot map checkpoint/savepoint state for operator [0-9a-f]{32}": counting(
            real, tmp_path, "--counters", "payments", tag="two", at=location
        ),
    }
    for fact, submission in misfits.items():
        assert re.search(fact, refused(flink, submission).fact)
    mended = counting(
        real,
        tmp_path,
        "--counters",
        "payments",
        tag="two",
        at=location,
        allow_non_restored_state=True,
    )
    id = begun(flink, mended)
    assert id != job_id(mended.tag)
    assert opened(real, tmp_path / "elsewhere").find(mended.tag).id == id


def edited(location: str, at: int, byte: int | None) -> str:
    """A copy of the savepoint with another byte, or with half of its metadata."""
    source = Path(location.removeprefix("file:"))
    copy = source.with_name(f"{source.name}-{at}-{byte}")
    copy.mkdir()
    content = bytearray((source / "_metadata").read_bytes())
    if byte is None:
        del content[len(content) // 2 :]
    else:
        content[at] = byte
    (copy / "_metadata").write_bytes(content)
    return f"file:{copy}"


@pytest.mark.slow
def test_a_job_without_slots_is_queued_and_one_that_restarts_over_and_over_says_why(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    wide = counting(real, tmp_path, tag="wide", parallelism=20)
    id = flink.submit(wide)
    until(lambda: real.state(id) == "RUNNING")
    status = flink.find(wide.tag)
    assert (status.state, status.detail) == (JobState.QUEUED, "waits for slots")
    assert not flink.progress(wide.tag).running
    assert not flink.stop(StopRequest("orders", "", wide.tag)).state.alive
    id = begun(flink, counting(real, tmp_path))
    location = flink.savepoint(stopping(id, tmp_path, native=True))
    backend = (
        "--flink.state.backend.type",
        "rocksdb",
        "--flink.state.backend",
        "rocksdb",
    )  # since 1.17, and before
    rocks = counting(real, tmp_path, *backend, tag="rocks", at=location)
    flink.submit(rocks)
    until(lambda: (flink.find(rocks.tag).detail or "").startswith("restarting: "))
    assert "Could not restore keyed state backend" in str(flink.find(rocks.tag).detail)
    assert not flink.progress(rocks.tag).running
    log = flink.log(rocks.tag)
    assert "Caused by" in log and "\tat " not in log


@pytest.mark.slow
def test_a_job_that_went_on_from_its_own_checkpoint_still_comes_from_its_image(
    server: tuple[Servers, str], real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    id = begun(flink, counting(real, tmp_path))
    location = flink.savepoint(stopping(id, tmp_path))
    again = counting(real, tmp_path, tag="run-1.again", at=location)
    id = begun(flink, again)
    servers, name = server
    servers.kill(name, "taskmanager")
    servers.up(name)
    until(lambda: f"/{id}/" in str(real.ask(f"/jobs/{id}/checkpoints")["latest"]["restored"]))
    runs(flink, again.tag)
    progress = flink.progress(again.tag)
    assert progress.restored == location
    assert (progress.epoch or 0) > (progress.restored_epoch or 0) > 0


@pytest.mark.slow
def test_a_job_that_the_jobmanager_forgot_is_unknown_and_its_savepoint_is_not(
    server: tuple[Servers, str], real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    submission = counting(real, tmp_path)
    id = begun(flink, submission)
    request = stopping(id, tmp_path)
    location = flink.savepoint(request)
    servers, name = server
    servers.kill(name, "jobmanager")
    servers.up(name)
    assert flink.find(submission.tag).state is JobState.UNKNOWN
    assert flink.submit(submission) == id
    assert flink.savepoint(request) == location
    with pytest.raises(ClusterError, match="knows no job"):
        opened(real, tmp_path / "elsewhere").savepoint(request)


@pytest.mark.slow
def test_a_job_that_fails_behind_its_savepoint_has_ended_with_it_and_goes_on_from_it(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    id = begun(flink, counting(real, tmp_path, "--ends", "false"))
    request = stopping(id, tmp_path)
    location = flink.savepoint(request)
    assert real.state(id) == "FAILED"
    told = flink.find_source(StopRequest("orders", "", options={"job_ids": [id]}))
    assert told.state is JobState.FAILED and "savepoint has been created at" in str(told.detail)
    for tag in (request.tag, "another, which Flink was not asked by"):
        assert (
            opened(real, tmp_path / f"elsewhere-{tag[:7]}").savepoint(replace(request, tag=tag))
            == location
        )
    id = begun(flink, counting(real, tmp_path, tag="again", at=location))
    flink.savepoint(stopping(id, tmp_path))
    assert faults(written(tmp_path), KEYS, 0, len(written(tmp_path))) == []


@pytest.mark.slow
def test_a_job_that_fails_behind_its_savepoint_has_ended_with_it_under_the_adaptive_scheduler_too(
    tmp_path: Path,
) -> None:
    """Whose history of exceptions does not have what the job has ended with."""
    conf = tmp_path / "conf"
    conf.write_text("jobmanager.scheduler: adaptive\n")
    with group(tmp_path / "root", "flink-a", STATESHIFT_FLINK_CONF=str(conf)) as servers:
        real = cluster_of(servers, "flink-a")
        flink = opened(real, tmp_path / "state")
        id = begun(flink, counting(real, tmp_path, "--ends", "false"))
        request = stopping(id, tmp_path)
        location = flink.savepoint(request)
        assert real.state(id) == "FAILED" and "not committed" in str(flink.failed_behind(request))
        other = replace(request, tag="another, which Flink was not asked by")
        assert opened(real, tmp_path / "elsewhere").savepoint(other) == location


@pytest.mark.slow
def test_killed_at_any_moment_one_job_runs_and_one_savepoint_is_taken(
    real: Cluster, flink: FlinkRest, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    for number in range(5):
        folder = tmp_path / str(number)
        submission = counting(real, folder)
        killed_while(
            lambda submission=submission: flink.submit(submission), chance.uniform(0.0, 1.0)
        )
        id = begun(flink, submission)
        assert [
            one["jid"] for one in real.ask("/jobs/overview")["jobs"] if one["state"] == "RUNNING"
        ] == [id]
        request = stopping(id, folder)
        killed_while(lambda request=request: flink.savepoint(request), chance.uniform(0.0, 1.0))
        location = flink.savepoint(request)
        assert [f"file:{path}" for path in (folder / "savepoints").iterdir()] == [location]
        assert real.state(id) == "FINISHED"


@pytest.mark.slow
def test_a_job_with_a_changelog_that_cannot_go_on_says_why_and_the_way_out_works(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    changelog = (
        "state.changelog.enabled" if version(real) >= (2, 0) else "state.backend.changelog.enabled"
    )
    retention = "execution.checkpointing.externalized-checkpoint-retention"
    kept = {changelog: True, retention: "RETAIN_ON_CANCELLATION"}
    job = counting(real, tmp_path, flink_configuration=kept)
    id = begun(flink, job)
    flink.stop(StopRequest("orders", "", job.tag))
    checkpoint = f"file:{real.retained(id)}"
    again = counting(
        real, tmp_path, tag="again", at=checkpoint, flink_configuration={changelog: True}
    )
    flink.submit(again)
    until(
        lambda: (flink.find(again.tag).detail or "").startswith(
            "restarting: Configured state backend"
        )
    )
    assert flink.progress(again.tag).epoch is None
    assert "way out: a job with a changelog is restored without it" in flink.log(again.tag)
    assert f'"{changelog}": false' in flink.log(again.tag)
    flink.stop(StopRequest("orders", "", again.tag))
    begun(
        flink,
        counting(
            real, tmp_path, tag="without", at=checkpoint, flink_configuration={changelog: False}
        ),
    )


def version(real: Cluster) -> tuple[int, int]:
    return release_of(real.ask("/overview")["flink-version"])


@pytest.mark.slow
def test_parallelism_is_changed_while_the_job_runs_and_nothing_is_lost(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.write_text(
        "jobmanager.scheduler: "
        "adaptive\njobmanager.adaptive-scheduler.executing.cooldown-after-rescaling: 0s\n"
        "jobmanager.adaptive-scheduler.scaling-interval.min: 0s\n"
    )
    with group(tmp_path / "root", "flink-a", STATESHIFT_FLINK_CONF=str(conf)) as servers:
        real = cluster_of(servers, "flink-a")
        flink = opened(real, tmp_path / "state")
        id = begun(flink, counting(real, tmp_path, "--max-parallelism", "4"))
        counts = [
            vertex for vertex, told in flink.running(id)[0].vertices.items() if "count" in told[0]
        ]
        with pytest.raises(ClusterError, match="cannot run 5 times: its max parallelism is 4"):
            flink.rescale(id, dict.fromkeys(counts, 5))
        flink.rescale(id, dict.fromkeys(counts, 3))
        assert {flink.running(id)[0].vertices[one][1] for one in counts} == {3}
        end = len(written(tmp_path)) + 50
        until(lambda: len(written(tmp_path)) >= end)
        flink.savepoint(stopping(id, tmp_path))
        # It goes on from its last checkpoint, and writes again what came after that: the count is
        # none the worse.
        assert [one for one in faults(written(tmp_path), KEYS, 0, end) if "twice" not in one] == []


@pytest.mark.slow
def test_a_scheduler_that_cannot_change_parallelism_says_so(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    id = begun(flink, counting(real, tmp_path))
    with pytest.raises(ClusterError, match="does not support changing the parallelism") as raised:
        flink.rescale(id, dict.fromkeys(flink.running(id)[0].vertices, 3))
    assert "jobmanager.scheduler: adaptive" in str(raised.value.hint)


@pytest.mark.row("F-15")
def test_a_job_s_own_plan_says_which_of_its_operators_change_together(
    real: Cluster, flink: FlinkRest, tmp_path: Path
) -> None:
    id = begun(flink, counting(real, tmp_path, "--max-parallelism", "16"))
    plan = json.dumps(real.ask(f"/jobs/{id}/plan"))
    dataflow = parse_dataflow(plan)
    (found,) = flink.running(id)
    assert {one.name: one.workers for one in dataflow.operators} == {
        name: count for name, count, _ in found.vertices.values()
    }
    assert [edge.way for edge in dataflow.edges] == ["partitioned"]
    flow, targets = parse_request(plan, dataflow.names)
    (component,) = fries(flow, targets).components
    assert sorted(component.operators) == sorted(flow.names) and component.heads == flow.sources
