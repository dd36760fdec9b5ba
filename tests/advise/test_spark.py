"""Verdicts on queries of Spark, by their checkpoints and what the brokers say."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stateshift.advise.evaluate.inputs import Circumstances, SparkInputs, Wish
from stateshift.advise.evaluate.settings import Settings
from stateshift.advise.evaluate.spark_batches import PlannedBatch, SparkSample, shards_of
from stateshift.advise.evaluate.verdicts import Verdict, verdict_on
from stateshift.formats.marks import fence_text
from stateshift.formats.spark.progress import QueryProgress, ReportedBatch, encode_progress
from stateshift.plain import from_plain, to_plain
from stateshift.specification.model import KafkaSpec
from tests.advise.measured_flink import BEGAN
from tests.advise.spark_ground import NOW, QueryGround, batches
from tests.cli.support import (
    SOURCE,
    spec_of,
    submitting,
    with_checkpoint,
)
from tests.support.checkpoints import put

pytestmark = pytest.mark.row("W-11", on="Spark")


def judged(
    *samples: SparkSample, cores: int | None = 4, settings: Settings | None = None, **more: Any
) -> Verdict:
    around = Circumstances(
        "orders", max(sample.time for sample in samples), settings or Settings(), **more
    )
    inputs = SparkInputs(around, samples, cores)
    assert verdict_on(from_plain(SparkInputs, to_plain(inputs))) == verdict_on(inputs)
    return verdict_on(inputs)


def said_of(verdict: Verdict) -> str:
    return "\n".join(verdict.reasons)


def look(
    made: Sequence[PlannedBatch], lag: int | None = None, at: float = NOW, **more: Any
) -> SparkSample:
    return SparkSample(at, tuple(made), lag, **more)


def test_a_query_with_pauses_is_judged_by_how_busy_it_is() -> None:
    verdict = judged(look(batches(20, 10, 6, 10_000)))
    assert verdict.word == "fits"
    assert verdict.headroom == pytest.approx(0.4)
    (decision,) = verdict.decisions
    assert decision.true_rate == pytest.approx(10_000 / 6)
    assert decision.target_rate == pytest.approx(1000)


def test_a_query_that_falls_back_needs_more_cores() -> None:
    before = look((), lag=0, at=NOW - 60)
    verdict = judged(before, look(batches(20, 10, 9.9, 10_000), lag=12_000))
    assert verdict.word == "scale"
    assert (verdict.parallelism, verdict.wanted) == (4, 8)
    assert "never drained" in said_of(verdict)


def test_without_cores_the_verdict_is_a_factor() -> None:
    before = look((), lag=0, at=NOW - 60)
    verdict = judged(before, look(batches(20, 10, 9.9, 10_000), lag=12_000), cores=None)
    assert (verdict.word, verdict.parallelism, verdict.wanted) == ("scale", None, None)
    assert verdict.factor == pytest.approx(1.91, abs=0.03)
    assert "times the cores that it has" in said_of(verdict)
    assert verdict.unit == "hundredths"


@pytest.mark.parametrize(
    ("cores", "less"),
    [
        (1, None),
        (3, "2 cores would do"),
        (100, "40 cores would do"),
        (None, "0.40 times the cores that it has would do"),
    ],
)
def test_what_a_query_would_do_with_is_counted_in_cores(
    cores: int | None, less: str | None
) -> None:
    text = said_of(judged(look(batches(20, 10, 0.5, 10_000)), cores=cores))
    assert "would do" not in text if less is None else less in text


def test_batches_without_a_pause_tell_nothing_by_themselves() -> None:
    verdict = judged(look(batches(20, 1, 0.99, 50)))
    assert verdict.word == "unknown"
    assert "without a pause" in said_of(verdict)


def test_a_query_without_a_pause_whose_lag_does_not_grow_keeps_up() -> None:
    before = look((), lag=500, at=NOW - 60)
    verdict = judged(before, look(batches(20, 1, 0.99, 50), lag=200))
    assert verdict.word == "fits"
    assert verdict.headroom is None
    assert "it keeps up" in said_of(verdict)
    assert verdict.drain_seconds == pytest.approx(40)


def test_a_query_whose_source_counts_nothing_is_judged_by_its_time() -> None:
    verdict = judged(look(batches(20, 10, 9, None)))
    assert verdict.word == "fits"
    assert verdict.headroom == pytest.approx(0.1)
    assert "do not count records" in said_of(verdict)


def test_more_cores_than_state_partitions_do_not_help() -> None:
    before = look((), lag=0, at=NOW - 60)
    last = look(batches(20, 10, 9.9, 10_000), lag=12_000, state_partitions=6)
    verdict = judged(before, last, location="s3a://b/orders")
    assert verdict.wanted == 6
    assert "would need 8 cores, and is bounded by 6 state partitions" in said_of(verdict)
    assert "stateshift repartition s3a://b/orders --to s3a://b/orders-8 --partitions 8" in said_of(
        verdict
    )


def test_a_query_that_falls_back_at_its_bound_does_not_fit() -> None:
    before = look((), lag=0, at=NOW - 60)
    last = look(batches(20, 10, 9.9, 10_000), lag=12_000, state_partitions=4)
    verdict = judged(before, last)
    assert (verdict.word, verdict.parallelism, verdict.wanted) == ("scale", 4, 8)
    assert "inside the band" not in said_of(verdict)
    assert "would need 8 cores, and is bounded by 4 state partitions" in said_of(verdict)


def test_a_query_without_state_is_bounded_by_what_it_reads(ground: QueryGround) -> None:
    ground.write_batches(batches(20, 10, 9.9, 10_000, first=5), conf="2")
    ground.arrives = 200.0
    out = ground.advise(ground.spec(), "--cores", "4").out
    assert "is bounded by 2 topic partitions: the topic needs more, or the query's source" in out
    assert "stateshift repartition" not in out
    ground.clock.time = BEGAN
    put(ground.storage(), "state/0/0/1.delta", b"state")
    out = ground.advise(ground.spec(), "--cores", "4").out
    assert "is bounded by 2 state partitions: stateshift repartition" in out


@pytest.mark.parametrize(
    ("made", "why"),
    [
        ((), "of 0 here"),
        (batches(1, 10, 5, 10), "of 1 here"),
        ((*batches(3, 10, 5, 10), replace(batches(1, 10, 5, 10)[0], id=7)), "of 1 here"),
        (batches(5, 10, 12, 10), "clock is not the driver's"),
        (batches(5, 10, -3, 10), "clock is not the driver's"),
        (batches(5, 10, 5, -10), "go back"),
        (batches(5, 0.0, 0.0, 10), "the driver's clock was set"),
        (tuple(replace(b, committed=None) for b in batches(5, 10, 5, 10)), "of 0 here"),
    ],
)
def test_batches_that_do_not_tell_make_no_verdict(made: Sequence[PlannedBatch], why: str) -> None:
    verdict = judged(look(made))
    assert verdict.word == "unknown"
    assert why in said_of(verdict)


@pytest.mark.parametrize("ahead", [0.0, 1.0, 90.0])
def test_batches_of_before_a_clock_was_set_do_not_count(ahead: float) -> None:
    """The query went on with a driver whose clock is so far behind that of the one before it."""
    made = batches(20, 10, 9, 10_000)
    behind = [replace(batch, started=made[12].started + ahead) for batch in made[11:12]]
    behind = [replace(each, committed=each.started + 9) for each in behind]
    verdict = judged(look((*made[:11], *behind, *made[12:])))
    assert verdict.word != "unknown"
    assert verdict.headroom == judged(look(made[12:])).headroom


def test_what_a_query_did_before_it_was_moved_does_not_count() -> None:
    """A batch that was planned before the move is committed behind it: that took no work."""
    made = batches(20, 10, 4, 10_000)
    kept = replace(made[5], started=made[5].started - 600)
    earlier = [replace(b, started=b.started - 600, committed=b.started - 595) for b in made[:5]]
    sample = look((*earlier, kept, *made[6:]))
    moved = judged(sample, since=made[5].started - 300)
    assert moved.headroom == judged(look(made[6:])).headroom != judged(sample).headroom
    assert "of 1 here" in said_of(judged(sample, since=made[19].started))


def test_a_query_that_has_stopped_makes_no_verdict() -> None:
    verdict = judged(look(batches(20, 10, 6, 10_000), at=NOW + 3 * 3600))
    assert verdict.word == "unknown"
    assert "may be stopped" in said_of(verdict)


def test_only_batches_of_the_window_count() -> None:
    old = batches(20, 10, 6, 10_000)
    earlier = tuple(
        replace(b, started=b.started - 5000, committed=(b.committed or 0) - 5000) for b in old
    )
    recent = batches(20, 10, 1, 10_000, first=20)
    verdict = judged(look((*earlier, *recent)))
    assert verdict.headroom == pytest.approx(0.9)


# ---------------------------------------------------------------------------- by the command


@pytest.fixture
def ground(tmp_path: Path) -> QueryGround:
    return QueryGround(tmp_path)


def test_a_checkpoint_is_its_own_history(ground: QueryGround) -> None:
    ground.write_batches(batches(20, 10, 6, 10_000, first=5))
    ran = ground.advise(SOURCE, "--cores", "8", "--json")
    assert ran.code == 0, ran.err
    (told,) = ran.document
    assert (told["engine"], told["verdict"], told["parallelism"]) == ("spark", "fits", 8)
    assert told["headroom"] == pytest.approx(0.4)
    assert told["vertices"][0]["target_rate"] == pytest.approx(1000)
    assert ground.clock.time == BEGAN, "one look suffices"


def test_the_brokers_tell_what_waits(ground: QueryGround) -> None:
    ground.write_batches(batches(20, 10, 9.9, 10_000, first=5))
    ground.arrives = 200.0
    (told,) = ground.advise(ground.spec(), "--cores", "4", "--json").document
    assert told["verdict"] == "scale"
    assert told["wanted"] == 8
    assert told["lag"] == pytest.approx(12_000, abs=2)


def test_a_workflow_gets_a_verdict_for_each_query(ground: QueryGround) -> None:
    ground.write_batches(batches(20, 10, 6, 10_000, first=5), prefix="one")
    ground.write_batches(batches(20, 10, 1, 10_000, first=5), prefix="two")
    told = ground.advise(SOURCE, "--json").document
    assert [each["job"] for each in told] == [f"{SOURCE}/one", f"{SOURCE}/two"]


def test_a_cron_job_needs_no_second_look(ground: QueryGround) -> None:
    history = str(ground.folder / "history")
    ground.write_batches(batches(20, 10, 9.9, 10_000, first=5))
    ground.arrives = 200.0
    ground.advise(ground.spec(), "--cores", "4", "--history", history)
    before = ground.clock.time
    (told,) = ground.advise(ground.spec(), "--cores", "4", "--history", history, "--json").document
    assert ground.clock.time == before
    assert told["verdict"] == "scale"
    (file,) = (ground.folder / "history").iterdir()
    assert len(file.read_text()) < 2000, "batches are in the checkpoint"


def test_cores_come_from_the_submission(ground: QueryGround) -> None:
    ground.write_batches(batches(20, 10, 6, 10_000, first=5))
    conf = {"spark.executor.instances": "3", "spark.executor.cores": "2"}
    spec = ground.spec(
        kafka=None,
        target_cluster="a",
        submit={"application": "x.py", "conf": conf},
        clusters=None,
    )
    plain = json.loads(Path(spec).read_text())
    plain["clusters"] = {"a": {"kind": "spark_submit", "master": "local[2]"}}
    del plain["jobs"][0]["clusters"], plain["jobs"][0]["kafka"]
    Path(spec).write_text(json.dumps(plain))
    (told,) = ground.advise(spec, "--json").document
    assert told["parallelism"] == 6


@pytest.mark.parametrize(
    "damage",
    [
        lambda storage: storage.write("offsets/24", lambda: iter([b"\xff\xfe"])),
        lambda storage: [storage.remove(f"commits/{n}") for n in range(4, 25)],
        lambda storage: [storage.remove(f"offsets/{n}") for n in range(4, 25)],
    ],
)
def test_a_checkpoint_that_does_not_tell_makes_no_verdict(ground: QueryGround, damage: Any) -> None:
    ground.write_batches(batches(20, 10, 6, 10_000, first=5))
    damage(ground.storage())
    ran = ground.advise(SOURCE, "--json")
    assert ran.code == 0, ran.err
    assert [told["verdict"] for told in ran.document] == ["unknown"]


def test_brokers_that_do_not_answer_make_no_verdict(ground: QueryGround) -> None:
    from stateshift.errors import TransientStorageError

    def silent(kafka: KafkaSpec, topics: Sequence[str]) -> Any:
        raise TransientStorageError("here:9092 does not answer", location="here:9092")

    ground.write_batches(batches(20, 10, 6, 10_000, first=5))
    ground.ask = silent  # type: ignore[method-assign]
    (told,) = ground.advise(ground.spec(), "--json").document
    assert told["verdict"] == "unknown"
    assert "does not answer" in told["reasons"][0]


def test_a_place_without_a_checkpoint_makes_no_verdict(ground: QueryGround) -> None:
    (told,) = ground.advise(SOURCE, "--json").document
    assert told["verdict"] == "unknown"
    assert "no checkpoint" in told["reasons"][0]


def test_the_text_names_cores_or_a_factor(ground: QueryGround) -> None:
    ground.write_batches(batches(20, 10, 9.9, 10_000, first=5))
    ground.arrives = 200.0
    out = ground.advise(ground.spec(), "--cores", "4", "--explain").out
    assert "scale to 8 cores" in out
    assert re.search(r"orders +scale +4 cores +8 cores", out)
    assert "query, 4 cores at present" in out
    ground.clock.time = BEGAN
    assert "times the cores" in ground.advise(ground.spec()).out


@pytest.mark.parametrize("found", [True, False])
def test_our_own_runs_say_what_a_restart_takes(ground: QueryGround, found: bool) -> None:
    moved = with_checkpoint()
    command = {"kind": "command", "submit": "x", "find": "x", "stop": "x"}
    spec = spec_of(job_name="orders", **submitting()) | {"clusters": {"b": command}}
    (ground.folder / "move.json").write_text(json.dumps(spec))
    run = ("apply", str(ground.folder / "move.json"), "--yes", "--workdirs", str(ground.folder))
    downtime = moved.run(*run, "--json").document["report"]["downtime_seconds"]
    ground.write_batches(batches(20, 10, 6, 10_000, first=5))
    other = {} if found else {"name": "payments"}
    (told,) = ground.advise(ground.spec(**other), "--json").document
    expected = (downtime, "runs") if found else (300.0, "default")
    assert (told["restart_seconds"], told["restart_from"]) == expected


@pytest.mark.parametrize(("mebibytes", "told"), [(9, True), (2, False)])
def test_a_state_partition_that_is_much_larger_than_the_others_is_told(
    ground: QueryGround, mebibytes: int, told: bool
) -> None:
    ground.write_batches(batches(20, 10, 6, 10_000, first=5), prefix="one")
    for partition in range(4):
        size = (mebibytes if partition == 2 else 2) << 20
        path = f"one/state/0/{partition}/25.delta"
        ground.storage().write(path, lambda size=size: iter([bytes(size)]))
    (advice,) = ground.advise(SOURCE, "--json").document
    said = "operator 0: partition 2 of its 4 has 2.4 times the mean's bytes"
    assert any(reason.startswith(said) for reason in advice["reasons"]) is told


def test_a_small_state_is_not_called_uneven() -> None:
    shards = shards_of([("0", 0, 100), ("0", 1, 46), ("0", 2, 46)])
    assert shards is not None and shards.skew > 1.5
    sample = replace(look(batches(20, 10, 6, 10_000)), shards=shards)
    assert "partition" not in said_of(judged(sample))


def test_a_query_without_state_has_no_shards() -> None:
    assert shards_of([]) is None
    assert shards_of([("0", 0, 0)]) is None


# ---------------------------------------------------------------------------- what a query says itself


def told_batches(
    count: int, takes: float, works: float, records: int = 50, grows: int = 0
) -> tuple[PlannedBatch, ...]:
    """Batches that follow each other without a pause. What waits before each grows by so much."""
    return tuple(
        replace(batch, work_seconds=works, waiting=records + grows * number)
        for number, batch in enumerate(batches(count, takes, takes, records))
    )


def test_a_query_without_a_pause_that_tells_how_long_it_works_is_judged_by_that() -> None:
    verdict = judged(look(told_batches(60, 1.0, 0.6)))
    assert verdict.word == "fits"
    assert verdict.headroom == pytest.approx(0.4)
    assert "works on records for 60% of the time" in said_of(verdict)


def test_a_query_without_a_pause_that_always_works_is_judged_by_what_waited() -> None:
    verdict = judged(look(told_batches(60, 1.0, 0.99)))
    assert (verdict.word, verdict.headroom) == ("fits", None)
    assert "it keeps up" in said_of(verdict)
    verdict = judged(look(told_batches(60, 1.0, 0.99, grows=25)))
    assert verdict.word == "scale"
    (load,) = verdict.loads
    assert load.lag_rate == pytest.approx(25)
    assert verdict.lag == 25 * 59


def test_one_batch_that_was_held_up_makes_no_growth() -> None:
    held_up = list(told_batches(60, 1.0, 0.99))
    held_up[-3] = replace(held_up[-3], waiting=400)
    verdict = judged(look(held_up))
    assert verdict.word == "fits"


def test_what_waits_is_not_told_by_a_few_batches() -> None:
    verdict = judged(look(told_batches(4, 1.0, 0.99)))
    assert verdict.word == "unknown"
    assert "too few of them tell what waited" in said_of(verdict)
    assert "stateshift.job" not in said_of(verdict), "it does run its queries with that"


def test_a_batch_that_leaves_records_behind_counts_whole() -> None:
    """As with maxOffsetsPerTrigger: each is as large as it may be, and the next as well."""
    full = tuple(
        replace(batch, waiting=50 + 5 * (number + 1))
        for number, batch in enumerate(told_batches(60, 1.0, 0.8))
    )
    verdict = judged(look(full))
    assert verdict.word == "scale", "it falls back by 5 a second"
    (decision,) = verdict.decisions
    assert decision.true_rate == pytest.approx(50)


def test_a_query_without_a_pause_whose_source_does_not_tell_what_waits_is_not_judged() -> None:
    silent = [replace(batch, waiting=None) for batch in told_batches(60, 1.0, 0.8)]
    verdict = judged(look(silent))
    assert verdict.word == "unknown"
    assert "a trigger with an interval" in said_of(verdict)


def test_a_busy_query_of_whose_records_spark_counts_none_is_judged_by_its_time() -> None:
    uncounted = [replace(batch, work_seconds=8.0) for batch in batches(20, 10, 9, 0)]
    verdict = judged(look(uncounted))
    assert verdict.word == "fits"
    assert verdict.headroom == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"work_seconds": 1.5}, "worked for 1.5 s of 1.0 s"),
        ({"work_seconds": -1.0}, "worked for -1.0 s"),
        ({"waiting": 3}, "more records than were waiting"),
    ],
)
def test_what_a_query_cannot_have_done_makes_no_verdict(fault: Any, why: str) -> None:
    made = told_batches(20, 1.0, 0.6)
    verdict = judged(look((*made[:-1], replace(made[-1], **fault))))
    assert verdict.word == "unknown"
    assert why in said_of(verdict)


def written_progress(ground: QueryGround, made: Sequence[PlannedBatch], **more: Any) -> None:
    """Write what the query says of these batches of its present run."""
    reported = [
        ReportedBatch(
            batch.id,
            batch.started,
            (batch.committed or 0.0) - batch.started,
            batch.work_seconds or 0.0,
            batch.records or 0,
            batch.waiting,
            state_rows=17,
        )
        for batch in made
    ]
    progress = QueryProgress("run-1", made[0].started, tuple(reported), cores=6)
    content = encode_progress(replace(progress, **more))
    ground.storage().write("_stateshift/progress", lambda: iter([content]))


def test_what_a_query_says_of_itself_counts_and_tells_its_cores(ground: QueryGround) -> None:
    made = told_batches(60, 1.0, 0.6)
    ground.write_batches(made[1:])
    written_progress(ground, made)
    (told,) = ground.advise(SOURCE, "--json").document
    assert (told["verdict"], told["parallelism"]) == ("fits", 6)
    assert told["headroom"] == pytest.approx(0.4)
    assert told["lag"] == 0
    (sample,) = told["inputs"]["samples"]
    assert [batch["id"] for batch in sample["batches"]] == list(range(1, 60)), (
        "the first batch of a run loads code, and does not count"
    )
    assert "its state has 17 rows" in told["reasons"]


def test_a_look_at_a_query_that_tells_of_itself_waits_for_nothing(ground: QueryGround) -> None:
    made = told_batches(60, 1.0, 0.99, grows=25)
    ground.write_batches(made[1:])
    written_progress(ground, made)
    (told,) = ground.advise(ground.spec(), "--cores", "4", "--json").document
    assert told["verdict"] == "scale"
    assert ground.clock.time == BEGAN


def test_what_an_earlier_run_has_said_does_not_count(ground: QueryGround) -> None:
    earlier = [replace(b, started=b.started - 900) for b in told_batches(20, 1.0, 0.6)]
    ground.write_batches(batches(40, 10, 6, 10_000, first=20))
    written_progress(ground, [replace(b, committed=b.started + 1.0) for b in earlier])
    (told,) = ground.advise(SOURCE, "--json").document
    assert (told["verdict"], told["parallelism"]) == ("fits", None)
    assert told["headroom"] == pytest.approx(0.4)


@pytest.mark.parametrize("content", [b"", b'{"version":9}', b"x" * 70_000])
def test_a_file_that_cannot_be_read_is_as_one_that_is_not_there(
    ground: QueryGround, content: bytes
) -> None:
    ground.write_batches(batches(20, 10, 6, 10_000, first=5))
    ground.storage().write("_stateshift/progress", lambda: iter([content]))
    (told,) = ground.advise(SOURCE, "--cores", "8", "--json").document
    assert told["headroom"] == pytest.approx(0.4)


def test_batches_too_long_to_tell_of_growth_within_the_window_take_a_second_look(
    ground: QueryGround,
) -> None:
    made = told_batches(60, 300.0, 299.0)
    ground.write_batches(made[1:])
    written_progress(ground, made)
    ground.arrives = 200.0
    (told,) = ground.advise(ground.spec(), "--cores", "4", "--json").document
    assert ground.clock.time == BEGAN + 60
    assert told["verdict"] == "scale"


def test_what_was_said_of_batches_that_are_gone_since_does_not_count(ground: QueryGround) -> None:
    gone = [replace(b, id=b.id + 500, started=b.started - 900) for b in told_batches(20, 1.0, 0.6)]
    ground.write_batches(batches(40, 10, 6, 10_000, first=20))
    written_progress(ground, [replace(b, committed=b.started + 1.0) for b in gone])
    (told,) = ground.advise(SOURCE, "--json").document
    assert (told["verdict"], told["parallelism"]) == ("fits", None)
    assert told["headroom"] == pytest.approx(0.4)


def test_a_checkpoint_that_was_moved_away_is_said_to_be_fenced(tmp_path: Path) -> None:
    ground = QueryGround(tmp_path)
    ground.write_batches(batches(5, 10, 6, 10_000, first=1))
    fence = fence_text("20260101-000000-orders").encode()
    ground.storage().write("offsets/6", lambda: iter([fence]))
    answer = ground.advise(SOURCE, "--json")
    (verdict,) = json.loads(answer.out)
    assert verdict["verdict"] == "unknown"
    assert "run 20260101-000000-orders has moved the job away" in json.dumps(verdict)


# ------------------------------------------------------------------------------- steps of the load


def query_under(share: Any, until: float, every: float) -> list[SparkSample]:
    """Looks at a query with a trigger of five seconds that can take a hundred records a second."""
    batches_made: list[PlannedBatch] = []
    looks, read, free = [], 0.0, 0.0
    arrived = [0.0]
    for second in range(1, int(until) + 1):
        arrived.append(arrived[-1] + 100 * share(second))
        if second % 5 == 0 and second >= free:
            records = int(min(arrived[-1] - read, 1500))
            read += records
            free = second + records / 100
            batches_made.append(PlannedBatch(len(batches_made), float(second), free, records))
        if second % every == 0:
            done = [batch for batch in batches_made if (batch.committed or 0) <= second]
            lag = int(arrived[-1] - sum(batch.records or 0 for batch in done))
            looks.append(SparkSample(float(second), tuple(done[-100:]), lag, 12))
    return looks


def words_of(looks: Sequence[SparkSample]) -> dict[float, str]:
    words, wishes = {}, ()
    for number in range(2, len(looks) + 1):
        seen = [replace(look, batches=()) for look in looks[: number - 1]]
        now = looks[number - 1].time
        around = Circumstances("orders", now, wishes=wishes)
        verdict = verdict_on(SparkInputs(around, (*seen, looks[number - 1]), 4))
        words[now] = verdict.word
        wishes = (Wish(now, verdict.wish, verdict.states),)
    return words


@pytest.mark.parametrize("every", [30.0, 60.0])
def test_a_query_is_judged_by_its_load_since_that_has_changed(every: float) -> None:
    found = words_of(query_under(lambda second: 0.5 if second <= 600 else 1.5, 900, every))
    assert {word for at, word in found.items() if 120 <= at <= 600} == {"fits"}
    assert {word for at, word in found.items() if at >= 600 + max(90.0, 2 * every)} == {"scale"}


def test_a_query_that_just_keeps_up_fits_at_each_look() -> None:
    """Its batches follow each other without a pause, and what waits goes up and down a little."""
    found = words_of(query_under(lambda second: 1.0 + 0.02 * (-1) ** (second // 60), 1800, 60.0))
    assert {word for at, word in found.items() if at >= 240} == {"fits"}


def test_what_a_batch_in_real_time_mode_has_read_so_far_does_not_count_as_waiting(
    tmp_path: Path,
) -> None:
    """A job that reads all that arrives is looked at just after a commit, and late in a batch: to
    the offset log, all that came since waits.
    """
    ground = QueryGround(tmp_path, arrives=100.0)
    ground.write_batches(batches(3, 300, 299.9, 30_000, first=1), real_time=True)
    lags = []
    for seconds in (5.0, 250.0):
        ground.clock.time = NOW + seconds
        lags.append(ground.look().lag)
    assert lags == [pytest.approx(0, abs=30), pytest.approx(0, abs=30)]
    ground.arrives = 200.0  # twice of what it reads
    assert ground.look().lag == pytest.approx(25_000, abs=300)


def test_the_batches_of_a_job_in_real_time_mode_tell_nothing_by_themselves() -> None:
    made = batches(3, 300, 299.9, 30_000)
    verdict = judged(look(made, real_time_seconds=299.9))
    assert verdict.word == "unknown"
    assert "it is in real-time mode" in said_of(verdict)
    before = look((), lag=40, at=NOW - 60, real_time_seconds=299.9)
    verdict = judged(before, look(made, lag=10, real_time_seconds=299.9))
    assert verdict.word == "fits"
    assert "it is in real-time mode" in said_of(verdict)
