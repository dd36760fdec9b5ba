"""The output of the program: results on stdout, everything else on stderr; with `--json` one
document and no more.

A terminal with colours gets rich; everything else (a pipe, a file, `NO_COLOR`, `TERM=dumb`) the
same words in plain lines. One Terminal is made by `main` and handed to every command; what a
command asks of the outside world (`adapters`) comes from here too, so that a test can put in-memory
twins there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    import threading

    import typer

    from stateshift.cli.views.text import Block
    from stateshift.fleet.crew import OpenFleet
    from stateshift.journal import Progress
    from stateshift.migration import Adapters
    from stateshift.migration.adapters import Gauge
    from stateshift.specification.profile import Profile
    from stateshift.storage.protocol import Storage
    from stateshift.workdir import Workdir
    from stateshift.world import Meter


def drop(stream: TextIO) -> None:
    """Drop what a stream cannot write: at exit Python would try again, and set its own code."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # somebody who calls us from Python caught it
        return
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, number)
    os.close(sink)


def open_streams() -> None:
    """Open closed streams (`2>&-`) on nothing: else a file of ours would get their number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


class Unfailing:
    """A stream that is no reason to fail: what cannot be written to it is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            drop(self._stream)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            drop(self._stream)


class OutputError(OSError):
    """The output, which is stdout, cannot be written."""


