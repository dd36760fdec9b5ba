"""A primary whose job runs at its standby says so: to whoever inspects, verifies or moves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateshift import api, migration
from stateshift.api.failovers import fence_again, standby_at
from stateshift.documents.shape import document_of
from stateshift.documents.standby import FencedDocument, FencedFacts
from stateshift.errors import PlanError
from stateshift.formats.marks import fence_owner
from stateshift.formats.standby import SUPERSEDED, decode_superseded
from stateshift.storage.protocol import Storage
from tests.cli.support import said as said_by
from tests.migration.test_last_copy import standby
from tests.migration.test_warm import Standby
from tests.standby.test_failover import Dying, Gone, fail_over, from_epoch, nothing, refuse
from tests.standby.test_kept_epochs import spec_at, started_at, two_epochs
from tests.support.ground import SOURCE, TARGET, running_spec, spec_of

ELSEWHERE = "file:///elsewhere/orders"


def superseded(folder: Path, ahead: int = 2) -> Standby:
    """A primary that went on by some batches before a failover fenced it."""
    ground = standby(folder, nothing)
    ground.job.running = False
    for _ in range(ahead):
        ground.job.batch()
    from_epoch(ground, 11)
    ground.cluster._on_stop = lambda _: None  # it has no batch under way
    fail_over(ground)
    found = standby_at(TARGET, ground.adapters)
    ground.fenced = FencedFacts(found, fence_again(found, ground.adapters))  # type: ignore[attr-defined]
    return ground


def note(ground: Standby) -> Any:
    return decode_superseded(ground.source.read(SUPERSEDED))


@pytest.mark.row("W-22")
def test_verify_and_inspect_say_where_the_job_runs_and_by_how_much_both_have_parted(
    tmp_path: Path,
) -> None:
    ground = superseded(tmp_path)
    verdict = api.verify(SOURCE, adapters=ground.adapters)
    assert not verdict.ok
    document = verdict.to_dict()
    assert document["superseded"]["successor"] == TARGET  # type: ignore[index]
    (finding,) = [each for each in verdict.findings if each.level == "refuse"]  # type: ignore[attr-defined]
    assert f"orders runs at {TARGET} since" in finding.message
    assert "from epoch 11 on; 2 batches here are not part of it" in finding.message
    assert f"stateshift diff {TARGET} {SOURCE}" in (finding.hint or "")
    said = said_by("verify", SOURCE, adapters=ground.adapters)
    assert said.code == 5 and "superseded" in said.out
    shown = api.inspect(SOURCE, adapters=ground.adapters).to_dict()["superseded"]
    assert isinstance(shown, dict)
    assert (shown["epoch"], shown["newest"], shown["batches_ahead"]) == (11, 13, 2)
    fenced = document_of(FencedDocument, ground.fenced)  # type: ignore[attr-defined]
    assert fenced["batches_ahead"] == 2
    assert said_by("diff", TARGET, SOURCE, adapters=ground.adapters).code in (0, 5)


@pytest.mark.row("W-22")
def test_status_of_the_primary_names_the_failover(tmp_path: Path) -> None:
    ground = superseded(tmp_path)
    shown = said_by("status", SOURCE, "--json", adapters=ground.adapters)
    assert shown.code == 0
    assert shown.document["successor"] == TARGET and shown.document["run"] == "run-failover"
    assert "runs at" in said_by("status", SOURCE, adapters=ground.adapters).out
    assert said_by("status", ELSEWHERE, adapters=ground.adapters).code == 4


@pytest.mark.row("W-22")
@pytest.mark.parametrize("mode", [{}, {"mode": "fork"}, {"mode": "warm", "cutover": "never"}])
def test_it_is_neither_moved_nor_fed_from_and_the_way_out_is_named(
    tmp_path: Path, mode: dict[str, Any]
) -> None:
    ground = superseded(tmp_path)
    make = running_spec if "mode" in mode and mode["mode"] == "warm" else spec_of
    before = ground.disk.snapshot()
    proposal = ground.propose(make(target=ELSEWHERE, **mode))
    (refusal,) = proposal.refusals
    assert f"orders runs at {TARGET}" in refusal.message
    assert f"stateshift status {TARGET}" in (refusal.hint or "")
    with pytest.raises(PlanError):
        ground.apply(proposal, "again")
    assert ground.disk.snapshot() == before


def test_a_primary_that_had_nothing_more_is_level(tmp_path: Path) -> None:
    ground = superseded(tmp_path, ahead=0)
    assert note(ground).batches_ahead == 0
    verdict = api.verify(SOURCE, adapters=ground.adapters)
    assert not verdict.ok
    assert not any("not part of it" in finding.message for finding in verdict.findings)


def test_taken_back_the_note_goes_with_the_fence(tmp_path: Path) -> None:
    ground = standby(tmp_path, nothing)
    ground.job.running = False
    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(Exception):  # noqa: B017
        fail_over(ground, primary_is_down=False)
    assert note(ground).successor == TARGET
    ground.rollback("failover")
    assert not any(path.endswith("superseded.json") for path in ground.disk.snapshot(SOURCE))
    assert api.verify(SOURCE, adapters=ground.adapters).ok


def test_fenced_again_the_note_stays_and_a_damaged_one_is_written_anew(tmp_path: Path) -> None:
    ground = superseded(tmp_path)
    first = note(ground)
    ground.clock.time += 100
    found = standby_at(TARGET, ground.adapters)
    fence_again(found, ground.adapters)
    assert note(ground) == first
    ground.put(f"{SOURCE}/{SUPERSEDED}", b"{")
    verdict = api.verify(SOURCE, adapters=ground.adapters)
    assert not verdict.ok and any("is fenced by run" in each.message for each in verdict.findings)
    fence_again(found, ground.adapters)
    assert note(ground).run == first.run


def test_a_note_without_the_fence_of_its_run_says_nothing(tmp_path: Path) -> None:
    """Who takes the image away, and puts another one there, need not know of it."""
    ground = superseded(tmp_path)
    for path, content in ground.held(SOURCE).items():
        if fence_owner(content):
            ground.remove(f"{SOURCE}/{path}")
    assert api.verify(SOURCE, adapters=ground.adapters).ok
    assert "superseded" not in api.inspect(SOURCE, adapters=ground.adapters).to_dict()


@pytest.mark.row("W-22")
@pytest.mark.parametrize("moment", range(1, 5))
def test_killed_between_fence_and_note_a_resume_writes_both(tmp_path: Path, moment: int) -> None:
    ground = standby(tmp_path, nothing)
    ground.job.running = False
    from_epoch(ground, 11)
    wrap, moments = ground.wrap, [moment]

    def dying(storage: Storage) -> Storage:
        opened = wrap(storage)
        is_primary = storage.location.startswith(SOURCE)
        return Dying(opened, moments) if is_primary else opened  # type: ignore[return-value]

    ground.wrap = dying
    try:
        fail_over(ground, primary_is_down=False)
    except Gone:
        ground.wrap = wrap
        ground.resume("failover")
    assert note(ground).epoch == 11
    assert migration.status(ground.workdir("failover")).state == "finished"
    assert json.loads(ground.source.read(SUPERSEDED))["version"] == 1


@pytest.mark.row("W-22")
def test_the_note_names_the_epoch_that_was_chosen(tmp_path: Path) -> None:
    """And not the newest one that the standby had."""
    ground = two_epochs(tmp_path)
    started_at(ground, 11)
    ground.cluster._on_stop = lambda _: None
    ground.apply(spec_at(11, ground), "failover")
    found = standby_at(TARGET, ground.adapters)
    fenced = FencedFacts(found, fence_again(found, ground.adapters))
    assert (note(ground).epoch, note(ground).newest) == (11, 14)
    assert fenced.batches_ahead == 3
    told = said_by("status", TARGET, "--json", adapters=ground.adapters).document
    assert (told["role"], told["epoch"]) == ("failed-over", 11)
    assert "from epoch 11" in said_by("status", TARGET, adapters=ground.adapters).out
