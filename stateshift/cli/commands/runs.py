"""The commands that carry a run on, take it back, or show where runs stand."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from stateshift.cli.commands.steering import show_request
from stateshift.cli.shell.options import (
    WORKDIRS,
    FleetOf,
    Format,
    WorkdirOf,
    Yes,
    argument,
    command,
    flag,
    option,
)
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import NoSuchRun, PlanError, SpecError, StateshiftError

if TYPE_CHECKING:
    from stateshift.documents.run import ListedRun
    from stateshift.migration import Adapters
    from stateshift.report import Report
    from stateshift.steering import Live
    from stateshift.workdir import Workdir

SECONDS_MAX = 120.0  # for a process at work to end
SECONDS_BETWEEN = 0.5
Show = Callable[["Report", "Live | None"], None]

OVER = {"finished": "is finished", "rolled-back": "was rolled back"}


@command(
    "stateshift resume .stateshift/20260301-120000-orders-1f3a\n"
    "stateshift resume .stateshift/20260301-120000-orders-1f3a --spec corrected.json",
    (2, 3, 4, 5, 6, 7, 8, 10, 130),
    e0="the image is at its target, its job runs if there is a `submit`; or the rollback is done",
    e4="there is no such run; or source or target changed since the plan was made",
    e130="interrupted: the same command continues",
)
def resume(
    terminal: Terminal,
    workdir: WorkdirOf,
    spec: Annotated[
        str | None,
        option(
            "--spec",
            "FILE",
            "The same spec with another `submit`: jobs start as that says. Nothing else of it is "
            "taken; other clusters or places are refused.",
        ),
    ] = None,
    fleet: FleetOf = None,
    yes: Annotated[bool, flag("--yes -y", "Nothing is asked: taken as by the others.")] = False,
) -> int | None:
    """Continue a run where it stopped.

    Works with or without a fleet, whichever the run began with.
    """
    from stateshift import migration
    from stateshift.api.requests import spec_of
    from stateshift.cli.shell.launch import refuse_unknown_master
    from stateshift.cli.shell.work import carry_out
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    place.require()
    refuse_unknown_master(fleet)
    state = migration.progress_of(place).state
    if state in OVER:
        unused = "" if spec is None else f"; {spec} changes nothing"
        terminal.say(f"nothing is left to do: the run {OVER[state]}{unused}")
    if place.held and place.steering.wishes().paused:
        migration.note_command("resume", place, terminal.adapters())
        place.steering.pause(False)
        show_request(terminal, place, "running", "it was paused, and goes on")
        return None
    corrected = None if spec is None else spec_of(spec)
    if state == "rolling-back" and spec is not None:
        terminal.say(f"the run is being rolled back, and starts no job by a spec: {spec} is unused")
    elif state not in OVER and spec is not None:
        terminal.say(
            f'of {spec} only "submit" is taken: how jobs start, and neither limits nor places'
        )
    asked = None
    if state not in (*OVER, "rolling-back"):  # else there is nothing that others would do
        asked = migration.spec_of(place)

    def work(adapters: Adapters, begun: Callable[[], None]) -> Report:
        return migration.resume(place, adapters, corrected, begun)

    return carry_out(terminal, place, work, asked, fleet)


@command(
    "stateshift rollback .stateshift/20260301-120000-orders-1f3a",
    (2, 4, 5, 6, 7, 8, 10, 130),
    e0="rolled back; the report names what could not be",
    e4="there is no such run; or the job has committed batches at the target since, or the copy "
    "may be the last one",
    e10="rolled back, and a job that the run had stopped is down, or may be: the first words say "
    "since when",
    e130="interrupted: `stateshift resume WORKDIR` continues the rollback",
)
def rollback(
    terminal: Terminal,
    workdir: WorkdirOf,
    yes: Yes = False,
    discard_progress: Annotated[
        bool, flag("--discard-progress", "Discard what the job has committed at the target since.")
    ] = False,
    discard_last_copy: Annotated[
        bool,
        flag(
            "--discard-last-copy",
            "Delete the copy even if the source holds no image any more to take its place.",
        ),
    ] = False,
    runs_again: Annotated[
        bool,
        flag(
            "--runs-again",
            "Somebody has started the job where it was: it is not started, and no longer said to "
            "be down.",
        ),
    ] = False,
) -> int | None:
    """Take a run back, and nothing else.

    Lifts the fence, restarts the old job as it was started before (or by the spec's
    `source_submit`), deletes what the run wrote at the target, and lists what it could not
    delete. If a process works on the run, and the rollback is not refused, it is asked to stop
    first. If the run was rolled back before and left a job down, the cluster is asked whether
    that job runs again.
    """
    from stateshift import migration
    from stateshift.cli.shell.work import carry_out, confirm
    from stateshift.cli.views import run_text as render_run
    from stateshift.documents.run import RunFacts
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    report = migration.status(place)
    if report.state != "rolled-back":
        if terminal.someone_there and not yes:
            terminal.talk(render_run.report(RunFacts(report, str(place.path), place.held)))
        confirm(terminal, "roll this back?", yes)

    has_ended = False

    def work(adapters: Adapters, begun: Callable[[], None]) -> Report:
        nonlocal has_ended
        try:
            at_work = place.held
            if at_work or runs_again:
                migration.check_rollback(place, adapters, discard_progress, discard_last_copy)
            if at_work:
                has_ended = True
                _end(terminal, place)
            if runs_again:
                migration.note_running(place, adapters)
            return migration.rollback(place, adapters, discard_progress, begun, discard_last_copy)
        except PlanError as error:
            hint = error.hint or ""
            if hint.endswith(" --discard-progress"):  # together with what else was said here
                words, _, _ = hint.partition("stateshift rollback ")
                hint = words + terminal.again("--discard-progress")
            if has_ended:  # it was not refused before
                again = render_run.command("resume", str(place.path))
                terminal.say(f"the process that was at work has ended; it goes on with: {again}")
            raise error.with_hint(hint) from error

    return carry_out(terminal, place, work)


def _end(terminal: Terminal, place: Workdir) -> None:
    """End the process at work as by Ctrl-C. One that outlives the wait is shown as held."""
    terminal.say("a process is at work on it: it was asked to stop")
    place.steering.ask_stop()
    until = time.monotonic() + SECONDS_MAX
    while place.held and time.monotonic() < until:
        time.sleep(0.1)


@command(
    "stateshift status .stateshift/20260301-120000-orders-1f3a\n"
    "stateshift status .stateshift/20260301-120000-orders-1f3a --watch",
    (2, 3, 4, 6, 8, 130),
    e0="shown, whatever the state is",
    e4="there is no such run, and no standby",
    e130="you stopped watching; the run continues",
)
def status(
    terminal: Terminal,
    workdir: WorkdirOf,
    watch: Annotated[bool, flag("--watch -w", "Repeat until no process works on the run.")] = False,
    format: Format = "text",
) -> int | None:
    """Show where a run stands, and what can be done now.

    By its location, a standby is shown: what it can be started from, and how old that is.

    --watch repeats it: what the run does, what is left, and how long the job would be down.
    With --json it prints one document a line.
    """
    from stateshift import migration
    from stateshift.cli.views import run_text as render_run
    from stateshift.documents.run import ListedRun, RunFacts, StatusDocument, run_row
    from stateshift.documents.shape import document_of
    from stateshift.steering import ticking
    from stateshift.workdir import Workdir

    terminal.format_as(format)
    place = Workdir(workdir)
    if not place.exists and _is_standby(terminal, workdir):
        return None
    if watch and place.held:
        place.require()
        with _shown(terminal, place) as show:
            while place.held:
                show(migration.status(place), ticking(place.steering.live(), time.time()))
                time.sleep(SECONDS_BETWEEN)
    report, held, now = migration.status(place), place.held, time.time()
    live = ticking(place.steering.live(), now) if held else None
    page = None if held else place.page_told
    facts = RunFacts(report, str(place.path), held, live, page=page, now=now)
    terminal.answer(
        "status",
        lambda: document_of(StatusDocument, facts),
        render_run.status(facts),
        lambda: [run_row(ListedRun(report.run, facts.workdir, facts))],
    )
    return None


def _is_standby(terminal: Terminal, location: str) -> bool:
    """Show the standby at a location, or where the job of a primary runs; whether it is either."""
    from stateshift import look
    from stateshift.api.drills import with_drills
    from stateshift.api.failovers import standby_at, standby_now
    from stateshift.cli.views import standby_text
    from stateshift.documents.standby import StandbyDocument, SupersededDocument
    from stateshift.engines.registry import find_image

    adapters = terminal.adapters()
    try:
        standby = standby_at(location, adapters)
    except PlanError:
        _, storage, survey = find_image(location, adapters.open_storage)
        found = look.note_of_failover(storage, survey)
        if found is None:
            return False
        terminal.answer_value(
            "standby", SupersededDocument, found, standby_text.primary_note(found)
        )
        return True
    facts = standby_now(standby, adapters)
    facts = with_drills(facts, adapters.open_storage(standby.location))
    terminal.answer_value("standby", StandbyDocument, facts, standby_text.standby(facts))
    return True


@contextmanager
def _shown(terminal: Terminal, place: Workdir) -> Iterator[Show]:
    """Show each state: at a terminal over the last one; elsewhere only what is new."""
    from stateshift.cli.views import run_text as render_run
    from stateshift.cli.views.text import rich_blocks
    from stateshift.documents.run import RunFacts, StatusDocument
    from stateshift.documents.shape import document_of

    if terminal.json:
        path = str(place.path)
        yield lambda report, live: terminal.document(
            "status",
            document_of(
                StatusDocument, RunFacts(report, path, held=True, live=live, now=time.time())
            ),
        )
    elif terminal.colours(sys.stdout):
        from rich.console import Console, Group
        from rich.live import Live as Drawn

        console = Console(highlight=False, markup=False, emoji=False)
        with Drawn(console=console, transient=True) as drawn:

            def draw(report: Report, live: Live | None) -> None:
                drawn.update(Group(*rich_blocks(render_run.watch(report, live))), refresh=True)

            yield draw
    else:
        last = ""

        def say(report: Report, live: Live | None) -> None:
            nonlocal last
            line = render_run.line(report, live)
            if line != last:
                last = line
                terminal.say(line)

        yield say


@command("stateshift runs\nstateshift runs --format csv > runs.csv", (2, 6), e0="listed")
def runs(
    terminal: Terminal,
    workdirs: Annotated[
        str, argument("[DIR]", "Where to look for workdirs.", envvar="STATESHIFT_WORKDIRS")
    ] = WORKDIRS,
    format: Format = "text",
) -> int | None:
    """List all runs, and where each of them stands."""
    from stateshift.cli.views import run_text as render_run
    from stateshift.documents.run import run_row, workdir_document

    terminal.format_as(format)
    workdirs = os.path.abspath(workdirs)
    entries = [run_at(path) for path in below(workdirs)]
    terminal.answer(
        "runs",
        lambda: [workdir_document(entry) for entry in entries],
        render_run.runs(entries, workdirs),
        None if format == "jsonl" else lambda: [run_row(entry) for entry in entries],
    )
    return None


def below(root: str) -> list[str]:
    """Return the directories below `root`, and `root` itself, that hold a journal; by name, which
    begins with the time. Moves that `rebalance` made lie one folder deeper.
    """
    candidates = [root]
    for path in _directories(root):
        candidates.append(path)
        if os.path.isdir(os.path.join(path, "moves")):
            candidates += _directories(os.path.join(path, "runs"))
    return [path for path in candidates if os.path.exists(os.path.join(path, "journal"))]


def workdir_named(text: str, workdirs: str) -> str:
    """Return the workdir of the run of this name below `workdirs`; `text` itself if it is a path,
    or no run is called so.

    Raises:
        SpecError: several runs are called so.
        NoSuchRun: none is, and it is like the name of one.
    """
    if os.sep in text or os.path.lexists(text):
        return text
    places = {os.path.realpath(path): path for path in below(workdirs)}
    named = [real for real, path in places.items() if os.path.basename(path) == text]
    if not named:
        for real in places:
            facts = run_at(real).facts
            if facts is not None and facts.report.run == text:
                named.append(real)
    if not named and "://" not in text:
        names = {os.path.basename(path) for path in places.values()}
        from stateshift.suggestion import closest, did_you_mean

        meant = closest(text, names)
        if meant is not None:
            fact = f"no run below {workdirs} is called {text}{did_you_mean(text, names)}"
            raise NoSuchRun(fact, hint="stateshift runs lists the runs and their workdirs")
    if len(named) > 1:
        fact = f"{len(named)} runs are called {text}: {', '.join(named)}"
        raise SpecError.of("WORKDIR", fact, hint=f"name the folder of one: {quote(named[0])}")
    return named[0] if named else text


def _directories(root: str) -> list[str]:
    """Return the directories in a directory, by name; none where it is not there."""
    if not os.path.isdir(root):
        return []
    with os.scandir(root) as entries:
        return sorted(entry.path for entry in entries if entry.is_dir())


def run_at(path: str) -> ListedRun:
    """Return a workdir as a line of `runs`: of a link, the folder that is meant."""
    from stateshift import migration
    from stateshift.documents.run import ListedRun, RunFacts
    from stateshift.workdir import Workdir

    name = os.path.basename(os.path.abspath(path))
    if os.path.islink(path):
        path = os.path.realpath(path)
    workdir = Workdir(path)
    try:
        held = workdir.held
        page = None if held else workdir.page_told
        report, now = migration.status(workdir), time.time()
        return ListedRun(name, path, RunFacts(report, path, held, page=page, now=now))
    except StateshiftError as error:
        return ListedRun(name, path, None, error.fact)
