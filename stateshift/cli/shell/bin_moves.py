"""How `stateshift live move` goes: what is asked for, checked, carried, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from stateshift.api.local_files import text_of
from stateshift.cli.shell.failing import tell_aborted
from stateshift.cli.shell.options import MoveOptions
from stateshift.cli.shell.progress import draws_bar, status_line
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views import bins_text
from stateshift.documents.bins import (
    LiveMoveDocument,
    MoveFacts,
    SteeringState,
    bins_steering,
    failed_move,
)
from stateshift.documents.live import live_command
from stateshift.errors import NOT_SEEN_COMPLETE, ClusterError, Complaint, Interrupted, SpecError
from stateshift.live.bins.controlling import Controller
from stateshift.live.bins.move_request import Manner, Steps, check, hint_if_gone
from stateshift.live.bins.moved import Moved
from stateshift.live.bins.watch import Bins
from stateshift.live.protocol.bins import BINS_MAX
from stateshift.storage.locations import redact

SECONDS_BETWEEN_LINES = 1.0
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


def _carried(terminal: Terminal, controller: Controller, steps: Steps, manner: Manner) -> Moved:
    try:
        with told_progress(terminal, bins_text.progress) as progress:
            return controller.carry(steps, manner, progress)
    except KeyboardInterrupt:
        withdrawn = controller.withdraw("interrupted")
        fact = "" if withdrawn is None else f"; move {withdrawn.number} is aborted"
        status = live_command("status", controller.location)
        raise Interrupted(
            f"interrupted{fact}; steps that are decided are carried out, no other begins",
            hint=f"look: {status}; run this command again: it moves what is left",
        ) from None


@contextmanager
def told_progress(
    terminal: Terminal, progress: Callable[[Moved], str]
) -> Iterator[Callable[[Moved], None]]:
    """Show how far it is, as `progress` says it: at a terminal over the last line; elsewhere now
    and then.
    """
    if not draws_bar(terminal):
        yield _Lines(terminal.say, progress)
        return
    with status_line() as show:
        yield lambda moved: show(progress(moved))


class _Lines:
    """A line where something has changed, not more often than a log can bear."""

    def __init__(self, say: Callable[[str], None], progress: Callable[[Moved], str]) -> None:
        self._say, self._progress = say, progress
        self._last, self._said_at = "", 0.0

    def __call__(self, moved: Moved) -> None:
        line, now = self._progress(moved), time.monotonic()
        if moved.is_over or line == self._last or now - self._said_at < SECONDS_BETWEEN_LINES:
            return
        self._last, self._said_at = line, now
        self._say(line)


def _tell_aborted(terminal: Terminal, facts: MoveFacts) -> int:
    moved = facts.moved
    assert moved is not None, "what is aborted has begun"
    error = ClusterError(
        f"aborted, {moved.bins_moved} of {moved.bins} bins were moved: {moved.reason}",
        hint=f"{hint_aborted(facts.location, moved)}; run this command again: it moves what is "
        "left",
    )
    return tell_aborted(terminal, "live-move", failed_move(facts, error), error)


def hint_aborted(location: str, moved: Moved) -> str:
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
