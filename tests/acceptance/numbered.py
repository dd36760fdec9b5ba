"""Jobs whose sink recognises batches by number (jobs/numbered.py), killed for real, and what came
out of them.

    job.feed(first, last)    input files, one a batch, always the same for the same number
    job.run(checkpoint)      the job reads all there is, and ends; first the table goes back to
                             `restore`
    job.waiting(checkpoint)  while it waits in the middle of such a batch (foreachBatch alone)
    job.die(checkpoint)      SIGKILL after the sink has a batch and before Spark has committed it;
                             the batch's number
    job.rows()               what readers of the sink see

Window n is whole and closed as soon as file n + 2 has been read: each has five records of three
keys.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.parquet

from tests.acceptance.support import JOBS, environment, last_number, wait_until, write_records

Row = tuple[int, str, int, int]  # the window's start, the key, how many records, their sum

EPOCH = 1_767_225_600  # 2026-01-01, in seconds
FIRST_KILL = 2  # the batch to be killed in, or a later one where that was missed
SECONDS_MAX = 600
POLL_SECONDS = 0.001


@dataclass(frozen=True)
class Numbered:
    """One job in a folder of its own."""

    folder: Path
    sink: str
    provider: str
    checkpoint_format: int = 1
    python: str = sys.executable
    jars: tuple[Path, ...] = field(default=())
    source: str = "files"
    brokers: str = ""
    topic: str = ""

    @property
    def input(self) -> Path:
        return self.folder / "input"

    @property
    def output(self) -> Path:
        return self.folder / "output"

    @property
    def loaded(self) -> Path:
        """Where the job says how many files are in its table or topic. A topic does not go back
        with the folder.
        """
        return self.folder.with_name("loaded") if self.source == "kafka" else self.folder / "loaded"

    def feed(self, first: int, last: int) -> None:
        for number in range(first, last):
            records = [
                {
                    "key": f"k{(number + i) % 3}",
                    "value": number * 100 + i,
                    "at": _time(number * 10 + i),
                }
                for i in range(5)
            ]
            write_records(self.input / f"{number:03}.json", records)

    def expected(self, files: int) -> list[Row]:
        """Every window that is closed when so many files have been read."""
        rows: dict[tuple[int, str], tuple[int, int]] = {}
        for number in range(files - 2):
            for i in range(5):
                window = (EPOCH + number * 10, f"k{(number + i) % 3}")
                count, total = rows.get(window, (0, 0))
                rows[window] = (count + 1, total + number * 100 + i)
        return sorted((*window, *sums) for window, sums in rows.items())

    # ---- running it

    def run(self, checkpoint: Path, restore: int | None = None) -> str:
        """Let it read all there is. Return "" if it ends well, else what it said."""
        log = self.folder / "run.log"
        words = () if restore is None else ("--restore", str(restore))
        with self._started(checkpoint, log, *words) as process:
            code = process.wait(timeout=SECONDS_MAX)
        return "" if code == 0 else log.read_text(errors="replace")

    def die(self, checkpoint: Path) -> int:
        log = self.folder / "die.log"
        waits = self.folder / "waits"
        waiting = self.sink in ("foreach-batch", "delta-batches")
        words = ("--wait-in", str(FIRST_KILL)) if waiting else ()
        with self._started(checkpoint, log, *words) as process:
            until = time.monotonic() + SECONDS_MAX
            batch = FIRST_KILL
            while process.poll() is None and time.monotonic() < until:
                if waiting and waits.exists():
                    break
                if not waiting and self._has(batch):
                    os.killpg(process.pid, signal.SIGSTOP)
                    if not (checkpoint / "commits" / str(batch)).exists():
                        break
                    os.killpg(process.pid, signal.SIGCONT)  # Spark was faster this time
                    batch += 1
                time.sleep(POLL_SECONDS)
            assert process.poll() is None and time.monotonic() < until, log.read_text(
                errors="replace"
            )[-4000:]
        assert (checkpoint / "offsets" / str(batch)).exists()
        assert not (checkpoint / "commits" / str(batch)).exists()
        return batch

    @contextmanager
    def waiting(self, checkpoint: Path) -> Iterator[int]:
        """The job, which runs and waits: its sink has a batch, Spark has not committed it. Its
        process group.
        """
        log = self.folder / "wait.log"
        with self._started(checkpoint, log, "--wait-in", str(FIRST_KILL)) as process:
            threading.Thread(
                target=process.wait, daemon=True
            ).start()  # a process nobody waits for seems to run
            wait_until((self.folder / "waits").exists, "it does not wait", SECONDS_MAX, self.folder)
            yield process.pid

    @contextmanager
    def running(self, checkpoint: Path) -> Iterator[int]:
        """The job, which goes on, has read something and waits for more. Its process group."""
        before = last_number(checkpoint / "commits")
        log = self.folder / "runs.log"
        with self._started(checkpoint, log, "--for-ever") as process:
            threading.Thread(target=process.wait, daemon=True).start()

            def has_committed() -> bool:
                assert process.returncode is None, log.read_text(errors="replace")[-4000:]
                return last_number(checkpoint / "commits") > before

            wait_until(has_committed, "it reads nothing", SECONDS_MAX, self.folder)
            yield process.pid

    def command(self, checkpoint: Path) -> list[str]:
        """What starts it."""
        return [
            self.python,
            str(JOBS / "numbered.py"),
            "--input",
            str(self.input),
            "--output",
            str(self.output),
            "--checkpoint",
            str(checkpoint),
            "--sink",
            self.sink,
            "--provider",
            self.provider,
            "--checkpoint-format",
            str(self.checkpoint_format),
            "--jars",
            ",".join(map(str, self.jars)),
            "--source",
            self.source,
            "--brokers",
            self.brokers,
            "--topic",
            self.topic,
            "--loaded",
            str(self.loaded),
        ]

    @contextmanager
    def _started(
        self, checkpoint: Path, log: Path, *words: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """The job's processes, which are gone afterwards: by SIGKILL, if they have not ended."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as said:
            process = subprocess.Popen(
                [*self.command(checkpoint), *words],
                cwd=self.folder,
                env={**environment(), "PYSPARK_PYTHON": self.python},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # ---- what the sink has

    def _has(self, batch: int) -> bool:
        if self.sink == "file":
            log = self.output / "_spark_metadata"
            return (log / str(batch)).exists() or (log / f"{batch}.compact").exists()
        if self.sink == "iceberg":
            said = f'"spark.sql.streaming.epochId":"{batch}"'
            return any(
                said in path.read_text()
                for path in self.output.glob("db/rows/metadata/v*.metadata.json")
            )
        return any(
            action.get("txn", {}).get("version") == batch for action in self._delta_actions()
        )

    def version_of(self, batch: int) -> int:
        """Return the version of the Delta table that this batch made."""
        for path in sorted((self.output / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in path.read_text().splitlines()]
            if any(action.get("txn", {}).get("version") == batch for action in actions):
                return int(path.stem)
        raise AssertionError(f"the table has no batch {batch}")

    def _delta_actions(self) -> Iterator[dict[str, dict[str, object]]]:
        for path in sorted((self.output / "_delta_log").glob("*.json")):
            for line in path.read_text().splitlines():
                yield json.loads(line)

    def rows(self) -> list[Row]:
        """Sorted, and as often as they are there."""
        if self.sink == "file":
            return sorted(self._rows_of_log())
        if self.sink == "foreach-batch":
            return sorted(row for path in self.output.glob("*.json") for row in _json_rows(path))
        if self.sink == "iceberg":
            return sorted(_json_rows(self.folder / "rows.json"))
        return sorted(self._rows_of_delta())

    def _rows_of_log(self) -> Iterator[Row]:
        paths: set[str] = set()
        for log in (self.output / "_spark_metadata").glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                paths.add(json.loads(line)["path"])
        for path in paths:
            yield from _json_rows(Path(unquote(urlsplit(path).path)))

    def _rows_of_delta(self) -> Iterator[Row]:
        paths: Counter[str] = Counter()
        for action in self._delta_actions():
            for kind, sign in (("add", 1), ("remove", -1)):
                if kind in action:
                    paths[unquote(str(action[kind]["path"]))] += sign
        for path in +paths:
            for row in pyarrow.parquet.read_table(self.output / path).to_pylist():
                yield row["start"], row["key"], row["count"], row["sum"]


def _time(seconds: int) -> str:
    return f"2026-01-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def _json_rows(path: Path) -> Iterator[Row]:
    for line in path.read_text().splitlines():
        row = json.loads(line)
        yield row["start"], row["key"], row["count"], row["sum"]
