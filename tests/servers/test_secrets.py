"""No credential is in anything that stateshift says or writes down, whether a run succeeds, fails
or is taken back.

Planted are a delegation token of a real HDFS, the keys of a real S3 server, Livy's password and a
master's token: each is used, and each is looked for in all output and in every file of the workdir,
as it is and as it is sent.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from stateshift.storage.hdfs.storage import open_hdfs
from tests.clusters import fake_livy, fake_standalone
from tests.support import s3
from tests.support.moving import put, spec
from tests.support.servers import Servers, group, hadoop

pytestmark = [pytest.mark.servers, pytest.mark.slow]
PASSWORD, MASTER, WRONG = (
    "planted-livy-Zm9vYmFy/+",
    "planted-master-cXV4/+",
    "planted-wrong-key-cXV4/+",
)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("secrets"), "hdfs-a", "s3-real") as servers:
        yield servers


@dataclass
class Said:
    """What was said by commands, one after the other, and the secrets that it must not hold."""

    folder: Path
    environment: Mapping[str, str]
    secrets: tuple[str, ...]
    told: list[str] = field(default_factory=list)

    def __call__(self, *words: str, code: int, **environment: str) -> str:
        """As a person and as a program hear it."""
        run = subprocess.run(
            [sys.executable, "-m", "stateshift", *words],
            cwd=self.folder,
            text=True,
            capture_output=True,
            timeout=300,
            env={**os.environ, **self.environment, **environment},
            check=False,
        )
        assert run.returncode == code, run.stdout[-2000:] + run.stderr[-2000:]
        self.told.append(run.stdout + run.stderr)
        return self.told[-1]

    def hold_no_secret(self) -> None:
        written = [
            path
            for path in self.folder.rglob("*")
            if path.is_file() and path.parent.name != "secrets"
        ]
        assert written
        every = {"what was said": "\n".join(self.told).encode()} | {
            str(path): path.read_bytes() for path in written
        }
        assert self.told
        found = [
            (place, word)
            for place, content in every.items()
            for word in spelled(self.secrets)
            if word in content
        ]
        assert found == []


def spelled(secrets: tuple[str, ...]) -> Iterator[bytes]:
    """As they are, in a URL, and as basic authentication sends them."""
    for secret in secrets:
        yield from (secret.encode(), quote(secret, safe="").encode())
        yield base64.b64encode(f"etl:{secret}".encode())


@pytest.fixture
def say(servers: Servers, tmp_path: Path) -> Said:
    exports, token = s3.asking(servers, s3.REAL), token_of(servers)
    environment = {**exports, "HDFSCLI_CONFIG": os.devnull, "STATESHIFT_HDFS_TOKEN": token}
    kept = tmp_path / "secrets"
    kept.mkdir()
    (kept / "livy").write_text(PASSWORD + "\n")
    (kept / "master").write_text(MASTER + "\n")
    return Said(
        tmp_path, environment, (token, exports["AWS_SECRET_ACCESS_KEY"], PASSWORD, MASTER, WRONG)
    )


def token_of(servers: Servers) -> str:
    web = servers.exports()["STATESHIFT_HDFS_A_WEB"]
    with urllib.request.urlopen(
        f"{web}/webhdfs/v1/?op=GETDELEGATIONTOKEN&renewer=etl&user.name=etl"
    ) as answer:
        return str(json.loads(answer.read())["Token"]["urlString"])


def move(say: Said, name: str, **cluster: Any) -> str:
    """A spec: from HDFS, as whoever the token is for, to S3, where a cluster is to start the
    job.
    """
    source, target = f"hdfs://hdfs-a/{name}", f"s3a://{s3.BUCKET}/{uuid.uuid4().hex}"
    plainly = {
        key: value for key, value in say.environment.items() if key != "STATESHIFT_HDFS_TOKEN"
    }
    put(open_hdfs(source, plainly), "window-hdfs")
    # Without Kerberos a NameNode passes over tokens: who asks is nobody that it knows.
    hadoop.run(
        Path(say.environment["HADOOP_CONF_DIR"]), "dfs", "-chmod", "-R", "777", "hdfs://hdfs-a/"
    )
    job = {
        "name": "orders",
        "checkpoint_location": source,
        "remote_location": target,
        "waive": ["paths-stay", "target-reach"],
        "target_cluster": "there",
        "submit": {"application": "s3://jobs/orders.py", "seconds_max": 1},
    }
    return spec(say.folder, source, target, clusters={"there": cluster}, jobs=[job])


@pytest.mark.parametrize(
    "by_file", [pytest.param(True, marks=pytest.mark.slow), False], ids=["file", "environment"]
)
def test_livys_password_is_told_to_livy_alone(say: Said, by_file: bool) -> None:
    """The job never commits, so that its log is told, too, in which there is a password of its
    own.
    """
    basic = {"auth": "basic", "user": "etl", "request_seconds": 5, "settle_seconds": 1}
    kept = {"password_file": str(say.folder / "secrets" / "livy")} if by_file else {}
    given = {} if by_file else {"STATESHIFT_LIVY_PASSWORD": PASSWORD}
    with fake_livy.serving() as livy:
        job = move(say, f"livy-{by_file}", kind="livy", url=livy.url, **basic, **kept)
        say("plan", job, "-o", "plan.json", code=0, **given)
        told = say("apply", job, "--yes", "--workdir", "run", "--json", code=7, **given)
        assert "has committed nothing in 1 s; its log ends" in told
        assert "password=***" in told
        assert (
            livy.headers[-1]["Authorization"]
            == "Basic " + base64.b64encode(f"etl:{PASSWORD}".encode()).decode()
        )
        for words in (("status", "run"), ("status", "run", "--json"), ("verify", "run")):
            say(*words, code=0, **given)
        assert (say.folder / "run" / "journal").exists()
        say("rollback", "run", "--yes", code=0, **given)
    say("plan", job, code=7, **given)  # it is gone
    say.secrets += ("hunter22",)
    say.hold_no_secret()


@pytest.mark.slow
def test_a_masters_token_is_told_to_the_master_alone(say: Said) -> None:
    with fake_standalone.serving() as master:
        kept = {"token_file": str(say.folder / "secrets" / "master"), "settle_seconds": 1}
        job = move(
            say, "standalone", kind="spark_standalone", url=master.url, ui_url=master.url, **kept
        )
        say("plan", job, "--json", code=0)
        assert "has committed nothing" in say("apply", job, "--yes", "--workdir", "run", code=7)
        assert any(headers.get("Authorization") == f"Bearer {MASTER}" for headers in master.headers)
        say("rollback", "run", "--yes", "--json", code=0)
    say.hold_no_secret()


@pytest.mark.slow
def test_a_storage_that_refuses_or_is_not_there_quotes_no_credential(say: Said) -> None:
    with fake_livy.serving() as livy:
        job = move(say, "refused", kind="livy", url=livy.url)
        say("plan", job, code=0)
        say("apply", job, "--yes", "--workdir", "wrong", code=6, AWS_SECRET_ACCESS_KEY=WRONG)
        assert "127.0.0.1:1" in say("inspect", "webhdfs://127.0.0.1:1/refused", code=6)
    say.hold_no_secret()
