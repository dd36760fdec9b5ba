"""A run that is killed at any of its effects: the next ones go on, and move nothing twice.

Effects are the writes below the runs' folder (as Python's audit events tell), those on storages,
and what clusters are told. Killed means: that effect and all later ones of the run do not happen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

from stateshift.api.rebalancing.once import Run, rebalance_once
from stateshift.api.rebalancing.request import RebalanceRequest
from stateshift.api.requests import spec_of
from tests.advise.rebalance.clusters import FlinkClusters
from tests.contracts.faulty import Effects, Faulty, Killed
from tests.support.ground import Around

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
TOLD = ("savepoint", "submit", "stop", "checkpoint")


@dataclass
class Doom:
    """Counts effects, and kills at one of them; None never comes."""

    root: str
    at: int | None = None
    seen: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=Lock)

    def reach(self, label: str) -> None:
        with self.lock:
            self.seen.append(label)
            number = len(self.seen)
        if self.at is not None and number >= self.at:
            raise Killed

    @property
    def where(self) -> str:
        return "" if self.at is None or self.at > len(self.seen) else self.seen[self.at - 1]


_dooms: list[Doom] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook stays for good: it does nothing while nobody is doomed."""
    if not _dooms:
        return
    doom = _dooms[-1]
    match event:
        case "open" if arguments[2] & WRITING:
            path = arguments[0]
        case "os.rename":
            path = arguments[1]
        case "os.mkdir" | "os.remove":
            path = arguments[0]
        case _:
            return
    if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(doom.root):
        doom.reach(f"{event} {os.fspath(path).removeprefix(doom.root)}")


class Telling(Around):
    """A cluster that is told something: before it, and behind it."""

    def __init__(self, cluster: Any, doom: Doom) -> None:
        super().__init__(cluster)
        self._doom = doom

    def __getattr__(self, name: str) -> Any:
        value = super().__getattr__(name)
        if name not in TOLD:
            return value

        def tell(*arguments: Any) -> Any:
            self._doom.reach(f"before {name}")
            answer = value(*arguments)
            self._doom.reach(f"after {name}")
            return answer

        return tell


@contextmanager
def doomed(ground: FlinkClusters, at: int | None) -> Iterator[Doom]:
    doom = Doom(str(ground.state), at)
    effects = Effects(lambda moment: doom.reach(f"{moment.when} {moment.kind} {moment.path}"))
    ground.wrap = lambda storage: Faulty(storage, effects)
    ground.wrap_cluster = lambda cluster: Telling(cluster, doom)
    if not getattr(sys, "_doom_is_watched", False):
        sys.addaudithook(_hook)
        sys._doom_is_watched = True  # type: ignore[attr-defined]
    _dooms.append(doom)
    try:
        yield doom
    finally:
        _dooms.pop()
        ground.wrap = lambda storage: storage
        ground.wrap_cluster = lambda cluster: cluster


def run(ground: FlinkClusters, stop: Event | None = None) -> Run:
    """One run that acts, without a command line that catches what kills it."""
    adapters = replace(ground.adapters, stop=stop or Event())
    request = RebalanceRequest(
        spec_of(ground.write_spec()), str(ground.state), lambda: nullcontext(adapters)
    )
    done = rebalance_once(request, ground.adapters)
    ground.clock.time += 900
    return done


@contextmanager
def begin(folder: Path) -> Iterator[FlinkClusters]:
    ground = FlinkClusters(folder, section={"runs": 1})
    with ground.serving():
        yield ground


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The effects of a run that makes a move."""
    with begin(tmp_path_factory.mktemp("whole")) as ground, doomed(ground, None) as doom:
        assert run(ground).error is None
        assert ground.on("east") == ["orders"]
    return doom.seen


@pytest.fixture(scope="module")
def some(how: str, seed: int) -> Callable[[list[str]], list[int]]:
    """All of them with --full; else some, others with another seed."""
    every = {"full": 1, "default": 30, "quick": 80}[how]

    def chosen(seen: list[str]) -> list[int]:
        return list(range(1 + seed % every, len(seen) + 1, every))

    return chosen


@pytest.mark.long
@pytest.mark.row("IF-19", "W-12", on="Flink")
def test_a_run_that_is_killed_is_gone_on_with_and_moves_nothing_twice(
    effects: list[str],
    some: Callable[[list[str]], list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    labels = " ".join(effects)
    for told in ("moves/0001.json", "memory.json", "decisions/0001.json", "runs/0001-orders"):
        assert told in labels
    numbers = some(effects)
    assert numbers
    for number in numbers:
        check(tmp_path_factory.mktemp("killed"), number)


@pytest.mark.long
@pytest.mark.row("IF-19", "W-12", on="Flink")
def test_a_run_that_goes_on_may_be_killed_too(
    effects: list[str],
    some: Callable[[list[str]], list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for number in some(effects):
        check(tmp_path_factory.mktemp("twice"), number, again=1 + number * 7 % 45)


def test_a_run_that_is_interrupted_is_gone_on_with(tmp_path: Path) -> None:
    with begin(tmp_path) as ground:
        stop = Event()
        ground.wrap_cluster = lambda cluster: Stopping(cluster, stop)
        interrupted = run(ground, stop)
        assert interrupted.error is not None
        assert interrupted.error.exit_code == 130
        assert "stateshift resume" in str(interrupted.error.hint)
        ground.wrap_cluster = lambda cluster: cluster
        done = run(ground)
        assert [move.state for move in done.outcome.unfinished] == ["finished"]
        # It counts as one of this run's moves: the next one is a later run's.
        assert ground.on("east") == ["orders"]
        assert ground.submissions() == {"orders": 1}


class Stopping(Around):
    """A cluster during whose savepoint somebody presses Ctrl-C."""

    def __init__(self, cluster: Any, stop: Event) -> None:
        super().__init__(cluster)
        self._stop = stop

    def __getattr__(self, name: str) -> Any:
        if name == "savepoint":
            self._stop.set()
        return super().__getattr__(name)


def check(folder: Path, number: int, again: int | None = None) -> None:
    """Kill a run at an effect, and the next one at the effect `again`; three more, and all is as if
    nobody had killed them.
    """
    with begin(folder) as ground:
        with doomed(ground, number) as doom, pytest.raises(Killed):
            run(ground)
        where = f"killed at {number}: {doom.where}"
        if again is not None:
            with doomed(ground, again) as doom, suppress(Killed):
                run(ground)
            where += f", and at {again}: {doom.where}"
        outcomes = [run(ground) for _ in range(3)]
        assert not any(outcome.error for outcome in outcomes), where
        assert all(len(places) == 1 for places in ground.where().values()), where
        assert ground.on("east") == ["fraud", "orders"], where
        assert ground.submissions() == {"orders": 1, "fraud": 1}, where
        stays = [
            stay
            for outcome in outcomes
            if outcome.outcome.decision
            for stay in outcome.outcome.decision.stays
        ]
        assert not any("it runs" in stay.reason for stay in stays), where
