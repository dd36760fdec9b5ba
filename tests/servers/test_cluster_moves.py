"""The demo's job moves while it runs from one real cluster to another, its checkpoint from one real
HDFS to another, by the real command line and two of the examples. What comes out is what an unmoved
job would have written, record for record.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stateshift.clusters.kind import open_cluster
from stateshift.clusters.protocol import StopRequest
from stateshift.formats.marks import fence_owner
from stateshift.formats.uid import directory_name
from stateshift.specification.model import ClusterSpec
from stateshift.storage.hdfs.storage import open_hdfs
from stateshift.storage.protocol import Storage
from tests.acceptance.shop import OPERATORS, Shop
from tests.acceptance.support import ROOT, stateshift
from tests.support.checkpoints import Checkpoint, held
from tests.support.moving import killed_at
from tests.support.servers import Servers, group

pytestmark = [pytest.mark.servers, pytest.mark.spark]
SHOWN_ON = "Spark, HDFS"
SECONDS_MAX = 120.0
EXAMPLES = ROOT / "configs" / "examples"
MOVE = EXAMPLES / "cluster-move.json"
OPERATORS_OF = ("counts", "joined")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Four JVMs of HDFS, four of Spark."""
    names = ("hdfs-a", "hdfs-b", "spark-a", "spark-b")
    with group(tmp_path_factory.mktemp("clusters"), *names) as servers:
        yield servers


@dataclass(frozen=True)
class Ground:
    servers: Servers
    folder: Path
    name: str

    @property
    def shop(self) -> Shop:
        return Shop(self.folder, "moved")

    @property
    def environment(self) -> dict[str, str]:
        """What the examples ask for."""
        return {**self.servers.exports(), "DEMO_DIR": str(self.folder), "DEMO_NAME": self.name}

    @property
    def here(self) -> str:
        return f"hdfs://hdfs-a/demo/{self.name}"

    @property
    def there(self) -> str:
        return f"hdfs://hdfs-b/demo/{self.name}"

    def started(self) -> None:
        """The job runs on the old cluster, in the middle of a minute, with orders that are still
        to be paid.
        """
        self.shop.feed(0, 20)
        workdir = self.folder / "runs" / "first"
        self.said("apply", EXAMPLES / "cluster-first.json", "--yes", "--workdir", workdir)
        self.until(
            lambda: committed(open_hdfs(self.here, self.environment)), "the job has not started"
        )
        self.shop.feed(20, 30)

    def said(self, *words: str | Path, code: int = 0, **more: str) -> Any:
        return stateshift(
            *words, "--json", cwd=ROOT, env={**self.environment, **more}, code=code
        ).json

    def at(self, location: str) -> Storage:
        return open_hdfs(location, self.environment)

    def finished(self) -> None:
        """The rest of the input comes, and all of the output."""
        self.shop.feed(30, 40)
        self.shop.finish(40)
        self.until(lambda: self.shop.complete(40), "the results are not complete")
        assert self.shop.recognise() == self.shop.expected(40)

    def killed(self, words: tuple[str, ...], workdir: Path, step: str) -> None:
        killed_at(step, words, workdir, self.environment)

    def until(self, done: Any, otherwise: str) -> None:
        last = time.monotonic() + SECONDS_MAX
        while not done():
            assert time.monotonic() < last, f"{otherwise}\n{self.logs()}"
            time.sleep(0.5)

    def logs(self) -> str:
        """The end of what each driver said."""
        work = sorted(self.servers.root.glob("spark-?/work/*/driver-*/std*"))
        return "\n".join(f"{path}\n{path.read_text(errors='replace')[-3000:]}" for path in work)

    def stopped(self) -> None:
        """Whatever of it still runs, asked as a person would."""
        for location in (self.here, self.there):
            open_hdfs(location, self.environment).write("_stateshift/stop", lambda: iter((b"",)))


def committed(storage: Storage) -> bool:
    """Whether both operators have committed a batch."""
    paths = [info.path.split("/") for info in storage.list()]
    return len({path[0] for path in paths if path[1:2] == ["commits"]}) == len(OPERATORS)


@pytest.fixture
def ground(servers: Servers, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ground]:
    made = Ground(servers, tmp_path, request.node.name.partition("[")[0][-30:])
    yield made
    made.stopped()


@pytest.mark.slow
@pytest.mark.row("IS-3", "IS-6", "IS-15", "IS-16", "IS-19")
def test_a_running_job_goes_to_another_cluster_and_another_hdfs(ground: Ground) -> None:
    ground.started()
    ground.said("plan", MOVE)
    report = ground.said("apply", MOVE, "--yes", "--workdir", ground.folder / "runs" / "move")
    assert report["state"] == "finished"
    assert report["report"]["downtime_seconds"] > 0
    assert committed(open_hdfs(ground.there, ground.environment))
    ground.finished()


@pytest.mark.row("IS-15", "IS-16", "IS-18")
@pytest.mark.slow  # the scenes have one that is killed in the default run
def test_killed_while_it_moves_and_resumed_it_goes_on_where_it_was(ground: Ground) -> None:
    ground.started()
    workdir = ground.folder / "runs" / "move"
    ground.killed(("apply", str(MOVE), "--yes", "--workdir", str(workdir)), workdir, "halt/stop")
    for step in ("copy/", "submit/"):
        ground.killed(("resume", str(workdir)), workdir, step)
    assert ground.said("resume", workdir)["state"] == "finished"
    ground.finished()


