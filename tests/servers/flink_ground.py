"""Two real Flinks with a job that counts: what tests of moves start, say to stateshift, and look
at afterwards.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.support import ROOT, stateshift
from tests.support.flink import Cluster, cluster_of, faults, jar, lines, until
from tests.support.servers import Servers

KEYS = 7
ALIVE = ("RUNNING", "RESTARTING", "CREATED", "INITIALIZING")


def incremental(folder: Path, **other: str) -> list[str]:
    """Flink's settings of a job whose checkpoints are incremental, stay behind, and are files
    even while small.
    """
    settings = {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.data-inline-threshold": "0 b",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        **other,
    }
    return [word for key, value in settings.items() for word in (f"--flink.{key}", value)]


@dataclass(frozen=True)
class Ground:
    servers: Servers
    folder: Path
    names: tuple[str, ...] = ("flink-a", "flink-b")

    @property
    def here(self) -> Cluster:
        return self.clusters[0]

    @property
    def there(self) -> Cluster:
        return self.clusters[1]

    @property
    def clusters(self) -> list[Cluster]:
        return [cluster_of(self.servers, name) for name in self.names]

    def arguments(self, counters: str) -> list[str]:
        return [
            "--counters",
            counters,
            "--keys",
            str(KEYS),
            "--output",
            str(self.folder / "out"),
            "--checkpoint-ms",
            "300",
            "--name",
            counters,
        ]

    def started(self, counters: str, *words: str, parallelism: int = 2) -> str:
        """A job that counts on the old cluster, and has written something; its id."""
        job = self.here.run(
            "jobs.Count", *self.arguments(counters), *words, parallelism=parallelism
        )
        until(lambda: all(len(self.written(counter)) > 100 for counter in counters.split(",")))
        return job

    def written(self, counter: str) -> list[Any]:
        return lines(self.folder / "out" / counter)

    def spec(self, *jobs: dict[str, Any], **beside: Any) -> Path:
        clusters = {
            "old": {"kind": "flink_rest", "url": self.here.url},
            "new": {"kind": "flink_rest", "url": self.there.url, "settle_seconds": 5},
        }
        plain = {
            "version": 1,
            "engine": "flink",
            "clusters": clusters,
            "jobs": list(jobs),
            **beside,
        }
        path = self.folder / "spec.json"
        path.write_text(json.dumps(plain))
        return path

    def job(self, name: str, *ids: str, counters: str | None = None, **more: Any) -> dict[str, Any]:
        """Of the spec: jobs with these ids end with savepoints, and one that counts `counters`
        starts over there.
        """
        return {
            "name": name,
            "job_ids": list(ids),
            "source_cluster": "old",
            "target_cluster": "new",
            "target_directory": str(self.folder / "taken"),
            "new_savepoint_path": str(self.folder / f"new-{name}"),
            "submit": self.submit(counters or name),
            "source_submit": self.submit(counters or name),
            **more,
        }

    def submit(self, counters: str, *words: str, parallelism: int = 2) -> dict[str, Any]:
        return {
            "jar": str(jar(self.there.lib)),
            "entry_class": "jobs.Count",
            "parallelism": parallelism,
            "arguments": [*self.arguments(counters), *words],
            "seconds_max": 90,
        }

    def said(self, *words: str | Path, code: int = 0) -> Any:
        return stateshift(*words, "--json", cwd=ROOT, code=code).json

    def applied(self, spec: Path, code: int = 0) -> Any:
        return self.said("apply", spec, "--yes", "--workdir", self.workdir, code=code)

    @property
    def workdir(self) -> Path:
        return self.folder / "runs" / "move"

    def goes_on(self, *counters: str, twice: bool = False) -> None:
        """A while after the move, nothing has been lost, counted wrongly or written twice; but
        `twice`, where what came after the last checkpoint was done again.
        """
        before = {counter: len(self.written(counter)) for counter in counters}
        until(
            lambda: all(len(self.written(counter)) > before[counter] + 100 for counter in counters)
        )
        self.ended()
        for counter in counters:
            found = self.written(counter)
            found = sorted(set(found), key=lambda line: line.number) if twice else found
            assert faults(found, KEYS, 0, len(found)) == []

    def ended(self, kind: str = "CANONICAL") -> None:
        """Whatever still runs anywhere is stopped, with what it has written."""
        for cluster, job in self._alive():
            cluster.stopped(job, self.folder / "last", kind=kind)

    def cleared(self) -> None:
        for cluster, job in self._alive():
            cluster.cancelled(job)

    def _alive(self) -> list[tuple[Cluster, str]]:
        return [
            (cluster, job["jid"])
            for cluster in dict.fromkeys(self.clusters)
            for job in cluster.ask("/jobs/overview")["jobs"]
            if job["state"] in ALIVE
        ]
