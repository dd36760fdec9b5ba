"""A job in real-time mode is known by the times of its logs, and batches of minutes do not make it
look stopped, late, or as if it read records of another topic.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, TypeGuard

import pytest

from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.real_time import is_in_real_time, real_time_lengths
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.formats.spark.offsets import decode_offsets
from stateshift.plan import Plan
from stateshift.step import AwaitProgress, StopJob
from stateshift.survey import ClusterFacts, SinkFacts, Survey, TopicRecord, Topics
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, facts_of, plans_of, spec_of

BEGAN = 1_800_000_000.0
BATCH_SECONDS = 300.0
DROPS_PLAN = "in real-time mode, Spark drops its plan, and reads on anew"

pytestmark = pytest.mark.row("W-7")


def surveyed(
    mode: str, ahead: float = 0.0, kept_times: bool = True, planned: bool = False
) -> Survey:
    """Two batches and one before; the storage's clock is so many seconds ahead. A job in
    micro-batches has a trigger of the same length.
    """
    storage = MemoryDisk().open(SOURCE)
    for path, content in Checkpoint(planned=planned, written=planned).files().items():
        folder, _, name = path.partition("/")
        written = BEGAN
        if folder in ("offsets", "commits"):
            begun = BEGAN + int(name) * BATCH_SECONDS
            planned_at = begun + (0.02 if mode == "real-time" else 0.01)
            written = begun + {"real-time": BATCH_SECONDS - 0.3, "micro-batch": 0.03}[mode]
            if folder == "commits":
                written += 0.2
            content = content.replace(
                f":{1000 + int(name)},".encode(), b":%d," % (planned_at * 1000)
            )
        at = written + ahead if kept_times else BEGAN + 5_000
        storage.write(path, partial(iter, [content]), at)
    return survey.survey(storage)


def batch_seconds(found: Survey) -> float | None:
    return spark_image(found.images[0]).real_time_seconds


@pytest.mark.parametrize("ahead", [-60.0, -2.0, 0.0, 2.0, 60.0])
def test_it_is_known_by_the_times_of_its_logs_whatever_the_storage_s_clock(ahead: float) -> None:
    found = surveyed("real-time", ahead)
    assert batch_seconds(found) == pytest.approx(BATCH_SECONDS, abs=1)
    assert is_in_real_time(found.images[0])
    assert batch_seconds(surveyed("micro-batch", ahead)) is None


def test_a_copy_without_the_times_shows_it_only_by_an_aggregation_that_was_born_in_it() -> None:
    (image,) = surveyed("real-time", kept_times=False).images
    assert not is_in_real_time(image)
    operator = replace(image.operators[0], name="StatefulStreamlineAggregate")
    assert is_in_real_time(replace(image, operators=(operator,)))


def plans(found: Survey, spec_keys: dict[str, Any], **more: Any) -> tuple[Plan, ...]:
    at = more.pop("at", BEGAN + 4 * BATCH_SECONDS)
    return plans_of(spec_of(**spec_keys), replace(facts_of(found, **more), at=at))


def said(plan: Plan) -> str:
    return "\n".join(finding.message for finding in plan.findings)


def test_it_does_not_look_stopped_in_the_middle_of_a_batch() -> None:
    """Nothing was written for four minutes."""
    at = BEGAN + 3 * BATCH_SECONDS + 240
    assert "is the job stopped?" in said(plans(surveyed("real-time"), {}, at=at)[-1])
    assert "is the job stopped?" not in said(plans(surveyed("micro-batch"), {}, at=at)[-1])


def test_a_stop_waits_for_the_end_of_a_batch_and_says_so() -> None:
    clusters = {"spec_clusters": {"here": {"kind": "manual", "state_dir": "jobs"}}}
    running = {"source_cluster": ClusterFacts("here", "manual", "4.3.0", "running")}
    spec = {"source_cluster": "here", **clusters}
    halt, move = plans(surveyed("real-time"), spec, **running)
    (stop,) = [step for step in halt if isinstance(step, StopJob)]
    assert stop.seconds_max / 2 > BATCH_SECONDS, "half of it is for the batch that runs"
    assert "is in real-time mode: it commits every 300 s" in said(move)
    halt, move = plans(surveyed("micro-batch"), spec, **running)
    (stop,) = [step for step in halt if isinstance(step, StopJob)]
    assert stop.seconds_max == 300
    assert "real-time" not in said(move)


@pytest.mark.parametrize(
    ("kind", "stop", "waits"),
    [
        ("command", {"seconds_max": 240}, 240),
        ("command", {"seconds_max": 320}, None),
        ("spark_submit", {"seconds_max": 320}, 160),  # half of it is for the answer
        ("spark_submit", {"seconds_max": 640}, None),
        ("spark_submit", {}, 30),  # the cluster's own
    ],
)
def test_a_stop_that_cuts_a_batch_short_is_warned_of(
    kind: str, stop: dict[str, Any], waits: int | None
) -> None:
    options = {"find": "f", "submit": "s", "stop": "t"} if kind == "command" else {}
    cluster = {"kind": kind, "state_dir": "jobs", "seconds_max": 60, **options}
    running = {"source_cluster": ClusterFacts("here", kind, "4.3.0", "running")}
    spec = {"source_cluster": "here", "stop": stop, "spec_clusters": {"here": cluster}}
    plan = plans(surveyed("real-time"), spec, **running)[-1]
    (found,) = [each for each in plan.findings if "is in real-time mode" in each.message]
    assert found.level == ("note" if waits is None else "warn")
    if waits is not None:
        assert f"a stop waits {waits} s for the end of a batch" in found.message
        assert '"stop": {"seconds_max": 900}' in (found.hint or "")


def test_its_first_commit_at_the_target_is_waited_for_a_batch_longer() -> None:
    """It comes when the first batch ends: Spark's default is as long as that of a submission."""
    clusters = {"spec_clusters": {"there": {"kind": "manual", "state_dir": "jobs"}}}
    spec = {"target_cluster": "there", "submit": {}, **clusters}
    awaited = {}
    for mode in ("real-time", "micro-batch"):
        (confirm,) = [step for step in plans(surveyed(mode), spec)[-1] if is_awaiting(step)]
        awaited[mode] = confirm.seconds_max
    assert awaited["micro-batch"] == 300
    assert awaited["real-time"] == pytest.approx(300 + BATCH_SECONDS, abs=1)


