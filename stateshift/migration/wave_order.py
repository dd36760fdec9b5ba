"""Which jobs of a spec move together: what the spec says, what they share, and what its dataflow
makes of them.

    check_dataflow(spec)  refuse a dataflow that does not fit the spec's jobs, or its waves
    waves(spec, names)    these jobs, or all, in the order in which they move
    cuts_of(spec, names)  which of these jobs are stopped at one cut, and why

Jobs whose operators a tuple may pass one after the other change at one cut (`dataflow.cuts`):
they are in one wave, which stops all of them before it copies any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from stateshift.dataflow.cuts import Cut, cuts
from stateshift.dataflow.wave_strategy import in_waves
from stateshift.errors import Complaint, SpecError
from stateshift.specification import JobSpec, Spec
from stateshift.specification.waves import group_by_source
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
    every = in_waves(spec, _together(spec))
    return every if names is None else _with_jobs(every, names)


def _with_jobs(every: Iterable[Wave], names: Collection[str]) -> tuple[Wave, ...]:
    """Return the waves with these jobs alone; a wave that has none of them is left out."""
    with_jobs = []
    for wave in every:
        asked = tuple(job for job in wave if job.name in names)
        if asked:
            with_jobs.append(asked)
    return tuple(with_jobs)


def cuts_of(spec: Spec, names: Sequence[str] | None = None) -> tuple[Cut, ...]:
    """Return which of these jobs, or of all, are stopped at one cut."""
    if spec.dataflow is None:
        return ()
    moving = [job.name for job in spec.jobs if job.moves]
    if names is not None:
        moving = [name for name in moving if name in names]
    units = [[job.name for job in group] for group in group_by_source(spec)]
    return cuts(spec.dataflow, moving, units)


def _together(spec: Spec) -> list[Wave]:
    """Return every job once, in the spec's order, with those that it has to move with."""
    groups = [list(group) for group in group_by_source(spec)]
    for cut in cuts_of(spec):
        groups = _joined(groups, cut)
    return _in_order(spec, groups)


def _in_order(spec: Spec, groups: list[list[JobSpec]]) -> list[Wave]:
    order = {job.name: number for number, job in enumerate(spec.jobs)}
    for group in groups:
        group.sort(key=lambda job: order[job.name])
    groups.sort(key=lambda group: order[group[0].name])
    return [tuple(group) for group in groups]


def _joined(groups: Sequence[list[JobSpec]], cut: Cut) -> list[list[JobSpec]]:
    """Return the groups, with all those as one that have a job of the cut."""
    inside = [group for group in groups if _is_cut_by(cut, group)]
    apart = [group for group in groups if not _is_cut_by(cut, group)]
    return [*apart, list(chain.from_iterable(inside))]


def _is_cut_by(cut: Cut, group: Sequence[JobSpec]) -> bool:
    return any(job.name in cut.jobs for job in group)


def _jobs_without_operators(spec: Spec) -> Iterator[Complaint]:
    if spec.dataflow is None:
        return
    jobs = [operator.job for operator in spec.dataflow.operators]
    known = list(dict.fromkeys(job for job in jobs if job is not None))
    for job in spec.jobs:
        if job.name not in known:
            yield _without_operator(job.name, known)


def _without_operator(job: str, known: list[str]) -> Complaint:
    hint = did_you_mean(job, known)
    fact = f"no operator of the dataflow is of the job {job!r}{hint}"
    expected = '"job" of its operators, or at least one operator of its own'
    return Complaint("/dataflow", fact, None, expected)


def _cuts_in_two_waves(spec: Spec) -> Iterator[Complaint]:
    wave_of = _wave_numbers(spec)
    for cut in cuts_of(spec) if spec.waves else ():
        for other in cut.jobs[1:]:
            if wave_of[other] != wave_of[cut.jobs[0]]:
                yield _in_two_waves(cut, other)


def _wave_numbers(spec: Spec) -> dict[str, int]:
    wave_of: dict[str, int] = {}
    for number, wave in enumerate(spec.waves):
        wave_of |= dict.fromkeys(wave, number)
    return wave_of


def _in_two_waves(cut: Cut, other: str) -> Complaint:
    fact = f"{cut.jobs[0]!r} and {other!r} change at one cut, and are in two waves"
    expected = f'one wave for {", ".join(cut.jobs)}, or no "dataflow"'
    return Complaint("/waves", fact, None, expected)
