"""Whatever happens to a source between two rounds: its standby can be started from what it was, or
from something later, says since when it is behind and why, and goes on by itself once the source is
right again. Real checkpoints, of both of Spark's providers and of Flink, that grow batch by batch on
a disk in memory.

    Place    where the image is that is followed: `at(n)` are its files once epoch n is committed
    EVENTS   what happens to it, and the words by which the standby says so
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from stateshift import look, migration
from stateshift.formats.marks import fence_text
from stateshift.formats.spark.names import classify, described_file
from stateshift.report import Report
from stateshift.specification import Spec
from stateshift.storage.protocol import Storage
from stateshift.testing.memory_flink import MemoryFlink
from stateshift.testing.memory_storage import MemoryDisk
from tests.migration.test_last_copy import Away
from tests.migration.test_warm import Ended, Standby
from tests.support.checkpoints import put
from tests.support.ground import SOURCE, TARGET, Ground, running_spec
from tests.support.living_flink import LivingFlinkJob, warm_spec

Files = Mapping[str, bytes]
GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SPARK = ("window-hdfs", "window-rocksdb", "window-rocksdb-changelog", "window-rocksdb-format2")
FLINK = ("count-checkpoint-incremental", "kinds-checkpoint-incremental")
FIRST, LATER, LAST = 2, 3, 4  # what is kept first; what the event is about; what comes after it


class Place(Protocol):
    """Where the image is that is followed."""

    folder: str

    def at(self, epoch: int) -> Files:
        """Return what is there once this epoch is committed."""
        ...

    def other(self) -> Files:
        """Return the image of another job, at a later epoch."""
        ...

    def newest_state(self, epoch: int) -> str:
        """Return the path of state that this epoch alone has written."""
        ...


class SparkPlace:
    """A checkpoint of Spark 4.3 as it was after each of its batches."""

    def __init__(self, disk: MemoryDisk, name: str) -> None:
        self.folder = SOURCE
        self._files = _read(GOLDEN / "spark-4.3.0" / name / "checkpoint")

    def at(self, epoch: int) -> Files:
        return {path: content for path, content in self._files.items() if _is_by(path, epoch)}

    def other(self) -> Files:
        files = _read(GOLDEN / "spark-4.3.0" / "dedup-rocksdb-checksum" / "checkpoint")
        return dict(files)

    def newest_state(self, epoch: int) -> str:
        new = self.at(epoch).keys() - self.at(epoch - 1).keys()
        state = [path for path in new if path.startswith("state/0/")]
        endings = (".delta", ".changelog", ".zip")
        named = sorted(path for path in state if path.endswith(endings) and "/." not in path)
        return max(named, key=lambda path: len(self._files[path]))


def _read(folder: Path) -> Files:
    files = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            files[str(file.relative_to(folder))] = file.read_bytes()
    assert files, folder
    return files


def _is_by(path: str, epoch: int) -> bool:
    """Whether a file was there when this batch was committed."""
    place = classify(described_file(path) or path)
    if place.version is None:
        return True
    return place.version <= epoch + (1 if place.area == "state" else 0)


class FlinkPlace:
    """The folder of a job of Flink, of which each checkpoint shares files with the one before."""

    def __init__(self, disk: MemoryDisk, name: str) -> None:
        scratch = MemoryDisk()
        self._job = LivingFlinkJob(scratch, Random(1), f"flink-2.3.0/{name}")
        self.folder, self.first = self._job.folder, self._job.number
        (self._other,) = set(FLINK) - {name}
        self._files = {0: scratch.snapshot(self.folder)}

    def at(self, epoch: int) -> Files:
        for number in range(1, epoch):
            if number not in self._files:
                self._job.complete()
                self._files[number] = self._job.disk.snapshot(self.folder)
        return self._files[epoch - 1]

    def latest(self, files: Files) -> str | None:
        numbers = [int(path.split("/")[0][4:]) for path in files if path.endswith("/_metadata")]
        return f"{self.folder}/chk-{max(numbers)}" if numbers else None

    def other(self) -> Files:
        job = LivingFlinkJob(MemoryDisk(), Random(1), f"flink-2.3.0/{self._other}")
        while job.number < self.first + 9:
            job.complete()
        return job.disk.snapshot(job.folder)

    def newest_state(self, epoch: int) -> str:
        new = self.at(epoch).keys() - self.at(epoch - 1).keys()
        return max(
            (path for path in new if not path.endswith("/_metadata")),
            key=lambda path: len(self.at(epoch)[path]),
        )


@dataclass
class Followed:
    """A standby, and the place that it follows. It is looked at whenever it waits."""

    ground: Ground
    place: Place
    epochs: list[int] = field(default_factory=list)
    is_away: bool = False
    looks: int = 0
    act: Callable[[], None] = lambda: None
    act_at: int = -1
    _seen: Files = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ground.clock.on_sleep = self._on_sleep
        self.ground.wrap = self._wrap

    def _wrap(self, storage: Storage) -> Storage:
        if self.is_away and f"{storage.location}/".startswith(f"{self.place.folder}/"):
            return Away(storage)  # type: ignore[return-value]
        return storage

    def put(self, files: Files) -> None:
        """Make these the files of the place; what stays the same is not touched."""
        storage, now = self.ground.disk.open(self.place.folder), {}
        now = self.ground.disk.snapshot(self.place.folder)
        for path in now.keys() - files.keys():
            storage.remove(path)
        for path, content in files.items():
            if now.get(path) != content:
                put(storage, path, content)
        if isinstance(self.place, FlinkPlace):
            cluster = self.ground.cluster
            assert isinstance(cluster, MemoryFlink)
            cluster.latest = self.place.latest(files) or cluster.latest

    def change(self, path: str, content: bytes | None) -> None:
        storage = self.ground.disk.open(self.place.folder)
        if content is None:
            storage.remove(path)
        else:
            put(storage, path, content)

    def _on_sleep(self) -> None:
        self.ground.clock.time += 6
        self.looks -= 1
        if self.looks == self.act_at:
            self.act()
        self._look()
        if self.looks < 0:
            raise Ended

    def _look(self) -> None:
        held = self.ground.held(TARGET)
        if held == self._seen:
            return
        self._seen = held
        verdict = look.restartable(TARGET, self.ground.disk.open, thorough=True)
        assert verdict.restartable or not self.epochs, verdict.findings
        if verdict.restartable:
            assert verdict.epoch is not None
            assert verdict.epoch >= max(self.epochs, default=0), "a worse image"
            self.epochs.append(verdict.epoch)

    def run(self, work: Callable[[], Report], looks: int) -> None:
        self.looks = looks
        with pytest.raises(Ended):
            work()
        self._look()


# ---- what happens


def away(followed: Followed) -> None:
    followed.is_away = True


def emptied(followed: Followed) -> None:
    followed.put({})


def replaced(followed: Followed) -> None:
    followed.put(followed.place.other())


def cut_back(followed: Followed) -> None:
    followed.put(followed.place.at(FIRST - 1))


def damaged(followed: Followed) -> None:
    followed.put(followed.place.at(LATER))
    path = followed.place.newest_state(LATER)
    content = bytearray(followed.place.at(LATER)[path])
    for at in range(len(content) // 4, len(content), 7):
        content[at] ^= 0xFF
    followed.change(path, bytes(content))


def truncated(followed: Followed) -> None:
    followed.put(followed.place.at(LATER))
    path = followed.place.newest_state(LATER)
    content = followed.place.at(LATER)[path]
    followed.change(path, content[: len(content) // 2])


def emptied_file(followed: Followed) -> None:
    followed.put(followed.place.at(LATER))
    followed.change(followed.place.newest_state(LATER), b"")


def missing(followed: Followed) -> None:
    path, files = followed.place.newest_state(LATER), followed.place.at(LATER)
    # Also the other file of that version, where a shard has two that say the same.
    start = path.partition(".")[0].partition("_")[0] if path.startswith("state/") else path
    followed.put({name: held for name, held in files.items() if not name.startswith(start)})


def no_metadata(followed: Followed) -> None:
    followed.change("metadata", None)


def no_state(followed: Followed) -> None:
    followed.put(
        {path: held for path, held in followed.place.at(LATER).items() if "state/" not in path}
    )


def garbled_log(followed: Followed) -> None:
    followed.put(followed.place.at(LATER))
    followed.change(f"offsets/{LATER}", b"\xff\x00 no log")


def half_a_batch(followed: Followed) -> None:
    files = dict(followed.place.at(LATER))
    del files[f"commits/{LATER}"]
    followed.put(
        {path: held for path, held in files.items() if path != followed.place.newest_state(LATER)}
    )


def a_fence(followed: Followed) -> None:
    for folder in ("offsets", "commits"):
        followed.change(f"{folder}/{LATER}", fence_text("another-run").encode())


def back_and_forth(followed: Followed) -> None:
    cut_back(followed)
    followed.act, followed.act_at = lambda: followed.put(followed.place.at(LAST)), 12


def garbled_metadata(followed: Followed) -> None:
    followed.put(followed.place.at(LATER))
    newest = max(path for path in followed.place.at(LATER) if path.endswith("/_metadata"))
    content = followed.place.at(LATER)[newest]
    followed.change(newest, content[: len(content) // 2])


Event = Callable[[Followed], None]

# Each with words of the reason; empty where the source is only behind, and nothing is wrong with it.
OF_ALL: Mapping[Event, str] = {
    away: "forbidden",
    emptied: "nothing is at|is gone|is missing",
    replaced: "another job|no longer",
    cut_back: "older than|is missing|is gone|nothing is at",
    damaged: "damaged|MANIFEST|state",
    truncated: "damaged|missing|bytes|ends",
    emptied_file: "damaged|missing|bytes|ends",
    missing: "missing|is gone|not there",
    back_and_forth: "",
}
OF_SPARK: Mapping[Event, str] = {
    no_metadata: "metadata is missing",
    no_state: "no longer|missing|holds no",
    garbled_log: "offsets/3",
    half_a_batch: "",
    a_fence: "",
}
OF_FLINK: Mapping[Event, str] = {garbled_metadata: ""}


def spark_place(folder: Path, name: str) -> tuple[Followed, Spec]:
    ground = Ground(folder)
    ground.cluster.run("orders", SOURCE)
    place = SparkPlace(ground.disk, name)
    for number in range(6):  # what the job has read, and names in its own log
        ground.put(f"file:///tmp/stateshift-golden/{name}/in/f{number}.json")
    return Followed(ground, place), running_spec(mode="warm", cutover="never")


def flink_place(folder: Path, name: str) -> tuple[Followed, Spec]:
    ground = Ground(folder)
    ground.cluster = MemoryFlink(lambda location: None)
    ground.cluster.run("orders", "orders-id")
    place = FlinkPlace(ground.disk, name)
    return Followed(ground, place), warm_spec(cutover="never")


def check(followed: Followed, spec: Spec, event: Event, words: str) -> None:
    ground, place = followed.ground, followed.place
    followed.put(place.at(FIRST))
    ground.clock.time += 600
    followed.act, followed.act_at = lambda: event(followed), 20
    followed.run(lambda: ground.apply(spec), 30)
    assert followed.epochs, "there was an image before"
    first = followed.epochs[0]
    job = migration.status(ground.workdir()).jobs[0]
    if words:
        assert job.source_lost is not None, ground.said
        assert any(word in job.source_lost.reason for word in words.split("|")), job.source_lost
        assert job.source_lost.since > 0
        assert any("cannot be followed" in line for line in ground.said)
    followed.is_away, followed.act_at = False, -1
    followed.put(place.at(LAST))
    followed.run(ground.resume, 20)
    assert followed.epochs[-1] == first + LAST - FIRST, ground.said[-4:]
    assert migration.status(ground.workdir()).jobs[0].source_lost is None


@pytest.mark.row("W-21")
@pytest.mark.parametrize("event", [*OF_ALL, *OF_SPARK])
@pytest.mark.parametrize("name", SPARK)
def test_a_standby_of_spark_is_never_worse_and_goes_on(
    tmp_path: Path, name: str, event: Event
) -> None:
    followed, spec = spark_place(tmp_path, name)
    check(followed, spec, event, {**OF_ALL, **OF_SPARK}[event])


@pytest.mark.row("W-21")
@pytest.mark.parametrize("event", [*OF_ALL, *OF_FLINK])
@pytest.mark.parametrize("name", FLINK)
def test_a_standby_of_flink_is_never_worse_and_goes_on(
    tmp_path: Path, name: str, event: Event
) -> None:
    followed, spec = flink_place(tmp_path, name)
    check(followed, spec, event, {**OF_ALL, **OF_FLINK}[event])


@pytest.mark.row("W-21")
@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_a_standby_of_a_job_that_keeps_few_batches_can_be_started_at_any_moment(
    tmp_path: Path, seed: int
) -> None:
    """The commits of the round that has copied a file are gone soon, and it still counts."""
    ground = Standby(tmp_path, seed, looks=400)
    ground.job.moods, ground.job.retained = {"batch": 0.03, "tidy": 0.01}, 50
    with pytest.raises(Ended):
        ground.apply(running_spec(mode="warm", cutover="never"))
    assert len(set(ground.kept)) > 10
