"""Findings as lines, refusals first, each with its hint and the name by which it can be waived; and
sources and sinks: of which kind, how far they were read, which batch a sink has; and where sources
read on that are repositioned. Pure.

Findings of one kind differ only in paths, numbers and quoted names. From three on, the first one
is shown, and how many more there are: a workflow has as many queries as it likes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Cell, Line, Row, TextTable, Tone
from stateshift.cli.views.units import many, number
from stateshift.sources.kinds import words_of
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.documents.survey import NewPositionOf
    from stateshift.survey import Endpoint, Finding

ORDER = ("refuse", "warn", "note")
TONES: dict[str, Tone] = {"refuse": "bad", "warn": "warn", "note": ""}
EACH_MAX = 2  # of a kind; a line that counts one more would be as long as the finding

# The parts that may differ between findings of one kind: texts in quotes, paths, numbers.
# A word is looked through from its beginning alone: a name of 60,000 letters is one, too.
_PLACE = re.compile(
    r"""'[^']*'|"[^"]*"|`[^`]*`|(?<![^\s:,;()'"`])[^\s:,;()]*/[^\s,;()]*|\d[\d,.]*"""
)

Kind = tuple[str, str | None, str, str]


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one kind, in the order they were made."""

    findings: tuple[Finding, ...]

    @property
    def level(self) -> str:
        """The level that all of them have."""
        return self.findings[0].level


def findings(noted: Iterable[Finding], verbose: bool = False) -> Iterator[Block]:
    """Show findings once each, the worst first; one of a kind alone, unless `verbose`."""
    groups = groups_of(dict.fromkeys(noted))
    for group in sorted(groups, key=lambda group: ORDER.index(group.level)):
        are_all_shown = verbose or len(group.findings) <= EACH_MAX
        for finding in group.findings if are_all_shown else group.findings[:1]:
            at = "" if finding.offset is None else f" (at byte {finding.offset})"
            yield Line(f"{finding.level}: {redact(finding.message)}{at}", TONES[finding.level], 2)
            hint = finding.hint or ""
            if hint:
                yield Line(f"hint: {redact(hint)}", "dim", 4)
            if finding.level == "refuse" and finding.waive and finding.waive not in hint:
                waiver = finding.waive
                in_spec = f'waive it in the job: "waive": ["{waiver}"]'
                yield Line(f"{in_spec} (without a spec: --waive {waiver})", "dim", 4)
        if not are_all_shown:
            more = number(len(group.findings) - 1)
            yield Line(f"and {more} more like this: --verbose shows each", "dim", 4)


def groups_of(noted: Iterable[Finding]) -> list[FindingGroup]:
    """Return the findings by kind, in the order in which each kind was first met."""
    by_kind: dict[Kind, list[Finding]] = {}
    for finding in noted:
        by_kind.setdefault(kind_of(finding), []).append(finding)
    return [FindingGroup(tuple(group)) for group in by_kind.values()]


def kind_of(finding: Finding) -> Kind:
    """Return the key of a finding's kind. Refusals with different ways out are of two kinds."""
    hint = finding.hint or ""
    shared_hint = hint if finding.level == "refuse" else _PLACE.sub("…", hint)
    return finding.level, finding.waive, _PLACE.sub("…", finding.message), shared_hint


TRANSACTIONS_SHOWN = 4
REPLAYABLE = {
    True: Cell("can be read again"),
    False: Cell("cannot be read again", "warn"),
    None: Cell(""),
}


def row(end: Endpoint, verbose: bool = False) -> Row:
    """Return a line of a table: which one, its kind, whether it is replayable, how far it is."""
    name = f"{end.role} {end.index}".strip()
    return name, end.kind, REPLAYABLE[end.replayable], redact(position(end, verbose))


def position(end: Endpoint, verbose: bool = False) -> str:
    """Return the position of a source, or the batches of a sink, in a few words."""
    if end.role == "sink":
        return ", ".join(_sink(end))
    return words_of(end.kind, end.details, verbose) or end.detail or ""


def _sink(end: Endpoint) -> Iterator[str]:
    if end.detail:
        yield end.detail
    if end.details.get("wrong"):
        yield "its log cannot be read"
    unit = "snapshot" if end.kind == "iceberg" else "version"
    for query in end.details.get("queries", ()):
        version = query.get("version")
        in_version = "" if version is None else f" ({unit} {version})"
        if query["last_batch"] is None:
            yield "no batch of this query"
        else:
            yield f"batches up to {query['last_batch']}{in_version}"
    transactions = end.details.get("transactions", ())
    if transactions:
        names = ", ".join(transaction["id"] for transaction in transactions[:TRANSACTIONS_SHOWN])
        more = ", ..." if len(transactions) > TRANSACTIONS_SHOWN else ""
        yield f"{many(len(transactions), 'transaction')} to commit: {names}{more}"


PARTITIONS_LISTED = 16
POSITION_HEADS = ("source", "partition", ">from", ">to", ">again", ">skipped")


def new_positions(moved: Iterable[NewPositionOf], verbose: bool = False) -> Iterator[Block]:
    """Show from where to where; the partitions with something to tell first, if they are many."""
    every = list(moved)
    if len(every) > PARTITIONS_LISTED and not verbose:
        every.sort(key=lambda each: not (each.change.again or each.change.skipped))
    shown = every if verbose else every[:PARTITIONS_LISTED]
    if not shown:
        return
    rows: list[Row] = []
    for each in shown:
        change = each.change
        before = "" if change.before is None else str(change.before)
        counts: list[str | Cell] = []
        for count in (change.again, change.skipped):
            words = "unknown" if count is None else number(count)
            counts.append(words if count == 0 else Cell(words, "warn"))
        rows.append((change.source, redact(change.partition), before, str(change.after), *counts))
    yield TextTable(POSITION_HEADS, tuple(rows))
    if len(every) > len(shown):
        more = number(len(every) - len(shown))
        yield Line(f"and {more} more: --verbose shows each", "dim", 2)
