"""Plans carried out by one loop, asked whether their evidence still holds, and taken back.

The executor skips what the journal holds as finished and repeats the rest; repeating a step is
always safe, so there is no resume code. A step's record is on disk before the step's effect begins,
and its evidence before the next phase. Phases are barriers; inside a phase up to `world.parallel`
steps run at once, in an ordered phase one after the other. Steps that compute over much state wait
for a core instead: more of them at once take more memory, and no less time. Small ones that mostly
wait for a network run beside each other as many as their storage says is worth it. A fleet, where
there is one, runs those steps of an unordered phase that it takes, and the journal says the same.

A plan's effects are taken back last one first. Those that cannot be stay, and are named.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import chain

from stateshift.errors import StateshiftError
from stateshift.formats.marks import FOLDER, is_of_a_job
from stateshift.journal import (
    Journal,
    PlanFinished,
    PlanProgress,
    PlanUndone,
    StepFinished,
    StepStarted,
    StepUndone,
)
from stateshift.plan import PHASES, Phase, PhaseName, Plan
from stateshift.step import (
    AnyStep,
    CompareImages,
    Discrepancy,
    Evidence,
    FenceSource,
    Fleet,
    LiftFence,
    PrepareJob,
    SetAside,
    Step,
    StopJob,
    SubmitJob,
    TakeCheckpoint,
    TakeSavepoint,
    TransformShard,
    places_filled,
)
from stateshift.step.images import read_before
from stateshift.world import World

_log = logging.getLogger(__name__)

# The bytes that steps may decode together, if more run at once than there are cores.
DECODED_BYTES_MAX = 16 * 1024 * 1024

# The bytes that steps may hold together, if more run at once than `world.parallel`.
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
        parts = _pending_parts(plans, name, journal)
        if not parts:
            continue
        jobs = ", ".join(part.plan.job for part in parts)
        count = sum(len(part.phase.steps) for part in parts)
        files = sum(part.phase.files for part in parts)
        size = sum(part.phase.bytes for part in parts)
        world.meter.phase(jobs, name, files, size)
        begins = "phase %s of %s begins: %d steps, %d files, %d bytes"
        _log.info(begins, name, jobs, count, files, size)
        began = time.perf_counter()
        _Phase(name, parts, world, journal, fleet).run()
        _log.info("phase %s of %s ends: %.3f s", name, jobs, time.perf_counter() - began)
        for part in parts:
            if not part.phase.ordered:
                _remove_temporaries(part, world, journal)
    if phases is PHASES:
        for number, _ in plans:
            if journal.progress.plans[number].finished_at is None:
                journal.append(PlanFinished(world.clock.now(), number))


@dataclass(frozen=True)
class _Part:
    """The part of a phase that one plan has left to do."""

    number: int
    plan: Plan
    phase: Phase

    def units(self) -> list[_Unit]:
        """Return the units that may run side by side."""
        steps = self.phase.steps
        if self.phase.ordered:
            return [_Unit(self.number, list(steps), True)]
        return [_Unit(self.number, [step], False) for step in steps]


def _pending_parts(
    plans: Sequence[tuple[int, Plan]], name: PhaseName, journal: Journal
) -> list[_Part]:
    """Return the parts of a phase in which some steps are not finished."""
    parts = []
    for number, plan in plans:
        phase = plan.phase(name)
        if phase is None:
            continue
        progress = journal.progress.plans[number]
        steps = [step for step in phase.steps if not progress.finished(step.name)]
        if steps:
            parts.append(_Part(number, plan, replace(phase, steps=tuple(steps))))
    return parts


def _remove_temporaries(part: _Part, world: World, journal: Journal) -> None:
    """Remove temporary files of an attempt that was cut short, while only we write there."""
    done = journal.progress.plans[part.number].steps
    repeated: list[AnyStep] = []
    for step in part.phase.steps:
        evidence = done[step.name].evidence
        if evidence is not None and evidence.repeated:
            repeated.append(step)
    for place in sorted(places_filled(repeated) - {part.plan.source}):
        world.storage(place).prune()


@dataclass(frozen=True)
class _Unit:
    """One step, or several in their order."""

    number: int
    steps: list[AnyStep]
    ordered: bool

    @property
    def bytes(self) -> int:
        return sum(step.bytes for step in self.steps)

    @property
    def bytes_decoded(self) -> int:
        """The bytes that its steps decode, which takes a core and memory."""
        return sum(step.bytes for step in self.steps if step.decodes)


def _is_taken(unit: _Unit, fleet: Fleet | None, world: World) -> bool:
    """Whether the fleet runs a unit: it knows nothing of files that are to be spared."""
    step = unit.steps[0]
    if fleet is None or unit.ordered or step.fills in world.spared:
        return False
    return fleet.takes(step)


def is_worth(fleet: Fleet, taken: Sequence[Step]) -> bool:
    """Whether there are steps for the fleet, and enough of them."""
    return len(taken) > 0 and fleet.is_worth(sum(step.bytes for step in taken))


class _Phase:
    """The steps of a phase that are left. A fleet takes no ordered ones: they are one unit."""

    def __init__(
        self, name: str, parts: Sequence[_Part], world: World, journal: Journal, fleet: Fleet | None
    ) -> None:
        self.name, self.world, self.journal = name, world, journal
        self.units = list(chain.from_iterable(part.units() for part in parts))
        self.failure: BaseException | None = None
        self._read: dict[int, Mapping[str, Mapping[str, int]]] = {}
        self._lock = threading.Lock()
        taken = [unit.steps[0] for unit in self.units if _is_taken(unit, fleet, world)]
        self.fleet = fleet if fleet is not None and is_worth(fleet, taken) else None
        if self.fleet is not None:
            self.fleet.begin(name, taken, world)

    def run(self) -> None:
        """Run the steps. After a failure start no more, let the others finish, and raise it."""
        side_by_side = self.fleet is not None or self.world.parallel > 1
        if len(self.units) > 1 and side_by_side:
            queue = list(reversed(self.units))
            running: dict[Future[None], _Unit] = {}
            threads_max = THREADS_MAX if self.fleet else max(map(self._at_once, self.units))
            count = min(len(queue), threads_max)
            with ThreadPoolExecutor(count, thread_name_prefix=self.name) as threads:
                while running or self._goes_on(queue):
                    while self._goes_on(queue) and self._may_start(queue, running.values()):
                        unit = queue.pop()
                        running[threads.submit(self._run_unit, unit)] = unit
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        del running[future]
                        self.failure = self.failure or future.exception()
            if self.failure is not None:
                raise self.failure
            return
        for unit in self.units:
            self._run_unit(unit)

    def _goes_on(self, queue: Sequence[_Unit]) -> bool:
        return self.failure is None and len(queue) > 0

    def _may_start(self, queue: Sequence[_Unit], running: Collection[_Unit]) -> bool:
        """Whether the last unit of the queue may start beside those that run."""
        unit = queue[-1]
        here = [other for other in running if not _is_taken(other, self.fleet, self.world)]
        if self.fleet is not None and _is_taken(unit, self.fleet, self.world):
            return len(running) - len(here) < max(1, self.fleet.slots(len(queue)))
        if len(here) >= max(1, self._at_once(unit)):
            return False
        if len(here) >= self.world.parallel:
            return unit.bytes + sum(other.bytes for other in here) <= WAITING_BYTES_MAX
        # A core is left for it, if it takes one; or all is little.
        decoded = [other.bytes_decoded for other in here if other.bytes_decoded]
        if not unit.bytes_decoded or len(decoded) < max(1, self.world.cores):
            return True
        return unit.bytes_decoded + sum(decoded) <= DECODED_BYTES_MAX

    def _at_once(self, unit: _Unit) -> int:
        """Return the number of units that may run at most, this one among them."""
        step = unit.steps[0]
        if unit.ordered or not isinstance(step, TransformShard):
            return self.world.parallel
        at_once = self.world.storage(step.target).traits.at_once
        return max(self.world.parallel, min(at_once, WAITING_STEPS_MAX))

    def _run_unit(self, unit: _Unit) -> None:
        for step in unit.steps:
            if self.failure is None:
                number, world, journal = unit.number, self.world, self.journal
                world.check_interrupted()
                journal.append(StepStarted(world.clock.now(), number, self.name, step.name))
                world.meter.step(step.name, step.describe())
                _log.info("step %s begins: %s", step.name, step.kind)
                began = time.perf_counter()
                try:
                    evidence = self._run_anywhere(unit, step)
                except StateshiftError as error:
                    error.where.setdefault("step", step.name)
                    _log.info("step %s fails: %s", step.name, type(error).__name__)
                    raise
                seconds = time.perf_counter() - began
                if _log.isEnabledFor(logging.INFO):
                    words = []  # the amount of each kind: `files 3, bytes`
                    for name, value in evidence.to_plain().items():
                        words.append(f"{name} {len(value)}" if isinstance(value, list) else name)
                    shown = ", ".join(words) or "none"
                    _log.info("step %s ends: %.3f s, evidence: %s", step.name, seconds, shown)
                if journal.progress.plans[number].steps[step.name].repeated:
                    # It cannot tell the share of an earlier attempt.
                    evidence = replace(evidence, repeated=True)
                now = world.clock.now()
                rounded = round(seconds, 6)
                journal.append(
                    StepFinished(now, number, step.name, rounded, step.files, step.bytes, evidence)
                )

    def _run_anywhere(self, unit: _Unit, step: AnyStep) -> Evidence:
        world = self.world
        if isinstance(step, CompareImages):
            # Files that steps of earlier phases have read need not be read again.
            with self._lock:
                if unit.number not in self._read:
                    steps = list(self.journal.progress.plans[unit.number].steps.values())
                    self._read[unit.number] = read_before(done.evidence for done in steps)
                world = replace(world, read=self._read[unit.number])
        if self.fleet is not None and _is_taken(unit, self.fleet, self.world):
            return self.fleet.run(step, world)
        return step.run(world)


# ------------------------------------------------------------------- does the evidence still hold?


@dataclass(frozen=True, slots=True)
class Broken:
    """A step whose evidence does not hold any more."""

    plan: int
    step: str
    discrepancy: Discrepancy


def ask(
    plan: Plan,
    progress: PlanProgress,
    world: World,
    kinds: Sequence[str] = (),
    fleet: Fleet | None = None,
) -> list[Broken]:
    """Return the finished steps whose evidence does not hold any more; only of some `kinds` where
    given. A fleet is asked many at once; its answers come in the plan's order.
    """
    steps = [step for step in plan if progress.finished(step.name)]
    if kinds:
        steps = [step for step in steps if step.kind in kinds]
    lifts = [step for step in steps if isinstance(step, LiftFence)]
    lifted = [(lift.location, lift.paths) for lift in lifts]
    for step in steps.copy():
        if isinstance(step, FenceSource) and (step.location, step.paths) in lifted:
            steps.remove(step)
    answers = _answers(steps, progress, world, fleet)
    broken: list[Broken] = []
    for step, discrepancies in zip(steps, answers, strict=True):
        broken += [Broken(progress.plan, step.name, each) for each in discrepancies]
    return broken


def _answers(
    steps: Sequence[AnyStep], progress: PlanProgress, world: World, fleet: Fleet | None
) -> list[list[Discrepancy]]:
    """Return the discrepancies of each step, asked by the fleet if it takes any."""
    taken = [] if fleet is None else list(filter(fleet.takes, steps))
    if fleet is None or not is_worth(fleet, taken):
        return [_ask_step(step, progress, world, None) for step in steps]
    fleet.begin("verify", taken, world)
    threads_max = min(THREADS_MAX, max(1, fleet.slots(len(taken))))
    with ThreadPoolExecutor(threads_max) as threads:
        try:
            return list(threads.map(lambda step: _ask_step(step, progress, world, fleet), steps))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _ask_step(
    step: AnyStep, progress: PlanProgress, world: World, fleet: Fleet | None
) -> list[Discrepancy]:
    evidence = progress.steps[step.name].evidence
    assert evidence is not None, "a finished step has shown something"
    if fleet is not None and fleet.takes(step):
        return fleet.holds(step, world, evidence)
    return step.holds(world, evidence)


# The number of files at a place that are named, if a rollback has to leave them there.
LEFT_NAMED_MAX = 3


def roll_back(
    number: int, plan: Plan, world: World, journal: Journal, others: Iterable[tuple[int, Plan]] = ()
) -> None:
    """Take the plan's effects back, last one first: what was visible last disappears first.
    `others` of the run are taken back after it, and report what is left where they wrote.
    """
    roll_back_phases(number, plan, world, journal, PHASES)
    progress = journal.progress.plans[number]
    if progress.undone:
        return
    theirs: set[str] = set()
    for other, made in others:
        theirs |= _written(made, journal.progress.plans[other])
    ours = _written(plan, progress)
    left = _remove_leftovers(plan, ours, ours - theirs, world, journal.progress.discard)
    journal.append(PlanUndone(world.clock.now(), number, tuple(left)))


def roll_back_phases(
    number: int, plan: Plan, world: World, journal: Journal, phases: Sequence[PhaseName]
) -> None:
    """Take back the effects of some phases alone. The plan is then not undone."""
    for phase in reversed(plan.phases):
        if phase.name in phases:
            progress = journal.progress.plans[number]
            pending = [step for step in reversed(phase.steps) if progress.has_effect(step.name)]
            if pending:
                files = sum(step.files for step in pending)
                world.meter.phase(plan.job, f"undo {phase.name}", files, 0)
            for step in pending:
                _undo_step(number, step, world, journal)


def _undo_step(number: int, step: AnyStep, world: World, journal: Journal) -> None:
    world.check_interrupted()
    evidence = journal.progress.plans[number].steps[step.name].evidence
    words = f"take back: {step.describe()}"  # of a job: what becomes of it
    match step:
        case StopJob() | TakeSavepoint() | TakeCheckpoint():
            words = f"start {step.job} again where it was, if the run has stopped it"
        case SubmitJob() | PrepareJob():
            words = f"stop {step.job} on {step.cluster}"
        case FenceSource():
            words = f"lift the fence at {step.location}"
    world.meter.step(step.name, words)
    _log.info("step %s is undone: %s", step.name, step.kind)
    remaining = step.undo(world, evidence)
    journal.append(StepUndone(world.clock.now(), number, step.name, tuple(remaining)))
    world.meter.done(step.files, 0)


def _written(plan: Plan, progress: PlanProgress) -> set[str]:
    """Return the places of the steps that were begun; a job that was started early has its own."""
    begun = [step for step in plan if step.name in progress.steps]
    early = {step.location for step in begun if isinstance(step, PrepareJob)}
    return places_filled(begun) | early


def _remove_leftovers(
    plan: Plan, written: Collection[str], swept: Collection[str], world: World, discard: bool
) -> list[str]:
    """Remove empty directories, temporary files of ours and what our jobs have left for us from the
    places that the plan's steps wrote to; files that somebody else wrote there stay, and are named.
    Only while the lock on them is still ours. With `discard` what is left in the target goes, too:
    it was empty before the run, so that only the job itself can have written it. A source loses the
    folder of our own files, if it is empty, and the place of a first deployment goes if only we
    wrote there. A place that holds again what was set aside there is left alone.
    """
    left = []
    restored = {step.location for step in plan if isinstance(step, SetAside)}
    for place in sorted(set(swept) - {plan.source} - restored):
        storage = world.storage(place)
        if place == plan.target:
            for file in list(storage.list()):
                if discard or is_of_a_job(file.path):
                    storage.remove(file.path)
        storage.prune()
        paths = sorted(file.path for file in storage.list())
        if paths:
            named = ", ".join(paths[:LEFT_NAMED_MAX])
            if len(paths) > LEFT_NAMED_MAX:
                named += ", …"
            count = "1 file" if len(paths) == 1 else f"{len(paths)} files"
            left.append(
                f"{place}: {count} that this run did not write ({named}): left there; look at "
                "what that is, and remove it before a job is moved there again"
            )
    if plan.source in written:
        storage = world.storage(plan.source)
        storage.prune(FOLDER)
        if plan.purpose == "start" and not list(storage.list()):
            storage.prune()
    return left
