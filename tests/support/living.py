"""A job that runs on a disk in memory while somebody moves it: it commits batches, tidies up behind
itself, and may be taken back to an earlier batch by its owner. What its state is at each epoch is
known, so that an image can be judged.

    LivingJob       the job; `live` lets it do something at random
    LivingGround    a ground on which it is moved; it lives before each call of a storage

Every batch puts some keys of one operator; values tell the batch and how often the job had been
taken back by then.
"""

from __future__ import annotations

import functools
import random
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from stateshift.clusters.protocol import StopRequest, Submission
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.formats.spark import state_files
from stateshift.report import Report
from stateshift.specification import Spec
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_storage import MemoryDisk, MemoryStorage
from tests.support.checkpoints import COMMIT, Checkpoint, put
from tests.support.entries import entries
from tests.support.ground import SOURCE, TARGET, Around, Ground, running_spec

State = dict[bytes, bytes]

BATCHES_KEPT = 10  # spark.sql.streaming.minBatchesToRetain, which is 100


P = ParamSpec("P")


def _one_at_a_time(
    act: Callable[Concatenate[LivingJob, P], None],
) -> Callable[Concatenate[LivingJob, P], None]:
    """Whoever watches may do so from several threads."""

    @functools.wraps(act)
    def acted(job: LivingJob, *args: P.args, **keys: P.kwargs) -> None:
        with job.lock:
            act(job, *args, **keys)

    return acted


class LivingJob:
    def __init__(
        self, disk: MemoryDisk, location: str, dice: random.Random, shards: int = 2, keys: int = 6
    ) -> None:
        self.disk, self.location, self.dice, self.shards, self.keys = (
            disk,
            location,
            dice,
            shards,
            keys,
        )
        self.lock = threading.RLock()
        self.epoch, self.times_back = -1, 0
        self.running = True
        self.retained = 0  # so many batches it can go back to, as Spark; 0: hardly any
        self.moods = {"batch": 0.05, "tidy": 0.02, "back": 0.0}
        self.states: dict[int, list[State]] = {-1: [{} for _ in range(shards)]}
        self.ever: dict[
            int, list[State]
        ] = {}  # by epoch, also of times that it has gone back behind
        self.snapshots: set[int] = set()

    @property
    def storage(self) -> MemoryStorage:
        return self.disk.open(self.location)

    def moved_to(self, location: str) -> LivingJob:
        """The same job, started where its image is now."""
        other = LivingJob(self.disk, location, self.dice, self.shards, self.keys)
        other.epoch, other.states, other.times_back = self.epoch, dict(self.states), self.times_back
        return other

    @_one_at_a_time
    def live(self) -> None:
        if not self.running:
            return
        for mood, chance in self.moods.items():
            if self.dice.random() < chance:
                getattr(self, mood)()

    @_one_at_a_time
    def batch(self) -> None:
        number, storage = self.epoch + 1, self.storage
        shape = Checkpoint(shards=self.shards)
        if number == 0:
            put(storage, "metadata", shape.metadata())
        put(storage, f"offsets/{number}", shape.offsets(number))
        after = [dict(state) for state in self.states[self.epoch]]
        for shard in range(self.shards):
            records = list(self._records(number, shard))
            after[shard].update({record.key: record.value or b"" for record in records})
            put(
                storage,
                f"state/0/{shard}/{number + 1}.delta",
                b"".join(state_files.encode_delta(records)),
            )
        put(storage, f"commits/{number}", COMMIT)
        self.epoch, self.states[number] = number, after
        self.ever.setdefault(number, []).append(self.expected(number))

    @_one_at_a_time
    def tidy(self) -> None:
        """Spark's maintenance: a snapshot of the newest version, and what is older than the one
        before goes.
        """
        version, storage = self.epoch + 1, self.storage
        if version < 1 or version in self.snapshots:
            return
        for shard, state in enumerate(self.states[self.epoch]):
            records = [state_files.StateRecord(key, value) for key, value in state.items()]
            put(
                storage,
                f"state/0/{shard}/{version}.snapshot",
                b"".join(state_files.encode_delta(records)),
            )
        self.snapshots.add(version)
        keep = min(max((v for v in self.snapshots if v < version), default=0), version - 2)
        keep = min(keep, version - self.retained) if self.retained else keep
        for file in list(storage.list("state")):
            number = int(file.path.rpartition("/")[2].partition(".")[0])
            if number < keep:
                storage.remove(file.path)
        self.snapshots = {v for v in self.snapshots if v >= keep}
        for file in [*storage.list("commits"), *storage.list("offsets")]:
            if int(file.path.rpartition("/")[2]) < self.epoch - (self.retained or BATCHES_KEPT):
                storage.remove(file.path)

    @_one_at_a_time
    def back(self) -> None:
        """Its owner takes the job back by up to three batches."""
        lowest = max(min(self.snapshots, default=1), self.epoch - 3, 1) - 1
        if self.epoch > 0:
            self.back_to(self.dice.randint(min(lowest + 1, self.epoch), self.epoch))
        elif self.epoch == 0:
            self.back_to(0)

    @_one_at_a_time
    def back_to(self, epoch: int) -> None:
        """Its owner takes the job back to this batch, and it goes on from there with other input."""
        self.epoch, self.times_back = epoch, self.times_back + 1
        storage = self.storage
        for file in list(storage.list()):
            head, _, name = file.path.rpartition("/")
            stem = name.partition(".")[0]
            if stem.isdecimal():
                later = int(stem) > epoch + (1 if head.startswith("state") else 0)
                if later:
                    storage.remove(file.path)
        self.snapshots = {v for v in self.snapshots if v <= epoch + 1}

    def _records(self, batch: int, shard: int) -> Iterator[state_files.StateRecord]:
        for key in self.dice.sample(range(self.keys), 2):
            name = b"key-%02d-%04d" % (shard, key)
            value = batch.to_bytes(4, "little") + self.times_back.to_bytes(4, "little")
            yield state_files.StateRecord(name.ljust(16, b"\0"), value)

    def expected(self, epoch: int) -> State:
        return {key: value for state in self.states[epoch] for key, value in state.items()}


