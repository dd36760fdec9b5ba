"""`stateshift advise` on a plain spec whose jobs `apply` has moved: where it looks, and says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.formats.marks import fence_text
from tests.advise.measured_flink import BEGAN, Measured, MeasuredFlink, Part
from tests.advise.spark_ground import QueryGround, batches
from tests.cli.support import SOURCE, Outside
from tests.clusters.faulty_server import serving
from tests.support.checkpoints import put
from tests.support.ground import Clock

ORDERS = Measured(
    "orders",
    [Part("read", 500, 0.1, parallelism=1, lag=0), Part("count", 500, 0.6, inputs=("read",))],
)
TARGET = "hdfs://there:8020/ck/orders"


# ------------------------------------------------------------------------------------------ Flink


@dataclass
class TwoFlinks:
    """Two Flinks, and a spec that moves a job from west to east."""

    folder: Path
    west: MeasuredFlink
    east: MeasuredFlink

    def advised(self, *argv: str, **job: Any) -> Any:
        path = self.folder / "spec.json"
        clusters = {"west": self.west.url, "east": self.east.url}
        plain = {
            "name": "orders",
            "checkpoint_location": "/data/orders",
            "remote_location": "/data/moved",
            "source_cluster": "west",
            "target_cluster": "east",
            **job,
        }
        spec = {
            "version": 1,
            "engine": "flink",
            "clusters": {
                name: {"kind": "flink_rest", "url": url} for name, url in clusters.items()
            },
            "jobs": [plain],
        }
        path.write_text(json.dumps(spec))
        words = ("advise", str(path), "--json", *argv, "--workdirs", str(self.folder))
        done = Outside(clock=self.west.clock).run(*words)
        assert done.code in (0, 130), done.err
        lines = [json.loads(line) for line in done.out.splitlines() if line.startswith("[")]
        return [told for (told,) in lines] if "--watch" in argv else done.document[0]


@pytest.fixture
def flinks(tmp_path: Path) -> Iterator[TwoFlinks]:
    clock = Clock(BEGAN)
    both = [MeasuredFlink(clock=clock), MeasuredFlink(clock=clock)]
    with ExitStack() as stack:
        for flink in both:
            stack.enter_context(serving(flink))
        yield TwoFlinks(tmp_path, *both)


@pytest.mark.parametrize("ended", [None, "FINISHED", "CANCELED"])
@pytest.mark.parametrize("by_id", [False, True])
def test_a_job_that_has_moved_is_looked_at_on_its_target(
    flinks: TwoFlinks, ended: str | None, by_id: bool
) -> None:
    flinks.west.jobs = [] if ended is None else [replace(ORDERS, state=ended)]
    flinks.east.jobs = [replace(ORDERS, id="e" * 32)]
    flinks.east.slots = (8, 3)
    told = flinks.advised(**({"stop": {"job_id": ORDERS.id}} if by_id else {}))
    assert told["verdict"] == "fits"
    where = "it was looked at on east, its target: it runs there, and no more on west, its source"
    assert where in told["reasons"]
    assert told["inputs"]["around"]["slots"]["all"] == 8


def test_a_job_that_the_spec_knows_by_its_id_has_the_same_name_on_its_target(
    flinks: TwoFlinks,
) -> None:
    flinks.west.jobs = [replace(ORDERS, name="Orders, v2", state="FINISHED")]
    flinks.east.jobs = [replace(ORDERS, name="Orders, v2", id="e" * 32)]
    assert flinks.advised(stop={"job_id": ORDERS.id})["verdict"] == "fits"


def test_a_job_that_has_not_moved_is_looked_at_on_its_source(flinks: TwoFlinks) -> None:
    flinks.west.jobs = [replace(ORDERS)]
    flinks.east.jobs = [replace(ORDERS, id="e" * 32, state="FINISHED")]
    told = flinks.advised()
    assert told["verdict"] == "fits"
    assert not any("target" in reason for reason in told["reasons"])
    assert "/jobs/overview" not in flinks.east.asked


def test_a_job_whose_old_cluster_is_gone_is_looked_at_on_its_target(flinks: TwoFlinks) -> None:
    flinks.west.odd["/jobs/overview"] = (503, {"errors": ["Service temporarily unavailable"]})
    flinks.east.jobs = [replace(ORDERS)]
    assert flinks.advised()["verdict"] == "fits"


def test_a_job_on_neither_cluster_makes_no_verdict_and_both_are_named(flinks: TwoFlinks) -> None:
    told = flinks.advised()
    assert told["verdict"] == "unknown"
    assert told["reasons"] == [
        "it runs neither at its source (no job called 'orders' runs there) nor at its target (no "
        "job called 'orders' runs there): name the Flink where it runs, stateshift advise URL, or "
        "start it"
    ]


def test_a_fork_leaves_its_job_where_it_is(flinks: TwoFlinks) -> None:
    flinks.east.jobs = [replace(ORDERS)]
    told = flinks.advised(mode="fork")
    assert told["verdict"] == "unknown"
    assert told["reasons"] == ["no job called 'orders' runs there"]


def test_a_job_that_moves_while_it_is_watched_is_followed(flinks: TwoFlinks) -> None:
    def move() -> None:
        if flinks.west.clock.time > BEGAN + 2400:
            raise KeyboardInterrupt
        if flinks.west.clock.time > BEGAN + 600 and flinks.west.jobs:
            flinks.west.jobs = []
            flinks.east.jobs = [replace(ORDERS, id="e" * 32, runs_for=-600.0)]

    flinks.west.clock.on_sleep = move
    flinks.west.jobs = [replace(ORDERS)]
    told = flinks.advised("--watch", "--sample", "300")
    ids = [each["inputs"]["samples"][-1]["job_id"] for each in told if each["verdict"] == "fits"]
    assert (ids[0], ids[-1]) == (ORDERS.id, "e" * 32)
    assert any("it was looked at on east" in reason for reason in told[-1]["reasons"])


# ------------------------------------------------------------------------------------------ Spark


@pytest.fixture
def ground(tmp_path: Path) -> QueryGround:
    made = QueryGround(tmp_path)
    made.write_batches(batches(20, 30.0, 12.0, 3000))
    return made


def copied(ground: QueryGround) -> None:
    """All that is at the source is at the target, too."""
    source, target = ground.storage(), ground.disk.open(TARGET)
    for file in list(source.list()):
        put(target, file.path, source.read(file.path))


def fenced(ground: QueryGround) -> None:
    for folder in ("offsets", "commits"):
        put(ground.storage(), f"{folder}/20", fence_text("orders-1a2b").encode())


def goes_on(ground: QueryGround) -> None:
    """The query commits at its target."""
    at_source = ground.storage
    ground.storage = lambda: ground.disk.open(TARGET)  # type: ignore[method-assign]
    ground.write_batches(batches(20, 30.0, 12.0, 3000, first=20), read=60_000)
    ground.storage = at_source  # type: ignore[method-assign]


def advised(ground: QueryGround, **job: Any) -> Any:
    done = ground.advise(ground.spec(kafka=None, **job), "--json")
    assert done.code == 0, done.err
    (told,) = done.document
    return told


def test_a_query_whose_source_is_fenced_is_looked_at_in_its_target(ground: QueryGround) -> None:
    copied(ground)
    fenced(ground)
    goes_on(ground)
    told = advised(ground)
    assert told["verdict"] != "unknown", told["reasons"]
    where = f"it was looked at in {TARGET}, its target: run orders-1a2b has moved it away from "
    assert where + f"{SOURCE}, its source" in told["reasons"]
    assert told["inputs"]["around"]["location"] == TARGET


def test_a_query_without_a_source_is_looked_at_in_its_target(ground: QueryGround) -> None:
    goes_on(ground)
    for file in list(ground.storage().list()):
        ground.storage().remove(file.path)
    told = advised(ground)
    assert told["verdict"] != "unknown", told["reasons"]
    assert any(f"there is no checkpoint at {SOURCE}" in reason for reason in told["reasons"])


def test_a_query_that_stands_still_at_its_source_is_looked_at_in_its_target(
    ground: QueryGround,
) -> None:
    ground.write_batches(batches(20, 30.0, 12.0, 3000))
    ground.clock.time += 3 * 3600
    copied(ground)
    told = advised(ground)
    assert told["verdict"] == "unknown"
    assert not any("target" in reason for reason in told["reasons"]), "copies are no later batches"
    later = tuple(
        replace(batch, started=batch.started + 10_800, committed=(batch.committed or 0) + 10_800)
        for batch in batches(20, 30.0, 12.0, 3000, first=20)
    )
    at_source = ground.storage
    ground.storage = lambda: ground.disk.open(TARGET)  # type: ignore[method-assign]
    ground.write_batches(later, read=60_000)
    ground.storage = at_source  # type: ignore[method-assign]
    told = advised(ground)
    assert told["verdict"] != "unknown", told["reasons"]
    assert any("stands still, and its target has later" in reason for reason in told["reasons"])


def test_a_query_that_goes_on_at_its_source_is_looked_at_there(ground: QueryGround) -> None:
    goes_on(ground)
    told = advised(ground)
    assert told["inputs"]["around"]["location"] == SOURCE


def test_a_query_that_is_at_neither_end_makes_no_verdict_and_both_are_named(
    ground: QueryGround,
) -> None:
    fenced(ground)
    told = advised(ground)
    assert told["verdict"] == "unknown"
    assert told["reasons"] == [
        f"run orders-1a2b has moved it away from {SOURCE}, its source, and there is no checkpoint "
        f"at {TARGET}: name the checkpoint that it writes to now: stateshift advise LOCATION"
    ]
