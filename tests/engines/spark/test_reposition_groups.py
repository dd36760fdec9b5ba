"""A consumer group gets the offsets at which the job reads on: as they are set, left and put back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stateshift.errors import SpecError, StalePlan
from stateshift.step import CommitOffsets
from stateshift.survey import Committed, GroupCommit, GroupOffset
from tests.engines.spark.test_reposition import NEW, KafkaGround, ground_of, moved
from tests.support.ground import TARGET, refusals
from tests.support.kafka import record

GROUP = "shop"
OLD_OFFSET = Committed(3, "by hand")
AT, OTHER_AT = ("moved", 0), ("moved", 1)


@pytest.fixture
def ground(tmp_path: Path) -> KafkaGround:
    return grouped(tmp_path)


def grouped(folder: Path) -> KafkaGround:
    """The second partition is new to the job, and the group has committed nothing of it."""
    ground = ground_of(folder)
    ground.kafka.clusters[NEW].topics["moved"][1] = [record(0, "new", 99_000)]
    ground.kafka.groups.offsets[GROUP] = {AT: OLD_OFFSET, ("else", 0): Committed(9)}
    return ground


def held(ground: KafkaGround) -> dict[tuple[str, int], Committed]:
    return ground.kafka.groups.committed(GROUP)


BEFORE = {AT: OLD_OFFSET, ("else", 0): Committed(9)}
AFTER = {AT: Committed(27), OTHER_AT: Committed(0), ("else", 0): Committed(9)}


def test_a_group_stands_where_the_job_reads_on_and_is_put_back(ground: KafkaGround) -> None:
    proposal = ground.propose(moved(commit=GROUP))
    told = [finding.message for finding in proposal.plans[-1].findings]
    assert f"the group {GROUP} at {NEW} gets 2 offsets" in told
    assert held(ground) == BEFORE
    ground.apply(proposal)
    assert held(ground) == AFTER
    assert ground.rollback().state == "rolled-back"
    assert held(ground) == BEFORE


def test_a_group_with_members_is_refused_before_anything_is_written(ground: KafkaGround) -> None:
    ground.kafka.groups.active.add(GROUP)
    (refusal,) = refusals(ground, moved(commit=GROUP))
    assert "has members (it is Stable)" in refusal.message
    assert held(ground) == BEFORE


def test_a_group_that_changes_after_the_plan_is_not_overruled(ground: KafkaGround) -> None:
    plan = ground.propose(moved(commit=GROUP)).plans[-1]
    (step,) = [step for step in plan if isinstance(step, CommitOffsets)]
    ground.kafka.groups.offsets[GROUP][AT] = Committed(30)
    with pytest.raises(StalePlan, match="stood at 3 in moved/0, and has committed 30 since"):
        step.run(world_of(ground))


def test_a_fork_and_a_source_that_is_no_topic_have_no_group(ground: KafkaGround) -> None:
    with pytest.raises(SpecError, match="'commit' in a fork"):
        moved(commit=GROUP, mode="fork")
    with pytest.raises(SpecError):
        moved(commit=GROUP, by=None, table="/lake/orders")


class _DeadError(BaseException):
    """The process is gone."""


def killed(folder: Path, at: int) -> KafkaGround | None:
    """A ground whose run died at this offset; None if it had set all before."""
    ground, left = grouped(folder), [at]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise _DeadError

    proposal = ground.propose(moved(commit=GROUP))
    ground.kafka.groups.on_commit = count
    try:
        ground.apply(proposal)
    except _DeadError:
        ground.kafka.groups.on_commit = lambda: None
        return ground
    return None


def test_killed_between_two_offsets_it_is_resumed_or_taken_back(tmp_path: Path) -> None:
    deaths = 0
    while (ground := killed(tmp_path / f"{deaths}-resumed", deaths + 1)) is not None:
        deaths += 1
        assert ground.resume().state == "finished"
        assert held(ground) == AFTER
        other = killed(tmp_path / f"{deaths}-taken-back", deaths)
        assert other is not None
        assert other.rollback().state == "rolled-back"
        assert (held(other), other.held(TARGET)) == (BEFORE, {})
    assert deaths == 2


def world_of(ground: KafkaGround) -> Any:
    from dataclasses import replace

    return replace(ground.world, groups=ground.kafka.open_groups)


STEP = CommitOffsets(
    "publish/offsets-0",
    GroupCommit(
        GROUP,
        NEW,
        None,
        (GroupOffset(*AT, OLD_OFFSET, 27), GroupOffset(*OTHER_AT, None, 0)),
    ),
)


@pytest.mark.parametrize(
    ("then", "left", "stays"),
    [
        ("moves on", "moved/0 is at 30, which others have set: left there (before: 3)", 30),
        ("is active", "keeps the offsets of this run: UnknownMemberIdError", 27),
        ("is out of reach", "keeps the offsets of this run: new:9092 does not answer", 27),
    ],
)
def test_offsets_that_cannot_be_put_back_stay_and_keep_nothing_else(
    ground: KafkaGround, then: str, left: str, stays: int
) -> None:
    world, groups = world_of(ground), ground.kafka.groups
    evidence = STEP.run(world)
    assert STEP.holds(world, evidence) == []
    if then == "moves on":
        groups.offsets[GROUP][AT] = Committed(30)
        assert STEP.holds(world, evidence) == []
    elif then == "is active":
        groups.active.add(GROUP)
    else:
        del ground.kafka.clusters[NEW]
    (line,) = STEP.undo(world, evidence)
    assert left in line
    assert held(ground)[AT].offset == stays


def test_offsets_that_are_gone_or_went_back_are_told(ground: KafkaGround) -> None:
    world = world_of(ground)
    evidence = STEP.run(world)
    ground.kafka.groups.offsets[GROUP] = {AT: Committed(5)}
    told = [(str(each.place), each.expected, each.found) for each in STEP.holds(world, evidence)]
    assert told == [
        ("moved/0 of the group shop", "27 or later", "5"),
        ("moved/1 of the group shop", "0 or later", "none"),
    ]
    ground.clock.time += 8 * 86_400  # brokers forget a group without members
    assert len(STEP.holds(world, evidence)) == 1
