"""What was written to a vertex and not read by it waits, and counts as arriving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from stateshift.advise.evaluate.inputs import Circumstances, FlinkInputs
from stateshift.advise.evaluate.loads import VertexLoad, loads_of
from stateshift.advise.evaluate.samples import Input, JobSample, SubtaskSample, VertexSample
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.verdicts import Verdict, verdict_on

pytestmark = pytest.mark.row("IF-19", "W-11", on="Flink")
EAGER = Settings(stabilization_interval=0.0)


@dataclass
class Vertex:
    """A vertex: what it reads and writes a second, and for how much of the time it is not idle.
    `late` is how old its counters are.
    """

    id: str
    reads: float
    writes: float = 0.0
    busy: float = 0.1
    inputs: Sequence[tuple[str, str]] = ()
    parallelism: int = 1
    late: float = 0.0
    more: dict[str, Any] = field(default_factory=dict)

    def sample(self, at: float) -> VertexSample:
        seconds = at - self.late
        ms = 1000 * seconds
        reads = self.reads * seconds
        one = SubtaskSample(
            reads / self.parallelism, ms * self.busy, ms * (1 - self.busy), 0.0, attempt=0
        )
        made = VertexSample(
            id=self.id,
            name=self.id,
            parallelism=self.parallelism,
            parallelism_max=128,
            inputs=tuple(Input(of, how) for of, how in self.inputs),
            records_in=reads,
            records_out=self.writes * seconds,
            subtasks=(one,) * self.parallelism,
            lag=None if self.inputs else 1.0,
            counted_at=seconds,
        )
        return replace(made, **self.more)


def looks(*vertices: Vertex, at: Sequence[float] = (100.0, 160.0)) -> tuple[JobSample, ...]:
    return tuple(
        JobSample(time, "job", 0.0, tuple(vertex.sample(time) for vertex in vertices))
        for time in at
    )


def loads(*vertices: Vertex) -> dict[str, VertexLoad]:
    return {load.id: load for load in loads_of(looks(*vertices), EAGER)}


def judged(*vertices: Vertex) -> Verdict:
    return verdict_on(FlinkInputs(Circumstances("job", 160.0, EAGER), looks(*vertices)))


HASH, REBALANCE, BROADCAST = "HASH", "REBALANCE", "BROADCAST"
SOURCE = Vertex("s", 150, 150)


def test_a_queue_that_grows_between_two_vertices_is_a_lag() -> None:
    """150 % of what it can take; nothing waits before the source, and nothing holds it back."""
    verdict = judged(SOURCE, Vertex("c", 100, busy=1.0, inputs=[("s", HASH)]))
    assert verdict.word == "scale"
    assert verdict.wanted == 4  # 150 * (1 / 0.7 + 1 / 6) a second and the queue, over 100
    assert verdict.lag == pytest.approx(8001)
    assert verdict.drain_seconds is None
    assert "8,001 records wait (8,000 before c), +50 a second" in "\n".join(verdict.reasons)


def test_what_is_wanted_follows_what_is_written_all_the_way_down() -> None:
    """The queue is before the second vertex; the third has what that will write to it."""
    verdict = judged(
        SOURCE,
        Vertex("m", 100, 200, busy=1.0, inputs=[("s", REBALANCE)]),
        Vertex("c", 200, busy=0.5, inputs=[("m", HASH)]),
    )
    rates = {each.id: each.target_rate for each in verdict.decisions}
    assert rates == {
        "s": pytest.approx(150),
        "m": pytest.approx(150),
        "c": pytest.approx(300),
    }


def test_counters_of_different_ages_make_no_queue() -> None:
    for late in (0.0, 4.0, 9.5):
        found = loads(
            replace(SOURCE, late=late), Vertex("c", 150, busy=0.97, inputs=[("s", HASH)], late=1.0)
        )
        assert (found["c"].queued, found["c"].queue_rate) == (0.0, pytest.approx(0.0, abs=1e-6))


def test_a_vertex_with_time_to_spare_has_no_queue_whatever_the_counters_say() -> None:
    """A window that has just fired was written, and is being read."""
    found = loads(SOURCE, Vertex("c", 100, busy=0.4, inputs=[("s", HASH)]))
    assert found["c"].queue_rate == 0.0


def test_of_two_that_read_from_one_the_full_one_has_the_queue() -> None:
    """A vertex counts a record once, however many vertices it goes to."""
    found = loads(
        SOURCE,
        Vertex("fast", 150, busy=0.2, inputs=[("s", REBALANCE)]),
        Vertex("slow", 100, busy=1.0, inputs=[("s", HASH)]),
    )
    assert found["fast"].queue_rate == 0.0
    assert found["slow"].queue_rate == pytest.approx(50)
    assert found["slow"].queued == pytest.approx(8000)


def test_what_goes_to_a_side_output_is_counted_beside_the_others() -> None:
    found = loads(
        replace(SOURCE, writes=150 + 100),
        Vertex("fast", 150, busy=0.2, inputs=[("s", REBALANCE)]),
        Vertex("slow", 70, busy=1.0, inputs=[("s", HASH)]),
    )
    assert found["slow"].queue_rate == pytest.approx(30)


def test_of_two_full_ones_each_has_all_where_together_they_read_more_than_was_written() -> None:
    found = loads(
        SOURCE,
        Vertex("slow", 100, busy=1.0, inputs=[("s", REBALANCE)]),
        Vertex("slower", 80, busy=1.0, inputs=[("s", HASH)]),
    )
    assert found["slow"].queue_rate == pytest.approx(50)
    assert found["slower"].queue_rate == pytest.approx(70)
    apart = loads(
        SOURCE,
        Vertex("slow", 50, busy=1.0, inputs=[("s", REBALANCE)]),
        Vertex("slower", 40, busy=1.0, inputs=[("s", HASH)]),
    )
    assert apart["slow"].queue_rate == 0.0, "whether these are side outputs, nobody can tell"


def test_a_stream_that_is_joined_with_itself_is_read_twice() -> None:
    found = loads(SOURCE, Vertex("c", 250, busy=1.0, inputs=[("s", HASH), ("s", HASH)]))
    assert found["c"].queue_rate == pytest.approx(50)


def test_two_that_write_to_one_add_up() -> None:
    found = loads(
        replace(SOURCE, id="a"),
        replace(SOURCE, id="b", writes=30, reads=30),
        Vertex("c", 120, busy=1.0, inputs=[("a", HASH), ("b", HASH)]),
    )
    assert found["c"].queue_rate == pytest.approx(60)


def test_a_broadcast_is_read_once_by_each_subtask() -> None:
    main = Vertex("c", 150 + 4 * 10, busy=1.0, inputs=[("s", HASH), ("rules", BROADCAST)])
    rules = Vertex("rules", 10, 10)
    found = loads(SOURCE, rules, replace(main, parallelism=4))
    assert found["c"].queue_rate == pytest.approx(0)
    slow = replace(main, parallelism=4, reads=100 + 4 * 10)
    assert loads(SOURCE, rules, slow)["c"].queue_rate == pytest.approx(50)


def test_what_is_broadcast_beside_other_edges_cannot_be_told_apart() -> None:
    found = loads(
        replace(SOURCE, writes=300),
        Vertex("c", 100, busy=1.0, inputs=[("s", HASH)]),
        Vertex("d", 200, busy=1.0, inputs=[("s", BROADCAST)], parallelism=4),
    )
    assert (found["c"].queue_rate, found["d"].queue_rate) == (0.0, 0.0)


def test_a_queue_that_was_there_is_drained_and_no_more_than_it() -> None:
    first, _ = looks(SOURCE, Vertex("c", 100, busy=1.0, inputs=[("s", HASH)]))
    _, last = looks(SOURCE, Vertex("c", 140, busy=1.0, inputs=[("s", HASH)]))
    drained = {load.id: load for load in loads_of((first, last), EAGER)}["c"]
    assert drained.queue_rate == pytest.approx(-(22_400 - 10_000 - 150 * 60) / 60)
    assert drained.arriving == pytest.approx(150)


def test_an_engine_that_counts_too_little_of_what_it_writes_takes_nothing_from_what_arrives() -> (
    None
):
    """Flink 1.15 counts one of several edges only."""
    found = loads(
        SOURCE,
        Vertex("c", 150, busy=1.0, inputs=[("s", HASH)]),
        Vertex("d", 150, busy=0.1, inputs=[("s", HASH)]),
    )
    assert found["c"].arriving == pytest.approx(150)


def test_where_one_subtask_was_restarted_alone_growth_is_told_and_no_sum() -> None:
    subtask = SubtaskSample(100.0, 1000.0, 0.0, 0.0, attempt=3)
    vertex = Vertex("c", 100, busy=1.0, inputs=[("s", HASH)], parallelism=2)
    samples = []
    for each in looks(SOURCE, vertex):
        source, count = each.vertices
        again = replace(count.subtasks[1], attempt=subtask.attempt)
        count = replace(count, subtasks=(count.subtasks[0], again))
        samples.append(replace(each, vertices=(source, count)))
    found = {load.id: load for load in loads_of(samples, EAGER)}["c"]
    assert (found.queued, found.queue_rate) == (0.0, pytest.approx(50))
