"""A run for a person: `apply`, `resume`, `rollback`, `status`, `runs`, `verify WORKDIR`. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stateshift.cli.views import run_live_text as render_live
from stateshift.cli.views.run_json import shown_state
from stateshift.cli.views.text import Block, Cell, Gap, Line, Table, Tone, pairs
from stateshift.cli.views.units import bar, compared, dash, many, number, size, span
from stateshift.storage.locations import redact
from stateshift.terms import terms_of

if TYPE_CHECKING:
    from stateshift.migration import Verdict
    from stateshift.report import JobReport, PhaseReport, Report
    from stateshift.steering import Live

TONES: dict[str, Tone] = {
    "finished": "good",
    "rolled-back": "good",
    "running": "strong",
    "rolling-back": "warn",
    "interrupted": "warn",
    "failed": "bad",
    "damaged": "bad",
}
TIMELINE = 24
PHASE_HEADS = ("phase", ">begun at", ">took", ">steps", ">files", ">size")


def report(
    told: Report, workdir: str, held: bool = False, page: str | None = None
) -> Iterator[Block]:
    """What was done, when, and how long the job was down."""
    state = shown_state(told.state, held)
    yield Line(f"run {told.run}: {state}", TONES.get(state, "strong"))
    for job in told.jobs:
        if len(told.jobs) > 1:
            yield Gap()
        yield Line(_job(job), indent=2)
        yield _phases(job.phases, told.seconds, undone=job.state == "rolled-back")
        if job.rounds and job.rounds[-1].left_seconds is not None:
            yield Line(rounds(job), indent=2)
        if job.failure is not None:
            yield Line(f"failed: {redact(job.failure.message)}", "bad", indent=2)
        yield from (Line(f"note: {redact(note)}", indent=2) for note in job.notes)
        yield from _left(job.left)
    yield from _left(told.left)
    yield pairs(*_summary(told, workdir), ("report", page) if page else None)


def _left(lines: Iterable[str]) -> Iterator[Block]:
    """What a rollback had to leave where it is."""
    return (Line(f"left: {redact(line)}", "warn", indent=2) for line in lines)


def _job(job: JobReport) -> str:
    moved = f": {many(job.files, 'file')}, {size(job.bytes)}" if job.files else ""
    same = same_of((job,)) if moved else None
    return f"{job.job} ({job.state}){moved}{'' if same is None else f', {same}'}"


def same_of(jobs: Iterable[JobReport]) -> str | None:
    """Return what of some jobs was found to be the same on both sides; None where nothing was
    compared.
    """
    counts = Counter[str]()
    for job in jobs:
        counts.update(job.compared)
    return f"{compared(counts)} the same on both sides" if any(counts.values()) else None


def rounds(job: JobReport) -> str:
    """What the last look found, and what there was once the job had stopped: it writes on until
    then.
    """
    last = job.rounds[-1]
    left = f"{many(last.left_files or 0, 'file')}, {size(last.left_bytes or 0)}"
    said = f"{many(len(job.rounds), 'round')} while it ran; left by the last look: {left}"
    copy = next((phase for phase in job.phases if phase.name == "copy" and phase.files), None)
    if copy is None:
        return said
    return f"{said}; brought with the job stopped: {many(copy.files, 'file')}, {size(copy.bytes)}"


def _phases(phases: tuple[PhaseReport, ...], seconds: float, undone: bool) -> Table:
    """When each phase was at work, and a line that shows it."""
    # What was taken back may have been so days later: its line ends with its last phase.
    whole = max([0.0 if undone else seconds, *(phase.start + phase.seconds for phase in phases)])
    rows = tuple((*phase_row(p, undone), bar(p.start, p.seconds, whole, TIMELINE)) for p in phases)
    return Table((*PHASE_HEADS, "timeline"), rows)


def phase_row(phase: PhaseReport, undone: bool) -> tuple[str | Cell, ...]:
    return (
        phase.name,
        span(phase.start),
        span(phase.seconds),
        Cell("undone", "dim") if undone else _steps(phase),
        dash(phase.files, number),
        dash(phase.bytes, size),
    )


def _steps(phase: PhaseReport) -> str | Cell:
    whole = phase.done == phase.steps
    return (
        number(phase.done)
        if whole
        else Cell(f"{number(phase.done)} of {number(phase.steps)}", "warn")
    )


def _summary(told: Report, workdir: str) -> Iterator[tuple[str, str | Cell]]:
    yield "took", span(told.seconds)
    down = [job for job in told.jobs if job.downtime_seconds is not None]
    for job in down:
        label = "downtime" if len(told.jobs) == 1 else f"downtime of {job.job}"
        yield label, f"{span(job.downtime_seconds or 0.0)}, counted from the {since(job)}"
        if job.downtime_without_rounds is not None:
            yield (
                "",
                (
                    f"about {span(job.downtime_without_rounds)} if everything had been copied "
                    "with the job down"
                ),
            )
    yield "workdir", workdir


def since(job: JobReport) -> str:
    return f"{job.downtime_from or 'start'}, to {terms_of(job.engine).first_on_target}"


def status(
    told: Report,
    workdir: str,
    held: bool,
    live: Live | None = None,
    page: str | None = None,
    now: float | None = None,
) -> Iterator[Block]:
    """The report, why it stopped, what it is at, and what can be done now."""
    yield from report(told, workdir, held, page)
    if live is not None:
        yield Gap()
        yield from render_live.live(live, told.engine)
    elif now is not None:
        yield from _still_down(told, now)
    if told.failure is not None:
        yield Gap()
        step = f" (in step {told.failure.step})" if told.failure.step else ""
        yield Line(f"stopped by {told.failure.error}{step}: {redact(told.failure.message)}", "bad")
        if told.failure.hint:
            yield Line(f"hint: {redact(told.failure.hint)}")
    yield Gap()
    yield from _next(shown_state(told.state, held), workdir, held)


def _still_down(told: Report, now: float) -> Iterator[Block]:
    """Jobs that were stopped, and that nobody has seen going on."""
    if told.state in ("finished", "rolled-back") or told.began is None:
        return
    for job in told.jobs:
        if job.downtime_start is not None and job.downtime_seconds is None:
            so_far = render_live.down_for(told.began + job.downtime_start, now)
            yield pairs((f"downtime of {redact(job.job)}", f"{so_far} so far"))


def _next(state: str, workdir: str, held: bool) -> Iterator[Block]:
    if held:
        yield Line("a process is at work on it now")
        return
    again = (("go on", command("resume", workdir)), ("take back", command("rollback", workdir)))
    match state:
        case "failed" | "interrupted":
            yield pairs(*again, indent=0)
        case "rolling-back":
            yield pairs(("finish the rollback", command("resume", workdir)), indent=0)
        case "finished":
            yield pairs(
                ("does it still hold", command("verify", workdir)),
                ("take back", command("rollback", workdir)),
                indent=0,
            )
        case _:
            yield Line("nothing is left to do")


def command(verb: str, workdir: str) -> str:
    """What can be pasted, also where the path holds blanks."""
    return f"stateshift {verb} {shlex.quote(workdir)}"


def resume_commands(workdir: str) -> tuple[Block, ...]:
    """Said at the start of a run, so that it stands in every log whatever happens to the
    process.
    """
    return (Line(f"if this is interrupted: {command('resume', workdir)}", "dim"),)


@dataclass(frozen=True, slots=True)
class Listed:
    """One workdir of `runs`; without a report where its journal cannot be read."""

    workdir: str
    report: Report | None
    held: bool
    damage: str | None = None
    page: str | None = None


def runs(found: Iterable[Listed], root: str) -> Iterator[Block]:
    rows = [_listed(one) for one in found]
    if not rows:
        yield Line(f"no runs below {root}")
        return
    yield Table(("workdir", "state", "jobs", ">took", ">downtime"), tuple(rows), indent=0)


def _listed(one: Listed) -> tuple[str | Cell, ...]:
    if one.report is None:
        return one.workdir, Cell("damaged", TONES["damaged"]), one.damage or "", "", ""
    state = shown_state(one.report.state, one.held)
    down = one.report.downtime_seconds
    return (
        one.workdir,
        Cell(f"{state}, at work" if one.held else state, TONES.get(state, "")),
        ", ".join(job.job for job in one.report.jobs),
        span(one.report.seconds),
        "" if down is None else span(down),
    )


def verdict(found: Verdict, told: Report, workdir: str) -> Iterator[Block]:
    """Whether what the run did is still so."""
    if found.broken:
        count = many(len(found.broken), "thing does", "things do")
        yield Line(f"{count} not hold any more of run {told.run}: {workdir}", "bad")
    else:
        yield Line(f"everything that run {told.run} did still holds: {workdir}", "good")
    for broken in found.broken:
        yield Line(f"{broken.step}: {redact(str(broken.discrepancy))}", "bad", 2)
    yield from (Line(f"note: {redact(note)}", indent=2) for note in found.notes)
