"""The stages that stop the jobs of a wave: warm jobs are followed while they run, until they may be
stopped; then all are stopped. Jobs at one cut are stopped in parts: a reader of topics
goes on until it has read what those before it have written.

Before that, the clusters are asked for the options with which the jobs were started where they run.
A move that fails starts them again with these:

    <workdir>/origins.json    {"orders": {"cluster", "options", "environment", "why"}}: for the
                              owner's eyes alone, since it may hold credentials
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain

from stateshift import plain
from stateshift.clusters.protocol import Origin
from stateshift.clusters.redaction import redact, redact_words
from stateshift.journal import OriginNoted
from stateshift.migration.backlog import Backlog, parts, reads_out
from stateshift.migration.cluster_facts import origin_at
from stateshift.migration.context import (
    ORIGINS,
    BesideWork,
    RunContext,
    WaveState,
    read_origins,
)
from stateshift.migration.halts import halt_of, prepare
from stateshift.migration.history import plans_while_running
from stateshift.migration.observation import as_it_runs, has_stopped, remove_leftovers
from stateshift.migration.plan_book import NumberedPlan
from stateshift.migration.target_locks import set_aside
from stateshift.migration.trials import try_starts
from stateshift.migration.warm_rounds import WarmRounds
from stateshift.specification import JobSpec
from stateshift.step import StopJob


def follow_until_cutover(context: RunContext, wave: WaveState) -> None:
    """Bring the images of warm jobs over, round by round, until the wave is to be stopped."""
    if not has_stopped(context, wave.pending):
        for job in wave.pending:
            set_aside(context, job)
    # One that was started again after it was stopped is still to be followed.
    proposed = [job for job in wave.pending if context.plans.proposed(job, "warm") is not None]
    warm = [job for job in proposed if not has_stopped(context, (job,))]
    if not warm or has_stopped(context, wave.pending):
        return
    rounds = WarmRounds(context, warm)
    rounds.until_cutover()
    followed = {job.name for job in rounds.jobs}
    gone = {job.name for job in warm} - followed  # others have taken them over
    wave.pending = [job for job in wave.pending if job.name not in gone]
    wave.beside_stop = rounds.while_they_stop()


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
    """Carry out the halts, while `beside` goes on. Return the names of the stopped jobs."""
    halts: dict[str, NumberedPlan] = {}
    for job in jobs:
        plan = halt_of(context, job)
        if plan is not None:
            halts[job.name] = plan
    groups: list[list[JobSpec]] = []
    for part in parts(context.spec, jobs):
        groups.append([job for job in part if job.name in halts])
    is_begun = has_stopped(context, jobs)
    readers = _readers(context, chain.from_iterable(groups[1:]), halts)
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
            for reader in [readers[job.name] for job in group if job.name in readers]:
                reader.wait()
            context.execute([halts[job.name] for job in group])
    context.status.down(_down_since(context, halts.values()))
    return frozenset(halts)


def _readers(
    context: RunContext, jobs: Iterable[JobSpec], halts: Mapping[str, NumberedPlan]
) -> dict[str, Backlog]:
    """Return the backlog of each job that still runs, and of which somebody can be asked."""
    readers: dict[str, Backlog] = {}
    for job in jobs:
        number, plan = halts[job.name]
        phase = plan.phase("halt")
        if phase is None or context.progress.plans[number].finished(phase.steps[0].name):
            continue
        step = phase.steps[0]
        if isinstance(step, StopJob) and reads_out(context.spec, job):
            readers[job.name] = Backlog(context, job, step)
            continue
        context.say(
            f"{job.name} is stopped with the others: nobody here can ask whether it has read all "
            "by then"
        )
    return readers


def _down_since(context: RunContext, halts: Iterable[NumberedPlan]) -> float | None:
    """Return the time at which the last of the jobs was down."""
    ends: list[float] = []
    for number, _ in halts:
        steps = context.progress.plans[number].steps.values()
        ends += [step.at + step.seconds for step in steps if step.phase == "halt"]
    return max(ends, default=None)


@contextmanager
def _running_beside(work: BesideWork | None) -> Iterator[None]:
    """Do `work` in a thread of its own while this lasts; it finishes what it does then."""
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


# ---- the options with which jobs were started where they run


def note_origins(context: RunContext, jobs: Iterable[JobSpec]) -> None:
    """Write down the origins of these jobs. A cluster may not tell: `source_submit` may say it."""
    for job in jobs:
        if job.source_cluster is None or not job.moves:
            continue
        like = job.source_submit or job.submit
        options = None if like is None else like.options
        origin = origin_at(context.world.cluster(job.source_cluster), job, options)
        known = read_origins(context.workdir)
        if origin.options is None and known.get(job.name, {}).get("options") is not None:
            continue  # an earlier attempt of the run has been told more
        context.workdir.write(ORIGINS, {**known, job.name: asdict(origin)})
        line = _without_credentials(origin)
        context.record(OriginNoted(context.now(), job.name, job.source_cluster, line))


def _without_credentials(origin: Origin) -> str:
    if origin.options is None:
        return redact(origin.why)
    options: dict[str, object] = dict(origin.options)
    for key, value in options.items():
        if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
            options[key] = redact_words(list(value))
        elif isinstance(value, Mapping) and any(
            isinstance(each, Mapping) for each in value.values()
        ):
            options[key] = "..."  # names and values may be apart: a secret would not be known
    return redact(plain.canonical(options))
