"""The text of bins that move, of their number, and of the state of their keys: values in, lines and
tables out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Cell, Gap, Line, Row, TextTable, Tone, pairs
from stateshift.cli.views.units import clock, dash, many, number, per_second, ranges, size, span
from stateshift.live.bins.move_request import hint_if_gone
from stateshift.live.values import live_command

if TYPE_CHECKING:
    from stateshift.documents.bins import CountFacts, MoveFacts
    from stateshift.live.bins.adoption import ImportResult
    from stateshift.live.bins.files import Proposal
    from stateshift.live.bins.migration import MoveProgress
    from stateshift.live.bins.state_acts import Eviction
    from stateshift.live.bins.steering import Throttle
    from stateshift.live.survey import BinsSurvey, PartNow, PastMove

CROSSING_HEADS = ("from", "to", ">bins", "which", ">keys", ">state")
PART_HEADS = (
    *("worker", "operator", ">bins", ">keys", ">state", ">time"),
    *(">behind", ">time/s", ">rows/s", ">held", ">awaited", "committed"),
)
MOVE_HEADS = (
    *(">move", "proposed (UTC)", ">bins", "which", "from"),
    *("to", ">time", "outcome", ">decided in", "by"),
)
LOAD_HEADS = (">bin", "worker", ">keys", ">state", ">changes/s", ">rows/s", ">of the mean")
MOVE_TONES: dict[str, Tone] = {"applied": "good", "under-way": "warn", "aborted": "bad"}
WHICH_MAX = 40
HOT_MAX = 3


def show_checked(facts: MoveFacts) -> Iterator[Block]:
    """Show what moves, and how."""
    yield Line(f"move {many(facts.count, 'bin')} in {facts.location}", "strong")
    if not facts.steps:
        yield Line("all of them are where they shall be", indent=2)
        return
    rows: list[Row] = []
    for each in facts.crossings:
        ends, bins = (each.source, each.target), (number(len(each.bins)), _which(each.bins))
        rows.append((*ends, *bins, number(each.keys), size(each.bytes)))
    yield TextTable(CROSSING_HEADS, tuple(rows))
    yield Gap()
    manner = facts.manner
    prepared = ", proposed together" if manner.prepared else ""
    yield pairs(
        ("strategy", f"{manner.strategy}: {many(len(facts.steps), 'step')}{prepared}"),
        ("pause", f"{manner.gap_seconds:g} s behind a step") if manner.gap_seconds else None,
        ("from", f"time {manner.at} on") if manner.at is not None else None,
        ("ahead", f"{manner.lead_seconds:g} s of the furthest worker"),
        ("workers", f"{many(len(facts.bins.running), 'part')} to acknowledge each step"),
    )
    yield from _estimates(facts)


def _estimates(facts: MoveFacts) -> Iterator[Block]:
    """Show the costs of both ends of the strategies, and whether smaller steps are a gain."""
    if not facts.estimates:
        return
    yield Gap()
    rows = [
        (each.strategy, f"{each.waits_seconds:.1f} s", span(each.takes_seconds))
        for each in facts.estimates
    ]
    yield TextTable(("estimate", ">rows of a bin wait", ">the move takes"), tuple(rows))
    if not facts.fluid_gains:
        yield Line(
            "fluid is no gain here: rows wait for two batches, hardly for the state", indent=2
        )


def _which(bins: Sequence[int]) -> str:
    which = ranges(bins)
    return f"{which[:WHICH_MAX]}…" if len(which) > WHICH_MAX else which


def progress(moved: MoveProgress) -> str:
    """Return the progress of a migration in one line."""
    whole = f"{number(moved.bins_moved)} of {many(moved.bins, 'bin')} moved"
    step = f"step {min(moved.complete + 1, moved.steps)} of {moved.steps}"
    match moved.state:
        case "paused":
            return f"paused before {step}: {whole}"
        case "ahead":
            return f"copying ahead: {number(moved.prepared)} of {many(moved.bins, 'bin')}"
        case "proposed":
            return f"{step}: acknowledged {moved.acknowledged} of {moved.parts}"
        case "moving":
            return f"{step}: moving at time {moved.time}, {whole}"
        case _:
            return f"{step}: {moved.state}, {whole}"


def came(facts: MoveFacts) -> Iterator[Block]:
    """Show how far a migration came."""
    moved = facts.moved
    if moved is None:
        yield Line("checked only: nothing was proposed, and nothing has changed")
    elif facts.state == "finished":
        yield Line(f"{_moved(moved)} in {span(moved.seconds)}", "good")
    else:
        yield Line(f"{_moved(moved)}; the rest is decided, or not begun", "warn")
        yield Line(f"{moved.reason}. Look again: {live_command('status', facts.location)}")
        yield Line("Run this command again: it moves what is left, and waits for what is decided")


def _moved(moved: MoveProgress) -> str:
    steps = f"{moved.complete} of {many(moved.steps, 'step')}"
    return f"{number(moved.bins_moved)} of {many(moved.bins, 'bin')} moved, {steps}"


def show_aborted(proposal: Proposal | None) -> Iterator[Block]:
    """Show what `stateshift live abort` has aborted."""
    if proposal is None:
        yield Line("whoever moves bins ends before the next step; what is decided is carried out")
    else:
        yield Line(f"move {proposal.number} is aborted; all bins stay where they are")


# ------------------------------------------------------------------------------------ their number


def show_count(facts: CountFacts) -> Iterator[Block]:
    """Show the hottest bins, and the number that they speak for."""
    yield Line(f"{many(facts.bins.count, 'bin')} in {facts.location}", "strong")
    rows: list[Row] = []
    for load in facts.hottest:
        changes, rate = f"{size(load.changed_per_second)}/s", per_second(load.rows_per_second)
        amounts = (number(load.keys), size(load.size), changes, rate)
        rows.append((str(load.bin), load.worker, *amounts, f"{load.times:.1f} x"))
    yield TextTable(LOAD_HEADS, tuple(rows))
    yield Gap()
    advice = facts.advice
    if advice.count == facts.bins.count:
        yield Line(f"so many will do: {advice.reason}")
        return
    word = "more" if advice.count > facts.bins.count else "fewer"
    ask = live_command("bins", facts.location)
    yield Line(f"{word} would do better: {advice.reason}", "warn")
    yield Line(f"try it: {ask} --to {advice.count} --check")


def show_count_checked(facts: CountFacts) -> Iterator[Block]:
    """Show what is asked for."""
    before, wanted = facts.bins.count, facts.wanted
    assert wanted is not None, "a number was asked for"
    if wanted == before:
        yield Line(f"{many(before, 'bin')} are there already", "strong")
        return
    act = "split" if wanted > before else "merge"
    yield Line(f"{act} {many(before, 'bin')} into {number(wanted)} in {facts.location}", "strong")
    hottest = None
    if facts.hottest:
        load = facts.hottest[0]
        words = f"bin {load.bin} at {load.worker}, {load.times:.1f} times the mean"
        hottest = ("hottest", words)
    yield pairs(
        ("redistributed", f"{many(facts.keys, 'key')}, {size(facts.size)}, each where it is"),
        ("workers", f"{many(len(facts.bins.running), 'part')} to acknowledge it"),
        hottest,
    )


def count_progress(moved: MoveProgress) -> str:
    """Return the progress in one line."""
    if moved.state == "proposed":
        return f"acknowledged by {moved.acknowledged} of {moved.parts}"
    parts = many(moved.parts, "part")
    return f"{moved.state}: {moved.complete} of {parts} have redistributed their bins"


def count_came(facts: CountFacts) -> Iterator[Block]:
    """Show what came of it."""
    moved = facts.moved
    if moved is None:
        yield Line("checked only: nothing was proposed, and nothing has changed")
        return
    parts = many(moved.parts, "part")
    if facts.state == "finished":
        whole = f"{many(facts.wanted or 0, 'bin')} at {parts}, in {span(moved.seconds)}"
        yield Line(whole, "good")
        return
    yield Line(f"decided; {moved.complete} of {parts} have redistributed their bins", "warn")
    yield Line(f"{moved.reason}. Look again: {live_command('status', facts.location)}")


# ------------------------------------------------------------------------------------ the group


def status(facts: BinsSurvey) -> Iterator[Block]:
    """Show the bins of a group as they are now."""
    yield Line(
        f"{many(facts.bins.count, 'bin')} at {many(len(facts.bins.names), 'worker')}", "strong"
    )
    yield TextTable(PART_HEADS, tuple(part_row(each) for each in facts.parts))
    for name in facts.without_part:
        yield Line(f"worker {name} has not started yet", "warn", indent=2)
    for part in facts.parts:
        name, worker = part.part.name, part.part.runs.worker
        if part.part.is_evicted:
            until = f"until an application goes on as live.Worker(GROUP, {worker!r}, …)"
            yield Line(f"{name} is evicted: {many(part.bins, 'bin')} there {until}", "warn", 2)
        elif part.is_silent:
            hint = hint_if_gone(facts.location, worker)
            silence = f"{name} has committed nothing for {span(part.seconds_since or 0.0)}"
            yield Line(f"{silence}, others have: {hint}", "warn", 2)
    # Show the hot bins, and the remedy: a bin of one key cannot be split.
    hottest = facts.hot
    for load in hottest[:HOT_MAX]:
        yield Line(
            f"bin {load.bin} at {load.worker} is hot, {load.times:.1f} times the mean: "
            f"{many(load.keys, 'key')}, {size(load.size)}, "
            f"{per_second(load.rows_per_second)} rows/s",
            "warn",
            indent=2,
        )
    if len(hottest) > HOT_MAX:
        yield Line(f"{len(hottest) - HOT_MAX} more are hot", "warn", indent=2)
    if hottest and hottest[0].keys > 1:
        yield Line(f"split them: {live_command('bins', facts.location)}", indent=2)
    elif hottest:
        even = live_command("move", facts.location, "--rebalance", "25%", "--by-rows")
        yield Line(f"move others away from it: {even}", indent=2)
    yield Gap()
    yield from _on_their_way(facts)


def part_row(facts: PartNow) -> Row:
    """Return a worker's part in an operator as a row of a table."""
    part = facts.part
    since = facts.seconds_since
    return (
        part.runs.worker,
        part.runs.operator,
        number(facts.bins),
        number(part.keys),
        size(part.size),
        "-" if part.frontier is None else str(part.at),
        "-" if facts.lag is None else number(facts.lag),
        f"{part.rate:,.4g}",
        per_second(part.rows_per_second),
        dash(part.rows_held, number),
        dash(len(part.awaited), number),
        "-" if since is None else f"{span(since)} ago",
    )


