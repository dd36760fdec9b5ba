"""The text of how many bins there are, and of another number of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stateshift.cli.views.text import Block, Gap, Line, Row, Table, pairs
from stateshift.cli.views.units import many, number, per_second, size, span
from stateshift.documents.live import live_command

if TYPE_CHECKING:
    from stateshift.documents.bin_count import CountFacts
    from stateshift.live.bins.migration import MoveProgress

LOAD_HEADS = (">bin", "worker", ">keys", ">state", ">changes/s", ">rows/s", ">of the mean")


def show_count(facts: CountFacts) -> Iterator[Block]:
    """Show the hottest bins, and the number that they speak for."""
    yield Line(f"{many(facts.bins.count, 'bin')} in {facts.location}", "strong")
    rows: list[Row] = []
    for load in facts.hottest:
        changes, rate = f"{size(load.changed_per_second)}/s", per_second(load.rows_per_second)
        amounts = (number(load.keys), size(load.size), changes, rate)
        rows.append((str(load.bin), load.worker, *amounts, f"{load.times:.1f} x"))
    yield Table(LOAD_HEADS, tuple(rows))
    yield Gap()
    advice = facts.advice
    if advice.count == facts.bins.count:
        yield Line(f"so many will do: {advice.reason}")
        return
    word = "more" if advice.count > facts.bins.count else "fewer"
    ask = live_command("bins", facts.location)
    yield Line(f"{word} would do better: {advice.reason}", "warn")
    yield Line(f"try it: {ask} --to {advice.count} --check")


def show_checked(facts: CountFacts) -> Iterator[Block]:
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


def progress(moved: MoveProgress) -> str:
    """Return the progress in one line."""
    if moved.state == "proposed":
        return f"acknowledged by {moved.acknowledged} of {moved.parts}"
    parts = many(moved.parts, "part")
    return f"{moved.state}: {moved.complete} of {parts} have redistributed their bins"


def came(facts: CountFacts) -> Iterator[Block]:
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
