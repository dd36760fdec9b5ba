"""Moves between two real processes, of which one, or the controller, is killed at one of its effects.

    round_of(number)   one move: which process dies, and at which of its effects, is in the number

No Spark: a worker is handed its batches as Spark does it. The end of a batch is written down before
it begins, and after a crash the last one is done again if it was not committed.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stateshift import live
from stateshift.errors import PlanError
from stateshift.live.bins.worker import Delivery
from tests.kill.moments import Moment, Moments, watch
from tests.live.bins.workers import BINS, alone, count_and_ask, table_of

VICTIMS = ("giver", "taker", "controller")
NAMES = {"giver": "west", "taker": "east"}
STRATEGIES = ("all-at-once", "batched(2)", "warm", "fluid")
EFFECTS = {"giver": 60, "taker": 60, "controller": 50}  # of a move, about so many
SECOND_MAX = 12  # effects of who has started again, until it is killed again
RATE = 300  # rows a second
KEYS = 30
SECONDS_MAX = 180.0
HALF = range(BINS // 2)

Fork = multiprocessing.get_context("fork")


class Armed(Moments):
    """Effects that are counted from when a move is proposed."""

    def __init__(self, at: int, then: Callable[[Moment], None], proposed: Path) -> None:
        super().__init__(at, then)
        self._proposed = proposed
        self._is_armed = False

    def reach(self, label: str) -> None:
        self._is_armed = self._is_armed or self._proposed.exists()
        if self._is_armed:
            super().reach(label)


def round_of(number: int) -> dict[str, Any]:
    """Carry a move out, kill, and return what came of it. A move that has fewer effects is carried
    out again, with an earlier kill.
    """
    victim, turn = VICTIMS[number % 3], number // 3
    chance = random.Random(f"kills {number}")
    share = EFFECTS[victim] / 17
    kills = [1 + round(turn * share) + chance.randrange(max(1, round(share)))]
    if turn % 2:
        kills.append(chance.randrange(1, SECOND_MAX))
    while True:
        with tempfile.TemporaryDirectory(prefix="live-kills-") as folder:
            story = Story(Path(folder), victim, list(kills), STRATEGIES[turn % len(STRATEGIES)])
            try:
                came = story.tell()
            finally:
                story.end()
        if not story.kills or not came["ok"]:
            return {"victim": victim, "strategy": story.strategy, **came}
        kills = [max(1, kill // 2) for kill in kills]


@dataclass
class Story:
    """A group's folder, two workers, a move, and who is killed at which of its effects."""

    folder: Path
    victim: str
    kills: list[int]
    strategy: str
    processes: dict[str, Any] = field(default_factory=dict)
    died: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.time)  # when the first row was due

    @property
    def group(self) -> Path:
        return self.folder / "group"

    def tell(self) -> dict[str, Any]:
        for name in NAMES.values():
            (self.folder / name).mkdir()
            self._start(name)
        self._until(self._have_read)
        self._start("controller")
        self._until(lambda: (self.folder / "moved").exists())
        end = int((time.time() - self.began) * RATE) + RATE // 2
        _write(self.folder / "end", str(end))
        self._until(lambda: all((self.folder / name / "done").exists() for name in NAMES.values()))
        wanted, found = alone(count_and_ask, end, KEYS), self._put_out()
        wrong = sum(left != right for left, right in zip(wanted, found, strict=False))
        return {
            "effects": self.died,
            "rows": len(wanted),
            "wrong": wrong + abs(len(wanted) - len(found)),
            "ok": wanted == found and not list(self.folder.glob("*/other-*")),
            "seconds": round(time.time() - self.began, 1),
        }

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()

    # ---------------------------------------------------------------- processes

    def _start(self, name: str) -> None:
        is_victim = name == NAMES.get(self.victim, "controller")
        at = self.kills[0] if is_victim and self.kills else None
        if name == "controller":
            process = Fork.Process(target=self._move, args=(at,))
        else:
            process = Fork.Process(target=self._work, args=(name, at))
        process.start()
        self.processes[name] = process

    def _until(self, done: Callable[[], bool]) -> None:
        """Wait, and start again who has died."""
        until = time.time() + SECONDS_MAX
        while not done():
            for name, process in list(self.processes.items()):
                if process.exitcode is None or process.exitcode == 0:
                    continue
                if process.exitcode == -signal.SIGKILL:
                    died = self.folder / f"died-{name}"
                    self.died.append(died.read_text())
                    self.kills.pop(0)
                elif name != "controller":
                    raise SystemExit(f"{name} has ended with {process.exitcode}")
                self._start(name)
            if time.time() > until:
                raise SystemExit(f"{self.victim}, {self.strategy}: nothing goes on")
            time.sleep(0.01)

    def _have_read(self) -> bool:
        commits = self.group / "bins" / "states" / "count_and_ask"
        return all(len(list(commits.glob(f"{name}/commits/*"))) > 2 for name in NAMES.values())

    def _doom(self, name: str, at: int | None) -> None:
        """Let this process kill itself before so many effects more."""
        if at is None:
            return

        def die(moment: Moment) -> None:
            _write(self.folder / f"died-{name}", moment.label)
            os.kill(os.getpid(), signal.SIGKILL)

        proposed = self.group / "bins" / "moves" / "000000" / "proposed.json"
        moments = Moments(at, die) if name == "controller" else Armed(at, die, proposed)
        watch(moments, str(self.group))

    # ---------------------------------------------------------------- in the processes

    def _move(self, at: int | None) -> None:
        """Carry the move, or what is left of it."""
        self._doom("controller", at)
        controller = live.Controller(str(self.group))
        manner = live.MoveManner(lead_seconds=0.3, timeout_seconds=4.0, wait_seconds=30.0)
        try:
            moved = controller.move(HALF, to="east", strategy=self.strategy, manner=manner)
        except PlanError:
            raise SystemExit(3) from None
        if moved.state != "finished":
            raise SystemExit(3)
        _write(self.folder / "moved", "moved")

    def _work(self, name: str, at: int | None) -> None:
        """Read what is due, batch by batch, until the end."""
        self._doom(name, at)
        place = self.folder / name
        output = Output(place)
        worker = live.Worker(str(self.group), name, count_and_ask, output=output, first=("west",))
        last = worker.running.ledger.last
        batch = 0 if last is None or last.batch is None else last.batch + 1
        while not self._is_done(worker, batch):
            first = int((place / f"{batch - 1}").read_text()) if batch else 0
            until = self._end_of(place / str(batch))
            if until > first:
                _write(place / str(batch), str(until))
                numbers = list(range(first, until))
                random.Random(until).shuffle(numbers)
                with worker._work():
                    worker.step(table_of(numbers, KEYS), batch, "query")
                batch += 1
            time.sleep(0.02)
        worker.stop()
        _write(place / "done", "done")

    def _end_of(self, planned: Path) -> int:
        """Return up to which row a batch goes: as it was planned before a crash, or what is due."""
        with suppress(FileNotFoundError):
            return int(planned.read_text())
        due = int((time.time() - self.began) * RATE)
        with suppress(FileNotFoundError):
            return min(due, int((self.folder / "end").read_text()))
        return due

    def _is_done(self, worker: live.Worker, batch: int) -> bool:
        """Whether all is read, and nothing is awaited or on its way out."""
        if batch == 0 or not (self.folder / "end").exists():
            return False
        read_to = int((self.folder / worker.name / f"{batch - 1}").read_text())
        ledger = worker.running.ledger
        is_awaiting = any(held.since is not None for held in ledger.held.values())
        end = int((self.folder / "end").read_text())
        return read_to >= end and not is_awaiting and not ledger.undelivered

    def _put_out(self) -> list[tuple[int, ...]]:
        rows: list[tuple[int, ...]] = []
        for file in self.folder.glob("*/out-*"):
            rows += [tuple(row) for row in json.loads(file.read_text())]
        return sorted(rows)


class Output:
    """A sink that takes each number once, and keeps another content of one as what is wrong."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __call__(self, delivery: Delivery) -> None:
        columns = delivery.table.to_pydict().values()
        content = json.dumps(list(zip(*columns, strict=True)))
        file = self.place / f"out-{delivery.number}"
        if file.exists() and file.read_text() != content:
            _write(self.place / f"other-{delivery.number}", content)
        _write(file, content)


def _write(path: Path, content: str) -> None:
    """Write a file whole."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(content)
    new.replace(path)
