"""`stateshift rebalance`: which jobs to move between clusters; moves them with --yes."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Annotated

from stateshift.cli.commands.advise import (
    SAMPLE,
    Changed,
    Sample,
    refuse_beside_replay,
    require_argument,
    seconds_in,
    settings_in,
)
from stateshift.cli.shell.options import (
    UNBOUNDED,
    WORKDIRS,
    Workdirs,
    argument,
    command,
    flag,
    option,
    refuse_no_file,
)
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import Interrupted, StorageError

if TYPE_CHECKING:
    from stateshift.advise.rebalance.outcome import Rebalance
    from stateshift.api.rebalancing.request import Acting


@command(
    "stateshift rebalance clusters.json --once\n"
    "stateshift rebalance clusters.json --once --yes --json\n"
    "stateshift rebalance clusters.json --once --drain west --yes --wait && ./switch-off west\n"
    "stateshift rebalance clusters.json --once --uncordon west\n"
    "stateshift rebalance --replay .stateshift/rebalance-clusters/decisions/0007.json",
    (2, 3, 4, 5, 6, 7, 8, 10, 130),
    e0='decided, and moved with --yes; "nothing to move" and "cannot tell" are decisions, and so '
    "is another run at work. With --drain: the cluster says that nothing runs there any more",
    e4="a move was refused when its turn came; with --drain: a cluster is not empty, and why",
    e8="the folder of earlier runs, or the journal of a move, is damaged",
    e130="interrupted: the same command goes on",
)
def rebalance(
    terminal: Terminal,
    spec: Annotated[str | None, argument("[SPEC]", "A spec with the section `rebalance`.")] = None,
    once: Annotated[
        bool, flag("--once", "One run, as cron repeats it. There is no other way.")
    ] = False,
    yes: Annotated[bool, flag("--yes -y", "Make the moves. Without it, nothing is moved.")] = False,
    drain: Annotated[
        list[str] | None,
        option(
            "--drain",
            "CLUSTER",
            "Move all of its jobs elsewhere, whatever it costs. With --yes, nothing moves "
            "there any more until --uncordon. Repeatable.",
        ),
    ] = None,
    uncordon: Annotated[
        list[str] | None, option("--uncordon", "CLUSTER", "Let jobs move there again. Repeatable.")
    ] = None,
    wait: Annotated[
        str | None,
        option(
            "--wait", "[TIME]", "Wait for a run that is at work: so long, or until it has ended."
        ),
    ] = None,
    sample: Sample = SAMPLE,
    history: Annotated[
        str | None, option("--history", "DIR", "Keep samples here, such as where advise keeps its.")
    ] = None,
    setting: Changed = None,
    workdir: Annotated[
        str | None,
        option("--workdir", "D", "Keep what runs know here, not in WORKDIRS/rebalance-<spec>."),
    ] = None,
    workdirs: Workdirs = WORKDIRS,
    replay: Annotated[
        str | None, option("--replay", "FILE", "Decide again what a file has; look at nothing.")
    ] = None,
    html: Annotated[
        str | None, option("--html", "FILE", "Write a page with bars, too; each run replaces it.")
    ] = None,
    explain: Annotated[bool, flag("--explain", "Show what each move costs and brings.")] = False,
) -> int | None:
    """Move jobs between clusters, where that evens them out.

    Measures jobs and clusters, and decides which jobs to move: only what brings more than it costs,
    within the limits of the spec. Shows it; --yes makes the moves, one ordinary run each. Made for
    cron: a cluster must be too full in two runs in a row, and only one run is at work at a time.
    """
    from stateshift.api.local_files import try_writing
    from stateshift.api.rebalancing.folder import usual_folder
    from stateshift.api.rebalancing.once import rebalance_once, replay_decision
    from stateshift.api.rebalancing.request import RebalanceRequest
    from stateshift.api.requests import spec_of
    from stateshift.cli.shell.failing import describe_error

    if replay is not None:
        refuse_beside_replay(
            spec is not None or yes, "decides again what a file has, and looks at no clusters"
        )
        _show(terminal, replay_decision(replay), html, explain)
        return None
    path = require_argument(spec, "SPEC", "stateshift rebalance clusters.json --once")
    if html is not None:  # before anything is moved
        refuse_no_file("--html", html, "a page", "rebalance.html")
        try:
            try_writing(html)
        except OSError as refused:
            raise _unwritable(html, refused, "name another file with --html") from refused
    terminal.is_paged = not yes  # nobody may wait for its moves
    wait_seconds = 0.0  # for another run: not at all, for a time, or until it has ended
    if wait is not None:
        wait_seconds = float("inf") if wait == UNBOUNDED else seconds_in(wait, "--wait")
    request = RebalanceRequest(
        spec=spec_of(path),
        folder=workdir or usual_folder(workdirs, path),
        acting=_acting(terminal) if yes else None,
        draining=tuple(dict.fromkeys(drain or ())),
        uncordoned=tuple(uncordon or ()),
        wait_seconds=wait_seconds,
        say=terminal.say,
        settings=settings_in(setting or ()),
        sample_seconds=seconds_in(sample),
        history=history,
    )
    try:
        run = rebalance_once(request, terminal.adapters())
    except KeyboardInterrupt:
        names = ", ".join(request.draining)
        unasked = f"; it was not asked whether {names} is empty" if names else ""
        hint = "the same command goes on with what is begun"
        raise Interrupted(f"interrupted{unasked}", hint=hint) from None
    try:
        _show(terminal, run.outcome, html, explain)
    finally:  # a page that fails does not hide what has become of a move
        for error in run.errors:
            terminal.talk(describe_error(error))
    return run.errors[0].exit_code if run.errors else None


def _show(terminal: Terminal, outcome: Rebalance, html: str | None, explain: bool) -> None:
    from stateshift.api.local_files import write_whole
    from stateshift.cli.views import rebalance_html, rebalance_text
    from stateshift.documents.rebalance import RebalanceDocument

    if html is not None:
        # Whole or not at all, before the answer is printed: a page that fails leaves an error, and
        # no half of an answer. The decision is kept.
        page = rebalance_html.page(outcome)
        try:
            write_whole(html, page)
        except OSError as error:
            hint = "name another file with --html"
            if outcome.file is not None:
                hint = f"stateshift rebalance --replay {quote(outcome.file)} --html OTHER"
            raise _unwritable(html, error, hint) from error
    terminal.answer_value(
        "rebalance", RebalanceDocument, outcome, rebalance_text.blocks(outcome, explain)
    )


def _unwritable(html: str, error: OSError, hint: str) -> StorageError:
    fact = f"the page {html} cannot be written: {error.strerror}"
    return StorageError(fact, location=html, hint=hint)


def _acting(terminal: Terminal) -> Acting:
    """Return the watch over moves, which lets Ctrl-C stop them."""
    import threading
    from collections.abc import Iterator
    from contextlib import contextmanager

    from stateshift.cli.shell.progress import watching
    from stateshift.cli.shell.work import stoppable_before
    from stateshift.migration import Adapters

    @contextmanager
    def acting() -> Iterator[Adapters]:
        stop = threading.Event()
        with watching(terminal) as meter, stoppable_before(stop, terminal.again()):
            yield terminal.adapters(meter, stop)

    return acting
