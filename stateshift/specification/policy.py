"""A policy: rules that every new run has to keep, beside what its spec says. Pure.

    {"version": 1,
     "rules": [
       {"name": "night", "at": "s3://prod", "except": "oncall", "hours": "22:00-06:00 UTC"},
       {"name": "small", "bytes_max": "2t", "say": "ask the platform team"},
       {"name": "no-waivers", "waive": []},
       {"name": "no-commands", "for": ["etl-*"], "commands": false}]}

A rule counts for the accounts in `for` (all where it has none) but those in `except`, and for
targets below `at` (all where it has none). Each of its limits then has to hold. A rule only
forbids: what no rule speaks of is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from stateshift.errors import SpecError
from stateshift.specification.grammars import window_of
from stateshift.specification.key import Keys, Reader, Values
from stateshift.specification.location import relation
from stateshift.specification.model import WAIVERS, JobSpec, Spec
from stateshift.specification.place import Complaints
from stateshift.specification.text import read_text
from stateshift.specification.values import (
    BOOLEAN,
    COUNT,
    CUTOVER,
    LOCATIONS,
    SIZE,
    TEXT,
    TEXTS,
    WORDS,
)

VERSION = 1
LIMITS = ("targets", "hours", "bytes_max", "waive", "commands")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. None as a limit is no limit."""

    name: str
    users: tuple[str, ...] = ("*",)
    exempt: tuple[str, ...] = ()
    at: tuple[str, ...] = ()
    targets: tuple[str, ...] | None = None
    waive: tuple[str, ...] | None = None
    hours: str | None = None
    bytes_max: int | None = None
    commands: bool = True
    say: str | None = None

    def is_for(self, user: str) -> bool:
        """Whether it counts for an account."""
        is_meant = any(fnmatchcase(user, pattern) for pattern in self.users)
        return is_meant and not any(fnmatchcase(user, pattern) for pattern in self.exempt)


@dataclass(frozen=True, slots=True)
class Wish:
    """The effects of a run, as far as rules speak of them: `user` is the account of its process,
    and `sizes` has the bytes that each job writes.
    """

    spec: Spec
    jobs: tuple[JobSpec, ...]
    user: str
    now: float
    sizes: Mapping[str, int]


def breaches(rules: tuple[Rule, ...], wish: Wish) -> Iterator[tuple[Rule, str]]:
    """Yield the rules that a run would break, each with the fact that breaks it."""
    for rule in rules:
        jobs = []
        for job in wish.jobs:
            places = (job.source, *job.copy_targets)  # a source is fenced
            if not rule.at or any(_is_below(place, rule.at) for place in places):
                jobs.append(job)
        if jobs and rule.is_for(wish.user):
            for message in _broken(rule, jobs, wish):
                yield rule, message


def _is_below(location: str, places: tuple[str, ...]) -> bool:
    return any(relation(location, place) in ("same", "inside") for place in places)


def _broken(rule: Rule, jobs: Sequence[JobSpec], wish: Wish) -> Iterator[str]:
    """Yield the facts of jobs, for which a rule counts, that break it."""
    window = window_of(rule.hours or "")
    if window is not None and not window.open_at(wish.now):
        yield f"it is not {rule.hours} now"
    written = sum(wish.sizes.get(job.name, 0) for job in jobs)
    if rule.bytes_max is not None and written > rule.bytes_max:
        yield f"{written:,} bytes would be written, and {rule.bytes_max:,} are allowed"
    for job in jobs:
        for target in job.copy_targets if rule.targets is not None else ():
            if not _is_below(target, rule.targets or ()):
                yield f"{job.name}: its target is {target}"
        waived = sorted(set(job.waive).difference(rule.waive or ()))
        if rule.waive is not None and waived:
            yield f"{job.name} waives {', '.join(waived)}"
    if not rule.commands:
        yield from commands_of(wish.spec)


def commands_of(spec: Spec) -> Iterator[str]:
    """Yield the commands of its own that a spec has this machine run."""
    for cluster in spec.clusters:
        if cluster.kind == "command":
            yield f"cluster {cluster.name} is commands"
        elif "spark_submit" in cluster.options:
            yield f"cluster {cluster.name} names its own spark_submit"
    for event in ("ready", "failed", "finished", "rpo"):
        receiver = getattr(spec.on, event, None)
        if receiver is not None and receiver.command:
            yield f"on {event} a command is run"


# -------------------------------------------------------------------------------- reading


def read_policy(text: str) -> tuple[Rule, ...]:
    """Return the rules of a policy; raise SpecError with all that is wrong with it."""
    complaints = Complaints()
    reader = Reader(complaints)
    rules: list[Rule] = []
    known = reader.known_with(read_text(text, {}, complaints), POLICY, "version", "rules") or {}
    if "version" in known and reader.value(POLICY["version"], known["version"]) != VERSION:
        complaints.add(known["version"], "an unknown version of policies", str(VERSION))
    for item in reader.items(known["rules"], "a list of rules") if "rules" in known else ():
        places = reader.known_with(item, RULE, "name") or {}
        values = reader.fields(RULE, places)
        if "name" not in values:
            continue
        names = {rule.name for rule in rules}
        for key, message, expected in _faults(values, names):
            complaints.add(places.get(key, item), message, expected)
        rules.append(Rule(**values))
    if complaints.made:
        raise SpecError(tuple(complaints.made))
    return tuple(rules)


def _faults(values: Values, names: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield the faults of a rule, with their keys: above all those by which it could never refuse
    anything.
    """
    if values["name"] in names:
        yield "name", f"two rules are called {values['name']!r}", "one of each name"
    if values.keys().isdisjoint(LIMITS):
        yield "", "it limits nothing", f"one of {', '.join(LIMITS)}"
    if values.get("users") == ():
        yield "users", "it counts for nobody", "accounts, or no 'for'"
    for key in ("at", "targets"):
        relative = [place for place in values.get(key, ()) if "://" not in place]
        if relative:
            yield key, f"{relative[0]} is relative to nothing", "a whole location"
    if "hours" in values and window_of(values["hours"]) is None:
        yield "hours", f"{values['hours']} is no time", "22:00-06:00 or 22:00-06:00 UTC"
    for name in values.get("waive", ()):
        if name not in WAIVERS:
            yield "waive", f"nothing can waive {name!r}", f"one of {', '.join(WAIVERS)}"


RULE = Keys(
    Rule,
    name=TEXT("What a refusal calls it."),
    users=TEXTS("Accounts that it counts for: names, or patterns such as etl-*.", also=("for",)),
    exempt=TEXTS("Accounts that it does not count for.", also=("except",)),
    at=LOCATIONS("It counts for jobs whose source or target is below one of these."),
    targets=LOCATIONS("Where targets may be: below one of these."),
    waive=TEXTS("The findings that may be waived; an empty list is none."),
    hours=CUTOVER("When a run may begin, of this machine's clock, or of UTC."),
    bytes_max=SIZE("How much a run may write."),
    commands=BOOLEAN("Whether a spec's own commands may run: clusters of commands, receivers."),
    say=TEXT("What a refusal says besides: whom to ask."),
)
POLICY = Keys(
    None, version=COUNT(f"The version of this format: {VERSION}."), rules=WORDS("The rules.")
)
