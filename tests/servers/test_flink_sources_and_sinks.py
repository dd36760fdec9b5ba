"""Flink's sources beside its sinks: a real job that is fed all the time is moved at rest, moved
while it runs, forked, and lost to its standby. What readers of the sink see in the end is counted
and added up: every count of each key is there once.

A sink that writes at once, without a transaction, repeats what came after the last checkpoint. In
a failover each repeats what was shown after the standby's checkpoint.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.servers.flink_ground import Ground, incremental
from tests.servers.standby import LOST, following
from tests.servers.test_reposition_flink import assert_exact
from tests.support.flink import until
from tests.support.flink_kafka import arguments_of, connector_jars, job_jar, started
from tests.support.servers import Servers, Unavailable, group

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.row("W-1", "W-22", on="Flink")]
SHOWN_ON = "Flink, Kafka"

AT_ONCE = 10  # numbers of a file
EACH_SECONDS = 0.2
MORE = 120  # lines after what was done to the job
PAIRS = [
    *(("files", sink) for sink in ("lines", "files", "kafka")),
    *(("kafka", sink) for sink in ("lines", "files", "kafka")),
]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with group(tmp_path_factory.mktemp("cells"), "flink-a", "flink-b", "kafka") as servers:
        yield servers


@pytest.fixture(scope="module")
def jar(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        connector = connector_jars("2.3.0")
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    lib = Ground(servers, Path()).here.lib
    return job_jar(lib, connector, tmp_path_factory.mktemp("jar"))


@dataclass(frozen=True)
class Cell:
    """A job of a source and a sink, and what is done to it."""

    ground: Ground
    jar: Path
    source: str
    sink: str
    act: str
    main_class: str = "jobs.Sums"

    @property
    def brokers(self) -> str:
        return str(self.ground.servers.exports()["STATESHIFT_KAFKA"])

    def place(self, name: str) -> str:
        """A topic or a folder of its own."""
        kind = self.source if name == "in" else self.sink
        own = f"{self.source}-{self.sink}-{self.act}-{name}"
        return own if kind == "kafka" else str(self.ground.folder / own)

    def words(self, out: str) -> dict[str, object]:
        settings = incremental(self.ground.folder)
        flink = {name[2:]: value for name, value in zip(settings[::2], settings[1::2], strict=True)}
        places = {"from": self.place("in"), "to": self.place(out), "prefix": self.place(out)}
        kinds = {"source": self.source, "sink": self.sink, "brokers": self.brokers}
        return {**kinds, **places, **flink, "name": self.act, "checkpoint-ms": 1000}

    def submit(self, out: str = "out") -> dict[str, Any]:
        arguments = arguments_of(self.words(out))
        start = {"jar": str(self.jar), "entry_class": self.main_class, "arguments": arguments}
        return {**start, "parallelism": 2, "seconds_max": 90}

    def spec(self, id: str, submit: dict[str, Any], **more: Any) -> Path:
        job = self.ground.job("sums", id, **more)
        return self.ground.spec({**job, "submit": submit, "source_submit": self.submit()})

    def written(self, out: str = "out") -> dict[str, list[tuple[int, int]]]:
        """Every count and sum of each key that a reader sees."""
        match self.sink:
            case "kafka":
                texts = committed(self.brokers, self.place(out))
            case _:
                files = sorted(Path(self.place(out)).rglob("*"))
                shown = [file for file in files if file.is_file() and file.name[0] != "."]
                texts = [file.read_text().rpartition("\n")[0] for file in shown]
        found: dict[str, list[tuple[int, int]]] = {}
        for line in "\n".join(texts).split("\n") if any(texts) else ():
            if line:
                key, count, total = line.split("\t")
                found.setdefault(key, []).append((int(count), int(total)))
        return {key: sorted(own) for key, own in found.items()}

    def has_written(self, more: int, out: str = "out") -> None:
        before = size(self.written(out))
        until(lambda: size(self.written(out)) >= before + more)


def size(written: dict[str, list[tuple[int, int]]]) -> int:
    return sum(len(own) for own in written.values())


def committed(brokers: str, topic: str) -> list[str]:
    """What readers of committed records see of a topic."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=brokers, isolation_level="read_committed")
    parts = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
    consumer.assign(parts)
    texts, quiet = [], 0
    if parts:  # the sink makes the topic
        consumer.seek_to_beginning()
    while parts and quiet < 2:  # open transactions hide what is behind them
        records = [one for batch in consumer.poll(timeout_ms=300).values() for one in batch]
        quiet = 0 if records else quiet + 1
        texts += [record.value.decode() for record in records]
    consumer.close()
    return texts


