"""Functions change over a real HDFS and a real S3: workers and a controller that know each other by
the group's folder alone. Of several that decide, seal or propose at once, one does.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stateshift import live
from stateshift.errors import AlreadyThere
from stateshift.live.acts import change
from stateshift.live.folder import Folder, Seal
from stateshift.live.protocol.chains import Decision, Link, NewChain, ProposedChange
from stateshift.storage.opening import open_patiently
from tests.live.cli.live_group import FUNCTIONS, Played
from tests.support import s3
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.slow]

AT_ONCE = 4


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("hdfs"), "hdfs-a") as servers:
        yield servers


@pytest.fixture(scope="module")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("s3"), "s3-real") as servers:
        yield servers


@pytest.fixture(params=["hdfs", "s3"])
def location(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = uuid.uuid4().hex
    if request.param == "hdfs":
        servers: Servers = request.getfixturevalue("hdfs")
        monkeypatch.setenv("HADOOP_CONF_DIR", servers.exports()["HADOOP_CONF_DIR"])
        monkeypatch.setenv("HDFSCLI_CONFIG", os.devnull)
        yield f"hdfs://hdfs-a/live/{name}"
        return
    with s3.exported(request.getfixturevalue("object_store"), s3.REAL) as environment:
        for key, value in environment.items():
            monkeypatch.setenv(key, value)
        yield f"s3a://{s3.BUCKET}/live/{name}"


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_function_is_replaced_and_taken_back(location: str, functions: None) -> None:
    played = Played(location)
    assert played.run_batch() == [1] * 8
    with played.running():
        done = change(location, [live.Edit("score", "replace", "rules:two")], live.Manner())
    assert done.carried is not None and done.carried.state == "finished"
    assert played.run_batch() == [2] * 8
    sealed = played.batch
    with played.running():
        change(location, [live.Edit("score", "revert")], live.Manner())
    assert played.run_batch() == [1] * 8
    # A batch that is run again by workers that begin anew is what it was.
    played.start_again()
    played.batch = sealed - 1
    assert played.run_batch() == [2] * 8


def test_of_several_that_seal_decide_and_propose_at_once_one_does(location: str) -> None:
    folder = Folder(open_patiently(location))
    name = folder.ensure()
    folders = [Folder(open_patiently(location)) for _ in range(AT_ONCE)]

    def seal(number: int) -> Seal:
        return folders[number].seal("q", 7, Seal(number, float(number)))

    def decide(number: int) -> Decision:
        return folders[number].decide(1, Decision("applied", float(number), str(number)))

    def propose(number: int) -> bool:
        new = NewChain((Link("first:0", str(number)),))
        try:
            folders[number].propose(ProposedChange(name, 1, "x", {"c": new}, 0.0, 60.0), None)
        except AlreadyThere:
            return False
        return True

    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert sum(pool.map(propose, range(AT_ONCE))) == 1
        assert len(set(pool.map(seal, range(AT_ONCE)))) == 1
        assert len(set(pool.map(decide, range(AT_ONCE)))) == 1


def test_batches_and_states_that_nobody_needs_are_removed(location: str) -> None:
    folder = Folder(open_patiently(location))
    folder.ensure()
    for batch in range(6):
        folder.seal("a query", batch, Seal(0, 1.0))
    folder.forget_before("a query", 4)
    assert folder.batches() == {"a query": (4, 5)}
    assert folder.sealed("a query", 3) is None
