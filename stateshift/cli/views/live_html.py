"""A group as a page that can be sent around: which version ran when in each query, how fast, where
its bins are, every change and every move. Values in, text out.

    head        the group, and the numbers that everybody asks for
    bins        where they are, of each worker a picture, and their moves (`bins_html`)
    queries     of each a picture (`live_html_drawing`), and what was measured
    chains      their functions now
    changes     every one that there ever was, and why some do not hold
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from stateshift import __version__
from stateshift.cli.views import bins_html
from stateshift.cli.views.live_html_drawing import QueryTimeline, picture
from stateshift.cli.views.live_text import (
    CHAIN_HEADS,
    PAST_HEADS,
    QUERY_HEADS,
    chain_rows,
    past_row,
    query_row,
    whys,
)
from stateshift.cli.views.page import bullets, chip, escape, table, tag, tile, whole_page
from stateshift.cli.views.run_html_curves import Axis
from stateshift.cli.views.run_html_drawing import Mark
from stateshift.cli.views.text import Row
from stateshift.cli.views.units import clock, many, per_second, span
from stateshift.documents.live import PastFacts, QueryFacts, StatusFacts
from stateshift.documents.live_rates import Sample, stretches
from stateshift.report import SteeredReport

SAMPLE_HEADS = (
    ">batch",
    ">begun at (UTC)",
    ">versions",
    ">rows in/s",
    ">rows out/s",
    ">a task took",
    ">the longest",
)


@dataclass(frozen=True)
class _Page:
    """The group, and the stretch of time that its pictures show."""

    facts: StatusFacts
    changes: Sequence[PastFacts]

    @cached_property
    def zero(self) -> float:
        """When the first task began that was measured."""
        return min(task.began for task in self.facts.survey.measures)

    @cached_property
    def axis(self) -> Axis:
        """The axis of all pictures, so that they can be laid beside each other."""
        ended = [task.ended for task in self.facts.survey.measures]
        decided = [each.known.change.at for each in self.changes]
        end = max(*ended, *decided) - self.zero
        return Axis(0.0, max(end, 0.01), 0.0, f"since {clock(self.zero)} UTC")

    @property
    def marks(self) -> list[Mark]:
        """The changes on the axis, by their numbers."""
        marks: list[Mark] = []
        for each in self.changes:
            change = each.known.change
            start = change.at - self.zero
            if self.axis.shows(start, start):
                what = f"{change.act} {', '.join(change.chains)}"
                marks.append((change.number, SteeredReport(start, what, each.became)))
        return marks


def page(facts: StatusFacts, changes: Sequence[PastFacts]) -> str:
    """Return the page of a group, with all of its changes."""
    shown = _Page(facts, changes)
    parts = [*_head(shown)]
    if facts.bins is not None:
        parts += bins_html.section(facts.bins, facts.moves, facts.parts_past)
    if facts.bins is None or facts.declarations:
        parts += [*_queries(shown), *_tables(shown)]
    return whole_page(f"{facts.location}: live", *parts, _foot(facts))


def _head(shown: _Page) -> Iterator[str]:
    facts = shown.facts
    under_way = facts.under_way
    is_moving = facts.bins is not None and facts.bins.is_moving
    is_idle = under_way is None and not is_moving
    state = chip("idle", "good") if is_idle else chip("under way", "warn")
    yield tag("p", "stateshift live", class_="dim")
    yield tag("h1", escape(facts.location), state)
    yield tag("dl", *_tiles(shown), class_="tiles")


def _tiles(shown: _Page) -> Iterator[str]:
    facts, counts = shown.facts, _counts(shown.changes)
    if facts.bins is not None:
        yield from bins_html.tiles(facts.bins, facts.moves)
        if not facts.declarations:
            return
    yield tile("Changes", str(len(shown.changes)), *counts)
    versions = [f"{each.name}: version {facts.version(each.name)}" for each in facts.declarations]
    yield tile("Chains", str(len(versions)), *versions)
    living = [each for each in facts.queries if each.living]
    workers = many(sum(each.workers for each in living), "worker")
    yield tile("Queries", str(len({each.query for each in living})), f"{workers} run a chain")
    last = facts.last
    if last is not None and last.first_seconds is not None and last.last_seconds is not None:
        number = f"change {last.known.number}, from the proposal to the last worker"
        yield tile("Delay", span(last.last_seconds), number, f"first {span(last.first_seconds)}")


def _counts(changes: Sequence[PastFacts]) -> Iterator[str]:
    words = {"applied": "applied", "aborted": "aborted", "reverted": "taken back by an error"}
    for outcome, word in words.items():
        count = sum(each.became == outcome for each in changes)
        if count:
            yield f"{count} {word}"


# ------------------------------------------------------------------------------------ queries


def _queries(shown: _Page) -> Iterator[str]:
    if not shown.facts.samples:
        yield tag("p", "No task was measured yet.", class_="dim")
        return
    for query in shown.facts.queries:
        yield from _query(shown, query)


def _query(shown: _Page, query: QueryFacts) -> Iterator[str]:
    samples = tuple(
        each
        for each in shown.facts.samples
        if (each.chain, each.query) == (query.chain, query.query)
    )
    if not samples:
        return
    taken_back = {each.known.number for each in shown.changes if each.became == "reverted"}
    drawn = QueryTimeline(
        label=f"{query.chain} in {query.query}",
        stretches=stretches(shown.facts.survey, query.chain, query.query),
        samples=samples,
        taken_back=frozenset(taken_back),
    )
    yield tag("h2", escape(f"{query.chain}, in query {query.query}"))
    yield tag("figure", picture(drawn, shown.axis, shown.zero, shown.marks))
    yield tag("h3", "Batches that were measured")
    yield table(SAMPLE_HEADS, [_sample_row(each) for each in samples])


def _sample_row(sample: Sample) -> Row:
    return (
        str(sample.batch),
        clock(sample.at),
        ", ".join(map(str, sample.versions)),
        per_second(sample.rows_in_per_second),
        per_second(sample.rows_out_per_second),
        span(sample.seconds_mean),
        span(sample.seconds_max),
    )


# ------------------------------------------------------------------------------------ tables


def _tables(shown: _Page) -> Iterator[str]:
    facts = shown.facts
    rows: list[Row] = []
    for declaration in facts.declarations:
        rows.extend(chain_rows(facts, declaration.name))
    yield tag("h2", "Chains")
    yield table(CHAIN_HEADS, rows)
    if facts.queries:
        yield tag("h3", "Queries")
        yield table(QUERY_HEADS, [query_row(each) for each in facts.queries])
    if shown.changes:
        yield tag("h2", "Changes")
        yield table(PAST_HEADS, [past_row(each) for each in shown.changes])
        yield from _whys(shown.changes)


def _whys(changes: Sequence[PastFacts]) -> Iterator[str]:
    lines: list[str] = []
    for each in changes:
        lines.extend(line.text for line in whys(each))
    if lines:
        yield bullets(lines, "stateshift live history")


TASKS_FOOT = (
    "Tasks write down what they did every few seconds, and always near a change. The other "
    "tasks of such a batch are taken to be like them. Rows a second are counted from the begin "
    "of a batch to that of the next."
)
BINS_FOOT = "Of each worker's commits the last ones are kept: pictures of bins begin with them."


def _foot(facts: StatusFacts) -> str:
    words: list[str] = []
    if facts.bins is not None:
        words.append(BINS_FOOT)
    if facts.bins is None or facts.declarations:
        words.append(TASKS_FOOT)
    words.append(f"As of {clock(facts.survey.at)} UTC. Written by stateshift {__version__}.")
    return tag("footer", tag("p", escape(" ".join(words))))
