"""`stateshift verify`: could a job restart from this image; does what a run did still hold.
Reads only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import FleetOf, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.engines.views import DeepCheck
    from stateshift.errors import SpecError

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
    no_history: Annotated[
        bool,
        typer.Option(
            "--no-history",
            help="With --deep: do not hold snapshots against the changes before them.",
        ),
    ] = False,
) -> int | None:
    """Check that a job can restart, or that a run still holds.

    For an image: can a job restart from it, and from which epochs? For the workdir of a run:
    is everything that the run wrote still there and unchanged? --fleet speeds up --deep, and
    the check of a run.
    """
    from stateshift.workdir import Workdir

    if no_history and not deep:
        raise _needs_deep("--no-history", location)
    if "://" not in location and Workdir(location).exists:
        return _run(terminal, location, fleet)
    return _image(terminal, location, _check(deep, not no_history), fleet)


def _needs_deep(option: str, location: str) -> SpecError:
    """Return the refusal of an option that says how a deep check goes, where none was asked for."""
    from shlex import quote

    from stateshift.errors import Complaint, SpecError

    complaint = Complaint(option, "says how far --deep goes, which is missing")
    return SpecError((complaint,), hint=f"stateshift verify {quote(location)} --deep {option}")


def _check(deep: bool, history: bool) -> DeepCheck | None:
    from stateshift.engines.views import DeepCheck

    return DeepCheck(history) if deep else None


def _image(terminal: Terminal, location: str, deep: DeepCheck | None, fleet: str | None) -> int:
    from stateshift import look
    from stateshift.cli.shell.fleet import fleet_for
    from stateshift.cli.views import survey_json
    from stateshift.cli.views import survey_text as render_survey
    from stateshift.errors import VerifyError

    with fleet_for(terminal, fleet if deep is not None else None, [location]) as crew:
        opening = terminal.opening()
        if deep is None:
            judgement = look.restartable(location, opening)
        else:
            judgement = look.restartable(location, opening, True, crew, deep)
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
