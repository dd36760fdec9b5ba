"""Chains of functions that change while a job runs, and which functions hold for which rows. Pure.

    Link            one function of a chain, by the hash of its code; `inner` is the one it is
                    wrapped around
    Declaration     a job's word on its chain: its first functions, and the schema that it sends on
    ProposedChange  one reconfiguration of one chain or several: their whole new chains
    Decision        the end of a proposed change: applied, or aborted with a reason
    Reversal        the first error of a change that takes itself back
    KnownChange     a change with all of that, as far as somebody has read it
    ChangeLog       the changes that a process has taken over, and its next step

A *version* is the number of a change; 0 is what the job began with. A chain's functions at a moment
are those of its newest change that holds there (`effective`). When a change begins to hold is said
for each chain:

    batch     for the batches whose seal counts it: every task of a batch reads the same seal, and
              a batch that is run again reads it again
    message   as soon as a worker knows of it, also within a batch
    column    for the rows that say so: a chain upstream has written into a column which version
              they had there

Changes hold in their order: one holds only where all before it hold, so that two changes never
overtake each other on their way through several jobs. One that was aborted or reverted holds
nowhere, and holds nothing up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from stateshift.errors import FormatError, PlanError, UnknownVersion
from stateshift.plain import from_plain, to_plain

T = TypeVar("T")

FORMAT = "stateshift-live"
FORMAT_VERSION = 1

When = Literal["batch", "message", "column"]
Kind = Literal["arrow", "pandas", "batch"]
OnError = Literal["fail", "revert"]
Outcome = Literal["applied", "aborted"]
Version = int

FIRST = "first:"  # a link to one of the job's own functions, by its number
DAMAGED = "damaged"  # the act of a proposal that cannot be read


@dataclass(frozen=True, slots=True)
class Link:
    """One function of a chain. `code` is the hash of what was shipped, or names one of the job's
    own functions; `name` is for people.
    """

    code: str
    name: str
    inner: Link | None = None

    @property
    def own(self) -> int | None:
        """The number of the job's own function; None where the code was shipped."""
        return int(self.code[len(FIRST) :]) if self.code.startswith(FIRST) else None

    def __str__(self) -> str:
        return self.name if self.inner is None else f"{self.name}({self.inner})"


Links = tuple[Link, ...]


def names_of(links: Links) -> tuple[str, ...]:
    """Return the names of a chain's functions."""
    return tuple(str(link) for link in links)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A chain as its job declares it. `output` is the Arrow schema that it sends on, serialized and
    in base64; `stamp` and `follow` are the column into which it writes a row's version, and from
    which it takes it.
    """

    name: str
    functions: tuple[str, ...]
    codes: tuple[str, ...]
    output: str
    python: str
    pyarrow: str
    stamp: str | None = None
    follow: str | None = None

    @property
    def first(self) -> Links:
        return tuple(Link(f"{FIRST}{number}", name) for number, name in enumerate(self.functions))


@dataclass(frozen=True, slots=True)
class NewChain:
    """One chain after a change. `state` is the code that transforms its state."""

    links: Links
    when: When = "batch"
    state: Link | None = None


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """One reconfiguration as it is proposed: of several chains, or of one. `group` is the group's
    id, so that a signed proposal holds in no other group.
    """

    group: str
    number: Version
    act: str
    chains: Mapping[str, NewChain]
    at: float
    timeout_seconds: float
    scheduler: str = "epoch"
    on_error: OnError = "fail"
    by: str = ""

    @property
    def expires(self) -> float:
        """The time from which everybody may abort it, unless it is decided."""
        return self.at + self.timeout_seconds

    @property
    def overdue(self) -> str:
        """The reason for which somebody may abort it who did not ask for it."""
        if self.act == DAMAGED:
            return "its proposal cannot be read"
        return f"nobody decided on it within {self.timeout_seconds:g} s"


def damaged_change(number: Version) -> ProposedChange:
    """Return a change for a proposal that cannot be read: empty, and its time is over."""
    return ProposedChange("", number, DAMAGED, {}, 0.0, 0.0, "")


@dataclass(frozen=True, slots=True)
class Decision:
    """The end of a change; the first decision holds."""

    outcome: Outcome
    at: float
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reversal:
    """The first error of a change that takes itself back, and in which run of which batch."""

    chain: str
    query: str
    run: str
    batch: int
    error: str
    at: float


@dataclass(frozen=True, slots=True)
class KnownChange:
    """A change, and what is known of it."""

    change: ProposedChange
    decided: Decision | None = None
    reverted: Reversal | None = None

    @property
    def number(self) -> Version:
        return self.change.number

    @property
    def applied(self) -> bool:
        """Whether it was decided that it holds; it may have been taken back since."""
        return self.decided is not None and self.decided.outcome == "applied"

    @property
    def holds(self) -> bool:
        """Whether it is applied, and was not taken back."""
        return self.applied and self.reverted is None


@dataclass(frozen=True, slots=True)
class RowMoment:
    """A row's place: its batch's version, the newest that is known, and the row's own."""

    sealed: Version
    known: Version
    column: Version | None = None


