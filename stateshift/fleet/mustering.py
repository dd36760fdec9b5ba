"""A fleet while something lasts: checked before it starts, mustered before it is used, let go
however it ends.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stateshift.fleet.crew import Carrier, Crew
from stateshift.fleet.masters import check_places
from stateshift.storage import locations
from stateshift.world import Meter

# (master, where its log goes, who is told, set once somebody asked to stop)
OpenFleet = Callable[[str, Path, Meter, threading.Event], Carrier]


@contextmanager
def mustered(
    opening: OpenFleet,
    master: str,
    places: Sequence[str],
    log: Path,
    meter: Meter,
    stop: threading.Event,
) -> Iterator[Crew]:
    """The crew of this master, which can reach these places. Directories that are here must be
    there, too.
    """
    for line in check_places(master, places):
        meter.say(f"fleet: {line}")
    carrier = opening(master, log, meter, stop)
    try:
        crew = Crew(carrier, meter)
        crew.muster(places, [place for place in places if _is_directory(place)])
        yield crew
    finally:
        carrier.close()


def _is_directory(place: str) -> bool:
    path = locations.local_path(locations.normal(place, os.getcwd()))
    return path is not None and os.path.isdir(path)
