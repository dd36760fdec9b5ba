"""The findings of a check. Types only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stateshift.specification.transform import Change

Verdict = Literal["starts", "not-known", "starts-but", "starts-after", "never"]
VERDICTS: tuple[Verdict, ...] = ("starts", "not-known", "starts-but", "starts-after", "never")
# From the best to the worst. `note` is something to know that changes no verdict.
Level = Literal["note", "not-known", "starts-but", "starts-after", "never"]
LEVELS: tuple[Level, ...] = ("note", "not-known", "starts-but", "starts-after", "never")


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which the code and the state differ.

    rule     the name of the rule that found it, by which it can be waived
    place    what differs: `operator 0`, `source 1`, `settings`, `query`
    old, new of the checkpoint, and of the code; None where one has no such thing
    changes  of the state, after which the code starts
    gather   whether a copy by `gather` is one that it starts from; so is any changed one
    hint     what else to do
    """

    level: Level
    rule: str
    place: str
    message: str
    old: str | None = None
    new: str | None = None
    changes: tuple[Change, ...] = ()
    hint: str | None = None
    gather: bool = False


@dataclass(frozen=True, slots=True)
class CheckedQuery:
    """The verdict on one query of the file."""

    query: str | None
    location: str | None
    verdict: Verdict
    differences: tuple[Difference, ...]
    operators: tuple[CheckedPart, ...]
    sources: tuple[CheckedPart, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes of the state that the verdict asks for."""
        wanted = []
        for difference in self.differences:
            if difference.level == "starts-after":
                wanted += [change for change in difference.changes if change not in wanted]
        return tuple(wanted)

    @property
    def has_commands(self) -> bool:
        """Whether commands are all that the verdict asks for."""
        asked = [each for each in self.differences if each.level == "starts-after"]
        return all(difference.changes or difference.gather for difference in asked)

    @property
    def gather(self) -> bool:
        """Whether the verdict asks for a copy of the state, changed or not."""
        return any(difference.gather for difference in self.differences)


@dataclass(frozen=True, slots=True)
class CheckedPart:
    """An operator or a source of the code: its number, and its kind."""

    id: str
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdicts on a file's queries that use the checkpoint."""

    image: str
    file: str
    engine: str
    engine_version: str
    queries: tuple[CheckedQuery, ...]
    stubbed: tuple[Stubbed, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        worst = max(VERDICTS.index(query.verdict) for query in self.queries)
        return VERDICTS[worst]


@dataclass(frozen=True, slots=True)
class Stubbed:
    """A source that an empty one of the same columns took the place of."""

    kind: str
    options: dict[str, str]
    reason: str | None


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The end of a start from a fork: what the engine did, or the error by which it failed.

    answers   rules of which it answers what is not known, in these places
    unopened  what is not known in these places even so
    is_final  whether an error is the engine's word on the state; else something else was missing
    """

    engine: str
    seconds: float
    did: str
    error: str | None = None
    answers: frozenset[tuple[str, str]] = frozenset()
    unopened: tuple[Difference, ...] = ()
    is_final: bool = True

    def judged(self, query: CheckedQuery) -> CheckedQuery:
        """Return the verdict with what the start showed."""
        shown = Difference("note", "rehearsal", "a fork", f"{self.did}, after {self.seconds:g} s")
        if self.error is not None:
            failed = f"{self.engine} started it, and it failed: {self.error}"
            level: Level = "never" if self.is_final else "not-known"
            shown = replace(shown, level=level, message=failed)
        differences = []
        for difference in query.differences:
            is_answered = self.error is None and (difference.rule, difference.place) in self.answers
            if not is_answered:
                differences.append(difference)
        unopened = self.unopened if self.error is None else ()
        waived = [each.rule for each in query.differences if each.level == "note"]
        judged = (*differences, *with_waivers(unopened, waived), shown)
        return replace(query, differences=judged, verdict=verdict_of(judged))


def with_waivers(differences: Iterable[Difference], rules: Sequence[str]) -> tuple[Difference, ...]:
    """Return the differences; hazards of these rules are notes, and change no verdict."""
    judged = []
    for difference in differences:
        is_hazard = difference.level in ("not-known", "starts-but")
        is_waived = is_hazard and difference.rule in rules
        judged.append(replace(difference, level="note") if is_waived else difference)
    return tuple(judged)


def verdict_of(differences: tuple[Difference, ...]) -> Verdict:
    """Return the verdict of all differences together."""
    levels = [LEVELS.index(difference.level) for difference in differences]
    return VERDICTS[max(levels, default=0)]
