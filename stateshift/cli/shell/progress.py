"""Long work, watched: a bar on a terminal, a line now and then everywhere else. On stderr, always.

    Tally    what was done of the current phase: counts, rate, time left. A value; knows no terminal
    Lines    a line at each phase's beginning and end, and every few seconds between
    Bar      one bar that is drawn over and over (rich)

Both are a Meter: several threads report to it at once; it is never asked, and never the reason for
a failure. `on_stderr` shows log records there as well: the output of `-v` and `-vv`.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, TypeVar, cast

from stateshift.cli.shell.terminal import Unfailing
from stateshift.cli.views.text import lines_of
from stateshift.cli.views.units import many, number, size, span
from stateshift.logs import LineFormatter, listen
from stateshift.storage.locations import redact

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from stateshift.cli.shell.terminal import Terminal
    from stateshift.world import Meter

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_CHANGES = 1.0
SECONDS_BEFORE_WORDS = 2.0

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Tally:
    """One phase, as far as it is done. Times are a monotonic clock's."""

    job: str
    phase: str
    files: int
    bytes: int
    began: float
    files_done: int = 0
    bytes_done: int = 0

    def plus(self, files: int, bytes: int) -> Tally:
        return replace(self, files_done=self.files_done + files, bytes_done=self.bytes_done + bytes)

    @property
    def part(self) -> float:
        """The share that is done, by bytes (if there are any) or by files: the lesser one."""
        amounts = (self.files_done, self.files), (self.bytes_done, self.bytes)
        parts = [done / whole for done, whole in amounts if whole]
        return min(1.0, *parts) if parts else 0.0

    def rate(self, now: float) -> float:
        """Return the bytes a second since the phase began."""
        return self.bytes_done / max(now - self.began, 1e-3)

    def seconds_left(self, now: float) -> float | None:
        """Return the time left of the phase; None if it is too early to say."""
        if self.part == 0.0 or now - self.began < 1.0:
            return None
        return (now - self.began) * (1 - self.part) / self.part

    def words(self, now: float) -> str:
        """Return `copy: 1,200 of 3,000 files, 120 MiB of 1.2 GiB, 12 MiB/s, 1 min 30 s left`."""
        parts = []
        if self.files:
            parts.append(f"{number(self.files_done)} of {many(self.files, 'file')}")
        if self.bytes:
            parts.append(f"{size(self.bytes_done)} of {size(self.bytes)}")
            parts.append(f"{size(self.rate(now))}/s")
        left = self.seconds_left(now)
        if left is not None:
            parts.append(f"{span(left)} left")
        return f"{self.phase}: {', '.join(parts) or span(now - self.began)}"


class Lines:
    """Lines for logs: nothing is drawn over."""

    def __init__(
        self,
        write: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
        verbose: bool = False,
    ) -> None:
        self._write, self._now, self._verbose = write, now, verbose
        self._tally: Tally | None = None
        self._last = 0.0
        self._lock = threading.Lock()

    def phase(self, job: str, name: str, files: int, bytes: int) -> None:
        with self._lock:
            self._end()
            self._tally = Tally(job, name, files, bytes, self._now())
            self._last = self._tally.began
            amount = _counted(files, bytes)
            self._write(f"{job}: {name} ({amount})" if amount else f"{job}: {name}")

    def step(self, name: str, description: str) -> None:
        """Tell a step: in a phase without an amount (a job that is waited for), always."""
        with self._lock:
            phase = self._tally
            if self._verbose:
                self._write(f"  {name}: {redact(description)}")
            elif phase is not None and not phase.files and not phase.bytes:
                self._write(f"{phase.job}: {redact(description)}")

    def done(self, files: int, bytes: int) -> None:
        with self._lock:
            if self._tally is None:
                return
            self._tally, now = self._tally.plus(files, bytes), self._now()
            if now - self._last >= SECONDS_BETWEEN_LINES:
                self._last = now
                self._write(f"{self._tally.job}: {self._tally.words(now)}")

    def say(self, line: str) -> None:
        with self._lock:
            self._write(redact(line))

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        """End the phase; one that took a while says how long."""
        if self._tally is None:
            return
        took = self._now() - self._tally.began
        if took >= SECONDS_BETWEEN_LINES:
            done = _counted(self._tally.files_done, self._tally.bytes_done)
            amount = f"{done} in " if done else ""
            self._write(f"{self._tally.job}: {self._tally.phase} took {amount}{span(took)}")
        self._tally = None


def _counted(files: int, bytes: int) -> str:
    """Return `3 files, 1.5 MiB`; what is zero is left out."""
    amounts = []
    if files:
        amounts.append(many(files, "file"))
    if bytes:
        amounts.append(size(bytes))
    return ", ".join(amounts)


