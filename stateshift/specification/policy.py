"""A policy: rules that every new run has to keep, beside what its spec says. Pure.

    {"version": 1,
     "rules": [
       {"name": "night", "except": "oncall", "hours": "22:00-06:00 UTC",
        "except_below": "s3://dev"},
       {"name": "there", "for": ["etl-*"], "targets": "s3://dr", "say": "ask the platform team"},
       {"name": "reviewed", "for": ["ci"], "signed_by": ["lead.pub"]},
       {"name": "no-waivers", "waive": []}]}

A rule counts for the accounts in `for` (all where it has none) but those in `except`, and for all
jobs but those whose places are below `except_below`. Each of its limits then has to hold. A rule
only forbids: what no rule speaks of is allowed. Locations go by their spelling: another spelling
of the same place is another place, and no rule is got around by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from stateshift.errors import SpecError
from stateshift.specification.grammars import window_of
from stateshift.specification.key import Keys, Reader, Values
from stateshift.specification.location import relation
from stateshift.specification.model import WAIVERS, JobSpec, Spec
from stateshift.specification.place import Complaints
from stateshift.specification.text import read_text
from stateshift.specification.transform import Rescale, find_change
from stateshift.specification.values import (
    COUNT,
    CUTOVER,
    LOCATIONS,
    TEXT,
    TEXTS,
    WORDS,
)

VERSION = 1
LIMITS = ("targets", "hours", "waive", "signed_by")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. None as a limit is no limit."""

    name: str
    users: tuple[str, ...] = ("*",)
    exempt: tuple[str, ...] = ()
    except_below: tuple[str, ...] = ()
    targets: tuple[str, ...] | None = None
    waive: tuple[str, ...] | None = None
    hours: str | None = None
    signed_by: tuple[str, ...] = ()
    say: str | None = None

    def is_for(self, user: str, sudo_user: str) -> bool:
        """Whether it counts for an account, and who became it by sudo. That is what a variable
        says, which can hold anything: nobody is exempt by it.
        """
        is_meant = any(_fits(name, self.users) for name in (user, sudo_user) if name)
        return is_meant and not _fits(user, self.exempt)

    def broken_by(self, jobs: Sequence[JobSpec], now: float) -> Iterator[str]:
        """Yield the facts of jobs, for which it counts, that break it."""
        window = window_of(self.hours or "")
        if window is not None and not window.open_at(now):
            yield f"it is not {self.hours} now"
        for job in jobs:
            for target in job.copy_targets if self.targets is not None else ():
                if not _is_below(target, self.targets or ()):
                    yield f"{job.name}: its target is {target}"
            waived = sorted(set(job.waive).difference(self.waive or ()))
            if self.waive is not None and waived:
                yield f"{job.name} waives {', '.join(waived)}"


@dataclass(frozen=True, slots=True)
class Wish:
    """The effects of a run, as far as rules speak of them, and the account of its process."""

    jobs: tuple[JobSpec, ...]
    user: str
    sudo_user: str


def binding(rules: tuple[Rule, ...], wish: Wish) -> Iterator[tuple[Rule, list[JobSpec]]]:
    """Yield the rules that count for a run, each with the jobs that it counts for."""
    for rule in rules:
        jobs = []
        for job in wish.jobs:
            places = (job.source, *job.copy_targets)  # a source is fenced
            if not all(_is_below(place, rule.except_below) for place in places):
                jobs.append(job)
        if jobs and rule.is_for(wish.user, wish.sudo_user):
            yield rule, jobs


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_below(location: str, places: tuple[str, ...]) -> bool:
    return any(relation(location, place) in ("same", "inside") for place in places)


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
    for job in spec.jobs:
        rescale = find_change(job.transform, Rescale)
        if rescale is not None and rescale.classes:
            yield f"job {job.name} has the code of {', '.join(rescale.classes)} run"


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
        for key, place in item.children:
            may_be_empty = RULE.find(str(key)) is RULE["waive"]
            if place.value is None or (place.value in ([], "") and not may_be_empty):
                complaints.add(place, "it says nothing", f"a value, or no {key!r}")
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
    for key in ("except_below", "targets"):
        relative = [place for place in values.get(key, ()) if "://" not in place]
        if relative:
            yield key, f"{relative[0]} is relative to nothing", "a whole location"
    window = window_of(values.get("hours", ""))
    if "hours" in values and (window is None or not window.utc):
        message = f"{values['hours']} are no hours of UTC; whoever is asked sets the local time"
        yield "hours", message, "22:00-06:00 UTC"
    for name in values.get("waive", ()):
        if name not in WAIVERS:
            yield "waive", f"nothing can waive {name!r}", f"one of {', '.join(WAIVERS)}"


RULE = Keys(
    Rule,
    name=TEXT("What a refusal calls it."),
    users=TEXTS("Accounts that it counts for: names, or patterns such as etl-*.", also=("for",)),
    exempt=TEXTS("Accounts that it does not count for.", also=("except",)),
    except_below=LOCATIONS("It does not count for jobs with source and targets below these."),
    targets=LOCATIONS("Where targets may be: below one of these."),
    waive=TEXTS("The findings that may be waived; an empty list is none."),
    hours=CUTOVER("When a run may begin, in UTC."),
    signed_by=TEXTS("Files of public keys: the plan is signed with one of them."),
    say=TEXT("What a refusal says besides: whom to ask."),
)
POLICY = Keys(
    None, version=COUNT(f"The version of this format: {VERSION}."), rules=WORDS("The rules.")
)
