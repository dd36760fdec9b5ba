"""`stateshift throttle`: how fast a run at work may use its storages, from now on."""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import WorkdirOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift throttle .stateshift/20260301-120000-orders-1f3a 20MB\n"
    "stateshift throttle .stateshift/20260301-120000-orders-1f3a 20MB --operations 200\n"
    "stateshift throttle .stateshift/20260301-120000-orders-1f3a none",
    2,
    4,
    8,
    e0="set: a running process obeys at once, else the next `resume` does",
    e4="the run is over",
)


def command(
    terminal: Terminal,
    workdir: WorkdirOf,
    rate: Annotated[
        str,
        typer.Argument(
            metavar="RATE", help="Bytes a second, read and written (50MB, 64MiB); none: no limit."
        ),
    ],
    operations: Annotated[
        float | None,
        typer.Option("--operations", metavar="N", min=0.1, help="Requests a second at most."),
    ] = None,
) -> int | None:
    """Change how fast a run may go. Overrides the spec."""
    from stateshift.cli.shell import steer
    from stateshift.cli.views.units import size
    from stateshift.steering import Throttle
    from stateshift.workdir import Workdir

    place, limit = Workdir(workdir), _limit(rate)
    steer.refuse_over(place, "throttle")
    place.steering.throttle(Throttle(limit, operations))
    limits = []
    if limit:
        limits.append(f"at most {size(limit)} a second")
    if operations:
        limits.append(f"at most {operations:g} requests a second")
    steer.show_request(
        terminal,
        place,
        "throttled" if limits else "running",
        ", ".join(limits) or "as fast as it goes",
        bytes_per_second=limit,
        operations_per_second=operations,
    )
    return None


def _limit(rate: str) -> float | None:
    """Return the bytes a second that were typed; None for no limit."""
    from stateshift.cli.views import units
    from stateshift.errors import Complaint, SpecError

    if rate.strip().lower() == "none":
        return None
    try:
        return units.rate(rate)
    except ValueError as error:
        raise SpecError(
            (Complaint("RATE", str(error)),), hint="stateshift throttle WORKDIR 50MB"
        ) from None
