"""A fleet for a run, where one is asked for: mustered before anything is begun, so that no job is
stopped for a fleet that does not come; and let go however the run ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from shlex import quote

from stateshift.errors import Interrupted, StateshiftError
from stateshift.migration.doors import Doors
from stateshift.specification import Spec
from stateshift.workdir import Workdir

LOG = "fleet.log"


@contextmanager
def enlisted(doors: Doors, master: str | None, spec: Spec, workdir: Workdir) -> Iterator[Doors]:
    """The doors with a fleet behind them for as long as this lasts; as they are where no master
    is named.
    """
    if master is None:
        yield doors
        return
    from stateshift.fleet.mustering import mustered

    workdir.create()
    with ExitStack() as fleet:
        with _telling(workdir):
            log = workdir.path / LOG
            crew = fleet.enter_context(
                mustered(doors.open_fleet, master, places_of(spec), log, doors.meter, doors.stop)
            )
        yield replace(doors, fleet=crew)


@contextmanager
def _telling(workdir: Workdir) -> Iterator[None]:
    """What goes wrong here is no failure of the run: it has not begun, or is as it was."""
    try:
        yield
    except StateshiftError as error:
        again = (
            f"stateshift resume {quote(str(workdir.path))}"
            if workdir.exists
            else "the same command again"
        )
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
            *(
                at
                for change in job.transform
                if change["kind"] == "merge"
                for at in change["locations"]
            ),
            *(end for data in job.data if data.copy for end in (data.source, data.target)),
        )
    )
    return list(found)
