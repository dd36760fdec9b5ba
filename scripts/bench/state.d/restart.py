"""How many files a compaction leaves, and how long a query takes from its start to its first commit
before and after.

    python restart.py [--pairs 7] [--provider hdfs|rocksdb] [--on disk|hdfs]

Two checkpoints of 200 shards go on until the last snapshot is nine batches old in every shard, and
are compacted by the command line: that of `make_checkpoint`, with 80 batches behind it, and one of
RocksDB with a few. Then the same query, in one warm Spark, is started on a fresh copy of the one
and of the other, in turn, with one new file to read; measured is from `start` until the commit log
has the new batch. The table goes to scripts/bench/results/restart.md.

`--on hdfs` puts the copies on a real HDFS of this machine (scripts/servers), where each file costs
round trips; of the one that is not compacted, only what a restart reads, as a move would bring it
(restart-hdfs.md).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "servers.d"))

import make_checkpoint
from making import PROVIDERS, await_snapshots, run, session, started
from measure import ROOT, bench_directory

RESULTS = ROOT / "scripts" / "bench" / "results"
SHARDS, TAIL, KEYS = 200, 9, 20_000
BEFORE = {"hdfs": 80, "rocksdb": 2}  # batches before the one of the snapshot


@dataclass(frozen=True)
class Compared:
    provider: str
    batches: int
    files: int
    left: int
    pairs: list[tuple[float, ...]]
    load: float

    @property
    def line(self) -> str:
        before, after = (statistics.median(column) for column in zip(*self.pairs, strict=True))
        ratios = sorted(b / a for a, b in self.pairs)
        cells = (
            self.provider,
            self.batches,
            f"{self.files:,}",
            f"{self.left:,}",
            f"{100 * self.left / self.files:.1f} %",
            f"{before:.2f}",
            f"{after:.2f}",
            " / ".join(f"{ratios[at]:.2f}" for at in (0, len(ratios) // 2, -1)),
            len(ratios),
            f"{self.load:.1f}",
        )
        return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--provider", choices=sorted(PROVIDERS))
    parser.add_argument("--on", choices=["disk", "hdfs"], default="disk")
    options = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # through every `finally`: servers are stopped
    directory = bench_directory()
    wanted = [options.provider] if options.provider else sorted(PROVIDERS)
    with Disk(directory / "restart-scratch") if options.on == "disk" else hdfs() as there:
        compared = [compare(directory, provider, options.pairs, there) for provider in wanted]
    table = as_table(compared, there)
    if len(wanted) == len(PROVIDERS):
        (RESULTS / f"restart{there.suffix}.md").write_text(table)
    print(table)


@dataclass(frozen=True)
class Disk:
    """Copies in a folder of this machine."""

    folder: Path
    suffix = ""
    flags, words = "", "a local disk"

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def copied(self, checkpoint: Path) -> str:
        copy = Path(tempfile.mkdtemp(dir=self.folder)) / "checkpoint"
        shutil.copytree(checkpoint, copy)
        return str(copy)

    def committed(self, copy: str, batch: int) -> bool:
        return Path(copy, "commits", str(batch)).exists()

    def remove(self, copy: str) -> None:
        """As far as Spark's maintenance lets go of it."""
        shutil.rmtree(Path(copy).parent, ignore_errors=True)


@dataclass(frozen=True)
class Hdfs:
    """Copies on HDFS, brought by the command line: what a restart needs, and no more."""

    scratch: Path
    suffix = "-hdfs"
    flags, words = " --on hdfs", "a real HDFS on this machine"

    def copied(self, checkpoint: Path) -> str:
        name = f"copy-{time.monotonic_ns()}"
        told = [
            "fork",
            str(checkpoint),
            "--to",
            f"hdfs://hdfs-a/{name}",
            "--waive",
            "paths-stay",
            "--yes",
        ]
        stateshift(*told, "--workdir", str(self.scratch / name))
        return f"hdfs://hdfs-a/{name}"

    def committed(self, copy: str, batch: int) -> bool:
        return _opened(copy).stat(f"commits/{batch}") is not None

    def remove(self, copy: str) -> None:
        """HDFS goes as a whole."""


@cache
def _opened(copy: str) -> Any:
    from stateshift.storage.opening import open_storage

    return open_storage(copy)


@contextmanager
def hdfs() -> Iterator[Hdfs]:
    from servers import Servers

    with tempfile.TemporaryDirectory(prefix="stateshift-bench-") as folder:
        servers = Servers(Path(folder) / "servers")
        servers.up("hdfs-a")
        try:
            os.environ |= servers.exports() | {"HDFSCLI_CONFIG": os.devnull}
            yield Hdfs(Path(folder))
        finally:
            servers.down("hdfs-a")


