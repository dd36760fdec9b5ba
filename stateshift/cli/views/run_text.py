"""A run for a person: `apply`, `resume`, `rollback`, `status`, `runs`, `verify WORKDIR`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stateshift.cli.views.findings_text import new_positions
from stateshift.cli.views.standby_text import lag_rows, unread_row
from stateshift.cli.views.text import (
    Block,
    Cell,
    Gap,
    Line,
    Row,
    TextTable,
    Tone,
    pairs,
    section,
    without_empty,
)
from stateshift.cli.views.units import amounts_compared, bar, dash, many, number, size, span
from stateshift.documents.run import (
    ListedRun,
    RunFacts,
    VerdictFacts,
    copied_while_down,
    count_compared,
)
from stateshift.storage.locations import redact
from stateshift.terms import terms_of

if TYPE_CHECKING:
    from stateshift.report import DrillReport, FailoverReport, JobReport, PhaseReport, Report
    from stateshift.specification import Spec
    from stateshift.steering import Live
    from stateshift.terms import Terms

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
RESTED_SECONDS = 60.0  # less is a person who types the next command
RUN_HEADS = ("run", "state", "jobs", ">took", ">downtime", "workdir")
PHASE_HEADS = ("phase", ">begun at", ">took", ">steps", ">files", ">size")

Pair = tuple[str, str | Cell]


# ---- apply, resume, rollback ---------------------------------------------------------------------


def report(facts: RunFacts) -> Iterator[Block]:
    """Show what was done, when, and how long the job was down."""
    done = facts.report
    yield Line(f"run {done.run}: {facts.state}", TONES.get(facts.state, "strong"))
    for job in done.jobs:
        if len(done.jobs) > 1:
            yield Gap()
        yield from _job(job, done.seconds)
    yield from section("Reads on", *new_positions(facts.sources))
    yield from _left(done.left)
    page = ("report", facts.page) if facts.page else None
    yield pairs(*_summary(facts), page)


def _job(job: JobReport, seconds: float) -> Iterator[Block]:
    name = f"{job.job} ({job.state})"
    yield Line(f"{name}: {amounts(job)}" if job.files else name, indent=2)
    undone = job.state == "rolled-back"
    ends = [phase.start + phase.seconds for phase in job.phases]
    # A rollback may have come days later: its line ends with its last phase.
    whole = max([0.0 if undone else seconds, *ends])
    rows = []
    for phase in job.phases:
        timeline = bar(phase.start, phase.seconds, whole, TIMELINE)
        rows.append((*phase_row(phase, undone), timeline))
    yield TextTable((*PHASE_HEADS, "timeline"), tuple(rows))
    if job.rounds and job.rounds[-1].left_seconds is not None:
        yield Line(rounds(job), indent=2)
    if job.failure is not None:
        yield Line(f"failed: {redact(job.failure.message)}", "bad", indent=2)
    if job.set_aside is not None:
        kept = f"{redact(job.set_aside)}: remove it once you do not need it"
        yield pairs(("set aside", kept))
    if job.failover is not None:
        yield pairs(*failover_rows(job.failover, terms_of(job.engine)))
    if job.drill is not None:
        yield pairs(*drill_rows(job.drill, terms_of(job.engine)))
    for note in job.notes:
        yield Line(f"note: {redact(note)}", indent=2)
    yield from _left(job.left)


def failover_rows(done: FailoverReport, terms: Terms) -> Iterator[Pair]:
    """Yield the losses of a failover, and whether the primary cannot go on."""
    lost = [] if done.rpo.seconds is None else [f"{span(done.rpo.seconds)} of the source's work"]
    if done.rpo.batches is not None:
        lost.append(many(done.rpo.batches, terms.one, terms.many))
    yield "lost", ", ".join(lost) or "unknown"
    if done.rpo.records is not None:
        yield unread_row(done.rpo.records)
    if done.rto_seconds is not None:
        yield "went on", f"after {span(done.rto_seconds)}"
    fenced = "cannot go on" if done.fenced else f"may go on: {redact(done.unfenced or '')}"
    yield "primary", Cell(fenced, "" if done.fenced else "warn")


def drill_rows(drill: DrillReport, terms: Terms) -> Iterator[Pair]:
    """Yield the outcome of a rehearsal, and its stages."""
    at = terms.at_each if drill.epoch is None else f"{terms.at} {drill.epoch}"
    if drill.good:
        yield "drill", Cell(f"went on from {at}, {span(drill.seconds)} after its plan", "good")
    else:
        yield "drill", Cell(f"failed, from {at}: {redact(drill.failure or '')}", "bad")
    stages = [f"{stage.name} {span(stage.seconds)}" for stage in drill.stages]
    if stages:
        yield "stages", ", ".join(stages)


def _left(lines: Iterable[str]) -> Iterator[Block]:
    """Show what a rollback had to leave where it is."""
    for line in lines:
        yield Line(f"left: {redact(line)}", "warn", indent=2)


def same_of(jobs: Iterable[JobReport]) -> str | None:
    """Return the amounts that are the same on both sides; None if nothing was compared."""
    counts = count_compared(jobs)
    return f"the same on both sides: {amounts_compared(counts)}" if any(counts.values()) else None


def amounts(job: JobReport) -> str:
    """Return the amounts that were written for a job, and those that are the same on both sides."""
    written = f"{many(job.files, 'file')}, {size(job.bytes)} written"
    same = same_of((job,))
    return written if same is None else f"{written}; {same}"


def rounds(job: JobReport) -> str:
    """Return the rest after the last round, and the one once the job had stopped writing."""
    last = job.rounds[-1]
    left = f"{many(last.left_files or 0, 'file')}, {size(last.left_bytes or 0)}"
    said = f"{many(len(job.rounds), 'round')} while it ran; left by the last look: {left}"
    copy = copied_while_down(job)
    if copy is None:
        return said
    return f"{said}; copied with the job stopped: {many(copy.files, 'file')}, {size(copy.bytes)}"


def phase_row(phase: PhaseReport, undone: bool) -> Row:
    """Return the cells below PHASE_HEADS."""
    steps: str | Cell = number(phase.done)
    if phase.done != phase.steps:
        steps = Cell(f"{number(phase.done)} of {number(phase.steps)}", "warn")
    return (
        phase.name,
        span(phase.start),
        span(phase.seconds),
        Cell("undone", "dim") if undone else steps,
        dash(phase.files, number),
        dash(phase.bytes, size),
    )


def _summary(facts: RunFacts) -> Iterator[Pair]:
    jobs = facts.report.jobs
    yield "took", "; ".join(took(facts.report))
    for job in jobs:
        if job.downtime_seconds is not None:
            label = "downtime" if len(jobs) == 1 else f"downtime of {job.job}"
            yield label, f"{span(job.downtime_seconds)}, counted from the {since(job)}"
        if job.downtime_seconds is not None and job.downtime_without_rounds is not None:
            yield "", without_rounds(job.downtime_without_rounds)
    yield "workdir", facts.workdir


def took(report: Report) -> Iterator[str]:
    """Yield the time of work on a run, and the time from its beginning to its end if it rested."""
    yield span(report.worked_seconds)
    if report.idle_seconds >= RESTED_SECONDS:
        yield f"{span(report.seconds)} with the time in which nothing is known to have been done"


def since(job: JobReport) -> str:
    """Return from when to when a downtime is counted."""
    return f"{job.downtime_from or 'start'}, to {terms_of(job.engine).first_on_target}"


def without_rounds(seconds: float) -> str:
    """Return the downtime if nothing had been copied before."""
    return f"about {span(seconds)} if everything had been copied with the job down"


# ---- status --------------------------------------------------------------------------------------


def status(facts: RunFacts) -> Iterator[Block]:
    """Show the report, why the run stopped, what it is at, and what can be done now."""
    if facts.report.down and not facts.held:
        yield Line(redact(facts.report.down), "bad")
    elif facts.may_be_down:
        yield Line(redact(facts.may_be_down), "bad")
    yield from report(facts)
    for given in facts.report.commands:
        policy = f" (policy: {given.policy})" if given.policy else ""
        yield Line(
            f"{given.what} by {given.who}: {redact(given.command) or 'a program'}{policy}", indent=2
        )
    for lag in facts.standbys:
        epoch = "" if lag.epoch is None else f": {lag.epoch}"
        yield Line(f"standby of {redact(lag.job)}{epoch}", indent=2)
        yield pairs(*lag_rows(lag, terms_of(facts.report.engine)))
    if facts.live is not None:
        yield Gap()
        yield from live(facts.live, facts.report.engine)
    elif facts.now is not None:
        yield from _still_down(facts, facts.now)
    failure = facts.report.failure
    if failure is not None:
        yield Gap()
        step = f" (in step {failure.step})" if failure.step else ""
        yield Line(f"stopped by {failure.error}{step}: {redact(failure.message)}", "bad")
        if failure.hint:
            yield Line(f"hint: {redact(failure.hint)}")
    yield Gap()
    yield from _next(facts)


def _still_down(facts: RunFacts, now: float) -> Iterator[Block]:
    began = facts.report.began
    is_over = facts.report.state in ("finished", "rolled-back")
    if is_over or began is None:
        return
    for job in facts.still_down:
        so_far = down_for(began + (job.downtime_start or 0.0), now)
        yield pairs((f"downtime of {redact(job.job)}", f"{so_far} so far"))


def _next(facts: RunFacts) -> Iterator[Block]:
    """Show what can be done now."""
    if facts.held:
        yield Line("a process is at work on it now")
        return
    resume = command("resume", facts.workdir)
    rollback = command("rollback", facts.workdir)
    match facts.state:
        case "failed" | "interrupted" if any(job.source_lost for job in facts.report.jobs):
            yield pairs(("go on", resume), indent=0)
        case "failed" | "interrupted":
            yield pairs(("go on", resume), ("take back", rollback), indent=0)
        case "rolling-back":
            yield pairs(("finish the rollback", resume), indent=0)
        case "finished":
            verify = command("verify", facts.workdir)
            yield pairs(("does it still hold", verify), ("take back", rollback), indent=0)
        case _ if any(job.left for job in facts.report.jobs):
            yield Line("nothing is left to do but what is `left` above", "warn")
            if facts.report.down or facts.may_be_down:
                again = f"{rollback} --runs-again"
                yield pairs(("once somebody has started the job", again), indent=0)
        case _:
            yield Line("nothing is left to do")


def next_steps(facts: RunFacts, spec: Spec) -> Iterator[Block]:
    """Show where each job of a finished run is, what may be deleted when, and what to do now."""
    for job in spec.jobs:
        is_of_run = any(each.job == job.name for each in facts.report.jobs)
        if not is_of_run or job.rehearses:
            continue
        name, place, old = redact(job.name), redact(job.destination), redact(job.source)
        if job.submit is not None:
            yield Line(f"{name} runs from {place}")
        else:
            yield Line(f"the image of {name} is at {place}: start the job from there")
        if job.moves and job.destination != job.source:
            yield Line(f"keep {old} until {name} has gone on there: a rollback needs it", indent=2)
    yield from _next(facts)


def command(verb: str, workdir: str) -> str:
    """Return a command that can be pasted, also where the path holds blanks."""
    return f"stateshift {verb} {shlex.quote(workdir)}"


def resume_commands(workdir: str) -> tuple[Block, ...]:
    """Show how to go on. It is said at the start: every log has it, whatever happens then."""
    return (Line(f"if this is interrupted: {command('resume', workdir)}", "dim"),)


# ---- runs, verify WORKDIR ------------------------------------------------------------------------


def runs(entries: Iterable[ListedRun], root: str) -> Iterator[Block]:
    """Show a line for each run below `root`; its workdir, where that is called otherwise."""
    rows = [run_row(entry, root) for entry in entries]
    if not rows:
        yield Line(f"no runs below {root}; of those elsewhere: stateshift runs DIR")
        return
    yield without_empty(TextTable(RUN_HEADS, tuple(rows), indent=0))


def run_row(entry: ListedRun, root: str) -> Row:
    """Return the cells below RUN_HEADS."""
    workdir = "" if entry.workdir == f"{root.rstrip('/')}/{entry.name}" else entry.workdir
    if entry.facts is None:
        damaged = Cell("damaged", TONES["damaged"])
        return entry.name, damaged, entry.damage or "", "", "", workdir
    facts, done = entry.facts, entry.facts.report
    state = f"{facts.state}, at work" if facts.held else facts.state
    down: str | Cell = "" if done.downtime_seconds is None else span(done.downtime_seconds)
    if done.down:
        down = Cell("is down", "bad")
    elif facts.may_be_down:
        down = Cell("may be down", "bad")
    return (
        entry.name,
        Cell(state, TONES.get(facts.state, "")),
        ", ".join(job.job for job in done.jobs),
        span(done.worked_seconds),
        down,
        workdir,
    )


def verdict(facts: VerdictFacts) -> Iterator[Block]:
    """Show whether what the run did is still so."""
    judged, run = facts.verdict, facts.report.run
    if judged.broken:
        count = many(len(judged.broken), "thing does", "things do")
        yield Line(f"{count} not hold any more of run {run}: {facts.workdir}", "bad")
    elif not facts.holds:
        taken = f"run {run} was rolled back: what it did was taken back, and does not hold"
        yield Line(f"{taken}: {facts.workdir}", "bad")
    else:
        yield Line(f"everything that run {run} did still holds: {facts.workdir}", "good")
    for broken in judged.broken:
        yield Line(f"{broken.step}: {redact(str(broken.discrepancy))}", "bad", 2)
    for note in judged.notes:
        yield Line(f"note: {redact(note)}", indent=2)


def live(at_work: Live, engine: str) -> Iterator[Block]:
    """Show what a process is at. It stands behind the report of what is over."""
    yield Line(at(at_work), "strong")
    if at_work.left:
        yield _rests(at_work, engine)
        down = f"{downtime(at_work)} if stopped now, plus stopping and starting the job"
        yield pairs(("downtime", down))
    if at_work.down_since is not None:
        yield pairs(("downtime", f"{down_for(at_work.down_since, at_work.at)} so far"))


def watch(report: Report, at_work: Live | None) -> Iterator[Block]:
    """Show all that is drawn over and over."""
    names = ", ".join(job.job for job in report.jobs)
    jobs = f" ({names})" if names else ""
    yield Line(f"run {report.run}: {report.state}{jobs}", "strong")
    if at_work is None:
        yield Line("a process is at work on it now", indent=2)
        return
    yield from live(at_work, report.engine)
    yield pairs(("to steer", "stateshift cutover | pause | throttle | rollback WORKDIR"))


def line(report: Report, at_work: Live | None) -> str:
    """Return the same on one line, for a log."""
    if at_work is None:
        return f"run {report.run}: {report.state}"
    now = at(at_work)
    if at_work.left:
        lines = []
        for job, rest in at_work.left.items():
            lines.append(f"{job}: {many(rest.files, 'file')}, {size(rest.bytes)} left")
        left = "; ".join(lines)
        return f"{now}; {left}, downtime {downtime(at_work)} if stopped now"
    if at_work.down_since is not None:
        return f"{now}; down for {down_for(at_work.down_since, at_work.at)} so far"
    return now


def at(at_work: Live) -> str:
    """Return the activity of a process."""
    where = f"{redact(at_work.job)}: {at_work.phase}" if at_work.phase else "looking"
    if at_work.paused:
        return f"{where}, paused (`pause --off` lets it go on)"
    if at_work.waiting:
        return f"{redact(at_work.job)}: waiting {at_work.waiting}"
    words = [where]
    if at_work.files:
        words.append(f"{number(at_work.files_done)} of {many(at_work.files, 'file')}")
    if at_work.bytes:
        rate = at_work.bytes_done / max(at_work.at - at_work.began, 1e-3)
        words += [f"{size(at_work.bytes_done)} of {size(at_work.bytes)}", f"{size(rate)}/s"]
        if 0 < at_work.bytes_done < at_work.bytes:
            words.append(f"{span((at_work.bytes - at_work.bytes_done) / rate)} left")
    return ", ".join(words)


def down_for(since: float, now: float) -> str:
    """Return the seconds of downtime; 0 if the clock went back."""
    return span(max(0.0, now - since))


def downtime(at_work: Live) -> str:
    """Return the downtime of a job if it stopped now. Nobody knows it before the first copy."""
    rests = at_work.left.values()
    if any(rest.files and not rest.brought_per_second for rest in rests):
        return "not known yet"
    return f"about {span(max(rest.seconds for rest in rests))}"


def _rests(at_work: Live, engine: str) -> TextTable:
    heads = (
        "job",
        ">rounds",
        f">{terms_of(engine).at}",
        ">files left",
        ">size",
        ">would take",
        ">job writes",
        ">we copy",
    )
    rows = []
    for job, rest in at_work.left.items():
        row = (
            redact(job),
            number(rest.round),
            "-" if rest.epoch is None else number(rest.epoch),
            number(rest.files),
            size(rest.bytes),
            span(rest.seconds),
            _rate(rest.written_per_second),
            _rate(rest.brought_per_second),
        )
        rows.append(row)
    return TextTable(heads, tuple(rows))


def _rate(bytes_per_second: float | None) -> str:
    return "-" if bytes_per_second is None else f"{size(bytes_per_second)}/s"
