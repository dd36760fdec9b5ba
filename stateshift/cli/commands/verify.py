"""`stateshift verify`: could a job restart from this image; does what a run did still hold.
Reads only, but for the file that remembers which parts were checked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from stateshift.cli.shell.options import FleetOf, Parallel, argument, command, flag, option
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import Complaint, SpecError, VerifyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stateshift.engines.views import NumberedPart
    from stateshift.look import Judgement
    from stateshift.look.checked_parts import PartsFile


@command(
    "stateshift verify hdfs://namenode:8020/checkpoints/orders --deep\n"
    "stateshift verify hdfs://namenode:8020/checkpoints/orders --deep --part next/30\n"
    "stateshift verify .stateshift/20260301-120000-orders-1f3a",
    (2, 3, 5, 6, 7, 8),
    e0="a job can restart, as far as was read; the run's evidence holds",
    e5="a job cannot restart; something no longer holds, or the run was rolled back",
    e6="a storage failed; which parts were checked cannot be kept",
    e7="the fleet failed",
)
def verify(
    terminal: Terminal,
    location: Annotated[str, argument("LOCATION|WORKDIR", "An image, or the workdir of a run.")],
    deep: Annotated[bool, flag("--deep", "Also decode every file of the state.")] = False,
    fleet: FleetOf = None,
    parallel: Parallel = None,
    no_history: Annotated[
        bool,
        flag("--no-history", "With --deep: do not hold snapshots against the changes before them."),
    ] = False,
    part: Annotated[
        str | None,
        option(
            "--part",
            "PART",
            "With --deep: only a part of the state. 3/30, or next/30 for the one due.",
        ),
    ] = None,
    remember: Annotated[
        str | None,
        option(
            "--remember",
            "DIR",
            "With --part: where to keep which parts were checked. "
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
    from stateshift import look
    from stateshift.cli.views import survey_text as render_survey
    from stateshift.documents.judgement import JudgementDocument
    from stateshift.engines.views import DeepCheck
    from stateshift.look.checked_parts import due_part, parts_file, usual_folder, wanted_part
    from stateshift.workdir import Workdir

    is_run = "://" not in location and Workdir(location).exists
    if is_run or not deep:
        _refuse(location, {"--no-history": no_history, "--part": part, "--remember": remember})
    if is_run:
        return _run(terminal, location, fleet, parallel)
    file, due = None, None
    if part is None:
        _refuse(location, {"--remember": remember})
    else:
        folder = usual_folder(os.environ) if remember is None else Path(remember)
        file = parts_file(folder, location)
        try:
            wanted = wanted_part(part)
        except ValueError as error:
            hint = "--part 1/30, --part next/30"
            raise SpecError.of("--part", f"{part!r}: {error}", part, hint=hint) from None
        due = due_part(file, wanted)
    if deep:
        from stateshift.cli.shell.work import readers_for

        check = DeepCheck(history=not no_history, part=due)
        with readers_for(terminal, fleet, [location], parallel) as readers:
            judgement = look.restartable(location, terminal.opening(), True, readers, check)
    else:
        judgement = look.restartable(location, terminal.opening())
    if file is not None and due is not None:
        judgement = _remembered(terminal, judgement, file, due)
    blocks = render_survey.judgement(judgement, location, terminal.verbose)
    terminal.answer_value("verify", JudgementDocument, judgement, blocks)
    return 0 if judgement.restartable else VerifyError.exit_code


def _refuse(location: str, options: Mapping[str, object]) -> None:
    """Refuse options that say how a deep check goes, where there is none."""
    from shlex import quote

    needs = "needs an image, --deep and, to remember it, --part"
    complaints = tuple(Complaint(name, needs) for name, value in options.items() if value)
    if complaints:
        hint = f"stateshift verify {quote(location)} --deep --part next/30"
        raise SpecError(complaints, hint=hint)


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


def _run(terminal: Terminal, path: str, fleet: str | None, parallel: int | None) -> int:
    from dataclasses import replace

    from stateshift import migration
    from stateshift.cli.shell.work import readers_for
    from stateshift.cli.views import run_text as render_run
    from stateshift.documents.run import VerdictDocument, VerdictFacts
    from stateshift.workdir import Workdir

    workdir = Workdir(path)
    spec = migration.spec_of(workdir)
    places = migration.places_of(spec)
    with readers_for(terminal, fleet, places, parallel or spec.parallel) as readers:
        verdict = migration.verify(workdir, replace(terminal.adapters(), fleet=readers))
        facts = VerdictFacts(verdict, migration.status(workdir), str(workdir.path))
    terminal.answer_value("verify", VerdictDocument, facts, render_run.verdict(facts))
    return 0 if facts.holds else VerifyError.exit_code
