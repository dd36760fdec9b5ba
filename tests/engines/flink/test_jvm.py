"""The JVM in which the classes of a job hash keys: one for all, and its ends are told."""

from __future__ import annotations

import hashlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from py4j import java_gateway
from py4j.protocol import Py4JNetworkError

from stateshift.engines.flink import jvm
from stateshift.errors import ClusterError, PlanError, SpecError

CLASSES = b"its classes"


class EndedJvm:
    """The gateway to a JVM that has ended."""

    @property
    def jvm(self) -> Any:
        raise Py4JNetworkError("An error occurred while trying to connect to the Java server")


@pytest.fixture(autouse=True)
def no_jvm() -> Iterator[None]:
    jvm.gateway_of.cache_clear()
    yield
    jvm.gateway_of.cache_clear()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A distribution of Flink, beside the jar of a job."""
    (tmp_path / "flink" / "lib").mkdir(parents=True)
    (tmp_path / "flink" / "lib" / "flink-dist.jar").touch()
    (tmp_path / "job.jar").write_bytes(CLASSES)
    return tmp_path / "flink"


def digests(home: Path, content: bytes = CLASSES) -> dict[str, str]:
    return {str(home.parent / "job.jar"): hashlib.sha256(content).hexdigest()}


def test_after_a_jvm_has_ended_the_next_attempt_gets_another(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(jvm, "launch", lambda *given: started.append(given) or EndedJvm())
    for count in (1, 2):
        with pytest.raises(ClusterError, match="JVM that hashes the keys has ended") as ended:
            jvm.hashing(digests(home), str(home))(b"a snapshot")
        assert "resume" in (ended.value.hint or "")
        assert len(started) == count


def test_keys_of_many_steps_are_hashed_in_one_jvm(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    def launch(*given: object) -> str:
        time.sleep(0.05)
        started.append(given)
        return "a gateway"

    monkeypatch.setattr(jvm, "launch", launch)
    monkeypatch.setattr(jvm, "_KeyHasher", lambda gateway, snapshot: gateway)
    with ThreadPoolExecutor(4) as threads:
        hashers = [
            threads.submit(jvm.hashing(digests(home), str(home)), b"%d" % number)
            for number in range(4)
        ]
        assert {each.result() for each in hashers} == {"a gateway"}
    assert len(started) == 1
    (home.parent / "job.jar").write_bytes(b"others")  # another plan, with another jar
    jvm.hashing(digests(home, b"others"), str(home))(b"0")
    assert len(started) == 2


def test_a_jar_of_other_bytes_than_the_plans_is_refused_before_a_jvm_is_started(home: Path) -> None:
    with pytest.raises(PlanError, match="is not the jar that the plan was made with") as refused:
        jvm.hashing(digests(home, b"others"), str(home))
    assert "put that jar back" in (refused.value.hint or "")


def test_jars_and_flink_are_of_this_machine(home: Path) -> None:
    with pytest.raises(SpecError, match=r"s3://bucket/job\.jar is no file of this machine"):
        jvm.digests_of(["s3://bucket/job.jar"])
    with pytest.raises(SpecError, match=r"there is no file /nowhere/job\.jar on this machine"):
        jvm.digests_of(["file:///nowhere/job.jar"])
    with pytest.raises(SpecError, match="s3://bucket/flink is no folder of this machine"):
        jvm.hashing(digests(home), "s3://bucket/flink")
    assert jvm.digests_of([f"file://{home.parent}/job.jar"]) == digests(home)


def test_what_java_says_where_it_does_not_start_is_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Error: no space for the heap' >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(ClusterError, match=r"no JVM could be .*: Error: no space for the heap$"):
        jvm.hashing(digests(home), str(home))(b"a snapshot")


def test_a_key_for_which_the_heap_has_no_room_is_refused_before_it_is_sent() -> None:
    hasher = object.__new__(jvm._KeyHasher)
    ends = np.array([jvm.KEY_BYTES_MAX + 1])
    with pytest.raises(PlanError, match="a key may have more than 67,108,864 bytes"):
        hasher(np.zeros(0, np.uint8), np.array([0]), ends)


def test_classes_that_never_return_are_told_and_their_jvm_is_ended(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    process = SimpleNamespace(kill=lambda: ended.append("killed"))
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a JVM whose code does not return
        launched = (silent.getsockname()[1], None, process)
        monkeypatch.setattr(java_gateway, "launch_gateway", lambda **given: launched)
        monkeypatch.setattr(jvm, "CALL_SECONDS_MAX", 0.3)
        for count in (1, 2):
            with pytest.raises(PlanError, match="did not restore their serializer within") as hung:
                jvm.hashing(digests(home), str(home))(b"a snapshot")
            assert "drop" in (hung.value.hint or "")
            assert ended == ["killed"] * count  # and the next attempt gets another
