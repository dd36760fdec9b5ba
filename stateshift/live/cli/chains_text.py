"""The text of `stateshift live`: values in, lines and tables out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Cell, Gap, Line, Row, TextTable, Tone, pairs
from stateshift.cli.views.units import clock, many, per_second, span
from stateshift.live.cli import bins_text
from stateshift.live.protocol.chains import names_of
from stateshift.live.values import live_command
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.live.acts import ChangeResult
    from stateshift.live.proposals import ChangeProgress
    from stateshift.live.protocol.chains import KnownChange
    from stateshift.live.survey import ChainQuery, GroupSurvey, PastChange, PastMove, UnderWay

WHEN = {"batch": "at a batch", "message": "at once", "column": "by its rows' version"}
SILENT_MAX = 5
NO_FUNCTION = "(none: rows as they are)"


def show_checked(facts: ChangeResult) -> Iterator[Block]:
    """Show what was checked, and how the change comes in."""
    asked = facts.checked.asked
    rows = []
    for chain in facts.chains:
        before, after = _functions(chain.before), _functions(chain.after)
        rows.append((chain.chain, before, after, WHEN[chain.when]))
    workers = "none"
    if facts.workers:
        queries = many(facts.queries, "query", "queries")
        workers = f"{many(facts.workers, 'worker')} of {queries} to acknowledge it"
    if asked.unattended:
        workers = f"{facts.workers}, none of them is asked"
    yield Line(f"{asked.act} in {facts.location}", "strong")
    yield TextTable(("chain", "functions now", "functions then", "changes"), tuple(rows))
    yield Gap()
    yield pairs(
        ("checked", "; ".join(_checks(facts))),
        ("scheduler", f"{asked.scheduler}: {facts.checked.choice.reason}"),
        ("workers", workers),
        ("on error", "the change is taken back") if asked.on_error == "revert" else None,
    )


def _functions(names: Sequence[str]) -> str:
    return ", ".join(names) or NO_FUNCTION


def _checks(facts: ChangeResult) -> Iterator[str]:
    packages = facts.checked.asked.packages
    if packages:
        yield "code loads, by the Python and pyarrow of the jobs"
    typed = [chain.chain for chain in facts.chains if chain.types_checked]
    untyped = [chain.chain for chain in facts.chains if not chain.types_checked]
    if typed:
        yield f"types of {', '.join(typed)} fit"
    if untyped:
        yield f"types of {', '.join(untyped)} are not checked"


def progress(carried: ChangeProgress) -> str:
    """Return the progress of a change in one line."""
    number, workers = carried.change.number, carried.workers
    if carried.decided is None:
        return f"change {number}: acknowledged {carried.acknowledged} of {workers}"
    if carried.decided.outcome == "aborted":
        return f"change {number}: aborted"
    if carried.reverted is not None:
        return f"change {number}: taken back by an error"
    return f"change {number}: applied, running {carried.running} of {workers}"


def came(facts: ChangeResult) -> Iterator[Block]:
    """Show how far a change came."""
    carried = facts.carried
    if carried is None:
        yield Line("checked only: nothing was proposed, and nothing has changed")
        return
    match facts.state:
        case "finished":
            first, last = carried.first_seconds, carried.last_seconds
            where = ""
            if first is not None and last is not None:
                where = f", and runs everywhere after {span(last)} (first worker {span(first)})"
            yield Line(f"change {facts.number} is applied{where}", "good")
        case "applied":
            seen = "nobody runs the chain now: a job begins with it once it is started"
            if carried.workers:
                seen = f"{carried.running} of {many(carried.workers, 'worker')} were seen to run it"
                seen += " so far; the others do with their next batch"
            yield Line(f"change {facts.number} is applied", "good")
            yield Line(f"{seen}. Look again: {live_command('status', facts.location)}")


def show_aborted(known: KnownChange) -> Iterator[Block]:
    """Show what `stateshift live abort` has aborted."""
    chains = ", ".join(known.change.chains)
    yield Line(f"change {known.number} is aborted ({known.change.act} {chains}); all run on")


# ------------------------------------------------------------------------------------ the past

PAST_HEADS = (">change", "when (UTC)", "act", "chains", "scheduler", "outcome", "first, last", "by")
WHY = {
    "under-way": "is under way",
    "applied": "is applied",
    "aborted": "was aborted",
    "reverted": "was taken back by an error",
}
TONES: dict[str, Tone] = {
    "applied": "good",
    "under-way": "warn",
    "aborted": "bad",
    "reverted": "bad",
}


def history(
    location: str, changes: Sequence[PastChange], moves: Sequence[PastMove] = ()
) -> Iterator[Block]:
    """Show the changes and moves of the past, and why some of them do not hold."""
    if not changes and not moves:
        yield Line(f"nothing was changed yet in {redact(location)}")
    if changes:
        yield TextTable(PAST_HEADS, tuple(past_row(each) for each in changes), indent=0)
        for each in changes:
            yield from whys(each)
    if changes and moves:
        yield Gap()
    if moves:
        yield from bins_text.history(moves)


def past_row(past: PastChange) -> Row:
    """Return a change of the past as a row of a table."""
    change, first, last = past.known.change, past.first_seconds, past.last_seconds
    taken = "-"
    if first is not None and last is not None:
        taken = f"{span(first)}, {span(last)}"
    return (
        str(change.number),
        clock(change.at),
        change.act,
        chains_of(past),
        change.scheduler,
        Cell(past.outcome, TONES[past.outcome]),
        taken,
        change.by,
    )


def chains_of(past: PastChange) -> str:
    """Return the chains of a change, with their functions."""
    return "; ".join(f"{name}: {_functions(names)}" for name, names in past.chains.items())


def whys(past: PastChange) -> Iterator[Line]:
    """Show why a change does not hold, and who has refused it."""
    if past.reason:
        yield Line(f"change {past.known.number} {WHY[past.outcome]}: {past.reason}")
    for worker, reason in past.refusals.items():
        yield Line(f"{worker} refused it: {reason}", indent=2)


# ------------------------------------------------------------------------------------ the group

CHAIN_HEADS = ("chain", ">version", ">", "function")
QUERY_HEADS = (
    *("query", "chain", ">workers", ">version", ">batch"),
    *("begun", ">rows in/s", ">rows out/s", ">a task took"),
)


def status(facts: GroupSurvey, page: str | None = None) -> Iterator[Block]:
    """Show a group as it is now."""
    yield Line(facts.shown_location, "strong")
    yield Gap()
    if facts.bins is not None:
        yield from bins_text.status(facts.bins)
    if facts.has_chains:
        if facts.bins is not None:
            yield Gap()
        rows: list[Row] = []
        for declaration in facts.declarations:
            rows.extend(chain_rows(facts, declaration.name))
        yield TextTable(CHAIN_HEADS, tuple(rows))
        if facts.queries:
            yield Gap()
            yield TextTable(QUERY_HEADS, tuple(query_row(each) for each in facts.queries))
        else:
            yield Line("no job has run a chain yet", "warn", indent=2)
        yield Gap()
        if facts.under_way is not None:
            yield from _pending(facts, facts.under_way)
        elif facts.last is None:
            yield Line("nothing was changed yet")
        else:
            known, reasons = facts.last.known, list(whys(facts.last))
            yield Line("nothing is under way")
            yield from reasons or [Line(f"change {known.number} {WHY[facts.last.outcome]}")]
    if page is not None:
        yield Line(f"page: {page}")


def chain_rows(facts: GroupSurvey, chain: str) -> Iterator[Row]:
    """Yield the functions of a chain as rows of a table, the first with the chain's name."""
    functions = names_of(facts.standing.links(chain))
    version = str(facts.standing.newest_of(chain))
    if not functions:
        yield chain, version, "", NO_FUNCTION
    for number, function in enumerate(functions):
        yield (chain, version, "0", function) if number == 0 else ("", "", str(number), function)


