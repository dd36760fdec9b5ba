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
    e0="the process at work obeys at once; without one, the next does",
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
    from stateshift.cli.views.units import rate as in_bytes
    from stateshift.cli.views.units import size
    from stateshift.errors import Complaint, SpecError
    from stateshift.steering import Throttle
    from stateshift.workdir import Workdir

    place = Workdir(workdir)
    try:
        limit = None if rate.strip().lower() == "none" else in_bytes(rate)
    except ValueError as error:
        raise SpecError(
            (Complaint("RATE", str(error)),), hint="stateshift throttle WORKDIR 50MB"
        ) from None
    steer.refuse_over(place, "throttle")
    place.steering.throttle(Throttle(limit, operations))
    told = [f"at most {size(limit)} a second"] if limit else []
    told += [f"at most {operations:g} requests a second"] if operations else []
    steer.asked(
        terminal,
        place,
        "throttled" if told else "running",
        ", ".join(told) or "as fast as it goes",
        bytes_per_second=limit,
        operations_per_second=operations,
    )
    return None
