"""The calls that begin a run, go on with it, take it back and tell of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from shlex import quote

from stateshift import __version__, logs, plain
from stateshift.errors import JournalError, PlanError, StateshiftError, StorageError
from stateshift.journal import (
    BootNoted,
    CommandName,
    GivenCommand,
    Journal,
    Progress,
    RollbackStarted,
    RunFinished,
    RunResumed,
    RunStarted,
    decode_records,
    expect_ours,
    fold,
)
from stateshift.migration.adapters import Adapters
from stateshift.migration.aftermath import react
from stateshift.migration.context import RunContext, open_run, reopen_run
from stateshift.migration.fleet_session import refuse_inside
from stateshift.migration.gathering import check_submits
from stateshift.migration.last_copy import refuse_last_copy
from stateshift.migration.notifications import tell_finished, with_end_told
from stateshift.migration.policy import keep_policies
from stateshift.migration.proposal import Proposal, encode_proposal, proposal_of, refuse
from stateshift.migration.rehearsal import rehearse
from stateshift.migration.rollback_checks import refuse_rollback
from stateshift.migration.stages import run_wave
from stateshift.migration.submit_corrections import correct
from stateshift.migration.target_locks import release_untouched
from stateshift.migration.wave_order import waves
from stateshift.migration.way_back import note_running_jobs, roll_back_run
from stateshift.report import Report, summarize
from stateshift.specification import Spec, to_plain_spec
from stateshift.specification.job_relations import unsynced_locations, unsynced_places
from stateshift.workdir import Workdir

LOG = "log"
STARTS_NO_JOB = ("finished", "rolled-back", "rolling-back")

_log = logging.getLogger(__name__)


def nobody_waits() -> None:
    """Do nothing: the default of the call once the journal holds what was begun."""


def apply(
    proposal: Proposal,
    run: str,
    workdir: Workdir,
    adapters: Adapters,
    begun: Callable[[], None] = nobody_waits,
) -> Report:
    """Carry out a proposal as a new run, if its facts still hold."""
    refuse(proposal.plans)
    jobs = proposal.jobs()
    by = keep_policies(jobs, adapters, proposal.signed)
    refuse_inside(workdir, proposal.spec)
    workdir.create()
    with workdir.hold(), _logged("apply", workdir, adapters):
        journal = Journal(workdir.lines)
        if journal.progress.state != "new":
            raise JournalError(
                f"{workdir.path} is the workdir of another run",
                hint=f"stateshift status {quote(str(workdir.path))} tells of it; stateshift apply "
                "--workdir takes another place",
            )
        note_command("apply", workdir, replace(adapters, by=by))
        plain_spec = to_plain_spec(proposal.spec)
        workdir.write("spec.json", plain_spec)
        workdir.write("proposal.json", encode_proposal(proposal))
        if proposal.signed is not None:
            workdir.write("signed.json", proposal.signed.document)
        names = tuple(job.name for job in jobs)
        journal.append(
            RunStarted(
                at=adapters.clock.now(),
                run=run,
                stateshift=__version__,
                spec=plain.fingerprint(plain_spec),
                jobs=names,
                rehearses=any(job.rehearses for job in jobs),
            )
        )
        _note_boot(journal, proposal.spec, adapters)
        begun()
        return with_end_told(open_run(proposal, journal, workdir, adapters), _carry_out)


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
        if journal.progress.state not in ("finished", "rolled-back"):
            note_command("resume", workdir, adapters)
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
                _refuse_lost_copies(journal.progress, spec, adapters.boot, workdir)
                journal.append(RunResumed(adapters.clock.now()))
                _note_boot(journal, spec, adapters)
                begun()
                return with_end_told(reopen_run(journal, workdir, adapters), _carry_out)


def _carry_out(context: RunContext) -> Report:
    """Carry out all waves, in order. Raise the first failure after the reaction to it."""
    with context.control.listening():
        failure: StateshiftError | None = None
        try:
            if context.progress.rehearses:
                return rehearse(context)
            for wave in waves(context.spec, context.progress.jobs):
                try:
                    run_wave(context, wave)
                except StateshiftError as error:
                    reaction = react(context, wave, error)
                    failure = failure or reaction.error
                    if not reaction.goes_on:
                        break
            if failure is None:
                context.record(RunFinished(context.now()))
        except StateshiftError as error:
            recorded = context.record_failure(error)
            release_untouched(context)
            raise recorded from error
        if failure is not None:
            raise context.record_failure(failure) from failure
        return context.write_report()


def rollback(
    workdir: Workdir,
    adapters: Adapters,
    discard_progress: bool = False,
    begun: Callable[[], None] = nobody_waits,
    discard_last_copy: bool = False,
) -> Report:
    """Take a run back: everything it wrote, and nothing else. If it was taken back before and left
    a job down, ask the cluster whether that job runs again.
    """
    workdir.require()
    with workdir.hold(), _logged("rollback", workdir, adapters):
        journal = _journal_of(workdir)
        if journal.progress.state != "rolled-back":
            note_command("rollback", workdir, adapters)
        if journal.progress.state == "new":
            return summarize(journal.progress, workdir.commands())
        context = reopen_run(journal, workdir, adapters)
        before = journal.progress
        if before.state == "rolled-back":
            note_running_jobs(context, is_said=False)
            return context.write_report()
        # Whatever the job of a drill has done is worth nothing.
        discard, last_copy = discard_progress or before.rehearses, discard_last_copy
        if before.state == "rolling-back":
            discard, last_copy = discard or before.discard, last_copy or before.last_copy
        else:
            _check_rollback(context, discard, last_copy)
        is_told = (discard, last_copy) == (before.discard, before.last_copy)
        if before.state != "rolling-back" or not is_told:
            now = adapters.clock.now()
            journal.append(RollbackStarted(now, discard, last_copy=last_copy))
        begun()
        note_running_jobs(context, is_said=False)
        return with_end_told(context, roll_back_run)


def note_running(workdir: Workdir, adapters: Adapters) -> None:
    """Write down that somebody has started the run's jobs where they were: it does not."""
    workdir.require()
    with workdir.hold(), _logged("rollback", workdir, adapters):
        journal = _journal_of(workdir)
        if journal.progress.state != "new":
            note_command("rollback", workdir, adapters)
            note_running_jobs(reopen_run(journal, workdir, adapters), is_said=True)


