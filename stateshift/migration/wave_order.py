"""Which jobs of a spec move together: what the spec says, what they share, and what its dataflow
makes of them.

    with_dataflow(spec, opened)  the spec with the dataflow that it names, read and held against its
                                 jobs
    waves(spec)                  every job once, in the order in which they move
    cuts_of(spec, names)         which of these jobs are stopped at one cut, and why

Jobs whose operators a tuple may pass one after the other change at one cut (`dataflow.cuts`):
they are in one wave, which stops all of them before it copies any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from stateshift.dataflow.cuts import Cut, cuts
from stateshift.dataflow.document import to_plain
from stateshift.dataflow.operators import Dataflow
from stateshift.dataflow.parse import dataflow_of, parse_dataflow
from stateshift.dataflow.wave_strategy import in_waves
from stateshift.errors import Complaint, SpecError
from stateshift.specification import JobSpec, Spec
from stateshift.specification.waves import shared
from stateshift.suggestion import did_you_mean

Wave = tuple[JobSpec, ...]


def with_dataflow(spec: Spec, opened: Callable[[str], str]) -> Spec:
    """Read once, where the spec is: a run goes by what was said when it began."""
    if spec.dataflow is None:
        return spec
    said = spec.dataflow
    folder = os.path.dirname(said) if isinstance(said, str) else ""

    def near(name: str) -> str:
        """What the dataflow names is looked for beside it."""
        return opened(os.path.join(folder, name))

    try:
        dataflow = (
            parse_dataflow(opened(said), near) if isinstance(said, str) else dataflow_of(said, near)
        )
    except (OSError, UnicodeDecodeError) as error:
        fact = f"{said!r} cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SpecError((Complaint("/dataflow", fact, said, "a file beside the spec"),)) from error
    except SpecError as error:
        where = "/dataflow" if not isinstance(said, str) else f"{said}: "
        below = (replace(one, pointer=f"{where}{one.pointer}") for one in error.complaints)
        raise SpecError(tuple(below), hint=error.hint) from error
    read = replace(spec, dataflow=to_plain(dataflow))
    complaints = tuple(_misfits(read, dataflow))
    if complaints:
        raise SpecError(
            complaints,
            hint="stateshift dataflow DATAFLOW --targets A,B shows what hangs together",
        )
    return read


def waves(spec: Spec) -> tuple[Wave, ...]:
    return in_waves(spec, _together(spec))


def cuts_of(spec: Spec, names: Sequence[str] | None = None) -> tuple[Cut, ...]:
    if spec.dataflow is None:
        return ()
    asked = [job for job in spec.jobs if job.moves and (names is None or job.name in names)]
    units = [[job.name for job in group] for group in shared(spec)]
    return cuts(_dataflow(spec), [job.name for job in asked], units)


def _dataflow(spec: Spec) -> Dataflow:
    assert not isinstance(spec.dataflow, str), (
        "a spec's dataflow is read before anything is asked of it"
    )
    return dataflow_of(spec.dataflow or {})


def _together(spec: Spec) -> list[Wave]:
    """Every job once, in the spec's order, with those that it has to move with."""
    groups = [list(group) for group in shared(spec)]
    for cut in cuts_of(spec):
        near = [group for group in groups if any(job.name in cut.jobs for job in group)]
        groups = [group for group in groups if group not in near]
        groups.append([job for group in near for job in group])
    order = {job.name: number for number, job in enumerate(spec.jobs)}
    return sorted(
        (tuple(sorted(group, key=lambda job: order[job.name])) for group in groups),
        key=lambda group: order[group[0].name],
    )


def _misfits(spec: Spec, dataflow: Dataflow) -> Iterator[Complaint]:
    known = list(
        dict.fromkeys(operator.job for operator in dataflow.operators if operator.job is not None)
    )
    for job in spec.jobs:
        if job.name not in known:
            meant = did_you_mean(job.name, known)
            told = f"no operator of the dataflow is of the job {job.name!r}{meant}"
            yield Complaint(
                "/dataflow",
                told,
                None,
                '"job" of its operators, or at least one operator of its own',
            )
    wave_of = {name: number for number, wave in enumerate(spec.waves) for name in wave}
    for cut in cuts_of(spec) if spec.waves else ():
        first = cut.jobs[0]
        for other in cut.jobs[1:]:
            if wave_of[other] != wave_of[first]:
                told = f"{first!r} and {other!r} change at one cut, and are in two waves"
                yield Complaint(
                    "/waves", told, None, f'one wave for {", ".join(cut.jobs)}, or no "dataflow"'
                )