def _on_their_way(facts: BinsSurvey) -> Iterator[Block]:
    open_, carried = facts.open, facts.carried
    if facts.is_paused:
        resume = live_command("resume", facts.location)
        yield Line(f"moves are paused; to go on: {resume}", "warn")
    limits = list(_limits(facts.throttle))
    if limits:
        yield Line(f"moves are throttled: {', '.join(limits)}", "warn")
    for part in facts.bins.not_dealt:
        count = many(facts.bins.count_at(part), "bin")
        yield Line(f"{part.name} has {count} still, and will deal them anew", "warn")
    if open_ is not None:
        seconds = facts.bins.at - open_.at
        what = many(len(open_.updates), "bin") if open_.updates else "a copy ahead"
        if open_.bins is not None:
            what = f"{number(open_.bins)} instead of {many(facts.bins.count, 'bin')}"
        yield Line(f"move {open_.number} is proposed since {span(seconds)}: {what}", "warn")
    if carried is not None:
        yield pairs(
            ("moved by", f"{carried.by}, as of {span(max(0.0, facts.bins.at - carried.at))} ago"),
            ("steps", f"{carried.begun} of {carried.steps} begun, {carried.state}"),
            ("abort it", live_command("abort", facts.location)),
        )
    elif facts.on_their_way:
        yield Line(f"{many(facts.on_their_way, 'bin')} on their way")
    elif open_ is None:
        yield Line("no bins are on their way")


