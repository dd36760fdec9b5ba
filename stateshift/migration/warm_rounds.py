"""Rounds: a job's image is copied while the job runs, again and again, each time what has come
since; until so little is left that the job may be stopped for it.

    look    what is there now, what of it is still to be copied, and how long that would take with
            the job down
    decide  stop the job, copy what is left once more, or wait
    copy    one plan for each job, carried out together

A job that is asked to stop still commits, and takes its time to go: what it leaves behind is copied
meanwhile. Nothing here changes the source: ending this in between leaves a job that runs as if
nobody had looked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from stateshift.errors import (
    ClusterError,
    FormatError,
    Interrupted,
    MissingFile,
    PlanError,
    StalePlan,
    StateshiftError,
    StorageError,
)
from stateshift.estimating import byte_rate
from stateshift.journal import PlanProgress, RoundSeen, SourceLost
from stateshift.migration import round_compaction
from stateshift.migration.context import RunContext
from stateshift.migration.gathering import Inquiry
from stateshift.migration.halts import prepare
from stateshift.migration.history import round_count, rounds_of
from stateshift.migration.notifications import tell_ready
from stateshift.migration.observation import (
    facts_as_proposed,
    facts_behind_round,
    facts_of,
    once_heard,
)
from stateshift.migration.source_check import damages
from stateshift.migration.standby_source import BY_HAND, follow, is_at, kept_epoch
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.specification.warm import MANUAL, NEVER, READY, seconds_of, window_of
from stateshift.steering import Cutover
from stateshift.step import BringFiles
from stateshift.step.contents import digest_of
from stateshift.step.evidence import FilesBrought
from stateshift.survey import Facts, FileInfo, Left
from stateshift.terms import terms_of
from stateshift.world import Unwatched

RUNS = ("running", "queued", "unknown")
PATIENCE = 3  # rounds after which no less was left than before
SHRINKS = 0.9  # to less than this part of what was left before
POLL_SECONDS = 2.0  # between two looks, where nothing is worth copying yet
STOPPING_SECONDS = 0.1  # the same, while the job goes
STOPPING_SECONDS_MAX = 5.0  # and where that fails again and again
FRESH_SECONDS = 60.0  # after which even a little is copied
STANDBY_SECONDS = 10.0  # the same, where it is all there is should the source be lost
LOOKS_KEPT = 8


Epochs = list[tuple[str, int | None]]


@dataclass(frozen=True)
class Seen:
    """One look at one job. `plan` copies what is left."""

    job: JobSpec
    plan: Plan
    left: Left
    at: float
    runs: bool
    facts: Facts

    @property
    def is_standby(self) -> bool:
        """Whether the job is never stopped, and its copy kept for the day its source is lost."""
        return self.job.cutover == NEVER

    @property
    def stops_by_rounds(self) -> bool:
        """Whether a number of rounds alone decides when the job may be stopped."""
        return self.job.rounds is not None and self.job.until is None

    @property
    def is_ready(self) -> bool:
        """Whether so little is left that the job may be stopped for it."""
        if self.left.round == 0:
            return False
        if self.job.rounds is not None and self.job.until is None:
            return self.left.round >= self.job.rounds
        return self.left.seconds < seconds_of(self.job.until)


@dataclass(frozen=True)
class Unproven:
    """A source that was read, and found to be damaged, before anything was written over."""

    files: tuple[FileInfo, ...]
    reason: str
    at: float


class WarmRounds:
    """The rounds of the jobs of a wave that are followed while they run."""

    def __init__(self, context: RunContext, jobs: Sequence[JobSpec]) -> None:
        self.context = context
        self.jobs = list(jobs)
        self.seen: dict[str, list[Seen]] = {}
        self._prepared = False
        self._told_ready: set[str] = set()
        self._kept: dict[str, Epochs] = {}
        self._unkept: dict[str, str] = {}
        self._lost: dict[str, float] = {}
        self._unproven: dict[str, Unproven] = {}
        self._stopping: dict[str, Epochs] = {}
        self._copied_at = context.now()

    def until_cutover(self) -> None:
        """Return when the jobs are to be stopped."""
        control = self.context.control
        control.may_pause = True
        try:
            while True:
                seen = self._look()
                if not self._may_cut_over(seen):
                    self._tell_if_ready(seen)
                    self._go_on(seen)
                elif self._prepared or not self._prepare():
                    break
        finally:
            control.may_pause = False

    def _prepare(self) -> bool:
        """Do what takes its time and can be done while the jobs run. They write on meanwhile, and
        are looked at again.
        """
        self._prepared = True
        return prepare(self.context, self.jobs)

    # -- look

    def _look(self) -> list[Seen]:
        """Look at all jobs, again where a cluster gives no answer: what is decided is decided of
        all as they are now. A standby whose source is lost is not among them.
        """
        looks = once_heard(self.context, lambda: [self._look_at(job) for job in self.jobs])
        return [look for look in looks if look is not None]

    def _look_at(self, job: JobSpec) -> Seen | None:
        began = time.perf_counter()
        now = self.context.now()
        proposed = self.context.plans.proposed(job, "warm")
        if job.cutover != NEVER:
            facts = facts_as_proposed(self.context, job, proposed)
        else:
            looks = self.seen.get(job.name)
            found = follow(self.context, job, proposed, looks[-1].facts if looks else None)
            if isinstance(found, Facts) and not self._is_worth_proving(job, found):
                found = self._unproven[job.name].reason
            if isinstance(found, str):
                self._lose(job, found)
                return None
            self._find(job)
            facts = found
        plan = self.context.engine.plan_round(self.context.spec, job, facts)
        looking = time.perf_counter() - began
        runs = facts.source_cluster is not None and facts.source_cluster.state in RUNS
        left = self._left(job, plan, looking)
        looks = self.seen.setdefault(job.name, [])
        left = replace(left, written_per_second=self._written(looks, left, now))
        look = Seen(job, plan, left, now, runs, facts)
        if not looks or _has_changed(looks[-1].left, left):
            self.context.record(RoundSeen(now, job.name, left))
        looks.append(look)
        del looks[:-LOOKS_KEPT]
        self.context.status.left(job.name, left)
        return look

    def _lose(self, job: JobSpec, reason: str) -> None:
        """Write down that a standby cannot follow its source; a new reason once a minute."""
        context, now = self.context, self.context.now()
        before = context.progress.lost.get(job.name)
        is_known = before is not None and before.reason == reason
        told_at = self._lost.get(job.name)
        if told_at is not None and (is_known or now - told_at < FRESH_SECONDS):
            return
        epoch = kept_epoch(context, job)
        self._lost[job.name] = now
        if not is_known:
            context.record(SourceLost(now, job.name, reason, epoch))
        kept = "nothing is there yet"
        if self._kept.get(job.name) or epoch is not None:
            terms = terms_of(context.spec.engine)
            at = terms.at_each if epoch is None else f"{terms.at} {epoch}"
            kept = f"the copy at {job.destination} stays, and can be started from {at}"
        context.say(f"{job.name}: its source cannot be followed: {reason}; {kept}")

    def _find(self, job: JobSpec) -> None:
        """Write down that a standby can follow its source again."""
        self._lost.pop(job.name, None)
        if job.name in self.context.progress.lost:
            self.context.record(SourceLost(self.context.now(), job.name, ""))
            self.context.say(f"{job.name}: its source is back, and is followed again")

    def _left(self, job: JobSpec, plan: Plan, looking: float) -> Left:
        bytes_max, files_max = _best_speed(rounds_of(self.context.progress, job.name))
        limit = self.context.control.bytes_per_second
        if limit:  # what is read counts, and what is written
            bytes_max = min(bytes_max or limit, limit / 2)
        seconds = 2 * looking + _copying_seconds(plan, bytes_max, files_max)
        return Left(
            round_count(self.context.progress, job.name),
            plan.epoch,
            plan.files,
            plan.bytes,
            round(seconds, 3),
            brought_per_second=round(bytes_max, 1) or None,
        )

    def _written(self, looks: list[Seen], left: Left, now: float) -> float | None:
        """Return how fast the job writes what has to be copied: what has come since the round that
        emptied it.
        """
        if not looks:
            return None
        last = looks[-1]
        if left.round == last.left.round == 0:
            return None
        since = now - (self._copied_at if left.round == last.left.round else last.at)
        return round(left.bytes / since, 1) if since > 0 else None

    # -- decide

    def _may_cut_over(self, seen: list[Seen]) -> bool:
        wish = self.context.control.wishes.cutover
        if self._lost:
            self._decline(wish)
            return False
        if wish is not None and not all(self._is_proven(look) for look in seen):
            self._decline(wish)
            return False
        if wish == "now":
            return True
        if not any(look.runs for look in seen):
            return self._may_end_rounds(seen, wish)
        return self._is_asked_for(seen, wish) and self._is_little_left(seen)

    def _decline(self, wish: Cutover | None) -> None:
        """Say that nothing is cut over to: the source has what is to be moved, and is lost."""
        if wish is None:
            return
        names = " and ".join(self._lost)
        self.context.say(
            f"{names}: the cutover is declined, and nothing was changed: the source cannot be "
            f"followed. To start the copy without it: {BY_HAND}"
        )
        control = self.context.control
        control.steering.heeded("cutover")
        control.wishes = replace(control.wishes, cutover=None)

    def _is_asked_for(self, seen: list[Seen], wish: str | None) -> bool:
        """Return whether a person asked for the cutover, or the spec allows it to every job."""
        return wish is not None or all(self._is_allowed(look.job) for look in seen)

    def _is_little_left(self, seen: list[Seen]) -> bool:
        """Return whether every job is ready; refuse one that never will be."""
        if all(look.is_ready for look in seen):
            return True
        for look in seen:
            self._refuse_hopeless(look)
        return False

    def _may_end_rounds(self, seen: list[Seen], wish: str | None) -> bool:
        """Whether jobs that run no longer are moved. If one of them has failed, whoever keeps a
        standby of it decides what becomes of it.
        """
        if wish is None and any(look.is_standby for look in seen):
            return False
        ends = "no longer running"
        if all(look.facts.source_cluster is None for look in seen):
            ends = "no cluster is named that could be asked, so it is taken for stopped"
        self.context.say(f"{_names(seen)}: {ends}, so there is no need for another round")
        return True

    def _is_allowed(self, job: JobSpec) -> bool:
        window = window_of(job.cutover)
        if window is not None:
            return window.open_at(self.context.now())
        return job.cutover == READY

    def _refuse_hopeless(self, look: Seen) -> None:
        """Refuse a job that writes as fast as it is copied: it would be followed for ever."""
        job, left = look.job, look.left
        if left.round == 0 or look.stops_by_rounds:
            return
        written, copied = _rate(left.written_per_second), _rate(left.brought_per_second)
        fact = (
            f"{job.name}: {left.seconds:.1f} s are left after {left.round} rounds, and the job "
            f"writes {written} and {copied} are copied"
        )
        hint = (
            "it runs on. `stateshift cutover WORKDIR --now` stops it for those "
            f'{left.seconds:.0f} s; else raise "until", or copy faster ("parallel", no '
            '"throttle"), or compact what it writes; then `stateshift resume WORKDIR`'
        )
        if job.rounds is not None and job.until is not None and left.round >= job.rounds:
            limit = job.until.partition("<")[2].strip()
            raise PlanError(f"{fact}: not less than {limit}", hint=hint)
        if not self._gets_less(job):
            raise PlanError(f"{fact}: it does not get less", hint=hint)

    def _gets_less(self, job: JobSpec) -> bool:
        """Whether less was left after one of the last rounds than before it."""
        seconds_after = {look.left.round: look.left.seconds for look in self.seen[job.name]}
        seconds_after.pop(0, None)
        last = list(seconds_after.values())[-PATIENCE - 1 :]
        if len(last) <= PATIENCE:
            return True
        return any(after < SHRINKS * before for before, after in pairwise(last))

    def _tell_if_ready(self, seen: list[Seen]) -> None:
        """Tell that jobs could be stopped, and wait for a person or for their hours."""
        if any(look.is_standby for look in seen) or not all(look.is_ready for look in seen):
            return
        if not seen:
            return
        seconds = max(look.left.seconds for look in seen)
        self._tell_ready(
            [look.job.name for look in seen],
            f"about {seconds:.1f} s are left to copy; it waits {self._waits_for(seen)}",
        )

    def _tell_ready(self, jobs: list[str], detail: str) -> None:
        """Tell that jobs are ready, once a process."""
        if self._told_ready.issuperset(jobs):
            return
        self._told_ready.update(jobs)
        tell_ready(self.context, jobs, detail)

    # -- while the jobs go

    def while_they_stop(self) -> Callable[[threading.Event], None] | None:
        """Return what is done beside stopping the jobs, if there is something to do."""
        followed = [job for job in self.jobs if self._is_worth_following(job)]
        return partial(self._follow, followed) if followed else None

    def _is_worth_following(self, job: JobSpec) -> bool:
        """Whether something is copied while the job stops. A disk is not waited for, and an image
        that the job writes when it is asked to is known only when it has stopped.
        """
        if job.image_writers:
            return False
        return self.context.adapters.open_storage(job.source).traits.at_once > 1

    def _follow(self, jobs: Sequence[JobSpec], over: threading.Event) -> None:
        """Copy what jobs still write until they have stopped. Whatever fails here, be it a bug of
        ours, is left for afterwards. Each attempt is a plan of its own, so that after one that
        failed the next one takes its time.
        """
        seconds = STOPPING_SECONDS
        while not over.is_set():
            try:
                for job in jobs:
                    self._copy_the_last(job, over)
                seconds = STOPPING_SECONDS
            except Interrupted:
                return
            except Exception as error:
                fact = error.fact if isinstance(error, StateshiftError) else repr(error)
                self.context.say(f"nothing more is copied while the job stops, for now: {fact}")
                seconds = min(2 * seconds, STOPPING_SECONDS_MAX)
            over.wait(seconds)

    def _copy_the_last(self, job: JobSpec, over: threading.Event) -> None:
        context = self.context
        number = round_count(context.progress, job.name)
        before = self.seen[job.name][-1]
        facts = facts_of(context, job, before=before.facts)
        plan = context.engine.plan_round(context.spec, job, facts, stopping=True)
        at = runs_at(facts)
        if over.is_set() or plan.facts != before.plan.facts or at == self._stopping.get(job.name):
            return
        # What is watched is that the jobs stop.
        world = replace(context.world, meter=Unwatched())
        context.execute([context.plans.adopt(plan)], world=world)
        self._stopping[job.name] = at
        context.say(f"{job.name}: round {number + 1} has copied {_at(plan)} while it stopped")

    # -- copy

    def _go_on(self, seen: list[Seen]) -> None:
        with_files: list[Seen] = []
        news: list[Seen] = []
        for look in seen:
            if not look.plan.files:
                news += self._news([look])
            elif self._is_worth_it(look):
                with_files.append(look)
        if not with_files:
            kept = [self._keep(look) for look in news]
            if not any(kept):
                self._wait(seen)
            return
        news += self._copy(with_files)
        for look in news:
            self._keep(look)
        for look in with_files:
            self._compact(look)

    def _news(self, looks: list[Seen]) -> list[Seen]:
        return [look for look in looks if self._is_news(look)]

    def _compact(self, look: Seen) -> None:
        count = len(rounds_of(self.context.progress, look.job.name))
        if round_compaction.due(count):
            round_compaction.remember(self.context, look.job, look.facts)

    def _copy(self, looks: list[Seen]) -> list[Seen]:
        """Make a round of each look. Return those that have copied an image that is news."""
        self.context.status.waiting("", "")
        try:
            looks = [look for look in looks if self._hide(look)]
            adopted = [self.context.plans.adopt(look.plan) for look in looks]
            self._copied_at = self.context.now()
            self.context.execute(adopted)
        except (StorageError, FormatError) as error:
            if not all(self._is_of_source(error, look) for look in looks):
                raise
            for look in looks:
                self._lose(look.job, error.fact)
            return []
        whole = []
        for (number, plan), look in zip(adopted, looks, strict=True):
            missed = self._missed(number)
            self._say_round(look, plan, missed)
            if not missed:
                whole.append(look)
        return self._news(whole)

    def _missed(self, number: int) -> int:
        """Return how many files of a round were gone or rewritten before they were copied."""
        steps = self.context.progress.plans[number].steps.values()
        copied = [step.evidence for step in steps if isinstance(step.evidence, FilesBrought)]
        return sum(evidence.missed for evidence in copied)

    def _is_news(self, look: Seen) -> bool:
        """Whether an image that can be started from is wanted, and this is a later one than what
        is there.
        """
        return look.is_standby and runs_at(look.facts) != self._kept.get(look.job.name)

    def _keep(self, look: Seen) -> bool:
        """Make an image of what rounds have copied; whether it is one. What the job has tidied away
        by now, the next round looks for.
        """
        context, name = self.context, look.job.name
        try:
            facts = facts_behind_round(context, look.job, look.facts)
            plan = context.engine.plan_standby(context.spec, look.job, facts)
            context.execute([context.plans.adopt(plan)])
        except (StorageError, FormatError, StalePlan) as error:
            if not isinstance(error, MissingFile | StalePlan) and not self._is_of_source(
                error, look
            ):
                raise
            line = (
                f"{name}: what there is of it now was not kept ({error.fact}); the image "
                "before it is"
            )
            if self._unkept.get(name) != line:  # once, and not at each look
                context.say(line)
            self._unkept[name] = line
            return False
        self._kept[name] = runs_at(look.facts)
        self._unkept.pop(name, None)
        startable = f"can be started from {_at(plan)} at {look.job.destination}"
        context.say(f"{name}: {startable}")
        self._tell_ready([name], startable)
        return True

    def _is_of_source(self, error: StateshiftError, look: Seen) -> bool:
        """Whether an error is a standby's, and not of its target."""
        target = self.context.world.storage(look.job.destination).location
        return look.is_standby and not is_at(error, target)

    def _hide(self, look: Seen) -> bool:
        """Remove the image at the target, until the next one, where the round would tear it. It is
        the last one unless the source holds one that is whole: that is read to its end before.
        Return whether the round may be made.
        """
        if not look.is_standby:
            return True
        name = look.job.name
        plan = self.context.engine.plan_hiding(look.job, look.facts, look.plan)
        if plan is None or not self._is_torn_by(look):
            return True
        if not self._is_proven(look):
            return False
        self.context.say(
            f"{name}: it has gone back behind what {look.job.destination} can be started "
            "from: that is removed"
        )
        self.context.execute([self.context.plans.adopt(plan)])
        self._kept.pop(name, None)
        return True

    def _is_torn_by(self, look: Seen) -> bool:
        """Whether the round would write other bytes over what is there: a source that was lost and
        brought back has other files of the same content.
        """
        for step in look.plan:
            if isinstance(step, BringFiles):
                source, target = map(self.context.world.storage, (step.source, step.target))
                for item, name in step.named:
                    if target.stat(name) is None:
                        continue
                    if digest_of(source.chunks(item.path)) != digest_of(target.chunks(name)):
                        return True
        return False

    def _is_worth_proving(self, job: JobSpec, facts: Facts) -> bool:
        """Whether a source that was damaged may be whole now: it has changed since."""
        before = self._unproven.get(job.name)
        if before is None:
            return True
        is_recent = self.context.now() - before.at < FRESH_SECONDS
        return before.files != facts.source.files and not is_recent

    def _is_proven(self, look: Seen) -> bool:
        """Whether a standby's source is whole, read to its end: what is to take the place of the
        standby's image comes from there.
        """
        if not look.is_standby:
            return True
        fault = self._fault_in_source(look)
        if fault is None:
            self._unproven.pop(look.job.name, None)
            return True
        files, now = look.facts.source.files, self.context.now()
        self._unproven[look.job.name] = Unproven(files, fault, now)
        self._lose(look.job, fault)
        return False

    def _fault_in_source(self, look: Seen) -> str | None:
        adapters = replace(self.context.adapters, open_storage=self.context.world.storage)
        inquiry = Inquiry(self.context.spec, adapters, self.context.workdir)
        try:
            found = damages(inquiry, look.job)
        except (StorageError, FormatError, ClusterError) as error:
            return error.fact
        return found[0].message if found else None

    def _is_worth_it(self, look: Seen) -> bool:
        """Whether a round is worth it: not for every batch of a job that waits to be stopped."""
        if not look.is_ready:
            return True
        age = self.context.now() - self._copied_at
        age_max = STANDBY_SECONDS if look.is_standby else FRESH_SECONDS
        return age > age_max or look.left.seconds > seconds_of(look.job.until) / 2

    def _say_round(self, look: Seen, plan: Plan, missed: int) -> None:
        gone = f" ({missed} of them were gone or rewritten by then)" if missed else ""
        self.context.say(
            f"{look.job.name}: round {look.left.round + 1} has copied {_at(plan)}{gone}"
        )

    def _wait(self, seen: list[Seen]) -> None:
        clock = self.context.adapters.clock
        self.context.status.waiting(_names(seen) or " and ".join(self._lost), self._waits_for(seen))
        until = clock.now() + POLL_SECONDS
        while clock.now() < until and self.context.control.wishes.cutover is None:
            self.context.world.check_interrupted()
            clock.sleep(0.2)

    def _waits_for(self, seen: list[Seen]) -> str:
        if self._lost:
            return "for its source, which cannot be followed"
        if self.context.control.wishes.cutover is not None:
            return "until so little is left that the job may be stopped"
        if MANUAL in {look.job.cutover for look in seen}:
            return "for `stateshift cutover`"
        return self._waits_for_commit(seen)

    def _waits_for_commit(self, seen: list[Seen]) -> str:
        terms = terms_of(self.context.spec.engine)
        if NEVER in {look.job.cutover for look in seen}:
            return f"for the job's next {terms.many}: it is never stopped"
        closed = self._closed_windows(seen)
        return f"for {closed[0]}" if closed else f"for the job's next {terms.one}"

    def _closed_windows(self, seen: list[Seen]) -> list[str]:
        """Return the hours for which jobs wait."""
        jobs = [look.job for look in seen if window_of(look.job.cutover)]
        return [job.cutover for job in jobs if not self._is_allowed(job)]


