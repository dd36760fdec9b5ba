"""A fleet while something lasts: checked before it starts, gathered before it is used, let go
however it ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stateshift.fleet.carrier import Carrier
from stateshift.fleet.crew import Crew
from stateshift.fleet.masters import check_places
from stateshift.storage import locations
from stateshift.world import Meter

# (master, its log, its meter, set once somebody asked to stop)
OpenFleet = Callable[[str, Path, Meter, threading.Event], Carrier]


@dataclass(frozen=True, slots=True)
class Application:
    """The start of a fleet: its master, its log, the meter, and the event that stops it."""

    master: str
    log: Path
    meter: Meter
    stop: threading.Event


@contextmanager
def open_crew(
    open_fleet: OpenFleet, application: Application, places: Sequence[str]
) -> Iterator[Crew]:
    """Give the crew of a master, which sees these places, and directories that are here."""
    master, meter = application.master, application.meter
    for warning in check_places(master, places):
        meter.say(f"fleet: {warning}")
    carrier = open_fleet(master, application.log, meter, application.stop)
    try:
        crew, directories = Crew(carrier, meter), []
        for place in places:
            path = locations.local_path(locations.normal(place, os.getcwd()))
            if path is not None and os.path.isdir(path):
                directories.append(place)
        crew.gather(places, directories)
        yield crew
    finally:
        carrier.close()
