"""Steps that let the engine write an image of a running job: TakeSavepoint, which ends the job with
it where the spec says so, and TakeCheckpoint, which ends the job with the last checkpoint that it
keeps.

The savepoint is written below a folder of the spec's, under a name that the engine makes up, the
checkpoint where the job keeps them: where it lies stands in the evidence, and the plan of the move
is made from there. A repeat asks with the same tag, and is told of the same one.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from stateshift.clusters.protocol import (
    CheckpointRequest,
    Gone,
    SavepointCluster,
    SavepointRequest,
    StopRequest,
    Submission,
)
from stateshift.errors import ClusterError, FormatError, MissingFile
from stateshift.formats.flink.metadata import decode_metadata
from stateshift.formats.flink.names import METADATA
from stateshift.formats.flink.properties import decode_properties
from stateshift.step.evidence import ImageTaken, of_kind
from stateshift.step.marks import NoFiles, tag_of
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.world import World

ENDING = ("Suspend Savepoint", "Terminate Savepoint")
CLOCKS_APART = 60.0  # seconds that a storage's clock may be behind ours
LISTED_SECONDS_MAX = 15.0  # after which a cluster lists what was completed
_FAILED = (
    "it failed while it was stopped, but its savepoint is whole, and whoever goes on "
    "from it completes the "
    "transactions in which it wrote last ({})"
)
LOOKED_FOR = 4  # checkpoints that a job may have completed meanwhile, some having failed in between
_CHECKPOINT = re.compile(r"/chk-(\d+)/?$")


class TakesImage(NoFiles):
    """What both have in common. A repeat of `run` tells where the image is that the job has
    ended with.
    """

    __slots__ = ()
    cluster: str
    job: str
    job_id: str
    restart: Mapping[str, Any] | None
    restart_environment: Mapping[str, str]

    @property
    @abstractmethod
    def ends(self) -> bool: ...

    @abstractmethod
    def run(self, world: World) -> Evidence: ...

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        image = of_kind(evidence, ImageTaken).image
        return [] if _is_there(world, image) else [Discrepancy(image, "the image", "nothing")]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        """Start the job again from its image, which is left where it is."""
        cluster = _cluster(world, self.cluster)
        if not self.ends or self._state(cluster).alive:
            return []
        if evidence is None:
            # Begun, and the job does not run: it has ended with this image, or before it was asked
            # to.
            try:
                evidence = self.run(world)
            except ClusterError as error:
                return [
                    (
                        f"{self.job} ({self.job_id}) does not run, and no image of it is "
                        f"known: {error.fact}"
                    )
                ]
        image = of_kind(evidence, ImageTaken).image
        if self.restart is None:
            return [
                f"{self.job} is stopped: start it again from {image} (no source_submit in the spec)"
            ]
        again, words = self.tag_again(world), dict(self.restart)
        cluster.submit(
            Submission(again, self.job, image, None, words, dict(self.restart_environment))
        )
        return []

    def tag_again(self, world: World) -> str:
        """Of what the job is started as once its end is taken back."""
        return f"{tag_of(world, self.job_id)}.restart"

    def _state(self, cluster: SavepointCluster) -> Any:
        return cluster.find_source(
            StopRequest(self.job, "", options={"job_ids": [self.job_id]})
        ).state


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
    restart: Mapping[str, Any] | None = None
    restart_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ends(self) -> bool:
        return self.stop or self.cancel

    def describe(self) -> str:
        what = "stop it with a savepoint" if self.stop else "take a savepoint"
        return f"{self.job} ({self.job_id}) on {self.cluster}: {what} in {self.directory}" + (
            ", and cancel it" if self.cancel else ""
        )

    def run(self, world: World) -> Evidence:
        began, cluster, request, failed = (
            world.clock.now(),
            _cluster(world, self.cluster),
            self._request(world),
            None,
        )
        try:
            image = cluster.savepoint(request)
            failed = cluster.failed_behind(request)
        except Gone as gone:
            image = self._left_behind(world, gone)
        note = None
        if failed is not None:
            note = _FAILED.format(failed)
            world.meter.say(f"{self.job}: {note}")
        return ImageTaken(image, self.job_id, began, world.clock.now() - began, note)

    def _left_behind(self, world: World, gone: Gone) -> str:
        """Where the savepoint is that ended the job, by what it says of itself: Flink names its
        folder after the job, and writes its metadata last.
        """
        storage = world.storage(self.directory)
        name = re.compile(rf"savepoint-{re.escape(self.job_id[:6])}-[0-9a-f]{{12}}/{METADATA}")
        found = {file.path: file.modified for file in storage.list() if name.fullmatch(file.path)}
        since = gone.since - CLOCKS_APART
        new = [path for path, modified in found.items() if modified is None or modified >= since]
        ours = [path for path in new if ended_with(storage.read(path))]
        if len(ours) != 1:
            raise gone
        return f"{self.directory.rstrip('/')}/{ours[0].rpartition('/')[0]}"

    def _request(self, world: World) -> SavepointRequest:
        return SavepointRequest(
            tag=tag_of(
                world, self.job_id
            ),  # jobs that divide it take one savepoint, and start it again once
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
    """One more checkpoint is completed, and the job is cancelled: what it does in between is done
    again by whoever goes on. Nothing of its state is written anew, as it is for a savepoint.
    """

    kind: ClassVar[str] = "TakeCheckpoint"
    name: str
    cluster: str
    job: str
    job_id: str
    seconds_max: float
    restart: Mapping[str, Any] | None = None
    restart_environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def ends(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.job} ({self.job_id}) on {self.cluster}: complete a checkpoint, and cancel it"

    def run(self, world: World) -> Evidence:
        began = world.clock.now()
        request, image = (
            CheckpointRequest(tag_of(world, self.job_id), self.job_id, self.seconds_max),
            None,
        )
        try:
            image = _cluster(world, self.cluster).checkpoint(request)
            image = self._last(world, image)
        except Gone as gone:
            image = _left_whole(world, image or gone.image)
            if image is None:
                raise
        return ImageTaken(image, self.job_id, began, world.clock.now() - began)

    def _last(self, world: World, image: str) -> str:
        """What a cluster lists of a job that has ended may be as old as some seconds: where this
        one is not there, or a later one lies beside, it is asked again. One that it never lists was
        not completed, whatever was written.
        """
        later, until = later_ones(world, image), world.clock.now() + LISTED_SECONDS_MAX
        while (later or not _is_there(world, image)) and world.clock.now() < until:
            world.check_interrupted()
            world.clock.sleep(0.2)
            image = _cluster(world, self.cluster).latest_checkpoint(self.job_id) or image
            later = [one for one in later if number_of(one) > number_of(image)]
        return image


def _is_there(world: World, image: str) -> bool:
    return world.storage(image).stat(METADATA) is not None


def number_of(image: str) -> int:
    """Of a checkpoint that an engine has named after it; else 0."""
    found = _CHECKPOINT.search(image)
    return int(found[1]) if found else 0


def later_ones(world: World, image: str) -> list[str]:
    """Checkpoints with metadata that lie beside this one and have one of the next numbers: some
    may have failed.
    """
    found = _CHECKPOINT.search(image)
    if found is None:
        return []
    first, beside = int(found[1]) + 1, image[: found.start()]
    storage = world.storage(beside)
    names = [f"chk-{number}" for number in range(first, first + LOOKED_FOR)]
    return [f"{beside}/{name}" for name in names if storage.stat(f"{name}/{METADATA}") is not None]


def _left_whole(world: World, image: str | None) -> str | None:
    """Of a checkpoint and the later ones beside it, the last that is whole: whoever wrote them is
    gone, and so writes nothing more. Where it was not completed, no sink of its job knows of it,
    and whoever starts from it tells them, as after a failure.
    """
    for one in [*reversed(later_ones(world, image)), image] if image is not None else ():
        with suppress(FormatError, MissingFile):
            decode_metadata(world.storage(one).read(METADATA))
            return one
    return None


def ended_with(content: bytes) -> bool:
    """Whether a job was to end with this savepoint, by its metadata."""
    try:
        properties = decode_properties(decode_metadata(content).properties)
    except FormatError:
        return False
    return properties is not None and properties.name in ENDING


def _cluster(world: World, name: str) -> SavepointCluster:
    return cast(SavepointCluster, world.cluster(name))
