"""A real Flink writes one state in several formats: `diff` finds them equal, and `verify --deep`
finds them whole.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stateshift.engines.flink.entries.databases import handles_below
from stateshift.formats.flink.keyed_handles import Incremental
from stateshift.formats.flink.metadata import decode_metadata
from stateshift.formats.flink.stream_handles import RelativeFile
from stateshift.formats.rocksdb.table import open_table
from tests.acceptance.support import ROOT, stateshift
from tests.support.flink import Cluster, cluster_of, has_seen, until
from tests.support.servers import group

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.row("W-10")]
NUMBERS = 60
ROCKSDB = {
    "state.backend.type": "rocksdb",
    "state.backend": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "state.backend.incremental": "true",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with group(tmp_path_factory.mktemp("flink"), "flink-a") as servers:
        yield cluster_of(servers, "flink-a")


def held(
    cluster: Cluster, output: Path, backend: dict[str, str], parallelism: int, **more: Any
) -> str:
    """A job that has taken in all numbers and waits."""
    words = [
        "--output",
        str(output),
        "--hold",
        str(NUMBERS),
        "--per-second",
        "200",
        "--max-parallelism",
        "8",
    ]
    for key, value in backend.items():
        words += [f"--flink.{key}", value]
    return cluster.run("jobs.Kinds", *words, parallelism=parallelism, **more)


def equal(one: Path, other: Path) -> Any:
    return stateshift("diff", one, other, "--json", "--show", "3", cwd=ROOT).json


def whole(place: Path) -> None:
    assert stateshift("verify", place, "--deep", "--json", cwd=ROOT).json["restartable"]


def range_deletions(place: Path) -> int:
    """How many of them stand in the tables of a savepoint."""
    count = 0
    for operator in decode_metadata((place / "_metadata").read_bytes()).operators:
        for subtask in operator.subtasks or ():
            for handle in handles_below(subtask.managed_keyed, Incremental):
                for name, stream in (*handle.shared, *handle.private):
                    if name.endswith(".sst") and isinstance(stream, RelativeFile):
                        content = (place / stream.path).read_bytes()
                        table = open_table(
                            lambda at, size, content=content: content[at : at + size], len(content)
                        )
                        count += len(table.deletions)
    return count


def kept(place: Path, name: str) -> None:
    """A copy where STATESHIFT_KEEP_IMAGES says so, to look at."""
    folder = os.environ.get("STATESHIFT_KEEP_IMAGES")
    if folder:
        shutil.copytree(place, Path(folder) / name, dirs_exist_ok=True)


@pytest.mark.parametrize(
    "backend",
    [ROCKSDB, {"state.backend.type": "hashmap", "state.backend": "hashmap"}],
    ids=["rocksdb", "hashmap"],
)
def test_canonical_and_native_savepoints_of_one_job_are_equal(
    cluster: Cluster, tmp_path: Path, backend: dict[str, str]
) -> None:
    """Of hashmap some serializers are the job's own: those operators are not compared, and not
    different.
    """
    job = held(cluster, tmp_path / "out", {**backend}, 2)
    until(lambda: has_seen(tmp_path / "out", NUMBERS))
    canonical = cluster.saved(job, tmp_path / "canonical")
    native = cluster.stopped(job, tmp_path / "native", "NATIVE")
    kept(canonical, f"canonical-{backend['state.backend']}")
    kept(native, f"native-{backend['state.backend']}")
    whole(canonical)
    whole(native)
    if backend is ROCKSDB:
        document = equal(canonical, native)
        assert sum(operator["same"] for operator in document["operators"]) > 100
        return
    found = stateshift("diff", canonical, native, "--json", cwd=ROOT, code=4).json
    assert found["equal"] is None and "serializers" in found["reason"]
    assert not any(o["added"] or o["removed"] or o["changed"] for o in found["operators"])


def test_native_state_of_a_rescaled_job_is_equal_to_its_canonical_savepoint(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A subtask of fewer key groups deletes those of others by ranges; one of more takes
    databases together.
    """
    job = held(cluster, tmp_path / "out", ROCKSDB, 2)
    until(lambda: has_seen(tmp_path / "out", NUMBERS))
    before = cluster.stopped(job, tmp_path / "before", "NATIVE")
    deletions = 0
    for parallelism in (4, 3, 1):
        job = held(cluster, tmp_path / f"out-{parallelism}", ROCKSDB, parallelism, savepoint=before)
        canonical = cluster.saved(job, tmp_path / f"canonical-{parallelism}")
        native = cluster.stopped(job, tmp_path / f"native-{parallelism}", "NATIVE")
        kept(native, f"native-{parallelism}")
        kept(canonical, f"canonical-{parallelism}")
        whole(native)
        equal(canonical, native)
        deletions += range_deletions(native)
        before = native
    print("range deletions:", deletions)
