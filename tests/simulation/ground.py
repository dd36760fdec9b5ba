"""The ground that random walks are on: a disk and a cluster in memory, jobs that commit, runs that
are killed.

    Ground   everything there is, and the verbs; `look` compares it with what must hold after each
             of them
    Run      one migration: what it was asked for, and what is known of it
    Trouble  what happens to a verb at its n-th moment

What is known beforehand is little, and enough: every batch of every image is a function of its
number (`batch_files`). So whatever has happened, it can be said of each file whether it is right,
and of each image whether it is whole.
"""

from __future__ import annotations

import json
import random
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from stateshift import migration
from stateshift.clusters.protocol import JobState, StopRequest, Submission
from stateshift.engines.spark.layout import has_commits
from stateshift.engines.spark.survey.checkpoint import survey
from stateshift.errors import JOB_DOWN, AlreadyThere, JournalError, StateshiftError
from stateshift.formats.marks import IDLE, LOCK_SUFFIX, encode_idle, fence_owner
from stateshift.migration import Adapters, Proposal
from stateshift.report import Report
from stateshift.specification import Spec, parse_spec
from stateshift.storage.temporaries import is_temporary
from stateshift.testing.memory_cluster import MemoryCluster
from stateshift.testing.memory_storage import MemoryDisk, ProcessGone
from tests.contracts.faulty import Killed
from tests.kill.moments import Doomed, DoomedCluster, DoomedLines, DoomedWorkdir, Moment, Moments
from tests.support.checkpoints import Checkpoint, put
from tests.support.entries import entries
from tests.support.ground import Clock

__all__ = ["COUNTS", "JOB", "FickleCluster", "Ground", "Kind", "Moment", "Mood", "Run", "Trouble"]

JOB = "orders"
TOP = "memory://m"
SHARDS, KEYS = 2, 1

Kind = Literal["kill", "crash", "interrupt", "zombie", "batch", "rival"]
Mood = Literal["commits", "idle", "dies", "ends", "sleeps"]

COUNTS: Counter[str] = Counter()


@dataclass(frozen=True)
class Trouble:
    kind: Kind
    at: int | Moment


@dataclass
class Run:
    """`doubtful` once something happened that may rightly stop it: a batch or another run's
    fence on its source.
    """

    name: str
    source: str
    target: str
    merge: str | None
    spec: Spec
    proposal: Proposal
    facts: object
    halts: bool
    workdir: Path
    state: str = "planned"
    doubtful: bool = False
    ran: bool = False  # the job ran on the source when the run began

    @property
    def open(self) -> bool:
        return self.state not in ("planned", "new", "finished", "rolled-back")


class FickleCluster(MemoryCluster):
    @property
    def faults(self) -> int:
        """How many submissions it will still fail."""
        return len(self._faults)

    def behave(self) -> None:
        self._faults.clear()


class HastyLines(DoomedLines):
    def _sync(self, descriptor: int) -> None:
        """Nothing here survives this process anyway."""
        self.moments.reach("before sync")


class HastyWorkdir(DoomedWorkdir):
    @property
    def lines(self) -> DoomedLines:
        lines = HastyLines(self.path / "journal")
        lines.moments = self._moments
        return lines