class Output:
    """The output: a write that fails is an OutputError; a pipe that nobody reads stays one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._stream, name)
        return Output(value) if name == "buffer" else value

    def write(self, content: str | bytes) -> int:
        with _as_output_error():
            return int(self._stream.write(content))

    def flush(self) -> None:
        with _as_output_error():
            self._stream.flush()


@contextmanager
def _as_output_error() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(error.errno, error.strerror or str(error)) from error


@contextmanager
def output_errors() -> Iterator[None]:
    """Tell apart, while this lasts, what fails because stdout cannot be written."""
    with redirect_stdout(cast("TextIO", Output(sys.stdout))):
        yield


_NOT_RUNNABLE, _NOT_FOUND = 126, 127
TABLES = ("csv", "jsonl")
FORMATS = ("text", "markdown", *TABLES)


@dataclass
class Terminal:
    """The terminal of one command: its output, its flags, and the adapters to the outside."""

    adapters_given: Adapters | None = None
    json: bool = False
    format: str = "text"
    rows: str = ""  # the key of the document whose list is the table; "": the document is the list
    verbose: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    arguments: tuple[str, ...] = ()
    profile: Profile | None = None
    is_paged: bool = True  # whether a pager may show the result; nobody may wait for a run's
    signed_by: tuple[str, ...] = ()  # the keys that the command asks for
    slow: threading.Timer | None = None  # says that a command still reads, until it says anything

    @classmethod
    def of(cls, context: typer.Context, json: bool, verbosity: int = 0) -> Terminal:
        """Return the terminal that `main` made, set to what this command was asked for."""
        terminal: Terminal = context.obj
        terminal.json, terminal.verbose = json, verbosity > 0
        return terminal

    def again(self, *more: str) -> str:
        """Return the command as it was given, and `more` flags that it has not; to be pasted."""
        import shlex

        given = list(self.arguments)
        end = given.index("--") if "--" in given else len(given)
        flags, arguments = given[:end], given[end:]  # behind -- everything is an argument
        missing = [flag for flag in more if flag not in flags]
        return shlex.join(["stateshift", *flags, *missing, *arguments])

    # -- speaking

    def format_as(self, name: str, rows: str = "") -> None:
        """Print the result in this format; the table that it is, is the document's list `rows`.

        Raises:
            SpecError: there is no such format, or JSON is asked for as well.
        """
        from stateshift.cli.shell.options import choice
        from stateshift.errors import SpecError

        self.format, self.rows = choice("--format", name, FORMATS), rows
        if self.format != "text" and self.json:
            message = f"{self.format} is not the JSON document"
            raise SpecError.of("--format", message, hint="leave out --json")

    def show(self, blocks: Iterable[Block]) -> None:
        """Print the result, for a person or a pull request."""
        if self.format == "markdown":
            from stateshift.cli.views.text import markdown_text

            self._write(markdown_text(blocks), sys.stdout)
        else:
            self._print(blocks, sys.stdout)

    def _show_rows(self, value: object) -> None:
        """Print the table of a document, for a spreadsheet or a program."""
        from stateshift.cli.views.text import csv_text, jsonl_text

        rows: Any = [value] if isinstance(value, Mapping) and not self.rows else value
        heads: tuple[str, ...] = ()
        if self.rows:
            document: Any = value
            rows = document[self.rows]
            if "columns" in document:  # an answer without a row has them, too
                heads = tuple(column["name"] for column in document["columns"])
        text = csv_text(rows, heads) if self.format == "csv" else jsonl_text(rows)
        if not text:
            self.say("the table has no rows")
        self.write(text.encode("utf-8", "backslashreplace"))  # whatever the locale says

    @property
    def pager(self) -> str | None:
        """The command that shows what is longer than the screen, where somebody can leave it."""
        import threading
        from shutil import which

        there = sys.stdin.isatty() and sys.stdout.isatty() and self.is_paged
        if threading.current_thread() is not threading.main_thread():
            return None  # Ctrl-C, while it shows, could not be left to it
        if not there or self.environment.get("CI") or self.environment.get("TERM") == "dumb":
            return None
        command = self.environment.get("STATESHIFT_PAGER", self.environment.get("PAGER"))
        if command is None:
            return which("less") and "less"
        return None if command in ("", "cat") else command

    def _page(self, blocks: Iterable[Block], pager: str) -> None:
        """Print the result, in a pager if it is longer than the screen."""
        import io
        import signal
        import subprocess
        from shutil import get_terminal_size

        printed, (columns, lines) = io.StringIO(), get_terminal_size()
        if self.colours(sys.stdout):
            self._print_coloured(blocks, printed, columns)
        else:
            self._print(blocks, printed)
        text = printed.getvalue()
        if text.count("\n") < lines:
            self._write(text, sys.stdout)
            return
        given = {"LESS": "FRX", "LV": "-c", **os.environ}
        content = text.encode(sys.stdout.encoding or "ascii", "backslashreplace")
        before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the pager's
        try:
            process = subprocess.Popen(pager, shell=True, stdin=subprocess.PIPE, env=given)
            process.communicate(content)
        finally:
            signal.signal(signal.SIGINT, before)
        if process.returncode in (_NOT_RUNNABLE, _NOT_FOUND):  # as a shell says it
            self._write(text, sys.stdout)

    def talk(self, blocks: Iterable[Block]) -> None:
        """Print what is not the result. If nobody can read it, the work continues."""
        self.hush()
        self._print(blocks, cast("TextIO", Unfailing(sys.stderr)))

    def hush(self) -> None:
        """Leave it unsaid that the command still reads: it speaks for itself, or asks."""
        if self.slow is not None:
            self.slow.cancel()

    def say(self, line: str) -> None:
        """Print a line that is not the result."""
        from stateshift.cli.views.text import Line

        self.talk([Line(line)])

    def document(self, name: str, value: object, indent: int | None = None) -> None:
        """Print the one JSON document; `name` is its schema's (`views/documents.py`)."""
        import json

        self._copy(name, value)
        indent = 2 if sys.stdout.isatty() else indent
        # A file's name may hold bytes that are no text; JSON says them as escapes, and gives them
        # back.
        text = json.dumps(value, indent=indent, ensure_ascii=False)
        if not _encodable(text, sys.stdout):
            text = json.dumps(value, indent=indent)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def answer(
        self,
        name: str,
        document: Callable[[], object],
        blocks: Iterable[Block],
        rows: Callable[[], object] | None = None,
        beside: Iterable[Block] = (),
    ) -> None:
        """Print the result: its document with --json, else its blocks; only one is made. `rows` are
        a table's, where those of the document hold more than cells; what no row tells is `beside`.
        """
        self.hush()
        if self.json:
            self.document(name, document())
        elif self.format in TABLES:
            self.talk(beside)
            if rows is not None:
                self.rows = ""
            self._show_rows((rows or document)())
        elif (pager := self.pager) and self.format == "text":
            self._page(blocks, pager)
        else:
            self.show(blocks)

    def answer_value(
        self, name: str, shape: type, value: object, blocks: Iterable[Block], **given: object
    ) -> None:
        """Print a value: the document of this shape, with the keys `given`, or the blocks."""
        from stateshift.documents.shape import document_of

        self.answer(name, lambda: document_of(shape, value, **given), blocks)

    def _copy(self, name: str, value: object) -> None:
        """Append the document to the file that STATESHIFT_DOCUMENTS names: tests check it there by
        its schema. One write a document, so that several processes can share the file.
        """
        copies = os.environ.get("STATESHIFT_DOCUMENTS")
        if not copies:
            return
        import json

        line = json.dumps({"name": name, "document": value}) + "\n"
        file = os.open(copies, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line.encode("ascii"))
        finally:
            os.close(file)

    def write(self, content: bytes) -> None:
        """Write a part of a result that is no document but a stream of bytes."""
        self.hush()
        raw = getattr(sys.stdout, "buffer", None)
        if raw is None:  # somebody who calls us from Python caught stdout as text
            sys.stdout.write(content.decode("utf-8"))
            return
        raw.write(content)
        raw.flush()

    def _print(self, blocks: Iterable[Block], stream: TextIO) -> None:
        from stateshift.cli.views.text import plain_text

        if not self.colours(stream):
            self._write(plain_text(blocks), stream)
            return
        self._print_coloured(blocks, stream)

    def _print_coloured(
        self, blocks: Iterable[Block], stream: TextIO, columns: int | None = None
    ) -> None:
        """Print in colours; for a terminal so wide, if the stream itself is none."""
        from rich.console import Console

        from stateshift.cli.views.text import rich_blocks

        is_for_terminal = True if columns is not None else None
        console = Console(
            file=stream,
            highlight=False,
            markup=False,
            emoji=False,
            width=columns,
            force_terminal=is_for_terminal,
        )
        for renderable in rich_blocks(blocks):
            console.print(renderable, soft_wrap=bool(getattr(renderable, "no_wrap", False)))

    def _write(self, text: str, stream: TextIO) -> None:
        """Write text, with escapes for what the stream cannot show."""
        if not _encodable(text, stream):
            encoding = stream.encoding or "ascii"
            text = text.encode(encoding, "backslashreplace").decode(encoding)
        stream.write(text)
        stream.flush()

    # -- who listens

    def colours(self, stream: TextIO) -> bool:
        """Return whether the stream shows colours."""
        plain = self.environment.get("NO_COLOR") or self.environment.get("TERM") == "dumb"
        return stream.isatty() and not plain

    @property
    def someone_there(self) -> bool:
        """Whether a question would be seen and could be answered."""
        return sys.stdin.isatty() and sys.stderr.isatty()

    # -- the outside

    def opening(self) -> Callable[[str], Storage]:
        """Return the function that opens locations for commands that only read."""
        if self.adapters_given is not None:
            return self.adapters_given.open_storage
        from stateshift.look import open_patiently

        return open_patiently

    def open_fleet(self) -> OpenFleet:
        """Return the function that opens a fleet."""
        if self.adapters_given is not None:
            return self.adapters_given.open_fleet
        from stateshift.migration.adapters import open_fleet

        return open_fleet

    def adapters(self, meter: Meter | None = None, stop: threading.Event | None = None) -> Adapters:
        """Return the adapters to the outside: the real ones, unless a test gave others."""
        import threading
        from dataclasses import replace

        from stateshift.api.profiles import policies_in_use
        from stateshift.migration.adapters import invocation, real_adapters
        from stateshift.world import Unwatched

        meter, stop = meter or Unwatched(), stop or threading.Event()
        if self.adapters_given is not None:
            reached = replace(self.adapters_given, meter=meter, stop=stop)
        else:
            reached = real_adapters(meter=meter, stop=stop)

        def measure(
            workdir: Workdir, progress: Progress, at_work: bool, now: float
        ) -> Iterator[Gauge]:
            """Yield the metrics of a run. Only one that exports them waits for the import."""
            from stateshift.api.runs import measure_run

            yield from measure_run(workdir, progress, at_work, now)

        by = invocation(reached.host, ("stateshift", *self.arguments))
        reached = replace(reached, by=by, signed_by=self.signed_by, measure=measure)
        return replace(reached, policies=policies_in_use)


def _encodable(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
