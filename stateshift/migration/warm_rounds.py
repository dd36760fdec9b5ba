"""Rounds: a job's image is copied while the job runs, again and again, each time what has come
since; until so little is left that the job may be stopped for it.

    look    what is there now, what of it is still to be copied, and how long that would take with
            the job down
    decide  stop the job, copy what is left once more, or wait (`round_choice`)
    act     one plan for each job, carried out together

A job that is asked to stop still commits, and takes its time to go: what it leaves behind is copied
meanwhile. Nothing here changes the source: ending this in between leaves a job that runs as if
nobody had looked.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeVar

from stateshift.errors import (
    ClusterError,
    FormatError,
    Interrupted,
    MissingFile,
    OtherRunError,
    StalePlan,
    StateshiftError,
    StorageError,
)
from stateshift.formats.standby import ReadUpTo
from stateshift.journal import PlanProgress, RoundSeen, SourceLost
from stateshift.migration import round_choice, round_compaction
from stateshift.migration.context import RunContext
from stateshift.migration.halts import prepare
from stateshift.migration.history import round_count, rounds_of
from stateshift.migration.notifications import tell_ready
from stateshift.migration.observation import (
    facts_as_proposed,
    facts_behind_round,
    facts_of,
    once_heard,
)
from stateshift.migration.plan_book import NumberedPlan
from stateshift.migration.round_choice import FRESH_SECONDS, Choice, Epochs, Look, Rounds, decide
from stateshift.migration.source_check import LATELY_SECONDS, damage_of_copy, damages
from stateshift.migration.standby_source import follow, is_at, kept_epoch, way_without
from stateshift.migration.standby_state import (
    Publication,
    RpoWatch,
    announce_images,
    forget_state,
    kept_images,
    tell_standby,
    writers_of,
)
from stateshift.migration.take_over import with_old_files_gone
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.specification.grammars import NEVER
from stateshift.step import BringFiles, KeepBrought
from stateshift.step.claims import refuse_another
from stateshift.step.contents import digest_of
from stateshift.step.evidence import FilesBrought
from stateshift.step.jobs import RAN
from stateshift.survey import Facts, FileInfo, Image, Left
from stateshift.terms import terms_of
from stateshift.world import Unwatched

POLL_SECONDS = 2.0  # between two looks, where nothing is worth copying yet
FAILED_SECONDS = 10.0  # after a round that failed, before that standby is looked at again
STOPPING_SECONDS = 0.1  # the same, while the job goes
STOPPING_SECONDS_MAX = 5.0  # and where that fails again and again
LOOKS_KEPT = 8
CHECK_PAUSE = 9  # times the last check, before the next one

T = TypeVar("T")


@dataclass(frozen=True)
class Damage:
    """A source that was read, and found to be damaged, before anything was written over."""

    files: tuple[FileInfo, ...]
    reason: str
    at: float


@dataclass(frozen=True)
class Failure:
    """A round of a standby that came to nothing, and when that was."""

    reason: str
    at: float


@dataclass(frozen=True)
class Check:
    """A copy that was read to its end: when that was done, and how long it took to read what was
    not known. `digests` are those of its files; all of them were read until `whole_at`.
    """

    at: float
    seconds: float
    digests: Mapping[str, str]
    whole_at: float
    whole_seconds: float

    def is_known(self, now: float) -> bool:
        """Whether what was read need not be read again yet."""
        return now - self.whole_at < max(LATELY_SECONDS, CHECK_PAUSE * self.whole_seconds)


class WarmRounds:
    """The rounds of the jobs of a wave that are followed while they run. Each of several standbys
    fails alone: the others are fed on. One that is taken over is left out.
    """

    def __init__(self, context: RunContext, jobs: Sequence[JobSpec]) -> None:
        writers = {
            job.name: {writer.job for writer in writers_of(context.spec, job)} for job in jobs
        }
        waiting, in_order = list(jobs), list[JobSpec]()
        while waiting:
            written: set[str] = set()
            for job in waiting:
                written |= writers[job.name]
            ready = [job for job in waiting if job.name not in written]
            if not ready:  # they read from each other
                ready = waiting[:1]
            in_order += ready
            waiting = [job for job in waiting if job not in ready]
        self.context, self._every = context, in_order
        self.jobs = self._every
        self._last: dict[str, Look] = {}
        self._seen: set[str] = set()  # those of the last time that all were looked at
        self._published: dict[str, Epochs] = {}
        self._complaints: dict[str, str] = {}  # why an image came to nothing
        self._lost: dict[str, float] = {}  # when it was last told
        self._damaged: dict[str, Damage] = {}
        self._failed: dict[str, Failure] = {}
        self._kept: dict[str, tuple[Image, ...]] = {}
        self._checks: dict[str, Check] = {}
        self._told_ready: set[str] = set()
        self._missed: set[str] = set()  # those whose last round found files gone
        self._copied_at = context.now()
        self._rpo = RpoWatch(context, jobs)

    def until_cutover(self) -> None:
        """Make rounds until the jobs are to be stopped."""
        control, now = self.context.control, self.context.now
        control.may_pause = True
        try:
            with self._rpo.watching():
                rounds = self._look(Rounds(self.context.spec.engine, ()))
                while not isinstance(choice := decide(rounds, now()), round_choice.Stop):
                    rounds = self._act(choice, rounds)
        finally:
            control.may_pause = False

    def _act(self, choice: Choice, rounds: Rounds) -> Rounds:
        match choice:
            case round_choice.Refuse():
                raise choice.error
            case round_choice.Decline():
                self.context.say(
                    f"{' and '.join(rounds.lost)}: the cutover is declined, and nothing was "
                    "changed: the source cannot be followed"
                )
                for name in rounds.lost:
                    self.context.say(f"{name}: {way_without(self.context.job(name))}")
                control = self.context.control
                control.steering.heeded("cutover")
                control.wishes = replace(control.wishes, cutover=None)
                return replace(rounds, wish=None)
            case round_choice.Prove():
                if self._is_proven(choice.look):
                    return replace(rounds, proven=rounds.proven | {choice.look.job.name})
                return replace(rounds, lost=tuple(self._lost))
            case round_choice.Announce():
                self.context.say(choice.line)
                return replace(rounds, announced=True)
            case round_choice.TellReady():
                self._tell_ready(choice.jobs, choice.detail)
                return replace(rounds, told_ready=frozenset(self._told_ready))
            case _:
                return self._work(choice, rounds)

    def _work(self, choice: Choice, rounds: Rounds) -> Rounds:
        """Do something that takes its time, and look again at all jobs: they write on meanwhile."""
        match choice:
            case round_choice.Prepare():
                rounds = replace(rounds, prepared=True)
                if not prepare(self.context, self.jobs):
                    return rounds
            case round_choice.Publish():
                published = []
                for look in choice.looks:
                    published.append(self._attempt(look.job, partial(self._publish, look)))
                if not any(published):
                    names = {look.job.name for look in choice.looks}
                    return replace(rounds, unpublished=rounds.unpublished | names)
            case round_choice.Copy():
                self._copy(choice)
            case round_choice.Wait():
                self._wait(choice)
        return self._look(rounds)

    # -- look

    def _look(self, rounds: Rounds) -> Rounds:
        """Look at all jobs, again where a cluster gives no answer: what is decided is decided of
        all as they are now. A standby whose source is lost is not among them.
        """
        followed: list[JobSpec] = []
        refusals: list[OtherRunError] = []
        for job in self._every:
            was_followed = job in self.jobs
            try:
                # Refuse to feed a standby that was taken over.
                claimed = self.context.world.claims.get(job.destination)
                if claimed is not None:
                    refuse_another(
                        self.context.adapters.open_storage(claimed.location), claimed.generation
                    )
            except OtherRunError as error:
                refusals.append(error)
                if was_followed and len(self._every) > 1:
                    self.context.say(f"{job.name} is followed no longer: {error.fact}")
                continue
            followed.append(job)
            if not was_followed:
                self.context.say(f"{job.name} is followed again")
        if refusals and not followed:
            raise refusals[0]
        self.jobs = followed
        looks = once_heard(
            self.context,
            lambda: [self._attempt(job, partial(self._look_at, job)) for job in self.jobs],
        )
        self._rpo.judge()
        return Rounds(
            engine=rounds.engine,
            looks=tuple(look for look in looks if look is not None),
            lost=tuple(self._lost),
            wish=self.context.control.wishes.cutover,
            copied_at=self._copied_at,
            published=dict(self._published),
            missed=frozenset(self._missed),
            told_ready=frozenset(self._told_ready),
            prepared=rounds.prepared,
        )

    def _attempt(self, job: JobSpec, act: Callable[[], T]) -> T | None:
        """Return the result of `act` for a job; None where it fails for a standby, and that is no
        reason to end the run.
        """
        try:
            return act()
        except OtherRunError:
            if not job.is_standby or len(self.jobs) == 1:
                raise
            return None  # the next look leaves it out
        except (StorageError, FormatError, StalePlan) as error:
            if not self._goes_on_after(error, job):
                raise
            self._failed[job.name] = Failure(error.fact, self.context.now())
            self._lose(job, error.fact)
            return None

    def _goes_on_after(self, error: StateshiftError, job: JobSpec) -> bool:
        """Whether an error leaves something to do: a standby waits for its source, and for its own
        target while others are fed.
        """
        if not job.is_standby:
            return False
        others = {other.name for other in self.jobs} - {job.name}
        if others - self._lost.keys():
            return True
        return not isinstance(error, StalePlan) and self._is_of_source(error, job)

    def _look_at(self, job: JobSpec) -> Look | None:
        began = time.perf_counter()
        now = self.context.now()
        self._seen.discard(job.name)
        failed = self._failed.get(job.name)
        if failed is not None and now - failed.at < FAILED_SECONDS:
            self._lose(job, failed.reason)
            return None
        last = self._last.get(job.name)
        facts = self._facts_now(job, last)
        if facts is None:
            return None
        if round_choice.epochs_of(facts) == self._published.get(job.name):
            self._rpo.is_level(job.name, now)
        plan = self.context.engine.plan_round(self.context.spec, job, facts)
        looking = time.perf_counter() - began
        runs = facts.source_cluster is not None and facts.source_cluster.state in RAN
        left = self._left(job, plan, looking)
        earlier = last.lefts if last is not None else ()
        if last is not None and (left.round or last.left.round):
            # The files that have come since the round that emptied it.
            since = now - (self._copied_at if left.round == last.left.round else last.at)
            if since > 0:
                left = replace(left, written_per_second=round(left.bytes / since, 1))
        if last is None or (last.left.round, last.left.bytes) != (left.round, left.bytes):
            self.context.record(RoundSeen(now, job.name, left))
        look = Look(job, plan, now, runs, facts, (*earlier, left)[-LOOKS_KEPT:])
        self._last[job.name] = look
        self._seen.add(job.name)
        if job.name in self._failed and not plan.files and not look.is_news(self._published):
            self._failed.pop(job.name)
            self._follow_again(job)
        self.context.status.left(job.name, left)
        return look

    def _facts_now(self, job: JobSpec, last: Look | None) -> Facts | None:
        """Return the facts now; None where a standby cannot follow its source."""
        proposed = self.context.plans.proposed(job, "warm")
        if job.cutover != NEVER:
            return facts_as_proposed(self.context, job, proposed)
        found = follow(self.context, job, proposed, last.facts if last is not None else None)
        damage = self._damaged.get(job.name)
        if isinstance(found, Facts) and damage is not None:
            # It may be whole now only if it has changed since it was read.
            is_recent = self.context.now() - damage.at < FRESH_SECONDS
            if damage.files == found.source.files or is_recent:
                found = damage.reason
        if isinstance(found, str):
            self._lose(job, found)
            return None
        if damage is None and job.name not in self._failed:  # else once a round has worked
            self._follow_again(job)
        return found

    def _follow_again(self, job: JobSpec) -> None:
        self._lost.pop(job.name, None)
        if job.name in self.context.progress.lost:
            self.context.record(SourceLost(self.context.now(), job.name, ""))
            self.context.say(f"{job.name}: its source is back, and is followed again")

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
            context.record(SourceLost(now, job.name, reason, epoch, self._rpo.as_of(job.name)))
        kept = "nothing is there yet"
        if self._published.get(job.name) or epoch is not None:
            terms = terms_of(context.spec.engine)
            at = terms.at_each if epoch is None else f"{terms.at} {epoch}"
            kept = f"the copy at {job.destination} stays, and can be started from {at}"
        context.say(f"{job.name}: its source cannot be followed: {reason}; {kept}")

    def _left(self, job: JobSpec, plan: Plan, looking: float) -> Left:
        bytes_max = files_max = 0.0
        for progress in rounds_of(self.context.progress, job.name):
            bytes_per_second, files_per_second = _speed(progress)
            bytes_max = max(bytes_max, bytes_per_second)
            files_max = max(files_max, files_per_second)
        limit = self.context.control.bytes_per_second
        if limit:  # what is read counts, and what is written
            bytes_max = min(bytes_max or limit, limit / 2)
        seconds = 2 * looking
        if bytes_max:
            seconds += plan.bytes / bytes_max
        if files_max:
            seconds += plan.files / files_max
        return Left(
            round_count(self.context.progress, job.name),
            plan.epoch,
            plan.files,
            plan.bytes,
            round(seconds, 3),
            brought_per_second=round(bytes_max, 1) or None,
        )

    # -- act

    def _tell_ready(self, jobs: Iterable[str], detail: str) -> None:
        """Tell that jobs are ready, once a process."""
        names = list(jobs)
        if not self._told_ready.issuperset(names):
            self._told_ready.update(names)
            tell_ready(self.context, names, detail)

    def _wait(self, choice: round_choice.Wait) -> None:
        clock = self.context.adapters.clock
        self.context.status.waiting(choice.jobs, choice.reason)
        until = clock.now() + POLL_SECONDS
        while clock.now() < until and self.context.control.wishes.cutover is None:
            self.context.world.check_interrupted()
            clock.sleep(0.2)

    def _copy(self, choice: round_choice.Copy) -> None:
        copied = self._copy_rounds(choice.looks)
        for look in (*choice.published, *copied):
            if look.is_news(self._published):
                self._attempt(look.job, partial(self._publish, look))
        for look in choice.looks:
            job, made = look.job, rounds_of(self.context.progress, look.job.name)
            if round_compaction.is_due(len(made)):
                compact = partial(round_compaction.compact, self.context, job, look.facts)
                self._attempt(job, compact)

    def _copy_rounds(self, looks: Sequence[Look]) -> list[Look]:
        """Make a round of each look. Return those of which every file was copied."""
        self.context.status.waiting("", "")
        adopted: list[tuple[Look, NumberedPlan]] = []
        for look in looks:
            if self._attempt(look.job, partial(self._hide, look)):
                adopted.append((look, self.context.plans.adopt(look.plan)))
        self._copied_at = self.context.now()
        whole = []
        for look, (number, plan) in self._execute_rounds(adopted):
            self._failed.pop(look.job.name, None)
            steps = self.context.progress.plans[number].steps.values()
            copied = [step.evidence for step in steps if isinstance(step.evidence, FilesBrought)]
            missed = sum(evidence.missed for evidence in copied)
            gone = f" ({missed} of them were gone or rewritten by then)" if missed else ""
            line = f"round {look.left.round + 1} has copied {_at(plan)}{gone}"
            self.context.say(f"{look.job.name}: {line}")
            self._missed.discard(look.job.name)
            if missed:
                self._missed.add(look.job.name)
            else:
                whole.append(look)
        return whole

    def _execute_rounds(
        self, adopted: Sequence[tuple[Look, NumberedPlan]]
    ) -> Sequence[tuple[Look, NumberedPlan]]:
        """Carry out rounds together; after a failure each alone. Return those that have worked."""
        if len(adopted) > 1:
            try:
                self.context.execute([numbered for _, numbered in adopted])
            except (StorageError, FormatError, OtherRunError):
                if not all(look.is_standby for look, _ in adopted):
                    raise
            else:
                return adopted
        worked = []
        for look, numbered in adopted:
            self._attempt(look.job, partial(self.context.execute, [numbered]))
            if self.context.progress.plans[numbered[0]].finished_at is not None:
                worked.append((look, numbered))
        return worked

    def _publish(self, look: Look) -> bool:
        """Make an image of the rounds' files; whether it is one. Else a later round tries."""
        context, name = self.context, look.job.name
        try:
            facts = facts_behind_round(context, look.job, look.facts)
            known = self._kept.get(name, ())
            self._kept[name] = kept_images(context, look.job, facts, known)
            facts = replace(facts, kept=self._kept[name])
            is_checked = self._is_check_due(look.job)
            if is_checked and self._is_copy_damaged(look, facts):
                return False
            plan = context.engine.plan_standby(context.spec, look.job, facts)
            publishing = plan.phase("publish")
            if publishing is not None and isinstance(publishing.steps[0], KeepBrought):
                forget_state(context, look.job)  # what it names is hidden first
            plan = with_old_files_gone(plan, facts)
            adopted = context.plans.adopt(plan)
            read_up_to = tuple(self.read_up_to(look))
            publication = Publication(look.at, is_checked, read_up_to)
            announce_images(context, look.job, look.facts, publication)
            context.execute([adopted])
        except (StorageError, FormatError, StalePlan) as error:
            may_pass = isinstance(error, MissingFile | StalePlan)
            is_standby = look.job.is_standby
            if not may_pass and not (is_standby and self._is_of_source(error, look.job)):
                raise
            line = (
                f"{name}: what there is of it now was not kept ({error.fact}); the image "
                "before it is"
            )
            if self._complaints.get(name) != line:  # once, and not at each look
                context.say(line)
            self._complaints[name] = line
            return False
        self._published[name] = round_choice.epochs_of(look.facts)
        self._complaints.pop(name, None)
        facts = replace(look.facts, kept=facts.kept)
        tell_standby(context, look.job, facts, publication)
        self._rpo.is_level(name, look.at)
        self._damaged.pop(name, None)
        self._failed.pop(name, None)
        self._follow_again(look.job)
        startable = f"can be started from {_at(plan)} at {look.job.destination}"
        context.say(f"{name}: {startable}")
        self._tell_ready([name], startable)
        return True

    def read_up_to(self, look: Look) -> Iterator[ReadUpTo]:
        """Yield the epochs of the jobs whose output a job reads. They were looked at after the job
        itself: it has read no more.
        """
        for writer in writers_of(self.context.spec, look.job):
            if writer.job not in self._seen:
                continue
            images = self._last[writer.job].facts.source.images
            begun = [image.epoch if image.planned is None else image.planned for image in images]
            if len(begun) == 1 and begun[0] is not None:
                yield ReadUpTo(writer.job, begun[0])

    def _is_check_due(self, job: JobSpec) -> bool:
        """Whether the copy is read to its end before it is published: what is new in it, and once
        an hour all of it. If that takes long it is not, for so long that reading takes a tenth of
        the time; an earlier epoch that was read is kept then.
        """
        last = self._checks.get(job.name)
        if job.verify_source != "deep" or last is None:
            return job.verify_source == "deep"
        return self.context.now() - last.at >= CHECK_PAUSE * last.seconds

    def _is_copy_damaged(self, look: Look, facts: Facts) -> bool:
        """Whether a job could not be started from what was copied: the source is lost then. A copy
        that is not what the source has is made again.
        """
        context, name = self.context, look.job.name
        began, last = context.now(), self._checks.get(name)
        if last is not None and not last.is_known(began):
            last = None
        copied = context.engine.as_copied(facts)
        needed = set(chain.from_iterable(image.needed for image in copied.source.images))
        digests: dict[str, str] = {}
        for (location, path), copy in facts.brought.items():
            if location == facts.source.location and path in needed:
                digests[path] = copy.digest
        read = {} if last is None else last.digests
        known = {path for path, digest in digests.items() if read.get(path) == digest}
        damage = damage_of_copy(context.inquiry_at_pace, look.job, copied, known)
        now = context.now()
        seconds = now - began
        if damage is None:
            # A round brings little beside a whole copy: the next check is not put off for that.
            whole = Check(now, 0.0, digests, began, seconds)
            more = last and replace(last, at=now, seconds=seconds, digests=digests)
            self._checks[name] = more or whole
            return False
        self._checks[name] = Check(now, seconds, {}, -math.inf, seconds)
        if damage.path is not None and self._remove_bad_copy(facts, damage.path):
            context.say(f"{name}: the copy of {damage.path} is damaged: it is copied again")
            return True
        self._damaged[name] = Damage(look.facts.source.files, damage.message, context.now())
        self._lose(look.job, damage.message)
        return True

    def _remove_bad_copy(self, facts: Facts, path: str) -> bool:
        """Remove a copy that is not what the source has, so that the next round makes it again.
        Return whether it was one.
        """
        world = self.context.world
        held = facts.brought.get((facts.source.location, path))
        source = world.storage(facts.source.location)
        if held is None or source.stat(path) is None:
            return False
        target = world.storage(held.target)
        if digest_of(source.chunks(path)) == digest_of(target.chunks(held.name)):
            return False
        target.remove(held.name)
        return True

    def _is_of_source(self, error: StateshiftError, job: JobSpec) -> bool:
        """Whether an error is not of the target."""
        return not is_at(error, self.context.world.storage(job.destination).location)

    def _hide(self, look: Look) -> bool:
        """Remove the image at the target if the round would tear it, once a whole source was read
        to its end: else it may be the last one. Return whether the round may be made.
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
        forget_state(self.context, look.job)
        self.context.execute([self.context.plans.adopt(plan)])
        self._published.pop(name, None)
        return True

    def _is_torn_by(self, look: Look) -> bool:
        """Whether the round would replace bytes: a source that was brought back has other files."""
        for step in look.plan:
            if isinstance(step, BringFiles):
                source, target = map(self.context.world.storage, (step.source, step.target))
                for item, name in step.named:
                    if target.stat(name) is None:
                        continue
                    if digest_of(source.chunks(item.path)) != digest_of(target.chunks(name)):
                        return True
        return False

    def _is_proven(self, look: Look) -> bool:
        """Whether a standby's source is whole, read to its end; it is lost if not."""
        try:
            findings = damages(self.context.inquiry_at_pace, look.job)
            fault = findings[0].message if findings else None
        except (StorageError, FormatError, ClusterError) as error:
            fault = error.fact
        if fault is None:
            self._damaged.pop(look.job.name, None)
            return True
        self._damaged[look.job.name] = Damage(look.facts.source.files, fault, self.context.now())
        self._lose(look.job, fault)
        return False

    # -- while the jobs go

    def while_they_stop(self) -> Callable[[threading.Event], None] | None:
        """Return the work beside stopping the jobs, if there is some. A disk is not waited for, and
        an image that a job writes when it is asked to is known only when the job has stopped.
        """
        followed = []
        for job in self.jobs:
            traits = self.context.adapters.open_storage(job.source).traits
            if not job.image_writers and traits.at_once > 1:
                followed.append(job)
        return partial(self._follow, followed) if followed else None

    def _follow(self, jobs: Sequence[JobSpec], over: threading.Event) -> None:
        """Copy what jobs still write until they have stopped. Errors, also bugs of ours, are left
        for afterwards. Each attempt is a plan: after a failure the next one takes its time.
        """
        copied: dict[str, Epochs] = {}
        seconds = STOPPING_SECONDS
        while not over.is_set():
            try:
                for job in jobs:
                    self._copy_the_last(job, copied, over)
                seconds = STOPPING_SECONDS
            except Interrupted:
                return
            except Exception as error:
                fact = error.fact if isinstance(error, StateshiftError) else repr(error)
                self.context.say(f"nothing more is copied while the job stops, for now: {fact}")
                seconds = min(2 * seconds, STOPPING_SECONDS_MAX)
            over.wait(seconds)

    def _copy_the_last(
        self, job: JobSpec, copied: dict[str, Epochs], over: threading.Event
    ) -> None:
        context = self.context
        number = round_count(context.progress, job.name)
        before = self._last[job.name]
        facts = facts_of(context, job, "round", before.facts)
        plan = context.engine.plan_round(context.spec, job, facts, stopping=True)
        at = round_choice.epochs_of(facts)
        if over.is_set() or plan.facts != before.plan.facts or at == copied.get(job.name):
            return
        # The jobs' stop is what people watch.
        world = replace(context.world, meter=Unwatched())
        context.execute([context.plans.adopt(plan)], world=world)
        copied[job.name] = at
        context.say(f"{job.name}: round {number + 1} has copied {_at(plan)} while it stopped")


def _speed(progress: PlanProgress) -> tuple[float, float]:
    """Return the bytes and files a second of a round, by the clock on the wall."""
    steps = [step for step in progress.steps.values() if step.state == "finished"]
    if not steps:
        return 0.0, 0.0
    ended = max(step.at + step.seconds for step in steps)
    seconds = max(ended - min(step.at for step in steps), 1e-3)
    return sum(step.bytes for step in steps) / seconds, sum(step.files for step in steps) / seconds


def _at(plan: Plan) -> str:
    """Return the words for the epoch of a round. A workflow's queries have one each."""
    terms = terms_of(plan.engine)
    return terms.at_each if plan.epoch is None else f"{terms.at} {plan.epoch}"
