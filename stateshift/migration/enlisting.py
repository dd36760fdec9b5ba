"""A fleet for a run, where one is asked for: mustered before anything is begun, so that no job is stopped for a fleet
that does not come; and let go however the run ends."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from stateshift.errors import Interrupted, StateshiftError
from stateshift.migration.doors import Doors
from stateshift.spec import Spec
from stateshift.storage import locations
from stateshift.workdir import Workdir

if TYPE_CHECKING:
    from stateshift.fleet import Carrier, Crew

LOG = "fleet.log"


@contextmanager
def enlisted(doors: Doors, master: str | None, spec: Spec, workdir: Workdir) -> Iterator[Doors]:
    """The doors with a fleet behind them for as long as this lasts; as they are where no master is named."""
    if master is None:
        yield doors
        return
    from stateshift.fleet import check_places

    places = places_of(spec)
    for line in check_places(master, places):
        doors.meter.say(f"fleet: {line}")
    workdir.create()
    with _telling(workdir):
        carrier = doors.open_fleet(master, workdir.path / LOG, doors.meter, doors.stop)
    try:
        with _telling(workdir):
            crew = mustered(carrier, doors, places)
        yield replace(doors, fleet=crew)
    finally:
        carrier.close()


def mustered(carrier: Carrier, doors: Doors, places: Sequence[str]) -> Crew:
    from stateshift.fleet import Crew

    crew = Crew(carrier, doors.meter)
    crew.muster(places, [place for place in places if _is_directory(place)])
    return crew


@contextmanager
def _telling(workdir: Workdir) -> Iterator[None]:
    """What goes wrong here is no failure of the run: it has not begun, or is as it was."""
    try:
        yield
    except StateshiftError as error:
        again = f"stateshift resume {quote(str(workdir.path))}" if workdir.exists else "the same command again"
        if isinstance(error, Interrupted):
            error.hint = again
        elif error.hint is not None:
            error.hint = error.hint.replace("stateshift resume WORKDIR", again)
        raise


def places_of(spec: Spec) -> list[str]:
    """Every location that a step of this spec's plans may read or write."""
    found = dict.fromkeys(
        place
        for job in spec.jobs
        for place in (
            job.source,
            job.destination,
            *job.merge_locations,
            *(at for change in job.transform if change["kind"] == "merge" for at in change["locations"]),
            *(end for data in job.data if data.copy for end in (data.source, data.target)),
        )
    )
    return list(found)


def _is_directory(place: str) -> bool:
    path = locations.local_path(place)
    return path is not None and os.path.isdir(path)
