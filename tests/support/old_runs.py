"""Runs that an earlier version has made, and how to go on from them: a workdir, and the disk and
the cluster in memory that it was about.

    freeze(ground, folder)   write what is there into a folder
    thaw(folder, workdir)    the same ground again, with a copy of the run's workdir

    FOLDER/
      workdir/      spec, proposal, journal and plans, as they were written
      disk.json     [name, content in base64, modified, stamp] of every file
      cluster.json  the jobs, and the savepoints of Flink's
      said.json     what that version said of the run: its report, what verify found, and what a
                    resume and a rollback led to
"""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stateshift import migration, plain
from stateshift.clusters.protocol import JobState, JobStatus, Submission
from stateshift.errors import StateshiftError
from stateshift.testing.memory_cluster import MemoryCluster, MemoryJob
from stateshift.testing.memory_flink import MemoryFlink
from stateshift.testing.memory_storage import _File
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import Ground

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "runs"


def freeze(ground: Ground, folder: Path) -> None:
    shutil.copytree(ground.workdir().path, folder / "workdir")
    for name in ("held", "live.json", "steer", "jobs"):
        place = folder / "workdir" / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
    files = [
        [name, base64.b64encode(file.content).decode(), file.modified, file.stamp]
        for name, file in sorted(ground.disk._files.items())
    ]
    _write(folder / "disk.json", {"time": ground.clock.time, "files": files})
    cluster = ground.cluster
    jobs = [
        [job.job, job.location, job.tag, str(job.status.state), job.status.id]
        for job in cluster.jobs
    ]
    savepoints = cluster.savepoints if isinstance(cluster, MemoryFlink) else None
    started = len(cluster.submissions)
    _write(folder / "cluster.json", {"jobs": jobs, "savepoints": savepoints, "submitted": started})


def thaw(folder: Path, place: Path) -> Ground:
    """The ground as it was, for a run whose workdir is copied to `place`."""
    disk = json.loads((folder / "disk.json").read_text())
    ground = Ground(place)
    ground.clock.time = disk["time"] + 60.0
    for name, content, modified, stamp in disk["files"]:
        ground.disk.make_way(name)
        file = _File(base64.b64decode(content), modified, stamp=stamp)
        ground.disk.put(name, file, durable=True)
    ground.disk._stamps = 1_000_000
    told = json.loads((folder / "cluster.json").read_text())
    ground.cluster = _cluster(ground, told)
    shutil.copytree(folder / "workdir", place / "run")
    (place / "run" / "jobs").mkdir()
    return ground


def _cluster(ground: Ground, told: dict[str, Any]) -> MemoryCluster:
    if told["savepoints"] is not None:
        flink = MemoryFlink(lambda location: None)
        flink.savepoints.update(told["savepoints"])
        cluster: MemoryCluster = flink
    else:
        cluster = MemoryCluster(on_start=going_on(ground))
    for job, location, tag, state, id in told["jobs"]:
        cluster.jobs.append(MemoryJob(job, location, tag, JobStatus(JobState(state), id)))
    cluster.submissions = [Submission("earlier", "", "", None, {}, {})] * told["submitted"]
    return cluster


def going_on(ground: Ground) -> Callable[[Submission], None]:
    """What is started on a target commits its next batch."""

    def start(submission: Submission) -> None:
        if submission.location.startswith("file:///there"):
            commit(ground, submission.location)

    return start


def commit(ground: Ground, location: str) -> None:
    """The batch behind the last one that lies there."""
    last = max(
        int(file.path.rpartition("/")[2]) for file in ground.disk.open(location).list("commits")
    )
    extra = Checkpoint(batches=last + 2).files()
    version = last + 2
    following = (f"offsets/{last + 1}", f"commits/{last + 1}")
    for path in (*following, f"state/0/0/{version}.delta", f"state/0/1/{version}.delta"):
        put(ground.disk.open(location), path, extra[path])


def led_to(ground: Ground, act: Callable[[Ground], Any]) -> dict[str, Any]:
    """The run's state, what runs, and which files there are, once this was done."""
    refused = None
    try:
        act(ground)
    except StateshiftError as error:
        refused = type(error).__name__
    return {
        "refused": refused,
        "report": told_of(migration.status(ground.workdir())),
        "running": sorted(
            [job.job, job.location] for job in ground.cluster.jobs if job.status.state.alive
        ),
        "files": sorted(ground.disk.snapshot()),
    }


# What a report has told since, of runs that have none of it.
NEW = (
    ("source_lost", None),
    ("standby", None),
    ("failover", None),
    ("drill", None),
    ("set_aside", None),
    ("positions", []),
    ("commands", []),
    ("stop_begun", None),
)


def told_of(report: Any) -> dict[str, Any]:
    """A report, without the hints (words change) and without what the wall clock measured."""
    value: dict[str, Any] = plain.to_plain(report)
    return without_times(value)


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        changing = (
            "seconds",
            "idle_seconds",
            "hint",
            "brought_per_second",
            "downtime_without_rounds",
            "left_seconds",
        )
        return {
            key: without_times(item)
            for key, item in value.items()
            if key not in changing and (key, item) not in NEW
        }
    if isinstance(value, list):
        return [without_times(item) for item in value]
    return value


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
