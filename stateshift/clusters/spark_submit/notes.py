"""Notes of drivers, beside the files of their processes.

<state_dir>/<tag>.deployed          of a driver in the cluster (`deploy`)
<state_dir>/<tag>.ended             put there by a person, who has seen that the application is over
<state_dir>/<location>.source.json  processes of a job that we did not submit, written before they
                                    are stopped: {"job", "location", "workdir", "pids"}. They count
                                    for the run of this workdir alone: after it anybody may have
                                    started the job again
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stateshift.clusters.detached import file_name
from stateshift.clusters.protocol import StopRequest, Submission
from stateshift.clusters.spark_submit.deploy import Deployed
from stateshift.clusters.whole_files import write_whole


@dataclass(frozen=True, slots=True)
class DriverNotes:
    """What is remembered of drivers that were handed to a cluster."""

    state_dir: Path
    workdir: str

    def deployed(self, tag: str | None) -> Deployed | None:
        """Return the driver that was handed to the cluster under this tag; None if it runs here."""
        return Deployed.read(self._of_tag(tag, "deployed")) if tag is not None else None

    def submitting(self, submission: Submission, driver: Deployed | None) -> None:
        """Note a submission, before its process is there: whoever looks for the tag later has to
        know what it is.
        """
        self.ended_path(submission.tag).unlink(missing_ok=True)
        self._of_source(submission.location).unlink(missing_ok=True)
        path = self._of_tag(submission.tag, "deployed")
        if driver is None:
            path.unlink(missing_ok=True)
        else:
            driver.write(path)

    def ended_path(self, tag: str) -> Path:
        return self._of_tag(tag, "ended").absolute()

    def stopping(self, request: StopRequest, pids: Sequence[int]) -> None:
        """Note processes, before they are gone: who repeats the stop would not know that the job
        has ended.
        """
        if pids:
            plain = {**self._stopped_by(request), "pids": list(pids)}
            write_whole(self._of_source(request.location), json.dumps(plain).encode())

    def stopped(self, request: StopRequest) -> tuple[int, ...]:
        """Return the processes of this job that were stopped by this run."""
        try:
            plain = json.loads(self._of_source(request.location).read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            return ()
        noted = {name: plain.get(name) for name in ("job", "location", "workdir")}
        return tuple(map(int, plain["pids"])) if noted == self._stopped_by(request) else ()

    def _stopped_by(self, request: StopRequest) -> dict[str, object]:
        return {"job": request.job, "location": request.location, "workdir": self.workdir}

    def _of_tag(self, tag: str, suffix: str) -> Path:
        return self.state_dir / f"{file_name(tag)}.{suffix}"

    def _of_source(self, location: str) -> Path:
        return self.state_dir / f"{file_name(location.rstrip('/'))}.source.json"