def note_command(what: CommandName, workdir: Workdir, adapters: Adapters) -> None:
    """Write down who gives a command for a run, also one that is then refused."""
    if adapters.by is not None:
        workdir.note_command(GivenCommand(what, adapters.clock.now(), adapters.by))


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
    refuse_rollback(context, known, discard_progress or context.progress.rehearses)


def _note_boot(journal: Journal, spec: Spec, adapters: Adapters) -> None:
    """Write down which start of the machine this is, where some of the run is not synced.

    The journal is on disk, and the files that it calls written may not be. As long as the machine
    runs they are there, whichever process was killed: a run goes on in the same start alone.
    """
    if unsynced_locations(spec):
        journal.append(BootNoted(adapters.clock.now(), adapters.boot))


def _refuse_lost_copies(progress: Progress, spec: Spec, boot: str, workdir: Workdir) -> None:
    """Refuse to go on with copies that a power cut may have damaged. `boot` is empty if the system
    does not name it. A step that was only begun is repeated anyhow.
    """
    if boot != "" and boot == progress.boot:
        return
    for job in spec.jobs:
        plans = progress.plans_of((job.name,))
        states: set[str] = set()
        for plan in plans:
            states.update(step.state for step in plan.steps.values())
        places = unsynced_places(spec, job)
        if places and "finished" in states:
            since = "the machine was started again since, or is another one"
            if boot == "":
                since = "this system does not say whether the machine was started again since"
            raise StorageError(
                f"{job.name} was copied without sync, and {since}: files of the copy may be lost",
                location=places[0],
                hint="take the copy back, then begin again: "
                f"stateshift rollback {quote(str(workdir.path))}",
            )


def _journal_of(workdir: Workdir) -> Journal:
    """Return the journal of a run that was begun. An empty one was lost, if plans were adopted."""
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
            stack.enter_context(logs.keep_log(workdir.path / LOG))
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
    """Return the spec that a run was begun with."""
    workdir.require()
    return proposal_of(workdir).spec


def status(workdir: Workdir) -> Report:
    """Return the report of a run so far, also while another process writes its journal."""
    workdir.require()
    return summarize(progress_of(workdir), workdir.commands())


def progress_of(workdir: Workdir) -> Progress:
    """Return the fold of a run's journal, also while another process writes it."""
    content = workdir.lines.read()
    records, good = decode_records(content)
    expect_ours(content[good:])
    return fold(iter(records))
