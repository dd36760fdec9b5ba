"""How `stateshift live move` and `live bins` go: what is there, what is asked for, checked and
carried, and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stateshift.api.local_files import text_of
from stateshift.cli.shell.failing import tell_aborted
from stateshift.cli.shell.options import MoveOptions
from stateshift.cli.shell.progress import tell_changes
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views import bin_count_text, bins_text
from stateshift.documents.bin_count import CountFacts, LiveCountDocument
from stateshift.documents.bins import (
    LiveMoveDocument,
    MoveFacts,
    SteeringState,
    bins_steering,
)
from stateshift.documents.live import live_command
from stateshift.documents.problems import failed_document
from stateshift.errors import NOT_SEEN_COMPLETE, ClusterError, Complaint, Interrupted, SpecError
from stateshift.live.bins.bin_count import advise_count
from stateshift.live.bins.bin_loads import loads
from stateshift.live.bins.controller import Controller
from stateshift.live.bins.migration import MoveProgress
from stateshift.live.bins.move_request import Manner, Steps, check, hint_if_gone
from stateshift.live.bins.watch import Bins
from stateshift.live.protocol.configuration import BINS_MAX
from stateshift.storage.locations import redact

HINT_BINS = "stateshift live move GROUP --to WORKER --bins 0-127,200"
HINT_EVEN = "stateshift live move GROUP --rebalance 25% --by-rows"
HINT_PLAN = "a plan file has a line `M time worker …` and lines `D time bin worker …`"
HINT_ONE = "name one of them: --to WORKER --bins BINS, --plan FILE, --rebalance SHARE"


def manner_of(options: MoveOptions) -> Manner:
    """Return the manner of a move of bins, by the options that were typed."""
    return Manner(
        strategy=options.strategy,
        gap_seconds=options.gap,
        lead_seconds=options.lead,
        at=options.at,
        prepared=options.prepared,
        timeout_seconds=options.timeout,
        wait_seconds=options.wait,
        any_code=options.any_code,
    )


def bins_of(text: str) -> tuple[int, ...]:
    """Return the numbers in `0-127,200`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = [first, last] if dash else [first]
        if not all(end.strip().isdecimal() and len(end) <= 9 for end in ends):
            complaint = Complaint("--bins", f"{part!r} is no bin and no range", text, "0-127,200")
            raise SpecError((complaint,), hint=HINT_BINS)
        lowest, highest = int(ends[0]), int(ends[-1])
        if lowest > highest:
            complaint = Complaint("--bins", f"{part!r} runs backwards", text, f"{highest}-{lowest}")
            raise SpecError((complaint,), hint=HINT_BINS)
        if highest >= BINS_MAX:
            complaint = Complaint("--bins", f"no group has a bin {highest}", text, "0-127,200")
            raise SpecError((complaint,), hint=f"a group has at most {BINS_MAX:,} bins")
        numbers += range(lowest, highest + 1)
    return tuple(numbers)


