"""Random histories of one copy: its source vanishes, comes back, is emptied, damaged, replaced by
another query or an older batch; jobs go on at either side; whoever works on it is killed, resumed,
taken back. Whatever happens: no command makes the image at the target worse, and none deletes it
while the source has no image that could take its place; without a flag that says so.

Reproducible by the seed that is printed: STATESHIFT_SEED=N. 300 histories by default, 10,000 with
`--full`.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stateshift import migration
from stateshift.clusters.protocol import StopRequest, Submission
from stateshift.errors import StateshiftError, StorageError
from stateshift.report import Report
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import ProcessGone
from tests.contracts.faulty import Killed
from tests.support.checkpoints import COMMIT, Checkpoint, put
from tests.support.ground import SOURCE, TARGET, Ground, running_spec
from tests.support.living import LivingJob, state_at

HISTORIES = {"quick": 60, "default": 300, "full": 10_000}
PARTS = 5  # for as many processes as there are
OTHER = "99999999-2222-3333-4444-555555555555"
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
LOOKS = 6  # of a standby, before its process ends


class Walk:
    """One job, its copy, and everything that may happen to both."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.dice, self.ground = dice, Ground(folder)
        self.job = LivingJob(self.ground.disk, SOURCE, dice, shards=1, keys=2)
        self.job.retained = 100
        for _ in range(3):
            self.job.batch()
        self.ground.clock.time += 600
        self.ground.clock.sleep = self._sleep  # type: ignore[method-assign]
        self.ground.wrap = self._wrap
        self.ground.cluster._on_stop = self._stopped
        self.ground.cluster._on_start = self._started
        self.ground.cluster.run("orders", SOURCE)
        self.away, self.calls_left, self.looks = False, -1, 0
        self.saved: dict[str, bytes] = {}
        self.there: LivingJob | None = None
        self.kind = dice.choice(("standby", "standby", "standby", "warm", "move", "fork"))
        self.told: list[str] = [self.kind]
        self.allowed = False  # somebody has said that what is at the target may go
        self.counts: Counter[str] = Counter()
        self.seen: dict[tuple[str, int], int | None] = {}

    # -- the machine

    def _sleep(self, seconds: float) -> None:
        self.ground.clock.time += max(seconds, 1.0)
        self.looks -= 1
        if self.looks < 0:
            raise Killed
        if self.job.running and self.dice.random() < 0.2:
            self.job.batch()

    def _wrap(self, storage: Storage) -> Storage:
        walk = self

        class Watched:
            def __getattr__(self, name: str) -> Any:
                act = getattr(storage, name)
                if not callable(act):
                    return act

                def called(*arguments: Any) -> Any:
                    walk.calls_left -= 1
                    if walk.calls_left == 0:
                        walk.ground.disk.kill()
                        raise Killed
                    if walk.away and storage.location.startswith(SOURCE):
                        raise StorageError("no answer", location=storage.location)
                    return act(*arguments)

                return called

        return Watched()  # type: ignore[return-value]

    def _stopped(self, request: StopRequest) -> None:
        if request.location == SOURCE:
            self.job.running = False
        elif self.there is not None:
            self.there.running = False

    def _started(self, submission: Submission) -> None:
        if submission.location == TARGET:
            self.go_on_there()
        else:
            self.job.running = bool(self.image(SOURCE))

    # -- what is there

    def image(self, location: str) -> int | None:
        """The epoch that a job could start from there, if that is a state that this job once had."""
        held = self.ground.held(location)
        key = (location, hash(tuple(held.items())))
        if key not in self.seen:
            self.seen[key] = self._image(location, held)
        return self.seen[key]

    def _image(self, location: str, held: dict[str, bytes]) -> int | None:
        if "metadata" not in held or OTHER.encode() in held["metadata"]:
            return None
        try:
            epoch, state = state_at(self.ground.disk.open(location))
        except (AssertionError, StateshiftError, ValueError):
            return None
        known = [*self.job.ever.get(epoch if epoch is not None else -1, [])]
        if self.there is not None and epoch is not None:
            known += self.there.ever.get(epoch, [])
        return epoch if state in known else None

    # -- what happens to the source

    def vanish(self) -> None:
        held = self.ground.disk.snapshot(SOURCE)
        if self.image(SOURCE) is not None:
            self.saved = held
        self.empty()

    def empty(self) -> None:
        source = self.ground.disk.open(SOURCE)
        for file in list(source.list()):
            source.remove(file.path)
        self.job.running = False

    def come_back(self) -> None:
        self.away = False
        if not self.saved or self.image(SOURCE) is not None:
            return
        self.empty()
        source = self.ground.disk.open(SOURCE)
        for path, content in self.saved.items():
            put(source, path, content)
        self.job.epoch = self.image(SOURCE) or 0
        self.job.running = self.dice.random() < 0.7

    def replace(self) -> None:
        self.vanish()
        batches = self.dice.randint(1, 12)
        Checkpoint(batches=batches, query=OTHER).write(self.ground.disk.open(SOURCE))

    def go_back(self) -> None:
        if self.image(SOURCE) is not None and self.job.epoch > 1:
            self.job.back_to(self.dice.randint(1, self.job.epoch))

    def damage(self) -> None:
        files = [file.path for file in self.ground.disk.open(SOURCE).list("state/0")]
        if files and self.image(SOURCE) is not None:
            self.saved = self.ground.disk.snapshot(SOURCE)
            put(self.ground.disk.open(SOURCE), self.dice.choice(files), b"damaged")
            self.job.running = False

    def tear(self) -> None:
        files = [file.path for file in self.ground.disk.open(SOURCE).list()]
        if files and self.image(SOURCE) is not None:
            self.saved = self.ground.disk.snapshot(SOURCE)
            for path in self.dice.sample(files, (len(files) + 1) // 2):
                self.ground.disk.open(SOURCE).remove(path)
            self.job.running = False

    def stop_answering(self) -> None:
        self.away = True

    def batch(self) -> None:
        if self.image(SOURCE) is not None and not self._fenced():
            self.job.batch()

    def _fenced(self) -> bool:
        held = self.ground.held(SOURCE)
        return held.get(f"commits/{self.job.epoch + 1}", COMMIT) != COMMIT

    def go_on_there(self) -> None:
        epoch = self.image(TARGET)
        if epoch is None:
            return
        there = self.there or self.job.moved_to(TARGET)
        if self.there is None:
            there.epoch = epoch
        self.there = there
        there.batch()

    # -- what is asked of the program

    def command(self, name: str, act: Callable[[], Report], flags: bool = False) -> None:
        """Hold what a command has done against what must hold."""
        before, source_before = self.image(TARGET), self.image(SOURCE)
        source_before = None if self.away else source_before
        self.looks = LOOKS
        self.calls_left = self.dice.randint(1, 400) if self.dice.random() < 0.4 else -1
        outcome = "done"
        try:
            act()
        except StateshiftError as error:
            outcome = f"exit {error.exit_code}: {error.fact}"
            assert "--discard-last-copy" not in (error.hint or "")
            self.counts[f"{name} exit {error.exit_code}"] += 1
        except (Killed, ProcessGone):
            outcome = "killed"
        self.calls_left = -1
        after, source = self.image(TARGET), None if self.away else self.image(SOURCE)
        self.told.append(
            f"{name}: {outcome}: {before} -> {after} (source {source_before}, {source})"
        )
        self.counts[name] += 1
        if flags or self.allowed or before is None:
            return
        if after is None:
            self.counts["copy removed"] += 1
            assert source is not None and source >= min(before, source_before or 0), "the last copy"
            assert self.there is None or self.there.epoch < 0 or not self._has_gone_on(before)
        else:
            assert after >= before, "a worse image"

    def _has_gone_on(self, epoch: int) -> bool:
        return self.there is not None and self.there.epoch == epoch

    def apply(self) -> None:
        keys: dict[str, object] = {
            "mode": "warm" if self.kind in ("standby", "warm") else self.kind
        }
        if self.kind == "standby":
            keys["cutover"] = "never"
        self.command("apply", lambda: self.ground.apply(running_spec(**keys)))

    def resume(self) -> None:
        self.command("resume", self.ground.resume)

    def rollback(self) -> None:
        flags = self.dice.random()
        progress, last = flags < 0.15, flags < 0.05
        self.allowed |= progress  # a rollback that is killed goes on with it
        self.command(
            "rollback",
            lambda: migration.rollback(
                self.ground.workdir(), self.ground.adapters, progress, discard_last_copy=last
            ),
            flags=self.allowed,
        )

    def cutover(self) -> None:
        self.ground.workdir().steering.ask_cutover(True)
        self.resume()

    def status(self) -> None:
        if not self.ground.workdir().exists:
            return
        before = self.ground.disk.snapshot()
        report = migration.status(self.ground.workdir())
        assert self.ground.disk.snapshot() == before
        for job in report.jobs:
            assert job.source_lost is None or job.source_lost.reason


SOURCES = (
    "vanish", "empty", "come_back", "come_back", "replace", "go_back", "damage", "tear",
    "stop_answering", "batch", "batch", "go_on_there",
)  # fmt: skip
COMMANDS = ("resume", "resume", "resume", "rollback", "rollback", "cutover", "status")


def history(folder: Path, seed: int) -> Walk:
    walk = Walk(folder, random.Random(seed))
    try:
        walk.apply()
        for _ in range(walk.dice.randint(1, 3)):
            event = walk.dice.choice(SOURCES)
            walk.told.append(event)
            getattr(walk, event)()
            walk.counts[event] += 1
            getattr(walk, walk.dice.choice(COMMANDS))()
    except BaseException as error:
        error.add_note("\n".join((f"seed {seed}", *walk.told)))
        raise
    return walk


@pytest.mark.every_case
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_command_deletes_the_last_copy_or_makes_it_worse(part: int, how: str, seed: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(part, HISTORIES[how], PARTS):
        with tempfile.TemporaryDirectory(prefix="stateshift-history-", dir=MEMORY) as folder:
            counts += history(Path(folder), seed * 100_000 + number).counts
    print("\n".join(f"{count:7,} {what}" for what, count in counts.most_common()))
    assert how == "quick" or (counts["copy removed"] and counts["rollback exit 4"])
