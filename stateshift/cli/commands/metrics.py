"""`stateshift metrics`: the runs of workdirs, and what `advise` said of jobs, as Prometheus reads
them. Only reads, but for the file that --to names.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from stateshift.cli.commands.runs import below
from stateshift.cli.shell.options import WORKDIRS, argument, command, option
from stateshift.cli.shell.terminal import Terminal
from stateshift.errors import SpecError, StateshiftError

if TYPE_CHECKING:
    from stateshift.advise.rebalance.decision import Decision
    from stateshift.documents.metrics import Family, ObservedRun, RebalanceRecord


@command(
    "stateshift metrics /var/lib/stateshift\n"
    "stateshift metrics --to /var/lib/node_exporter/stateshift.prom\n"
    "stateshift metrics --advice /var/lib/stateshift/advice.json\n"
    "stateshift metrics --rebalance .stateshift/rebalance-clusters",
    (2, 6),
    e0="printed or written, whatever state the runs are in, and whatever is damaged",
    e2="a directory is not there, or the request is not valid",
    e6="the file cannot be written",
)
def metrics(
    terminal: Terminal,
    dirs: Annotated[
        list[str] | None,
        argument("DIR…", "Workdirs, or directories of workdirs. In place of --workdirs."),
    ] = None,
    workdirs: Annotated[
        str,
        option("--workdirs", "DIR", "Where to look for workdirs.", envvar="STATESHIFT_WORKDIRS"),
    ] = WORKDIRS,
    output: Annotated[
        str | None,
        option(
            "--to",
            "FILE",
            "Write a file for node_exporter's textfile collector, whole or not at all. Each run "
            "replaces it.",
        ),
    ] = None,
    advice: Annotated[
        list[str] | None,
        option(
            "--advice",
            "FILE",
            "What `advise --json` has written, where it has run already: adds verdicts and "
            "headroom. Repeatable.",
        ),
    ] = None,
    rebalance: Annotated[
        list[str] | None,
        option(
            "--rebalance",
            "DIR",
            "Where `rebalance` keeps what it knows, where it has run already: adds its "
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

    from stateshift.api.advice import replay_advice
    from stateshift.api.local_files import write_whole
    from stateshift.documents.metrics import TimedVerdict, families, metrics_document

    for folder in dirs or ():
        if not os.path.isdir(folder):  # its jobs would silently have no metrics
            hint = "stateshift runs DIR lists the workdirs in a directory"
            raise SpecError.of("DIR", f"there is no directory {folder}", hint=hint)
    by_place: dict[str, str] = {}
    for path in chain.from_iterable(map(below, dirs or [workdirs])):
        by_place.setdefault(os.path.realpath(path), path)
    runs = [observe_run(path) for path in by_place.values()]
    folders = _by_name(_there(terminal, "decision", rebalance or []))
    rebalanced = [_rebalanced(terminal, name, folder) for name, folder in folders.items()]
    judged = []
    for file in _there(terminal, "advice", advice or []):
        for each in replay_advice(file):
            judged.append(TimedVerdict(each.verdict, each.inputs.around.now))
    found = families(runs, time.time(), judged, rebalanced)
    text = exposition(found)
    if output is not None:
        write_whole(output, text)  # the collector reads `*.prom` alone, at any time
    if terminal.json:
        terminal.document("metrics", metrics_document(found, output))
    elif output is None:
        terminal.write(text.encode("utf-8"))
    return None


def _there(terminal: Terminal, what: str, files: list[str]) -> list[str]:
    """Return the files that are there: `advise` or `rebalance` may not have run yet."""
    for file in files:
        if not os.path.lexists(file):
            terminal.say(f"no {what} yet: {file} is not there")
    return [file for file in files if os.path.lexists(file)]


def _by_name(folders: list[str]) -> dict[str, str]:
    """Return each folder once, by a name of its own: Prometheus refuses doubled labels."""
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
    """Return the last decision of `rebalance`, and its moves' outcomes. Name damage, and go on."""
    from stateshift.api.rebalancing.folder import RebalanceFolder
    from stateshift.api.rebalancing.past import past_of
    from stateshift.documents.metrics import RebalanceRecord

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


def exposition(families: Iterable[Family]) -> str:
    """Return the metrics as Prometheus reads them."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} gauge"]
        for sample in family.samples:
            pairs = []
            for name, text in sample.labels:
                # A path may hold bytes that are no text: Prometheus reads UTF-8 and nothing else.
                readable = _escaped(text.encode("utf-8", "backslashreplace").decode("utf-8"))
                pairs.append('{}="{}"'.format(name, readable.replace('"', r"\"")))
            labels = f"{{{','.join(pairs)}}}" if pairs else ""
            value = float(sample.value)  # without more digits than it has
            digits = str(int(value)) if value.is_integer() else repr(value)
            lines.append(f"{family.name}{labels} {digits}")
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
