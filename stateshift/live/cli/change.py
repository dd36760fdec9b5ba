"""How the commands that change a group's chains go: check, say what was checked, propose, wait, say
what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stateshift.api.local_files import beside, text_of
from stateshift.cli.shell.failing import tell_aborted
from stateshift.cli.shell.options import choice
from stateshift.cli.shell.progress import tell_changes
from stateshift.documents.live import LiveChangeDocument
from stateshift.documents.problems import failed_document
from stateshift.errors import NOT_SEEN_COMPLETE, ClusterError, Complaint, Interrupted, SpecError
from stateshift.live import acts
from stateshift.live.acts import ChangeResult, CheckedChange, Edit, Manner
from stateshift.live.cli import chains_text, search_working_directory
from stateshift.live.values import live_command
from stateshift.migration import keep_policies_of_group
from stateshift.specification.dataflow.parse import parse_dataflow
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from stateshift.cli.shell.terminal import Terminal
    from stateshift.live.cli.chains import ChangeOptions
    from stateshift.live.protocol.chains import OnError
    from stateshift.live.scheduling import Scheduler
    from stateshift.specification.dataflow.operators import Dataflow

SCHEDULERS: tuple[Scheduler, ...] = ("epoch", "fries")
ON_ERROR: tuple[OnError, ...] = ("fail", "revert")
HINT_DATAFLOW = "name a dataflow of JSON, or the plan of a running job (stateshift dataflow --help)"


def carry_out(
    terminal: Terminal, group: str, edits: Sequence[Edit], options: ChangeOptions
) -> int | None:
    """Change chains, and say what came of it; return the exit code."""
    places = [(edit.chain, edit.at) for edit in edits]
    twice = sorted({chain for chain, at in places if places.count((chain, at)) > 1})
    if twice:
        complaints = tuple(Complaint("CHAIN", f"{name!r} stands twice", name) for name in twice)
        hint = "name each chain once; or say which function of it each time: --at 0 --at 2"
        raise SpecError(complaints, hint=hint)
    asked = options.scheduler
    manner = Manner(
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
    if not options.check and any(edit.act != "revert" for edit in edits):
        keep_policies_of_group(group, terminal.adapters(), options.key)
    with search_working_directory():
        checked = acts.check(group, edits, manner)
    facts = ChangeResult(checked)
    if not terminal.json:
        terminal.show(chains_text.show_checked(facts))
    if not options.check:
        words = chains_text.progress
        try:
            with tell_changes(terminal, words, lambda each: each.decided is not None) as progress:
                facts = ChangeResult(checked, acts.carry(checked, options.wait, progress))
        except KeyboardInterrupt:
            raise _interrupted(checked) from None
    if facts.state in ("aborted", "reverted"):
        return _tell_failed(terminal, facts)
    terminal.answer_value("live-change", LiveChangeDocument, facts, chains_text.came(facts))
    carried = facts.carried
    is_awaited = carried is not None and carried.workers > 0  # where nobody runs, nobody is
    return NOT_SEEN_COMPLETE if facts.state == "applied" and is_awaited else None


def place(text: str | None) -> int | str | None:
    """Return the place of a function as it was typed: a number, or a name."""
    is_number = text is not None and text.isdecimal() and text.isascii()
    return int(text) if text is not None and is_number else text


def _dataflow(path: str) -> Dataflow:
    text = text_of(path, HINT_DATAFLOW, path)
    try:
        return parse_dataflow(text, beside(path))
    except SpecError as error:
        error.where["path"] = path
        raise


def _interrupted(checked: CheckedChange) -> Interrupted:
    """Return the error of somebody who does not wait any more. Anything not decided is aborted."""
    known = acts.withdraw(checked, "interrupted")
    if known is None:
        return Interrupted("interrupted; nothing was changed")
    if not known.applied:
        return Interrupted(f"interrupted; change {known.number} is aborted, all run on as before")
    location = redact(checked.folder.location)
    revert = live_command("revert", location, *checked.asked.chains)
    return Interrupted(
        f"interrupted; change {known.number} is applied, and workers take it with their next batch",
        hint=f"look: {live_command('status', location)}; take it back: {revert}",
    )


def _tell_failed(terminal: Terminal, facts: ChangeResult) -> int:
    became = "is aborted" if facts.state == "aborted" else "was taken back by its first error"
    error = ClusterError(
        f"change {facts.number} {became}, all run on as before: {facts.reason}",
        hint=f"every answer: {live_command('history', facts.location)}",
    )
    document = failed_document(LiveChangeDocument, facts, error)
    return tell_aborted(terminal, "live-change", document, error)
