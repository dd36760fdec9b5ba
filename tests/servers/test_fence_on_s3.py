"""A fence on S3: of several that put one up, one does; a real driver that sleeps in a batch
meanwhile cannot commit it when it wakes up, and the job goes on once the fence is taken away.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest

from stateshift.errors import StalePlan
from stateshift.formats.marks import fence_text
from stateshift.step import FenceSource
from stateshift.storage.opening import open_patiently
from stateshift.world import World
from tests.servers.drivers import SECONDS_MAX, Job, fence, until, world
from tests.support import s3
from tests.support.between import Asked, between
from tests.support.servers import Servers, Unavailable, downloads, group, s3_settings

pytestmark = [pytest.mark.servers, pytest.mark.slow]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("s3"), "s3-moto", "s3-real") as servers:
        yield servers


@pytest.fixture(
    scope="module",
    params=[pytest.param(s3.MOTO, marks=pytest.mark.slow), s3.REAL],
    ids=["moto", "real"],
)
def environment(request: pytest.FixtureRequest, servers: Servers) -> Iterator[dict[str, str]]:
    with s3.exported(servers, str(request.param)) as environment:
        yield environment


@pytest.fixture
def location(environment: dict[str, str]) -> str:
    return f"s3a://{s3.BUCKET}/{uuid.uuid4().hex}"


def job(version: str, location: str, environment: dict[str, str]) -> Job:
    """A query whose Spark reaches s3a: as the environment says."""
    try:
        jars = sorted(downloads.jars(f"s3a-spark-{version}").glob("*.jar"))
    except Unavailable as reason:
        pytest.skip(f"what Spark needs for s3a cannot be had: {reason}")
    settings = {**s3_settings(environment, version), "spark.jars": ",".join(map(str, jars))}
    return Job(version, location, settings, environment)


def test_of_several_runs_that_fence_one_source_one_does(location: str) -> None:
    worlds = [replace(world(), run=f"run-{number}") for number in range(4)]

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
    location: str, environment: dict[str, str], version: str
) -> None:
    job(version, location, environment).cannot_commit_behind_a_fence(open_patiently(location))


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
    servers: Servers, version: str, name: str, paths: tuple[str, ...]
) -> None:
    """s3a: asks whether the name is free (HEAD), then copies its temporary file onto it on no
    condition: Spark's logs are exclusive on S3 but for these milliseconds. What such a driver
    finishes is the batch it was in; batch 2, which it would commit next or has to begin, it does
    not commit.
    """
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
            job(
                version, location, {**environment, "AWS_ENDPOINT_URL_S3": address}
            ).running() as zombie,
        ):
            assert looked.wait(SECONDS_MAX)
            evidence = step.run(world())
            assert step.holds(world(), evidence) == []
            fenced.set()
            assert "ultiple streaming jobs detected for 2" in until("died:", zombie)
        assert [one.place for one in step.holds(world(), evidence)] == [f"{location}/{name}"]
        assert step.undo(world(), evidence) == [
            f"{location}/{name} is no longer our fence: left as it is"
        ]
