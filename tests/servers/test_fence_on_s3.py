"""A fence on S3: of several that put one up, one does; a real driver that sleeps in a batch meanwhile cannot commit it
when it wakes up, and the job goes on once the fence is taken away."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Timer

import pytest

from stateshift.clusters.memory import MemoryCluster
from stateshift.errors import StalePlan
from stateshift.formats.marks import fence_text
from stateshift.step import FenceSource
from stateshift.storage.opening import SystemClock, open_patiently
from stateshift.world import World
from tests.support import s3
from tests.support.between import Asked, between
from tests.support.servers import Servers, Unavailable, downloads, group

pytestmark = pytest.mark.servers

JOB = Path(__file__).with_name("streaming_to_s3.py")
SECONDS_MAX = 240
PROVIDERS = {
    "3.5": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
    "4.3": "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("s3"), "s3-moto", "s3-real") as servers:
        yield servers


@pytest.fixture(scope="module", params=[s3.MOTO, s3.REAL], ids=["moto", "real"])
def environment(request: pytest.FixtureRequest, servers: Servers) -> Iterator[dict[str, str]]:
    with s3.exported(servers, str(request.param)) as environment:
        yield environment


@pytest.fixture
def location(environment: dict[str, str]) -> str:
    return f"s3a://{s3.BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def world() -> World:
    return World(open_patiently, lambda name: MemoryCluster(), {}, {}, SystemClock(), run="the-run")


def fence(location: str, batch: int) -> FenceSource:
    """As planned for a job whose batch has its offsets and no commit."""
    return FenceSource("halt/fence", location, (f"offsets/{batch + 1}", f"commits/{batch}"))


@contextmanager
def driver(version: str, location: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    try:
        spark, jars = downloads.spark({"3.5": "3.5.9", "4.3": "4.3.0"}[version]), downloads.jars(f"s3a-spark-{version}")
    except Unavailable as reason:
        pytest.skip(f"a Spark with s3a cannot be had: {reason}")
    python = spark.parents[3] / "bin" / "python"
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    started = subprocess.Popen(
        [str(python), str(JOB), location, str(jars), PROVIDERS[version]], text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**own, **environment, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    late = Timer(SECONDS_MAX, os.killpg, (started.pid, signal.SIGKILL))
    late.start()
    try:
        yield started
    finally:
        late.cancel()
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate()


def until(told: str, started: subprocess.Popen[str]) -> str:
    """The first line that begins like this."""
    assert started.stdout is not None
    seen = []
    for line in started.stdout:
        seen.append(line)
        if line.startswith(told):
            return line
    raise AssertionError(f"it never said {told!r}: {seen}")


def test_of_several_runs_that_fence_one_source_one_does(location: str, world: World) -> None:
    worlds = [replace(world, run=f"run-{number}") for number in range(4)]

    def attempt(one: World) -> str | None:
        try:
            fence(location, 7).run(one)
        except StalePlan as error:
            assert "was fenced by run run-" in error.fact
            return None
        return one.run

    with ThreadPoolExecutor(4) as pool:
        won = [run for run in pool.map(attempt, worlds) if run is not None]
    assert len(won) == 1
    storage = open_patiently(location)
    assert {info.path: storage.read(info.path) for info in storage.list()} == {
        path: fence_text(won[0]).encode() for path in ("offsets/8", "commits/7")
    }


@pytest.mark.parametrize("version", [pytest.param("3.5", marks=pytest.mark.slow), "4.3"])
def test_a_driver_that_wakes_up_behind_a_fence_cannot_commit(
    location: str, world: World, environment: dict[str, str], version: str
) -> None:
    storage = open_patiently(location)
    with driver(version, location, environment) as zombie:
        until("in batch 1", zombie)
        os.killpg(zombie.pid, signal.SIGSTOP)
        assert storage.stat("offsets/1") is not None
        assert storage.stat("commits/1") is None
        with pytest.raises(StalePlan, match="written after the plan was made"):
            FenceSource("halt/fence", location, ("commits/0",)).run(world)
        before = {info.path: storage.read(info.path) for info in storage.list()}
        evidence = fence(location, 1).run(world)
        os.killpg(zombie.pid, signal.SIGCONT)
        assert "ultiple streaming jobs detected for 1" in until("died:", zombie)
    assert fence(location, 1).holds(world, evidence) == []
    assert fence(location, 1).undo(world, evidence) == []
    assert {path: storage.read(path) for path in before} == before
    assert storage.stat("commits/1") is None
    with driver(version, location, environment) as again:
        until("in batch 2", again)
    assert storage.read("commits/1").startswith(b"v1\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "name", "paths"),
    [
        ("3.5", "commits/1", ("offsets/2", "commits/1")),
        ("4.3", "commits/1", ("offsets/2", "commits/1")),
        ("4.3", "offsets/2", ("offsets/2", "commits/2")),
    ],
)
def test_a_driver_that_slept_between_its_look_and_its_copy_writes_over_one_of_a_fence_s_files_which_shows_and_dies(
    servers: Servers, world: World, version: str, name: str, paths: tuple[str, ...]
) -> None:
    """s3a: asks whether the name is free (HEAD), then copies its temporary file onto it on no condition: Spark's logs
    are exclusive on S3 but for these milliseconds. What such a driver finishes is the batch it was in; batch 2, which
    it would commit next or has to begin, it does not commit."""
    location = f"s3a://{s3.BUCKET}/{uuid.uuid4().hex}"
    looked, fenced = Event(), Event()
    step = FenceSource("halt/fence", location, paths)

    def asleep(asked: Asked) -> str | None:
        if asked[0] == "PUT" and asked[1].endswith(f"/{name}"):
            looked.set()
            assert fenced.wait(60)
        return None

    with s3.exported(servers, s3.REAL) as environment:
        with (
            between(environment["AWS_ENDPOINT_URL_S3"], asleep) as (address, _),
            driver(version, location, {**environment, "AWS_ENDPOINT_URL_S3": address}) as zombie,
        ):
            assert looked.wait(SECONDS_MAX)
            evidence = step.run(world)
            assert step.holds(world, evidence) == []
            fenced.set()
            assert "ultiple streaming jobs detected for 2" in until("died:", zombie)
        assert [one.place for one in step.holds(world, evidence)] == [f"{location}/{name}"]
        assert step.undo(world, evidence) == [f"{location}/{name} is no longer our fence: left as it is"]
