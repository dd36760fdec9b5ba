"""A job that keeps a payload and a count for each key in RocksDB, on one of two Flinks; and when
something came out.

ground = Ground(folder, (one, other), keys)
ground.fill(); ground.settle()
with ground.watched(): …
ground.gap()                    the longest time in which nothing was written
ground.stopped()                by Flink's own REST API, with a native savepoint
ground.apply("warm")            to the other one, by stateshift
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "servers.d"), str(ROOT / "scripts" / "bench")]

from tests.support.flink import Cluster, jar, until  # noqa: E402

PAYLOAD, BESIDE = 1000, 60
PER_SECOND, CHECKPOINT_MS = 2000, 3000
STEADY_SECONDS = 5.0


def keys_of(megabytes: int) -> int:
    return megabytes * 1_000_000 // (PAYLOAD + BESIDE)


@dataclass
class Ground:
    folder: Path
    clusters: tuple[Cluster, Cluster]
    keys: int
    place: int = 0
    name: str = "orders"
    per_second: int = PER_SECOND
    job: str = ""
    moves: int = 0
    seen: list[float] = field(default_factory=list)

    @property
    def here(self) -> Cluster:
        return self.clusters[self.place]

    @property
    def there(self) -> Cluster:
        return self.clusters[1 - self.place]

    def arguments(
        self, place: int, per_second: int | None = None, hold: int | None = None
    ) -> list[str]:
        settings = {
            "state.backend.type": "rocksdb",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            "execution.checkpointing.dir": (self.folder / f"checkpoints-{place}").as_uri(),
        }
        words = [
            "--counters",
            "orders",
            "--name",
            self.name,
            "--keys",
            str(self.keys),
            "--payload",
            str(PAYLOAD),
            "--per-second",
            str(self.per_second if per_second is None else per_second),
            "--kind",
            "long",
            "--checkpoint-ms",
            str(CHECKPOINT_MS),
            "--output",
            str(self.folder / "out"),
        ]
        words += [word for key, value in settings.items() for word in (f"--flink.{key}", value)]
        return [*words, *(("--hold", str(hold)) if hold is not None else ())]

    def fill(self) -> None:
        """Each key once, as fast as it goes; then at a pace."""
        job = self.here.run("jobs.Count", *self.arguments(self.place, 0, self.keys), parallelism=2)
        until(lambda: self.written() >= self.keys, 1800)
        savepoint = self.here.stopped(job, self.folder / "filled", "NATIVE")
        self.go_on(savepoint)

    def go_on(self, savepoint: Path) -> None:
        self.job = self.here.run(
            "jobs.Count", *self.arguments(self.place), parallelism=2, savepoint=savepoint
        )

    def stopped(self) -> Path:
        """Where its savepoint is."""
        self.moves += 1
        return self.here.stopped(self.job, self.folder / f"taken-{self.moves}", "NATIVE")

    def apply(self, mode: str) -> Path:
        """stateshift brings it to the other cluster: the run's workdir."""
        self.moves += 1
        workdir = self.folder / f"run-{self.moves}"
        words = ["apply", str(self.spec(mode)), "--yes", "--workdir", str(workdir)]
        done = subprocess.run(
            [sys.executable, "-m", "stateshift", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr[-4000:])
        self.place = 1 - self.place
        (self.job,) = (job["jid"] for job in self.here.running() if job["name"] == self.name)
        return workdir

    def written(self) -> int:
        """Lines; each ends with a number, and a file is only ever written to."""
        return sum(
            int(
                subprocess.run(
                    ["wc", "-l", str(file)], capture_output=True, text=True, check=True
                ).stdout.split()[0]
            )
            for file in (self.folder / "out" / "orders").glob("*.txt")
        )

    def settle(self) -> None:
        """Its own checkpoints come, and incremental ones."""
        latest = self.here.ask(f"/jobs/{self.job}/checkpoints")["latest"]["completed"]
        self.here.checkpointed(self.job, after=latest["id"] + 1 if latest else 0)
        time.sleep(STEADY_SECONDS)

    @property
    def state_bytes(self) -> int:
        last = self.here.checkpointed(self.job)
        return sum(file.stat().st_size for file in last.parent.rglob("*") if file.is_file())

    @contextmanager
    def watched(self) -> Iterator[None]:
        """When something was written, to a fiftieth of a second."""
        self.seen, over, folder = [time.time()], threading.Event(), self.folder / "out" / "orders"

        def watch() -> None:
            before = -1
            while not over.is_set():
                now = sum(entry.stat().st_size for entry in os.scandir(folder))
                if now != before:
                    self.seen.append(time.time())
                before = now
                time.sleep(0.02)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def gap(self) -> tuple[float, float]:
        """Its beginning, and its end."""
        return max(zip(self.seen, self.seen[1:], strict=False), key=lambda pair: pair[1] - pair[0])

    def spec(self, mode: str) -> Path:
        def submit(place: int) -> dict[str, Any]:
            return {
                "jar": str(jar(self.here.lib)),
                "entry_class": "jobs.Count",
                "parallelism": 2,
                "arguments": self.arguments(place),
                "seconds_max": 300,
            }

        job = {
            "name": self.name,
            "mode": mode,
            "job_ids": [self.job],
            "source_cluster": "old",
            "target_cluster": "new",
            "target_directory": str(self.folder / f"taken-{self.moves}"),
            "new_savepoint_path": str(self.folder / f"new-{self.moves}"),
            "submit": submit(1 - self.place),
            "source_submit": submit(self.place),
            **({"until": "remaining < 3s"} if mode == "warm" else {"stop": {"format": "native"}}),
        }
        urls = {"old": self.here.url, "new": self.there.url}
        clusters = {name: {"kind": "flink_rest", "url": url} for name, url in urls.items()}
        path = self.folder / "spec.json"
        path.write_text(
            json.dumps({"version": 1, "engine": "flink", "clusters": clusters, "jobs": [job]})
        )
        return path
