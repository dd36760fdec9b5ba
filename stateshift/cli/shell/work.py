"""The work of apply, resume and rollback: it is watched, can be stopped, and ends in a report.

The first Ctrl-C (or SIGTERM) lets the current write finish, the second exits at once; either way
the run can be resumed. The command for it is printed when the journal holds what was begun, before
the first effect.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stateshift import migration
from stateshift.api.runs import name_the_run
from stateshift.cli.shell.failing import tell, unwritten
from stateshift.cli.shell.progress import watching
from stateshift.cli.shell.terminal import OutputError, Terminal
from stateshift.cli.views import run_html as render_html
from stateshift.cli.views import run_text as render_run
from stateshift.cli.views.text import Line
from stateshift.documents.run import EndedRunDocument, RunFacts, failed_run
from stateshift.errors import (
    JOB_DOWN,
    FormatError,
    Interrupted,
    LastCopyError,
    NotConfirmed,
    PlanError,
    SpecError,
    StalePlan,
    StateshiftError,
    StorageError,
    VerifyError,
)
from stateshift.storage.locations import redact
from stateshift.world import Unwatched

if TYPE_CHECKING:
    from stateshift.fleet.crew import Crew
    from stateshift.migration import Adapters
    from stateshift.migration.processes import Processes
    from stateshift.report import Report
    from stateshift.specification import Spec
    from stateshift.workdir import Workdir

# Errors that a second attempt would meet again.
STAYS = (FormatError, PlanError, VerifyError)

# Does the work of a run, and calls the function once the journal holds what is being done.
Work = Callable[["Adapters", Callable[[], None]], "Report"]


def carry_out(
    terminal: Terminal,
    workdir: Workdir,
    work: Work,
    spec: Spec | None = None,
    fleet: str | None = None,
) -> int:
    """Do the work and say how it went; return the exit code. A `fleet` must reach what `spec`
    names. How to go on is said once the journal holds something: `resume` would do something else
    before.
    """
    terminal.is_paged = False  # whoever began a run may have gone away
    path, stop = str(workdir.path), threading.Event()
    resume = render_run.command("resume", path)

    def begun() -> None:
        terminal.talk(render_run.resume_commands(path))

    try:
        with watching(terminal) as meter, stoppable_before(stop, resume):
            adapters = terminal.adapters(meter, stop)
            enlisting: AbstractContextManager[Adapters] = nullcontext(adapters)
            if spec is not None:
                enlisting = migration.open_fleet(adapters, fleet, spec, workdir)
            with enlisting as enlisted:
                report = work(enlisted, begun)
    except StateshiftError as error:
        return _failed(terminal, workdir, error)
    except BaseException:
        if workdir.exists:  # else nothing was begun that could be resumed
            terminal.talk(render_run.resume_commands(path))
        raise
    facts = RunFacts(report, path, page=_left_page(terminal, workdir, report))
    down = (report.down or report.may_be_down) if report.state == "rolled-back" else ""
    if down:
        way_out = "start it where it was, at the place that the report names, if it does not run; "
        way_out += f"once it runs: {render_run.command('rollback', path)} --runs-again"
        terminal.talk([Line(redact(down), "bad"), Line(f"hint: {way_out}")])
    try:
        terminal.answer_value("report", EndedRunDocument, facts, render_run.report(facts))
    except OutputError as error:
        status = render_run.command("status", path)
        way_out = f"the run is {report.state}, and `{status}` shows its report"
        return tell(unwritten(error, way_out), terminal)
    if down:
        return JOB_DOWN
    if report.state == "finished" and not terminal.json:
        terminal.talk(render_run.next_steps(facts, spec or migration.spec_of(workdir)))
    return 0


def _failed(terminal: Terminal, workdir: Workdir, error: StateshiftError) -> int:
    """Report a run that stopped on the way as far as it came, then the reason."""
    path = str(workdir.path)
    if not workdir.exists or migration.progress_of(workdir).state == "new":
        return tell(name_the_run(error, None), terminal)
    error = name_the_run(error, path)
    report, held = migration.status(workdir), workdir.held
    # A process that is at work leaves a page itself.
    page = None if held else _left_page(terminal, workdir, report)
    facts = RunFacts(report, path, held, page=page)
    if not terminal.json:
        try:
            terminal.show(render_run.report(facts))
        except OutputError as unseen:  # why it failed comes first
            shown_by = render_run.command("status", path)
            terminal.say(f"{unwritten(unseen).fact}; `{shown_by}` shows the report")
    code = tell(error, terminal, failed_run(facts, error))
    if not held and report.state in ("failed", "interrupted", "running"):
        terminal.talk(_way_out(error, path))
    return code


def _way_out(error: StateshiftError, path: str) -> Iterator[Line]:
    """Yield the command that continues, if the error's hint did not name it."""
    resume, rollback = render_run.command("resume", path), render_run.command("rollback", path)
    hint = error.hint or ""
    is_said = resume in hint or rollback in hint
    fails_again = isinstance(error, STAYS) or "rollback" in hint
    if is_said or isinstance(error, LastCopyError):
        return
    if isinstance(error, StalePlan):  # where the source is lost, the copy is the last one
        yield Line(f"where it stands: {render_run.command('status', path)}")
        return
    if fails_again:
        yield Line(f"take it back with: {rollback}")
    else:
        yield Line(f"go on with: {resume}")


