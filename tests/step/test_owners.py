"""KeepOwners: the target's files belong to whom the source's do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stateshift.step import KeepOwners
from stateshift.step.evidence import OwnersGiven
from stateshift.survey import Owned
from tests.support.ground import SOURCE, TARGET, Ground

KEEP = KeepOwners("publish/owners-0", SOURCE, TARGET, owner=True, permissions=True)


@pytest.fixture
def ground() -> Ground:
    """The job runs as etl, in a directory that nobody else may look into; we copied its files as
    ourselves.
    """
    made = Ground()
    made.give(SOURCE, metadata=b"{}", state_0=b"old", commits_1=b"v1")
    made.give(TARGET, metadata=b"{}", commits_1=b"v1", rewritten_deep_0=b"new")
    source = made.world.storage(SOURCE)
    for path in ("", "state", "commits", "commits/1", "metadata"):
        source.own(
            Owned(path, "etl", "streams", 0o750 if path in ("", "state", "commits") else 0o640)
        )
    return made


def owned(
    ground: Ground, location: str = TARGET
) -> dict[str, tuple[str | None, str | None, int | None]]:
    return {one.path: one[1:] for one in ground.world.storage(location).owners()}


def test_files_and_directories_get_owners_and_permissions_of_their_counterparts(
    ground: Ground,
) -> None:
    KEEP.run(ground.world)
    found = owned(ground)
    assert found["commits/1"] == ("etl", "streams", 0o640)
    assert found["commits"] == found[""] == ("etl", "streams", 0o750)


def test_what_has_no_counterpart_belongs_to_whom_the_directory_above_does(ground: Ground) -> None:
    KEEP.run(ground.world)
    assert owned(ground)["rewritten/deep/0"] == ("etl", "streams", 0o644)


def test_only_what_is_asked_for_is_kept(ground: Ground) -> None:
    replace(KEEP, owner=False).run(ground.world)
    assert owned(ground)["commits/1"] == ("us", "ours", 0o640)
    replace(KEEP, permissions=False).run(ground.world)
    assert owned(ground)["metadata"] == ("etl", "streams", 0o640)


def test_it_holds_until_somebody_takes_a_file_over_and_running_it_again_changes_nothing(
    ground: Ground,
) -> None:
    evidence = KEEP.run(ground.world)
    assert evidence.given > 0 and KEEP.run(ground.world) == OwnersGiven(0)
    assert KEEP.holds(ground.world, evidence) == []
    ground.world.storage(TARGET).own(Owned("metadata", "root", None, None))
    (told,) = KEEP.holds(ground.world, evidence)
    assert "etl" in told.expected and "root" in told.found


def test_the_source_is_left_as_it_is(ground: Ground) -> None:
    before = owned(ground, SOURCE)
    KEEP.run(ground.world)
    assert owned(ground, SOURCE) == before
