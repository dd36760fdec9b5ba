"""The stages at whose end the jobs of a wave are down: warm jobs are followed while they run, until
they may be stopped; then all are stopped. Jobs at one cut are stopped in parts: a reader of topics
goes on until it has read what those before it have written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from stateshift.migration.backlog import Backlog, parts, reads_out
from stateshift.migration.context import RunContext
from stateshift.migration.halts import halt_of, prepare
from stateshift.migration.history import plans_while_running
from stateshift.migration.observation import as_it_runs, has_stopped, remove_leftovers
from stateshift.migration.origins import note_origins
from stateshift.migration.plan_book import NumberedPlan
from stateshift.migration.stages.wave_state import BesideWork, WaveState
from stateshift.migration.trials import try_starts
from stateshift.migration.warm_rounds import WarmRounds
from stateshift.specification import JobSpec
from stateshift.step import StopJob


def follow_until_cutover(context: RunContext, wave: WaveState) -> None:
    """Bring the images of warm jobs over, round by round; return when the wave is to be
    stopped.
    """
    warm = [job for job in wave.pending if _is_followed(context, job)]
    if not warm or has_stopped(context, wave.pending):
        return
    rounds = WarmRounds(context, warm)
    rounds.until_cutover()
    wave.beside_stop = rounds.while_they_stop()


def _is_followed(context: RunContext, job: JobSpec) -> bool:
    """Return whether a job is still to be followed: it was not stopped yet, or has been started
    again.
    """
    return context.plans.proposed(job, "warm") is not None and not has_stopped(context, (job,))


def stop_jobs(context: RunContext, wave: WaveState) -> None:
    """Carry out the plans that stop the jobs of the wave."""
    for job in wave.pending:
        remove_leftovers(context, plans_while_running(context.progress, job.name))
    if not has_stopped(context, wave.pending):
        running = [as_it_runs(context, job) for job in wave.pending]
        note_origins(context, running)
        try_starts(context, [job for job in running if job.mode == "warm"])  # time has passed
    wave.halted = halt(context, wave.pending, wave.beside_stop)
    if any(job.mode == "warm" for job in wave.pending):
        # Not before: a resume is not asked for it again.
        context.control.steering.heeded("cutover")


def halt(
    context: RunContext, jobs: Sequence[JobSpec], beside: BesideWork | None = None
) -> frozenset[str]:
    """Carry out the halts that there are. Return the names of the jobs that they stopped.
    `beside` goes on meanwhile.
    """
    halts = _halts_of(context, jobs)
    groups = [_with_halt(part, halts) for part in parts(context.spec, jobs)]
    is_begun = has_stopped(context, jobs)
    readers = _readers(context, groups[1:], halts)
    if not is_begun:
        for reader in readers.values():
            reader.first_look()
    if len(groups) > 1:
        prepare(context, jobs)  # what fails here has stopped nobody
    if not halts:
        return frozenset()
    context.status.stopping()
    with _running_beside(None if is_begun else beside):
        for group in groups:
            _stop_group(context, group, halts, readers)
    context.status.down(_down_since(context, halts.values()))
    return frozenset(halts)


def _halts_of(context: RunContext, jobs: Sequence[JobSpec]) -> dict[str, NumberedPlan]:
    halts = {}
    for job in jobs:
        plan = halt_of(context, job)
        if plan is not None:
            halts[job.name] = plan
    return halts


def _with_halt(jobs: Iterable[JobSpec], halts: Mapping[str, NumberedPlan]) -> list[JobSpec]:
    return [job for job in jobs if job.name in halts]


def _stop_group(
    context: RunContext,
    group: Sequence[JobSpec],
    halts: Mapping[str, NumberedPlan],
    readers: Mapping[str, Backlog],
) -> None:
    for job in group:
        if job.name in readers:
            readers[job.name].wait()
    context.execute([halts[job.name] for job in group])


def _down_since(context: RunContext, halts: Iterable[NumberedPlan]) -> float | None:
    """Return when the last of the jobs was down."""
    ends = []
    for number, _ in halts:
        for step in context.progress.plans[number].steps.values():
            if step.phase == "halt":
                ends.append(step.at + step.seconds)
    return max(ends, default=None)


def _readers(
    context: RunContext, groups: Sequence[Sequence[JobSpec]], halts: Mapping[str, NumberedPlan]
) -> dict[str, Backlog]:
    """Return what waits until a job has read all, for each job that still has to be stopped, and
    of which somebody can be asked.
    """
    readers = {}
    for group in groups:
        for job in group:
            reader = _reader(context, job, halts[job.name])
            if reader is not None:
                readers[job.name] = reader
    return readers


def _reader(context: RunContext, job: JobSpec, halt: NumberedPlan) -> Backlog | None:
    number, plan = halt
    phase = plan.phase("halt")
    if phase is None:
        return None
    step = phase.steps[0]
    progress = context.progress.plans[number]
    if progress.finished(step.name):
        return None
    if isinstance(step, StopJob) and reads_out(context.spec, job):
        return Backlog(context, job, step)
    context.say(
        f"{job.name} is stopped with the others: nobody here can ask whether it has read all by "
        "then"
    )
    return None


@contextmanager
def _running_beside(work: BesideWork | None) -> Iterator[None]:
    """Do `work` in a thread of its own for as long as the block takes. What it is at then, it
    finishes.
    """
    if work is None:
        yield
        return
    over = threading.Event()
    with ThreadPoolExecutor(1, thread_name_prefix="beside") as threads:
        done = threads.submit(work, over)
        try:
            yield
        finally:
            over.set()
    done.result()
