"""A fleet for a run, where one is asked for: mustered before anything is begun, so that no job is stopped for a fleet
that does not come; and let go however the run ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from stateshift.errors import StateshiftError
from stateshift.migration.doors import Doors
from stateshift.spec import Spec
from stateshift.storage import locations
from stateshift.workdir import Workdir

LOG = "fleet.log"


@contextmanager
def enlisted(doors: Doors, master: str | None, spec: Spec, workdir: Workdir) -> Iterator[Doors]:
    """The doors with a fleet behind them for as long as this lasts; as they are where no master is named."""
    if master is None:
        yield doors
        return
    from stateshift.fleet import Crew, check_places

    places = places_of(spec)
    for line in check_places(master, places):
        doors.meter.say(f"fleet: {line}")
    workdir.create()
    carrier = doors.open_fleet(master, workdir.path / LOG, doors.meter, doors.stop)
    try:
        crew = Crew(carrier, doors.meter)
        crew.muster(places, [place for place in places if _is_directory(place)])
        yield replace(doors, fleet=crew)
    except StateshiftError as error:
        if error.hint is not None:  # before the run has begun nobody else knows its workdir
            error.hint = error.hint.replace("; go on with or without it: stateshift resume WORKDIR", "") if (
                not workdir.exists
            ) else error.hint
        raise
    finally:
        carrier.close()


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