def stateshift(*words: str) -> None:
    command = [sys.executable, "-m", "stateshift", *words]
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def compare(directory: Path, provider: str, pairs: int, there: Disk | Hdfs) -> Compared:
    place, scratch = directory / f"restart-{provider}", directory / "restart-scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    spark = session(2, PROVIDERS[provider], SHARDS, "2g")
    batches = BEFORE[provider] + 1 + TAIL
    if not (place / "made").exists():
        make(spark, directory, place, provider)
    add_input(scratch, batches)
    compact(place / "checkpoint", scratch)
    load = os.getloadavg()[0]
    both = (place / "checkpoint", scratch / "compacted")
    seconds = [
        tuple(first_commit(spark, one, scratch, batches, there) for one in both)
        for _ in range(pairs + 1)
    ]
    spark.stop()
    files, left = count(place / "checkpoint"), count(scratch / "compacted")
    shutil.rmtree(scratch, ignore_errors=True)
    return Compared(
        provider, batches, files, left, seconds[1:], load
    )  # the first pair warms Spark up


def make(spark: Any, directory: Path, place: Path, provider: str) -> None:
    """A batch with a snapshot of every shard, and TAIL more."""
    shutil.rmtree(place, ignore_errors=True)
    if provider == "hdfs":
        shutil.copytree(
            make_checkpoint.checkpoint(directory, SHARDS, BEFORE[provider]), place / "checkpoint"
        )
    else:
        for number in range(BEFORE[provider]):
            add_input(place, number)
        run(counts(spark, place), place)
    add_input(place, BEFORE[provider])
    await_snapshots(spark, counts(spark, place), place, SHARDS, BEFORE[provider] + 1)
    for number in range(TAIL):
        add_input(place, BEFORE[provider] + 1 + number)
    run(counts(spark, place), place)
    (place / "made").touch()


def counts(spark: Any, place: Path) -> Any:
    """The query of `make_checkpoint`, whose checkpoint it goes on with. With a pattern, Spark does
    not mind that the last files it read lay in another directory; without a scheme it would look on
    the HDFS there may be.
    """
    reader = spark.readStream.schema("key STRING").option("maxFilesPerTrigger", 1)
    return (
        reader.json(f"file://{place}/input/*.json")
        .groupBy("key")
        .count()
        .writeStream.outputMode("update")
    )


def add_input(place: Path, number: int) -> None:
    """All keys in the first batch, 400 in each of the others: as `make_checkpoint` has it."""
    (place / "input").mkdir(parents=True, exist_ok=True)
    keys = range(KEYS) if number == 0 else range(number * 100, number * 100 + 400)
    # Its time is now: Spark takes no file that is a week older than the newest it has seen.
    (place / "input" / f"{number:04}.json").write_text(
        "".join(json.dumps({"key": f"customer-{key}"}) + "\n" for key in keys)
    )


def compact(checkpoint: Path, scratch: Path) -> None:
    """The copy is a fork, so that nothing of the source is touched."""
    copy = ["--to", str(scratch / "compacted"), "--fork", "--waive", "paths-stay", "--yes"]
    stateshift("compact", str(checkpoint), *copy, "--workdir", str(scratch / "run"))


def first_commit(
    spark: Any, checkpoint: Path, scratch: Path, batch: int, there: Disk | Hdfs
) -> float:
    """Seconds from the query's start to its first commit, on a copy of the checkpoint that is
    then thrown away.
    """
    copy = there.copied(checkpoint)
    began = time.perf_counter()
    running = started(counts(spark, scratch), copy)
    while not there.committed(copy, batch) and running.isActive:
        time.sleep(0.01)
    seconds = time.perf_counter() - began
    if not there.committed(copy, batch):
        raise SystemExit(f"the query did not go on: {running.exception()}")
    running.stop()
    there.remove(copy)
    print(f"  {seconds:.2f} s of {checkpoint}", file=sys.stderr, flush=True)
    return seconds


def count(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def as_table(compared: list[Compared], there: Disk | Hdfs) -> str:
    import pyspark

    lines = [
        f"# Restarting before and after a compaction, on {there.words}",
        "",
        f"`./scripts/bench/restart{there.flags}` on {os.cpu_count()} cores, "
        f"{time.strftime('%Y-%m-%d %H:%M')}, Spark "
        f"{pyspark.__version__} with `local[2]`: a query of {SHARDS} shards and {KEYS:,} keys,",
        f"on {there.words}, {TAIL} batches after the last snapshot. Seconds from the "
        "query's start to its first commit "
        "in one warm Spark, medians; the ratio",
        (
            "of each pair, after / before, as min / median / max. Hadoop's `.crc` files are "
            "counted, too."
        ),
        "",
        "| provider | batches | files | compacted | left | before | after | ratio | pairs | load |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(one.line for one in compared),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
