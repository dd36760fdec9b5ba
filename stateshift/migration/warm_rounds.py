"""Rounds: a job's image is brought over while the job runs, again and again, each time what has
come since; until so little is left that the job may be stopped for it.

    look    what is there now, what of it is still to be brought, and how long that would take with
            the job down
    decide  stop the job, bring what is left once more, or wait
    bring   one plan for each job, carried out together

A job that is asked to stop still commits, and takes its time to go: what it leaves behind is
brought meanwhile. Nothing here changes the source: whoever ends this in between leaves a job that
runs as if nobody had looked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from stateshift.errors import Interrupted, MissingFile, PlanError, StalePlan, StateshiftError
from stateshift.estimating import byte_rate
from stateshift.journal import PlanProgress, RoundSeen
from stateshift.migration import round_compaction
from stateshift.migration.context import RunContext
from stateshift.migration.halts import prepare
from stateshift.migration.history import round_count, rounds_of
from stateshift.migration.observation import facts_as_proposed, facts_behind_round, facts_of
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.specification.warm import NEVER, READY, TOLD, seconds_of, window_of
from stateshift.step.evidence import FilesBrought
from stateshift.survey import Facts, Left
from stateshift.terms import terms_of
from stateshift.world import Unwatched

RUNS = ("running", "queued", "unknown")
PATIENCE = 3  # rounds after which no less was left than before
SHRINKS = 0.9  # to less than this part of what was left before
POLL_SECONDS = 2.0  # between two looks, where nothing is worth bringing yet
STOPPING_SECONDS = 0.1  # the same, while the job goes
STOPPING_SECONDS_MAX = 5.0  # and where that fails again and again
FRESH_SECONDS = 60.0  # after which even a little is brought
STANDBY_SECONDS = 10.0  # the same, where it is all there is should the source be lost


Epochs = list[tuple[str, int | None]]


@dataclass(frozen=True)
class Seen:
    """One look at one job. `plan` brings what is left."""

    job: JobSpec
    plan: Plan
    left: Left
    at: float
    runs: bool
    facts: Facts


class WarmRounds:
    def __init__(self, context: RunContext, jobs: Sequence[JobSpec]) -> None:
        self.context, self.jobs = context, list(jobs)
        self.seen: dict[str, list[Seen]] = {}
        self._prepared = False
        self._kept: dict[str, Epochs] = {}
        self._unkept: dict[str, str] = {}
        self._stopping: dict[str, Epochs] = {}
        self._brought_at = context.now()

    def until_cutover(self) -> None:
        """Return when the jobs are to be stopped."""
        control = self.context.control
        control.may_pause = True
        try:
            while True:
                seen = self._look()
                if not self._may_cut_over(seen):
                    self._go_on(seen)
                elif self._prepared or not self._prepare():
                    break
        finally:
            control.may_pause = False

    def _prepare(self) -> bool:
        """What takes its time and can be done while the jobs run; they write on meanwhile, and
        are looked at again.
        """
        self._prepared = True
        return prepare(self.context, self.jobs)

    # -- look

    def _look(self) -> list[Seen]:
        self.context.world.check_interrupted()
        return [self._look_at(job) for job in self.jobs]

    def _look_at(self, job: JobSpec) -> Seen:
        began, now = time.perf_counter(), self.context.now()
        proposed = self.context.plans.proposed(job, "warm")
        facts = facts_as_proposed(self.context, job, proposed)
        plan = self.context.engine.plan_round(self.context.spec, job, facts)
        looking = time.perf_counter() - began
        runs = facts.source_cluster is not None and facts.source_cluster.state in RUNS
        left = self._left(job, plan, looking)
        before = self.seen.setdefault(job.name, [])
        left = replace(left, written_per_second=self._written(before, left, now))
        one = Seen(job, plan, left, now, runs, facts)
        if not before or before[-1].left.round != left.round or before[-1].left.bytes != left.bytes:
            self.context.record(RoundSeen(now, job.name, left))
        before.append(one)
        del before[:-8]
        self.context.status.left(job.name, left)
        return one

    def _left(self, job: JobSpec, plan: Plan, looking: float) -> Left:
        rounds = rounds_of(self.context.progress, job.name)
        speeds = [speed for one in rounds if (speed := _speed(one)) is not None]
        bytes_max = max((speed[0] for speed in speeds), default=0.0)
        files_max = max((speed[1] for speed in speeds), default=0.0)
        seconds, limit = 2 * looking, self.context.control.bytes_per_second
        if limit:  # what is read counts, and what is written
            bytes_max = min(bytes_max or limit, limit / 2)
        seconds += plan.bytes / bytes_max if bytes_max else 0.0
        seconds += plan.files / files_max if files_max else 0.0
        return Left(
            round_count(self.context.progress, job.name),
            plan.epoch,
            plan.files,
            plan.bytes,
            round(seconds, 3),
            brought_per_second=round(bytes_max, 1) or None,
        )

    def _written(self, before: list[Seen], left: Left, now: float) -> float | None:
        """How fast the job writes what has to be brought: what has come since the round that
        emptied it.
        """
        if not before or left.round == before[-1].left.round == 0:
            return None
        last = before[-1]
        since = now - self._brought_at if left.round == last.left.round else now - last.at
        return round(left.bytes / since, 1) if since > 0 else None

    # -- decide

    def _may_cut_over(self, seen: list[Seen]) -> bool:
        wish = self.context.control.wishes.cutover
        if wish == "now":
            return True
        if not any(one.runs for one in seen):
            if wish is None and any(one.job.cutover == NEVER for one in seen):
                # a job that failed: whoever keeps a standby of it decides what becomes of it
                return False
            self.context.say(
                f"{_names(seen)}: no longer running, so there is no need for another round"
            )
            return True
        ready = all(self._is_ready(one) for one in seen)
        allowed = wish is not None or all(self._is_allowed(one.job) for one in seen)
        if ready and allowed:
            return True
        if not ready:
            for one in seen:
                self._refuse_hopeless(one, allowed)
        return False

    def _is_ready(self, one: Seen) -> bool:
        job, left = one.job, one.left
        if left.round == 0:
            return False
        if job.rounds is not None and job.until is None:
            return left.round >= job.rounds
        return left.seconds < seconds_of(job.until)

    def _is_allowed(self, job: JobSpec) -> bool:
        window = window_of(job.cutover)
        if window is not None:
            return window.open_at(self.context.now())
        return job.cutover == READY

    def _refuse_hopeless(self, one: Seen, allowed: bool) -> None:
        """A job that writes as fast as it is brought would be followed for ever. Not while
        nobody wants it stopped.
        """
        job, left = one.job, one.left
        if not allowed or left.round == 0 or (job.rounds is not None and job.until is None):
            return
        rates = (
            f"the job writes {_rate(left.written_per_second)} and "
            f"{_rate(left.brought_per_second)} are brought"
        )
        fact = f"{job.name}: {left.seconds:.1f} s are left after {left.round} rounds, and {rates}"
        hint = (
            "it runs on. `stateshift cutover WORKDIR --now` stops it for those "
            f"{left.seconds:.0f} s; else raise "
            '"until", or bring faster ("parallel", no "throttle"), or compact what it writes; then '
            "`stateshift resume WORKDIR`"
        )
        if job.rounds is not None and job.until is not None and left.round >= job.rounds:
            raise PlanError(
                f"{fact}: not less than {job.until.partition('<')[2].strip()}", hint=hint
            )
        rounds = list(
            {s.left.round: s.left.seconds for s in self.seen[job.name] if s.left.round}.items()
        )
        last = [seconds for _, seconds in rounds[-PATIENCE - 1 :]]
        if len(last) > PATIENCE and all(b >= SHRINKS * a for a, b in pairwise(last)):
            raise PlanError(f"{fact}: it does not get less", hint=hint)

    # -- while the jobs go

    def while_they_stop(self) -> Callable[[threading.Event], None] | None:
        """What is done beside that, if there is something to do. A disk is not waited for, and what
        Flink leaves behind is known only when it has.
        """
        far = [
            job
            for job in self.jobs
            if not job.takes_savepoints
            and self.context.doors.open_storage(job.source).traits.at_once > 1
        ]
        return partial(self._follow, far) if far else None

    def _follow(self, jobs: Sequence[JobSpec], over: threading.Event) -> None:
        """Whatever fails here, be it a bug of ours, is left for afterwards: the jobs are being
        stopped. Each attempt is a plan of its own, so that after one that failed the next one takes
        its time.
        """
        seconds = STOPPING_SECONDS
        while not over.is_set():
            try:
                for job in jobs:
                    self._bring_the_last(job, over)
                seconds = STOPPING_SECONDS
            except Interrupted:
                return
            except Exception as error:
                told = error.fact if isinstance(error, StateshiftError) else repr(error)
                self.context.say(f"nothing more is brought while the job stops, for now: {told}")
                seconds = min(2 * seconds, STOPPING_SECONDS_MAX)
            over.wait(seconds)

    def _bring_the_last(self, job: JobSpec, over: threading.Event) -> None:
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
        context.say(f"{job.name}: round {number + 1} has brought {_at(plan)} while it stopped")

    # -- bring

    def _go_on(self, seen: list[Seen]) -> None:
        worth = [one for one in seen if one.plan.files and self._is_worth_it(one)]
        kept = [one for one in seen if not one.plan.files and self._is_news(one)]
        if not worth:
            now_kept = [self._keep(one) for one in kept]
            if not any(now_kept):
                self._wait(seen)
            return
        self.context.status.waiting("", "")
        for one in worth:
            self._hide(one)
        adopted = [self.context.plans.adopt(one.plan) for one in worth]
        self._brought_at = self.context.now()
        self.context.execute(adopted)
        for (number, plan), one in zip(adopted, worth, strict=True):
            steps = self.context.progress.plans[number].steps.values()
            brought = [step.evidence for step in steps if isinstance(step.evidence, FilesBrought)]
            missed = sum(evidence.missed for evidence in brought)
            self._say_round(one, plan, missed)
            if not missed and self._is_news(one):
                kept.append(one)
        for one in kept:
            self._keep(one)
        for one in worth:
            if round_compaction.due(len(rounds_of(self.context.progress, one.job.name))):
                round_compaction.remember(self.context, one.job, one.facts)

    def _is_news(self, one: Seen) -> bool:
        """Whether an image that can be started from is wanted, and this is a later one than what
        is there.
        """
        return one.job.cutover == NEVER and runs_at(one.facts) != self._kept.get(one.job.name)

    def _keep(self, one: Seen) -> bool:
        """Make what rounds have brought an image; whether it is one. What the job has tidied away
        by now, the next round looks for.
        """
        context, name = self.context, one.job.name
        try:
            facts = facts_behind_round(context, one.job, one.facts)
            plan = context.engine.plan_standby(context.spec, one.job, facts)
            context.execute([context.plans.adopt(plan)])
        except (MissingFile, StalePlan) as error:
            told = (
                f"{name}: what there is of it now was not kept ({error.fact}); the image "
                "before it is"
            )
            if self._unkept.get(name) != told:  # once, and not at each look
                context.say(told)
            self._unkept[name] = told
            return False
        self._kept[name] = runs_at(one.facts)
        self._unkept.pop(name, None)
        context.say(f"{name}: can be started from {_at(plan)} at {one.job.destination}")
        return True

    def _hide(self, one: Seen) -> None:
        """Where the round would tear the image that is there: none is, until the next one."""
        if one.job.cutover != NEVER:
            return
        name, plan = one.job.name, self.context.engine.plan_hiding(one.job, one.facts, one.plan)
        if plan is None:
            return
        self.context.say(
            f"{name}: it has gone back behind what {one.job.destination} can be started "
            "from: that is removed"
        )
        self.context.execute([self.context.plans.adopt(plan)])
        self._kept.pop(name, None)

    def _is_worth_it(self, one: Seen) -> bool:
        """Not every batch of a job that waits to be stopped is worth a round of its own."""
        left, age = one.left, self.context.now() - self._brought_at
        if left.round == 0 or not self._is_ready(one):
            return True
        old = age > (STANDBY_SECONDS if one.job.cutover == NEVER else FRESH_SECONDS)
        return old or left.seconds > seconds_of(one.job.until) / 2

    def _say_round(self, one: Seen, plan: Plan, missed: int) -> None:
        gone = f" ({missed} of them were gone or rewritten by then)" if missed else ""
        self.context.say(
            f"{one.job.name}: round {one.left.round + 1} has brought {_at(plan)}{gone}"
        )

    def _wait(self, seen: list[Seen]) -> None:
        clock, waits = self.context.doors.clock, self._waits_for(seen)
        self.context.status.waiting(_names(seen), waits)
        until = clock.now() + POLL_SECONDS
        while clock.now() < until and self.context.control.wishes.cutover is None:
            self.context.world.check_interrupted()
            clock.sleep(0.2)

    def _waits_for(self, seen: list[Seen]) -> str:
        if self.context.control.wishes.cutover is not None:
            return "until so little is left that the job may be stopped"
        terms = terms_of(self.context.spec.engine)
        told = [one.job for one in seen if one.job.cutover == TOLD]
        hours = [
            one.job.cutover
            for one in seen
            if window_of(one.job.cutover) and not self._is_allowed(one.job)
        ]
        if told:
            return "for `stateshift cutover`"
        if any(one.job.cutover == NEVER for one in seen):
            return f"for the job's next {terms.many}: it is never stopped"
        return f"for {hours[0]}" if hours else f"for the job's next {terms.one}"


def runs_at(facts: Facts) -> Epochs:
    """The last batch of each of its queries."""
    return [(image.path, image.epoch) for image in facts.source.images]


def _speed(one: PlanProgress) -> tuple[float, float] | None:
    """Bytes and files a second of a round, by the clock on the wall."""
    done = [step for step in one.steps.values() if step.state == "finished"]
    if not done:
        return None
    seconds = max(max(s.at + s.seconds for s in done) - min(s.at for s in done), 1e-3)
    return sum(s.bytes for s in done) / seconds, sum(s.files for s in done) / seconds


def _at(plan: Plan) -> str:
    """A workflow's queries have an epoch each."""
    terms = terms_of(plan.engine)
    return terms.at_each if plan.epoch is None else f"{terms.at} {plan.epoch}"


def _rate(bytes_per_second: float | None) -> str:
    return "an unknown number of bytes" if bytes_per_second is None else byte_rate(bytes_per_second)


def _names(seen: list[Seen]) -> str:
    return ", ".join(one.job.name for one in seen)
