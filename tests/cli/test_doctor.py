"""Ten broken set-ups, each named right; nothing stays behind."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from stateshift.api import doctor, profiles
from stateshift.api.doctor import (
    CONTENT,
    Subjects,
    examine,
    examine_packages,
    examine_storage,
    scratch_name,
)
from stateshift.api.environment import Requirement
from stateshift.clusters.protocol import Room as RoomOfCluster
from stateshift.clusters.protocol import Slots
from stateshift.errors import ClusterError, StorageError, TransientStorageError
from stateshift.migration import real_adapters
from stateshift.specification import ClusterSpec
from stateshift.storage.local.storage import LocalStorage
from stateshift.survey import FileInfo, Room
from tests.cli.support import SOURCE, TARGET, Outside, said, with_checkpoint
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import Around

pytestmark = pytest.mark.row("W-30")

Found = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outside:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("STATESHIFT_PROFILE", raising=False)
    java(tmp_path / "jdk", monkeypatch, "17.0.12")
    outside = with_checkpoint()
    outside.disk.now = outside.clock.now
    return outside


def java(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    monkeypatch.setenv("JAVA_HOME", str(folder))


def spec(kind: str = "flink_rest", **job: Any) -> str:
    moved = {
        "name": "orders",
        "checkpoint_location": SOURCE,
        "remote_location": TARGET,
        "target_cluster": "b",
        "submit": {},
        **job,
    }
    clusters = {"b": {"kind": kind, "url": "http://b:8081"}}
    Path("spec.json").write_text(
        json.dumps({"version": 1, "engine": "spark", "clusters": clusters, "jobs": [moved]})
    )
    return "spec.json"


def found(outside: Outside, *arguments: str, code: int = 4) -> Found:
    """What the doctor says, by what it is about; nothing is left behind."""
    before = outside.disk.snapshot()
    told = outside.run("doctor", *arguments, "--json")
    assert outside.disk.snapshot() == before
    assert told.code == code, told.out + told.err
    checks = told.document
    for check in checks:
        assert check["state"] == "ok" or check["hint"], check
    return {(check["check"], check["subject"]): check for check in checks}


def failures(checks: Found) -> list[tuple[str, str]]:
    return [about for about, check in checks.items() if check["state"] == "fail"]


def test_a_set_up_that_is_whole_has_no_failure(outside: Outside) -> None:
    checks = found(outside, spec(), code=0)
    for right in ("list", "read", "create", "delete", "clock"):
        assert checks[right, SOURCE]["state"] == "ok"
    assert checks["create", TARGET]["fact"].startswith("not tried, as nothing is there yet")
    assert checks["cluster", "b (flink_rest)"]["fact"].startswith("4.3.0, ")
    text = outside.run("doctor", "spec.json").out
    assert f"ok    create    {SOURCE}: " in text and "fail" not in text


def test_a_source_that_is_not_there_fails_and_a_target_does_not(outside: Outside) -> None:
    nowhere = f"{SOURCE}-elsewhere"
    checks = found(outside, spec(checkpoint_location=nowhere))
    assert failures(checks) == [("list", nowhere)]
    assert checks["list", nowhere]["fact"] == "nothing is there"


def test_no_java_and_a_wrong_one(
    outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path / "old", monkeypatch, "1.8.0_392")
    checks = found(outside, spec("spark_submit"))
    assert failures(checks) == [("java", "Java")]
    assert "does not run on Java 1.8.0_392" in checks["java", "Java"]["fact"]
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    checks = found(outside, spec("spark_submit"))
    assert failures(checks) == [("java", "Java")]
    assert "no Java" in checks["java", "Java"]["fact"]
    assert found(outside, spec(), code=0)["java", "Java"]["state"] == "warn"


def test_no_spark_submit_where_a_cluster_needs_one(
    outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stateshift.clusters.spark_submit.cluster.installed_pyspark", lambda: None)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    real = replace(outside.adapters, open_cluster=real_adapters().open_cluster)
    cluster = ClusterSpec("b", "spark_submit", {"master": "local[1]"})
    subjects = Subjects(clusters={"b": cluster})
    checks = list(examine(subjects, str(tmp_path), real, lambda subject: None))
    (check,) = [each for each in checks if each.subject == "b (spark_submit)"]
    assert check.state == "fail"
    assert "no spark-submit" in check.fact and "stateshift[spark]" in str(check.hint)


def test_an_extra_that_is_missing_or_too_old() -> None:
    required = [
        Requirement("fsspec", None, "2024.6"),
        Requirement("s3fs", "s3", "2024.12"),
        Requirement("gcsfs", "gcs", "2024.10"),
    ]
    versions = {"fsspec": "2024.5.1", "stateshift": "1"}
    checks = {each.subject: each for each in examine_packages(required, {"s3"}, versions.get)}
    assert (checks["s3fs"].state, checks["s3fs"].hint) == (
        "fail",
        "pip install 'stateshift[s3]'",
    )
    assert checks["fsspec"].fact == "2024.5.1 is installed, and fsspec>=2024.6 is needed"
    assert "gcsfs" not in checks
    versions |= {"s3fs": "2024.2", "fsspec": "2025.1"}
    checks = {each.subject: each for each in examine_packages(required, set(), versions.get)}
    assert [name for name, check in checks.items() if check.state != "ok"] == ["s3fs"]


def test_a_storage_that_is_read_only(outside: Outside) -> None:
    outside.disk.denied.add(SOURCE)
    checks = found(outside, spec())
    assert failures(checks) == [("create", SOURCE)]
    assert checks["list", SOURCE]["state"] == checks["read", SOURCE]["state"] == "ok"
    fork = found(outside, spec(mode="fork"), code=0)  # which never writes at its source
    assert ("create", SOURCE) not in fork


def test_a_target_whose_directory_cannot_be_made(outside: Outside) -> None:
    outside.disk.denied.add("hdfs://there:8020/ck")
    assert failures(found(outside, spec())) == [("create", TARGET)]


class Unlisted(Around):
    def list(self, under: str = "") -> Iterator[Any]:
        raise StorageError("listing is forbidden (403)", hint="let this user list")
        yield


def test_a_storage_that_may_not_be_listed(outside: Outside) -> None:
    outside.wrap = lambda storage: Unlisted(storage) if storage.location == SOURCE else storage
    checks = found(outside, spec())
    assert failures(checks) == [("list", SOURCE)]
    assert checks["list", SOURCE]["hint"] == "let this user list"


class Undeleting(Around):
    def remove(self, path: str) -> None:
        raise StorageError("deleting is forbidden (403)")


def test_a_storage_that_may_not_be_deleted_from_names_what_is_left(outside: Outside) -> None:
    outside.wrap = lambda storage: Undeleting(storage) if storage.location == SOURCE else storage
    told = outside.run("doctor", spec(), "--json")
    assert told.code == 4
    (left,) = (path for path in outside.disk.snapshot(SOURCE) if "doctor" in path)
    (failed,) = [check for check in told.document if check["state"] == "fail"]
    assert (failed["check"], failed["subject"]) == ("delete", SOURCE)
    assert f"remove {left}" in failed["hint"]
    assert left in outside.disk.snapshot(SOURCE)


def test_a_storage_whose_create_is_not_exclusive(outside: Outside) -> None:
    class Overwriting(Around):
        def create(self, path: str, content: bytes) -> None:
            put(self.inner, path, content)

    outside.wrap = lambda storage: Overwriting(storage) if storage.location == SOURCE else storage
    assert failures(found(outside, spec())) == [("create", SOURCE)]


def test_a_full_disk(outside: Outside) -> None:
    class Full(Around):
        def room(self) -> Room:
            return Room(bytes_free=1 << 20, files_free=100)

        def create(self, path: str, content: bytes) -> None:
            raise StorageError("No space left on device", hint="make room")

    outside.wrap = lambda storage: Full(storage) if storage.location == SOURCE else storage
    assert failures(found(outside, spec())) == [("space", SOURCE), ("create", SOURCE)]


def test_a_wrong_address_of_a_cluster_and_one_without_slots(outside: Outside) -> None:
    class Away(Around):
        def version(self) -> str | None:
            raise ClusterError("b gives no answer: connection refused", hint="is the url right?")

    class Busy(Around):
        def slots(self) -> Slots:
            return Slots(4, 0)

    outside.wrap_cluster = Away
    checks = found(outside, spec())
    assert failures(checks) == [("cluster", "b (flink_rest)")]
    assert checks["cluster", "b (flink_rest)"]["hint"] == "is the url right?"
    outside.wrap_cluster = Busy
    checks = found(outside, spec(), code=0)
    assert checks["slots", "b (flink_rest)"]["fact"] == "0 of 4 slots are free"
    assert checks["slots", "b (flink_rest)"]["state"] == "warn"


def test_the_room_of_a_cluster_of_many_machines(outside: Outside) -> None:
    class Large(Around):
        def room(self) -> RoomOfCluster:
            return RoomOfCluster(48 << 10, 12, 20 << 10, 5.5)

    class Full(Around):
        def room(self) -> RoomOfCluster:
            return RoomOfCluster(48 << 10, 12, 20 << 10, 0)

    class Unseen(Around):
        def room(self) -> RoomOfCluster:
            raise ClusterError("the nodes of b are not known", hint="bind it to the ClusterRole")

    told = []
    for wrap in (Large, Full, Unseen):
        outside.wrap_cluster = wrap
        check = found(outside, spec(), code=0)["room", "b (flink_rest)"]
        told.append((check["state"], check["fact"], check["hint"]))
    waits = "a job that is started there waits for room"
    assert told == [
        ("ok", "5.5 of 12 cores and 20.0 of 48.0 GiB of memory are free", None),
        ("warn", "0 of 12 cores and 20.0 of 48.0 GiB of memory are free", waits),
        ("warn", "the nodes of b are not known", "bind it to the ClusterRole"),
    ]


def test_brokers_that_are_away(outside: Outside) -> None:
    def ask(kafka: Any, topics: Any) -> Any:
        if kafka.bootstrap_servers == "old:9092":
            raise StorageError("the brokers old:9092 give no answer", hint="are they up?")
        return {}

    outside.ask_topics = ask
    kafka = {"bootstrap_servers": "new:9092", "source_bootstrap_servers": "old:9092"}
    checks = found(outside, spec(kafka=kafka))
    assert failures(checks) == [("brokers", "old:9092")]
    assert checks["brokers", "new:9092"]["state"] == "ok"


@pytest.mark.parametrize(("ahead", "state", "code"), [(120, "warn", 0), (-4000, "fail", 4)])
def test_a_clock_that_differs(outside: Outside, ahead: int, state: str, code: int) -> None:
    outside.disk.now = lambda: outside.clock.now() + ahead
    checks = found(outside, spec(), code=code)
    assert checks["clock", SOURCE]["state"] == state
    assert ("ahead of" if ahead > 0 else "behind") in checks["clock", SOURCE]["fact"]


def test_a_folder_of_workdirs_that_cannot_be_written(outside: Outside, tmp_path: Path) -> None:
    here = f"file://{tmp_path}/.stateshift"
    outside.disk.denied.add(f"file://{tmp_path}")
    assert failures(found(outside, spec())) == [("create", here)]
    assert found(outside, spec(), "--workdirs", "/elsewhere", code=0)


def test_one_that_was_killed_leaves_a_name_that_says_so_and_the_next_removes_it(
    outside: Outside,
) -> None:
    left = scratch_name("here", "17-0123abcd")
    assert left == "_stateshift-doctor-here-17-0123abcd-may-be-deleted"
    storage = outside.disk.open(SOURCE)
    storage.create(left, CONTENT + b"17-0123abcd")
    assert outside.run("inspect", SOURCE, "--json").document["epoch"] == 2
    young = found(outside, spec(), code=0)  # which may be at work: it is named, and stays
    assert young["create", SOURCE]["state"] == "ok"
    assert left in outside.run("doctor", spec()).out
    outside.clock.time += 600
    assert outside.run("doctor", spec(), "--json").code == 0
    assert left not in outside.disk.snapshot(SOURCE)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (scratch_name("here", "17-0123abcd"), b"mine"),
        (scratch_name("elsewhere", "17-0123abcd"), CONTENT),
        ("_stateshift-doctor-notes", CONTENT),
    ],
)
def test_a_file_that_is_not_this_hosts_doctors_is_named_and_stays(
    outside: Outside, name: str, content: bytes
) -> None:
    outside.disk.open(SOURCE).create(name, content)
    outside.clock.time += 600
    told = outside.run("doctor", spec())
    assert told.code == 0 and f"{name} is there, of another doctor" in told.out
    assert outside.disk.snapshot(SOURCE)[name] == content


def test_two_doctors_at_once_do_not_see_each_other(outside: Outside) -> None:
    class Crowded(Around):
        """A second doctor begins and ends between any two calls of the first."""

        def create(self, path: str, content: bytes) -> None:
            self.inner.create(path, content)
            assert all(
                check.state == "ok" or "another doctor" in check.fact
                for check in examine_storage(SOURCE, True, outside.adapters, str)
                if check.check != "clock"
            )

    wraps = iter([Crowded])
    outside.wrap = lambda storage: (
        next(wraps, lambda inner: inner)(storage) if storage.location == SOURCE else storage
    )
    assert not failures(found(outside, spec(), code=0))


@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("happened", [True, False])
def test_a_create_that_is_tried_again_is_no_second_run(
    outside: Outside, failing: int, happened: bool
) -> None:
    class Shaky(Around):
        creates = 0

        def create(self, path: str, content: bytes) -> None:
            self.creates += 1
            if happened or self.creates != failing:
                self.inner.create(path, content)
            if self.creates == failing:
                raise TransientStorageError("503 slow down")

    outside.wrap = lambda storage: Shaky(storage) if storage.location == SOURCE else storage
    assert not failures(found(outside, spec(), code=0))


def test_a_place_without_an_answer_is_not_waited_for_and_said_before(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()

    class Dead(Around):
        def stat(self, path: str) -> Any:
            ends.wait(60)

    monkeypatch.setattr(doctor, "ANSWER_SECONDS", 0.05)
    outside.wrap = lambda storage: Dead(storage) if storage.location == SOURCE else storage
    told = outside.run("doctor", spec())
    ends.set()
    assert told.code == 4 and f"{SOURCE}: gives no answer within 0.05 s" in told.out
    assert f"trying: list {SOURCE}" in told.err and "trying: cluster b (flink_rest)" in told.err


def test_no_more_is_listed_than_is_looked_at(outside: Outside) -> None:
    listed: list[str] = []

    class Large(Around):
        def list(self, under: str = "") -> Iterator[Any]:
            for number in range(100_000):
                listed.append(str(number))
                yield FileInfo("metadata", 1)

    outside.wrap = lambda storage: Large(storage) if storage.location == SOURCE else storage
    assert not failures(found(outside, spec(), code=0))
    assert len(listed) <= 200


@pytest.mark.parametrize("status", [401, 403, 404, 200])
def test_a_flink_that_answers_otherwise_is_not_fine(
    outside: Outside, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    asked: list[Any] = []

    def request(method: str, url: str, **query: Any) -> requests.Response:
        asked.append(query["timeout"])
        answer = requests.Response()
        answer.status_code, answer._content = status, b"{}"
        return answer

    monkeypatch.setattr(requests, "request", request)
    adapters = replace(outside.adapters, open_cluster=real_adapters().open_cluster)
    told = said("doctor", spec(), "--json", adapters=adapters)
    (failed,) = [check for check in told.document if check["state"] == "fail"]
    assert (failed["check"], failed["subject"]) == ("cluster", "b (flink_rest)")
    assert told.code == 4 and max(seconds for _, seconds in asked) <= 10


@pytest.mark.parametrize(
    "hint",
    [
        "is it up? Then: stateshift resume WORKDIR",
        "is it up; a run goes on with: stateshift resume WORKDIR",
        "is it up, then `stateshift resume WORKDIR`",
    ],
)
def test_no_hint_goes_on_with_a_run(outside: Outside, hint: str) -> None:
    class Away(Around):
        def alive(self) -> Any:
            raise ClusterError("no answer", hint=hint)

    outside.wrap_cluster = Away
    failed = found(outside, spec())["cluster", "b (flink_rest)"]
    assert failed["hint"].rstrip("?") == "is it up"
    told = outside.run("init", "http://here:8081")
    assert told.code == 7 and "resume" not in told.err and "is it up" in told.err


def test_brokers_with_other_properties_are_other_brokers(outside: Outside) -> None:
    asked: list[Any] = []
    outside.ask_topics = lambda kafka, topics: asked.append(kafka.properties) or {}  # type: ignore[func-returns-value]
    kafka = {
        "bootstrap_servers": "a:9092",
        "properties": "/new.properties",
        "source_bootstrap_servers": "a:9092",
        "source_properties": "/old.properties",
    }
    found(outside, spec(kafka=kafka), code=0)
    assert asked == ["file:///new.properties", "file:///old.properties"]


def test_an_interruption_leaves_nothing(outside: Outside) -> None:
    class Interrupting(Around):
        def read(self, path: str, size_max: int | None = None) -> bytes:
            raise KeyboardInterrupt

    before = outside.disk.snapshot()
    outside.wrap = lambda storage: Interrupting(storage) if storage.location == SOURCE else storage
    assert outside.run("doctor", spec()).code == 130
    assert outside.disk.snapshot() == before


def test_a_profile_is_examined_and_real_places_are(
    outside: Outside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Checkpoint().write(LocalStorage(f"file://{tmp_path}/ck"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    (tmp_path / profiles.NAME).write_text(
        f'[profile.x.storages]\nck = "{tmp_path}/ck"\nnone = "{tmp_path}/not/there"\n'
        f'[profile.x.clusters.f]\nkind = "flink_rest"\nurl = "http://127.0.0.1:{port}"\n'
        "request_seconds = 2\noutage_seconds = 0\n"
    )
    before = {path: path.stat().st_mtime for path in tmp_path.rglob("*") if path.is_file()}
    began = time.monotonic()
    told = said("doctor", "--profile", "x", "--json", adapters=replace(real_adapters()))
    assert time.monotonic() - began < 60
    states = {(check["check"], check["subject"]): check["state"] for check in told.document}
    assert states["delete", f"file://{tmp_path}/ck"] == "ok"
    assert states["create", f"file://{tmp_path}/not/there"] == "ok"
    assert states["cluster", "f (flink_rest)"] == "fail" and told.code == 4
    after = {path: path.stat().st_mtime for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before and not os.path.exists(tmp_path / "not")
    assert not os.path.exists(tmp_path / ".stateshift")


def test_a_spec_whose_name_is_misspelled_is_no_empty_place(outside: Outside) -> None:
    told = outside.run("doctor", "spce.yaml")
    assert told.code == 2 and "spce.yaml: cannot be read: No such file" in told.err