def seconds_to_confirm(**submit: Any) -> float:
    """The wait of a job in micro-batches, without state, that is converted and then started."""
    spec = {
        "target_cluster": "there",
        "submit": submit,
        "spec_clusters": {"there": {"kind": "manual", "state_dir": "jobs"}},
        "transform": [{"kind": "convert", "provider": "rocksdb", "checkpoint_format": "v2"}],
    }
    found = surveyed("micro-batch")
    image = replace(found.images[0], operators=(), shards=())
    plan = plans(replace(found, images=(image,)), spec)[-1]
    (confirm,) = [step for step in plan if is_awaiting(step)]
    return confirm.seconds_max


def test_a_job_that_is_converted_for_it_has_the_time_of_a_first_batch_by_default() -> None:
    """Its checkpoint shows micro-batches, and its first commit comes after five minutes."""
    assert seconds_to_confirm() == 300 + 300
    assert seconds_to_confirm(seconds_max=120) == 120


def is_awaiting(step: object) -> TypeGuard[AwaitProgress]:
    return isinstance(step, AwaitProgress)


@pytest.mark.parametrize("sink", [None, "kafka"])
def test_a_batch_that_was_planned_is_none_that_runs_again(sink: str | None) -> None:
    facts = None if sink is None else SinkFacts(sink, None, False, False)
    plan = plans(surveyed("real-time", planned=True), {}, sink=facts)[-1]
    assert not plan.refusals
    assert DROPS_PLAN in said(plan)
    (told,) = [each for each in plan.findings if DROPS_PLAN in each.message]
    assert told.hint is None, "nothing is left to decide"


def test_output_that_a_sink_would_lose_is_refused_whatever_the_times_look_like() -> None:
    """No sink but Kafka, of those that a spec names, goes with the mode: it is in micro-batches."""
    delta = SinkFacts("delta", "s3://lake/orders", True, True)
    source = surveyed("real-time", planned=True)
    plan = plans(source, {"planned_batch": "drop"}, sink=delta)[-1]
    (refused,) = plan.refusals
    assert "it is dropped, and the next batch gets its number" in refused.message
    assert f"if the job is {DROPS_PLAN}" in said(plan)


