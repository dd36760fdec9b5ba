"""A standby whose source is on a storage that goes away, and comes back: the command line keeps what
it has, says since when, takes nothing back, and goes on by itself.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from stateshift.storage.hdfs.storage import open_hdfs
from stateshift.storage.protocol import Storage
from tests.look.golden_images import NEWEST, contents, write
from tests.servers.standby import LOST, Following, following
from tests.support import s3
from tests.support.between import DENIED, NO_BUCKET, SLOW_DOWN, Asked, between
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.row("W-21", on="S3, HDFS")]
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


def spec_of(folder: Path, source: str) -> Path:
    """A standby of a checkpoint whose files the job's log names by absolute path."""
    job = {
        "name": "orders",
        "checkpoint_location": source,
        "remote_location": str(folder / "new" / "orders"),
        "mode": "warm",
        "cutover": "never",
        "waive": ["paths-stay"],
    }
    spec = folder / "spec.json"
    spec.write_text(json.dumps({"version": 1, "engine": "spark", "jobs": [job]}))
    return spec


@contextmanager
def standby_of(folder: Path, source: str, environment: Mapping[str, str]) -> Iterator[Following]:
    spec, target = spec_of(folder, source), folder / "new" / "orders"
    with following(folder, spec, target, environment) as standby:
        yield standby


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
    line = standby.says(LOST)
    assert "stays, and can be started from epoch 4" in line
    assert standby.image() == kept
    lost = standby.lost()
    assert lost is not None and lost["epoch"] == 4 and lost["since"]
    refused = standby.asked("rollback", str(standby.workdir), "--yes")
    assert refused.returncode == 4, refused.stderr
    assert "may be the last copy" in refused.stderr and "--discard" not in refused.stderr
    assert standby.image() == kept
    assert standby.process.poll() is None, "what is refused interrupts nobody"
    standby.end()
    standby.begin("resume", str(standby.workdir))
    standby.says(LOST)
    assert standby.image() == kept
    assert standby.asked("verify", str(standby.target), "--deep").returncode == 0
    bring()
    write(opened(), batches(LAST, LAST))
    standby.says(f"can be started from epoch {LAST}")
    standby.end()
    assert standby.lost() is None
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
            standby_of(
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

        with standby_of(tmp_path, f"s3a://{s3.BUCKET}/{place}", environment) as standby:
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

    with standby_of(tmp_path, location, environment) as standby:
        lost_and_found(
            standby,
            lambda: open_hdfs(location, environment),
            lambda: single.down("hdfs-a"),
            bring,
        )
