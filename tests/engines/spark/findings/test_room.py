"""Before anything moves: may we write there, and is there space? Found and not found, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stateshift.plan import Plan
from stateshift.survey import FileInfo, Room, Survey
from tests.support.checkpoints import Checkpoint
from tests.support.ground import SOURCE, TARGET, empty, facts_of, plan_of, spec_of, surveyed

CHECKPOINT = Checkpoint(inputs="file:///in")
HERE = surveyed(CHECKPOINT)
NEEDED = sum(f.size for f in HERE.files if f.path in HERE.images[0].needed)


def said(plan: Plan, level: str) -> str:
    return "\n".join(finding.message for finding in plan.findings if finding.level == level)


def planned(room: Room | None = None, denied: tuple[str, ...] | None = (), **more: Any) -> Plan:
    """A move to a place that answers this; what `source` is denied, the source says."""
    own = more.pop("source_denied", ())
    source = replace(HERE, room=Room(shared="source"), denied=own)
    target = replace(empty(), room=room, denied=denied)
    waive = ["paths-stay", *more.pop("waive", [])]
    return plan_of(spec_of(waive=waive, **more), facts_of(source, target))


def free(count: int, copies: int = 1, files: int | None = None) -> Room:
    return Room(count, files, copies, "the disk", "its disk", "its inodes")


def test_a_place_with_twice_the_space_is_silent() -> None:
    plan = planned(free(2 * NEEDED))
    assert not plan.refusals
    assert f"{TARGET} needs" not in said(plan, "warn")


@pytest.mark.parametrize(("room", "refused"), [(free(NEEDED - 1), True), (free(NEEDED), False)])
def test_too_little_space_is_refused_and_just_enough_is_a_warning(
    room: Room, refused: bool
) -> None:
    plan = planned(room)
    assert bool(plan.refusals) is refused
    if refused:
        (finding,) = plan.refusals
        assert finding.waive == "space"
        assert f"{TARGET} needs" in finding.message
        assert "its disk leaves" in finding.message
        assert not planned(room, waive=["space"]).refusals
    else:
        assert "there is no space for as much again" in said(plan, "warn")


def test_every_copy_that_is_kept_of_a_byte_counts() -> None:
    assert not planned(free(2 * NEEDED, copies=2)).refusals
    (finding,) = planned(free(2 * NEEDED, copies=3)).refusals
    assert "each byte 3 times" in finding.message


def test_a_quota_of_names_counts_files() -> None:
    assert not planned(free(10**9, files=len(HERE.images[0].needed))).refusals
    (finding,) = planned(free(10**9, files=2)).refusals
    assert (finding.waive, "its inodes leaves 2" in finding.message) == ("space", True)


def test_image_and_data_on_one_disk_need_the_space_of_both() -> None:
    def refused(shared: str) -> bool:
        source = replace(HERE, room=Room(shared="source"), denied=())
        data = Survey("file:///in", None, "data", (FileInfo("f0.json", 1000),))
        there = Survey(
            "file:///new",
            None,
            "empty",
            (),
            room=replace(free(NEEDED + 500), shared=shared),
            denied=(),
        )
        target = replace(empty(), room=free(NEEDED + 500), denied=())
        spec = spec_of(data=[{"source": "file:///in", "target": "file:///new"}])
        return bool(plan_of(spec, facts_of(source, target, data=((data, there),))).refusals)

    assert refused("the disk")
    assert not refused("another disk")


def test_no_permission_is_refused_with_the_place_and_can_be_waived() -> None:
    (finding,) = planned(free(10**9), denied=(TARGET,)).refusals
    assert finding.message == f"no permission to write to {TARGET}"
    assert (finding.waive, "ls -ld /there/orders" in (finding.hint or "")) == ("permission", True)
    assert not planned(free(10**9), denied=(TARGET,), waive=["permission"]).refusals


def test_a_lock_that_cannot_be_taken_beside_the_target_is_refused_before_it_is_tried() -> None:
    (finding,) = planned(free(10**9), denied=("file:///there",)).refusals
    assert (
        finding.message
        == "no permission to write to file:///there (the lock lies beside its target)"
    )


def test_a_source_that_cannot_be_fenced_is_refused_but_not_for_a_fork() -> None:
    (finding,) = planned(free(10**9), source_denied=(f"{SOURCE}/commits",)).refusals
    assert f"{SOURCE}/commits (the old job is fenced off there)" in finding.message
    assert not planned(free(10**9), source_denied=(f"{SOURCE}/commits",), mode="fork").refusals


def test_a_storage_that_cannot_be_asked_is_told_as_that_once() -> None:
    plan = planned(Room(), denied=None)
    assert not plan.refusals
    assert said(plan, "note").count(f"{TARGET} does not say beforehand") == 1


def test_where_nothing_was_asked_nothing_is_said() -> None:
    assert "beforehand" not in said(plan_of(spec_of(waive=["paths-stay"]), facts_of(HERE)), "note")