def test_one_batch_alone_that_looks_like_it_overrides_no_refusal() -> None:
    found = surveyed("real-time", planned=True)
    details = replace(spark_image(found.images[0]), real_time_lengths=(BATCH_SECONDS,))
    image = replace(found.images[0], details=details)
    plan = plans(replace(found, images=(image,)), {"planned_batch": "drop"})[-1]
    assert f"if the job is {DROPS_PLAN}" in said(plan)
    assert "it is dropped" in said(plan)


def test_a_driver_that_is_behind_its_storage_makes_a_job_look_so_and_loses_no_output() -> None:
    """Batches every 10 s that take 2 s, and a storage whose clock is 8 s ahead."""
    entries, written, committed = {}, {}, {}
    for batch in range(3):
        planned_at = BEGAN + 10.0 * batch
        header = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}\n-'
        entries[batch] = decode_offsets(header % int(1000 * planned_at))
        written[batch], committed[batch] = planned_at + 8, planned_at + 10
    assert real_time_lengths(entries, written, committed) == (8.0, 8.0)
    later = {number: at + 3 for number, at in committed.items()}
    assert real_time_lengths(entries, written, later) == ()


@pytest.mark.parametrize(("rpo", "level"), [("1 min", ["warn"]), ("10 min", [])])
def test_a_standby_cannot_keep_to_less_than_a_batch(rpo: str, level: list[str]) -> None:
    keys = {"mode": "warm", "cutover": "never", "standby": {"rpo": rpo}}
    found = plans(surveyed("real-time"), keys)[-1].findings
    assert [each.level for each in found if "cannot keep to an rpo" in each.message] == level


def topics(written: float) -> Topics:
    """A topic whose records around the job's offset were written then."""
    at = int(1000 * written)
    records = tuple(TopicRecord(n, at + n, False, "k", "v") for n in range(15, 20))
    return Topics("new:9092", {"topic": {0: (0, 99)}}, records={"topic": {0: records}})


def test_records_that_came_while_its_batch_ran_are_its_own() -> None:
    """They are newer than the plan of the batch that has read them."""
    found = surveyed("real-time")
    details = replace(spark_image(found.images[0]), real_time_lengths=(3 * 3600.0,))
    image = replace(found.images[0], details=details)
    later = {"at": BEGAN + 86_400, "topics": topics(BEGAN + 2 * BATCH_SECONDS + 2 * 3600)}
    assert not plans(replace(found, images=(image,)), {}, **later)[-1].refusals
    micro = replace(image, details=replace(details, real_time_lengths=()))
    (refused,) = plans(replace(found, images=(micro,)), {}, **later)[-1].refusals
    assert refused.waive == "other-records"


def without_lengths(committed_at: float) -> Survey:
    """A job whose aggregation was born in real-time mode; the times of its files do not show it,
    but for that of its last commit.
    """
    found = surveyed("micro-batch")
    (image,) = found.images
    operator = replace(image.operators[0], name="StatefulStreamlineAggregate")
    commit = f"commits/{image.epoch}"
    files = [
        file._replace(modified=committed_at) if file.path == commit else file
        for file in found.files
    ]
    return replace(found, images=(replace(image, operators=(operator,)),), files=tuple(files))


def test_without_its_length_a_batch_has_read_until_its_commit_was_written() -> None:
    """The storage may not tell the time: that the records were not checked is said then."""
    late = {"at": BEGAN + 86_400, "topics": topics(BEGAN + 2 * 3600)}
    (refused,) = plans(without_lengths(BEGAN + 3600), {}, **late)[-1].refusals
    assert refused.waive == "other-records"
    plan = plans(without_lengths(BEGAN + 2 * 3600), {}, **late)[-1]
    assert not plan.refusals
    assert "was asked of their times alone" in said(plan)
    plan = plans(without_lengths(0.0), {}, **late)[-1]
    assert not plan.refusals
    assert "the job has read was not checked: in real-time mode a batch reads until" in said(plan)
    assert "was asked of their times alone" not in said(plan)
