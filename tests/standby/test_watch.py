"""`failover --watch`: the primary of a failover is fenced as soon as it answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stateshift.api.failovers import PAUSE_SECONDS_MAX, follow_primaries
from stateshift.documents.standby import FencedFacts
from stateshift.engines.spark.engine import ENGINE
from stateshift.errors import PlanError, StateshiftError, StorageError
from stateshift.formats.marks import fence_owner
from stateshift.formats.standby import STATE
from tests.cli.support import said as said_by
from tests.migration.test_last_copy import gone, standby, unreachable
from tests.migration.test_warm import Standby
from tests.standby.test_failover import fail_over, nothing, refuse
from tests.support.ground import SOURCE, TARGET


def failed_over(folder: Path) -> Standby:
    """A standby whose job runs there; its primary gives no answer, and remembers `answer`."""
    ground = standby(folder, nothing)
    ground.job.running = False
    fail_over(ground)
    ground.answer = ground.wrap  # type: ignore[attr-defined]
    ground.find = ground.cluster.find_source  # type: ignore[attr-defined]
    unreachable(ground)
    ground.cluster.find_source = refuse  # type: ignore[method-assign]
    ground.clock.waits.clear()
    return ground


def follow_primary(place: str, *arguments: Any, **keys: Any) -> FencedFacts:
    (fenced,) = follow_primaries([place], *arguments, **keys)
    return fenced


def answers_after(ground: Standby, waits: int) -> None:
    def sleep() -> None:
        if len(ground.clock.waits) == waits:
            ground.wrap = ground.answer  # type: ignore[attr-defined]
            ground.cluster.find_source = ground.find  # type: ignore[attr-defined, method-assign]

    ground.clock.on_sleep = sleep


@pytest.mark.row("W-22")
def test_it_waits_ever_longer_until_the_primary_answers_and_fences_it(tmp_path: Path) -> None:
    ground, said = failed_over(tmp_path), list[str]()
    answers_after(ground, 8)
    fenced = follow_primary(TARGET, ground.adapters, said.append).evidence
    assert fenced.cannot_go_on and f"commits/{ground.job.epoch + 1}" in fenced.paths
    waits = [wait for wait in ground.clock.waits if wait >= 1.0]
    assert waits == [1, 2, 4, 8, 16, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX, PAUSE_SECONDS_MAX]
    assert len(said) == 1 and "still cannot be kept from going on" in said[0]
    owners = set(filter(None, map(fence_owner, ground.held(SOURCE).values())))
    assert owners == {"run-failover"}
    ground.clock.waits.clear()
    assert follow_primary(TARGET, ground.adapters).evidence.cannot_go_on
    assert not ground.clock.waits, "it is fenced already"


def test_it_gives_up_after_its_time(tmp_path: Path) -> None:
    ground = failed_over(tmp_path)
    began = ground.clock.time
    with pytest.raises(StorageError, match="still cannot be kept"):
        follow_primary(TARGET, ground.adapters, seconds_max=60)
    assert 30 <= ground.clock.time - began <= 60


@pytest.mark.row("W-22")
def test_a_standby_that_was_not_failed_over_is_refused_with_the_way_out(tmp_path: Path) -> None:
    ground = standby(tmp_path, gone)
    before = ground.disk.snapshot()
    with pytest.raises(PlanError) as caught:
        follow_primary(TARGET, ground.adapters)
    assert f"stateshift failover {TARGET}" in (caught.value.hint or "")
    assert ground.disk.snapshot() == before


def test_a_failover_that_is_not_finished_is_waited_for(tmp_path: Path) -> None:
    ground, said = standby(tmp_path, nothing), list[str]()
    ground.job.running = False
    submit = ground.cluster.submit
    ground.cluster.submit = refuse  # type: ignore[assignment]
    with pytest.raises(StateshiftError):
        fail_over(ground)
    ground.cluster.submit = submit  # type: ignore[method-assign]
    ground.clock.waits.clear()
    resumed = [False]

    def sleep() -> None:
        if len(ground.clock.waits) == 3 and not resumed[0]:
            resumed[0] = True
            ground.resume("failover")

    ground.clock.on_sleep = sleep
    assert follow_primary(TARGET, ground.adapters, said.append).evidence.cannot_go_on
    assert resumed[0] and len(said) == 1


def test_nothing_is_waited_for_where_nothing_could_fence_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a job of Flink whose cluster nobody has named."""
    ground = standby(tmp_path, nothing)
    ground.job.running = False
    state = json.loads(ground.target.read(STATE))
    del state["spec"]["jobs"][0]["takes_over"]["cluster"]
    ground.put(f"{TARGET}/{STATE}", json.dumps(state).encode())
    fail_over(ground)
    monkeypatch.setattr(type(ENGINE), "fence_paths", lambda *_: None)
    ground.clock.waits.clear()
    with pytest.raises(PlanError, match="nothing keeps the primary"):
        follow_primary(TARGET, ground.adapters)
    assert not ground.clock.waits


def test_the_command_can_be_interrupted_and_goes_on(tmp_path: Path) -> None:
    ground = failed_over(tmp_path)

    def interrupt() -> None:
        raise KeyboardInterrupt

    ground.clock.on_sleep = interrupt
    words = ("failover", TARGET, "--watch")
    stopped = said_by(*words, adapters=ground.adapters)
    assert stopped.code == 130 and "not fenced yet" in stopped.err
    ground.clock.waits.clear()
    answers_after(ground, 1)
    done = said_by(*words, "--json", adapters=ground.adapters)
    assert done.code == 0 and done.document["fenced"]


@pytest.mark.parametrize("words", [("--timeout", "60s"), ("--watch", "--primary-is-down")])
def test_options_that_say_nothing_together_are_refused(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert said_by("failover", TARGET, *words, adapters=failed_over(tmp_path).adapters).code == 2
