"""How a standby comes from its batch to the newest: batch by batch, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateshift.engines.spark.plan.standby import Bridge, bridge_of
from stateshift.step import CopyFiles, CopyInOrder
from stateshift.survey import Facts
from tests.support.checkpoints import Checkpoint
from tests.support.ground import TARGET, facts_of, surveyed

AT, NEWEST = 2, 6
NOTHING = Bridge((), (), frozenset())


def facts(
    at: int | None = AT, newest: int = NEWEST, past: bool = False, without: str = ""
) -> Facts:
    """Of a job at `newest`, whose standby can be started from `at`."""
    source = surveyed(Checkpoint(batches=newest + 1))
    source = replace(source, files=tuple(file for file in source.files if file.path != without))
    names = (
        () if at is None else (f"offsets/{at - 1}", f"offsets/{at}", f"commits/{at}", "metadata")
    )
    left = tuple((TARGET, name) for name in names)
    return replace(
        facts_of(source), left=left, past=((TARGET, "state/0/0/2.delta"),) if past else ()
    )


def order(bridge: Bridge) -> list[str]:
    return [item.path for step in bridge.published for item in step.items]


def test_each_batch_gets_its_offsets_and_then_its_commit_in_their_order() -> None:
    found = bridge_of(facts(), ())
    wanted = [
        f"{folder}/{batch}"
        for batch in range(AT + 1, NEWEST + 1)
        for folder in ("offsets", "commits")
    ]
    assert order(found) == wanted
    assert {type(step) for step in found.published} == {CopyInOrder}, "no two at the same time"
    names = [step.name for step in found.published]
    assert len(set(names)) == len(names)


def test_the_state_of_the_batches_between_is_brought_before_and_no_more_of_it() -> None:
    found = bridge_of(facts(), ())
    brought = {
        item.path for step in found.copies for item in step.items if item.path.endswith(".delta")
    }
    assert brought == {
        f"state/0/{shard}/{version}.delta"
        for shard in (0, 1)
        for version in range(AT + 2, NEWEST + 1)
    }


def test_what_is_published_between_is_not_published_again_and_what_only_that_needs_goes() -> None:
    found = bridge_of(facts(), ())
    infos = {file.path: file for file in facts().source.files}
    last = (infos["metadata"], infos["offsets/5"], infos["offsets/6"])
    steps = (
        CopyFiles("publish/0", "a", "b", last),
        CopyFiles("publish/1", "a", "b", (infos["commits/6"],)),
    )
    (kept,) = found.without_published(steps)
    assert isinstance(kept, CopyFiles) and [item.path for item in kept.items] == ["metadata"]
    (gone,) = found.retired(TARGET, {"offsets/5", "offsets/6", "commits/6", "state/0/0/6.delta"})
    assert {"offsets/4", "commits/5", "state/0/1/6.delta"} <= set(gone.dropped)
    assert not {"offsets/5", "offsets/6", "commits/6", "state/0/0/6.delta"} & set(gone.dropped)


@pytest.mark.parametrize(
    "held",
    [
        facts(at=None),
        facts(at=NEWEST),
        facts(past=True),
        facts(without="offsets/4"),
        facts(without="commits/3"),
        facts(without="state/0/1/5.delta"),
    ],
    ids=[
        "nothing there",
        "no news",
        "gone back",
        "offsets tidied",
        "commit tidied",
        "state tidied",
    ],
)
def test_where_no_way_leads_over_there_is_no_bridge(held: Facts) -> None:
    assert bridge_of(held, ()) == NOTHING


@pytest.mark.parametrize("version", [AT + 2, NEWEST])
def test_a_job_that_went_back_but_not_behind_the_standby_s_batch_has_a_bridge(version: int) -> None:
    """A round has brought state of a time that the job has left again; nothing of it shows."""
    path = f"state/0/0/{version}.delta"
    went_back = replace(facts(), past=((TARGET, path),), left=(*facts().left, (TARGET, path)))
    assert bridge_of(went_back, ()) == bridge_of(facts(), ())


@pytest.mark.parametrize("path", ["state/0/1/3.delta", "state/0/1/3.snapshot", "offsets/5", "x"])
def test_a_job_that_went_back_behind_the_standby_s_batch_has_none(path: str) -> None:
    assert bridge_of(replace(facts(), past=((TARGET, path),)), ()) == NOTHING


@pytest.mark.parametrize("name", ["5.snapshot", "7.snapshot", "5.zip"])
def test_no_bridge_leads_past_a_snapshot_of_a_time_that_was_left_again(name: str) -> None:
    """Nothing writes over it before the batches between are published, and Spark starts from it."""
    path = f"state/0/0/{name}"
    there = replace(facts(), past=((TARGET, path),), left=(*facts().left, (TARGET, path)))
    assert bridge_of(there, ()) == NOTHING


def test_state_of_a_time_that_was_left_again_does_not_stand_for_what_is_gone() -> None:
    path = f"state/0/0/{AT + 3}.delta"
    gone = facts(without=path)
    there = replace(gone, left=(*gone.left, (TARGET, path)))
    assert bridge_of(there, ()) != NOTHING
    assert bridge_of(replace(there, past=((TARGET, path),)), ()) == NOTHING


def test_a_log_that_is_rewritten_is_not_copied_between() -> None:
    assert bridge_of(facts(), {"offsets/5"}) == NOTHING


def test_state_that_says_its_version_nowhere_leads_to_none() -> None:
    held = facts()
    (image,) = held.source.images
    named = tuple(
        replace(shard, files=(f"state/0/{shard.shard}/7_{'a' * 8}.delta",))
        for shard in image.shards
    )
    zipped = tuple(
        replace(shard, files=(f"state/0/{shard.shard}/7.zip",)) for shard in image.shards
    )
    for shards in (named, zipped):
        source = replace(held.source, images=(replace(image, shards=shards),))
        assert bridge_of(replace(held, source=source), ()) == NOTHING