def share_of(text: str) -> float:
    """Return the share in `25%`."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        complaint = Complaint("--rebalance", f"{text!r} is no share of the state", text, "25%")
        raise SpecError((complaint,), hint=HINT_EVEN.removesuffix(" --by-rows"))
    return share


def text_of_plan(path: str) -> str:
    """Return the text of a plan file."""
    return text_of(path, HINT_PLAN, path)


def carry_out(
    terminal: Terminal,
    group: str,
    options: MoveOptions,
    steps_of: Callable[[Bins, Manner], Steps],
) -> int | None:
    """Move bins, and say what came of it; return the exit code."""
    manner = manner_of(options)
    controller = Controller(group)
    now = controller.status()
    steps = steps_of(now, manner)
    check(now, steps, manner)
    facts = MoveFacts(now, steps, manner)
    if not terminal.json:
        terminal.show(bins_text.show_checked(facts))
    if not options.check:
        facts = replace(facts, moved=_carried(terminal, controller, steps, manner))
    if facts.state == "aborted":
        return _tell_aborted(terminal, facts)
    terminal.answer_value("live-move", LiveMoveDocument, facts, bins_text.came(facts))
    return NOT_SEEN_COMPLETE if facts.state == "applied" else None


def _stage(moved: MoveProgress) -> str | None:
    return None if moved.is_over else "moving"


def _carried(
    terminal: Terminal, controller: Controller, steps: Steps, manner: Manner
) -> MoveProgress:
    try:
        with tell_changes(terminal, bins_text.progress, _stage) as progress:
            return controller.carry(steps, manner, progress)
    except KeyboardInterrupt:
        withdrawn = controller.withdraw("interrupted")
        fact = "" if withdrawn is None else f"; move {withdrawn.number} is aborted"
        status = live_command("status", controller.location)
        raise Interrupted(
            f"interrupted{fact}; steps that are decided are carried out, no other begins",
            hint=f"look: {status}; run this command again: it moves what is left",
        ) from None


def _tell_aborted(terminal: Terminal, facts: MoveFacts) -> int:
    moved = facts.moved
    assert moved is not None, "what is aborted has begun"
    error = ClusterError(
        f"aborted, {moved.bins_moved} of {moved.bins} bins were moved: {moved.reason}",
        hint=f"{hint_aborted(facts.location, moved)}; run this command again: it moves what is "
        "left",
    )
    document = failed_document(LiveMoveDocument, facts, error)
    return tell_aborted(terminal, "live-move", document, error)


def hint_aborted(location: str, moved: MoveProgress) -> str:
    """Return the hint about workers that did not answer."""
    hints = [hint_if_gone(location, worker) for worker in moved.silent]
    return "; ".join((*hints, f"look: {live_command('status', location)}"))


# ------------------------------------------------------------------------------------ steering


def show_steering(
    terminal: Terminal, controller: Controller, state: SteeringState, words: str
) -> None:
    """Show what was asked of whoever moves bins."""
    carried = controller.carried
    by = None if carried is None else carried.by
    throttle = controller.steering.throttled
    location = redact(controller.location)
    terminal.answer(
        "live-steering",
        lambda: bins_steering(state, location, throttle, by),
        bins_text.show_steering(words),
    )


# ------------------------------------------------------------------------------------ their number


def show_count(terminal: Terminal, group: str) -> int | None:
    """Show which bins are hot."""
    facts = _count_facts(Controller(group))
    terminal.answer_value("live-bins", LiveCountDocument, facts, bin_count_text.show_count(facts))
    return None


def resize(
    terminal: Terminal, group: str, count: int, manner: Manner, is_check: bool
) -> int | None:
    """Split or merge all bins, and say what came of it; return the exit code."""
    controller = Controller(group)
    facts = replace(_count_facts(controller), wanted=count)
    controller.check_resize(facts.bins, count, manner.at)
    if not terminal.json:
        terminal.show(bin_count_text.show_checked(facts))
    if not is_check:
        facts = replace(facts, moved=_resized(terminal, controller, count, manner))
    if facts.state == "aborted":
        return _tell_resize_aborted(terminal, facts)
    terminal.answer_value("live-bins", LiveCountDocument, facts, bin_count_text.came(facts))
    return NOT_SEEN_COMPLETE if facts.state == "applied" else None


def _count_facts(controller: Controller) -> CountFacts:
    bins = controller.status()
    found = loads(bins)
    return CountFacts(bins, found, advise_count(bins, found))


def _resized(
    terminal: Terminal, controller: Controller, count: int, manner: Manner
) -> MoveProgress:
    try:
        with tell_changes(terminal, bin_count_text.progress, _stage) as progress:
            return controller.resize(count, at=manner.at, manner=manner, progress=progress)
    except KeyboardInterrupt:
        withdrawn = controller.withdraw("interrupted")
        fact = "it is decided: workers deal their bins anew"
        if withdrawn is not None:
            fact = f"move {withdrawn.number} is aborted, and nothing has changed"
        status = live_command("status", controller.location)
        raise Interrupted(f"interrupted; {fact}", hint=f"look: {status}") from None


def _tell_resize_aborted(terminal: Terminal, facts: CountFacts) -> int:
    moved = facts.moved
    assert moved is not None, "what is aborted has begun"
    error = ClusterError(
        f"aborted, there are {facts.bins.count} bins as before: {moved.reason}",
        hint=hint_aborted(facts.location, moved),
    )
    return tell_aborted(
        terminal, "live-bins", failed_document(LiveCountDocument, facts, error), error
    )
