"""A standby whose source is on a storage that goes away, and comes back: the command line keeps what
it has, says since when, takes nothing back, and goes on by itself.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from stateshift.storage.hdfs.opening import open_hdfs
from stateshift.storage.protocol import Storage
from tests.look.golden_images import NEWEST, contents, write
from tests.support import s3
from tests.support.between import DENIED, NO_BUCKET, SLOW_DOWN, Asked, between
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.row("W-21")]
SECONDS_MAX = 240.0
CASE = "window-hdfs"
LAST = 5  # batch of the golden image


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("s3"), "s3-moto") as servers:
        yield servers


def batches(first: int, last: int) -> dict[str, bytes]:
    """The files of these batches, in the order in which Spark writes them."""
    found = {
        path: at for path in contents(NEWEST[CASE]) if first <= (at := _batch(path))[0] <= last
    }
    return {path: contents(NEWEST[CASE])[path] for path in sorted(found, key=found.__getitem__)}


def _batch(path: str) -> tuple[int, int]:
    """The batch that writes a file, and when in it."""
    log = re.match(r"(commits|offsets|sources/0)/(\d+)", path)
    if log:
        return int(log[2]), 2 if log[1] == "commits" else 0
    state = re.match(r"state/0/\d+/(\d+)\.", path)
    return (int(state[1]) - 1, 1) if state else (0, -1)


class Following:
    """`apply --continuous` as a process of its own, from a source into a folder."""

    def __init__(self, folder: Path, source: str, environment: Mapping[str, str]) -> None:
        self.workdir, self.target = folder / "run", folder / "new" / "orders"
        self.environment = {**os.environ, **environment}
        self.told = folder / "told"
        job = {
            "name": "orders",
            "checkpoint_location": source,
            "remote_location": str(self.target),
            "mode": "warm",
            "cutover": "never",
            "waive": ["paths-stay"],
        }
        spec = folder / "spec.json"
        spec.write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
        self.begin("apply", str(spec), "--continuous", "--yes", "--workdir", str(self.workdir))

    def begin(self, *words: str) -> None:
        with self.told.open("w") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "stateshift", *words],
                env=self.environment, stdout=told, stderr=told,
            )  # fmt: skip

    def says(self, words: str) -> str:
        """Wait until it has said so; the line."""
        until = time.monotonic() + SECONDS_MAX
        while True:
            told = self.told.read_text()
            lines = [line for line in told.splitlines() if words in line]
            if lines:
                return lines[-1]
            assert time.monotonic() < until and self.process.poll() is None, told
            time.sleep(0.2)

    def asked(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "stateshift", *words],
            env=self.environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX,
        )  # fmt: skip

    def image(self) -> dict[str, bytes]:
        files = sorted(path for path in self.target.rglob("*") if path.is_file())
        found = {path.relative_to(self.target).as_posix(): path.read_bytes() for path in files}
        return {path: content for path, content in found.items() if path[0] not in "._"}

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(SECONDS_MAX)


@contextmanager
def following(folder: Path, source: str, environment: Mapping[str, str]) -> Iterator[Following]:
    made = Following(folder, source, environment)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


def lost_and_found(
    standby: Following,
    opened: Callable[[], Storage],
    lose: Callable[[], object],
    bring: Callable[[], object],
) -> None:
    """It has an image of batch 4; its source goes; it is asked for everything that an engineer asks
    for; the source comes back, and its job has gone on.
    """
    standby.says("can be started from epoch 4")
    kept = standby.image()
    assert "commits/4" in kept
    lose()
    line = standby.says("its source cannot be followed")
    assert "stays, and can be started from epoch 4" in line
    assert standby.image() == kept
    status = standby.asked("status", str(standby.workdir), "--json")
    (job,) = json.loads(status.stdout)["report"]["jobs"]
    assert job["source_lost"]["epoch"] == 4 and job["source_lost"]["since"]
    refused = standby.asked("rollback", str(standby.workdir), "--yes")
    assert refused.returncode == 4, refused.stderr
    assert "may be the last copy" in refused.stderr and "--discard" not in refused.stderr
    assert standby.image() == kept
    assert standby.process.poll() is None, "what is refused interrupts nobody"
    standby.end()
    standby.begin("resume", str(standby.workdir))
    standby.says("its source cannot be followed")
    assert standby.image() == kept
    assert standby.asked("verify", str(standby.target), "--deep").returncode == 0
    bring()
    write(opened(), batches(LAST, LAST))
    standby.says(f"can be started from epoch {LAST}")
    standby.end()
    report = json.loads(standby.asked("status", str(standby.workdir), "--json").stdout)
    assert report["report"]["jobs"][0]["source_lost"] is None
    back = standby.asked("rollback", str(standby.workdir), "--yes")
    assert back.returncode == 0, back.stderr
    assert standby.image() == {}


@pytest.mark.parametrize("fault", [NO_BUCKET, DENIED, SLOW_DOWN])
def test_a_bucket_that_does_not_answer_ends_no_standby(
    moto: Servers, tmp_path: Path, fault: str
) -> None:
    spoiling: list[str | None] = [None]

    def spoil(asked: Asked) -> str | None:
        return spoiling[0]

    with s3.exported(moto, s3.MOTO) as environment:
        endpoint, place = environment[s3.MOTO], uuid.uuid4().hex
        source = s3.at(endpoint, place)
        write(source, batches(0, 4))
        with (
            between(endpoint, spoil) as (address, _),
            following(
                tmp_path,
                f"s3a://{s3.BUCKET}/{place}",
                {**environment, "AWS_ENDPOINT_URL_S3": address},
            ) as standby,
        ):
            lost_and_found(
                standby,
                lambda: source,
                lambda: spoiling.__setitem__(0, fault),
                lambda: spoiling.__setitem__(0, None),
            )


def test_a_bucket_that_is_emptied_ends_no_standby(moto: Servers, tmp_path: Path) -> None:
    with s3.exported(moto, s3.MOTO) as environment:
        place = uuid.uuid4().hex
        source = s3.at(environment[s3.MOTO], place)
        write(source, batches(0, 4))

        def empty() -> None:
            for file in list(source.list()):
                source.remove(file.path)

        with following(tmp_path, f"s3a://{s3.BUCKET}/{place}", environment) as standby:
            lost_and_found(standby, lambda: source, empty, lambda: write(source, batches(0, 4)))


@pytest.mark.parametrize("way", ["web", "native"])
def test_an_hdfs_that_is_stopped_and_started_again_ends_no_standby(
    single: Servers, tmp_path: Path, way: str
) -> None:
    conf = single.exports()["HADOOP_CONF_DIR"]
    environment = {"HADOOP_CONF_DIR": conf, "STATESHIFT_HDFS": way, "HDFSCLI_CONFIG": os.devnull}
    location = f"hdfs://hdfs-a/standby-{way}/orders"
    source = open_hdfs(location, environment)
    write(source, batches(0, 4))

    def bring() -> None:
        """It is empty when it is started again: the job's checkpoint is restored to it."""
        single.up("hdfs-a")
        write(open_hdfs(location, environment), batches(0, 4))

    with following(tmp_path, location, environment) as standby:
        lost_and_found(
            standby,
            lambda: open_hdfs(location, environment),
            lambda: single.down("hdfs-a"),
            bring,
        )
