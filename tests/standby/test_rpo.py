"""A standby whose spec bounds what may be lost: who is told, how often, and what is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateshift import api, migration
from stateshift.api.failovers import standby_at, standby_now
from stateshift.cli.views.survey_text import inspection
from stateshift.documents.metrics import ObservedRun, families
from stateshift.documents.run import RunFacts, StatusDocument
from stateshift.documents.shape import document_of
from stateshift.documents.standby import StandbyDocument, StandbyLag
from stateshift.errors import SpecError
from stateshift.formats.standby import STATE
from stateshift.journal import RpoJudged, decode_records
from stateshift.specification import parse_spec, to_plain_spec
from tests.migration.test_last_copy import gone, unreachable
from tests.migration.test_warm import Ended, Standby
from tests.notification.test_events import on, told
from tests.support.checkpoints import put
from tests.support.ground import SOURCE, TARGET, running_spec, spec_of

BOUND = 40.0
Act = Callable[[Standby], None]


def kept(folder: Path, *, looks: int = 120, **acts: Act) -> Standby:
    """A standby with a bound of 40 s, whose job commits nothing by itself: two looks are 2 s."""

    def acting(act: Act) -> Callable[[], None]:
        return lambda: act(ground)

    ground = Standby(folder, 1, looks, **{name: acting(act) for name, act in acts.items()})
    ground.job.moods, ground.job.retained = {}, 100
    spec = running_spec(
        mode="warm",
        cutover="never",
        standby={"rpo": "40s"},
        spec_on=on(folder, "rpo"),
    )
    with pytest.raises(Ended):
        ground.apply(spec)
    return ground


def events(folder: Path) -> list[str]:
    return [event["event"] for event in told(folder, "rpo")]


def judged(ground: Standby) -> list[bool]:
    records, _ = decode_records((ground.workdir().path / "journal").read_bytes())
    return [record.kept for record in records if isinstance(record, RpoJudged)]


def status(ground: Standby, held: bool = True) -> dict[str, Any]:
    facts = RunFacts(migration.status(ground.workdir()), "w", held, now=ground.clock.now())
    (shown,) = document_of(StatusDocument, facts)["standbys"]
    return dict(shown)


def status_of_location(ground: Standby) -> dict[str, Any]:
    facts = standby_now(standby_at(TARGET, ground.adapters), ground.adapters)
    return dict(document_of(StandbyDocument, facts))


@pytest.mark.row("W-22")
def test_a_source_with_nothing_new_loses_nothing_however_old_its_last_batch_is(
    tmp_path: Path,
) -> None:
    ground = kept(tmp_path, looks=1000)
    assert judged(ground) == [] and events(tmp_path) == []
    for shown in (status(ground), status_of_location(ground)):
        assert shown["rpo_seconds"] > BOUND
        assert (shown["rpo_batches"], shown["rpo_bound_seconds"]) == (0, BOUND)
        assert shown["rpo_bound_kept"]


@pytest.mark.row("W-22")
@pytest.mark.parametrize("lose", [gone, unreachable])
def test_a_source_that_is_lost_for_longer_is_told_once_and_by_no_resume_again(
    tmp_path: Path, lose: Act
) -> None:
    ground = kept(tmp_path, looks=1000, at_900=lose)
    assert judged(ground) == [False]
    for _ in range(2):
        ground.looks = 600
        with pytest.raises(Ended):
            ground.resume()
    assert judged(ground) == [False]
    (event,) = told(tmp_path, "rpo")
    assert event["event"] == "rpo-passed" and "epoch 11" in event["text"]
    assert sum("more than 40 s of its work" in line for line in ground.said) == 1
    for shown in (status(ground), status_of_location(ground)):
        assert (shown["rpo_batches"], shown["rpo_bound_kept"]) == (None, False)


@pytest.mark.row("W-22")
def test_it_is_told_once_that_the_bound_is_kept_again(tmp_path: Path) -> None:
    ground = kept(tmp_path, looks=1000, at_900=gone_for_a_while)
    ground.looks = 100
    put_back(ground)
    ground.job.batch()
    with pytest.raises(Ended):
        ground.resume()
    assert judged(ground) == [False, True]
    assert events(tmp_path) == ["rpo-passed", "rpo-kept"]
    assert status(ground) | {"epoch": 12, "rpo_batches": 0, "rpo_bound_kept": True} == status(
        ground
    )


def gone_for_a_while(ground: Standby) -> None:
    ground.saved = ground.disk.snapshot(SOURCE)  # type: ignore[attr-defined]
    gone(ground)


def put_back(ground: Standby) -> None:
    for path, content in ground.saved.items():  # type: ignore[attr-defined]
        put(ground.source, path, content)


def test_a_run_that_nobody_works_on_does_not_ask_its_source(tmp_path: Path) -> None:
    ground = kept(tmp_path)
    shown = status(ground, held=False)
    assert shown["rpo_batches"] is None and shown["rpo_bound_kept"]
    ground.clock.time += 100
    assert not status(ground, held=False)["rpo_bound_kept"]


def test_a_source_that_has_gone_on_is_told_by_its_batches(tmp_path: Path) -> None:
    ground = kept(tmp_path)
    for _ in range(3):
        ground.job.batch()
    assert status_of_location(ground)["rpo_batches"] == 3


def test_the_metrics_have_the_bound_and_whether_it_is_kept(tmp_path: Path) -> None:
    ground = kept(tmp_path, looks=1000, at_900=gone)
    progress = migration.progress_of(ground.workdir())
    run = ObservedRun("w", progress, migration.status(ground.workdir()), held=True)
    values = {each.name: each.samples[0].value for each in families([run], ground.clock.now())}
    assert values["stateshift_standby_rpo_bound_seconds"] == BOUND
    assert values["stateshift_standby_rpo_kept"] == 0


def test_inspect_shows_the_standby_and_a_state_file_that_is_damaged(tmp_path: Path) -> None:
    ground = kept(tmp_path)
    document = api.inspect(TARGET, adapters=ground.adapters).to_dict()
    shown = document["standby"]
    assert isinstance(shown, dict)
    assert (shown["role"], shown["epoch"], shown["rpo_bound_seconds"]) == ("standby", 11, BOUND)
    blocks = " ".join(map(str, inspection(api.inspect(TARGET, adapters=ground.adapters))))
    assert "can be started from epoch 11" in blocks and "bound (rpo)" in blocks
    ground.put(f"{TARGET}/{STATE}", b"{")
    damaged = api.inspect(TARGET, adapters=ground.adapters).to_dict()
    assert "standby" not in damaged and "state file of a standby" in str(damaged["warnings"])


@pytest.mark.parametrize(
    ("batches", "age", "is_kept"),
    [
        *((0, 1e9, True), (0, None, True), (3, 40, True), (3, 41, False)),
        *((None, 40, True), (None, 41, False), (None, None, False)),
    ],
)
def test_the_rule(batches: int | None, age: float | None, is_kept: bool) -> None:
    now = 1e10
    lag = StandbyLag("orders", 7, 0.0, None if age is None else now - age, batches, BOUND, now)
    assert lag.is_kept is is_kept


def test_a_bound_is_for_standbys_and_is_written_as_it_is_read() -> None:
    spec = running_spec(mode="warm", cutover="never", standby={"rpo": "5 min"})
    assert spec.jobs[0].standby.rpo == 300
    assert parse_spec(json.dumps(to_plain_spec(spec))) == spec
    for keys in ({}, {"mode": "warm"}, {"mode": "fork"}):
        with pytest.raises(SpecError) as caught:
            spec_of(**keys, standby={"rpo": "5 min"})
        assert any("never cut over" in each.message for each in caught.value.complaints)
    with pytest.raises(SpecError, match="no standby can keep to 0"):
        running_spec(mode="warm", cutover="never", standby={"rpo": 0})
