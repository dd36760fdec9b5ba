"""A standby for a person: `status LOCATION`, `failover`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Cell, Line, pairs
from stateshift.cli.views.units import many, span
from stateshift.storage.locations import redact
from stateshift.terms import moment, terms_of

if TYPE_CHECKING:
    from stateshift.documents.standby import FencedFacts, StandbyFacts, StandbyLag
    from stateshift.formats.standby import StandbyState, Superseded
    from stateshift.terms import Terms


def standby(facts: StandbyFacts) -> Iterator[Block]:
    """Show what a job can be started from, how old that is, and who may write there."""
    found = facts.standby
    state, claim, terms = found.state, found.claim, terms_of(found.state.engine)
    at = terms.at_each if found.epoch is None else f"{terms.at} {found.epoch}"
    title = f"{state.job} can be started from {at} at {redact(found.location)}"
    place = redact(found.location)
    match facts.role:
        case "failed-over":
            title = f"{state.job}: a failover has claimed {place}, to start it from {at}"
        case "going-home":
            title = f"{state.job}: a failback takes it home from {place}"
        case "went-home":
            title = f"{state.job} has gone home from {place}: nothing is kept there any more"
    yield Line(title, "strong")
    rows: list[tuple[str, str | Cell]] = [
        ("source", redact(state.source)),
        ("last round", moment(state.at)),
    ]
    if state.committed_at is not None:
        rows.append((f"last {terms.one}", f"{terms.done} {moment(state.committed_at)}"))
    rows += kept_rows(state, terms)
    if facts.lag is not None:
        rows += lag_rows(facts.lag, terms)
    if facts.records is not None:
        rows.append(unread_row(facts.records))
    if claim is not None:
        by = {"standby": "fed by", "failover": "failover"}.get(claim.verb, "failback")
        who = f"run {claim.run} on {claim.host}, {redact(claim.workdir)}"
        rows.append((by, f"{who} (generation {claim.generation})"))
    rows += drill_rows(facts)
    yield pairs(*rows)


def kept_rows(state: StandbyState, terms: Terms) -> Iterator[tuple[str, str]]:
    """Yield the epochs that are kept beside the newest, and the jobs whose output it reads."""
    for kept in state.earlier:
        row = f"{terms.at} {kept.epoch}: --epoch {kept.epoch}"
        if kept.committed_at is not None:
            row += f"   # {terms.done} {moment(kept.committed_at)}"
        yield "also kept", row
    for writer in state.reads_from:
        yield "reads from", f"{writer.job}, whose standby is at {redact(writer.location)}"


def lag_rows(lag: StandbyLag, terms: Terms) -> Iterator[tuple[str, str | Cell]]:
    """Yield the amount that would be lost now, and whether the spec allows that."""
    lost = "" if lag.rpo_seconds is None else f"{span(lag.rpo_seconds)} of the source's work"
    if lag.batches == 0:
        lost = f"nothing: the source has no newer {terms.one}"
    elif lag.batches is not None:
        lost = f"{many(lag.batches, terms.one, terms.many)}, {lost}".removesuffix(", ")
    if lost:
        yield "would be lost", lost
    if lag.clock_ahead_seconds is not None:
        ahead = span(lag.clock_ahead_seconds)
        differ = f"they differ: {ahead} more may be lost. Set them (NTP), at the source and here"
        yield "clocks", Cell(differ, "warn")
    if lag.bound is not None:
        passed = Cell(f"passed: {span(lag.bound)}", "bad")
        yield "bound (rpo)", f"kept: {span(lag.bound)}" if lag.is_kept else passed


def unread_row(records: int) -> tuple[str, str]:
    """Return the records that a job reads once it is started from its standby."""
    return "to read", f"{many(records, 'record')} that the brokers have"


def primary_note(found: Superseded) -> Iterator[Block]:
    """Show where a job runs since a failover, and how far its primary has parted from it."""
    terms = terms_of(found.engine)
    there = redact(found.successor)
    yield Line(f"{found.job} runs at {there} since {moment(found.at)}", "warn")
    rows = [("failover", f"run {found.run} on {found.host}, {redact(found.workdir)}")]
    if found.epoch is not None:
        rows.append(("from", f"{terms.at} {found.epoch} on"))
    if found.batches_ahead is not None:
        rows.append(("only here", many(found.batches_ahead, terms.one, terms.many)))
    yield pairs(*rows, ("there", f"stateshift status {quote(there)}"))


def drill_rows(facts: StandbyFacts) -> Iterator[tuple[str, str]]:
    """Yield the last rehearsals of its start."""
    if facts.damage is not None:
        yield "drills", f"their history cannot be read: {facts.damage}"
        return
    if facts.history is None:
        return
    last, good = facts.last_drill, facts.last_good_drill
    if last is None and not facts.standby.is_taken_over:
        yield "last drill", "none yet: stateshift drill rehearses the start"
    elif last is not None and not last.drill.is_good:
        failed = f"failed {span(last.age_seconds)} ago: {redact(last.drill.failure)}"
        yield "last drill", failed
    if good is not None:
        went_on = f"{span(good.age_seconds)} ago, first {terms_of(facts.standby.state.engine).one}"
        yield "last good drill", f"{went_on} after {span(good.seconds)}"


def primary_fenced(facts: FencedFacts) -> Iterator[Block]:
    """Show that the primary of a failover cannot go on."""
    state, evidence = facts.standby.state, facts.evidence
    yield Line(
        f"{state.job} runs at {redact(facts.standby.location)}, and its primary at "
        f"{redact(state.source)} cannot go on",
        "good",
    )
    rows = [("its job there", evidence.stopped)]
    if evidence.paths:
        rows.append(("fence", ", ".join(evidence.paths)))
    if facts.batches_ahead:
        terms = terms_of(state.engine)
        here, there = quote(redact(facts.standby.location)), quote(redact(state.source))
        rows.append(("only there", many(facts.batches_ahead, terms.one, terms.many)))
        rows.append(("difference", f"stateshift diff {here} {there}"))
    yield pairs(*rows)
