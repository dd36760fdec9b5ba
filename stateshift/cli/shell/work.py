"""What apply, resume and rollback have in common: they are watched, can be stopped, and end in a
report.

The first Ctrl-C (or SIGTERM) lets the current write finish, the second exits at once; either way
the run can be resumed. The command for it is printed when the journal holds what was begun, before
the first effect.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from stateshift import migration
from stateshift.api.runs import name_the_run
from stateshift.cli.shell.failing import tell
from stateshift.cli.shell.progress import watching
from stateshift.cli.shell.terminal import Terminal
from stateshift.cli.views import run_html as render_html
from stateshift.cli.views import run_json
from stateshift.cli.views import run_text as render_run
from stateshift.cli.views.text import Line
from stateshift.errors import (
    Complaint,
    FormatError,
    Interrupted,
    PlanError,
    SpecError,
    StateshiftError,
    StorageError,
    VerifyError,
)

if TYPE_CHECKING:
    from stateshift.migration import Adapters
    from stateshift.report import Report
    from stateshift.specification import Spec
    from stateshift.workdir import Workdir

# What a second attempt would find again.
STAYS = (FormatError, PlanError, VerifyError)


def carry_out(
    terminal: Terminal,
    workdir: Workdir,
    work: Callable[[Adapters, Callable[[], None]], Report],
    spec: Spec | None = None,
    fleet: str | None = None,
) -> int:
    """Do the work and tell how it went; the exit code. With a `fleet`, what `spec` names is what it
    must reach.

    How to go on is said once the journal holds what is being done: before that, `resume` would do
    something else.
    """
    path, stop = str(workdir.path), threading.Event()

    def begun() -> None:
        terminal.talk(render_run.resume_commands(path))

    try:
        with watching(terminal) as meter, stoppable(stop, path):
            adapters = terminal.adapters(meter, stop)
            with _behind(adapters, spec, fleet, workdir) as manned:
                told = work(manned, begun)
    except StateshiftError as error:
        return _failed(terminal, workdir, error)
    except BaseException:
        if workdir.exists:  # else nothing was begun that could be resumed
            terminal.talk(render_run.resume_commands(path))
        raise
    page = _left_page(terminal, workdir, told)
    if terminal.json:
        terminal.document("report", run_json.ended_run(told, path, page))
    else:
        terminal.show(render_run.report(told, path, page=page))
    return 0


def _behind(
    adapters: Adapters, spec: Spec | None, fleet: str | None, workdir: Workdir
) -> AbstractContextManager[Adapters]:
    return (
        nullcontext(adapters)
        if spec is None
        else migration.enlisted(adapters, fleet, spec, workdir)
    )


def _failed(terminal: Terminal, workdir: Workdir, error: StateshiftError) -> int:
    """A run that stopped on the way is reported as far as it came, and then the reason is told."""
    path = str(workdir.path)
    begun = workdir.exists and migration.progress_of(workdir).state != "new"
    error = name_the_run(error, path if begun else None)
    if not begun:
        return tell(error, terminal)
    told, held = migration.status(workdir), workdir.held
    page = (
        None if held else _left_page(terminal, workdir, told)
    )  # else the process at work leaves one
    if not terminal.json:
        terminal.show(render_run.report(told, path, held, page))
    code = tell(error, terminal, run_json.failed_run(told, path, page, held, error))
    resume, back, hint = (
        render_run.command("resume", path),
        render_run.command("rollback", path),
        error.hint or "",
    )
    if (
        not held
        and told.state in ("failed", "interrupted", "running")
        and resume not in hint
        and back not in hint
    ):
        stays = isinstance(error, STAYS) or "rollback" in hint
        terminal.talk([Line(f"take it back with: {back}" if stays else f"go on with: {resume}")])
    return code


def _left_page(terminal: Terminal, workdir: Workdir, told: Report) -> str | None:
    """Where the report's page is. That it could not be written is said, for whoever looks for it
    later finds the reason in the log; it changes nothing of how the run ended.
    """
    try:
        return str(workdir.write_page(render_html.page(told)))
    except (StorageError, OSError) as error:
        terminal.say(f"there is no report.html: {error}")
        return None


@contextmanager
def stoppable(stop: threading.Event, workdir: str) -> Iterator[None]:
    """While this lasts, Ctrl-C and SIGTERM ask the run to stop; asked twice, the process ends
    where it is.
    """
    resume = render_run.command("resume", workdir)

    def ask(number: int, frame: object) -> None:
        # os.write: the streams may be in the middle of a write of their own.
        if stop.is_set():
            os.write(2, f"\nstopped at once; go on with: {resume}\n".encode())
            os._exit(Interrupted.exit_code)
        stop.set()
        os.write(2, b"\nstopping after the current write; once more to stop at once\n")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def confirm(terminal: Terminal, question: str, yes: bool) -> None:
    """Go on only if somebody said so: here, or by --yes."""
    if yes:
        return
    if not terminal.someone_there:
        raise SpecError(
            (Complaint("--yes", "needed without a terminal: nobody can answer"),),
            hint=terminal.again("--yes"),
        )
    import typer

    if not typer.confirm(question, err=True):
        raise Interrupted("not confirmed; nothing was done")