def effective(changes: Sequence[KnownChange], chain: str, moment: RowMoment) -> Version:
    """Return the newest change that holds for a chain at a moment, whichever chains it changes."""
    version = 0
    for known in changes:
        is_aborted = known.decided is not None and known.decided.outcome == "aborted"
        if is_aborted or known.reverted is not None:  # it holds nowhere, and holds nothing up
            continue
        if not known.applied or not _holds(known.change, chain, moment):
            break
        version = known.number
    return version


def doubtful(
    changes: Sequence[KnownChange], chain: str, moment: RowMoment
) -> Iterator[KnownChange]:
    """Yield the changes that would hold for a chain at a moment, and that may take themselves back
    or have since its batch was sealed. Older ones had become certain before.
    """
    for known in changes[max(0, moment.sealed - 1) :]:
        may_be = known.applied and known.change.on_error == "revert"
        if may_be and _holds(known.change, chain, moment):
            yield known


def _holds(change: ProposedChange, chain: str, moment: RowMoment) -> bool:
    new = change.chains.get(chain)
    when = "batch" if new is None else new.when
    if when == "message":
        return change.number <= moment.known
    if when == "column" and moment.column is not None:
        return change.number <= moment.column
    return change.number <= moment.sealed


def links_at(changes: Sequence[KnownChange], chain: str, first: Links, version: Version) -> Links:
    """Return a chain's functions as of a version."""
    for known in reversed(changes[:version]):
        if known.holds and chain in known.change.chains:
            return known.change.chains[chain].links
    return first


def transforms(
    changes: Sequence[KnownChange], chain: str, after: Version, until: Version
) -> tuple[Link, ...]:
    """Return the functions that transform a chain's state between two versions, in order."""
    found = []
    for known in changes:
        new = known.change.chains.get(chain)
        is_between = after < known.number <= until
        if is_between and known.holds and new and new.state:
            found.append(new.state)
    return tuple(found)


def newest(changes: Sequence[KnownChange]) -> Version:
    """Return the number of the newest change that is applied; 0 if there is none."""
    return max((known.number for known in changes if known.applied), default=0)


@dataclass(frozen=True, slots=True)
class ChangeLog:
    """The changes that a process has taken over, in their order. `pending` is the next one, which
    is proposed and not decided; `revision` grows whenever more is known.
    """

    changes: tuple[KnownChange, ...] = ()
    pending: ProposedChange | None = None
    revision: int = 0

    @property
    def newest(self) -> Version:
        return newest(self.changes)

    @property
    def next(self) -> Version:
        """The number of the first change that is not taken over yet."""
        return len(self.changes) + 1

    @property
    def revertible(self) -> Version:
        """The newest change, if it may take itself back; else 0. Older ones do so no more."""
        number = self.newest
        known = self.changes[number - 1] if number else None
        if known is None or known.change.on_error != "revert" or known.reverted is not None:
            return 0
        return number

    @property
    def taken_back(self) -> Version:
        """The newest change that is applied, if it has taken itself back; else 0."""
        number = self.newest
        return number if number and self.changes[number - 1].reverted is not None else 0

    def await_decision(self, change: ProposedChange) -> ChangeLog:
        """Return the log up to a change that nobody has decided on."""
        return replace(self, pending=change)

    def take_over(self, known: KnownChange) -> ChangeLog:
        """Return the log with the next change, which is decided."""
        assert known.number == self.next, "changes are taken over in their order"
        return ChangeLog((*self.changes, known), None, self.revision + 1)

    def corrected(self, number: Version, reverted: Reversal | None) -> ChangeLog:
        """Return the log with the reversal of a change, read once more."""
        changes = list(self.changes)
        changes[number - 1] = replace(changes[number - 1], reverted=reverted)
        return replace(self, changes=tuple(changes), revision=self.revision + 1)

    def version_again(self, first: Version, failed_chain: str | None) -> Version:
        """Return the version of a later run of a batch: as the first run's, so that it puts out the
        same rows. But if a chain's function has failed it, and the chain was changed since, the
        newest: else nothing could ever mend it.
        """
        for known in self.changes[first:]:
            if known.holds and failed_chain in known.change.chains:
                return self.newest
        return first


