"""The next thing to do with jobs that are followed while they run. Pure.

decide(rounds, now) -> Choice
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from stateshift.errors import PlanError
from stateshift.estimating import byte_rate
from stateshift.plan import Plan
from stateshift.specification import JobSpec
from stateshift.specification.grammars import MANUAL, NEVER, READY, seconds_of, window_of
from stateshift.steering import Cutover
from stateshift.survey import Facts, Left
from stateshift.terms import terms_of

PATIENCE = 3  # rounds after which no less was left than before
SHRINKS = 0.9  # to less than this part of what was left before
FRESH_SECONDS = 60.0  # after which even a little is copied
STANDBY_SECONDS = 10.0  # the same, where it is all there is should the source be lost
RPO_PARTS = 4  # of the time that may be lost: a round is worth it after one of them
MISSED_SECONDS = 1.0  # after a round whose files were gone before they were copied

Epochs = list[tuple[str, int | None]]


@dataclass(frozen=True)
class Look:
    """One look at one job. `plan` copies what is left; `lefts` are those of the last looks."""

    job: JobSpec
    plan: Plan
    at: float
    runs: bool
    facts: Facts
    lefts: tuple[Left, ...]

    @property
    def left(self) -> Left:
        return self.lefts[-1]

    @property
    def is_standby(self) -> bool:
        """Whether the job is never stopped, and its copy kept for the day its source is lost."""
        return self.job.cutover == NEVER

    @property
    def is_ready(self) -> bool:
        """Whether so little is left that the job may be stopped for it."""
        if self.left.round == 0:
            return False
        if self.job.rounds is not None and self.job.until is None:
            return self.left.round >= self.job.rounds
        return self.left.seconds < seconds_of(self.job.until)

    def is_news(self, published: Mapping[str, Epochs]) -> bool:
        """Whether an image is wanted, and this is a later one than what is there."""
        return self.is_standby and epochs_of(self.facts) != published.get(self.job.name)


@dataclass(frozen=True)
class Rounds:
    """The rounds of a wave, after a look at all its jobs but those whose source is `lost`.
    `published` are the epochs of each standby's image; the last round of `missed` jobs found files
    gone. Since this look the image of `unpublished` jobs came to nothing, and the source of
    `proven` ones was read to its end.
    """

    engine: str
    looks: tuple[Look, ...]
    lost: tuple[str, ...] = ()
    wish: Cutover | None = None
    copied_at: float = 0.0
    published: Mapping[str, Epochs] = field(default_factory=dict)
    missed: frozenset[str] = frozenset()
    unpublished: frozenset[str] = frozenset()
    proven: frozenset[str] = frozenset()
    told_ready: frozenset[str] = frozenset()
    announced: bool = False
    prepared: bool = False

    @property
    def names(self) -> list[str]:
        return [look.job.name for look in self.looks]


@dataclass(frozen=True)
class Decline:
    """A cutover is requested, and the source of a standby is lost."""


@dataclass(frozen=True)
class Prove:
    """A cutover is requested: first the source of a standby is read to its end."""

    look: Look


@dataclass(frozen=True)
class Announce:
    """The jobs have ended: there is no need for another round."""

    line: str


@dataclass(frozen=True)
class Prepare:
    """The jobs may be stopped: first what takes its time is done while they run."""


@dataclass(frozen=True)
class Stop:
    """The rounds are over, and the jobs are stopped."""


@dataclass(frozen=True)
class Refuse:
    """A job writes as fast as it is copied: it would be followed for ever."""

    error: PlanError


@dataclass(frozen=True)
class TellReady:
    """The jobs could be stopped, and wait for a person or for their hours."""

    jobs: tuple[str, ...]
    detail: str


@dataclass(frozen=True)
class Copy:
    """Make a round of each look; then an image of those, and of the `published`."""

    looks: tuple[Look, ...]
    published: tuple[Look, ...] = ()


@dataclass(frozen=True)
class Publish:
    """Make an image of what rounds have copied."""

    looks: tuple[Look, ...]


@dataclass(frozen=True)
class Wait:
    """Nothing is worth copying yet."""

    jobs: str
    reason: str


Choice = Decline | Prove | Announce | Prepare | Stop | Refuse | TellReady | Copy | Publish | Wait


def decide(rounds: Rounds, now: float) -> Choice:
    """Return the next thing to do.

    1. The source has what is to be moved: while one is lost, nothing is cut over to.
    2. A person who requests a cutover gets nothing worse than the standby has: its source is whole.
    3. "now" asks for no more. Jobs that have ended leave nothing to wait for; but whoever keeps a
       standby decides what becomes of it when its job has failed.
    4. Else a person or the spec has to allow the cutover, and every job has to be ready for it.
    """
    looks, wish = rounds.looks, rounds.wish
    if rounds.lost:
        return Decline() if wish is not None else _next_round(rounds, now)
    if wish is not None:
        for look in looks:
            if look.is_standby and look.job.name not in rounds.proven:
                return Prove(look)
    if wish == "now":
        return _cut_over(rounds)
    if any(look.runs for look in looks):
        return _decide_of_running(rounds, now)
    if wish is None and any(look.is_standby for look in looks):
        return _next_round(rounds, now)
    return _cut_over(rounds) if rounds.announced else _announce(rounds)


def _decide_of_running(rounds: Rounds, now: float) -> Choice:
    is_allowed = all(may_stop(look.job, now) for look in rounds.looks)
    if rounds.wish is None and not is_allowed:
        return _next_round(rounds, now)
    if all(look.is_ready for look in rounds.looks):
        return _cut_over(rounds)
    for look in rounds.looks:
        error = hopeless(look)
        if error is not None:
            return Refuse(error)
    return _next_round(rounds, now)


def _cut_over(rounds: Rounds) -> Prepare | Stop:
    return Stop() if rounds.prepared else Prepare()


def _announce(rounds: Rounds) -> Announce:
    ends = "no longer running"
    if all(look.facts.source_cluster is None for look in rounds.looks):
        ends = "no cluster is named that could be asked, so it is taken for stopped"
    return Announce(f"{', '.join(rounds.names)}: {ends}, so there is no need for another round")


def _next_round(rounds: Rounds, now: float) -> TellReady | Copy | Publish | Wait:
    looks, reason = rounds.looks, _waits_for(rounds, now)
    are_ready = bool(looks) and all(look.is_ready for look in looks)
    is_told = rounds.told_ready.issuperset(rounds.names)
    if are_ready and not is_told and not any(look.is_standby for look in looks):
        seconds = max(look.left.seconds for look in looks)
        detail = f"about {seconds:.1f} s are left to copy; it waits {reason}"
        return TellReady(tuple(rounds.names), detail)
    copied: list[Look] = []
    published: list[Look] = []
    for look in looks:
        if look.plan.files:
            if _is_worth_it(look, now - rounds.copied_at, look.job.name in rounds.missed):
                copied.append(look)
        elif look.is_news(rounds.published) and look.job.name not in rounds.unpublished:
            published.append(look)
    if copied:
        return Copy(tuple(copied), tuple(published))
    if published:
        return Publish(tuple(published))
    return Wait(", ".join(rounds.names) or " and ".join(rounds.lost), reason)


def _is_worth_it(look: Look, age: float, has_missed: bool) -> bool:
    """Whether a round is worth it: not for every batch of a job that waits to be stopped."""
    if not look.is_ready:
        return True
    age_max = FRESH_SECONDS
    if look.is_standby:
        rpo = look.job.standby.rpo
        age_max = STANDBY_SECONDS if rpo is None else min(STANDBY_SECONDS, rpo / RPO_PARTS)
        if has_missed:
            age_max = min(age_max, MISSED_SECONDS)
    return age > age_max or look.left.seconds > seconds_of(look.job.until) / 2


def _waits_for(rounds: Rounds, now: float) -> str:
    if rounds.lost:
        return "for its source, which cannot be followed"
    if rounds.wish is not None:
        return "until so little is left that the job may be stopped"
    jobs = [look.job for look in rounds.looks]
    cutovers = {job.cutover for job in jobs}
    if MANUAL in cutovers:
        return "for `stateshift cutover`"
    terms = terms_of(rounds.engine)
    if NEVER in cutovers:
        return f"for the job's next {terms.many}: it is never stopped"
    for job in jobs:
        if window_of(job.cutover) and not may_stop(job, now):
            return f"for {job.cutover}"
    return f"for the job's next {terms.one}"


def may_stop(job: JobSpec, now: float) -> bool:
    """Whether the spec allows that the job is stopped now."""
    window = window_of(job.cutover)
    return window.open_at(now) if window is not None else job.cutover == READY


def hopeless(look: Look) -> PlanError | None:
    """Return the refusal of a job that writes as fast as it is copied."""
    job, left = look.job, look.left
    if left.round == 0 or (job.rounds is not None and job.until is None):
        return None
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
        return PlanError(f"{fact}: not less than {limit}", hint=hint)
    # The seconds that were left after each of the last rounds, and before them.
    seconds_after = {earlier.round: earlier.seconds for earlier in look.lefts if earlier.round}
    last = list(seconds_after.values())[-PATIENCE - 1 :]
    if len(last) <= PATIENCE or any(after < SHRINKS * before for before, after in pairwise(last)):
        return None
    return PlanError(f"{fact}: it does not get less", hint=hint)


def _rate(bytes_per_second: float | None) -> str:
    return "an unknown number of bytes" if bytes_per_second is None else byte_rate(bytes_per_second)


def epochs_of(facts: Facts) -> Epochs:
    """Return the last batch of each of the source's queries."""
    return [(image.path, image.epoch) for image in facts.source.images]
