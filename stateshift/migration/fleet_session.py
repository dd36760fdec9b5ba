"""A fleet for a run, where one is requested: started before anything is begun, so that no job is
stopped for a fleet that does not come; and stopped however the run ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from shlex import quote

from stateshift.errors import Interrupted, StateshiftError
from stateshift.migration.adapters import Adapters
from stateshift.migration.gathering import merged_locations
from stateshift.specification import Spec
from stateshift.workdir import Workdir

LOG = "fleet.log"


@contextmanager
def enlisted(
    adapters: Adapters, master: str | None, spec: Spec, workdir: Workdir
) -> Iterator[Adapters]:
    """The adapters with a fleet behind them for as long as this lasts; as they are where no master
    is named.
    """
    if master is None:
        yield adapters
        return
    from stateshift.fleet.opening import Application, open_crew

    workdir.create()
    with ExitStack() as fleet:
        with _with_way_out(workdir):
            application = Application(master, workdir.path / LOG, adapters.meter, adapters.stop)
            crew = fleet.enter_context(open_crew(adapters.open_fleet, application, places_of(spec)))
        yield replace(adapters, fleet=crew)


@contextmanager
def _with_way_out(workdir: Workdir) -> Iterator[None]:
    """Name the command to give again. What goes wrong here is no failure of the run: it has not
    begun, or is as it was.
    """
    try:
        yield
    except StateshiftError as error:
        raise error.with_hint(_hint(error, workdir)) from error


def _hint(error: StateshiftError, workdir: Workdir) -> str | None:
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
        places += (job.source, job.destination, *job.merge_locations, *merged_locations(job))
        for data in job.data:
            if data.copy:
                places += (data.source, data.target)
    return list(dict.fromkeys(places))
