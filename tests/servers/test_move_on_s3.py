"""A checkpoint goes by the command line from a folder to S3, and from one S3 service to another;
storms in the middle cost nothing, and no credential is written down.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from stateshift.storage.local.storage import LocalStorage
from stateshift.storage.locations import authority
from stateshift.storage.opening import open_storage
from stateshift.storage.protocol import Storage
from tests.support import s3
from tests.support.between import LOST, SLOW_DOWN, Asked, between
from tests.support.moving import CASES, put, said, spec, there_and_back
from tests.support.servers import Servers, group

pytestmark = pytest.mark.servers
SHOWN_ON = "S3"

EAST, WEST = "east", "west"  # buckets: one at each of the servers
PLANTED = "planted-secret-Zm9vYmFy"  # moto takes any


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with (
        group(tmp_path_factory.mktemp("s3"), "s3-moto", "s3-real") as servers,
        s3.exported(servers, s3.REAL),
    ):
        s3.make(servers.exports()[s3.MOTO], EAST)
        s3.make(servers.exports()[s3.REAL], WEST)
        yield servers


def without_secrets(workdir: Path, *secrets: str) -> bool:
    files = [path for path in workdir.rglob("*") if path.is_file()]
    assert files
    return not any(secret.encode() in path.read_bytes() for path in files for secret in secrets)


@pytest.mark.slow  # in the default run a scene (test_scenes.py) moves to S3
@pytest.mark.row("IS-16")
@pytest.mark.parametrize("which", [s3.MOTO, s3.REAL], ids=["moto", "real"])
@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_moves_from_a_folder_to_s3_and_back(
    servers: Servers, tmp_path: Path, case: str, which: str
) -> None:
    with s3.exported(servers, which) as environment:
        source, target = (
            f"file://{tmp_path}/ck/{case}",
            f"s3a://{s3.BUCKET}/{uuid.uuid4().hex}/a b/{case}",
        )
        there_and_back(environment, tmp_path, case, source, target, open_storage)
        assert without_secrets(tmp_path / "run", environment["AWS_SECRET_ACCESS_KEY"])


@pytest.mark.parametrize("case", [pytest.param(CASES[0], marks=pytest.mark.slow), CASES[1]])
@pytest.mark.slow
def test_a_checkpoint_moves_from_one_s3_service_to_another_and_back(
    servers: Servers, tmp_path: Path, case: str
) -> None:
    """Each bucket has its endpoint and credentials in fsspec's configuration."""
    exports = servers.exports()
    own = {
        EAST: {"endpoint_url": exports[s3.MOTO], "key": "east", "secret": PLANTED},
        WEST: {"endpoint_url": exports[s3.REAL]},
    }
    environment = {
        **exports,
        **s3.configured(tmp_path / "fsspec", own),
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
    }

    def opening(location: str) -> Storage:
        from stateshift.storage.fsspec.storage import FsspecStorage

        return FsspecStorage.open(location, **own[authority(location)])

    source, target = f"s3://{EAST}/ck/{case}", f"s3://{WEST}/ck/{case}"
    there_and_back(environment, tmp_path, case, source, target, opening)
    assert without_secrets(tmp_path / "run", PLANTED, exports["AWS_SECRET_ACCESS_KEY"])


@pytest.mark.slow
def test_storms_and_lost_answers_while_files_are_copied_are_gone_through(
    servers: Servers, tmp_path: Path
) -> None:
    count = itertools.count(1)

    def often(asked: Asked) -> str | None:
        number = next(count)
        return LOST if number % 11 == 0 else SLOW_DOWN if number % 4 == 0 else None

    source, target = f"file://{tmp_path}/ck", f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"
    put(LocalStorage(source), "window-rocksdb")
    with between(servers.exports()[s3.REAL], often) as (address, asked):
        environment = {**servers.exports(), "AWS_ENDPOINT_URL_S3": address}
        done = said(
            environment,
            "apply",
            spec(tmp_path, source, target),
            "--yes",
            "--workdir",
            str(tmp_path / "run"),
        )
        assert done["state"] == "finished"
        assert len(asked) > 50
    environment = s3.asking(servers, s3.REAL)
    assert said(environment, "diff", source, target)["equal"]
    assert said(environment, "rollback", str(tmp_path / "run"), "--yes")["state"] == "rolled-back"


@pytest.mark.slow
def test_a_storm_that_does_not_end_leaves_a_run_that_can_be_resumed(
    servers: Servers, tmp_path: Path
) -> None:
    count = itertools.count(1)
    source, target = f"file://{tmp_path}/ck", f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"
    put(LocalStorage(source), "window-hdfs")
    workdir = str(tmp_path / "run")
    with between(
        servers.exports()[s3.REAL], lambda asked: SLOW_DOWN if next(count) > 20 else None
    ) as (address, _):
        environment = {**servers.exports(), "AWS_ENDPOINT_URL_S3": address}
        told = said(
            environment,
            "apply",
            spec(tmp_path, source, target),
            "--yes",
            "--workdir",
            workdir,
            code=6,
        )
        assert address.removeprefix("http://") in str(told)
        assert "given up after 8 attempts" in str(told)
    environment = s3.asking(servers, s3.REAL)
    assert said(environment, "resume", workdir)["state"] == "finished"
    assert said(environment, "diff", source, target)["equal"]
