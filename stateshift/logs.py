"""Log records: where they go, and that no secret goes with them.

Every module that talks to the outside logs through a logger of its own below "stateshift". The
levels:

    WARNING  a request that is repeated: which attempt, how long it waits, why
    INFO     runs, waves, phases and steps: begin, end, evidence; jobs submitted and stopped; locks
    DEBUG    requests, commands, operations of storages

A run keeps a log at DEBUG (`keep_log`); `-v` and `-vv` of every command print INFO and DEBUG. A
program that embeds this package adds handlers of its own; it hears DEBUG only if it asks for it,
also while a run keeps its own log.

A line is one record. Secrets are replaced by `***`, and characters that could move a terminal's
cursor are escaped.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from stateshift import leave_logging_to_the_program
from stateshift.clusters.redaction import redact, redact_words, secret_values
from stateshift.private_files import open_private
from stateshift.storage import locations

NAME = "stateshift"
BYTES_MAX = 16 * 1024 * 1024

leave_logging_to_the_program()

# A text with a secret has one of these. Most have none, and are not looked at any closer.
_SUSPICIOUS = re.compile(
    r"pass|secret|token|credential|key|sig|delegation|bearer|basic|curl|pwd|@", re.IGNORECASE
)


def clean(text: str) -> str:
    """Return the text without the secrets that can be told from their names or their form."""
    if not _SUSPICIOUS.search(text):
        return text
    return " ".join(redact_words(locations.redact(redact(text)).split(" ")))


class LineFormatter(logging.Formatter):
    """Lines such as `2026-03-01T12:00:00.123Z INFO stateshift.lock: text`."""

    def __init__(self) -> None:
        super().__init__()
        # Read once: a program's own variables do not change while it logs.
        self._values = secret_values(os.environ)
        self._second = (0, "")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, and its traceback, if it has one, below."""
        second, to_the_second = self._second
        if second != int(record.created):  # worked out once for all records of a second
            second = int(record.created)
            to_the_second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            self._second = (second, to_the_second)
        when = f"{to_the_second}.{int(record.msecs):03}Z"
        text = self._clean(record.getMessage())
        if not text.isprintable():  # a file may have a name that holds a line's end
            characters = list(text)
            for place, character in enumerate(characters):
                if not character.isprintable():
                    characters[place] = character.encode("unicode_escape").decode("ascii")
            text = "".join(characters)
        line = f"{when} {record.levelname} {record.name}: {text}"
        if record.exc_info:
            line = f"{line}\n{self._clean(self.formatException(record.exc_info))}"
        return line

    def _clean(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, "***")
        return clean(text)


class RunLogHandler(logging.Handler):
    """The log of a run: a file that only its owner may read.

    At BYTES_MAX it becomes `<name>.1`, in place of an older one. A disk that is full ends the log
    and not the run.
    """

    def __init__(self, path: Path, bytes_max: int = BYTES_MAX) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(LineFormatter())
        self._path, self._bytes_max = path, bytes_max
        self._file: IO[bytes] | None = None
        self._size = 0
        self._open()

    def emit(self, record: logging.LogRecord) -> None:
        """Append the record."""
        if self._file is None:
            return
        try:
            line = (self.format(record) + "\n").encode("utf-8", "backslashreplace")
            if self._size + len(line) > self._bytes_max:
                self._file.close()
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                self._open()
            self._file.write(line)
            self._size += len(line)
            if record.levelno >= logging.INFO:  # what is at work is there also after a kill
                self._file.flush()
        except (OSError, ValueError):
            self._give_up()

    def close(self) -> None:
        """Close the file."""
        self._give_up()
        super().close()

    def _open(self) -> None:
        self._file = open_private(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._size = os.fstat(self._file.fileno()).st_size

    def _give_up(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


@contextmanager
def keep_log(path: Path) -> Iterator[None]:
    """Keep every record in the file `path` while this lasts.

    Raises OSError where the file cannot be opened, and where a link stands there.
    """
    handler = RunLogHandler(path)
    try:
        with listen(handler):
            yield
    finally:
        handler.close()


@contextmanager
def listen(handler: logging.Handler) -> Iterator[None]:
    """Hand every record to `handler`, as far as its level goes, while this lasts."""
    _audience.add(handler)
    try:
        yield
    finally:
        _audience.remove(handler)


class _ToTheProgram(logging.Handler):
    """Passes records on to the handlers above our logger, as far as it passed them before."""

    def __init__(self, level: int, above: logging.Logger) -> None:
        super().__init__(level)
        self._above = above

    def emit(self, record: logging.LogRecord) -> None:
        if self._above.hasHandlers():  # else Python would write it to stderr as it is
            self._above.callHandlers(record)


@dataclass(eq=False)
class _Audience:
    """Those who hear our logger at DEBUG whatever its level, several at once.

    A logger has one level for all of its handlers. While one of ours listens, it is DEBUG; and the
    program's own handlers get what its level would have let through.
    """

    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _listening: int = field(default=0, init=False)
    # Restores what the program had set.
    _before: ExitStack = field(default_factory=ExitStack, init=False)

    def add(self, handler: logging.Handler) -> None:
        with self._lock:
            if not self._listening:
                self._hear_all(logging.getLogger(NAME))
            self._listening += 1
            logging.getLogger(NAME).addHandler(handler)

    def remove(self, handler: logging.Handler) -> None:
        with self._lock:
            logging.getLogger(NAME).removeHandler(handler)
            self._listening -= 1
            if not self._listening:
                self._before.close()

    def _hear_all(self, logger: logging.Logger) -> None:
        level = logger.getEffectiveLevel()

        def as_before(record: logging.LogRecord) -> bool:
            return record.levelno >= level

        for handler in logger.handlers:
            handler.addFilter(as_before)
            self._before.callback(handler.removeFilter, as_before)
        if logger.propagate and logger.parent is not None:
            above = _ToTheProgram(level, logger.parent)
            logger.addHandler(above)
            self._before.callback(logger.removeHandler, above)
        self._before.callback(setattr, logger, "propagate", logger.propagate)
        self._before.callback(logger.setLevel, logger.level)
        logger.propagate = False
        logger.setLevel(logging.DEBUG)


_audience = _Audience()
