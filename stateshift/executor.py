"""One loop that carries out plans, and its two sisters: ask whether it still holds, take it back.

The executor skips what the journal holds as finished and repeats the rest; repeating a step is
always safe, so there is no resume code. A step's record is on disk before the step's effect begins,
and its evidence before the next phase. Phases are barriers; inside a phase up to `world.parallel`
steps run at once, in an ordered phase one after the other. Steps that compute over much state wait
for a core instead: more of them at once take more memory, and no less time. Of small ones that
mostly wait for a network more run beside each other, as many as their storage says is worth it. A
fleet, where there is one, runs those steps of an unordered phase that it takes, and the journal
says the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from stateshift.errors import StateshiftError
from stateshift.formats.marks import FOLDER
from stateshift.journal import (
    Journal,
    PlanFinished,
    PlanProgress,
    PlanUndone,
    StepFinished,
    StepStarted,
    StepUndone,
)
from stateshift.plan import PHASES, PhaseName, Plan
from stateshift.step import (
    AnyStep,
    BringFiles,
    CompareImages,
    CopyFiles,
    Discrepancy,
    Evidence,
    FenceSource,
    Fleet,
    LiftFence,
    StageFiles,
    TransformShard,
    WriteFile,
)
from stateshift.world import World

_log = logging.getLogger(__name__)

WRITERS = (BringFiles, CopyFiles, StageFiles, TransformShard, WriteFile)


# Steps that decode what they read, and so much that they hold piles of it.
COMPUTING = (TransformShard, CompareImages)
LARGE_BYTES = 16 * 1024 * 1024

# What steps may hold together of which more run at once than `world.parallel`.
WAITING_BYTES_MAX = 64 * 1024 * 1024

# More of them at once wait for a storage no faster: of the files of each, one is read at a time.
WAITING_STEPS_MAX = 64

# More threads than this wait for a fleet's answers no faster.
THREADS_MAX = 512


def execute_together(
    plans: Sequence[tuple[int, Plan]],
    world: World,
    journal: Journal,
    fleet: Fleet | None = None,
    phases: Sequence[PhaseName] = PHASES,
) -> None:
    """Carry out plans by number, as one: a barrier stands between the phases of all of them, so
    that none is published before every one of them is compared. An ordered phase is ordered within
    each plan. With fewer `phases`, only these: the plans are then not finished.
    """
    for name in phases:
        parts = [part for number, plan in plans for part in _pending(number, plan, name, journal)]
        if not parts:
            continue
        jobs, steps = (
            ", ".join(part.plan.job for part in parts),
            [step for part in parts for step in part.steps],
        )
        files, size = sum(s.files for s in steps), sum(s.bytes for s in steps)
        world.meter.phase(jobs, name, files, size)
        _log.info(
            "phase %s of %s begins: %d steps, %d files, %d bytes",
            name,
            jobs,
            len(steps),
            files,
            size,
        )
        began = time.perf_counter()
        _Phase(name, parts, world, journal, fleet).run()
        _log.info("phase %s of %s ends: %.3f s", name, jobs, time.perf_counter() - began)
        for part in parts:
            if not part.ordered:
                _tidy(part.number, part.plan, part.steps, world, journal)
    for number, _ in plans if phases is PHASES else ():
        if journal.progress.plans[number].finished_at is None:
            journal.append(PlanFinished(world.clock.now(), number))


@dataclass(frozen=True)
class _Part:
    """What one plan has left to do in a phase."""

    number: int
    plan: Plan
    ordered: bool
    steps: list[AnyStep]


def _pending(number: int, plan: Plan, name: str, journal: Journal) -> list[_Part]:
    phase, done = plan.phase(name), journal.progress.plans[number]
    steps = [step for step in phase.steps if not done.finished(step.name)] if phase else []
    return [_Part(number, plan, phase.ordered, steps)] if phase and steps else []


def _tidy(number: int, plan: Plan, steps: list[AnyStep], world: World, journal: Journal) -> None:
    """Where an attempt was cut short it may have left temporary files: they go before the image is
    published, while nobody but us writes there.
    """
    done = journal.progress.plans[number].steps
    again = [step for step in steps if _was_repeated(done[step.name].evidence)]
    for place in sorted(
        {step.target for step in again if isinstance(step, WRITERS)} - {plan.source}
    ):
        world.storage(place).prune()


@dataclass(frozen=True)
class _Unit:
    """One step, or several in their order."""

    number: int
    steps: list[AnyStep]
    ordered: bool


def _is_taken(unit: _Unit, fleet: Fleet) -> bool:
    return not unit.ordered and fleet.takes(unit.steps[0])


class _Phase:
    """The steps of one phase that are still to be run, here or by a fleet. What has to run in order
    runs as one unit: a fleet takes none of it.
    """

    def __init__(
        self, name: str, parts: Sequence[_Part], world: World, journal: Journal, fleet: Fleet | None
    ) -> None:
        self.name, self.world, self.journal = name, world, journal
        self.units: list[_Unit] = []
        self.failure: BaseException | None = None
        for part in parts:
            cut = [part.steps] if part.ordered else [[step] for step in part.steps]
            self.units += [_Unit(part.number, steps, part.ordered) for steps in cut]
        taken = [
            unit.steps[0] for unit in self.units if fleet is not None and _is_taken(unit, fleet)
        ]
        self.fleet = fleet if taken else None
        if self.fleet is not None:
            self.fleet.begin(name, taken, world)

    def run(self) -> None:
        """Run the steps; after the first failure start no more, let those that run finish, and
        raise it.
        """
        if len(self.units) == 1 or (self.fleet is None and self.world.parallel <= 1):
            for unit in self.units:
                self._unit(unit)
            return
        queue = list(reversed(self.units))
        running: dict[Future[None], _Unit] = {}
        threads_max = min(len(queue), THREADS_MAX if self.fleet else max(map(self._at_once, queue)))
        with ThreadPoolExecutor(threads_max, thread_name_prefix=self.name) as threads:
            while running or (queue and self.failure is None):
                while queue and self.failure is None and self._may_start(queue, running.values()):
                    unit = queue.pop()
                    running[threads.submit(self._unit, unit)] = unit
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    del running[future]
                    self.failure = self.failure or future.exception()
        if self.failure is not None:
            raise self.failure

    def _may_start(self, queue: Sequence[_Unit], running: Collection[_Unit]) -> bool:
        at_once = (
            self.fleet.slots(len(queue)) if self.fleet is not None else self._at_once(queue[-1])
        )
        if len(running) >= max(1, at_once):
            return False
        if self.fleet is None and len(running) >= self.world.parallel:
            return (
                sum(step.bytes for unit in (queue[-1], *running) for step in unit.steps)
                <= WAITING_BYTES_MAX
            )
        return not self._is_large(queue[-1]) or sum(map(self._is_large, running)) < max(
            1, self.world.cores
        )

    def _at_once(self, unit: _Unit) -> int:
        """Beside how many others, at most, it may run."""
        step = unit.steps[0]
        if unit.ordered or not isinstance(step, TransformShard):
            return self.world.parallel
        at_once = self.world.storage(step.target).traits.at_once
        return max(self.world.parallel, min(at_once, WAITING_STEPS_MAX))

    def _is_large(self, unit: _Unit) -> bool:
        here = self.fleet is None or not _is_taken(unit, self.fleet)
        return here and any(
            isinstance(step, COMPUTING) and step.bytes >= LARGE_BYTES for step in unit.steps
        )

    def _unit(self, unit: _Unit) -> None:
        for step in unit.steps:
            if self.failure is None:
                self._step(unit, step)

    def _step(self, unit: _Unit, step: AnyStep) -> None:
        number, world, journal = unit.number, self.world, self.journal
        world.check_interrupted()
        journal.append(StepStarted(world.clock.now(), number, self.name, step.name))
        world.meter.step(step.name, step.describe())
        _log.info("step %s begins: %s", step.name, step.kind)
        began = time.perf_counter()
        try:
            evidence = self._evidence(unit, step)
        except StateshiftError as error:
            error.where.setdefault("step", step.name)
            _log.info("step %s fails: %s", step.name, type(error).__name__)
            raise
        seconds = time.perf_counter() - began
        if _log.isEnabledFor(logging.INFO):
            _log.info("step %s ends: %.3f s, evidence: %s", step.name, seconds, _counted(evidence))
        if journal.progress.plans[number].steps[step.name].repeated:
            # What an earlier attempt had done already, it cannot tell.
            evidence = replace(evidence, repeated=True)
        journal.append(
            StepFinished(
                world.clock.now(),
                number,
                step.name,
                round(seconds, 6),
                step.files,
                step.bytes,
                evidence,
            )
        )

    def _evidence(self, unit: _Unit, step: AnyStep) -> Evidence:
        if self.fleet is not None and _is_taken(unit, self.fleet):
            return self.fleet.run(step, self.world)
        return step.run(self.world)


def _counted(evidence: Evidence) -> str:
    """Return how much evidence of each kind there is: `files 3, bytes`."""
    words = []
    for name, value in evidence.to_plain().items():
        words.append(f"{name} {len(value)}" if isinstance(value, list) else name)
    return ", ".join(words) or "none"


def _was_repeated(evidence: Evidence | None) -> bool:
    return evidence is not None and evidence.repeated


@dataclass(frozen=True, slots=True)
class Broken:
    """A step whose evidence does not hold any more."""

    plan: int
    step: str
    discrepancy: Discrepancy


def ask(
    number: int,
    plan: Plan,
    progress: PlanProgress,
    world: World,
    kinds: Sequence[str] = (),
    fleet: Fleet | None = None,
) -> list[Broken]:
    """Whether the evidence of every finished step still holds; only of some `kinds` where given. A
    fleet is asked many at once; what it finds is told in the plan's order.
    """
    finished = [
        step for step in plan if progress.finished(step.name) and (not kinds or step.kind in kinds)
    ]
    lifted = {(step.location, step.paths) for step in finished if isinstance(step, LiftFence)}
    finished = [
        s for s in finished if not (isinstance(s, FenceSource) and (s.location, s.paths) in lifted)
    ]
    taken = [step for step in finished if fleet is not None and fleet.takes(step)]

    def asked(step: AnyStep) -> list[Discrepancy]:
        evidence = progress.steps[step.name].evidence
        assert evidence is not None, "a finished step has shown something"
        if fleet is not None and fleet.takes(step):
            return fleet.holds(step, world, evidence)
        return step.holds(world, evidence)

    if fleet is not None and taken:
        fleet.begin("verify", taken, world)
        with ThreadPoolExecutor(min(THREADS_MAX, max(1, fleet.slots(len(taken))))) as threads:
            try:
                found = list(threads.map(asked, finished))
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
    else:
        found = [asked(step) for step in finished]
    return [
        Broken(number, step.name, one)
        for step, every in zip(finished, found, strict=True)
        for one in every
    ]


def roll_back(
    number: int,
    plan: Plan,
    world: World,
    journal: Journal,
    phases: Sequence[PhaseName] = PHASES,
    others: Iterable[tuple[int, Plan]] = (),
) -> None:
    """Take the plan's effects back, last one first: what was visible last disappears first. What
    had to be left is written down with each. With fewer `phases`, only theirs: the plan is then not
    undone. `others` of the run are taken back after it: what lies where they wrote is told then.
    """
    for phase in (phase for phase in reversed(plan.phases) if phase.name in phases):
        begun = [s for s in reversed(phase.steps) if s.name in journal.progress.plans[number].steps]
        pending = [
            s for s in begun if journal.progress.plans[number].steps[s.name].state != "undone"
        ]
        if pending:
            world.meter.phase(plan.job, f"undo {phase.name}", sum(s.files for s in pending), 0)
        for step in pending:
            world.check_interrupted()
            done = journal.progress.plans[number].steps[step.name]
            world.meter.step(step.name, f"undo: {step.describe()}")
            _log.info("step %s is undone: %s", step.name, step.kind)
            remaining = step.undo(world, done.evidence)
            journal.append(StepUndone(world.clock.now(), number, step.name, tuple(remaining)))
            world.meter.done(step.files, 0)
    if phases is PHASES and not journal.progress.plans[number].undone:
        theirs = {
            place
            for other, made in others
            for place in _written(made, journal.progress.plans[other])
        }
        left = _swept(plan, journal.progress.plans[number], world, journal.progress.discard, theirs)
        journal.append(PlanUndone(world.clock.now(), number, tuple(left)))


def _written(plan: Plan, done: PlanProgress) -> set[str]:
    """The places that what was begun of the plan writes to."""
    return {step.target for step in plan if isinstance(step, WRITERS) and step.name in done.steps}


def _swept(
    plan: Plan, done: PlanProgress, world: World, discard: bool, theirs: Collection[str]
) -> list[str]:
    """Empty directories and temporary files of ours go from the places that the plan's steps wrote
    to; files that somebody else wrote there stay, and are named. Only while the lock on them is
    still ours. With `discard` what is left in the target goes, too: it was empty before the run, so
    that only the job itself can have written it.
    """
    begun, left = _written(plan, done), []
    for place in sorted(begun - {plan.source, *theirs}):
        storage = world.storage(place)
        if discard and place == plan.target:
            for file in list(storage.list()):
                storage.remove(file.path)
        storage.prune()
        remaining = sorted(file.path for file in storage.list())
        if remaining:
            left.append(
                f"{place}: {len(remaining)} files that this run did not write ({remaining[0]} …)"
            )
    if plan.source in begun:
        world.storage(plan.source).prune(FOLDER)
    return left
