"""The output of `-v` and `-vv`: log records, on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stateshift.logs import LineFormatter, listen


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