def state_at(storage: Storage) -> tuple[int | None, State]:
    """What Spark would restore there."""
    found = survey(storage)
    assert not [f for f in found.findings if f.level == "refuse"], found.findings
    (image,) = found.images
    refused = [f for f in image.findings if f.level == "refuse"]
    assert not refused, refused
    state = {
        e.key: e.value
        for shard in image.shards
        for e in entries(storage.chunks, shard, image.settings)
    }
    return image.epoch, state


def startable_by_spark(paths: Iterable[str]) -> str | None:
    """Why Spark would not start from these files, by its own rules alone
    (MicroBatchExecution.populateStartOffsets, HDFSBackedStateStoreProvider.loadMap).
    """
    there = set(paths)
    offsets, commits = (_numbers(there, folder) for folder in ("offsets", "commits"))
    newest, committed = max(offsets, default=-1), max(commits, default=-1)
    if "metadata" not in there or newest < 0:
        return "there is no query"
    if newest > 0 and newest - 1 not in offsets:
        return f"batch {newest - 1} doesn't exist"
    if committed not in (newest, newest - 1):
        return f"commit {committed} does not go with offsets {newest}"
    shards = {
        path.rpartition("/")[0]
        for path in there
        if path.startswith("state/0/") and path.endswith(".delta")
    }
    for shard in sorted(shards):
        fault = _not_loadable(there, shard, committed + 1)
        if fault is not None:
            return fault
    return None


def _numbers(paths: Iterable[str], folder: str) -> set[int]:
    own = (path.removeprefix(f"{folder}/") for path in paths if path.startswith(f"{folder}/"))
    return {int(name) for name in own if name.isdecimal()}


def _not_loadable(paths: set[str], shard: str, version: int) -> str | None:
    """The change file that is missing between the newest snapshot and a version of a shard's
    state.
    """
    for number in range(version, 0, -1):
        if f"{shard}/{number}.snapshot" in paths:
            return None
        if f"{shard}/{number}.delta" not in paths:
            return f"{shard}/{number}.delta does not exist"
    return None


LATER_OFFSETS = re.compile(
    r"a job continues after batch (\d+) once the offsets of later batches are moved away"
)


def state_of_standby(storage: Storage) -> tuple[int | None, State]:
    """What Spark would restore there, at worst after doing what the hint says: while a round's logs
    appear, the newest offsets are there and those before them are not yet.
    """
    found = survey(storage)
    (image,) = found.images
    refused = [finding for finding in image.findings if finding.level == "refuse"]
    hints = {LATER_OFFSETS.fullmatch(finding.hint or "") for finding in refused}
    if not refused:
        return state_at(storage)
    (hint,) = hints
    assert hint is not None, refused
    copy = MemoryDisk().open("memory:///standby")
    for file in storage.list():
        folder, _, name = file.path.rpartition("/")
        number = name.lstrip(".").removesuffix(".crc")
        if folder == "offsets" and int(number) > int(hint[1]):
            continue
        put(copy, file.path, storage.read(file.path))
    epoch, state = state_at(copy)
    assert epoch == int(hint[1])
    return epoch, state


class Watched(Around):
    """Before every call, or each of these, the job does what it likes."""

    def __init__(self, storage: Storage, job: Any, calls: Collection[str] = ()) -> None:
        super().__init__(storage)
        self._job, self._calls = job, calls

    def __getattr__(self, name: str) -> Any:
        if not self._calls or name in self._calls:
            self._job.live()
        return super().__getattr__(name)


class LivingGround(Ground):
    """A job that lives while it is moved, and goes on where it is started."""

    def __init__(self, folder: Path, seed: int = 1, batches: int = 12) -> None:
        super().__init__(folder)
        self.job = LivingJob(self.disk, SOURCE, random.Random(seed))
        for _ in range(batches):
            self.job.batch()
        self.clock.time += 600
        self.cluster.run("orders", SOURCE)
        self.cluster._on_stop = self._stop
        self.cluster._on_start = self._start
        self.wrap = self._wrap
        self.there: LivingJob | None = None

    def _wrap(self, storage: Storage) -> Storage:
        return Watched(storage, self.job)  # type: ignore[return-value]

    def _stop(self, request: StopRequest) -> None:
        if request.location == SOURCE:
            self.job.batch()  # the one that it was in
            self.job.running = False

    def _start(self, submission: Submission) -> None:
        if submission.location == TARGET:
            epoch, state = state_at(self.target)
            assert epoch == self.job.epoch
            assert state == self.job.expected(epoch), "what was brought over is not the job's state"
            self.there = self.job.moved_to(TARGET)
            self.there.batch()
        else:
            self.job.running = True

    def warm(self, **keys: object) -> Report:
        return self.apply(warm_spec(**keys))


def warm_spec(**keys: object) -> Spec:
    return running_spec(mode="warm", **keys)
