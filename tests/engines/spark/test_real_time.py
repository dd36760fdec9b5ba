"""A job in real-time mode is known by the times of its logs, and batches of minutes do not make it
look stopped, late, or as if it read records of another topic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeGuard

import pytest

from stateshift.engines.spark.image import spark_image
from stateshift.engines.spark.real_time import is_in_real_time
from stateshift.engines.spark.survey import checkpoint as survey
from stateshift.plan import Plan
from stateshift.step import AwaitProgress, StopJob
from stateshift.survey import ClusterFacts, Survey, TopicRecord, Topics
from stateshift.testing.memory_storage import MemoryDisk
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, facts_of, plans_of, spec_of

BEGAN = 1_800_000_000.0
BATCH_SECONDS = 300.0

pytestmark = pytest.mark.row("W-7")


def surveyed(
    mode: str, ahead: float = 0.0, kept_times: bool = True, planned: bool = False
) -> Survey:
    """Two batches and one before; the storage's clock is so many seconds ahead. A job in
    micro-batches has a trigger of the same length.
    """
    storage = MemoryDisk().open(SOURCE)
    for path, content in Checkpoint(planned=planned).files().items():
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
        storage.write(path, lambda content=content: iter([content]), at)
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


def is_awaiting(step: object) -> TypeGuard[AwaitProgress]:
    return isinstance(step, AwaitProgress)


def test_a_batch_that_was_planned_is_none_that_runs_again() -> None:
    plan = plans(surveyed("real-time", planned=True), {})[-1]
    assert not plan.refusals
    assert "in real-time mode Spark drops its plan, and reads on anew" in said(plan)


@pytest.mark.parametrize(("rpo", "level"), [("1 min", ["warn"]), ("10 min", [])])
def test_a_standby_cannot_keep_to_less_than_a_batch(rpo: str, level: list[str]) -> None:
    keys = {"mode": "warm", "cutover": "never", "standby": {"rpo": rpo}}
    found = plans(surveyed("real-time"), keys)[-1].findings
    assert [each.level for each in found if "cannot keep to an rpo" in each.message] == level


def test_records_that_came_while_its_batch_ran_are_its_own() -> None:
    """They are newer than the plan of the batch that has read them."""
    found = surveyed("real-time")
    details = replace(spark_image(found.images[0]), real_time_seconds=3 * 3600.0)
    image = replace(found.images[0], details=details)
    late = int(1000 * (BEGAN + 2 * BATCH_SECONDS + 2 * 3600))
    records = tuple(TopicRecord(n, late + n, False, "k", "v") for n in range(15, 20))
    topics = Topics("new:9092", {"topic": {0: (0, 99)}}, records={"topic": {0: records}})
    later = {"at": BEGAN + 86_400, "topics": topics}
    assert not plans(replace(found, images=(image,)), {}, **later)[-1].refusals
    micro = replace(image, details=replace(details, real_time_seconds=None))
    (refused,) = plans(replace(found, images=(micro,)), {}, **later)[-1].refusals
    assert refused.waive == "other-records"
