"""HDFS-backed state that processes distribute anew, some reading and others writing: the bytes and
the journal of one process, whichever is killed; and nothing is left between them.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift import api, machine
from stateshift.errors import Interrupted
from tests.engines.spark.golden import FOLDER
from tests.fleet.test_processes import (
    Killing,
    adapters,
    files_in,
    sharing_parts,
    spec,
    steps_of,
    waiving_paths,
)

TO_HDFS = {"kind": "convert", "provider": "hdfs-backed"}
IMAGES = {"window-hdfs": [], "session-hdfs": [], "window-rocksdb": [TO_HDFS]}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes share the work, also where there is one core."""
    monkeypatch.setattr(machine, "cores", lambda: 2)


@pytest.fixture(params=IMAGES)
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What distributes a checkpoint of Spark's over one shard more."""
    place = tmp_path / "orders"
    shutil.copytree(FOLDER / "spark-4.3.0" / request.param / "checkpoint", place)
    shards = len([found for found in place.glob("state/0/*") if found.name.isdigit()])
    assert shards > 1
    changes = [*IMAGES[request.param], {"kind": "repartition", "partitions": shards + 1}]
    asked = waiving_paths(spec(place, tmp_path / "target"))
    (job,) = asked["jobs"]
    return {**asked, "jobs": [{**job, "transform": changes}]}


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go, of this process and of those that it starts."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture
def alone(asked: dict[str, Any], tmp_path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """What one process leaves, and writes down."""
    api.apply(asked, workdir=tmp_path / "alone", adapters=sharing_parts(None))
    left = files_in(tmp_path / "target"), steps_of(tmp_path / "alone")
    (tmp_path / "target").rename(tmp_path / "first")
    return left


def asked_for(carrier: Killing, ask: str) -> int:
    return sum(f"/{ask}/" in label for label in carrier.carried)


@pytest.mark.long
@pytest.mark.sample(3)
@pytest.mark.parametrize("kill_at", [(), (2, 4), (3, 6, 8), (5, 7)])
def test_the_bytes_and_the_journal_are_those_of_one_process_whichever_is_killed(
    kill_at: tuple[int, ...], asked, alone, scratch: Path, tmp_path: Path
) -> None:
    carrier = Killing(threading.Event(), frozenset(kill_at))
    api.apply(asked, workdir=tmp_path / "run", adapters=sharing_parts(carrier))
    assert asked_for(carrier, "deal") >= 2
    assert asked_for(carrier, "gather") >= 2
    assert bool(carrier.killed) == bool(kill_at)
    assert files_in(tmp_path / "target") == alone[0]
    for name, (state, count, size, evidence) in steps_of(tmp_path / "run").items():
        once = None if evidence is None else replace(evidence, repeated=False)
        assert (state, count, size, once) == alone[1][name]
    assert not list(scratch.iterdir())


@pytest.mark.long
@pytest.mark.sample(1)
@pytest.mark.parametrize("stop_at", [2, 5])
def test_who_asks_to_stop_is_heeded_and_one_process_goes_on(
    stop_at: int, asked, alone, scratch: Path, tmp_path: Path
) -> None:
    stop = threading.Event()
    carrier = Killing(stop, stop_at=stop_at)
    stopped = replace(sharing_parts(carrier), stop=stop)
    with pytest.raises(Interrupted):
        api.apply(asked, workdir=tmp_path / "run", adapters=stopped)
    assert not list(scratch.iterdir())
    api.resume(tmp_path / "run", adapters=adapters(None))
    assert files_in(tmp_path / "target") == alone[0]
