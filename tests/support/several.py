"""Several jobs that live on one disk in memory, and their standbys, which one run feeds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from stateshift.clusters.protocol import StopRequest, Submission
from stateshift.formats.standby import STATE, StandbyState, decode_state
from stateshift.specification import Spec, parse_spec
from tests.migration.test_warm import Ended
from tests.support.checkpoints import Checkpoint, put
from tests.support.ground import Ground
from tests.support.living import LivingJob, state_at


def here(name: str) -> str:
    return f"file:///here/{name}"


def there(name: str) -> str:
    return f"file:///there/{name}"


class SeveralJobs(Ground):
    """Jobs by name, each in a place of its own. `acts` are what happens at a certain look; after
    `looks` the process that feeds the standbys ends.
    """

    def __init__(self, folder: Path, names: Sequence[str], batches: int = 3) -> None:
        super().__init__(folder)
        self.jobs: dict[str, LivingJob] = {}
        for number, name in enumerate(names):
            job = LivingJob(self.disk, here(name), random.Random(number))
            job.retained = 100
            self.jobs[name] = job
            self.cluster.run(name, here(name))
        for _ in range(batches):
            self.batch(*names)
        self.clock.time += 600
        self.started: dict[str, int | None] = {}
        self.looks = 0
        self.acts: dict[int, Callable[[], None]] = {}
        self.clock.on_sleep = self._sleep
        self.cluster._on_stop = self._stop
        self.cluster._on_start = self._start

    def batch(self, *names: str) -> None:
        """Each commits a batch, one second after the other."""
        for name in names:
            self.clock.time += 1
            self.jobs[name].batch()

    def plan(self, name: str) -> None:
        """Its next batch has begun, and is not committed."""
        number = self.jobs[name].epoch + 1
        put(self.disk.open(here(name)), f"offsets/{number}", Checkpoint(shards=2).offsets(number))

    def _sleep(self) -> None:
        self.looks -= 1
        self.acts.pop(self.looks, lambda: None)()
        if self.looks < 0:
            raise Ended

    def _stop(self, request: StopRequest) -> None:
        for job in self.jobs.values():
            if job.location == request.location:
                job.running = False

    def _start(self, submission: Submission) -> None:
        """The job goes on from what is there, which is a state that it once had."""
        name = submission.location.rpartition("/")[2]
        job, storage = self.jobs[name], self.disk.open(submission.location)
        epoch, state = state_at(storage)
        assert epoch is not None and state in job.ever[epoch]
        self.started[name] = epoch
        moved = job.moved_to(submission.location)
        moved.epoch = epoch
        moved.batch()

    def spec(self, **keys: object) -> Spec:
        """Standbys of all jobs; `keys` beside them."""
        jobs = []
        for name in self.jobs:
            jobs.append(
                {
                    "name": name,
                    "checkpoint_location": here(name),
                    "remote_location": there(name),
                    "mode": "warm",
                    "cutover": "never",
                    "source_cluster": "ours",
                    "target_cluster": "ours",
                    "submit": {"command": "go"},
                }
            )
        ours = {"kind": "command", "find": "f", "submit": "s", "stop": "t"}
        spec = {"version": 1, "engine": "spark", "jobs": jobs, "clusters": {"ours": ours}, **keys}
        return parse_spec(json.dumps(spec))

    def feed(self, looks: int = 60, **keys: object) -> None:
        """Keep the standbys for so many looks."""
        self.looks = looks
        with pytest.raises(Ended):
            if self.workdir().exists:
                self.resume()
            else:
                self.apply(self.spec(**keys))
        self.looks = 10**6

    def state(self, name: str) -> StandbyState:
        return decode_state(self.disk.open(there(name)).read(STATE))

    def kept(self, name: str) -> list[int]:
        return [each.epoch for each in self.state(name).kept]
