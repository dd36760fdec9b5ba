"""`stateshift metrics`: the runs of workdirs, and what `advise` said of jobs, as Prometheus reads
them. Only reads, but for the file that --to names.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from stateshift.cli.commands.runs import below
from stateshift.cli.shell.options import WORKDIRS, epilog
from stateshift.cli.shell.terminal import Terminal

if TYPE_CHECKING:
    from stateshift.advise.rebalance.decision import Decision
    from stateshift.documents.metrics import ObservedRun, RebalanceRecord, TimedVerdict

EPILOG = epilog(
    "stateshift metrics /var/lib/stateshift\n"
    "stateshift metrics --to /var/lib/node_exporter/stateshift.prom\n"
    "stateshift metrics --advice /var/lib/stateshift/advice.json\n"
    "stateshift metrics --rebalance .stateshift/rebalance-clusters",
    2,
    6,
    e0="printed or written, whatever state the runs are in, and whatever is damaged",
    e2="a directory is not there, or the request is not valid",
    e6="the file cannot be written",
)


def command(
    terminal: Terminal,
    dirs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DIR…", help="Workdirs, or directories of workdirs. In place of --workdirs."
        ),
    ] = None,
    workdirs: Annotated[
        str,
        typer.Option(
            "--workdirs",
            metavar="DIR",
            envvar="STATESHIFT_WORKDIRS",
            help="Where to look for workdirs.",
        ),
    ] = WORKDIRS,
    output: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="Write a file for node_exporter's textfile collector, whole or not at all.",
        ),
    ] = None,
    advice: Annotated[
        list[str] | None,
        typer.Option(
            "--advice",
            metavar="FILE",
            help="What `advise --json` has written, where it has run already: adds verdicts and "
            "headroom. Repeatable.",
        ),
    ] = None,
    rebalance: Annotated[
        list[str] | None,
        typer.Option(
            "--rebalance",
            metavar="DIR",
            help="Where `rebalance` keeps what it knows, where it has run already: adds its "
            "decision and moves. Repeatable.",
        ),
    ] = None,
) -> int | None:
    """Print metrics of all runs, for Prometheus.

    State, downtime, bytes, entries and warm lag of each job by its newest run, and its last
    success. A workdir that cannot be read counts as damaged. With --advice also what `advise` said
    of each job, with --rebalance what `rebalance` decided last and how many moves it has made;
    what of that is damaged is named, and left out.
    """
    import time

    from stateshift.api.local_files import write_whole
    from stateshift.cli.views import metrics_text
    from stateshift.documents.metrics import families, metrics_document
    from stateshift.errors import Complaint, SpecError

    for folder in dirs or ():
        if not os.path.isdir(folder):  # its jobs would silently have no metrics
            raise SpecError(
                (Complaint("DIR", f"there is no directory {folder}"),),
                hint="stateshift runs DIR lists the workdirs in a directory",
            )
    by_place: dict[str, str] = {}
    for path in chain.from_iterable(map(below, dirs or [workdirs])):
        by_place.setdefault(os.path.realpath(path), path)
    runs = [observe_run(path) for path in by_place.values()]
    folders = _by_name(_there(terminal, "decision", rebalance or []))
    rebalanced = [_rebalanced(terminal, name, folder) for name, folder in folders.items()]
    judged = _judged(_there(terminal, "advice", advice or []))
    found = families(runs, time.time(), judged, rebalanced)
    text = metrics_text.exposition(found)
    if output is not None:
        write_whole(output, text)  # the collector reads `*.prom` alone, at any time
    if terminal.json:
        terminal.document("metrics", metrics_document(found, output))
    elif output is None:
        terminal.write(text.encode("utf-8"))
    return None


def _there(terminal: Terminal, what: str, files: list[str]) -> list[str]:
    """Return the files that are there: the first run of `advise` or `rebalance` may be still to
    come, and the runs have metrics without it.
    """
    for file in files:
        if not os.path.lexists(file):
            terminal.say(f"no {what} yet: {file} is not there")
    return [file for file in files if os.path.lexists(file)]


def _judged(files: list[str]) -> list[TimedVerdict]:
    """Return the verdicts in files that `advise --json` has written."""
    from stateshift.api.advice import replay_advice
    from stateshift.documents.metrics import TimedVerdict

    judged = []
    for file in files:
        for each in replay_advice(file):
            judged.append(TimedVerdict(each.verdict, each.inputs.around.now))
    return judged


def _by_name(folders: list[str]) -> dict[str, str]:
    """Return these folders, each once, by names that tell them apart: Prometheus takes no file in
    which two values have the same labels.
    """
    places: dict[str, str] = {}
    for folder in folders:
        places.setdefault(os.path.realpath(folder), os.path.abspath(folder))
    counts = Counter(map(os.path.basename, places.values()))
    named = {}
    for place in places.values():
        name = os.path.basename(place)
        named[name if counts[name] == 1 else place] = place
    return named


def _rebalanced(terminal: Terminal, name: str, path: str) -> RebalanceRecord:
    """Return the last decision of `rebalance`, and the outcomes of its moves. Files that cannot be
    read are named, and left out.
    """
    from stateshift.api.rebalancing.folder import RebalanceFolder
    from stateshift.api.rebalancing.past import past_of
    from stateshift.documents.metrics import RebalanceRecord
    from stateshift.errors import StateshiftError

    folder = RebalanceFolder(path)
    decision: Decision | None = None
    moves: dict[str, int] = {}
    errors: list[StateshiftError] = []
    try:
        decision = folder.last_decision()
    except StateshiftError as error:
        errors.append(error)
    try:
        past = past_of(folder)
        moves = {
            "finished": len(past.finished),
            "taken-back": len(past.taken_back),
            "unfinished": len(past.unfinished),
        }
    except StateshiftError as error:
        errors.append(error)
    try:
        folder.memory()  # without it no run decides
    except StateshiftError as error:
        errors.append(error)
    for damage in errors:
        hint = f"; {damage.hint}" if damage.hint else ""
        terminal.say(f"left out of the metrics: {damage}{hint}")
    return RebalanceRecord(name, decision, moves, bool(errors))


def observe_run(path: str) -> ObservedRun:
    """Return the run in a workdir; without progress if its journal cannot be read."""
    from stateshift import migration
    from stateshift.documents.metrics import ObservedRun
    from stateshift.errors import StateshiftError
    from stateshift.report import summarize
    from stateshift.workdir import Workdir

    workdir, place = Workdir(path), os.path.abspath(path)
    try:
        held = workdir.held
        progress = migration.progress_of(workdir)
    except StateshiftError:
        return ObservedRun(place)
    live = workdir.steering.live() if held else None
    return ObservedRun(place, progress, summarize(progress), held, live)