@pytest.mark.slow
@pytest.mark.row("IS-18")
def test_taken_back_the_old_job_goes_on_where_it_was(ground: Ground) -> None:
    ground.started()
    workdir = ground.folder / "runs" / "move"
    ground.killed(("apply", str(MOVE), "--yes", "--workdir", str(workdir)), workdir, "submit/")
    assert ground.said("rollback", workdir, "--yes")["state"] == "rolled-back"
    assert list(open_hdfs(ground.there, ground.environment).list()) == []
    ground.finished()


@pytest.mark.slow
@pytest.mark.row("IS-4", "IS-16")
def test_a_workflow_is_divided_between_two_clusters_and_joined_again(ground: Ground) -> None:
    """Workflow 1 becomes 2 and 3; then 3 takes 2 in by rename. It is fed all the time."""
    ground.started()
    runs = ground.folder / "runs"
    divided = ground.said(
        "apply", EXAMPLES / "cluster-split.json", "--yes", "--workdir", runs / "split"
    )
    assert {one["job"]: one["state"] for one in divided["report"]["jobs"]} == dict.fromkeys(
        OPERATORS_OF, "finished"
    )
    ground.shop.feed(30, 35)
    counts, whole = ground.at(f"{ground.there}-counts"), ground.at(f"{ground.here}-whole")
    counts.write("_stateshift/stop", lambda: iter((b"",)))
    reached = {"url": "STATESHIFT_SPARK_A_REST", "ui_url": "STATESHIFT_SPARK_A_UI"}
    options = {key: ground.environment[name] for key, name in reached.items()}
    old = open_cluster(ClusterSpec("old", "spark_standalone", options), str(ground.folder))
    of_counts = StopRequest("counts", f"{ground.there}-counts")
    ground.until(
        lambda: not old.find_source(of_counts).state.alive, "the job of the counts does not stop"
    )
    ground.said("apply", EXAMPLES / "cluster-merge.json", "--yes", "--workdir", runs / "merge")
    assert committed(whole)
    left = {
        path: content
        for path, content in held(counts).items()
        if not path.startswith("_stateshift/")
    }
    assert all(fence_owner(content) for content in left.values()), "it was renamed, not copied"
    ground.shop.feed(35, 40)
    try:
        ground.shop.finish(40)
        ground.until(lambda: ground.shop.complete(40), "the results are not complete")
        assert ground.shop.recognise() == ground.shop.expected(40)
    finally:
        whole.write("_stateshift/stop", lambda: iter((b"",)))


@pytest.mark.slow
@pytest.mark.row("IS-4", "IS-5", "IS-16", "IS-19")
def test_merge_split_and_remote_from_one_spec_and_a_wave_that_fails_is_taken_back(
    ground: Ground,
) -> None:
    """The application of the job `far` ends at once: the others move, it stays where it was."""
    sources = {
        "studio": directory_name("Sum (studio)"),
        "studio-north": directory_name("Sum (north)"),
        "far": "",
        "shop": directory_name("Counts (shop)"),
    }
    for flow, prefix in sources.items():
        Checkpoint().write(ground.at(f"hdfs://hdfs-a/flows/{flow}"), prefix)
    Checkpoint().write(ground.at("hdfs://hdfs-a/flows/shop"), directory_name("Joins (shop)"))
    before = held(ground.at("hdfs://hdfs-a/flows/far"))
    reached = {"FAR_CONNECTION": ground.environment["STATESHIFT_SPARK_B_REST"].partition("://")[2]}
    workdir = ground.folder / "runs" / "all"
    ends_at_once = ground.folder / "ends-at-once.py"
    ends_at_once.write_text("raise SystemExit('not today')\n")
    told = ground.said(
        "apply",
        EXAMPLES / "algorithm-5.json",
        "--yes",
        "--workdir",
        workdir,
        code=7,
        FAR_APPLICATION=str(ends_at_once),
        **reached,
    )
    states = {job["job"]: job["state"] for job in told["report"]["jobs"]}
    assert states == {
        "studio": "finished",
        "counts": "finished",
        "joins": "finished",
        "far": "rolled-back",
    }
    assert "far failed" in told["message"] and "not today" in told["message"]
    assert "before it committed a batch" in told["message"]
    assert held(ground.at("hdfs://hdfs-a/flows/far")) == before
    there = {
        name: _tops(ground.at(f"hdfs://hdfs-b/flows/{name}"))
        for name in ("studio", "shop-counts", "shop-joins")
    }
    assert there == {
        "studio": {sources["studio"], sources["studio-north"]},
        "shop-counts": {sources["shop"]},
        "shop-joins": {directory_name("Joins (shop)")},
    }
    assert _tops(ground.at("hdfs://hdfs-b/flows/far")) == set()
    left = held(ground.at("hdfs://hdfs-a/flows/studio-north"))
    assert left and all(fence_owner(content) for content in left.values()), (
        "it was renamed, not copied"
    )
    assert ground.said("rollback", workdir, "--yes")["state"] == "rolled-back"
    assert _tops(ground.at("hdfs://hdfs-a/flows/studio-north")) == {sources["studio-north"]}


def _tops(storage: Storage) -> set[str]:
    return {file.path.split("/")[0] for file in storage.list()} - {"_stateshift"}
