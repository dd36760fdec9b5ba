"""The findings of a check. Types only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from stateshift.specification.transform import Change

Verdict = Literal["starts", "starts-but", "starts-after", "never"]
VERDICTS: tuple[Verdict, ...] = ("starts", "starts-but", "starts-after", "never")
# From the best to the worst. `note` is something to know that changes no verdict.
Level = Literal["note", "starts-but", "starts-after", "never"]
LEVELS: tuple[Level, ...] = ("note", "starts-but", "starts-after", "never")


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which the code and the state differ.

    rule     the name of the rule that found it, by which it can be waived
    place    what differs: `operator 0`, `source 1`, `settings`, `query`
    old, new of the checkpoint, and of the code; None where one has no such thing
    changes  of the state, after which the code starts
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
        return all(difference.changes for difference in asked)


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
    """The end of a query's start from a fork. `batch` and `rows` are None where none was run."""

    seconds: float
    batch: int | None
    rows: int | None
    error: str | None = None

    def as_difference(self) -> Difference:
        """Return the finding that it is."""
        place = "a fork"
        if self.error is not None:
            fact = f"Spark started it, and it failed: {self.error}"
            return Difference("never", "rehearsal", place, fact)
        read = "there was nothing to read"
        if self.batch is not None:
            read = f"batch {self.batch} of {self.rows:,} records was computed"
        fact = f"Spark started it, and {read}, after {self.seconds:g} s"
        return Difference("note", "rehearsal", place, fact)


def with_waivers(differences: Iterable[Difference], rules: Sequence[str]) -> tuple[Difference, ...]:
    """Return the differences; hazards of these rules are notes, and change no verdict."""
    judged = []
    for difference in differences:
        is_waived = difference.level == "starts-but" and difference.rule in rules
        judged.append(replace(difference, level="note") if is_waived else difference)
    return tuple(judged)


def verdict_of(differences: tuple[Difference, ...]) -> Verdict:
    """Return the verdict of all differences together."""
    levels = [LEVELS.index(difference.level) for difference in differences]
    worst = LEVELS[max(levels, default=0)]
    return "starts" if worst == "note" else worst