def _limits(throttle: Throttle) -> Iterator[str]:
    if throttle.bins is not None:
        yield f"at most {many(throttle.bins, 'bin')} a step"
    if throttle.gap_seconds is not None:
        yield f"{throttle.gap_seconds:g} s between steps"


def history(moves: Sequence[PastMove]) -> Iterator[Block]:
    """Show the moves of the past, and why some of them were not made."""
    rows: list[Row] = []
    for each in moves:
        rows.extend(past_rows(each))
    yield TextTable(MOVE_HEADS, tuple(rows), indent=0)
    if moves and moves[0].proposal.number > 0:
        yield Line(f"older moves are removed: {number(moves[0].proposal.number)}")
    for each in moves:
        yield from whys(each)


def past_rows(move: PastMove) -> Iterator[Row]:
    """Yield a move of the past as rows of a table: one for each pair of workers and time."""
    count, since = move.proposal.bins, move.proposal.since
    if count is not None:
        time = "-" if since < 0 else str(since)
        yield _past_row(move, range(count), "all, redistributed", "anew", time)
    elif not move.went:
        yield _past_row(move, move.ahead, "copied", "ahead", "-")
    for each in move.went:
        yield _past_row(move, each.bins, each.source, each.target, str(each.time))


def _past_row(move: PastMove, bins: Sequence[int], source: str, target: str, time: str) -> Row:
    proposal, decided = move.proposal, move.decided
    return (
        str(proposal.number),
        clock(proposal.at),
        number(len(bins)),
        _which(bins),
        source,
        target,
        time,
        Cell(move.outcome, MOVE_TONES[move.outcome]),
        "-" if decided is None else span(max(0.0, decided.at - proposal.at)),
        proposal.by,
    )


