"""A fleet for a command that only looks. Spark's output goes to a file that is kept only if
something went wrong.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stateshift.cli.shell.terminal import Terminal
from stateshift.world import Unwatched

if TYPE_CHECKING:
    from stateshift.fleet.crew import Crew
    from stateshift.migration.processes import Processes


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