@dataclass
class Ground:
    place: Path
    mood: Mood = "commits"
    ends_batches: bool = False  # a job that a rollback stops commits the batch first that it is in
    runs: list[Run] = field(default_factory=list)
    home: str = f"{TOP}/c0"
    places: int = 0

    def __post_init__(self) -> None:
        self.clock = Clock(1_700_000_000.0, self._time_passes, tick=0.001)
        self.disk = MemoryDisk(now=lambda: 1_600_000_000.0)
        self.cluster = FickleCluster("ours", on_start=self._started, on_stop=self._stopped)
        self.right: dict[
            str, dict[str, bytes]
        ] = {}  # location -> what must be there, and nothing else but ours
        self.told: list[str] = []
        self.submit_failed = False
        self._new_image(self.home, "a", 2)
        self.cluster.run(JOB, self.home)

    # ---- what is there

    def epochs(self, location: str) -> dict[str, int]:
        """The last batch of each image, as its files tell; a fence is none."""
        found: dict[str, int] = {}
        for path, content in self.disk.snapshot(location).items():
            image, _, rest = path.partition("/")
            if rest.startswith("commits/") and fence_owner(content) is None:
                found[image] = max(found.get(image, -1), int(rest.removeprefix("commits/")))
        return found

    def alive(self, location: str | None = None) -> int:
        there = [job for job in self.cluster.jobs if job.status.state.alive]
        return len([job for job in there if location in (None, job.location)])

    def state_of(self, run: Run) -> str:
        workdir = HastyWorkdir(str(run.workdir), Moments())
        return migration.status(workdir).state if workdir.exists else "planned"

    def discards(self, location: str) -> bool:
        """Whether what a job has written there was thrown away by a rollback, or is about to be."""
        going = [
            run
            for run in self.runs
            if run.target == location and run.state in ("rolling-back", "rolled-back")
        ]
        workdirs = [HastyWorkdir(str(run.workdir), Moments()) for run in going]
        return any(migration.progress_of(workdir).discard for workdir in workdirs)

    def facts(self, source: str, merge: str | None, target: str, halts: bool) -> object:
        """What a plan is made from, as far as it must not change until it is carried out."""
        if halts:
            whole = [
                path
                for path in self.disk.snapshot(source)
                if path.endswith(("/metadata", "/1.delta"))
            ]
            at_source: object = (sorted(self.epochs(source)), whole)
        else:
            at_source = self.disk.snapshot(source)
        return (at_source, merge and self.disk.snapshot(merge), bool(self.disk.snapshot(target)))

    # ---- what the rest of the world does

    def batch(self, location: str, alive: bool = True) -> bool:
        """The job commits a batch in each image, or dies at a fence. A zombie does so though it
        was stopped.
        """
        if alive and not self.alive(location):
            return False
        return self._committed(location, alive)

    def _committed(self, location: str, alive: bool = True) -> bool:
        storage, done = self.disk.open(location), True
        known = {path.split("/", 1)[0] for path in self.right.get(location, {})}
        for image, epoch in sorted(self.epochs(location).items()):
            if not alive and image not in known:  # merged in since: that job knows nothing of it
                continue
            files = batch_files(image, epoch + 1)
            logs = [path for path in files if "/offsets/" in path] + [
                path for path in files if "/commits/" in path
            ]
            offset, commit = logs
            with suppress(AlreadyThere):
                if self.disk.snapshot(location).get(offset) != files[offset]:  # not planned already
                    storage.create(offset, files[offset])
                for path in files:
                    if path not in logs:
                        put(storage, path, files[path])
                storage.sync()
                self.right.setdefault(location, {}).update(
                    {p: c for p, c in files.items() if p != commit}
                )
                storage.create(commit, files[commit])
                self.right[location][commit] = files[commit]
                continue
            done = False
        for job in self.cluster.jobs:
            if (
                not done
                and job.location == location
                and job.status.state.alive
                and job.tag is not None
            ):
                self.cluster.set_state(job.tag, JobState.FAILED, "somebody took my next batch")
        for run in self.runs:
            if location in (run.source, run.merge):
                run.doubtful = True
        return done

    def misbehave(self, how: str) -> None:
        """The next submission is refused, or its answer is lost, or it takes effect later."""
        if not self.cluster.faults:
            getattr(self.cluster, how)()

    def start_by_hand(self) -> bool:
        if self.alive() or any(run.open for run in self.runs) or self._fenced(self.home):
            return False
        self.cluster.run(JOB, self.home)
        for run in self.runs:
            run.doubtful = run.doubtful or run.state == "planned"
        return True

    def _started(self, submission: Submission) -> None:
        self.told.append(f"started {submission.location} ({submission.tag})")

    def _stopped(self, request: StopRequest) -> None:
        ours = [
            run for run in self.runs if run.target == request.location and run.state != "planned"
        ]
        if (
            self.ends_batches
            and request.tag
            and any(request.tag.split(".")[0] == run.name for run in ours)
        ):
            self.told.append(f"ends its batch at {request.location}")
            self._committed(request.location)

    def _time_passes(self) -> None:
        """While somebody waits for the job on a target."""
        for job in [
            job for job in self.cluster.jobs if job.status.state.alive and job.tag is not None
        ]:
            assert job.tag is not None
            match self.mood:
                case "commits":
                    self.batch(job.location)
                case "idle":
                    for image in self.epochs(job.location):
                        put(
                            self.disk.open(job.location),
                            f"{image}/{IDLE}",
                            encode_idle(job.tag, None),
                        )
                case "dies":
                    self.cluster.set_state(job.tag, JobState.FAILED, "out of memory")
                case "ends":
                    self.cluster.set_state(job.tag, JobState.FINISHED)

    # ---- verbs

    def plan(self, merges: bool = False, target: str | None = None, verify: str = "entries") -> Run:
        self.places += 1
        source, halts = self.home, self.alive(self.home) > 0
        if target is not None and self._holder(target) is not None:
            self._cannot_be_planned(source, target)
            target = None
        target, merge = (
            target or f"{TOP}/c{self.places}",
            f"{TOP}/m{self.places}" if merges else None,
        )
        if merge:
            self._new_image(merge, f"b{self.places}", self.places % 3)
        spec = parse_spec(
            json.dumps(_spec(source, target, merge, halts or self.places % 4 > 0, verify))
        )
        run = Run(
            f"run{self.places}",
            source,
            target,
            merge,
            spec,
            Proposal(spec, ()),
            self.facts(source, merge, target, halts),
            halts,
            self.place / f"run{self.places}",
        )
        before = self.disk.snapshot(temporaries=True)
        run.proposal = migration.propose(
            spec, self._adapters(Moments()), HastyWorkdir(str(run.workdir), Moments())
        )
        assert self.disk.snapshot(temporaries=True) == before, "plan only reads"
        refused = bool(self._fenced(source) or self.disk.snapshot(target))
        assert bool(run.proposal.refusals) == refused, run.proposal.refusals
        self.runs.append(run)
        COUNTS["plan"] += 1
        return run

    def _cannot_be_planned(self, source: str, target: str) -> None:
        """What a run still works on is not what it will be: nobody plans for it, and nothing is
        changed.
        """
        spec, before = (
            parse_spec(json.dumps(_spec(source, target, None, False, "none"))),
            self.disk.snapshot(),
        )
        with pytest.raises(JournalError, match="is held by run"):
            migration.propose(
                spec,
                self._adapters(Moments()),
                HastyWorkdir(str(self.place / "nothing"), Moments()),
            )
        assert self.disk.snapshot() == before

    def apply(
        self, run: Run, trouble: Trouble | None = None, seed: int = 0
    ) -> Report | StateshiftError | None:
        if not run.spec.clusters and self.alive(run.source):
            return None  # nobody told us of its cluster: then to stop it first is the user's part
        changed = self.facts(run.source, run.merge, run.target, run.halts) != run.facts
        stale = changed or (not run.halts and self.alive(run.source) > 0)
        refused = bool(
            run.proposal.refusals or self._fenced(run.source) or self.disk.snapshot(run.target)
        )
        held = not {self._holder(run.target), self._holder(run.source)} <= {None, run.name}
        run.doubtful = run.doubtful or stale or refused or held
        run.ran = self.alive(run.source) > 0
        before = self.disk.snapshot()
        outcome = self._carry_out(
            "apply",
            run,
            trouble,
            seed,
            lambda workdir, adapters: migration.apply(run.proposal, run.name, workdir, adapters),
        )
        if isinstance(outcome, StateshiftError) and trouble is None and (stale or refused or held):
            COUNTS["refused"] += 1
            assert outcome.exit_code in ((4, 8) if held else (4,)), outcome
            assert self.disk.snapshot() == before, "what is refused changes nothing"
            assert self.alive(run.source) == run.ran, "what is refused leaves the job as it was"
        elif not (stale or refused or held):
            self._expect_to_finish(run, outcome, trouble)
        return outcome

    def resume(
        self, run: Run, trouble: Trouble | None = None, seed: int = 0
    ) -> Report | StateshiftError | None:
        before, state = self.disk.snapshot(), run.state
        held = not {self._holder(run.target), self._holder(run.source)} <= {None, run.name}
        outcome = self._carry_out("resume", run, trouble, seed, migration.resume)
        if state in ("finished", "rolled-back"):
            assert outcome is None or (isinstance(outcome, Report) and outcome.state == state), (
                outcome
            )
            assert trouble is not None or self.disk.snapshot() == before, (
                "there was nothing left to do"
            )
        elif held:
            assert outcome is None or (
                isinstance(outcome, StateshiftError) and outcome.exit_code in (4, 8, 130)
            )
        elif state != "rolling-back":
            self._expect_to_finish(run, outcome, trouble)
        return outcome

    def rollback(
        self, run: Run, trouble: Trouble | None = None, seed: int = 0, discard: bool = True
    ) -> Report | StateshiftError | None:
        progress = any(
            epoch > self._moved_at(run, image) for image, epoch in self.epochs(run.target).items()
        )
        gone_on = bool(self._fenced(run.target)) or self._runs_under_another_tag(run)
        held = not {self._holder(run.target), self._holder(run.source)} <= {None, run.name}
        before, state = self.disk.snapshot(), run.state
        outcome = self._carry_out(
            "rollback",
            run,
            trouble,
            seed,
            lambda workdir, adapters: migration.rollback(workdir, adapters, discard),
        )
        if isinstance(outcome, StateshiftError):
            if (
                gone_on or (trouble is not None and trouble.kind == "rival")
            ) and outcome.exit_code == 4:
                assert trouble is not None or self.disk.snapshot() == before
                COUNTS["gone on"] += 1
            elif held and outcome.exit_code == 8:
                pass
            elif self.ends_batches and not discard and "while it was being stopped" in outcome.fact:
                assert (outcome.exit_code, run.state) == (JOB_DOWN, "failed"), outcome
                COUNTS["batch kept"] += 1
            elif progress and not discard and state not in ("rolling-back", "rolled-back"):
                assert outcome.exit_code == 4 and "committed" in outcome.fact, outcome
                assert trouble is not None or self.disk.snapshot() == before
                COUNTS["progress kept"] += 1
            elif outcome.exit_code in (7, JOB_DOWN):
                assert self.submit_failed, outcome
            else:
                assert trouble is not None and outcome.exit_code == 130, outcome
        elif outcome is not None:
            assert outcome.state == "rolled-back"
            if run.ran and not run.doubtful and trouble is None and state != "rolled-back":
                assert self.alive(run.source) == 1, "the job goes on where it was"
        return outcome

    def verify(self, run: Run) -> None:
        """Evidence holds, whatever the machine has lost since."""
        COUNTS["verify"] += 1
        before = self.disk.snapshot(temporaries=True)
        verdict = migration.verify(
            HastyWorkdir(str(run.workdir), Moments()), self._adapters(Moments())
        )
        assert self.disk.snapshot(temporaries=True) == before, "verify only reads"
        if run.state != "rolling-back":
            broken = [
                found for found in verdict.broken if found.step not in ("submit/job", "halt/stop")
            ]
            assert not broken, broken

    def crash(self, seed: int) -> None:
        """The machine that the storages are on loses its power; the jobs' own writes were
        synced.
        """
        COUNTS["crash"] += 1
        self.disk.crash(random.Random(seed))

    def _carry_out(
        self,
        verb: str,
        run: Run,
        trouble: Trouble | None,
        seed: int,
        work: Callable[[Any, Adapters], Report],
    ) -> Report | StateshiftError | None:
        """None where it was killed."""
        COUNTS[verb] += 1
        faults = self.cluster.faults
        moments = Moments(trouble.at if trouble else None)
        adapters = self._adapters(moments)
        moments.then = lambda moment: (
            self._trouble(trouble, run, adapters, seed) if trouble else None
        )
        outcome: Report | StateshiftError | None = None
        try:
            outcome = work(HastyWorkdir(str(run.workdir), moments), adapters)
        except StateshiftError as error:
            outcome = error
        except (Killed, ProcessGone):
            COUNTS["kill"] += 1
        self.submit_failed = self.cluster.faults < faults
        self._learn(run)
        self.told.append(
            f"{verb} {run.name} {trouble}: "
            f"{outcome if outcome is None else _short(outcome)}, {run.state}"
        )
        return outcome

    def _trouble(self, trouble: Trouble, run: Run, adapters: Adapters, seed: int) -> None:
        match trouble.kind:
            case "kill":
                self.disk.kill()
                raise Killed
            case "crash":
                self.disk.crash(random.Random(seed))
                raise Killed
            case "interrupt":
                adapters.stop.set()
            case "zombie":
                self.batch(run.source, alive=False)
            case "batch":
                self.batch(run.source)
            case "rival":
                other = next((r for r in self.runs if r.state == "planned" and r is not run), None)
                if other is not None:
                    COUNTS["two at once"] += 1
                    self.apply(other)

    def _learn(self, run: Run) -> None:
        before, run.state = run.state, self.state_of(run)
        if run.state == "finished" and before != "finished":
            self.home = run.target
            COUNTS["finished"] += 1
        if (
            before == "finished"
            and run.state in ("rolling-back", "rolled-back")
            and self.home == run.target
        ):
            self.home = run.source
        if before == "rolling-back" and run.state == "failed":
            self.home = run.target
        for other in self.runs:
            if (
                other is not run
                and run.state != "planned"
                and run.source in (other.source, other.merge)
            ):
                other.doubtful = True

    def _expect_to_finish(
        self, run: Run, outcome: Report | StateshiftError | None, trouble: Trouble | None
    ) -> None:
        if isinstance(outcome, Report):
            assert outcome.state == "finished"
            return
        if outcome is None:
            return
        disturbed = run.doubtful or (trouble is not None and trouble.kind not in ("kill", "crash"))
        failed = self._target_failed(run) or self.mood == "sleeps" or self.submit_failed
        allowed = {7} if failed else set()
        if disturbed:
            allowed |= {4}
        if trouble is not None and trouble.kind == "interrupt":
            allowed |= {130}
        if trouble is not None and trouble.kind == "rival":
            allowed |= {8, 4}
        if self.alive(run.source) == 0:
            allowed |= {JOB_DOWN}
        assert outcome.exit_code in allowed, f"{type(outcome).__name__}: {outcome} ({allowed})"

    def _target_failed(self, run: Run) -> bool:
        states = [job.status.state for job in self.cluster.jobs if job.location == run.target]
        return bool(states) and states[-1] in (JobState.FINISHED, JobState.FAILED, JobState.ABSENT)

    def _adapters(self, moments: Moments) -> Adapters:
        return Adapters(
            open_storage=lambda location: Doomed(self.disk.open(location), moments),
            open_cluster=lambda spec, workdir: DoomedCluster(self.cluster, moments),
            clock=self.clock,
        )

    # ---- what must hold

    def look(self) -> None:
        assert self.alive() <= 1, [job for job in self.cluster.jobs if job.status.state.alive]
        assert all(count == 1 for count in self.cluster.started.values()), self.cluster.started
        owners = {run.name: run for run in self.runs}
        for location in self.right:
            self._look_at(location, owners)
        for run in self.runs:
            self._look_at_target(run)
        for path in self.disk.snapshot():
            if path.endswith(LOCK_SUFFIX):
                held = [run for run in self.runs if run.open and path == run.target + LOCK_SUFFIX]
                assert held, f"{path} is held by nobody who is at work"

    def _look_at(self, location: str, owners: dict[str, Run]) -> None:
        """Of what was there nothing is harmed, and nothing is added but fences, the index, and
        what is merged.
        """
        now, merging = self.disk.snapshot(location, temporaries=True), self._merging(location)
        joined = {path: c for place in merging for path, c in self.right.get(place, {}).items()}
        for path, content in self.right[location].items():
            found = now.get(path)
            if found is None and self.discards(location):
                continue
            for run in self.runs:
                if (
                    found is None
                    and run.merge == location
                    and run.state not in ("planned", "rolled-back")
                ):
                    found = self.disk.snapshot(run.source).get(path)
            assert found == content, f"{location}/{path}: {found!r}"
        for path in now.keys() - self.right[location].keys():
            owner = fence_owner(now[path])
            if owner is not None:
                assert owners[owner].state not in ("planned", "rolled-back"), (
                    f"{location}/{path}: of {owner}"
                )
            elif path in joined:
                assert now[path] == joined[path], (
                    f"{location}/{path} was changed when it was merged"
                )
            elif not self._is_target(location):
                raise AssertionError(
                    f"{location}/{path} is not of the job, nor of a run that is at work"
                )

    def _look_at_target(self, run: Run) -> None:
        """Nothing that looks like an image, or a whole one; nothing at all of ours once the run
        is taken back.
        """
        now = self.disk.snapshot(run.target, temporaries=True)
        if run.state in ("finished", "rolled-back") or (
            run.state == "planned" and not self._is_target(run.target)
        ):
            others = any(other.open and other.target == run.target for other in self.runs)
            assert others or not [path for path in now if is_temporary(path)], (
                f"{run.target}: litter"
            )
        if run.state == "rolled-back" and not self._is_target(run.target):
            left = {path for path in now if path not in self.right.get(run.target, {})}
            assert not left, f"{run.target}: left behind {sorted(left)}"
            return
        if run.state == "rolling-back" or (run.state != "finished" and not self._locked(run)):
            return
        merging = [path for place in self._merging(run.target) for path in self.right[place]]
        found = survey(self.disk.open(run.target))
        for image in found.images:
            if image.epoch is None or not has_commits(image):
                continue  # its commits are published last
            if any(image.path == path.split("/", 1)[0] for path in merging):
                continue
            refusals = [f for f in image.findings if f.level == "refuse"]
            assert not refusals, f"{run.target} is visible and not whole: {refusals}"
            for shard in image.shards:
                told = {
                    e.key: e.value
                    for e in entries(self.disk.open(run.target + "/").chunks, shard, image.settings)
                }
                assert (
                    set(told.values()) == {(image.epoch + 1).to_bytes(8, "little")}
                    and len(told) == KEYS
                ), told
        if run.state == "finished" and self.home == run.target:
            assert {image.path for image in found.images} >= set(self.epochs(run.source)), (
                "every image has arrived"
            )

    def _merging(self, location: str) -> list[str]:
        going = [
            run
            for run in self.runs
            if run.source == location and run.state not in ("planned", "rolled-back")
        ]
        return [run.merge for run in going if run.merge is not None]

    def _is_target(self, location: str) -> bool:
        return any(
            run.target == location and run.state not in ("planned", "rolled-back")
            for run in self.runs
        )

    def _locked(self, run: Run) -> bool:
        return self._holder(run.target) == run.name

    def _holder(self, location: str) -> str | None:
        """The run that has locked a location."""
        content = self.disk.snapshot().get(location + LOCK_SUFFIX)
        return json.loads(content)["run"] if content is not None else None

    def _fenced(self, location: str) -> bool:
        return any(fence_owner(content) for content in self.disk.snapshot(location).values())

    def _runs_under_another_tag(self, run: Run) -> bool:
        there = [
            job
            for job in self.cluster.jobs
            if job.location == run.target and job.status.state.alive
        ]
        return any(job.tag is None or job.tag.split(".")[0] != run.name for job in there)

    def _moved_at(self, run: Run, image: str) -> int:
        """The epoch of the image on the source: that of the target, until the job goes on there."""
        for place in (run.source, run.merge):
            if place is not None and image in self.epochs(place):
                return self.epochs(place)[image]
        return 1 << 30

    def _new_image(self, location: str, image: str, epoch: int) -> None:
        files = {
            path: c for batch in range(epoch + 1) for path, c in batch_files(image, batch).items()
        }
        storage = self.disk.open(location)
        for path, content in files.items():
            put(storage, path, content)
        storage.sync()
        self.right[location] = files

    def finish_everything(self) -> None:
        """Whatever has happened, every run can be brought to an end."""
        self.mood = "commits"
        self.cluster.behave()
        for run in reversed(self.runs):
            if run.open and isinstance(self.resume(run), StateshiftError):
                outcome = self.rollback(run)
                moved_on = isinstance(outcome, StateshiftError) and "has moved" in outcome.fact
                assert run.state == "rolled-back" or moved_on, (run.name, run.state, outcome)
            self.look()


