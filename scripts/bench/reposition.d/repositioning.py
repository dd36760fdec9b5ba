"""New offsets of a topic: seconds, and records that are read for them.

    python repositioning.py [--partitions 1000] [--each 1000] [--syncs 10000000] [--records 10000000]

    wide     many partitions with a few records each, all at once: by records, and by MirrorMaker's
             syncs, of which there are many; beside kafka-consumer-groups --reset-offsets
             --to-datetime --dry-run, which asks the brokers for a time and reads no record
    long     one partition with many records; the job stands in its middle

The copy has SHIFT records more in front. No MirrorMaker runs: what it would write is written here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
for folder in ("servers.d", "bench"):
    sys.path.insert(0, str(ROOT / "scripts" / folder))

from filling import fill, fill_syncs  # noqa: E402
from pages import put_down, told, wrapped  # noqa: E402
from servers import Servers, downloads  # noqa: E402

from stateshift.sources.kafka import open_topics  # noqa: E402
from stateshift.sources.topic_positions import TopicRequest, new_positions  # noqa: E402

PAGE = ROOT / "scripts" / "bench" / "results" / "reposition.md"
SHIFT = 17  # records that the copy has in front
SYNCS = "mm2-offset-syncs.b.internal"
FIRST_MS = int(time.time() - 86_400) * 1000
GROUP = "bench"


@dataclass
class Counting:
    """The topics of brokers, and how many records they have given."""

    inner: Any
    records: int = 0
    brokers: str = field(init=False)

    def __post_init__(self) -> None:
        self.brokers = self.inner.brokers

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def read(self, topic: str, windows: Any) -> Mapping[int, Sequence[Any]]:
        held: Mapping[int, Sequence[Any]] = self.inner.read(topic, windows)
        self.records += sum(map(len, held.values()))
        return held

    def pairs(self, topic: str, window: Any) -> Iterator[tuple[bytes, bytes]]:
        for pair in self.inner.pairs(topic, window):
            self.records += 1
            yield pair


@dataclass(frozen=True)
class Bench:
    address: str
    partitions: int
    each: int
    syncs: int
    records: int
    rounds: int

    def make(self, topic: str, partitions: int) -> None:
        from kafka.admin import KafkaAdminClient, NewTopic

        admin = KafkaAdminClient(bootstrap_servers=self.address, request_timeout_ms=300_000)
        made = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        admin.create_topics([made], timeout_ms=300_000)
        admin.close()

    def fill_syncs(self) -> None:
        records = dict.fromkeys(range(self.partitions), self.each)
        rounds = max(1, self.syncs // self.partitions)
        fill_syncs(self.address, SYNCS, "wide", records, SHIFT, rounds)

    def positions(self, topic: str, read: Mapping[int, int], way: str) -> tuple[float, int]:
        """Find new offsets once. Return the seconds, and the records that were read."""
        request = TopicRequest("0", topic, f"{topic}-copy", read, None, way)
        began = time.perf_counter()
        with open_topics(self.address, None) as opened, open_topics(self.address, None) as other:
            old, new = Counting(opened), Counting(other)
            found = new_positions(request, old, new)  # type: ignore[arg-type]
        seconds = time.perf_counter() - began
        told_of = f"{topic} by {way}: {seconds:.1f} s, {old.records:,} and {new.records:,} records"
        print(told_of, file=sys.stderr, flush=True)
        expected = {number: offset + SHIFT for number, offset in read.items()}
        assert found.read == expected, (way, found.read, expected)
        assert all((each.again, each.skipped) == (0, 0) for each in found.changes)
        return seconds, old.records + new.records

    def reset_offsets(self, when_ms: int) -> float:
        """The seconds of Kafka's own command, which starts a JVM."""
        from kafka import KafkaConsumer

        consumer = KafkaConsumer("wide-copy", bootstrap_servers=self.address, group_id=GROUP)
        consumer.poll(timeout_ms=10_000)
        consumer.commit()
        consumer.close()
        when = datetime.fromtimestamp(when_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
        words = ("--bootstrap-server", self.address, "--group", GROUP, "--topic", "wide-copy")
        command = [
            *(downloads.java(), "-Xmx512m", "-cp", f"{downloads.jars('kafka-tools')}/*"),
            *("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *words),
            *("--reset-offsets", "--to-datetime", when, "--dry-run"),
        ]
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        lines = [line for line in done.stdout.splitlines() if "wide-copy" in line]
        assert len(lines) == self.partitions, (done.stdout[-1000:], done.stderr[-2000:])
        return seconds


def measured(bench: Bench) -> Iterator[tuple[str, list[float], int]]:
    """Yield a name, the seconds of each round, and the records that were read."""
    half = dict.fromkeys(range(bench.partitions), bench.each // 2)
    ways = (
        (f"`--by records`, {bench.partitions:,} partitions", "wide", half, "records"),
        (f"`--by mirrormaker`, likewise, of {bench.syncs:,} syncs", "wide", half, "mirrormaker"),
        (f"`--by records`, 1 of {bench.records:,}", "long", {0: bench.records // 2}, "records"),
    )
    for name, topic, read, way in ways:
        rounds = [bench.positions(topic, read, way) for _ in range(bench.rounds)]
        yield name, [seconds for seconds, _ in rounds], rounds[-1][1]
    when = FIRST_MS + SHIFT + bench.each // 2
    own = [bench.reset_offsets(when) for _ in range(bench.rounds)]
    yield "`kafka-consumer-groups --reset-offsets --to-datetime --dry-run`, likewise", own, 0


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (
        ("partitions", 1000),
        ("each", 1000),
        ("syncs", 10_000_000),
        ("records", 10_000_000),
        ("rounds", 3),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stateshift-bench-") as folder:
        servers = Servers(Path(folder))
        servers.up("kafka")
        try:
            bench = Bench(servers.exports()["STATESHIFT_KAFKA"], **vars(asked))
            for topic, partitions, each in (
                ("wide", bench.partitions, bench.each),
                ("long", 1, bench.records),
            ):
                for name, shift in ((topic, 0), (f"{topic}-copy", SHIFT)):
                    bench.make(name, partitions)
                    print(f"filling {name}", file=sys.stderr, flush=True)
                    numbers = range(SHIFT - shift, SHIFT + each)
                    fill(bench.address, name, dict.fromkeys(range(partitions), numbers), FIRST_MS)
            bench.make(SYNCS, 1)
            print(f"filling {SYNCS}", file=sys.stderr, flush=True)
            bench.fill_syncs()
            rows = [
                f"| {name} | {told(seconds)} | {read:,} |"
                for name, seconds, read in measured(bench)
            ]
        finally:
            servers.down("kafka")
    about = (
        f"`./scripts/bench/reposition --partitions {bench.partitions} --each {bench.each} --syncs "
        f"{bench.syncs} --records {bench.records} --rounds {bench.rounds}` on 2 cores and 24 GB, "
        "Linux, which did other work meanwhile: one Kafka 4.3.1. Each partition stands in the "
        f"middle of its records; its copy has {SHIFT} more in front. Every new offset was right, "
        "with nothing read again and nothing skipped. kafka-consumer-groups starts a JVM, asks "
        "for a time alone, and proves nothing."
    )
    put_down(
        PAGE,
        [
            "# A topic's new offsets",
            "",
            *wrapped(about),
            "",
            f"| what | seconds: median (least / most) of {bench.rounds} | records read |",
            "|---|---|---|",
            *rows,
        ],
    )


if __name__ == "__main__":
    main()
