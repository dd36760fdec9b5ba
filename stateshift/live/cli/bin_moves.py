"""How `stateshift live move` and `live bins` go: what is there, what is asked for, checked and
carried, and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from stateshift.api.local_files import text_of
from stateshift.cli.shell.failing import tell_aborted
from stateshift.cli.shell.progress import tell_changes
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views.text import Line
from stateshift.documents.bins import (
    CountFacts,
    LiveCountDocument,
    LiveMoveDocument,
    LiveSteeringDocument,
    MoveFacts,
    SteeringState,
)
from stateshift.documents.problems import failed_document
from stateshift.documents.shape import document_of
from stateshift.errors import NOT_SEEN_COMPLETE, ClusterError, Complaint, Interrupted, SpecError
from stateshift.live.bins import move_request
from stateshift.live.bins.controller import Controller
from stateshift.live.bins.migration import MoveProgress
from stateshift.live.bins.move_request import Manner, Steps, advise_count, hint_if_gone
from stateshift.live.bins.watch import Bins, loads
from stateshift.live.cli import bins_text
from stateshift.live.protocol.configuration import BINS_MAX
from stateshift.live.values import live_command
from stateshift.migration import keep_policies_of_group
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.live.cli.bins import MoveOptions

HINT_BINS = "stateshift live move GROUP --to WORKER --bins 0-127,200"
HINT_EVEN = "stateshift live move GROUP --rebalance 25% --by-rows"
HINT_PLAN = "a plan file has a line `M time worker …` and lines `D time bin worker …`"
HINT_ONE = "name one of them: --to WORKER --bins BINS, --plan FILE, --rebalance SHARE"


def steps_asked(
    to: str | None, bins: str | None, plan: str | None, rebalance: str | None, by_rows: bool
) -> Callable[[Bins, Manner], Steps]:
    """Return the steps asked for, by the bins as they will be; refuse words that say no one way."""
    if (to is None) != (bins is None):
        missing = "--bins" if bins is None else "--to"
        raise SpecError((Complaint(missing, "is missing"),), hint=HINT_BINS)
    given = [name for name in (to, plan, rebalance) if name is not None]
    if len(given) != 1:
        fact = "nothing says what moves" if not given else "more than one of them"
        complaint = Complaint("--to, --plan, --rebalance", fact)
        raise SpecError((complaint,), hint=HINT_ONE)
    if by_rows and rebalance is None:
        raise SpecError((Complaint("--by-rows", "belongs to --rebalance"),), hint=HINT_EVEN)
    if rebalance is not None:
        share = _share_of(rebalance)
        return lambda now, manner: move_request.steps_of(
            move_request.moves_even(now, share, by_rows), manner
        )
    if plan is not None:
        text = text_of(plan, HINT_PLAN, plan)
        return lambda now, manner: move_request.steps_planned(now, text, manner.at)
    assert to is not None and bins is not None, "one of the three"
    target, numbers = to, _bins_of(bins)
    return lambda now, manner: move_request.steps_of(
        move_request.moves_to(now, target, numbers), manner
    )


def _bins_of(text: str) -> tuple[int, ...]:
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


def _share_of(text: str) -> float:
    """Return the share in `25%`."""
    try:
        share = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        complaint = Complaint("--rebalance", f"{text!r} is no share of the state", text, "25%")
        raise SpecError((complaint,), hint=HINT_EVEN.removesuffix(" --by-rows"))
    return share


def carry_out(
    terminal: Terminal, group: str, options: MoveOptions, steps_of: Callable[[Bins, Manner], Steps]
) -> int | None:
    """Move bins, and say what came of it; return the exit code."""
    manner = Manner(
        strategy=options.strategy,
        gap_seconds=options.gap,
        lead_seconds=options.lead,
        at=options.at,
        prepared=options.prepared,
        timeout_seconds=options.timeout,
        wait_seconds=options.wait,
        any_code=options.any_code,
    )
    if not options.check:
        keep_policies_of_group(group, terminal.adapters())
    controller = Controller(group)
    now = controller.status()
    steps = steps_of(now, manner)
    move_request.check(now, steps, manner)
    facts = MoveFacts(now, steps, manner)
    if not terminal.json:
        terminal.show(bins_text.show_checked(facts))
    if not options.check:
        try:
            with tell_changes(terminal, bins_text.progress, _stage) as progress:
                facts = replace(facts, moved=controller.carry(steps, manner, progress))
        except KeyboardInterrupt:
            withdrawn = controller.withdraw("interrupted")
            fact = "" if withdrawn is None else f"; move {withdrawn.number} is aborted"
            raise Interrupted(
                f"interrupted{fact}; steps that are decided are carried out, no other begins",
                hint=f"{_look(controller.location)}; run this command again: it moves what is left",
            ) from None
    moved = facts.moved
    if moved is not None and moved.state == "aborted":
        error = ClusterError(
            f"aborted, {moved.bins_moved} of {moved.bins} bins were moved: {moved.reason}",
            hint=f"{_hint_aborted(facts.location, moved)}; run this command again: it moves what "
            "is left",
        )
        document = failed_document(LiveMoveDocument, facts, error)
        return tell_aborted(terminal, "live-move", document, error)
    terminal.answer_value("live-move", LiveMoveDocument, facts, bins_text.came(facts))
    return NOT_SEEN_COMPLETE if facts.state == "applied" else None


def show_count(terminal: Terminal, group: str) -> int | None:
    """Show which bins are hot."""
    facts = _count_facts(Controller(group))
    terminal.answer_value("live-bins", LiveCountDocument, facts, bins_text.show_count(facts))
    return None


def resize(
    terminal: Terminal, group: str, count: int, manner: Manner, is_check: bool
) -> int | None:
    """Split or merge all bins, and say what came of it; return the exit code."""
    if not is_check:
        keep_policies_of_group(group, terminal.adapters())
    controller = Controller(group)
    facts = replace(_count_facts(controller), wanted=count)
    controller.check_resize(facts.bins, count, manner.at)
    if not terminal.json:
        terminal.show(bins_text.show_count_checked(facts))
    if not is_check:
        try:
            with tell_changes(terminal, bins_text.count_progress, _stage) as progress:
                moved = controller.resize(count, at=manner.at, manner=manner, progress=progress)
        except KeyboardInterrupt:
            withdrawn = controller.withdraw("interrupted")
            fact = "it is decided: workers deal their bins anew"
            if withdrawn is not None:
                fact = f"move {withdrawn.number} is aborted, and nothing has changed"
            hint = _look(controller.location)
            raise Interrupted(f"interrupted; {fact}", hint=hint) from None
        facts = replace(facts, moved=moved)
        if moved.state == "aborted":
            error = ClusterError(
                f"aborted, there are {facts.bins.count} bins as before: {moved.reason}",
                hint=_hint_aborted(facts.location, moved),
            )
            document = failed_document(LiveCountDocument, facts, error)
            return tell_aborted(terminal, "live-bins", document, error)
    terminal.answer_value("live-bins", LiveCountDocument, facts, bins_text.count_came(facts))
    return NOT_SEEN_COMPLETE if facts.state == "applied" else None


def _count_facts(controller: Controller) -> CountFacts:
    bins = controller.status()
    found = loads(bins)
    return CountFacts(bins, found, advise_count(bins, found))


def _stage(moved: MoveProgress) -> str | None:
    return None if moved.is_over else "moving"


def _hint_aborted(location: str, moved: MoveProgress) -> str:
    """Return the hint about workers that did not answer."""
    hints = [hint_if_gone(location, worker) for worker in moved.silent]
    return "; ".join((*hints, _look(location)))


def _look(location: str) -> str:
    return f"look: {live_command('status', location)}"


def show_steering(
    terminal: Terminal, controller: Controller, state: SteeringState, words: str
) -> int | None:
    """Show what was asked of whoever moves bins."""
    carried = controller.carried
    by = None if carried is None else carried.by
    throttle = controller.steering.throttled
    location = redact(controller.location)
    terminal.answer(
        "live-steering",
        lambda: document_of(
            LiveSteeringDocument, throttle, state=state, group=location, carried_by=by
        ),
        [Line(words)],
    )
    return None
