"""A fleet for a run, where one is requested: started before anything is begun, so that no job is
stopped for a fleet that does not come; and stopped however the run ends. Else the cores of this
machine share the work: the first step that is worth it starts processes, which end with the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from shlex import quote

from stateshift import machine
from stateshift.errors import Complaint, Interrupted, SpecError, StateshiftError
from stateshift.migration.adapters import Adapters
from stateshift.migration.processes import Processes
from stateshift.specification import Spec
from stateshift.specification.transform import locations_merged
from stateshift.storage import locations
from stateshift.workdir import Workdir

LOG = "fleet.log"


@contextmanager
def open_fleet(
    adapters: Adapters, master: str | None, spec: Spec, workdir: Workdir
) -> Iterator[Adapters]:
    """The adapters with a fleet while this lasts; without a master, this machine's processes."""
    if master is None:
        with open_processes(adapters, places_of(spec), spec.parallel) as processes:
            yield adapters if processes is None else replace(adapters, fleet=processes)
        return
    from stateshift.fleet.crew import Application, open_crew

    refuse_inside(workdir, spec)
    workdir.create()
    with ExitStack() as fleet:
        try:
            application = Application(master, workdir.path / LOG, adapters.meter, adapters.stop)
            crew = fleet.enter_context(open_crew(adapters.open_fleet, application, places_of(spec)))
        except StateshiftError as error:
            # It is no failure of the run, which has not begun or is as it was.
            raise error.with_hint(_hint(error, workdir)) from error
        yield replace(adapters, fleet=crew)


@contextmanager
def open_processes(
    adapters: Adapters, places: Iterable[str], parallel: int | None = None
) -> Iterator[Processes | None]:
    """The machine's processes, while this lasts; None for one, or for places in memory."""
    count = machine.processes_here(parallel)
    are_reached = all(locations.scheme(place) != "memory" for place in places)
    if adapters.open_processes is None or count == 1 or not are_reached:
        yield None
        return
    processes = adapters.open_processes(count, adapters.meter, adapters.stop)
    try:
        yield processes
    finally:
        processes.close()


def _hint(error: StateshiftError, workdir: Workdir) -> str | None:
    """Return a hint with the command to give again."""
    again = "the same command again"
    if workdir.exists:
        again = f"stateshift resume {quote(str(workdir.path))}"
    if isinstance(error, Interrupted):
        return again
    return error.hint and error.hint.replace("stateshift resume WORKDIR", again)


def places_of(spec: Spec) -> list[str]:
    """Return every location that a step of this spec's plans may read or write."""
    places: list[str] = []
    for job in spec.jobs:
        places += (
            job.source,
            job.destination,
            *job.merge_locations,
            *locations_merged(job.transform),
        )
        for data in job.data:
            if data.copy:
                places += (data.source, data.target)
    return list(dict.fromkeys(places))


def refuse_inside(workdir: Workdir, spec: Spec) -> None:
    """Refuse a workdir inside a place of the run: its files would be taken for the job's."""
    path = os.path.realpath(workdir.path)
    for place in filter(None, places_of(spec)):
        local = locations.local_path(place)
        if local is None:
            continue
        above = os.path.realpath(local)
        if os.path.commonpath((path, above)) == above:
            raise SpecError(
                (Complaint("--workdir", f"{workdir.path} lies inside {place}, which is moved"),),
                hint="name a --workdir outside of it, or give the command in another directory",
            )
