"""What can be asked of a run: apply, resume, roll back, status, verify."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from shlex import quote

from stateshift import __version__, executor, logs, plain
from stateshift.errors import JournalError, PlanError, StateshiftError
from stateshift.journal import (
    Journal,
    PlanProgress,
    Progress,
    RollbackStarted,
    RunResumed,
    RunStarted,
    decode_records,
    expect_ours,
    fold,
)
from stateshift.migration.adapters import Adapters, world_of
from stateshift.migration.context import RunContext, open_run, reopen_run
from stateshift.migration.fleet_session import refuse_inside
from stateshift.migration.foreign import foreign_files
from stateshift.migration.gathering import check_submits
from stateshift.migration.last_copy import refuse_last_copy
from stateshift.migration.notifications import tell_finished, with_end_told
from stateshift.migration.proposal import Proposal, encode_proposal, proposal_of, refuse
from stateshift.migration.rollback_checks import refuse_rollback
from stateshift.migration.run import carry_out
from stateshift.migration.submit_corrections import correct
from stateshift.migration.unsynced import note_boot, refuse_lost_copies
from stateshift.migration.way_back import roll_back_run
from stateshift.plan import Plan
from stateshift.purpose import WHILE_IT_RUNS
from stateshift.report import Report, summarize
from stateshift.specification import Spec, to_plain_spec
from stateshift.workdir import Workdir

LOG = "log"
STARTS_NO_JOB = ("finished", "rolled-back", "rolling-back")

_log = logging.getLogger(__name__)


def nobody_waits() -> None:
    """Do nothing: the default of who is called once the journal holds what was begun."""


def apply(
    proposal: Proposal,
    run: str,
    workdir: Workdir,
    adapters: Adapters,
    begun: Callable[[], None] = nobody_waits,
) -> Report:
    """Carry out a proposal as a new run. What is there now must still be what the plans were
    made from.
    """
    refuse(proposal.plans)
    jobs = proposal.jobs()
    refuse_inside(workdir, proposal.spec)
    workdir.create()
    with workdir.hold(), _logged("apply", workdir, adapters):
        journal = Journal(workdir.lines)
        if journal.progress.state != "new":
            where = quote(str(workdir.path))
            hint = (
                f"stateshift status {where} tells of it; stateshift apply --workdir takes "
                "another place"
            )
            raise JournalError(f"{workdir.path} is the workdir of another run", hint=hint)
        plain_spec = to_plain_spec(proposal.spec)
        workdir.write("spec.json", plain_spec)
        workdir.write("proposal.json", encode_proposal(proposal))
        names = tuple(job.name for job in jobs)
        journal.append(
            RunStarted(adapters.clock.now(), run, __version__, plain.fingerprint(plain_spec), names)
        )
        note_boot(journal, proposal.spec, adapters)
        begun()
        return with_end_told(open_run(proposal, journal, workdir, adapters), carry_out)


def resume(
    workdir: Workdir,
    adapters: Adapters,
    corrected: Spec | None = None,
    begun: Callable[[], None] = nobody_waits,
) -> Report:
    """Go on where the journal ends, and start jobs as a `corrected` spec says. A finished run has
    nothing left, and one that goes back starts no job that could be corrected.
    """
    workdir.require()
    with workdir.hold(), _logged("resume", workdir, adapters):
        journal = _journal_of(workdir)
        if corrected is not None and journal.progress.state not in STARTS_NO_JOB:
            spec = proposal_of(workdir).spec
            for job in corrected.jobs:
                check_submits(corrected, job)
            correct(workdir, spec, corrected)
        match journal.progress.state:
            case "finished":
                context = reopen_run(journal, workdir, adapters)
                report = context.write_report()
                tell_finished(context, report)
                return report
            case "rolled-back":
                return reopen_run(journal, workdir, adapters).write_report()
            case "rolling-back":
                begun()
                return with_end_told(reopen_run(journal, workdir, adapters), roll_back_run)
            case "new":
                raise PlanError(
                    f"{workdir.path} was begun and nothing was done in it",
                    hint=f"begin again: stateshift apply {quote(str(workdir.path / 'spec.json'))}",
                )
            case _:
                spec = proposal_of(workdir).spec
                refuse_lost_copies(journal.progress, spec, adapters.boot, workdir)
                journal.append(RunResumed(adapters.clock.now()))
                note_boot(journal, spec, adapters)
                begun()
                return with_end_told(reopen_run(journal, workdir, adapters), carry_out)


def rollback(
    workdir: Workdir,
    adapters: Adapters,
    discard_progress: bool = False,
    begun: Callable[[], None] = nobody_waits,
    discard_last_copy: bool = False,
) -> Report:
    """Take a run back: everything it wrote, and nothing else."""
    workdir.require()
    with workdir.hold(), _logged("rollback", workdir, adapters):
        journal = _journal_of(workdir)
        if journal.progress.state == "new":
            return summarize(journal.progress)
        context = reopen_run(journal, workdir, adapters)
        match journal.progress.state:
            case "rolled-back":
                return context.write_report()
            case "rolling-back":
                discard = discard_progress or journal.progress.discard
                last_copy = discard_last_copy or journal.progress.last_copy
                started = RollbackStarted(adapters.clock.now(), discard, last_copy=last_copy)
                if (discard, last_copy) != (journal.progress.discard, journal.progress.last_copy):
                    journal.append(started)
                begun()
                return with_end_told(context, roll_back_run)
        _check_rollback(context, discard_progress, discard_last_copy)
        now = adapters.clock.now()
        journal.append(RollbackStarted(now, discard_progress, last_copy=discard_last_copy))
        begun()
        return with_end_told(context, roll_back_run)


def check_rollback(
    workdir: Workdir,
    adapters: Adapters,
    discard_progress: bool = False,
    discard_last_copy: bool = False,
) -> None:
    """Refuse what `rollback` would refuse, whoever is at work. Nothing is changed."""
    journal = _journal_of(workdir)
    if journal.progress.state not in ("new", "rolled-back", "rolling-back"):
        context = reopen_run(journal, workdir, adapters)
        _check_rollback(context, discard_progress, discard_last_copy)


def _check_rollback(context: RunContext, discard_progress: bool, discard_last_copy: bool) -> None:
    known = context.progress.known
    if not discard_last_copy:
        refuse_last_copy(context, known)
    refuse_rollback(context, known, discard_progress)


def _journal_of(workdir: Workdir) -> Journal:
    """Return the journal of a run that was begun. An empty one, where plans were adopted, was lost:
    what the run has done is not known.
    """
    journal = Journal(workdir.lines)
    if journal.progress.state == "new" and any((workdir.path / "plans").glob("*.json")):
        raise JournalError(
            f"{workdir.path / 'journal'} is empty, and its run had adopted plans",
            hint="nothing was changed; restore the journal from a copy",
        )
    return journal


@contextmanager
def _logged(verb: str, workdir: Workdir, adapters: Adapters) -> Iterator[None]:
    """Keep the log of what is done meanwhile in the workdir. Without it the run goes on."""
    with ExitStack() as stack:
        try:
            stack.enter_context(logs.kept_in(workdir.path / LOG))
        except OSError as error:
            adapters.meter.say(f"there is no log: {error.filename}: {error.strerror}")
        _log.info("%s of %s begins: stateshift %s", verb, workdir.path, __version__)
        try:
            yield
        except StateshiftError as error:
            _log.info("%s fails: %s: %s", verb, type(error).__name__, error.fact)
            raise
        except BaseException:
            _log.info("%s ends in an error of ours", verb, exc_info=True)
            raise
        _log.info("%s ends", verb)


def spec_of(workdir: Workdir) -> Spec:
    """Return what a run was asked to do."""
    workdir.require()
    return proposal_of(workdir).spec


def status(workdir: Workdir) -> Report:
    """Return where a run stands. Read the journal only, also while another process writes it."""
    workdir.require()
    return summarize(progress_of(workdir))


def progress_of(workdir: Workdir) -> Progress:
    """Return what a run's journal says, also while another process writes it."""
    content = workdir.lines.read()
    records, good = decode_records(content)
    expect_ours(content[good:])
    return fold(iter(records))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of `verify WORKDIR`: the steps whose evidence does not hold, what could not be
    asked any more, and the epoch that each job's image was copied at.
    """

    broken: tuple[executor.Broken, ...]
    notes: tuple[str, ...]
    epochs: Mapping[str, int | None] = field(default_factory=dict)
    finished: bool = False


def verify(workdir: Workdir, adapters: Adapters) -> Verdict:
    """Ask every step of a run whether its evidence still holds. Once the job has gone on from the
    image, its files are the job's to change: then only what guards the source and the job itself is
    asked. What rounds have copied is asked of the move, which keeps it.
    """
    workdir.require()
    # Never a Journal: opening one would cut the line that a live run is writing.
    progress = progress_of(workdir)
    world = world_of(proposal_of(workdir).spec, progress.run, workdir, adapters)
    broken: list[executor.Broken] = []
    epochs: dict[str, int | None] = {}
    notes = list(_notes_of_run(progress))
    planned: list[tuple[PlanProgress, Plan]] = []
    for adopted in progress.known:
        if adopted.purpose in WHILE_IT_RUNS:
            # A later round may have replaced it, or the move removed it: that answers for what it
            # has kept.
            continue
        plan = workdir.read_plan(adopted.plan, adopted.fingerprint)
        planned.append((adopted, plan))
        kinds: tuple[str, ...] = ()
        if _is_confirmed(adopted):
            notes.append(
                f"{adopted.job} has gone on from its image since: the image's files were not "
                "asked, nor those that the job wrote there since; the source's fence and the job "
                "were"
            )
            kinds = ("FenceSource", "SubmitJob")
        broken += executor.ask(plan, adopted, world, kinds, adapters.fleet)
        if plan.purpose == "move" and not adopted.undone:
            epochs[adopted.job] = plan.epoch
    foreign = foreign_files(planned, world)
    broken += foreign.broken
    notes += foreign.notes
    return Verdict(tuple(broken), tuple(notes), epochs, progress.state == "finished")


def _notes_of_run(progress: Progress) -> Iterator[str]:
    """Yield what could not be asked, since the run has not come so far."""
    if progress.state != "finished":
        yield (
            f"the run is {progress.state}: only what it has done so far, and not taken back, "
            "was asked"
        )
    for job in _followed(progress):
        yield f"{job} is followed while it runs: what has been copied of it was not asked"


def _followed(progress: Progress) -> list[str]:
    """Return the jobs that have rounds and no move."""
    moved, followed = set(), set()
    for adopted in progress.plans:
        if adopted.purpose == "move":
            moved.add(adopted.job)
        elif adopted.purpose in WHILE_IT_RUNS and not adopted.undone:
            followed.add(adopted.job)
    return sorted(followed - moved)


def _is_confirmed(adopted: PlanProgress) -> bool:
    """Whether the job has committed a batch since it was started from the image."""
    confirms = [step for step in adopted.steps.values() if step.phase == "confirm"]
    return any(step.state == "finished" for step in confirms)
