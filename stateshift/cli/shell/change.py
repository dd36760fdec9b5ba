"""How the commands that change a group's chains go: check, say what was checked, propose, wait, say
what came of it. `stateshift live` alone needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from stateshift.cli.shell.options import ChangeOptions, epilog

if TYPE_CHECKING:
    from stateshift.cli.shell.terminal import Terminal
    from stateshift.documents.live import ChangeFacts
    from stateshift.errors import Interrupted
    from stateshift.live.acts import CheckedChange, Edit, Manner
    from stateshift.live.proposals import ChangeProgress
    from stateshift.live.protocol.chains import OnError
    from stateshift.live.scheduling import Scheduler
    from stateshift.specification.dataflow.operators import Dataflow

SCHEDULERS: tuple[Scheduler, ...] = ("epoch", "fries")
ON_ERROR: tuple[OnError, ...] = ("fail", "revert")
HINT_DATAFLOW = "name a dataflow of JSON, or the plan of a running job (stateshift dataflow --help)"


def change_epilog(example: str) -> str:
    """Return the end of the help of a command that changes chains."""
    return epilog(
        example,
        2,
        3,
        4,
        6,
        7,
        9,
        130,
        e0="applied, and every worker runs it (--check: it could be)",
        e2="the request, the function, the dataflow or the key is not valid",
        e3="a file of the group is not what its format says",
        e4="the function does not fit the chain, the chain is at another version than --expect, or "
        "another change is under way",
        e7="aborted (a worker refused it, or did not answer in time) or taken back by its error",
        e9="applied, and not every worker was seen to run it within --wait: `live status` shows it",
        e130="interrupted; the message says whether the change is applied",
    )


def refuse_for_several(chains: int, given: Mapping[str, object]) -> None:
    """Refuse options that are about one chain where there are several."""
    from stateshift.errors import Complaint, SpecError

    wrong = [flag for flag, value in given.items() if value is not None]
    if chains > 1 and wrong:
        complaints = tuple(Complaint(flag, "is about one chain", chains) for flag in wrong)
        raise SpecError(complaints, hint="change one chain after the other")


def carry_out(
    terminal: Terminal, group: str, edits: Sequence[Edit], options: ChangeOptions
) -> int | None:
    """Change chains, and say what came of it; return the exit code."""
    from stateshift.cli.views import live_text
    from stateshift.documents.live import ChangeFacts, LiveChangeDocument
    from stateshift.errors import NOT_SEEN_COMPLETE
    from stateshift.live import acts

    _refuse_doubles(edits)
    manner = _manner(options)
    with search_working_directory():
        checked = acts.check(group, edits, manner)
    facts = ChangeFacts(checked)
    if not terminal.json:
        terminal.show(live_text.show_checked(facts))
    if not options.check:
        facts = ChangeFacts(checked, _carried(terminal, checked, options.wait))
    if facts.state in ("aborted", "reverted"):
        return _tell_failed(terminal, facts)
    terminal.answer_value("live-change", LiveChangeDocument, facts, live_text.came(facts))
    carried = facts.carried
    is_awaited = carried is not None and carried.workers > 0  # where nobody runs, nobody is
    return NOT_SEEN_COMPLETE if facts.state == "applied" and is_awaited else None


def _refuse_doubles(edits: Sequence[Edit]) -> None:
    from stateshift.errors import Complaint, SpecError

    places = [(edit.chain, edit.at) for edit in edits]
    twice = sorted({chain for chain, at in places if places.count((chain, at)) > 1})
    if twice:
        complaints = tuple(Complaint("CHAIN", f"{name!r} stands twice", name) for name in twice)
        hint = "name each chain once; or say which function of it each time: --at 0 --at 2"
        raise SpecError(complaints, hint=hint)


def place(text: str | None) -> int | str | None:
    """Return the place of a function as it was typed: a number, or a name."""
    is_number = text is not None and text.isdecimal() and text.isascii()
    return int(text) if text is not None and is_number else text


@contextmanager
def search_working_directory() -> Iterator[None]:
    """Look for modules in the working directory as well, as `python -m` does."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


# ------------------------------------------------------------------------------------ options


def _manner(options: ChangeOptions) -> Manner:
    from stateshift.cli.shell.options import choice
    from stateshift.live.acts import Manner

    asked = options.scheduler
    return Manner(
        scheduler=None if asked is None else choice("--scheduler", asked, SCHEDULERS),
        dataflow=None if options.dataflow is None else _dataflow(options.dataflow),
        on_error=choice("--on-error", options.on_error, ON_ERROR),
        timeout_seconds=options.timeout,
        wait_seconds=options.wait,
        key=options.key,
        unattended=options.unattended,
        expect=options.expect,
        check_only=options.check,
    )


def _dataflow(path: str) -> Dataflow:
    from stateshift.api.local_files import beside, text_of
    from stateshift.errors import SpecError
    from stateshift.specification.dataflow.parse import parse_dataflow

    text = text_of(path, HINT_DATAFLOW, path)
    try:
        return parse_dataflow(text, beside(path))
    except SpecError as error:
        error.where["path"] = path
        raise


# ------------------------------------------------------------------------------------ waiting


def _carried(terminal: Terminal, checked: CheckedChange, wait_seconds: float) -> ChangeProgress:
    from stateshift.cli.shell.progress import tell_changes
    from stateshift.cli.views.live_text import progress as words
    from stateshift.live import acts

    try:
        with tell_changes(terminal, words, lambda each: each.decided is not None) as progress:
            return acts.carry(checked, wait_seconds, progress)
    except KeyboardInterrupt:
        raise _interrupted(checked) from None


def _interrupted(checked: CheckedChange) -> Interrupted:
    """Return the error of somebody who does not wait any more. Anything not decided is aborted."""
    from stateshift.documents.live import ChangeFacts
    from stateshift.errors import Interrupted
    from stateshift.live import acts

    known = acts.withdraw(checked, "interrupted")
    if known is None:
        return Interrupted("interrupted; nothing was changed")
    if not known.applied:
        return Interrupted(f"interrupted; change {known.number} is aborted, all run on as before")
    facts = ChangeFacts(checked)
    return Interrupted(
        f"interrupted; change {known.number} is applied, and workers take it with their next batch",
        hint=f"look: {facts.status_command}; take it back: {facts.revert_command}",
    )


# ------------------------------------------------------------------------------------ the end


def _tell_failed(terminal: Terminal, facts: ChangeFacts) -> int:
    from stateshift.cli.shell.failing import tell_aborted
    from stateshift.documents.live import LiveChangeDocument, live_command
    from stateshift.documents.problems import failed_document
    from stateshift.errors import ClusterError

    became = "is aborted" if facts.state == "aborted" else "was taken back by its first error"
    error = ClusterError(
        f"change {facts.number} {became}, all run on as before: {facts.reason}",
        hint=f"every answer: {live_command('history', facts.location)}",
    )
    document = failed_document(LiveChangeDocument, facts, error)
    return tell_aborted(terminal, "live-change", document, error)