def runs_at(facts: Facts) -> Epochs:
    """Return the last batch of each of its queries."""
    return [(image.path, image.epoch) for image in facts.source.images]


def _has_changed(before: Left, after: Left) -> bool:
    return before.round != after.round or before.bytes != after.bytes


def _best_speed(rounds: Sequence[PlanProgress]) -> tuple[float, float]:
    """Return the most bytes a second of these rounds, and the most files a second."""
    bytes_max = files_max = 0.0
    for progress in rounds:
        bytes_per_second, files_per_second = _speed(progress)
        bytes_max = max(bytes_max, bytes_per_second)
        files_max = max(files_max, files_per_second)
    return bytes_max, files_max


def _copying_seconds(plan: Plan, bytes_max: float, files_max: float) -> float:
    """Return how long a round takes at these speeds; nothing where none is known yet."""
    seconds = 0.0
    if bytes_max:
        seconds += plan.bytes / bytes_max
    if files_max:
        seconds += plan.files / files_max
    return seconds


def _speed(progress: PlanProgress) -> tuple[float, float]:
    """Return the bytes and files a second of a round, by the clock on the wall."""
    steps = [step for step in progress.steps.values() if step.state == "finished"]
    if not steps:
        return 0.0, 0.0
    ended = max(step.at + step.seconds for step in steps)
    seconds = max(ended - min(step.at for step in steps), 1e-3)
    return sum(step.bytes for step in steps) / seconds, sum(step.files for step in steps) / seconds


def _at(plan: Plan) -> str:
    """Say at which epoch a round is. A workflow's queries have one each."""
    terms = terms_of(plan.engine)
    return terms.at_each if plan.epoch is None else f"{terms.at} {plan.epoch}"


def _rate(bytes_per_second: float | None) -> str:
    return "an unknown number of bytes" if bytes_per_second is None else byte_rate(bytes_per_second)


def _names(seen: list[Seen]) -> str:
    return ", ".join(look.job.name for look in seen)