class Bar:
    """A bar for a terminal: the phase, how far, how fast, and what is being done."""

    def __init__(self, verbose: bool = False) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        self._verbose = verbose
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[job]}", style="bold"),
            BarColumn(bar_width=24, complete_style="green", pulse_style="green"),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console(),
            transient=True,
            refresh_per_second=4,
            get_time=time.monotonic,
        )
        self._task: TaskID | None = None
        self._tally: Tally | None = None
        self._lock = threading.Lock()
        self._progress.start()

    def phase(self, job: str, name: str, files: int, bytes: int) -> None:
        with self._lock:
            self._tally = Tally(job, name, files, bytes, time.monotonic())
            if self._task is not None:
                self._progress.remove_task(self._task)
            total = 1.0 if files or bytes else None
            self._task = self._progress.add_task(_escaped(name), total=total, job=_escaped(job))
            self._draw()

    def step(self, name: str, description: str) -> None:
        with self._lock:
            if self._verbose:
                self._print(f"  {name}: {redact(description)}")
            if self._tally is not None and not self._tally.files and not self._tally.bytes:
                # Nothing to count (a job that is started, or waited for): say what it is instead.
                self._update(redact(description))

    def done(self, files: int, bytes: int) -> None:
        with self._lock:
            if self._tally is not None:
                self._tally = self._tally.plus(files, bytes)
                self._draw()

    def say(self, line: str) -> None:
        self._print(redact(line))

    def _print(self, text: str) -> None:
        self._progress.console.print("\n".join(lines_of(text)), soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()

    def _draw(self) -> None:
        assert self._tally is not None
        self._update(self._tally.words(time.monotonic()), completed=self._tally.part)

    def _update(self, words: str, completed: float | None = None) -> None:
        assert self._task is not None, "a phase has begun"
        self._progress.update(self._task, completed=completed, description=_escaped(words))


def _escaped(text: str) -> str:
    """Return a column's text without markup for rich: a job may be called `[bold]`."""
    from rich.markup import escape

    return escape(text)


def console() -> Console:
    """Return the console on stderr; it draws nothing once that cannot be written any more."""
    from rich.console import Console

    stream = cast("IO[str]", Unfailing(sys.stderr))
    return Console(file=stream, highlight=False, markup=False, emoji=False)


@contextmanager
def tell_changes(
    terminal: Terminal, words: Callable[[V], str], stage: Callable[[V], object]
) -> Iterator[Callable[[V], None]]:
    """Show `words` of something that changes: at a terminal over the last line, elsewhere now and
    then. A new `stage` is told at once, and None not at all.
    """
    if draws_bar(terminal):
        with console().status("") as status:
            yield lambda value: status.update(words(value))
        return
    last, last_stage, told_at = "", cast(object, None), 0.0

    def tell(value: V) -> None:
        nonlocal last, last_stage, told_at
        line, its_stage, now = words(value), stage(value), time.monotonic()
        is_soon = its_stage == last_stage and now - told_at < SECONDS_BETWEEN_CHANGES
        if its_stage is None or line == last or is_soon:
            return
        last, last_stage, told_at = line, its_stage, now
        terminal.say(line)

    yield tell


@contextmanager
def tell_if_slow(terminal: Terminal, words: str) -> Iterator[None]:
    """Say `words`, once, if this lasts for some seconds without a word and somebody watches or
    asked by -v.
    """
    if not (terminal.verbose or sys.stderr.isatty()):
        yield
        return
    timer = threading.Timer(SECONDS_BEFORE_WORDS, terminal.say, (words,))
    timer.daemon = True
    terminal.slow = timer
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def draws_bar(terminal: Terminal) -> bool:
    """Return whether a bar may be drawn: on a terminal with colours that is not a CI step's."""
    return terminal.colours(sys.stderr) and not terminal.environment.get("CI")


@contextmanager
def watching(terminal: Terminal) -> Iterator[Meter]:
    """Yield the meter of a run; close it however the run ends."""
    terminal.hush()
    watch: Lines | Bar = Lines(terminal.say, verbose=terminal.verbose)
    if draws_bar(terminal):
        watch = Bar(terminal.verbose)
    try:
        yield watch
    finally:
        watch.close()


# ---- log records


class StderrHandler(logging.Handler):
    """Lines on whatever `sys.stderr` is when they are written: a progress bar may stand there."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.setFormatter(LineFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; that nobody reads it any more is no failure of what it tells."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return


@contextmanager
def on_stderr(verbosity: int) -> Iterator[None]:
    """Show INFO while this lasts; with a `verbosity` of two and more, DEBUG as well."""
    level = logging.INFO if verbosity == 1 else logging.DEBUG
    with listen(StderrHandler(level)):
        yield
