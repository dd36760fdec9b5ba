"""`stateshift verify`: could a job restart from this image; does what a run did still hold.
Reads only, but for the file that remembers which parts were checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.shell.options import FleetOf, Parallel, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stateshift.engines.views import DeepCheck, NumberedPart
    from stateshift.look import Judgement
    from stateshift.look.checked_parts import NextPart, PartsFile

EPILOG = epilog(
    "stateshift verify hdfs://namenode:8020/checkpoints/orders --deep\n"
    "stateshift verify hdfs://namenode:8020/checkpoints/orders --deep --part next/30\n"
    "stateshift verify .stateshift/20260301-120000-orders-1f3a",
    2,
    3,
    5,
    6,
    7,
    8,
    e0="a job can restart, as far as was read; the run's evidence holds",
    e5="a job cannot restart; something no longer holds",
    e6="a storage failed; which parts were checked cannot be kept",
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
    parallel: Parallel = None,
    no_history: Annotated[
        bool,
        typer.Option(
            "--no-history",
            help="With --deep: do not hold snapshots against the changes before them.",
        ),
    ] = False,
    part: Annotated[
        str | None,
        typer.Option(
            "--part",
            metavar="PART",
            help="With --deep: only a part of the state. 3/30, or next/30 for the one due.",
        ),
    ] = None,
    remember: Annotated[
        str | None,
        typer.Option(
            "--remember",
            metavar="DIR",
            help="With --part: where to keep which parts were checked. "
            "Else ~/.local/state/stateshift/verify.",
        ),
    ] = None,
) -> int | None:
    """Check that a job can restart, or that a run still holds.

    For an image: can a job restart from it, and from which epochs? For the workdir of a run:
    is everything that the run wrote still there and unchanged? --fleet speeds up --deep, and
    the check of a run. --part next/30 reads one of 30 parts of the state each time, and
    remembers which: 30 nights read all of it. A part that is damaged stays the next one.
    """
    from stateshift.engines.views import DeepCheck
    from stateshift.look.checked_parts import due_part
    from stateshift.workdir import Workdir

    is_run = "://" not in location and Workdir(location).exists
    if is_run or not deep:
        _refuse(location, {"--no-history": no_history, "--part": part, "--remember": remember})
    if is_run:
        return _run(terminal, location, fleet, parallel)
    if part is None:
        _refuse(location, {"--remember": remember})
        check = DeepCheck(history=not no_history) if deep else None
        return _answer(terminal, location, _judged(terminal, location, check, fleet, parallel))
    file = _parts_file(location, remember)
    due = due_part(file, _wanted(part))
    check = DeepCheck(history=not no_history, part=due)
    judged = _judged(terminal, location, check, fleet, parallel)
    return _answer(terminal, location, _remembered(terminal, judged, file, due))


def _refuse(location: str, options: Mapping[str, object]) -> None:
    """Refuse options that say how a deep check goes, where there is none."""
    from shlex import quote

    from stateshift.errors import Complaint, SpecError

    needs = "needs an image, --deep and, to remember it, --part"
    complaints = tuple(Complaint(name, needs) for name, value in options.items() if value)
    if complaints:
        hint = f"stateshift verify {quote(location)} --deep --part next/30"
        raise SpecError(complaints, hint=hint)


def _wanted(part: str) -> NumberedPart | NextPart:
    """Return the part that the option names."""
    from stateshift.errors import Complaint, SpecError
    from stateshift.look.checked_parts import wanted_part

    try:
        return wanted_part(part)
    except ValueError as error:
        complaint = Complaint("--part", f"{part!r}: {error}", part)
        raise SpecError((complaint,), hint="--part 1/30, --part next/30") from None


def _parts_file(location: str, folder: str | None) -> PartsFile:
    """Return the file that remembers which parts of the location were checked."""
    import os
    from pathlib import Path

    from stateshift.look.checked_parts import parts_file, usual_folder

    return parts_file(usual_folder(os.environ) if folder is None else Path(folder), location)


def _remembered(
    terminal: Terminal, judgement: Judgement, file: PartsFile, part: NumberedPart
) -> Judgement:
    """Remember the part, if nothing in it keeps a job from restarting."""
    from dataclasses import replace

    from stateshift.look import PartsSoFar
    from stateshift.look.checked_parts import remember

    if judgement.checked is None or not judgement.images:
        return judgement
    parts = remember(file, part, terminal.adapters().clock.now(), judgement.restartable)
    so_far = PartsSoFar(len(parts.times), parts.oldest, str(file.path))
    return replace(judgement, checked=replace(judgement.checked, so_far=so_far))


def _judged(
    terminal: Terminal,
    location: str,
    check: DeepCheck | None,
    fleet: str | None,
    parallel: int | None,
) -> Judgement:
    from stateshift import look
    from stateshift.cli.shell.fleet import readers_for

    if check is None:
        return look.restartable(location, terminal.opening())
    with readers_for(terminal, fleet, [location], parallel) as readers:
        return look.restartable(location, terminal.opening(), True, readers, check)


def _answer(terminal: Terminal, location: str, judgement: Judgement) -> int:
    from stateshift.cli.views import survey_text as render_survey
    from stateshift.documents.judgement import JudgementDocument
    from stateshift.errors import VerifyError

    terminal.answer_value(
        "verify",
        JudgementDocument,
        judgement,
        render_survey.judgement(judgement, location, terminal.verbose),
    )
    return 0 if judgement.restartable else VerifyError.exit_code


def _run(terminal: Terminal, path: str, fleet: str | None, parallel: int | None) -> int:
    from dataclasses import replace

    from stateshift import migration
    from stateshift.cli.shell.fleet import readers_for
    from stateshift.cli.views import run_text as render_run
    from stateshift.documents.run import VerdictDocument, VerdictFacts
    from stateshift.errors import VerifyError
    from stateshift.workdir import Workdir

    workdir = Workdir(path)
    spec = migration.spec_of(workdir)
    places = migration.places_of(spec)
    with readers_for(terminal, fleet, places, parallel or spec.parallel) as readers:
        verdict = migration.verify(workdir, replace(terminal.adapters(), fleet=readers))
        facts = VerdictFacts(verdict, migration.status(workdir), path)
    terminal.answer_value("verify", VerdictDocument, facts, render_run.verdict(facts))
    return VerifyError.exit_code if verdict.broken else 0