def whys(move: PastMove) -> Iterator[Line]:
    """Show why a move was aborted, and who has refused it."""
    if move.outcome == "aborted":
        yield Line(f"move {move.proposal.number} was aborted: {move.reason}")
        for part, reason in move.refusals.items():
            yield Line(f"{part} refused it: {reason}", indent=2)


# ------------------------------------------------------------------------------------ states


def show_import(came: ImportResult) -> Iterator[Block]:
    """Show the state that was brought in."""
    yield Line(f"{many(came.keys, 'key')} in {many(came.bins, 'bin')}, {size(came.size)}", "good")
    yield pairs(
        ("workers", ", ".join(came.workers)),
        ("next", "start the job where the exported one had stopped"),
    )


def show_export(to: str, keys: int, bytes_written: int) -> Iterator[Block]:
    """Show the state that was written."""
    yield Line(f"{many(keys, 'key')} to {to}, {size(bytes_written)}", "good")


def show_eviction(all_evicted: Sequence[Eviction]) -> Iterator[Block]:
    """Say from where to go on."""
    for one in all_evicted:
        begin = "the beginning: it has no frontier yet"
        if one.frontier is not None:
            begin = f"{one.frontier[0]}, or any time before"
        following = f"start an application as live.Worker(GROUP, {one.worker!r}, …), then move its "
        yield Line(f"{one.worker} of {one.operator} is evicted: {many(one.bins, 'bin')}", "good")
        yield pairs(("reads from", begin), ("next", f"{following}bins"))