def query_row(facts: ChainQuery) -> Row:
    """Return a query as a row of a table."""
    sample, seconds = facts.sample, facts.begun_seconds_ago
    begun: str | Cell = "-"
    if seconds is not None:
        begun = f"{span(seconds)} ago"
        if not facts.living:
            begun = Cell(f"{begun}: not waited for", "dim")
    return (
        facts.query,
        facts.chain,
        str(facts.workers),
        str(facts.version),
        "-" if facts.batch is None else str(facts.batch),
        begun,
        per_second(facts.rows_in_per_second),
        per_second(facts.rows_out_per_second),
        "-" if sample is None else span(sample.seconds_mean),
    )


def _pending(facts: GroupSurvey, under_way: UnderWay) -> Iterator[Block]:
    past, change = under_way.past, under_way.past.known.change
    yield Line(
        f"change {change.number} is under way since {span(under_way.seconds)}: {change.act} "
        f"{chains_of(past)}",
        "warn",
    )
    silent = ", ".join(under_way.silent[:SILENT_MAX])
    more = len(under_way.silent) - SILENT_MAX
    yield pairs(
        ("acknowledged", f"{past.acknowledged} of {under_way.workers}"),
        ("silent", f"{silent} and {more} more" if more > 0 else silent) if silent else None,
        ("aborted in", span(under_way.seconds_left)),
        ("by", change.by),
        ("abort it", live_command("abort", facts.shown_location)),
    )
