"""Steps that let the engine write an image of a running job: TakeSavepoint, which ends the job with
it where the spec says so, and TakeCheckpoint, which ends the job with the last checkpoint that it
keeps.

The savepoint is written below a folder of the spec's, under a name that the engine makes up, the
checkpoint where the job keeps them. The evidence has its location, from which the plan of the move
is made. A repeat asks with the same tag, and gets the same one.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, cast

from stateshift.clusters.protocol import (
    CheckpointRequest,
    Gone,
    JobState,
    SavepointCluster,
    SavepointRequest,
    StopRequest,
)
from stateshift.errors import ClusterError, FormatError, MissingFile
from stateshift.formats.flink import METADATA
from stateshift.plain import JsonObject
from stateshift.step.evidence import ImageTaken, of_kind
from stateshift.step.jobs import Restart
from stateshift.step.marks import NoFiles, tag_of
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.world import World

ENDING = ("Suspend Savepoint", "Terminate Savepoint")
CLOCKS_APART = 60.0  # seconds that a storage's clock may be behind ours
LISTED_SECONDS_MAX = 15.0  # after which a cluster lists what was completed
_FAILED = (
    "it failed while it was stopped, but its savepoint is whole, and whoever goes on from it "
    "completes the transactions in which it wrote last ({})"
)
LOOKED_FOR = 4  # checkpoints that a job may have completed meanwhile, some having failed in between
_CHECKPOINT = re.compile(r"/chk-(\d+)/?$")


class TakesImage(NoFiles):
    """The part of both. A repeat of `run` gives the image that the job has ended with."""

    __slots__ = ()
    cluster: str
    job: str
    job_id: str
    seconds_max: float
    restart: JsonObject | None
    restart_environment: Mapping[str, str]

    @property
    @abstractmethod
    def ends(self) -> bool: ...

    @abstractmethod
    def request(self, world: World) -> SavepointRequest | CheckpointRequest: ...

    @abstractmethod
    def run(self, world: World) -> Evidence: ...

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        image = of_kind(evidence, ImageTaken).image
        return [] if _is_there(world, image) else [Discrepancy(image, "the image", "nothing")]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        """Start the job again from its image, which is left where it is."""
        cluster = _cluster(world, self.cluster)
        if not self.ends:
            return []
        if self._is_on_its_way_out(cluster, world):
            # Not every cluster can take such a request back.
            call_off = getattr(cluster, "call_off", None)
            if call_off is None or not call_off(self.request(world)):
                self._await_end(cluster, world)
        if self._state(cluster).alive:
            return []
        if evidence is None:
            # Begun, and the job does not run: it has ended with this image, or before it was asked
            # to.
            try:
                evidence = self.run(world)
            except ClusterError as error:
                if self._state(cluster).alive:
                    return []  # it has ended without an image, and was resumed
                left = f"{self.job} ({self.job_id}) does not run, and no image of it is known"
                return [f"{left}: {error.fact}"]
        image = of_kind(evidence, ImageTaken).image
        return Restart(
            self.cluster,
            self.job,
            image,
            self.tag_again(world),
            self.restart,
            self.restart_environment,
            tells_progress=True,
        ).run(world)

    def _is_on_its_way_out(self, cluster: SavepointCluster, world: World) -> bool:
        return self._state(cluster).alive and cluster.is_ending(self.request(world))

    def _await_end(self, cluster: SavepointCluster, world: World) -> None:
        """Wait until the job has ended: the request to end it cannot be called off."""
        world.meter.say(f"{self.job} is about to end, as it was asked to: that is waited for")
        until = world.clock.now() + self.seconds_max
        while self._is_on_its_way_out(cluster, world):
            if world.clock.now() >= until:
                raise ClusterError(
                    f"{self.job} ({self.job_id}) still writes the image that it is to end with",
                    cluster=self.cluster,
                    job=self.job,
                    hint="`stateshift rollback WORKDIR` waits for its end again, and starts it "
                    "from there",
                )
            world.check_interrupted()
            world.clock.sleep(0.5)

    def tag_again(self, world: World) -> str:
        """Return the first tag under which the job is started once its end is taken back."""
        return f"{tag_of(world, self.job_id)}.restart"

    def _state(self, cluster: SavepointCluster) -> JobState:
        request = StopRequest(self.job, "", options={"job_ids": [self.job_id]})
        return cluster.find_source(request).state


@dataclass(frozen=True, slots=True)
class TakeSavepoint(TakesImage):
    """`stop`: the job ends with its savepoint, and nothing is done after it; `cancel`: the older
    way, with records in between that are done twice or lost. Neither: the job goes on, and what it
    does from now on is not in the image.
    """

    kind: ClassVar[str] = "TakeSavepoint"
    name: str
    cluster: str
    job: str
    job_id: str
    directory: str
    stop: bool
    cancel: bool
    drain: bool
    native: bool
    seconds_max: float
    restart: JsonObject | None = None
    restart_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ends(self) -> bool:
        return self.stop or self.cancel

    def describe(self) -> str:
        what = "stop it with a savepoint" if self.stop else "take a savepoint"
        then = ", and cancel it" if self.cancel else ""
        return f"{self.job} ({self.job_id}) on {self.cluster}: {what} in {self.directory}{then}"

    def run(self, world: World) -> Evidence:
        began = world.clock.now()
        cluster = _cluster(world, self.cluster)
        request = self.request(world)
        failed = None
        try:
            image = cluster.savepoint(request)
            failed = cluster.failed_behind(request)
        except Gone as gone:
            storage = world.storage(self.directory)
            name = re.compile(rf"savepoint-{re.escape(self.job_id[:6])}-[0-9a-f]{{12}}/{METADATA}")
            since = gone.since - CLOCKS_APART
            new = []
            for file in storage.list():
                modified: float | None = file.modified  # not every storage says it
                if name.fullmatch(file.path) and (modified is None or modified >= since):
                    new.append(file.path)
            ours = [path for path in new if has_ended_job(storage.read(path))]
            if len(ours) != 1:
                raise gone
            image = f"{self.directory.rstrip('/')}/{ours[0].rpartition('/')[0]}"
        note = None
        if failed is not None:
            note = _FAILED.format(failed)
            world.meter.say(f"{self.job}: {note}")
        seconds = world.clock.now() - began
        return ImageTaken(image, self.job_id, began, seconds, note, ended=self.ends)

    def request(self, world: World) -> SavepointRequest:
        return SavepointRequest(
            # Jobs that divide it take one savepoint, and start it again once.
            tag=tag_of(world, self.job_id),
            job_id=self.job_id,
            directory=self.directory,
            stop=self.stop,
            cancel=self.cancel,
            drain=self.drain,
            native=self.native,
            seconds_max=self.seconds_max,
        )


@dataclass(frozen=True, slots=True)
class TakeCheckpoint(TakesImage):
    """Complete one more checkpoint, and cancel the job: what it does in between is done again by
    whoever goes on. Nothing of its state is rewritten, as it is for a savepoint.
    """

    kind: ClassVar[str] = "TakeCheckpoint"
    name: str
    cluster: str
    job: str
    job_id: str
    seconds_max: float
    restart: JsonObject | None = None
    restart_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ends(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.job} ({self.job_id}) on {self.cluster}: complete a checkpoint, and cancel it"

    def run(self, world: World) -> Evidence:
        began = world.clock.now()
        image: str | None = None
        try:
            image = _cluster(world, self.cluster).checkpoint(self.request(world))
            image = self._last(world, image)
        except Gone as gone:
            image = _left_whole(world, image or gone.image)
            if image is None:
                raise
        return ImageTaken(image, self.job_id, began, world.clock.now() - began)

    def request(self, world: World) -> CheckpointRequest:
        return CheckpointRequest(tag_of(world, self.job_id), self.job_id, self.seconds_max)

    def _last(self, world: World, image: str) -> str:
        """Return the last checkpoint. Clusters list an ended job's some seconds late: if this one
        is gone, or later ones lie beside, ask again. One that is never listed was not completed.
        """
        later = later_ones(world, image)
        until = world.clock.now() + LISTED_SECONDS_MAX
        while later or not _is_there(world, image):
            if world.clock.now() >= until:
                break
            world.check_interrupted()
            world.clock.sleep(0.2)
            image = _cluster(world, self.cluster).latest_checkpoint(self.job_id) or image
            later = [other for other in later if number_of(other) > number_of(image)]
        return image


def _is_there(world: World, image: str) -> bool:
    return world.storage(image).stat(METADATA) is not None


def number_of(image: str) -> int:
    """Return the number of a checkpoint that an engine has named after it; else 0."""
    match = _CHECKPOINT.search(image)
    return int(match[1]) if match else 0


def later_ones(world: World, image: str) -> list[str]:
    """Return the next checkpoints beside this one that have metadata: some may have failed."""
    match = _CHECKPOINT.search(image)
    if match is None:
        return []
    beside = image[: match.start()]
    storage = world.storage(beside)
    first = int(match[1]) + 1
    names = [f"chk-{number}" for number in range(first, first + LOOKED_FOR)]
    return [f"{beside}/{name}" for name in names if storage.stat(f"{name}/{METADATA}") is not None]


def _left_whole(world: World, image: str | None) -> str | None:
    """Return the last checkpoint that is whole, of this one and the later ones beside it: their
    writer is gone, and writes nothing more. If it was not completed, no sink of its job knows of
    it, and the job that starts from it tells them, as after a failure.
    """
    from stateshift.formats.flink.metadata import decode_metadata  # see `has_ended_job`

    if image is None:
        return None
    for checkpoint in [*reversed(later_ones(world, image)), image]:
        with suppress(FormatError, MissingFile):
            decode_metadata(world.storage(checkpoint).read(METADATA))
            return checkpoint
    return None


def has_ended_job(content: bytes) -> bool:
    """Whether a job was to end with this savepoint, by its metadata."""
    # Imported here: every plan knows these steps, and those of Spark's jobs read no savepoint.
    from stateshift.formats.flink.metadata import decode_metadata
    from stateshift.formats.flink.properties import decode_properties

    try:
        properties = decode_properties(decode_metadata(content).properties)
    except FormatError:
        return False
    return properties is not None and properties.name in ENDING


def _cluster(world: World, name: str) -> SavepointCluster:
    return cast(SavepointCluster, world.cluster(name))
