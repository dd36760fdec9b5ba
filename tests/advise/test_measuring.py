"""What clusters have, and what jobs need, in the units of `rebalance`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from stateshift.advise.evaluate.inputs import Circumstances, FlinkInputs, RestartCost, SparkInputs
from stateshift.advise.evaluate.loads import VertexLoad
from stateshift.advise.evaluate.samples import Input
from stateshift.advise.evaluate.spark_batches import PlannedBatch, SparkSample
from stateshift.advise.evaluate.verdicts import Verdict, judge, verdict_on
from stateshift.advise.measuring import NO_CORES, Capacity, capacity_of, needs_of, size_on_flink
from stateshift.specification.model import ClusterSpec
from tests.advise.measured_flink import BEGAN, MeasuredFlink
from tests.clusters.faulty_server import StandIn, serving

pytestmark = pytest.mark.row("IF-19")


# ---------------------------------------------------------------------------------- needs


def vertex(id: str, rate: float, busy: float, **more: Any) -> VertexLoad:
    keys: dict[str, Any] = {"parallelism": 4, "parallelism_max": 128, "output_rate": rate}
    keys |= {"inputs": (), **more}
    return VertexLoad(id, id, input_rate=rate, busy=busy, **keys)


def flink(*loads: VertexLoad, restart: RestartCost | None = None) -> Verdict:
    return judge(loads, Circumstances("orders", BEGAN, restart=restart or RestartCost()))


READS = (Input("read", "HASH"),)


def test_a_job_of_flink_needs_what_its_widest_vertex_needs() -> None:
    needs = needs_of([flink(vertex("read", 1000, 0.5), vertex("count", 1000, 0.8, inputs=READS))])
    assert needs.load == pytest.approx(3.2)
    assert (needs.width, needs.rate) == (4, 1000)
    assert needs.capacity_rate == pytest.approx(1250)
    assert needs.keeps_up


def test_a_job_that_falls_behind_needs_more_than_it_has() -> None:
    late = flink(vertex("read", 1000, 1.0, lag=60_000, lag_rate=500))
    needs = needs_of([late])
    assert needs.load == pytest.approx(6.0)
    assert not needs.keeps_up


def test_a_job_that_holds_its_source_back_cannot_keep_up() -> None:
    held = vertex("read", 1000, 0.1, backpressured=0.8)
    needs = needs_of([flink(held, vertex("count", 1000, 1.0, inputs=READS))])
    assert not needs.keeps_up
    assert needs.load == pytest.approx(4.0)


def test_a_skewed_job_needs_what_its_subtasks_need_together() -> None:
    """1.0 and 0.2: a verdict goes by the busiest, and a place for it by their sum."""
    hot = vertex("count", 1000, 1.0, parallelism=2, busy_mean=0.6, inputs=READS)
    verdict = flink(vertex("read", 1000, 0.1), hot)
    assert verdict.word == "limited"
    needs = needs_of([verdict])
    assert needs.load == pytest.approx(1.2)
    assert needs.keeps_up, "no cluster has a faster subtask for that key"


def test_a_vertex_that_could_do_with_fewer_makes_no_job_late() -> None:
    idle = vertex("read", 1000, 0.1)
    assert needs_of([flink(idle, vertex("count", 1000, 0.9, inputs=READS))]).keeps_up


def query(busy: float, cores: int | None = 4) -> Verdict:
    batches = tuple(
        PlannedBatch(number, BEGAN + 10 * number, BEGAN + 10 * (number + busy), 1000)
        for number in range(20)
    )
    now = BEGAN + 200
    return verdict_on(
        SparkInputs(Circumstances("orders", now), (SparkSample(now, batches),), cores)
    )


def test_a_job_of_spark_needs_its_share_of_its_cores() -> None:
    needs = needs_of([query(0.6)])
    assert needs.load == pytest.approx(2.4)
    assert needs.width == 4


def test_queries_of_one_job_add_up_on_the_same_cores() -> None:
    needs = needs_of([query(0.3), query(0.2)])
    assert needs.load == pytest.approx(2.0)
    assert needs.width == 4


def test_what_cannot_be_told_says_why() -> None:
    assert needs_of([query(0.3, None)]).unknown == NO_CORES
    assert needs_of([]).load is None
    trouble = FlinkInputs(Circumstances("orders", BEGAN, trouble="it does not answer"))
    assert needs_of([verdict_on(trouble)]).unknown == "it does not answer"


def test_who_has_measured_a_restart_is_known() -> None:
    loads = (vertex("read", 1000, 0.5),)
    assert not needs_of([flink(*loads)]).is_measured
    measured = needs_of([flink(*loads, restart=RestartCost(7.0, "flink"))])
    assert (measured.is_measured, measured.downtime_seconds) == (True, 7.0)


# ---------------------------------------------------------------------------------- capacity


@dataclass
class Master(StandIn):
    """The page of a standalone master."""

    page: Any = field(default_factory=dict)

    def answer(
        self, method: str, path: str, query: dict[str, list[str]], body: Any
    ) -> tuple[int, Any]:
        return (200, self.page) if path == "/json/" else (404, {})


@contextmanager
def master(page: Any) -> Iterator[ClusterSpec]:
    stand_in = Master(page=page)
    with serving(stand_in):
        options = {"url": stand_in.url, "ui_url": stand_in.url}
        yield ClusterSpec("old", "spark_standalone", options)


def worker(**more: Any) -> dict[str, Any]:
    keys = {"state": "ALIVE", "cores": 8, "coresused": 2, "memory": 1024, "memoryused": 512}
    return {**keys, **more}


def test_a_standalone_spark_has_what_its_workers_have_that_are_alive() -> None:
    with master({"workers": [worker(), worker(), worker(state="DEAD")]}) as cluster:
        assert capacity_of(cluster) == Capacity(16, 4, 2048 << 20, 1024 << 20)


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ({"workers": []}, "no worker is alive"),
        ({"workers": [worker(cores="many")]}, "describes a worker in a way that Spark does not"),
        ({}, "has no 'workers' in its answer"),
    ],
)
def test_a_master_that_does_not_tell_has_no_capacity(page: Any, why: str) -> None:
    with master(page) as cluster:
        told = capacity_of(cluster)
    assert why in told.unknown
    assert told.all == 0


def measured(flink: MeasuredFlink) -> ClusterSpec:
    return ClusterSpec("west", "flink_rest", {"url": flink.url})


def test_a_flink_has_its_slots() -> None:
    flink = MeasuredFlink(slots=(32, 20))
    with serving(flink):
        assert capacity_of(measured(flink)) == Capacity(32, 12)


def manager(**more: Any) -> dict[str, Any]:
    """What Flink says of a TaskManager of which a half is taken, in MiB."""
    kinds = ("taskHeapMemory", "taskOffHeapMemory", "managedMemory")
    every = {**dict.fromkeys(kinds, 256), "networkMemory": 64, "cpuCores": 2.0}
    free = {**dict.fromkeys(kinds, 128), "networkMemory": 32, "cpuCores": 1.0}
    return {"totalResource": every, "freeResource": free, **more}


def test_a_flink_has_the_memory_that_its_task_managers_have_for_tasks() -> None:
    flink = MeasuredFlink(slots=(8, 4))
    flink.odd["/taskmanagers"] = (200, {"taskmanagers": [manager(), manager()]})
    with serving(flink):
        told = capacity_of(measured(flink))
    # Of each kind on each TaskManager, Flink leaves out less than a MiB of what is free.
    assert told == Capacity(8, 4, 1536 << 20, (768 - 6) << 20)
    assert told.memory_of_worker == 192 << 20


def test_the_memory_of_a_free_slot_is_free_where_flink_rounds_it_down() -> None:
    """Its default: 402653174 bytes of heap and 536870920 managed, for four slots here."""
    every = {"taskHeapMemory": 383, "taskOffHeapMemory": 0, "managedMemory": 512}
    free = {"taskHeapMemory": 95, "taskOffHeapMemory": 0, "managedMemory": 128}
    flink = MeasuredFlink(slots=(4, 1))
    told = {"taskmanagers": [{"totalResource": every, "freeResource": free}]}
    flink.odd["/taskmanagers"] = (200, told)
    with serving(flink):
        has = capacity_of(measured(flink))
    assert has.memory is not None and has.memory_of_worker is not None
    assert has.memory_of_worker <= has.memory - has.memory_used


@pytest.mark.parametrize(
    "answer",
    [
        (404, {"errors": ["Not found."]}),
        (200, {"taskmanagers": []}),
        (200, {"taskmanagers": [manager(), manager(freeResource=None)]}),
        (200, {"taskmanagers": [manager(totalResource={"taskHeapMemory": "much"})]}),
        (200, {"taskmanagers": 7}),
        (200, {}),
    ],
)
def test_a_flink_that_does_not_tell_its_memory_has_its_slots(answer: tuple[int, Any]) -> None:
    flink = MeasuredFlink(slots=(8, 4))
    flink.odd["/taskmanagers"] = answer
    with serving(flink):
        assert capacity_of(measured(flink)) == Capacity(8, 4)


@pytest.mark.parametrize(
    ("configured", "slots", "why"),
    [
        ({"kubernetes.cluster-id": "x"}, (32, 20), "it makes slots when they are needed"),
        ({}, (0, 0), "it has no slots"),
    ],
)
def test_a_flink_without_slots_of_its_own_has_no_capacity(
    configured: dict[str, str], slots: tuple[int, int], why: str
) -> None:
    flink = MeasuredFlink(slots=slots, configured=configured)
    with serving(flink):
        assert capacity_of(measured(flink)).unknown.startswith(why)


def test_a_flink_that_makes_slots_tells_those_that_are_taken_and_what_the_spec_is_to_say() -> None:
    flink = MeasuredFlink(slots=(32, 20), configured={"kubernetes.cluster-id": "x"})
    with serving(flink):
        told = capacity_of(measured(flink))
    assert (told.all, told.used) == (0, 12)
    assert told.unknown.endswith('give it a "capacity" in "rebalance" of the spec')


def test_other_clusters_do_not_tell_their_capacity() -> None:
    told = capacity_of(ClusterSpec("yarn", "spark_submit", {"master": "yarn"}))
    assert told.unknown == (
        "a cluster of kind spark_submit does not tell its capacity: "
        'give it a "capacity" in "rebalance" of the spec'
    )


@pytest.mark.parametrize(
    ("page", "size"),
    [
        ({"latest": {"completed": {"state_size": 7}}}, 7),
        ({"latest": {"completed": None, "savepoint": {"state_size": 5}}}, 5),
        ({"latest": {}}, 0),
        ({}, 0),
        ({"latest": {"completed": {"state_size": "large"}}}, 0),
    ],
)
def test_the_size_of_a_state_is_that_of_its_last_checkpoint(page: Any, size: int) -> None:
    flink, id = MeasuredFlink(), "1" * 32
    flink.odd[f"/jobs/{id}/checkpoints"] = (200, page)
    with serving(flink):
        assert size_on_flink(measured(flink), id) == size
