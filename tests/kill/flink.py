"""A session cluster of Flink that stays while who asks it is killed: a stand-in (see
tests.clusters.fake_flink) that writes a real image where it is asked for a savepoint, and lets a
job that goes on complete a checkpoint.
"""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.clusters.fake_flink import ENDED, FakeFlink, FakeJob
from tests.flink.golden import Image, images

IMAGE: Image = images("count-two", version="2.3.0")[0]
JOB = str(IMAGE.told["job"])
EPOCH = int(IMAGE.told["checkpoint"]["id"])


class Session(FakeFlink):
    def reset(self) -> None:
        """One job runs, and nobody has asked for anything."""
        with self.lock:
            for held in (self.jobs, self.jars, self.triggers, self.started):
                held.clear()
            for list_ in (self.asked, self.bodies, self.uploads):
                list_.clear()
            self.begin(JOB)

    def events(self) -> list[tuple[str, str, str]]:
        """As the other scenario's cluster tells them: (verb, job, location), on `flow` or on
        `there`.
        """
        found = []
        with self.lock:
            for job in self.jobs.values():
                place = str((job.restored or {}).get("external_path", ""))
                where = "/there" if place.endswith("/there") else "/flow"
                found.append(("submit", job.id, where))
                if job.state in ENDED or job.ends_as:
                    found.append(("stop", job.id, where))
        return found

    def _taken(self, job: FakeJob, stop: bool, body: dict[str, Any]) -> dict[str, Any]:
        told = super()._taken(job, stop, body)
        place = Path(urlsplit(told["location"]).path)
        place.parent.mkdir(exist_ok=True)
        shutil.copytree(IMAGE.place, place)
        return told

    def _run(self, body: dict[str, Any]) -> tuple[int, Any]:
        status, told = super()._run(body)
        if status == 200 and (job := self.jobs[told["jobid"]]).restored is not None:
            job.restored["id"] = EPOCH
            job.checkpointed(EPOCH + 1, "file:/checkpoints/chk")
        return status, told


def spec_of(root: Path, url: str) -> dict[str, object]:
    """The job that runs goes, rescaled, to another place; where that is taken back, it runs
    again as it did.
    """
    with zipfile.ZipFile(root / "jobs.jar", "w") as packed:
        packed.writestr("jobs/Count.class", b"a class")
    submit = {"jar": str(root / "jobs.jar"), "entry_class": "jobs.Count", "seconds_max": 20}
    job = {
        "name": "orders",
        "job_ids": [JOB],
        "source_cluster": "ours",
        "target_cluster": "ours",
        "target_directory": str(root / "taken"),
        "new_savepoint_path": str(root / "there"),
        "transform": [{"kind": "rescale", "parallelism": 3}],
        "submit": submit,
        "source_submit": submit,
    }
    clusters = {"ours": {"kind": "flink_rest", "url": url, "settle_seconds": 0.05}}
    return {"engine": "flink", "clusters": clusters, "jobs": [job]}