def _left_page(terminal: Terminal, workdir: Workdir, report: Report) -> str | None:
    """Write the report's page; return where it is. A failure is said, and changes nothing else."""
    try:
        return str(workdir.write_page(render_html.page(RunFacts(report, str(workdir.path)))))
    except (StorageError, OSError) as error:
        terminal.say(f"there is no report.html: {error}")
        return None


@contextmanager
def stoppable_before(stop: threading.Event, resume: str) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask for a stop; the second one ends the process. `resume` goes on."""

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            back = resume.replace(" resume ", " rollback ", 1)
            _write(f"\nstopped at once; go on with: {resume}; or take it back: {back}\n")
            os._exit(Interrupted.exit_code)
        stop.set()
        _write("\nstopping after the current write; once more to stop at once\n")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(text: str) -> None:
    """Write to stderr's file, as the stream may be in a write. Failing must not hinder a stop."""
    with suppress(OSError):
        os.write(2, text.encode())


def confirm(terminal: Terminal, question: str, yes: bool) -> None:
    """Go on only if somebody said so: here, or by --yes."""
    if yes:
        return
    if not terminal.someone_there:
        message = "needed without a terminal: nobody can answer"
        raise SpecError.of("--yes", message, hint=terminal.again("--yes"))
    import typer

    terminal.hush()
    if not typer.confirm(question, err=True):
        raise NotConfirmed("not confirmed; nothing was done")


class _Speaking(Unwatched):
    """A meter that counts nothing, and says what has to be said."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def say(self, line: str) -> None:
        from stateshift.storage.locations import redact

        self._terminal.say(redact(line))


@contextmanager
def fleet_for(
    terminal: Terminal, master: str | None, locations_read: Sequence[str]
) -> Iterator[Crew | None]:
    """Yield the crew of a master for as long as this lasts; None where none is named."""
    if master is None:
        yield None
        return
    from stateshift.fleet.crew import Application, open_crew
    from stateshift.storage import locations

    handle, log = tempfile.mkstemp(prefix="stateshift-fleet-", suffix=".log")
    os.close(handle)
    absolute = [locations.normal(each, os.getcwd()) for each in locations_read]
    application = Application(master, Path(log), _Speaking(terminal), threading.Event())
    with open_crew(terminal.open_fleet(), application, absolute) as crew:
        yield crew
    os.unlink(log)


@contextmanager
def readers_for(
    terminal: Terminal,
    master: str | None,
    locations_read: Sequence[str],
    parallel: int | None = None,
) -> Iterator[Crew | Processes | None]:
    """Yield the processes that share the reading: those of a Spark master, or of this machine."""
    if master is not None:
        with fleet_for(terminal, master, locations_read) as crew:
            yield crew
        return
    from stateshift.migration import open_processes
    from stateshift.storage import locations

    places = [locations.normal(each, os.getcwd()) for each in locations_read]
    with open_processes(terminal.adapters(_Speaking(terminal)), places, parallel) as processes:
        yield processes
