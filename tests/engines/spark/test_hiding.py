"""Which files of a time that a job has gone back behind are in the way, and what goes before them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateshift.engines.spark.plan.standby import hiding, without_stale_bases
from stateshift.survey import Facts
from tests.support.checkpoints import Checkpoint
from tests.support.ground import TARGET, facts_of, surveyed

LOGS = ("offsets/2", "offsets/3", "commits/2", "commits/3", "metadata")


def facts(*stale: str) -> Facts:
    """Return those of a job at batch 3, whose shards have changes 1 to 4 and no snapshot."""
    at_target = tuple((TARGET, name) for name in (*LOGS, *stale))
    past = tuple((TARGET, name) for name in stale)
    return replace(facts_of(surveyed(Checkpoint(batches=4))), left=at_target, past=past)


def test_an_image_is_hidden_by_its_commits_and_then_by_its_offsets() -> None:
    assert [step.dropped for step in hiding(facts(), "publish")] == [
        ("commits/2", "commits/3"),
        ("offsets/2", "offsets/3"),
    ]


def test_where_no_image_is_none_is_hidden() -> None:
    assert hiding(replace(facts(), left=()), "publish") == ()


@pytest.mark.parametrize("name", ["2.snapshot", "4.snapshot", "9.snapshot", "4.zip"])
def test_a_stale_snapshot_that_would_be_read_goes_once_the_image_is_hidden(name: str) -> None:
    path = f"state/0/1/{name}"
    *hidden, stale = without_stale_bases(facts(path))
    assert [step.dropped for step in hidden] == [
        step.dropped for step in hiding(facts(path), "publish")
    ]
    assert stale.dropped == (path,)


@pytest.mark.parametrize(
    "name", ["state/0/1/4.delta", "state/0/1/4.snapshot.crc", "state/7/0/4.snapshot", "offsets/3"]
)
def test_other_stale_files_leave_the_image_as_it_is(name: str) -> None:
    """They are written over, or nothing reads them."""
    assert without_stale_bases(facts(name)) == ()


def test_a_stale_snapshot_below_the_one_that_a_shard_begins_with_is_not_in_the_way() -> None:
    held = facts("state/0/1/2.snapshot")
    (image,) = held.source.images
    shards = tuple(
        replace(shard, files=(f"state/0/{shard.shard}/3.snapshot",)) for shard in image.shards
    )
    source = replace(held.source, images=(replace(image, shards=shards),))
    assert without_stale_bases(replace(held, source=source)) == ()