def batch_files(image: str, batch: int) -> dict[str, bytes]:
    """What a job writes for one batch; a new image's first also has its id."""
    query = str(uuid.uuid5(uuid.NAMESPACE_OID, image))
    upto = Checkpoint(batches=batch + 1, shards=SHARDS, keys=KEYS, query=query).files()
    kept = {
        f"offsets/{batch}",
        f"commits/{batch}",
        *(f"state/0/{shard}/{batch + 1}.delta" for shard in range(SHARDS)),
    }
    return {
        f"{image}/{path}": c
        for path, c in upto.items()
        if path in kept or (batch == 0 and path == "metadata")
    }


def _spec(
    source: str, target: str, merge: str | None, clusters: bool, verify: str
) -> dict[str, Any]:
    job: dict[str, Any] = {
        "name": JOB,
        "checkpoint_location": source,
        "remote_location": target,
        "verify": verify,
        **({"merge_jobs": [merge]} if merge else {}),
    }
    spec: dict[str, Any] = {"version": 1, "engine": "spark", "parallel": 1, "jobs": [job]}
    if clusters:
        spec["clusters"] = {
            "ours": {"kind": "command", "submit": "true", "find": "true", "stop": "true"}
        }
        job |= {
            "source_cluster": "ours",
            "target_cluster": "ours",
            "source_submit": {},
            "submit": {"seconds_max": 3},
        }
        spec["on_failure"] = (
            "stop"  # and a person decides: tests/migration/test_restarted.py has the default
        )
    return spec


def _short(outcome: Report | StateshiftError) -> str:
    return (
        outcome.state
        if isinstance(outcome, Report)
        else f"{type(outcome).__name__}: {outcome.fact}"
    )
