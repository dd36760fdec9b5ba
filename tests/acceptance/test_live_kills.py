"""A driver, a Python worker or a controller that is killed at any effect of a replacement leaves
each batch with the version that it was sealed with, and the job going.

Effects are files in the group's folder, in the order in which they appear: the code, the proposal,
each worker's word, the decision, the batch's seal, the workers' words that they run it, and the
seals of later batches. STATESHIFT_LIVE_KILLS says how many runs; 30 are each of the three victims
at each of the first ten effects.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.acceptance.living import Living, running
from tests.acceptance.support import JOBS, environment
from tests.acceptance.test_live import assert_as_sealed, replacing

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.row("F-17", "T-2")]

RUNS = int(os.environ.get("STATESHIFT_LIVE_KILLS", "6"))
VICTIMS = ("driver", "worker", "controller")
EFFECTS = 10
ARROW_SECONDS = 0.02  # of each of ten: a batch is under way most of the time
TIMEOUT_SECONDS = 8.0
SECONDS_MAX = 120.0
POLL_SECONDS = 0.0005


def test_every_batch_has_the_version_of_its_seal_whoever_is_killed_when(tmp_path: Path) -> None:
    with running(tmp_path, "arrow") as job:
        for number, (victim, effect) in enumerate(kills(RUNS)):
            kill = Kill(job, victim, effect, number)
            kill.run()
            print(f"{victim} killed at effect {effect}: {kill.became}", flush=True)
        job.change("arrow", replacing(RUNS + 1), gives=RUNS + 1)
        job.until_batches("arrow", 2)
    assert_as_sealed(job)


def kills(runs: int) -> list[tuple[str, int]]:
    """Which victim is killed at which effect: of few runs spread over all effects."""
    every = [(victim, effect + 1) for effect in range(EFFECTS) for victim in VICTIMS]
    step = max(1, len(every) // runs)
    step += step % 3 == 0 and runs < len(every)  # not always the same victim
    return [every[number * step % len(every)] for number in range(runs)]


@dataclass
class Kill:
    """One replacement, and who is killed at which effect of it."""

    job: Living
    victim: str
    effect: int
    number: int
    became: str = "not proposed"

    def run(self) -> None:
        change = self._next_change()
        self.job.gives[change] = self.number + 1
        before = self._files(change)
        workers = self.job.workers
        controller = self._controller()
        seen = self._seen(change, before)
        self._kill(controller, workers)
        assert seen >= self.effect, "there are so many effects of a replacement"
        if self.victim == "driver":
            self.job.start()
        self.job.until_batches("arrow", 1)
        if self.victim == "controller":
            self._until_decided(change)
        else:
            controller.wait(SECONDS_MAX)
        decided = self._change(change) / "decided.json"
        if decided.exists():
            self.became = json.loads(decided.read_text())["outcome"]

    def _controller(self) -> subprocess.Popen[bytes]:
        words = (self.job.location("arrow"), str(self.number + 1), str(ARROW_SECONDS))
        log = self.job.folder / f"controller-{self.number}.log"
        with log.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, str(JOBS / "live_change.py"), *words, str(TIMEOUT_SECONDS)],
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def _seen(self, change: int, before: set[str]) -> int:
        """Wait for the effect, and return how many there are."""
        until = time.monotonic() + SECONDS_MAX
        while True:
            seen = len(self._files(change) - before)
            if seen >= self.effect or time.monotonic() > until:
                return seen
            time.sleep(POLL_SECONDS)

    def _kill(self, controller: subprocess.Popen[bytes], workers: list[int]) -> None:
        match self.victim:
            case "driver":
                self.job.kill()
            case "worker":
                assert workers, "there are workers"
                with suppress(ProcessLookupError):
                    os.kill(workers[self.number % len(workers)], signal.SIGKILL)
            case _:
                controller.kill()
                controller.wait()

    def _until_decided(self, change: int) -> None:
        """What a dead controller has proposed is decided by the job, once its time is over."""
        if (self._change(change) / "proposed.json").exists():
            decided = self._change(change) / "decided.json"
            self.job.wait(decided.exists, "nobody decides for a dead controller")

    # ---------------------------------------------------------------- the group's folder

    @property
    def _group(self) -> Path:
        return Path(self.job.location("arrow"))

    def _change(self, change: int) -> Path:
        return self._group / "changes" / f"{change:06}"

    def _next_change(self) -> int:
        return len(list((self._group / "changes").glob("*/proposed.json"))) + 1

    def _files(self, change: int) -> set[str]:
        """The files of a replacement so far: its code, all about it, and seals that count it."""
        found = {*_names(self._group / "code"), *_names(self._change(change))}
        found |= _names(self._change(change) / "words")
        decided = self._change(change) / "decided.json"
        if decided.exists():
            since = decided.stat().st_mtime
            for query in _directories(self._group / "batches"):
                found |= {name for name in _names(query) if (query / name).stat().st_mtime > since}
        return found


def _names(folder: Path) -> set[str]:
    """The files in a folder that are whole: those that are being written have hidden names."""
    try:
        with os.scandir(folder) as entries:
            return {
                entry.name
                for entry in entries
                if entry.is_file() and not entry.name.startswith(".")
            }
    except FileNotFoundError:
        return set()


def _directories(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir()] if folder.exists() else []
