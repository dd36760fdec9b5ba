"""The steps by which a standby becomes the job: ClaimTarget, FencePrimary."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

from stateshift.clusters.protocol import JobState, StopRequest
from stateshift.errors import ClusterError, FormatError, StalePlan, StorageError
from stateshift.formats.marks import FOLDER, fence_sizes, is_fence_of
from stateshift.formats.standby import SUPERSEDED, Claim, Superseded, encode_superseded
from stateshift.plain import JsonObject
from stateshift.step.claims import (
    claim,
    give_back,
    newest_claim,
    note_at_primary,
    note_epoch,
)
from stateshift.step.evidence import PrimaryFenced, TargetClaimed
from stateshift.step.fences import FenceSource
from stateshift.step.marks import NoFiles, content_of
from stateshift.step.protocol import Discrepancy, Evidence
from stateshift.world import Fencing, World

SETTLE_SECONDS = 2.0  # between a claim and the first write
FENCE_ATTEMPTS = 3  # a primary that is stopping may still commit a batch or two


@dataclass(frozen=True, slots=True)
class ClaimTarget(NoFiles):
    """Claim the standby: the process that has fed it writes nothing there any more."""

    kind: ClassVar[str] = "ClaimTarget"
    name: str
    location: str
    generation: int
    host: str
    workdir: str
    epoch: int | None = None
    committed_at: float | None = None
    newest: int | None = None
    records_unread: int | None = None
    published_at: float | None = None

    def describe(self) -> str:
        return f"claim {self.location} (generation {self.generation})"

    def run(self, world: World) -> Evidence:
        wanted = Claim(
            self.generation, "failover", world.run, self.host, self.workdir, world.clock.now()
        )
        storage = world.storage(self.location)
        made = note_epoch(storage, claim(storage, wanted), self.epoch)
        # Whoever fed it may be in a write, and asks again within this time (storage.Guarded).
        world.clock.sleep(max(0.0, made.at + SETTLE_SECONDS - world.clock.now()))
        return TargetClaimed(
            made.generation,
            made.at,
            epoch=self.epoch,
            committed_at=self.committed_at,
            newest=self.newest,
            records_unread=self.records_unread,
            published_at=self.published_at,
        )

    def holds(self, world: World, evidence: Evidence) -> list[Discrepancy]:
        found = newest_claim(world.storage(self.location))
        if found is not None and found.run == world.run:
            return []
        there = "no claim" if found is None else f"generation {found.generation} of {found.run}"
        return [Discrepancy(self.location, f"generation {self.generation}", there)]

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        give_back(world.storage(self.location), self.generation, world.run)
        return []


@dataclass(frozen=True, slots=True)
class Successor:
    """The place where a job goes on after a failover, its epoch, and who has started it there."""

    engine: str
    location: str
    epoch: int | None
    host: str
    workdir: str


@dataclass(frozen=True, slots=True)
class FencePrimary(NoFiles):
    """Keep the primary from going on, as far as it answers: stop its job, then take the files that
    its next commit would need, and note beside them where the job runs now. What cannot be reached
    is told and fails nothing; a later failover of the same location tries it again.
    """

    kind: ClassVar[str] = "FencePrimary"
    name: str
    job: str
    location: str
    cluster: str | None = None
    tag: str | None = None
    seconds_max: float = 60.0
    options: JsonObject = field(default_factory=dict)
    successor: Successor | None = None

    @property
    def request(self) -> StopRequest:
        return StopRequest(self.job, self.location, self.tag, self.seconds_max, self.options)

    def describe(self) -> str:
        return f"keep {self.job} from going on at {self.location}"

    def run(self, world: World) -> Evidence:
        before, after, why_running = self._stop(world)
        fencing, why_open = self._fence(world)
        whys = [why for why in (why_running, why_open) if why]
        return PrimaryFenced(
            str(before),
            str(after),
            fencing.paths or (),
            world.clock.now(),
            "; ".join(whys),
            fencing.epoch,
        )

    def _stop(self, world: World) -> tuple[JobState, JobState, str]:
        """Stop the job where it ran. Return its states, and why it could not be stopped."""
        unknown = JobState.UNKNOWN
        if self.cluster is None:
            return unknown, unknown, ""
        try:
            cluster = world.cluster(self.cluster)
            before = after = cluster.find_source(self.request).state
            if before.alive:
                after = cluster.stop(self.request).state
        except (ClusterError, StorageError) as error:
            return unknown, unknown, f"{self.cluster}: {error.fact}"
        return before, after, ""

    def _fence(self, world: World) -> tuple[Fencing, str]:
        """Put up the fence. Return it, or the reason why there is none."""
        why = ""
        for _ in range(FENCE_ATTEMPTS):
            try:
                fencing = world.fencing(self.location)
                if fencing.paths == ():
                    return fencing, f"{self.location}: nothing is there that could be fenced"
                if fencing.paths is not None:
                    FenceSource(self.name, self.location, fencing.paths).run(world)
                    self._note(world, fencing.epoch)
                return fencing, ""
            except StalePlan as error:  # it has committed meanwhile
                why = error.fact
                world.clock.sleep(1.0)
            except StorageError as error:
                return Fencing(), f"{self.location}: {error.fact}"
        return Fencing(), why

    def _note(self, world: World, newest: int | None) -> None:
        """Note at the primary where the job runs now; one of this run that is there stays."""
        storage, to = world.storage(self.location), self.successor
        if to is None:
            return
        with suppress(FormatError):
            there = note_at_primary(storage, (world.run,))
            if there is not None:
                return
        content = encode_superseded(
            Superseded(
                job=self.job,
                engine=to.engine,
                successor=to.location,
                epoch=to.epoch,
                newest=newest,
                run=world.run,
                host=to.host,
                workdir=to.workdir,
                at=world.clock.now(),
            )
        )
        storage.write(SUPERSEDED, lambda: iter((content,)))
        storage.sync()

    def undo(self, world: World, evidence: Evidence | None) -> list[str]:
        sizes = fence_sizes(world.run)
        try:
            storage = world.storage(self.location)
            with suppress(FormatError):
                if note_at_primary(storage, (world.run,)) is not None:
                    storage.remove(SUPERSEDED)
                    storage.prune(FOLDER)
            for file in list(storage.list()):
                is_fence = file.size in sizes
                if is_fence and is_fence_of(content_of(storage, file.path), world.run):
                    storage.remove(file.path)
        except StorageError as error:
            return [f"{self.location} may hold our fence still: {error.fact}"]
        if isinstance(evidence, PrimaryFenced) and evidence.was_stopped:
            return [f"{self.job} was stopped: start it again from {self.location}"]
        return []