# ------------------------------------------------------------------------ edits of a chain


def replace_link(chain: str, links: Links, at: int | str | None, link: Link) -> Links:
    """Return the chain with another function at one place; it need not be named if alone."""
    at = place_of(chain, links, at)
    return (*links[:at], link, *links[at + 1 :])


def remove_link(chain: str, links: Links, at: int | str | None) -> Links:
    """Return the chain without the function at one place."""
    at = place_of(chain, links, at)
    return (*links[:at], *links[at + 1 :])


def introduce_link(
    chain: str, links: Links, where: Literal["before", "after", "around"], at: int | str, link: Link
) -> Links:
    """Return the chain with a function before, after or around the one at a place."""
    if where == "before" and at == len(links) == 0:
        return (link,)
    at = place_of(chain, links, at)
    match where:
        case "before":
            return (*links[:at], link, *links[at:])
        case "after":
            return (*links[: at + 1], link, *links[at + 1 :])
        case "around":
            return (*links[:at], replace(link, inner=links[at]), *links[at + 1 :])


def place_of(chain: str, links: Links, at: int | str | None) -> int:
    """Return the number of a function in a chain by its number, or by its name, with its module or
    without it; or refuse with those there are. It need not be said where there is only one.
    """
    numbered = ", ".join(f"{number} {link}" for number, link in enumerate(links))
    if isinstance(at, str):
        places = []
        for number, link in enumerate(links):
            if at in (str(link), link.name, link.name.rpartition(":")[2]):
                places.append(number)
        if len(places) == 1:
            return places[0]
        fact = f"{chain} has {len(places) or 'no'} functions named {at}"
        raise PlanError(fact, hint=f"say which one by its number: {numbered or 'there is none'}")
    if at is None:
        if len(links) == 1:
            return 0
        fact = f"{chain} has {len(links)} functions"
        hint = f"say which one by its number or its name: {numbered or 'there is none'}"
        raise PlanError(fact, hint=hint)
    if not 0 <= at < len(links):
        raise PlanError(f"{chain} has no function {at}", hint=f"there are: {numbered or 'none'}")
    return at


# ------------------------------------------------------------------------------------ as files


@dataclass(frozen=True, slots=True)
class GroupFile:
    """The kind of a group's folder, by the file that is written first."""

    id: str
    format: str = FORMAT
    version: int = FORMAT_VERSION


def encode(value: object) -> bytes:
    """Return a value as a file of a group's folder holds it."""
    return json.dumps(to_plain(value), indent=1).encode() + b"\n"


def encode_densely(value: object) -> bytes:
    """Return the same on one line: for what is long, and written at every batch."""
    return json.dumps(to_plain(value), separators=(",", ":")).encode() + b"\n"


def decode(kind: type[T], content: bytes, path: str) -> T:
    """Return the value that a file holds, or a FormatError that names the file."""
    try:
        value: T = from_plain(kind, json.loads(content))
    except (ValueError, RecursionError) as error:  # Misfit is one, and what is not UTF-8
        fact = f"not what stateshift writes there: {error or type(error).__name__}"
        raise FormatError(fact, path) from None
    return value


def decode_group(content: bytes, path: str) -> GroupFile:
    """Return the group of a folder; refuse what is none, or is a newer stateshift's."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    version = found.get("version") if isinstance(found, dict) else None
    if isinstance(version, int) and found.get("format") == FORMAT and version > FORMAT_VERSION:
        fact = f"written by a newer stateshift: format {version}, not {FORMAT_VERSION}"
        raise UnknownVersion(fact, path, hint="upgrade the program where this runs")
    group = decode(GroupFile, content, path)
    if group.format != FORMAT:
        raise FormatError(f"not a group: the format is {group.format!r}, not {FORMAT!r}", path)
    return group
