"""`stateshift verify`: could a job restart from this image; does what a run did still hold.
Reads only.
"""

from __future__ import annotations

from typing import Annotated

import typer

from stateshift.cli.shell.options import FleetOf, epilog
from stateshift.cli.shell.terminal import Terminal

EPILOG = epilog(
    "stateshift verify hdfs://namenode:8020/checkpoints/orders --deep\n"
    "stateshift verify .stateshift/20260301-120000-orders-1f3a",
    2,
    3,
    5,
    6,
    7,
    8,
    e0="a job can restart; the run's evidence holds",
    e5="a job cannot restart; something no longer holds",
    e7="the fleet failed",
)


def command(
    terminal: Terminal,
    location: Annotated[
        str, typer.Argument(metavar="LOCATION|WORKDIR", help="An image, or the workdir of a run.")
    ],
    deep: Annotated[
        bool, typer.Option("--deep", help="Also decode every file of the state.")
    ] = False,
    fleet: FleetOf = None,
) -> int | None:
    """Check that a job can restart, or that a run still holds.

    For an image: can a job restart from it, and from which epochs? For the workdir of a run:
    is everything that the run wrote still there and unchanged? --fleet speeds up --deep, and
    the check of a run.
    """
    from stateshift.workdir import Workdir

    if "://" not in location and Workdir(location).exists:
        return _run(terminal, location, fleet)
    return _image(terminal, location, deep, fleet)


def _image(terminal: Terminal, location: str, deep: bool, fleet: str | None) -> int:
    from stateshift import look
    from stateshift.cli.shell.fleet import fleet_for
    from stateshift.cli.views import survey_json
    from stateshift.cli.views import survey_text as render_survey
    from stateshift.errors import VerifyError

    with fleet_for(terminal, fleet if deep else None, [location]) as crew:
        judgement = look.restartable(location, terminal.opening(), deep, crew)
    terminal.answer(
        "verify",
        lambda: survey_json.judgement(judgement),
        lambda: render_survey.judgement(judgement, location, terminal.verbose),
    )
    return 0 if judgement.restartable else VerifyError.exit_code


def _run(terminal: Terminal, path: str, fleet: str | None) -> int:
    from dataclasses import replace

    from stateshift import migration
    from stateshift.cli.shell.fleet import fleet_for
    from stateshift.cli.views import run_json
    from stateshift.cli.views import run_text as render_run
    from stateshift.cli.views.run_facts import VerdictFacts
    from stateshift.errors import VerifyError
    from stateshift.workdir import Workdir

    workdir = Workdir(path)
    places = migration.places_of(migration.spec_of(workdir)) if fleet is not None else []
    with fleet_for(terminal, fleet, places) as crew:
        verdict = migration.verify(workdir, replace(terminal.adapters(), fleet=crew))
        facts = VerdictFacts(verdict, migration.status(workdir), path)
    terminal.answer("verify", lambda: run_json.verdict(facts), lambda: render_run.verdict(facts))
    return VerifyError.exit_code if verdict.broken else 0