class Feeder(threading.Thread):
    """The numbers from nought, some each time, in files or in a topic of two partitions."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(daemon=True)
        self.cell, self.fed, self.ends = cell, 0, threading.Event()
        if cell.source == "kafka":
            from kafka import KafkaProducer
            from kafka.admin import KafkaAdminClient, NewTopic

            admin = KafkaAdminClient(bootstrap_servers=cell.brokers)
            admin.create_topics([NewTopic(cell.place("in"), 2, 1)])
            admin.close()
            self.producer = KafkaProducer(bootstrap_servers=cell.brokers, acks="all")
        else:
            Path(cell.place("in")).mkdir()

    def run(self) -> None:
        while not self.ends.wait(EACH_SECONDS):
            numbers = [str(number) for number in range(self.fed, self.fed + AT_ONCE)]
            if self.cell.source == "kafka":
                for number in numbers:
                    self.producer.send(self.cell.place("in"), number.encode())
                self.producer.flush()
            else:
                file = Path(self.cell.place("in"), f"{self.fed:08}.txt")
                begun = file.with_name(f".{file.name}")
                begun.write_text("".join(f"{number}\n" for number in numbers))
                begun.rename(file)
            self.fed += AT_ONCE

    def end(self) -> range:
        """All numbers that were fed."""
        self.ends.set()
        self.join()
        return range(self.fed)


@contextmanager
def fed(cell: Cell) -> Iterator[tuple[str, Feeder]]:
    """The job runs and has shown something; its id, and what feeds it."""
    feeder = Feeder(cell)
    feeder.start()
    try:
        job = started(cell.ground.here, cell.jar, cell.main_class, cell.words("out"))
        cell.has_written(MORE)
        yield job, feeder
    finally:
        feeder.end()
        cell.ground.cleared()


def ends(cell: Cell, feeder: Feeder, repeated: bool = False) -> None:
    """The job goes on to the end of all that is fed: nothing is lost, and nothing is there twice
    but what is `repeated`.
    """
    cell.has_written(MORE)
    numbers = feeder.end()
    until(lambda: size(once(cell.written())) >= len(numbers))
    time.sleep(2)  # one that is written twice would come now
    found = cell.written()
    assert_exact(once(found) if repeated else found, *numbers)


def once(written: dict[str, list[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
    """Each count of each key, as it was written last."""
    return {key: sorted(dict(own).items()) for key, own in written.items()}


@pytest.mark.parametrize(("source", "sink"), PAIRS)
def test_what_readers_see_is_what_an_undisturbed_job_writes(
    servers: Servers, jar: Path, tmp_path: Path, source: str, sink: str
) -> None:
    def cell(act: str) -> Cell:
        (tmp_path / act).mkdir()
        return Cell(Ground(servers, tmp_path / act), jar, source, sink, act)

    moved = cell("move")
    with fed(moved) as (id, feeder):
        moved.ground.applied(moved.spec(id, moved.submit()))
        ends(moved, feeder)

    warm = cell("warm")
    with fed(warm) as (id, feeder):
        warm.ground.applied(warm.spec(id, warm.submit(), mode="warm", rounds=2))
        ends(warm, feeder, repeated=sink == "lines")

    assert_fork_takes_nothing(cell("fork"))

    lost = cell("failover")
    with fed(lost) as (id, feeder):
        target = lost.ground.folder / "new-sums"
        spec = lost.spec(id, lost.submit(), mode="warm", cutover="never")
        with following(lost.ground.folder, spec, target) as standby:
            standby.says("can be started from")
            lost.ground.here.cancelled(id)
            (lost.ground.folder / "checkpoints" / id).rename(lost.ground.folder / "gone")
            standby.says(LOST)
            lost.ground.said("failover", target, "--yes")
            standby.process.wait(60)
        ends(lost, feeder, repeated=True)


def assert_fork_takes_nothing(cell: Cell) -> None:
    """The job goes on without a restart, and what its fork writes elsewhere follows the savepoint."""
    with fed(cell) as (id, feeder):
        cell.ground.applied(cell.spec(id, cell.submit("other"), mode="fork"))
        cell.has_written(MORE, "other")
        ends(cell, feeder)
        (told,) = cell.ground.here.ask(f"/jobs/{id}/metrics?get=numRestarts")
        assert int(told["value"]) == 0
        until(lambda: last(cell.written("other")) == last(cell.written()))
        for own in cell.written("other").values():
            counts = [count for count, _ in own]
            assert counts == list(range(counts[0], counts[-1] + 1)) and counts[0] > 1


@pytest.mark.parametrize("sink", ["files", "kafka"])
def test_a_fork_takes_nothing_from_a_job_with_the_sinks_of_before(
    tmp_path: Path, sink: str
) -> None:
    try:
        connector = connector_jars("1.20.5")
    except Unavailable as reason:
        pytest.skip(f"cannot be had: {reason}")
    with group(tmp_path / "servers", "flink-1.20", "kafka") as servers:
        ground = Ground(servers, tmp_path, ("flink-1.20", "flink-1.20"))
        jar = job_jar(ground.here.lib, connector, tmp_path)
        cell = Cell(ground, jar, "kafka", sink, "fork", "jobs.SumsToSinksBefore")
        assert_fork_takes_nothing(cell)


def last(written: dict[str, list[tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    return {key: own[-1] for key, own in written.items()}
