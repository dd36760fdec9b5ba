"""A job is started from its standby on S3 and HDFS, from the standby's location alone: the claim is
one file that is created exclusively there, and whoever fed it finds it.

The job is a command that commits the next batch as Spark does, so that nothing but the storage is
asked.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.formats.marks import fence_owner
from stateshift.storage.hdfs.storage import open_hdfs
from stateshift.storage.opening import open_patiently
from stateshift.storage.protocol import Storage
from tests.look.golden_images import NEWEST, contents, write
from tests.servers.standby import LOST, Following, following
from tests.servers.test_standbys_of_lost_sources import CASE, LAST, batches
from tests.support import s3
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.row("W-22", on="S3, HDFS")]

# What the command that stands for Spark does: it commits the batch behind the newest.
JOB = """
import os
from stateshift.storage.opening import open_patiently
from tests.look.golden_images import write
from tests.servers.test_standbys_of_lost_sources import batches
place = open_patiently(os.environ["STATESHIFT_LOCATION"])
names = [file.path.rpartition("/")[2] for file in place.list("commits")]
next = max(int(name) for name in names if name.isdecimal()) + 1
write(place, batches(next, next))
"""


@pytest.fixture(scope="module", params=["s3-moto", "s3-real"])
def s3_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Servers, str]]:
    which = s3.MOTO if request.param == "s3-moto" else s3.REAL
    with group(tmp_path_factory.mktemp("s3"), request.param) as servers:
        yield servers, which


def spec_of(folder: Path, source: str, target: str, **keys: object) -> Path:
    job = {
        "name": "orders",
        "checkpoint_location": source,
        "remote_location": target,
        "mode": "warm",
        "cutover": "never",
        "target_cluster": "b",
        "submit": {"command": "go"},
        "waive": ["paths-stay"],
        **keys,
    }
    # A job runs where it was started last and not stopped since.
    started = f'{shlex.quote(str(folder))}/started-$(printf %s "$STATESHIFT_LOCATION" | md5sum)'
    run = f"{shlex.quote(sys.executable)} -c {shlex.quote(JOB)}"
    cluster = {
        "kind": "command",
        "submit": f'{run} && touch "{started}"',
        "find": f'if test -e "{started}"; then echo running; else echo absent; fi',
        "stop": f'rm "{started}"',
        "cwd": os.getcwd(),
    }
    spec = folder / "spec.json"
    spec.write_text(
        json.dumps({"version": 1, "engine": "spark", "clusters": {"b": cluster}, "jobs": [job]})
    )
    return spec


def primary(folder: Path) -> Path:
    place = folder / "primary"
    for path, content in batches(0, LAST - 1).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_bytes(content)
    return place


def fails_over(folder: Path, target: str, at_target: Storage, environment: dict[str, str]) -> None:
    place = primary(folder)
    spec = spec_of(folder, str(folder / "primary"), target)
    with following(folder, spec, folder / "none", environment) as fed:
        fed.says(f"can be started from epoch {LAST - 1}")
        place.rename(folder / "gone")
        fed.says(LOST)
        status = json.loads(fed.asked("status", target, "--json").stdout)
        assert (status["role"], status["epoch"], status["generation"]) == ("standby", LAST - 1, 1)
        run = str(folder / "failover")
        done = fed.asked(
            "failover", target, "--primary-is-down", "--yes", "--json", "--workdir", run
        )
        assert done.returncode == 0, done.stderr
        assert fed.process.wait(120) == 4, fed.told.read_text()
        assert "taken over by a failover" in fed.told.read_text()
    (job,) = json.loads(done.stdout)["report"]["jobs"]
    assert job["failover"]["epoch"] == LAST - 1 and job["failover"]["generation"] == 2
    names = {file.path for file in at_target.list()}
    assert {f"commits/{LAST}", "_stateshift/generation-1", "_stateshift/generation-2"} <= names
    assert fed.asked("failover", target, "--json").returncode == 6, "its primary is not there"
    (folder / "gone").rename(place)
    fenced = json.loads(fed.asked("failover", target, "--json").stdout)
    assert fenced["fenced"]
    owners = {fence_owner(path.read_bytes()) for path in place.rglob("*") if path.is_file()}
    assert owners - {None} == {json.loads(done.stdout)["run"]}
    before = {file.path: file.stamp for file in at_target.list()}
    assert fed.asked("resume", str(fed.workdir)).returncode == 4
    assert {file.path: file.stamp for file in at_target.list()} == before
    assert contents(NEWEST[CASE])[f"commits/{LAST}"] == at_target.read(f"commits/{LAST}")


def test_a_standby_on_s3_is_started_from_there_alone(
    s3_server: tuple[Servers, str], tmp_path: Path
) -> None:
    servers, which = s3_server
    with s3.exported(servers, which) as environment:
        place = f"{uuid.uuid4().hex}/standby"
        at_target = s3.at(environment[which], place)
        fails_over(tmp_path, f"s3a://{s3.BUCKET}/{place}", at_target, dict(environment))


@pytest.mark.parametrize("way", ["web", "native"])
def test_a_standby_on_hdfs_is_started_from_there_alone(
    single: Servers, tmp_path: Path, way: str
) -> None:
    conf = single.exports()["HADOOP_CONF_DIR"]
    environment = {"HADOOP_CONF_DIR": conf, "STATESHIFT_HDFS": way, "HDFSCLI_CONFIG": os.devnull}
    location = f"hdfs://hdfs-a/failover-{way}/standby"
    fails_over(tmp_path, location, open_hdfs(location, environment), environment)


# ---- the epoch before the newest, and the way home


def goes_back_and_comes_home(
    folder: Path, place: str, opened: Callable[[str], Storage], environment: dict[str, str]
) -> None:
    """The job goes on from the batch before the newest, at the standby and then at home."""
    home, target = f"{place}/home", f"{place}/standby"
    at_home, at_target = opened(home), opened(target)
    write(at_home, batches(0, LAST - 3))
    spec = spec_of(
        folder, home, target, source_cluster="b", submit={"command": "go"},
        source_submit={"command": "go"},
    )  # fmt: skip
    with following(folder, spec, folder / "none", environment) as fed:
        fed.says(f"can be started from epoch {LAST - 3}")
        write(at_home, batches(LAST - 2, LAST - 2))
        fed.says(f"can be started from epoch {LAST - 2}")
        epoch = ("--epoch", str(LAST - 3), "--primary-is-down")
        over = said(fed, "failover", target, *epoch, folder=folder)
        assert fed.process.wait(120) == 4, fed.told.read_text()
    told = over["report"]["jobs"][0]["failover"]
    assert (told["epoch"], told["generation"]) == (LAST - 3, 2)
    names = {file.path for file in at_target.list()}
    assert {f"_stateshift/aside-2/commits/{LAST - 2}", f"commits/{LAST - 2}"} <= names
    lost = at_target.read(f"_stateshift/aside-2/commits/{LAST - 2}")
    assert lost == at_home.read(f"commits/{LAST - 2}")
    fenced = json.loads(fed.asked("failover", target, "--json").stdout)
    assert fenced["fenced"] and fenced["batches_ahead"] == 1
    before = {file.path: at_home.read(file.path) for file in at_home.list()}

    back = said(fed, "failback", target, folder=folder)
    assert back["state"] == "finished"
    assert at_home.read(f"commits/{LAST - 1}") == contents(NEWEST[CASE])[f"commits/{LAST - 1}"]
    assert at_target.stat(f"commits/{LAST - 1}") is None or fence_owner(
        at_target.read(f"commits/{LAST - 1}")
    )
    verdict = fed.asked("verify", home, "--deep", "--json")
    assert verdict.returncode == 0, verdict.stdout
    (aside,) = {
        file.path.split("/")[1] for file in at_home.list("_stateshift") if "aside" in file.path
    }
    there = {file.path: at_home.read(file.path) for file in at_home.list()}
    for path, content in before.items():
        if fence_owner(content) is None and not path.startswith("_stateshift/"):
            kept = there.get(f"_stateshift/{aside}/{path}", there.get(path))
            assert kept == content, f"{path} of home is gone"


def said(fed: Following, command: str, place: str, *words: str, folder: Path) -> Any:
    run = str(folder / command)
    done = fed.asked(command, place, *words, "--yes", "--json", "--workdir", run)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.row("W-22", "W-23", on="S3")
def test_on_s3_an_earlier_epoch_is_started_and_the_job_comes_home(
    s3_server: tuple[Servers, str], tmp_path: Path
) -> None:
    servers, which = s3_server
    with s3.exported(servers, which) as environment:
        place = f"s3a://{s3.BUCKET}/{uuid.uuid4().hex}"
        goes_back_and_comes_home(tmp_path, place, open_patiently, dict(environment))


@pytest.mark.row("W-22", "W-23", on="HDFS")
@pytest.mark.parametrize("way", ["web", "native"])
def test_on_hdfs_an_earlier_epoch_is_started_and_the_job_comes_home(
    single: Servers, tmp_path: Path, way: str
) -> None:
    conf = single.exports()["HADOOP_CONF_DIR"]
    environment = {"HADOOP_CONF_DIR": conf, "STATESHIFT_HDFS": way, "HDFSCLI_CONFIG": os.devnull}
    goes_back_and_comes_home(
        tmp_path,
        f"hdfs://hdfs-a/back-{way}",
        lambda location: open_hdfs(location, environment),
        environment,
    )
