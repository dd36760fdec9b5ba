"""How `stateshift live bins` goes: what is there, what is asked for, and what came of it."""

from __future__ import annotations

from dataclasses import replace

from stateshift.cli.shell.bin_moves import hint_aborted, told_progress
from stateshift.cli.shell.failing import tell_aborted
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views import bin_count_text
from stateshift.documents.bin_count import CountFacts, LiveCountDocument, failed_count
from stateshift.documents.live import live_command
from stateshift.errors import NOT_SEEN_COMPLETE, ClusterError, Interrupted
from stateshift.live.bins.bin_count import advised
from stateshift.live.bins.bin_loads import loads
from stateshift.live.bins.controlling import Controller
from stateshift.live.bins.move_request import Manner
from stateshift.live.bins.moved import Moved


def show(terminal: Terminal, group: str) -> int | None:
    """Show which bins are hot."""
    facts = _facts(Controller(group))
    terminal.answer_value("live-bins", LiveCountDocument, facts, bin_count_text.show_count(facts))
    return None


def change(
    terminal: Terminal, group: str, count: int, manner: Manner, is_check: bool
) -> int | None:
    """Split or merge all bins, and say what came of it; return the exit code."""
    controller = Controller(group)
    facts = replace(_facts(controller), wanted=count)
    controller.check_resize(facts.bins, count, manner.at)
    if not terminal.json:
        terminal.show(bin_count_text.show_checked(facts))
    if not is_check:
        facts = replace(facts, moved=_carried(terminal, controller, count, manner))
    if facts.state == "aborted":
        return _tell_aborted(terminal, facts)
    terminal.answer_value("live-bins", LiveCountDocument, facts, bin_count_text.came(facts))
    return NOT_SEEN_COMPLETE if facts.state == "applied" else None


def _facts(controller: Controller) -> CountFacts:
    bins = controller.status()
    found = loads(bins)
    return CountFacts(bins, found, advised(bins, found))


def _carried(terminal: Terminal, controller: Controller, count: int, manner: Manner) -> Moved:
    try:
        with told_progress(terminal, bin_count_text.progress) as progress:
            return controller.resize(count, at=manner.at, manner=manner, progress=progress)
    except KeyboardInterrupt:
        withdrawn = controller.withdraw("interrupted")
        fact = "it is decided: workers deal their bins anew"
        if withdrawn is not None:
            fact = f"move {withdrawn.number} is aborted, and nothing has changed"
        status = live_command("status", controller.location)
        raise Interrupted(f"interrupted; {fact}", hint=f"look: {status}") from None


def _tell_aborted(terminal: Terminal, facts: CountFacts) -> int:
    moved = facts.moved
    assert moved is not None, "what is aborted has begun"
    error = ClusterError(
        f"aborted, there are {facts.bins.count} bins as before: {moved.reason}",
        hint=hint_aborted(facts.location, moved),
    )
    return tell_aborted(terminal, "live-bins", failed_count(facts, error), error)
