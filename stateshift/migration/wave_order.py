"""Which jobs of a spec move together: what the spec says, what they share, and what its dataflow
makes of them.

Jobs whose operators a tuple may pass one after the other change at one cut (`dataflow.cuts`):
they are in one wave, which stops all of them before it copies any. All standbys are in the last
wave: they are fed until somebody cuts them over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from stateshift.dataflow.cuts import Cut, cuts, in_waves
from stateshift.errors import Complaint, SpecError
from stateshift.specification import JobSpec, Spec
from stateshift.specification.job_relations import group_by_source
from stateshift.suggestion import did_you_mean

Wave = tuple[JobSpec, ...]


def check_dataflow(spec: Spec) -> None:
    """Raise a SpecError where a spec's dataflow does not fit its jobs, or its waves."""
    complaints = (*_jobs_without_operators(spec), *_cuts_in_two_waves(spec))
    if complaints:
        hint = "stateshift dataflow DATAFLOW --targets A,B shows what hangs together"
        raise SpecError(complaints, hint=hint)


def waves(spec: Spec, names: Collection[str] | None = None) -> tuple[Wave, ...]:
    """Return these jobs, or all, once, in the waves in which they move."""
    # Every job once, in the spec's order, with those that it has to move with.
    groups = [list(group) for group in group_by_source(spec)]
    for cut in cuts_of(spec):
        groups = _join_cut(groups, cut)
    order = {job.name: number for number, job in enumerate(spec.jobs)}
    for group in groups:
        group.sort(key=lambda job: order[job.name])
    groups.sort(key=lambda group: order[group[0].name])
    waves = in_waves(spec, [tuple(group) for group in groups])
    others: list[Wave] = []
    fed: list[JobSpec] = []
    for wave in waves:
        if any(job.is_standby for job in wave):
            fed += wave
        else:
            others.append(wave)
    every = (*others, tuple(fed)) if fed else tuple(others)
    if names is None:
        return every
    named = [tuple(job for job in wave if job.name in names) for wave in every]
    return tuple(filter(None, named))


def _join_cut(groups: Sequence[list[JobSpec]], cut: Cut) -> list[list[JobSpec]]:
    """Return the groups, with all those as one that have a job of the cut."""
    apart: list[list[JobSpec]] = []
    inside: list[JobSpec] = []
    for group in groups:
        if any(job.name in cut.jobs for job in group):
            inside += group
        else:
            apart.append(group)
    return [*apart, inside]


def cuts_of(spec: Spec, names: Sequence[str] | None = None) -> tuple[Cut, ...]:
    """Return the cuts at which these jobs, or all, are stopped."""
    if spec.dataflow is None:
        return ()
    moving = [job.name for job in spec.jobs if job.moves]
    if names is not None:
        moving = [name for name in moving if name in names]
    units = [[job.name for job in group] for group in group_by_source(spec)]
    return cuts(spec.dataflow, moving, units)


def _jobs_without_operators(spec: Spec) -> Iterator[Complaint]:
    if spec.dataflow is None:
        return
    jobs = [operator.job for operator in spec.dataflow.operators]
    known = list(dict.fromkeys(job for job in jobs if job is not None))
    for job in spec.jobs:
        if job.name not in known:
            hint = did_you_mean(job.name, known)
            fact = f"no operator of the dataflow is of the job {job.name!r}{hint}"
            expected = '"job" of its operators, or at least one operator of its own'
            yield Complaint("/dataflow", fact, None, expected)


def _cuts_in_two_waves(spec: Spec) -> Iterator[Complaint]:
    if not spec.waves:
        return
    wave_of: dict[str, int] = {}
    for number, wave in enumerate(spec.waves):
        wave_of |= dict.fromkeys(wave, number)
    for cut in cuts_of(spec):
        first, *others = cut.jobs
        for other in others:
            if wave_of[other] != wave_of[first]:
                fact = f"{first!r} and {other!r} change at one cut, and are in two waves"
                expected = f'one wave for {", ".join(cut.jobs)}, or no "dataflow"'
                yield Complaint("/waves", fact, None, expected)
